"""The simulator against the exchanges recorded from a real vLLM 0.32.

Each recorded request is sent to a simulator whose model says what the recorded model said. What must agree: status,
error bodies to the letter, the keys and types of replies and of every kind of chunk, the order of the kinds of chunks,
the parsed message and how it finished. A token is a byte here, so counts differ, and `max_tokens` is set to the length
of the recorded text where it was the length that ended the reply.
"""

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from wire_recordings import WIRE

from switchyard_py.simulator.tokenizer import encode

RECORDINGS = Path(__file__).parent / "recordings"
DOCUMENT = Path(__file__).parents[2] / "docs" / "simulator.md"

NOT_PLAYED = {
    "no /v1/messages": "messages messages_capture_params messages_count messages_err_missing_max messages_err_model "
    "messages_stream messages_tools_any trained_messages_tool trained_messages_tool_stream",
    "no /v1/responses": "responses responses_capture_params responses_logprobs responses_stream "
    "responses_stream_messages trained_responses_tool",
    "no /inference/v1/generate": "generate generate_after_wv generate_stop generate_stream generate_text "
    "mt_fix_generate replay_generate wv_generate_span",
    "no render and derender": "chat_render completions_render launch_render_chat messages_render mt_fix_derender",
    "no weight versions": "models_after_wv update_weight_version weight_info weight_info2 wv_set wv_set2",
    "no /get_world_size": "collective",
    "kept only with parts cut out": "abort_abort_requests abort_inference_v1_abort_requests abort_pause "
    "ctx_no_max_tokens err_ctx_sum_overflow reuse_ids_edge wv_chat_span",
}
"""Recordings of the same series that are not here, by reason."""

VALUES_DIFFER = {
    "flag_tokens_as_ids": "the server flag --return-tokens-as-token-ids is not there; the request field is",
    "hdr_x_request_id_flag": "the server flag --enable-request-id-headers, which adds a response header, is not there",
    "hdr_x_request_id_flag_absent": "as hdr_x_request_id_flag",
    "lp_grammar": "no grammar mask: log-probabilities of constrained tokens are those of the plain distribution",
    "stop_token_ids": "token ids of words do not exist here; the test stops at a byte",
}
"""Recordings that are played and agree in shape, with a known difference in values."""

ABORTED = re.compile("abort_.*")
DEAD = re.compile("engine_death.*")
LEFT_OUT = re.compile(r": \[\d+ events left out\]")


@dataclass(frozen=True)
class Exchange:
    """A recorded exchange as values; the body of a stream is its text."""

    name: str
    request: dict[str, Any]
    status: int
    body: Any
    streamed: bool


def load(path: Path) -> Exchange:
    document = json.loads(path.read_bytes())
    response = document["response"]
    streamed = "body_file" in response
    body = path.with_name(response["body_file"]).read_text() if streamed else response["body"]
    return Exchange(path.stem, document["request"], response["status"], body, streamed)


EXCHANGES = {path.stem: load(path) for path in sorted([*WIRE.glob("*.json"), *RECORDINGS.glob("*.json")])}


@pytest.mark.parametrize("name", EXCHANGES)
async def test_conforms_to_recording(name: str, running: Any) -> None:
    exchange = EXCHANGES[name]
    async with running(**settings_for(exchange)) as client:
        sent = asyncio.ensure_future(send(client, exchange))
        if ABORTED.fullmatch(name):
            await generating(client)
            if "pause" in name:
                await client.post("/pause", params={"mode": "abort"})
            else:
                await client.post("/abort_requests", json={"request_ids": []})
        reply = await sent
    assert reply.status_code == exchange.status
    if exchange.streamed:
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        compare_streams(reply.text, exchange.body)
    elif exchange.body == "":
        assert reply.content == b""
    else:
        compare_replies(reply.json(), exchange.body)


def test_exceptions_are_documented() -> None:
    document = DOCUMENT.read_text()
    for name, reason in VALUES_DIFFER.items():
        assert name in EXCHANGES
        assert f"| `{name}` | {reason} |" in document
    for name in " ".join(NOT_PLAYED.values()).split():
        assert name not in EXCHANGES
        assert f"`{name}`" in document


# Playing


def settings_for(exchange: Exchange) -> dict[str, Any]:
    # The recorded context was 4096 tokens; text that fitted in it is longer in bytes.
    settings: dict[str, Any] = {"max_model_len": 4096 if exchange.status == 400 else 32768}
    text = model_text(exchange)
    if text is not None:
        settings["replies"] = [{"raw": text}]
    usage = final_usage(exchange)
    settings["prompt_tokens_details"] = bool(usage.get("prompt_tokens_details"))
    settings["per_request_metrics"] = bool(final_part(exchange).get("metrics"))
    if "sekret" in json.dumps(exchange.request["headers"]) or exchange.name.startswith("auth_"):
        settings["api_key"] = "sekret"
    if exchange.name == "sse_keepalive":
        settings |= {"keep_alive_interval": 0.02, "ttft": 0.1}
    if ABORTED.fullmatch(exchange.name):
        settings["tokens_per_second"] = 500
    if DEAD.fullmatch(exchange.name):
        settings["faults"] = [{"die_after": 300}]
    return settings


async def send(client: httpx.AsyncClient, exchange: Exchange) -> httpx.Response:
    request = exchange.request
    body = request["body"]
    headers = dict(request["headers"])
    if body is None:
        return await client.request(request["method"], request["path"], headers=headers)
    if "__raw__" in body:
        headers.setdefault("content-type", "application/json")
        return await client.post(request["path"], content=body["__raw__"], headers=headers)
    return await client.post(request["path"], json=adapted(exchange), headers=headers)


def adapted(exchange: Exchange) -> dict[str, Any]:
    """The recorded body with limits and ids that mean the same for a byte-level tokenizer."""
    body = dict(exchange.request["body"])
    text = model_text(exchange)
    if text is not None and "max_tokens" in body and not is_endless(exchange):
        if "length" in finish_reasons(exchange):
            body["max_tokens"] = max(1, len(encode(text)))
        elif not body.get("ignore_eos"):
            del body["max_tokens"]
    if text is not None and "stop_token_ids" in body:
        body["stop_token_ids"] = encode(text)[:1]
    if "truncate_prompt_tokens" in body:
        body["max_tokens"] = 1
    return body


async def generating(client: httpx.AsyncClient) -> None:
    while True:
        report = (await client.get("/simulator/requests")).json()
        if any(call["generated_tokens"] > 5 for call in report["requests"]):
            return
        await asyncio.sleep(0.005)


def is_endless(exchange: Exchange) -> bool:
    """Whether the recorded text was so long that events were left out; any long text stands in for it."""
    return exchange.streamed and bool(LEFT_OUT.search(exchange.body))


def model_text(exchange: Exchange) -> str | None:
    """What the recorded model wrote in its first choice, special tokens spelled out; None if it was not asked."""
    if exchange.status != 200 or "completions" not in exchange.request["path"]:
        return None
    if is_endless(exchange):
        return "<think>\nSo.\n</think>" + "on and on " * 500 if DEAD.fullmatch(exchange.name) else "on and on " * 500
    written = b""
    spoken = ""
    for choice in (choice for part in parts(exchange) for choice in part.get("choices", [])):
        if choice["index"] > 0:
            continue
        content = (choice.get("logprobs") or {}).get("content") or []
        written += b"".join(bytes(entry["bytes"]) for entry in content)
        message = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
        spoken += (message.get("reasoning") or "") + (message.get("content") or "")
    left_out = exchange.request["body"].get("include_reasoning") is False
    return "thought left out" if left_out else written.decode(errors="replace") or spoken


def parts(exchange: Exchange) -> list[dict[str, Any]]:
    if exchange.streamed:
        return events(exchange.body)[1]
    return [exchange.body] if isinstance(exchange.body, dict) else []


def final_part(exchange: Exchange) -> dict[str, Any]:
    return parts(exchange)[-1] if parts(exchange) else {}


def final_usage(exchange: Exchange) -> dict[str, Any]:
    usage = final_part(exchange).get("usage")
    return usage if isinstance(usage, dict) else {}


def finish_reasons(exchange: Exchange) -> set[str]:
    return {choice.get("finish_reason") for part in parts(exchange) for choice in part.get("choices", [])} - {None}


# Comparing


def events(text: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The comment lines and marks of a stream, and its chunks."""
    lines = [line for line in text.split("\n\n") if line]
    data = [line.removeprefix("data: ") for line in lines]
    marks = [line for line in data if not line.startswith("{") and not LEFT_OUT.fullmatch(line)]
    return marks, [json.loads(d) for d in data if d.startswith("{")]


def shape(value: Any) -> Any:
    """Keys and types, recursively; a list is the set of its members' shapes, a map by token the shape of a value."""
    if isinstance(value, dict):
        return {key: SHAPES.get(key, shape)(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(shape(item), sort_keys=True) for item in value})
    return type(value).__name__


def by_token(value: Any) -> Any:
    if not isinstance(value, list) or not value or "token" in (value[0] or {}):
        return shape(value)
    flat = [item for entry in value if isinstance(entry, dict) for item in entry.values()]
    return {"first": type(value[0]).__name__, "members": shape(flat)}


def text_bytes(value: list[int]) -> str:
    """The bytes of a token, of which a part of a character has none."""
    assert all(type(byte) is int for byte in value)
    return "bytes"


SHAPES = {"top_logprobs": by_token, "prompt_logprobs": by_token, "bytes": text_bytes}


def compare_replies(ours: dict[str, Any], recorded: dict[str, Any]) -> None:
    if "error" in recorded or "detail" in recorded:
        assert ours == recorded
        return
    assert list(ours) == list(recorded)
    for mine, theirs in zip(ours.get("choices", []), recorded.get("choices", []), strict=True):
        assert list(mine) == list(theirs)
        if "message" in theirs and mine["index"] == 0:
            assert list(mine["message"]) == list(theirs["message"])
            assert without_ids(mine["message"]) == without_ids(theirs["message"])
        if "message" in theirs:
            assert mine["finish_reason"] == theirs["finish_reason"]
            assert type(mine["stop_reason"]) is type(theirs["stop_reason"])
    assert shape(ours) == shape(recorded)
    if recorded.get("object") == "chat.completion":
        assert re.fullmatch(r"chatcmpl-.+", ours["id"])
        assert same_name(ours["id"], recorded["id"])


def compare_streams(ours: str, recorded: str) -> None:
    marks, chunks = events(ours)
    recorded_marks, recorded_chunks = events(recorded)
    assert collapsed(marks) == collapsed(recorded_marks)
    indices = {choice["index"] for chunk in recorded_chunks for choice in chunk.get("choices", [])}
    for index in indices:
        mine, theirs = of_choice(chunks, index), of_choice(recorded_chunks, index)
        assert collapsed(kinds(mine)) == collapsed(kinds(theirs))
        assert shapes_by_kind(mine) == shapes_by_kind(theirs)
        if index == 0 and not LEFT_OUT.search(recorded):
            assert joined(mine) == joined(theirs)
    errors = [chunk for chunk in chunks if "error" in chunk]
    assert errors == [chunk for chunk in recorded_chunks if "error" in chunk]
    for chunk in chunks:
        assert "error" in chunk or same_name(chunk["id"], recorded_chunks[0]["id"])


def of_choice(chunks: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [c for c in chunks if not c.get("choices") or c["choices"][0]["index"] == index]


def kinds(chunks: list[dict[str, Any]]) -> list[str]:
    """What the chunks bring, in order. How text falls into tokens decides which chunks bring nothing: left out."""
    return [kind for chunk in chunks for kind in (delta_kind(chunk), chunk_kind(chunk)) if kind not in ("delta", "")]


def chunk_kind(chunk: dict[str, Any]) -> str:
    if "error" in chunk:
        return "error"
    if not chunk["choices"]:
        return "usage"
    return "finish" if chunk["choices"][0]["finish_reason"] else "delta"


def delta_kind(chunk: dict[str, Any]) -> str:
    choice = (chunk.get("choices") or [{}])[0]
    if "text" in choice:
        return "text"
    delta = choice.get("delta", {})
    function = (delta.get("tool_calls") or [{}])[0].get("function", {})
    return ",".join([*delta, *function])


def shapes_by_kind(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The shapes of each kind of chunk, and of what each kind of delta brings."""
    seen: dict[str, set[str]] = {}
    for chunk in chunks:
        choice = (chunk.get("choices") or [{}])[0]
        around = {**chunk, "choices": [{**choice, "delta": "", "text": ""}]} if choice else chunk
        seen.setdefault(chunk_kind(chunk), set()).add(json.dumps(shape(around), sort_keys=True))
        if delta_kind(chunk):
            seen.setdefault(delta_kind(chunk), set()).add(json.dumps(shape(choice.get("delta")), sort_keys=True))
    return {kind: sorted(shapes) for kind, shapes in seen.items()}


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What an agent reads from the chunks of one choice."""
    read: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "finish": None}
    for choice in (choice for chunk in chunks for choice in chunk.get("choices", []) if "delta" in choice):
        delta = choice["delta"]
        read["content"] += delta.get("content") or ""
        read["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls", []):
            known = read["calls"].setdefault(call["index"], ["", ""])
            known[0] += call["function"].get("name", "")
            known[1] += call["function"].get("arguments", "")
        read["finish"] = choice["finish_reason"] or read["finish"]
    return read


def collapsed(items: list[str]) -> list[str]:
    return [item for index, item in enumerate(items) if index == 0 or items[index - 1] != item]


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{**call, "id": re.sub("[0-9a-f]{16}$", "", call["id"])} for call in message.get("tool_calls", [])]
    return {**message, "tool_calls": calls}


def same_name(ours: str, recorded: str) -> bool:
    random = re.fullmatch(r"\w+-[0-9a-f]{16}", recorded)
    return bool(re.fullmatch(r"\w+-[0-9a-f]{16}", ours)) if random else ours == recorded
