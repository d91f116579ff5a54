"""Tens of thousands of spoiled requests: the engine gets JSON only; what it answers is passed on and kept exactly."""

import json
from dataclasses import replace
from functools import cache
from itertools import count
from random import Random
from typing import Any
from urllib.parse import quote

from event_stream import DONE, joined
from fuzzing import (
    SEED,
    SESSIONS,
    Complaints,
    check_accounts,
    check_error,
    check_stream,
    drive,
    parsed,
    still_works,
    valid_records,
)
from mutation import ODD_VALUES, spoil_bytes, spoil_value, written
from reference_cases import reference_cases
from running_proxy import HELLO, StartProxy
from scale import scaled
from scripted_engine import Exchange, ScriptedEngine, Turn, chat
from wire_agent import Answer, http_request
from wire_recordings import recordings

from switchyard_py.errors import Kind

CASES = scaled(20_000, 600)
HEADS = scaled(2_000, 200)
TABLE = {kind.value.status for kind in Kind} - {Kind.INTERNAL.value.status}


@cache
def _requests() -> list[tuple[dict[str, Any], list[tuple[str, str]]]]:
    """Bodies and headers that clients sent."""
    found = [
        (case.body, [(name, value) for name, value in case.headers if isinstance(value, str)])
        for case in reference_cases().values()
        if isinstance(case.body, dict) and case.path.endswith("/v1/chat/completions")
    ]
    found += [(recorded.request_body, []) for recorded in recordings() if isinstance(recorded.request_body, dict)]
    return [(body, headers) for body, headers in found if len(json.dumps(body)) < 20_000]


_KEYS = [
    "model", "messages", "stream", "stream_options", "logprobs", "top_logprobs", "n", "tools", "tool_choice", "seed",
    "return_token_ids", "include_reasoning", "max_tokens", "max_completion_tokens", "proxy_x_session_id", "metadata",
    "aws_key", "response_format", "prompt_cache_key", "user", "stop", "token_ids", "é", "", "a b", "\0",
]  # fmt: skip
_HEADERS: list[tuple[str, list[bytes]]] = [
    ("content-type", [b"text/plain", b"", b"application/json; charset=latin-1", b"multipart/form-data; boundary=x"]),
    ("x-request-id", [b"x" * 3000, b"\xff\xfe", "ü".encode(), b"a\tb", b" "]),
    ("x-session-id", [b"generic", b".", b"..", b"\xff", b"x" * 600, b"a/b", b"\t", "ü".encode()]),
    ("proxy-x-session-id", [b"twin", b"..", b"x" * 513, b"\xed\xa0\x80", b"%2e%2e"]),
    ("x-parent-session-id", [b"parent", b".", b"\xf0\x9f\x98\x80", b"x" * 600]),
    ("authorization", [b"Bearer sycap-session:k", b"Bearer", b"Basic x", b"bearer sycap-session:", b"\xff"]),
    ("user-agent", [b"x" * 5000, b"\xff", b""]),
    ("traceparent", [b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"\xff\xfe", b"x" * 5000, b"a\tb"]),
    ("accept-encoding", [b"gzip", b"*"]),
    ("expect", [b"100-continue"]),
]


def _spoiled_request(number: int) -> bytes:
    chance = Random(f"{SEED} request {number}")
    body, given = chance.choice(_requests())
    body = json.loads(json.dumps(body))
    if chance.random() < 0.7:
        body["model"] = "policy_model"
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        if chance.random() < 0.4:
            body[chance.choice(_KEYS)] = chance.choice(ODD_VALUES)
        else:
            body = spoil_value(body, chance)
            if not isinstance(body, dict):
                break
    data = written(body, chance)
    if chance.random() < 0.25:
        data = spoil_bytes(data, chance)
    headers: dict[str, str | bytes] = dict(given) if chance.random() < 0.5 else {}
    if chance.random() < 0.8:
        headers["proxy_x_session_id"] = f"s{number % SESSIONS}"
    if chance.random() < 0.3:
        name, values = chance.choice(_HEADERS)
        headers[name] = chance.choice(values)
    path = "/v1/chat/completions"
    if chance.random() < 0.1:
        name = chance.choice(("p", "..", "", "a/b", "\0", "é", "x" * 600, "%", " "))
        path = f"/s/{quote(name, safe='%')}{path}"
    return http_request(data, headers, path=path, chunk_bytes=chance.choice((None, None, None, 1 << 16, 37)))


class PickyEngine:
    """Answers what vLLM would read, each call with tokens of its own; the rest it refuses as vLLM does."""

    def __init__(self, complaints: Complaints) -> None:
        self.turns: dict[str, Turn] = {}
        self._complaints = complaints
        self._numbers = count()

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        try:
            body = parsed(request.body)
        except ValueError as error:
            self._complaints.add(request.header("x-request-id"), f"the engine got what is not JSON: {error}")
            body = {}
        read = _as_vllm_reads(body)
        if read is None:
            refusal = {"message": "1 validation error", "type": "Bad Request", "param": None, "code": 400}
            await exchange.json({"error": refusal}, 400)
            return
        name = request.header("x-request-id") or ""
        if name in self.turns:
            self._complaints.add(name, "sent twice")
        turn = self.turns[name] = _turn(next(self._numbers))
        exchange.request = replace(request, body=json.dumps(read).encode())
        await chat(turn)(exchange)


def _turn(number: int) -> Turn:
    text = f"answer {number} of the engine"
    prompt = [number % 2000, 17, number // 2000]
    match number % 4:
        case 0:
            return Turn(text=text, prompt_token_ids=prompt)
        case 1:
            return Turn(reasoning=f"let me see {number}", text=text, prompt_token_ids=prompt)
        case 2:
            return Turn(tool_calls=[("run", {"n": number})], prompt_token_ids=prompt)
        case _:
            return Turn(text=text, tool_calls=[("run", {}), ("run", {"n": [number]})], prompt_token_ids=prompt)


def _as_vllm_reads(body: Any) -> dict[str, Any] | None:
    """The switches of a request in plain types, None where vLLM answers 400."""
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        return None
    words = {True: True, False: False, "true": True, "false": False, "1": True, "0": False, "no": False, "yes": True}
    read: dict[str, Any] = {"model": body.get("model")}
    for key in ("stream", "logprobs", "return_token_ids", "include_reasoning"):
        value = body.get(key)
        if value is None:
            continue
        if not isinstance(value, str | int | float) or value not in words:
            return None
        read[key] = words[value]
    top, options, n = body.get("top_logprobs"), body.get("stream_options"), body.get("n")
    if n is not None and (type(n) is not int or not 1 <= n <= 3):
        return None
    if top is not None and (type(top) is not int or not 0 <= top <= 20):
        return None
    if options is not None and (not isinstance(options, dict) or not read.get("stream")):
        return None
    if options is not None and options.get("include_usage") not in (True, False, None):
        return None
    return read | {"n": n, "top_logprobs": top, "stream_options": options}


async def test_spoiled_requests(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    with Complaints() as complaints:
        picky = PickyEngine(complaints)
        engine.default(picky)

        def judge(number: int, answer: Answer) -> None:
            if not answer.complete:
                complaints.add(number, f"no whole answer: {answer}")
            elif answer.status == 200:
                turn = picky.turns[answer.headers["x-request-id"]]
                # White space before a tool call is dropped in calls of a session only.
                if _content(number, answer, complaints).strip() != turn.text:
                    complaints.add(number, f"{turn.text!r} was answered as {answer.body[-500:]!r}")
            else:
                if answer.status not in TABLE:
                    complaints.add(number, f"status {answer.status}: {answer.body[:300]!r}")
                check_error(number, answer, complaints)

        statuses = await drive(running.port, _spoiled_request, judge, CASES)
        assert min(statuses[200], statuses[400], statuses[404]) > CASES / 100, "the cases do not reach everything"
        account = await check_accounts(running, complaints)
        assert account["valid"] > CASES / 20, "the cases do not reach everything"
        for record in valid_records(running, complaints):
            turn = picky.turns[record["uuid"]]
            triple = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
            if [record[key] for key in triple] != [list(turn.prompt_token_ids), turn.token_ids, turn.logprobs]:
                complaints.add(record["uuid"], "a valid record differs from what the engine sent")
        await still_works(running, engine)


def _content(number: int, answer: Answer, complaints: Complaints) -> str:
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return str(parsed(answer.body)["choices"][0]["message"]["content"] or "")
    chunks = check_stream(number, answer, complaints)
    if DONE not in chunks:
        complaints.add(number, f"the engine ended its stream well: {answer.body[-500:]!r}")
    return joined(chunks, "content")


def _spoiled_head(number: int) -> bytes:
    chance = Random(f"{SEED} head {number}")
    lines = {"proxy_x_session_id": "s", "x-request-id": "r", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00-01"}
    request = http_request(json.dumps(HELLO).encode(), lines, chunk_bytes=chance.choice((None, 20)))
    head, _, body = request.partition(b"\r\n\r\n")
    for _ in range(chance.choice((1, 1, 2))):
        head = spoil_bytes(head, chance)
        if chance.random() < 0.2:
            head = head.replace(b": ", chance.choice((b":\r\n ", b":", b" : ", b":\t", b": \0", b": \x7f")), 3)
    return head + b"\r\n\r\n" + body


async def test_spoiled_heads(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    with Complaints() as complaints:
        engine.default(PickyEngine(complaints))

        def judge(number: int, answer: Answer) -> None:
            # A head that never ends is waited for, and one that is no HTTP gets the server's own 400.
            if answer.status >= 500 or (answer.status and not answer.complete):
                complaints.add(number, f"{answer} to {_spoiled_head(number)!r}")

        statuses = await drive(running.port, _spoiled_head, judge, HEADS, within=0.3)
        assert min(statuses[200], statuses[400]) > 10, "the cases do not reach everything"
        await check_accounts(running, complaints)
        await still_works(running, engine)
