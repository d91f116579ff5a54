"""Sessions from a running proxy, a directory, a file and from memory, and what is said when there is none."""

import asyncio
import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from dead_ports import refused_port
from running_proxy import StartProxy
from scripted_engine import ScriptedEngine, Turn, chat
from session_records import conversation, envelope
from stored_calls import commit, intent, put

from switchyard_py.rollouts import Lineage, Refusal, Rule, SourceError, accept, build_lineage, read_session
from switchyard_py.store import Writer

ENVELOPE = envelope(conversation(3), accounting={"begun": 4, "valid": 3, "failed": 1}, sealed=True)


def facts(lineage: Lineage) -> dict[str, Any]:
    """All that is known of a session but the account of its source."""
    ids = [lineage.forest.token_ids(call.index).tolist() for call in lineage.forest.calls]
    return {**lineage.to_json(), "accounting": None, "ids": ids}


@contextmanager
def answers(body: bytes, status: int = 200, pause: float = 0.0) -> Iterator[str]:
    """The base URL of a server that answers everything with a body, byte by byte where there is a pause."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            for start in range(0, len(body), 1 if pause else len(body)):
                try:
                    self.wfile.write(body[start : start + 1] if pause else body)
                except OSError:
                    return
                time.sleep(pause)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def test_every_source_gives_the_same_session(proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path) -> None:
    running = await proxy()
    ids = list(Turn().prompt_token_ids)
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    for number in range(3):
        turn = Turn(text=f"answer {number}", prompt_token_ids=tuple(ids))
        engine.reply(chat(turn))
        response = await running.chat({"messages": messages}, "s/1")
        messages += [response.json()["choices"][0]["message"], {"role": "user", "content": "more"}]
        ids += [*turn.token_ids, 3000 + number]
    sources: dict[str, str | Path] = {
        "url": running.url,
        "url with a slash": running.url + "/",
        "directory": running.directory,
    }
    read = {name: await asyncio.to_thread(accept, read_session(each, "s/1")) for name, each in sources.items()}
    body = (await running.client.get("/v1/sessions/s%2F1/completions")).content
    (tmp_path / "envelope.json").write_bytes(body)
    (tmp_path / "envelope.json.gz").write_bytes(gzip.compress(body))
    more: list[Any] = [tmp_path / "envelope.json", str(tmp_path / "envelope.json.gz"), body, orjson.loads(body)]
    for source in more:
        read[str(source)[:60]] = accept(read_session(source))
    expected = facts(read["url"])
    assert len(expected["calls"]) == 3
    for name, lineage in read.items():
        assert facts(lineage) == expected, name
        assert lineage.accounting is not None
        assert lineage.accounting["valid"] == 3, name
    settled = await asyncio.to_thread(build_lineage, read_session(running.url, "s/1", settled=0.5))
    assert facts(settled) == expected


async def test_a_proxy_wants_its_readers_key(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(auth={"reader_keys": ["reader-secret"]})
    engine.reply(chat(Turn(text="hello")))
    await running.chat({}, "s")
    with pytest.raises(SourceError, match="answers 401") as refused:
        await asyncio.to_thread(
            build_lineage, read_session(running.url, "s", headers={"authorization": "Bearer guessed-key"})
        )
    assert "guessed-key" not in str(refused.value)
    headers = {"authorization": "Bearer reader-secret"}
    lineage = await asyncio.to_thread(build_lineage, read_session(running.url, "s", headers=headers))
    assert len(lineage.forest.calls) == 1


async def test_a_proxy_that_does_not_know_the_session(proxy: StartProxy) -> None:
    running = await proxy()
    with pytest.raises(SourceError, match=r"^127\.0\.0\.1:\d+ answers 404: unknown session$"):
        await asyncio.to_thread(build_lineage, read_session(running.url, "nope"))


def test_a_proxy_that_is_not_there() -> None:
    with (
        refused_port() as port,
        pytest.raises(SourceError, match=rf"^127\.0\.0\.1:{port} cannot be read: Connection refused$") as refused,
    ):
        build_lineage(read_session(f"http://name:secret@127.0.0.1:{port}", "s"))
    assert "secret" not in str(refused.value)


def test_a_server_that_sends_too_slowly_is_given_up() -> None:
    with answers(orjson.dumps(ENVELOPE), pause=0.01) as url:
        started = time.monotonic()
        with pytest.raises(SourceError, match=r"took more than 0\.2 s"):
            build_lineage(read_session(url, "s", timeout_seconds=0.2))
        assert time.monotonic() - started < 2


def test_a_server_that_sends_nothing_is_given_up() -> None:
    with answers(b"{" * 1000, pause=1.0) as url, pytest.raises(SourceError, match="timed out"):
        build_lineage(read_session(url, "s", timeout_seconds=0.2))


@pytest.mark.parametrize(
    ("body", "said"),
    [(b'{"error":{"message":"no"}}', "no"), (b"<html>", "<html>"), (b"", "nothing"), (b"[1]", r"\[1\]")],
)
def test_what_a_server_says_of_an_error_is_told(body: bytes, said: str) -> None:
    with answers(body, status=503) as url, pytest.raises(SourceError, match=f"answers 503: {said}$"):
        build_lineage(read_session(url, "s"))


def test_an_answer_that_is_no_session_is_refused() -> None:
    with answers(b"<html>") as url, pytest.raises(Refusal) as refused:
        build_lineage(read_session(url, "s"))
    assert refused.value.rule is Rule.E1


def test_a_refusal_leaves_no_connection_behind() -> None:
    records = conversation(3)
    records[0]["is_valid"] = False
    with answers(orjson.dumps(envelope(records))) as url, pytest.raises(Refusal):
        accept(read_session(url, "s"))


def test_a_directory_tells_of_files_that_cannot_be_read(tmp_path: Path) -> None:
    with closing(Writer(tmp_path)) as writer:
        commit(writer)
        broken = commit(writer)
        writer.begin(intent("s"))
        put(tmp_path, f"{broken.uuid}.json", b"{")
        lineage = build_lineage(read_session(tmp_path, "s"))
        assert len(lineage.forest.calls) == 1
        assert lineage.missing == 1
        assert lineage.accounting is not None
        assert (lineage.accounting["begun"], lineage.accounting["open"]) == (3, 1)
        assert lineage.chain_verdicts[0].reasons == ("lost",)


def test_a_directory_without_the_session(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no session 'nope' in"):
        build_lineage(read_session(tmp_path, "nope"))
    with pytest.raises(SourceError, match="is the id of no session"):
        build_lineage(read_session(tmp_path, "\ud800"))


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is no directory, no file and no http:// address"):
        read_session(tmp_path / "missing.json")
    for source in (tmp_path, "http://127.0.0.1:1"):
        with pytest.raises(SourceError, match="give the id of the session"):
            read_session(source)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "envelope.json.gz"
    path.write_bytes(gzip.compress(orjson.dumps(ENVELOPE))[:-20])
    with pytest.raises(SourceError, match=r"envelope\.json\.gz cannot be read"):
        build_lineage(read_session(path))
    path.write_bytes(orjson.dumps(ENVELOPE)[:-20])
    with pytest.raises(Refusal, match="E1"):
        build_lineage(read_session(path))


def test_an_envelope_is_of_the_session_that_is_asked_for() -> None:
    with pytest.raises(Refusal, match="E3: it is of the session 's', not 't'"):
        build_lineage(read_session(ENVELOPE, "t"))
    assert build_lineage(read_session(ENVELOPE)).session_id == "s"


def test_an_id_is_not_known_before_the_first_record() -> None:
    with pytest.raises(ValueError, match="is known when its first record was read"):
        _ = read_session(ENVELOPE).session_id
