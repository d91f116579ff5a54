"""Records against those the original proxy stored for the same request and reply, field for field."""

import json

import pytest
from built_records import V1, Record, built, streamed
from reference_cases import ReferenceCase, reference_cases

from switchyard_py.engines.vllm import EngineFault

# Cases the call of which fails, so that there is no record anything could be trained on.
FAILS = {
    "resp_choices_null": "no choices",
    "resp_zero_choices": "no choices",
    "resp_finish_null": "no finish reason",
    "resp_finish_null_stream": "no finish reason",
}
# Cases with fields that differ from the stored record of the reference on purpose.
DELIBERATE = {
    "resp_function_call": ({"messages"}, "the assistant message keeps function_call"),
    "resp_reasoning_both": ({"messages"}, "the assistant message keeps reasoning"),
    "resp_prompt_ids_negative": ({"is_valid"}, "a negative id is none"),
    "resp_finish_unknown": ({"is_valid"}, "an aborted reply is not complete"),
    "resp_finish_unknown_stream": ({"is_valid"}, "an aborted reply is not complete"),
    "resp_no_message": ({"is_valid"}, "a reply without a message is not complete"),
    "resp_usage_absent": ({"is_valid"}, "without usage nothing proves the counts"),
    "resp_usage_absent_stream": ({"is_valid"}, "without usage nothing proves the counts"),
    "resp_usage_malformed_stream": ({"is_valid"}, "without usage nothing proves the counts"),
    "resp_usage_null_fields": ({"is_valid"}, "without usage nothing proves the counts"),
}
PREFIXES = (
    "resp_",
    "tools_",
    "history_",
    "messages_",
    "n_2",
    "number_",
    "lone_surrogate",
    "caller_",
    "extra_",
    "body_",
)
# A request with NaN is refused, and so is one nested deeper than 128 levels.
REFUSED = {"body_nan_literal"}


def is_streamed(case: ReferenceCase) -> bool:
    return isinstance(case.body, dict) and bool(case.body.get("stream"))


def can_be_streamed(case: ReferenceCase) -> bool:
    """Whether an engine's stream can be made up from the stored record: the reference asked for no streams."""
    assert case.record is not None
    message = case.record["messages"][-1]
    calls = message.get("tool_calls", [])
    says = isinstance(message.get("content"), str) or calls
    return bool(says and case.record["prompt_token_ids"] and case.name != "n_2_stream" and "junk" not in calls)


STORED = {
    name: case
    for name, case in reference_cases().items()
    if case.record and name.startswith(PREFIXES) and name not in REFUSED
}
BUFFERED = [name for name, case in STORED.items() if not is_streamed(case)]
STREAMED = [name for name, case in STORED.items() if is_streamed(case) and can_be_streamed(case)]


def engine_stream(stored: Record) -> list[bytes]:
    """The events of a stream that generates what a record holds."""
    message = {key: value for key, value in stored["messages"][-1].items() if key != "role"}
    calls = [call | {"index": index} for index, call in enumerate(message.pop("tool_calls", []))]
    deltas: list[Record] = [{"role": "assistant", "content": ""}, message, *({"tool_calls": [call]} for call in calls)]
    tokens = zip(stored["generation_token_ids"], stored["generation_log_probs"], strict=True)
    last = {
        "delta": {},
        "finish_reason": stored["finish_reason"],
        "token_ids": stored["generation_token_ids"],
        "logprobs": {"content": [{"logprob": log_prob} for _, log_prob in tokens]},
    }
    envelope = {"id": stored["request_id"], "model": stored["model"]}
    choices = [*({"delta": delta, "finish_reason": None} for delta in deltas), last]
    chunks = [envelope | {"choices": [{"index": 0, **choice}]} for choice in choices]
    chunks[0]["prompt_token_ids"] = stored["prompt_token_ids"]
    if any(stored["token_count"].values()):
        chunks.append(envelope | {"choices": [], "usage": stored["token_count"]})
    return [json.dumps(chunk).encode() for chunk in chunks]


@pytest.mark.parametrize("name", [*BUFFERED, *STREAMED])
def test_a_record_is_the_one_the_reference_stored_but_for_deliberate_differences(name: str) -> None:
    case = STORED[name]
    stored = case.record
    assert stored is not None

    def rebuilt() -> Record:
        return streamed(case.body, engine_stream(stored)) if name in STREAMED else built(case.body, case.answer)

    if name in FAILS:
        with pytest.raises(EngineFault, match=FAILS[name]):
            rebuilt()
        return
    record = rebuilt()
    ours = ("uuid", "session_id", "parent_session_id", "captured_at")
    differing = {key for key in stored if key not in ours and record[key] != stored[key]}
    assert differing == DELIBERATE.get(name, (set(), ""))[0]
    assert list(stored) == list(V1)


def test_every_listed_difference_is_checked() -> None:
    assert DELIBERATE.keys() | FAILS.keys() <= set(BUFFERED) | set(STREAMED)
    assert len(BUFFERED) > 45
    assert len(STREAMED) >= 8
