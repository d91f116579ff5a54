"""Tens of thousands of spoiled engine replies: a record that says it is valid holds exactly what the engine sent."""

import asyncio
import json
from functools import cache, lru_cache
from random import Random

from fuzzing import (
    AGENTS,
    SEED,
    SESSIONS,
    Complaints,
    check_accounts,
    check_error,
    check_stream,
    drive,
    event_data,
    parsed,
    still_works,
    valid_records,
)
from mutation import Reply, spoiled_body, spoiled_stream
from running_proxy import StartProxy
from scale import scaled
from scripted_engine import Exchange, ScriptedEngine
from wire_agent import Answer, http_request
from wire_oracle import with_usage
from wire_recordings import recordings

CASES = scaled(20_000, 600)


@cache
def _replies() -> list[tuple[bytes, bool]]:
    captured = [each for each in recordings() if each.captured and len(each.body) < 16_000]
    return [(with_usage(each.body) if each.is_stream else each.body, each.is_stream) for each in captured]


_STATUSES = [201, 204, 302, 400, 401, 403, 404, 408, 409, 413, 422, 429, 499, 500, 503, 529, 599, 600, 999]
_REPLY_HEADERS = [
    ("content-type", "text/html"),
    ("content-type", ""),
    ("content-type", "text/event-stream"),
    ("content-type", "application/json"),
    ("content-type", "application/json; charset=日本".encode().decode("latin-1")),
    ("content-type", "application/json; charset=\xff"),
    ("retry-after", "soon"),
    ("retry-after", "\xff"),
    ("x-should-retry", "日本".encode().decode("latin-1")),
    ("x-ratelimit-left", "\t"),
    ("content-encoding", "gzip"),
    ("connection", "close"),
]


def _wants_stream(number: int) -> bool:
    return Random(f"{SEED} stream {number}").random() < 0.6


def _is_captured(number: int) -> bool:
    return number % 8 != 0


@lru_cache(maxsize=4 * AGENTS)
def _reply(number: int) -> Reply:
    """What the engine answers to a case, the same whenever it is asked."""
    chance = Random(f"{SEED} reply {number}")
    streamed = _wants_stream(number)
    data, _ = chance.choice([each for each in _replies() if each[1] is streamed])
    if chance.random() < 0.97:
        data = spoiled_stream(data, chance) if streamed else spoiled_body(json.loads(data), chance)
    headers = [("content-type", "text/event-stream; charset=utf-8" if streamed else "application/json")]
    if chance.random() < 0.08:
        name, value = chance.choice(_REPLY_HEADERS)
        headers = [*(pair for pair in headers if pair[0] != name), (name, value)]
    status = 200
    if chance.random() < 0.08:
        status = chance.choice(_STATUSES)
        data = chance.choice(
            (data, b'{"error":{"message":"no","type":"t","param":null,"code":1}}', b"", b'{"error":"x"}')
        )
    if not streamed and chance.random() < 0.5:
        length = len(data) + chance.choice((0,) * 20 + (1, -1, 100))
        headers.append(("content-length", str(max(0, length))))
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 1, 3))))
    pieces = tuple(data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if end > start)
    ending = chance.choice(("end",) * 20 + ("close", "reset"))
    return Reply(status, tuple(headers), pieces, ending)  # type: ignore[arg-type]


async def _spoiling_engine(exchange: Exchange) -> None:
    reply = _reply(exchange.request.json["seed"])
    await exchange.headers(reply.status, reply.headers)
    for piece in reply.pieces:
        await exchange.send(piece)
        await asyncio.sleep(0)
    if reply.ending != "end":
        getattr(exchange, reply.ending)()


def _request(number: int) -> bytes:
    chance = Random(f"{SEED} asked {number}")
    body = {
        "model": "policy_model",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": _wants_stream(number),
        "seed": number,
    }
    if chance.random() < 0.3:
        body |= chance.choice(
            ({"include_reasoning": False}, {"return_token_ids": True}, {"logprobs": True, "top_logprobs": 1}, {"n": 2})
        )
    if body["stream"] and chance.random() < 0.3:
        body["stream_options"] = {"include_usage": True}
    headers = {"proxy_x_session_id": f"s{number % SESSIONS}"} if _is_captured(number) else {}
    return http_request(json.dumps(body).encode(), headers)


def _sent_triple(reply: Reply) -> tuple[list[list[int]], list[int], list[float]]:
    """The ids and log-probs in a reply, read with as few rules as possible: all prompts, ids, log-probs of choice 0."""
    if not _is_stream(reply):
        body = parsed(reply.body)
        choice = body["choices"][0]
        entries = choice["logprobs"]["content"]
        return [body["prompt_token_ids"]], choice["token_ids"], [float(each["logprob"]) for each in entries]
    prompts: list[list[int]] = []
    ids: list[int] = []
    log_probs: list[float] = []
    for data in event_data(reply.body):
        if data.strip() == b"[DONE]":
            break
        chunk = parsed(data)
        if chunk.get("prompt_token_ids") is not None:
            prompts.append(chunk["prompt_token_ids"])
        for choice in chunk.get("choices") or []:
            ids += choice.get("token_ids") or []
            log_probs += [float(each["logprob"]) for each in (choice.get("logprobs") or {}).get("content") or []]
    return prompts, ids, log_probs


def _is_stream(reply: Reply) -> bool:
    return dict(reply.headers).get("content-type", "").startswith("text/event-stream")


async def test_spoiled_replies(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"first_byte_timeout": 5, "idle_timeout": 5})
    engine.default(_spoiling_engine)
    with Complaints() as complaints:

        def judge(number: int, answer: Answer) -> None:
            sent = _reply(number).status
            if not answer.complete:
                complaints.add(number, f"no whole answer: {answer}")
            elif answer.status != 200:
                if answer.status != sent and answer.status not in (502, 504):
                    complaints.add(number, f"status {answer.status} for the engine's {sent}: {answer.body[:300]!r}")
                check_error(number, answer, complaints)
            elif _is_captured(number):
                _check_answer(number, answer, complaints)

        statuses = await drive(running.port, _request, judge, CASES)
        assert min(statuses[200], statuses[502], statuses[429]) > 0, "the cases do not reach everything"
        account = await check_accounts(running, complaints)
        assert min(account[fate] for fate in ("valid", "invalid", "failed")) > CASES / 50, (
            "they do not reach everything"
        )
        for record in valid_records(running, complaints):
            number = record["call"]["sampling"]["seed"]
            prompts, ids, log_probs = _sent_triple(_reply(number))
            if record["prompt_token_ids"] not in prompts or record["generation_token_ids"] != ids:
                complaints.add(number, "the ids of a valid record differ from those the engine sent")
            if record["generation_log_probs"] != log_probs:
                complaints.add(number, "the log-probs of a valid record differ from those the engine sent")
        await still_works(running, engine)


def _check_answer(number: int, answer: Answer, complaints: Complaints) -> None:
    if answer.headers["content-type"].startswith("text/event-stream"):
        check_stream(number, answer, complaints)
        return
    try:
        parsed(answer.body)
    except ValueError as problem:
        complaints.add(number, f"answered with what is not JSON ({problem}): {answer.body[:300]!r}")
