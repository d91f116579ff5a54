"""The behaviour of the original proxy, replayed against ours case by case.

Left out of every comparison, because it differs throughout and on purpose: key order (ours is the agent's and the
engine's own), ids and log-probs in answers that did not ask for them (taken out), the wording of errors (and `param`,
which ours always have), the chunks of a stream (ours are the engine's), uuids and times, and the record's `call`.
What else differs is listed in `DELIBERATE` with its reason; what cannot be replayed in `NOT_REPLAYED`.
"""

import copy
import json
from typing import Any

import httpx
from event_stream import DONE, arguments, events, finish_reason, joined
from reference_cases import ReferenceCase, reference_cases
from reference_differences import DELIBERATE, NOT_REPLAYED
from running_proxy import RunningProxy, StartProxy
from scripted_engine import Script, ScriptedEngine, json_reply, sse_reply

_OVERFLOW = "This model's maximum context length is 32768 tokens. However, you requested 40000 tokens"


def _refusal(message: str, code: object, kind: str = "BadRequestError", param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


REFUSALS: dict[str, tuple[int, object]] = {
    **{f"upstream_{code}_vllm_json": (code, _refusal(f"boom {code}", code)) for code in (400, 401, 403, 404, 422, 429)},
    **{f"upstream_{code}_vllm_json": (code, _refusal(f"boom {code}", code)) for code in (500, 502, 503)},
    "upstream_400_stream_request": (400, _refusal("boom", 400)),
    "upstream_400_context_overflow": (400, _refusal(_OVERFLOW, 400)),
    "upstream_400_context_overflow_code": (
        400,
        _refusal("too big", "context_length_exceeded", "invalid_request_error", "messages"),
    ),
    "upstream_400_json_list": (400, [1, 2]),
    "upstream_400_json_number": (400, 5),
    "upstream_400_old_vllm_flat": (
        400,
        {"object": "error", "message": "flat boom", "type": "BadRequestError", "param": "temperature", "code": 400},
    ),
    "upstream_422_fastapi_detail": (422, {"detail": [{"loc": ["body"], "msg": "bad"}]}),
    "upstream_500_empty": (500, b""),
    "upstream_500_text": (500, b"Internal Server Error"),
    "upstream_502_html": (502, b"<html>bad gateway</html>"),
}
"""What the engine answered where that was no 200: status and body."""


def _script(case: ReferenceCase) -> Script | None:
    """The engine's reply, where it can be told from what was recorded."""
    if case.name in REFUSALS:
        status, body = REFUSALS[case.name]
        return json_reply(body, status)
    if isinstance(case.answer, dict) and case.status == 200:
        return json_reply(case.answer)
    if isinstance(case.answer, str) and case.answer.startswith("data:"):
        return _stream(case.record) if case.record else sse_reply([case.answer.encode()], done=False)
    return None


def _stream(record: dict[str, Any]) -> Script:
    """The stream of an engine that generated what the record holds."""
    message = copy.deepcopy(record["messages"][-1])
    for index, call in enumerate(message.get("tool_calls", [])):
        call["index"] = index
    envelope = {"id": record["request_id"], "object": "chat.completion.chunk", "created": 1, "model": record["model"]}
    log_probs = {"content": [{"token": "", "logprob": value} for value in record["generation_log_probs"] or []]}
    tokens = {"token_ids": record["generation_token_ids"], "logprobs": log_probs}
    choice = {"index": 0, "delta": message, "finish_reason": None, **tokens}
    end = {"index": 0, "delta": {}, "finish_reason": record["finish_reason"], "token_ids": []}
    return sse_reply(
        [
            {**envelope, "choices": [choice], "prompt_token_ids": record["prompt_token_ids"]},
            {**envelope, "choices": [end]},
            {**envelope, "choices": [], "usage": record["token_count"]},
        ]
    )


async def _send(running: RunningProxy, case: ReferenceCase) -> httpx.Response:
    headers = [(name.encode(), _header_bytes(value)) for name, value in case.headers]
    body = case.body if case.body is None or isinstance(case.body, str) else json.dumps(case.body)
    return await running.client.request(case.method, case.path, headers=headers, content=body)


def _header_bytes(value: str | dict[str, str]) -> bytes:
    """Values that are not ASCII were recorded as bytes."""
    return value.encode("ascii") if isinstance(value, str) else value["bytes_latin1"].encode("latin-1")


def _differences(case: ReferenceCase, response: httpx.Response, sent_on: Any, record: Any) -> set[str]:
    found = {"status"} if response.status_code != case.status else set()
    if _answer_differs(case, response):
        found.add("answer")
    if _unstreamed(sent_on) != _unstreamed(case.sent_on):
        found.add("sent_on")
    if (record is None) != (case.record is None):
        found.add("record")
    elif case.record is not None:
        found |= {
            f"record.{key}"
            for key in case.record
            if key not in ("uuid", "captured_at") and record[key] != case.record[key]
        }
    return found


def _answer_differs(case: ReferenceCase, response: httpx.Response) -> bool:
    if isinstance(case.answer, str) and case.answer.startswith("data:"):
        ours, theirs = events(response.content), events(case.answer.encode())
        return any(read(ours) != read(theirs) for read in (arguments, finish_reason, _text, _ends_well))
    try:
        answer = response.json()
    except ValueError:
        return response.text != str(case.answer or "")
    return bool(_comparable(answer) != _comparable(case.answer))


def _unstreamed(sent_on: Any) -> Any:
    keys = ("stream", "stream_options") if isinstance(sent_on, dict) and sent_on.get("stream") is not None else ()
    return {key: value for key, value in sent_on.items() if key not in keys} if sent_on else sent_on


def _text(chunks: list[Any]) -> str:
    return joined(chunks, "content")


def _ends_well(chunks: list[Any]) -> bool:
    return DONE in chunks[-1:]


def _comparable(answer: Any) -> Any:
    if isinstance(answer, dict):
        answer = copy.deepcopy(answer)
        if isinstance(answer.get("error"), dict):
            return {"type": answer["error"].get("type"), "code": answer["error"].get("code")}
        if "detail" in answer:
            return {"detail": answer["detail"]}
        if "prompt_token_ids" in answer:
            answer["prompt_token_ids"] = None
        for choice in answer.get("choices") or []:
            choice.update({key: None for key in ("logprobs", "token_ids") if key in choice})
    return answer


def _routes(base_url: str) -> dict[str, Any]:
    """The routes the cases were recorded with."""
    target = {"base_url": base_url, "model": "real-model", "api_key": "dummy"}
    captured = {**target, "token_capture_engine": "vllm"}
    return {
        "policy_model": {"type": "model", "target": captured},
        "plain_model": {"type": "model", "target": {**target, "model": "plain-real"}},
        "with_extra": {"type": "model", "target": {**captured, "extra_body": {"foo": 1, "temperature": 0.3}}},
        "inferred": {"target": {**captured, "model": "inf-model"}},
        "nokey": {"type": "model", "target": {**captured, "model": "nk-model", "api_key": ""}},
        "url_full": {
            "type": "model",
            "target": {**captured, "model": "uf", "base_url": f"{base_url}/chat/completions"},
        },
        "url_slash": {"type": "model", "target": {**captured, "model": "us", "base_url": f"{base_url}/"}},
        "nemo": {"type": "model", "target": {**captured, "model": "nvidia/nemotron-3-super-120b"}},
        "auto": {"type": "model", "target": {**captured, "format": "auto"}},
    }


async def test_every_case_is_answered_as_specified_or_differs_on_purpose(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(routes=_routes(engine.base_url))
    usual = json_reply(reference_cases()["chat_plain"].answer)
    found: dict[str, set[str]] = {}
    for case in reference_cases().values():
        if case.name in NOT_REPLAYED:
            continue
        script = _script(case)
        assert script is not None or case.sent_on is None, f"{case.name} must be among NOT_REPLAYED"
        engine.default(script or usual)
        sent, before = len(engine.generations), set(running.files(".json"))
        response = await _send(running, case)
        generations = engine.generations[sent:]
        new = set(running.files(".json")) - before
        record = json.loads(new.pop().read_bytes()) if new else None
        differences = _differences(case, response, generations[-1].json if generations else None, record)
        if differences:
            found[case.name] = differences
    assert found == {name: aspects for name, (aspects, _) in DELIBERATE.items()}


def test_every_listed_case_exists_and_has_a_reason() -> None:
    listed = {**{name: reason for name, (_, reason) in DELIBERATE.items()}, **NOT_REPLAYED}
    assert len(listed) == len(DELIBERATE) + len(NOT_REPLAYED)
    assert set(listed) <= set(reference_cases())
    assert all(listed.values())
