"""A mistake in the program itself is an error in the dialect's shape, never a plain text and never silence."""

import pytest
from event_stream import DONE, events
from running_proxy import StartProxy
from scripted_engine import ScriptedEngine, Turn, chat

from switchyard_py.store import Filesystem


class _Mistaken(Filesystem):
    """Raises at one system call what no file system raises."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix

    def create(self, path: str, data: bytes) -> None:
        self._maybe(path)
        super().create(path, data)

    def rename(self, source: str, target: str) -> None:
        self._maybe(target)
        super().rename(source, target)

    def _maybe(self, path: str) -> None:
        if path.endswith(self._suffix):
            raise RuntimeError("a secret detail")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("suffix", [".open", ".json"])
async def test_a_mistake_is_told_in_the_error_shape(
    proxy: StartProxy, engine: ScriptedEngine, suffix: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    running = await proxy(filesystem=_Mistaken(suffix))
    engine.reply(chat(Turn(text="hello")))
    response = await running.chat({"stream": stream}, "s")
    begun = stream and suffix == ".json"
    assert response.status_code == (200 if begun else 500)
    error = events(response.content)[-1]["error"] if begun else response.json()["error"]
    assert error == {
        "message": "The proxy failed; its log says why.",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
    assert DONE not in events(response.content)
    assert b"detail" not in response.content
    assert "RuntimeError: a secret detail" in caplog.text
