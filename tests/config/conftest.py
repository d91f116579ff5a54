from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from switchyard_py.config import Bundle, load_bundle

Load = Callable[..., Bundle]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a bundle from its text (or bytes)."""

    def load(text: str | bytes, environ: Mapping[str, str] | None = None) -> Bundle:
        path = tmp_path / "bundle.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_bundle(path, environ or {})

    return load
