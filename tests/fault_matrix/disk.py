"""A disk that fails or crawls when it is told to."""

import os
import shutil
import threading
import time
from pathlib import Path

from stored_calls import FaultyFilesystem


class Disk(FaultyFilesystem):
    """A real file system under the capture directory, with chosen calls failing, or new files and names coming late."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._seconds = 0.0
        self._go = threading.Event()
        self._go.set()
        self.struck = False

    def fail(self, errors: dict[str, int]) -> None:
        """Let system calls fail, by name; see `FaultyFilesystem`."""
        self.errors, self.struck = dict(errors), True

    def crawl(self, seconds: float) -> None:
        """Take so long for every new file."""
        self._seconds, self.struck = seconds, True

    def hold(self) -> None:
        """Take no new file until `release`."""
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def vanish(self) -> None:
        """Remove the directory of all sessions."""
        shutil.rmtree(self._root / "sessions", ignore_errors=True)
        self.struck = True

    def heal(self) -> None:
        super().heal()
        self._seconds, self.struck = 0.0, False

    def create(self, path: str, data: bytes) -> None:
        if "sessions" in path.split(os.sep):
            assert self._go.wait(5)
            time.sleep(self._seconds)
        super().create(path, data)
