"""Where counts are kept."""

import os
import subprocess
import sys
from pathlib import Path

from switchyard_py.metrics import Metrics, follow, shared_directory


def test_the_directory_of_another_program_is_left_alone(tmp_path: Path) -> None:
    # The engine that starts a proxy may share counts of its own in the same way.
    code = "from switchyard_py.metrics import Metrics; print(Metrics().exposition().decode())"
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert "switchyard_calls_in_flight 0.0" in told.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_shared_directory_is_private_and_gone_in_the_end() -> None:
    with shared_directory() as directory:
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "counter_1.db").touch()
    assert not directory.exists()


def test_the_counts_are_read_while_another_worker_makes_its_files(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from switchyard_py.metrics import Metrics
metrics = Metrics(Path("."))
for name in ("counter", "histogram", "gauge_livesum", "gauge_max"):
    Path(f"{name}_1.db").touch()
Path("gauge_livemin_1.db").symlink_to("gone")
print(metrics.exposition().decode(), len(list(metrics.families())))
"""
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "switchyard_workers 1.0" in told.stdout


def test_a_count_kept_elsewhere_is_followed() -> None:
    metrics, known = Metrics(), 0
    for counted in (0, 3, 3, 10):
        known = follow(metrics.resent_requests, counted, known)
        assert f"switchyard_upstream_resent_requests_total {counted}.0" in metrics.exposition().decode()
