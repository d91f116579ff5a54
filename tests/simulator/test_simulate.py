"""The command `simulate`, on its own."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from switchyard_py.cli.simulate import simulate

COMMAND = [sys.executable, "-c", "import typer; from switchyard_py.cli.simulate import simulate; typer.run(simulate)"]


def test_prints_one_line_and_serves(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("replies: [{content: from the script}]")
    options = ["--port", "0", "--model", "m", "--script", str(script), "--fault", "call=2,status=503", "--no-thinking"]
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            shown = re.fullmatch(r"simulated engine 'm' at (http://127\.0\.0\.1:\d+/v1)\n", line)
            assert shown, line
            body = {"messages": [{"role": "user", "content": "hi"}]}
            with httpx.Client(base_url=shown[1], trust_env=False) as client:
                first = client.post("/chat/completions", json=body)
                second = client.post("/chat/completions", json=body)
        finally:
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
    message = first.json()["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("from the script", None)
    assert second.status_code == 503
    assert rest == ""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--fault", "nonsense"], "error: 'nonsense': write key=value pairs"),
        (["--slots", "0"], "error: slots: Input should be greater than 0"),
        (["--script", "nowhere.yaml"], "error: nowhere.yaml: No such file or directory"),
        (["--host", "192.0.2.1", "--port", "1"], "error: cannot listen on 192.0.2.1 port 1"),
    ],
)
def test_bad_options_end_with_one_line(options: list[str], problem: str) -> None:
    app = typer.Typer()
    app.command()(simulate)
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 1
    assert result.output.startswith(problem)
    assert result.output.count("\n") == 1
