"""What a started server tells, on a terminal and elsewhere."""

import io
import logging
import os
import pty
from pathlib import Path

import pytest

from switchyard_py.cli.banner import announce, banner
from switchyard_py.config import ServeSettings, load_bundle

TEXT = """
routes:
  judge: {model: j, base_url: 'http://judge:8001/v1'}
  policy: {aliases: [gpt], model: m, base_url: 'http://u:hidden@h:8000/v1', api_key: hidden, token_capture_engine: vllm}
  any: {type: passthrough, base_url: 'http://h:8000/v1'}
"""


def settings(tmp_path: Path, log_dir: str | None = "/records", host: str = "0.0.0.0", auth: str = "") -> ServeSettings:
    path = tmp_path / "bundle.yaml"
    path.write_text(TEXT + auth)
    return ServeSettings(load_bundle(path, {}), Path(log_dir) if log_dir else None, host, 0, 2, "info")


def test_the_banner_tells_what_matters(tmp_path: Path) -> None:
    text = banner(settings(tmp_path), 4321)
    assert "  judge       → j at http://judge:8001/v1, not captured\n" in text
    assert "  policy, gpt → m at http://***@h:8000/v1, captured\n" in text
    assert "  any         → the model asked for at http://h:8000/v1, not captured\n" in text
    assert "  records  /records\n" in text
    assert "whoever reaches 0.0.0.0 can read every session" in text
    assert "  curl http://127.0.0.1:4321/v1/chat/completions " in text
    assert '"model": "policy"' in text
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("host", "url", "warned"),
    [
        ("127.0.0.1", "http://127.0.0.1:4000", False),
        ("localhost", "http://localhost:4000", False),
        ("::1", "http://[::1]:4000", False),
        ("::", "http://[::1]:4000", True),
        ("10.1.2.3", "http://10.1.2.3:4000", True),
        ("proxy.example", "http://proxy.example:4000", True),
    ],
)
def test_addresses(tmp_path: Path, host: str, url: str, warned: bool) -> None:
    text = banner(settings(tmp_path, host=host), 4000)
    assert f"curl {url}/v1/chat/completions" in text
    assert ("can read every session" in text) is warned


def test_reader_keys_end_the_warning_and_caller_keys_do_not(tmp_path: Path) -> None:
    text = banner(settings(tmp_path, auth="auth: {caller_keys: [hidden-key]}"), 4000)
    assert "can read every session: give the bundle auth.reader_keys" in text
    assert ' -H "authorization: Bearer $CALLER_KEY" -d ' in text
    assert text.rstrip().endswith("/v1/sessions/demo/completions")
    text = banner(settings(tmp_path, auth="auth: {reader_keys: [hidden-key]}"), 4000)
    assert "can read every session" not in text
    assert "CALLER_KEY" not in text
    assert text.rstrip().endswith('/v1/sessions/demo/completions -H "authorization: Bearer $READER_KEY"')
    assert "hidden" not in text


def test_without_capture_nothing_is_said_to_be_captured(tmp_path: Path) -> None:
    text = banner(settings(tmp_path, log_dir=None), 4000)
    assert "records  none are kept" in text
    assert ", captured" not in text
    assert "session" not in text


def test_a_log_gets_the_same_facts_as_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stream = io.StringIO()
    announce(settings(tmp_path), 4321, stream)
    assert stream.getvalue() == ""
    assert caplog.messages[0].endswith(" on http://127.0.0.1:4321, workers: 2")
    assert "route policy, gpt -> m at http://***@h:8000/v1, captured" in caplog.messages
    assert "records: /records" in caplog.messages
    assert caplog.records[-1].levelno == logging.WARNING


def test_a_terminal_gets_the_banner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    controller, terminal = pty.openpty()
    try:
        with open(terminal, "w") as stream:
            announce(settings(tmp_path), 4321, stream)
            shown = os.read(controller, 65536).decode()
    finally:
        os.close(controller)
    assert "\x1b[1mswitchyard\x1b[0m" in shown
    assert "records  /records" in shown
    assert caplog.messages == []
