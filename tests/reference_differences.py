"""Where our proxy answers differently from the original one on purpose, and which recorded cases say nothing of ours.

`DELIBERATE` gives for each case what differs (see `test_reference_cases`) and why. The test fails when a case that is
listed does not differ exactly so, and when one that is not listed differs.
"""

_ALL = "status answer sent_on record"

_GROUPS: list[tuple[str, str, list[str]]] = [
    (
        "any content type will do: what counts is whether the body is a JSON object",
        _ALL,
        ["body_content_type_form", "body_content_type_text_plain", "body_no_content_type"],
    ),
    (
        "every number and escape that JSON allows reaches the engine as it was sent",
        _ALL,
        ["lone_surrogate_in_message", "number_fidelity", "number_fidelity2", "number_int_over_u64"],
    ),
    ("text completions are served and captured too", _ALL, ["post_completions"]),
    ("the engine counts tokens for agents too", "sent_on status answer", ["post_tokenize"]),
    ("nesting beyond the limit is the agent's mistake: 400", "status answer", ["body_deep_nesting_500"]),
    ("NaN is not JSON, and was turned into null silently", _ALL, ["body_nan_literal"]),
    (
        "the agent's top_logprobs is kept: what it asked for is shown to it",
        "sent_on",
        ["caller_logprobs_overridden"],
    ),
    ("the type of this error is OpenAI's, not_found_error; the code stays", "answer", [
        "model_empty", "model_int", "model_missing", "model_null", "model_wrong_case", "real_model_name_as_model",
        "unknown_model",
    ]),
    ("records need a target that declares an engine", "record", [
        "noncapture_route_with_session", "noncapture_route_with_session_stream",
    ]),
    ("a call of no session is forwarded without capture parameters", "sent_on", [
        "session_basic_auth_marker", "session_bearer_empty_id", "session_bearer_no_marker",
        "session_bearer_uppercase_marker", "session_body_bool", "session_body_dict", "session_body_empty",
        "session_body_int", "session_body_list", "session_body_null", "session_header_empty",
        "session_header_mcpDASHsessionDASHid", "session_header_xDASHparentDASHsessionDASHid",
        "session_header_xDASHrequestDASHid", "session_header_xUSCsessionUSCid", "session_none", "session_none_stream",
    ]),
    ("blanks are trimmed off an id, and then there is none", "record sent_on", ["session_body_whitespace"]),
    ("more headers name a session: the hyphenated twin and what harnesses send", "record", [
        "session_header_proxyDASHxDASHsessionDASHid", "session_header_sessionDASHid", "session_header_sessionUSCid",
        "session_header_xDASHswitchyardDASHsessionDASHid",
    ]),
    ("header bytes that are UTF-8 are read as UTF-8", "record.session_id", ["session_header_utf8_bytes"]),
    ("an id has at most 512 characters and no control characters", _ALL, [
        "session_body_long", "session_body_nul_char", "session_header_long_8k",
    ]),
    ("an id with lone surrogates is refused, with 400", "status answer", ["session_body_lone_surrogate"]),
    ("capture parameters are not for extra_body to take away, which is refused at start", "sent_on", [
        "route_with_extra", "route_with_extra_caller_override",
    ]),
    ("an answer without a choice or a finish reason is no answer: 502", "status answer record", [
        "resp_choices_null", "resp_finish_null", "resp_zero_choices", "upstream_200_empty_object",
    ]),
    ("a stream without a finish reason is no answer: it ends with an error event", "answer record", [
        "resp_finish_null_stream",
    ]),
    ("an aborted generation is not complete", "record.is_valid", ["resp_finish_unknown"]),
    ("an aborted generation is not complete, and its stream is the engine's", "answer record.is_valid", [
        "resp_finish_unknown_stream",
    ]),
    ("what cannot be proved complete is invalid: counts, message and ids are checked", "record.is_valid", [
        "resp_no_message", "resp_prompt_ids_negative", "resp_usage_absent", "resp_usage_null_fields",
    ]),
    ("the record keeps what the assistant said beside content and tool calls", "record.messages", [
        "resp_function_call", "resp_reasoning_both",
    ]),
    ("the target's key is the proxy's own: its agent could do nothing about a 401", "status answer", [
        "upstream_401_vllm_json", "upstream_403_vllm_json",
    ]),
    ("an error in another shape is given the type of its status", "answer", [
        "upstream_400_json_list", "upstream_400_json_number", "upstream_400_old_vllm_flat",
        "upstream_500_empty", "upstream_500_text", "upstream_502_html",
    ]),
    ("the engine's own words on a full context go to the agent, whose compaction looks for them", "answer", [
        "upstream_400_context_overflow",
    ]),
    ("an error inside a 200 is an error: 502, with the engine's own body", "status record", [
        "upstream_200_error_object",
    ]),
    ("`.` and `..` are no ids", _ALL, ["sid_write_5058f1"]),
    ("an engine's error keeps its own body where that has the right shape: the code stays a number", "answer", [
        "upstream_400_vllm_json", "upstream_404_vllm_json", "upstream_422_vllm_json", "upstream_429_vllm_json",
        "upstream_500_vllm_json", "upstream_502_vllm_json", "upstream_503_vllm_json", "upstream_400_stream_request",
    ]),
    ("health checks answer HEAD too", "status", ["head_health"]),
    ("paths the original did not have", "status answer", [
        "delete_session", "get_healthz", "get_models_one", "get_root",
    ]),
    ("no interactive API pages: nobody needs them and they would list what is open", "status answer", [
        "get_docs", "get_openapi", "get_redoc",
    ]),
]  # fmt: skip

DELIBERATE: dict[str, tuple[set[str], str]] = {
    name: (set(aspects.split()), reason) for reason, aspects, names in _GROUPS for name in names
}

_SKIPPED: dict[str, str] = {
    "the engine's stream cannot be told from what was recorded": """
        n_2_stream resp_refusal_stream resp_stream_choices_null resp_stream_function_call resp_stream_no_message
        resp_stream_message_content_list resp_stream_zero_choices resp_usage_absent_stream resp_usage_malformed_stream
        resp_reasoning_stream resp_toolcall_null_function_stream resp_created_string_stream""",
    "the engine's reply cannot be told from what was recorded, or is broken: see proxy/test_engine_faults": """
        messages_null upstream_refused upstream_refused_stream upstream_drops_mid_body upstream_timeout_3s
        upstream_200_json_list upstream_200_json_null upstream_200_not_json upstream_200_sse_for_nonstream
        upstream_200_truncated_json upstream_204 upstream_302 upstream_307 resp_1e400_logprob resp_infinity_logprob
        resp_nan_logprob resp_duplicate_content_encoding_gzip route_anthfmt route_respfmt""",
    "the recorded text is not the bytes that were sent: see proxy/test_fidelity": """
        body_gzip_encoded body_invalid_utf8""",
    "the header cannot be sent by the client of these tests: see test_sessions": """
        session_header_padded session_header_whitespace_only""",
    "it depends on files laid out by hand, or on calls before it: see endpoints/test_sessions": """
        get_session_empty_dir get_session_foreign_and_partial_records get_session_only_corrupt_records
        get_session_with_corrupt_and_nonobject_record get_session_with_corrupt_record get_session_with_query
        get_sessions get_sessions_with_corrupt_and_nonobject_record get_session_bare list_parent_depends_on_uuid_order
        restart_get_old_session restart_list session_after_errors record_write_failure""",
    "it depends on how the proxy was started: see endpoints/test_models and proxy/test_commands": """
        get_models passthrough_models_listing route_models_listing passthrough_discovered_model
        passthrough_policy_model rl_disabled_capture_route rl_disabled_get_sessions rl_enabled_no_capture_declared
        no_api_key_openai_env_fallback""",
    "targets of other formats are not offered": """
        capture_with_format_anth_stream_false capture_with_format_anth_stream_true
        capture_with_format_responses_stream_false capture_with_format_responses_stream_true""",
    "metrics and statistics have another shape": """
        get_metrics get_routing_stats get_v1_stats post_stats_reset""",
}

NOT_REPLAYED: dict[str, str] = {name: reason for reason, names in _SKIPPED.items() for name in names.split()}
