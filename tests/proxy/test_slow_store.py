"""A store that does not keep up slows calls down, and then they are refused in a way that agents try again."""

import asyncio
import time

from running_proxy import StartProxy
from scripted_engine import ScriptedEngine, Turn, chat

from switchyard_py.store import Filesystem


class CrawlingFilesystem(Filesystem):
    def create(self, path: str, data: bytes) -> None:
        time.sleep(0.2)
        super().create(path, data)


async def test_a_call_that_waited_too_long_is_503_with_a_time_to_retry_and_others_are_kept(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(filesystem=CrawlingFilesystem(), capture={"begin_timeout": 0.5})
    engine.reply(*[chat(Turn(text="hello"))] * 20)
    responses = await asyncio.gather(*(running.chat({}, "s") for _ in range(20)))
    answered = [response for response in responses if response.status_code == 200]
    refused = [response for response in responses if response.status_code == 503]
    assert len(answered) + len(refused) == 20
    assert answered
    assert refused
    for response in refused:
        assert response.headers["retry-after"] == "1"
        error = response.json()["error"]
        assert error["code"] == "capture_unavailable"
        assert error["message"] == (
            "The call was not sent, because the store is too slow: it did not begin the call within 0.5 s."
        )
    assert len(engine.generations) == len(answered)
    await asyncio.sleep(0.3)  # what was on its way to the disk has arrived
    await running.session("s", settled=5)
    fates = await running.fates("s")
    assert fates.pop("valid") == len(answered)
    assert fates in ({}, {"failed": 1})  # one may have been on its way to the disk
