"""The limits in effect, as they are logged."""

from pathlib import Path

import pytest

from switchyard_py.cli.limits import limits
from switchyard_py.config import ServeSettings, load_bundle

TEXT = """
routes:
  judge: {model: j, base_url: 'http://u:hidden@judge:8001/v1', first_byte_timeout: 2.5, early_headers_after: 0}
  policy: {target: {id: mine, model: m, base_url: 'http://h:8000/v1', api_key: hidden, token_capture_engine: vllm}}
  again: {target: {id: mine, model: m, base_url: 'http://h:8000/v1', api_key: hidden, token_capture_engine: vllm}}
capture: {durability: power, min_free_bytes: 1536KiB}
server: {max_body_bytes: 64000}
"""


def lines(tmp_path: Path, log_dir: Path | None) -> list[str]:
    path = tmp_path / "bundle.yaml"
    path.write_text(TEXT)
    return list(limits(ServeSettings(load_bundle(path, {}), log_dir, "127.0.0.1", 0, 2, "info"), 1024, 4096))


def test_what_is_told(tmp_path: Path) -> None:
    server, store, judge, policy = lines(tmp_path, tmp_path)
    assert server == (
        "limits: descriptor limit: 1024 of 4096; workers: 2; request body: 62.5 KiB; drain: 5 s; grace: 30 s"
    )
    assert store.startswith("limits of the store: durability: power; begin timeout: 10 s; free space: ")
    assert store.endswith("iB, not ready below 1536 KiB")
    assert judge == (
        "timeouts of target j@judge:8001: connect 10 s, first byte 2.5 s, idle none, total none; "
        "early headers after 0 s"
    )
    assert policy.startswith("timeouts of target mine: connect 10 s, first byte none, ")


def test_a_store_that_cannot_be_asked_is_no_reason_not_to_start(tmp_path: Path) -> None:
    assert lines(tmp_path, tmp_path / "missing")[1].endswith("free space: not known: No such file or directory")


def test_without_capture_there_is_no_store(tmp_path: Path) -> None:
    assert [line.partition(" ")[0] for line in lines(tmp_path, None)] == ["limits:", "timeouts", "timeouts"]


@pytest.mark.parametrize("log_dir", [True, False])
def test_no_secret_is_told(tmp_path: Path, log_dir: bool) -> None:
    assert "hidden" not in "".join(lines(tmp_path, tmp_path if log_dir else None))
