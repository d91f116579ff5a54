"""Recorded streams of a real vLLM through the whole proxy over sockets, cut at every 97th byte in the lane of faults.

In process every cut is tried (see tests/engines/test_harvest.py); here it is the sockets' turn.
"""

import asyncio
from itertools import count

import pytest
from event_stream import DONE, events
from running_proxy import StartProxy
from scale import scaled
from scripted_engine import Exchange, ScriptedEngine
from wire_oracle import expected_chunks, stream_facts, with_usage
from wire_recordings import Recording, recordings

EVERY = scaled(97, 970)
AT_ONCE = 8
STREAMS = [each for each in recordings() if each.is_stream and each.captured and "engine_death" not in each.name]


@pytest.mark.parametrize("recorded", STREAMS, ids=lambda each: each.name)
async def test_a_recorded_stream_arrives_however_it_is_cut(
    proxy: StartProxy, engine: ScriptedEngine, recorded: Recording
) -> None:
    running = await proxy()
    stream = with_usage(recorded.body)
    cuts = iter(range(EVERY, len(stream), EVERY))

    async def in_two_parts(exchange: Exchange) -> None:
        cut = next(cuts)
        await exchange.stream_headers()
        await exchange.send(stream[:cut])
        # The loop turns, so that the parts leave and arrive one by one.
        await asyncio.sleep(0.001)
        await exchange.send(stream[cut:])

    engine.default(in_two_parts)
    calls = len(range(EVERY, len(stream), EVERY))
    expected = [*expected_chunks(stream, {}), DONE]
    numbers = count()

    async def agent() -> None:
        while next(numbers) < calls:
            assert events((await running.chat({"stream": True}, "s")).content) == expected

    await asyncio.gather(*(agent() for _ in range(AT_ONCE)))
    facts = stream_facts(stream)
    records = await running.records("s")
    assert len(records) == calls
    for record in records:
        assert record["prompt_token_ids"] == facts.prompt_token_ids
        assert record["generation_token_ids"] == facts.token_ids
        assert record["generation_log_probs"] == facts.logprobs
        assert record["is_valid"] == (facts.outcome == "valid")
