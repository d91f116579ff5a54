"""`switchyard check --probe` against a real vLLM."""

import subprocess
import sys
from pathlib import Path

import yaml
from running_proxy import bundle


def test_the_probe_finds_that_capture_works(vllm_url: str, tmp_path: Path) -> None:
    file = tmp_path / "bundle.yaml"
    file.write_text(yaml.safe_dump(bundle(f"{vllm_url}/v1", target={"model": "tiny"})))
    command = [sys.executable, "-m", "switchyard_py", "check", str(file), "--probe"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for mode in ("buffered", "streamed"):
        assert f"  {mode}  complete: " in checked.stdout
