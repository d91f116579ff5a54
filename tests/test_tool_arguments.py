"""Generated arguments are found by session and tool-call id: in memory, or in the records other processes wrote."""

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_proxy import ROUTE, StartProxy
from scripted_engine import ScriptedEngine, Turn, chat
from stored_calls import FaultyFilesystem, commit

from switchyard_py.capture.call import Choice, Generation
from switchyard_py.rawjson import encode
from switchyard_py.store import SessionReader, Writer
from switchyard_py.tool_arguments import GeneratedArguments


def generation(**arguments: str) -> Generation:
    calls = [{"id": name, "function": {"name": "f", "arguments": text}} for name, text in arguments.items()]
    return Generation(choices=[Choice(message={"tool_calls": encode(calls)})])


def test_what_was_generated_is_found_in_its_own_session_only() -> None:
    generated = GeneratedArguments(None)
    generated.keep("s", "u1", generation(a='{"x": 1}'))
    generated.keep("s", "u2", generation(b="{}"))
    own, other = generated.of("s"), generated.of("t")
    assert (own.get("a", '{"x":1}'), own.get("b", "{}"), own.missed) == ('{"x": 1}', "{}", False)
    assert (other.get("a", '{"x":1}'), other.missed) == (None, True)


def test_calls_that_an_engine_gave_the_same_id_are_told_apart_by_their_values() -> None:
    generated = GeneratedArguments(None)
    for number, text in enumerate(('{"x": 1.0, "y": 2}', '{"y":  3}', "cut off: {", '{"y": 3}', '{"z": [{"a": 1}]}')):
        generated.keep("s", f"u{number}", generation(id=text))
    session = generated.of("s")
    assert session.get("id", '{"y":2,"x":1}') == '{"x": 1.0, "y": 2}'
    assert session.get("id", '{"z":[{"a":1.0}]}') == '{"z": [{"a": 1}]}'
    assert session.get("id", "cut off: {") == "cut off: {"
    assert session.get("id", '{"y":3}') == '{"y": 3}'  # the latest spelling of a value
    assert not session.missed
    assert session.get("id", '{"y":4}') is None
    assert session.missed  # another process may have generated it


def test_messages_without_calls_or_of_another_shape_are_no_trouble() -> None:
    generated = GeneratedArguments(None)
    for calls in (b"null", b"[]", b'[1,{"id":1},{"id":"a"},{"id":"a","function":{"arguments":{}}}]', b'{"id":"a"}'):
        generated.keep("s", "u", Generation(choices=[Choice(message={"tool_calls": calls})]))
    generated.keep("s", "u", Generation())
    assert generated.of("s").get("a", "{}") is None


def test_memory_is_bounded_and_the_latest_stay() -> None:
    generated = GeneratedArguments(None, max_bytes=10_000)
    for number in range(1000):
        generated.keep("s", f"u{number}", generation(**{f"id{number}": "x" * 100}))
    session = generated.of("s")
    assert session.get("id999", "x" * 100) == "x" * 100
    assert session.get("id0", "x" * 100) is None
    assert sum(session.get(f"id{number}", "x" * 100) is not None for number in range(1000)) < 50


def test_calls_without_tools_take_no_memory_for_good() -> None:
    generated = GeneratedArguments(None, most_calls=1000)

    def serve(sessions: range) -> int:
        for session in sessions:
            for number in range(20):
                generated.keep(f"s{session}", f"{session}-{number}", Generation())
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = serve(range(100))
        assert serve(range(100, 1000)) - before < 50_000
    finally:
        tracemalloc.stop()


async def test_records_tell_what_another_process_has_generated(
    proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path
) -> None:
    turn = Turn(tool_calls=[("weather", '{"city":  "Paris"}')])
    engine.reply(chat(turn))
    await (await proxy()).chat({}, "s")
    generated = GeneratedArguments(SessionReader(tmp_path / "rl_data", None), max_bytes=2_000)
    session, tool_call = generated.of("s"), turn.calls[0]["id"]
    assert session.get(tool_call, '{"city":"Paris"}') is None
    assert session.missed
    session.load()
    assert session.get(tool_call, '{"city":"Paris"}') == '{"city":  "Paris"}'
    assert not session.missed
    # What was forgotten meanwhile is read again.
    for number in range(100):
        generated.keep("s", f"u{number}", generation(**{f"id{number}": "x" * 100}))
    assert session.get(tool_call, '{"city":"Paris"}') is None
    session.load()
    assert session.get(tool_call, '{"city":"Paris"}') == '{"city":  "Paris"}'


def test_a_session_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    filesystem = FaultyFilesystem()
    (tmp_path / "sessions" / "s").mkdir(parents=True)
    session = GeneratedArguments(SessionReader(tmp_path, None, filesystem=filesystem)).of("s")
    filesystem.errors = {"names": errno.EIO}
    session.load()
    assert session.get("a", "{}") is None


@pytest.mark.parametrize("messages", [None, [], [7], "text"])
def test_a_record_of_another_program_without_messages_has_none(tmp_path: Path, messages: object) -> None:
    writer = Writer(tmp_path)
    commit(writer, messages=messages)
    session = GeneratedArguments(SessionReader(tmp_path, writer)).of("s")
    session.load()
    assert session.get("a", "{}") is None
    writer.close()


def test_an_unknown_session_has_none(tmp_path: Path) -> None:
    session = GeneratedArguments(SessionReader(tmp_path, None)).of("s")
    session.load()
    assert session.get("a", "{}") is None


async def test_a_store_that_cannot_be_read_does_not_fail_the_call(
    proxy: StartProxy, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await proxy()
    tool_use = {"type": "tool_use", "id": "elsewhere", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "elsewhere", "content": "done"}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [tool_use]},
        {"role": "user", "content": [result]},
    ]
    engine.reply(chat(Turn(text="hello")))

    def refuse(reader: SessionReader, session_id: str, known: object) -> Iterator[tuple[str, bytes]]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), session_id)

    monkeypatch.setattr(SessionReader, "other_records", refuse)
    headers = {"proxy_x_session_id": "s"}
    body = {"model": ROUTE, "max_tokens": 9, "messages": messages}
    response = await running.client.post("/v1/messages", json=body, headers=headers)
    assert response.status_code == 200
    assert await running.fates("s") == {"valid": 1}
