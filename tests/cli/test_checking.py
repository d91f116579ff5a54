"""`check` shows what a bundle comes to."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from switchyard_py.config import CaptureSettings, ServerSettings, SessionSettings


def test_a_file_is_needed(invoke: Any) -> None:
    assert invoke("check").exit_code == 2


def test_a_bad_file_is_one_line(invoke: Any) -> None:
    result = invoke("check", "nope.yaml")
    assert (result.exit_code, result.stderr) == (1, "error: nope.yaml: file not found\n")


def test_the_file_of_the_command_beats_the_global_one(invoke: Any, captured: Path, uncaptured: Path) -> None:
    assert invoke("-c", captured, "check").stdout.startswith(f"{captured}: valid\n")
    assert invoke("-c", captured, "check", uncaptured).stdout.startswith(f"{uncaptured}: valid\n")


def test_routes_are_shown_with_what_is_not_built_in(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "bundle.yaml").write_text("""
routes:
  policy:
    default: true
    aliases: [gpt]
    target:
      model: m
      base_url: http://u:hidden@h:8000/v1
      api_key: hidden
      extra_headers: {x-tenant: hidden}
      timeout: 60
      drop_body: [user]
      token_capture_engine: vllm
  any: {type: passthrough, base_url: 'http://h:8000/v1'}
auth: {caller_keys: [hidden-caller], reader_keys: [hidden-reader, hidden-old-reader]}
""")
    assert (
        invoke("check", "bundle.yaml").stdout
        == f"""\
bundle.yaml: valid

policy (default): model
  model                 m
  base_url              http://***@h:8000/v1
  token_capture_engine  vllm
  api_key               ***
  drop_body             ["user"]
  extra_headers         {{"x-tenant": "***"}}
  total_timeout         60.0
  aliases               gpt

any: passthrough
  model                 (the model asked for)
  base_url              http://h:8000/v1
  token_capture_engine  none: not captured
  api_key               none

records  {tmp_path / "rl_data"}
auth     caller keys: 1, reader keys: 2, session secrets: none
server   0.0.0.0:4000, workers: 1, log level: info
"""
    )


def test_json_holds_every_setting(invoke: Any, captured: Path, tmp_path: Path) -> None:
    shown = json.loads(invoke("check", captured, "--json").stdout)
    assert shown["default_route"] == "policy"
    assert shown["routes"]["policy"]["default"] is False
    assert shown["routes"]["policy"]["target"]["connect_timeout"] == 10
    assert shown["routes"]["policy"]["target"]["token_capture_engine"] == "vllm"
    assert shown["server"]["max_body_bytes"] == 128 * 1024 * 1024
    for name, section in {"capture": CaptureSettings, "sessions": SessionSettings, "server": ServerSettings}.items():
        settings = {field.name for field in fields(section)}
        assert set(shown[name]) == {{"log_dir": "dir"}.get(each, each) for each in settings}
    assert shown["log_dir"] == str(tmp_path / "rl_data")


def test_the_record_directory_is_the_one_serve_would_use(
    invoke: Any, captured: Path, uncaptured: Path, tmp_path: Path
) -> None:
    captured.write_text(captured.read_text() + "\ncapture: {dir: from-bundle}")

    def log_dir(*arguments: str | Path) -> Any:
        return json.loads(invoke(*arguments, "--json").stdout)["log_dir"]

    assert log_dir("check", captured) == str(tmp_path / "from-bundle")
    assert log_dir("--rl-log-dir", "flag", "check", captured) == str(tmp_path / "flag")
    assert log_dir("--no-capture", "check", captured) is None
    assert log_dir("check", uncaptured) is None
    assert not (tmp_path / "from-bundle").exists()
