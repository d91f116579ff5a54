"""What the options before the command say, and the failures all commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from switchyard_py.config import Bundle

FALLBACK_LOG_DIR = Path("rl_data")


@dataclass(frozen=True)
class GlobalOptions:
    """The options before the command, as given."""

    routing_profiles: Path | None
    rl_log_dir: Path | None
    enable_rl_logging: bool
    no_capture: bool

    def log_dir(self, bundle: Bundle) -> Path | None:
        """The absolute directory of the records, or None when nothing is to be recorded."""
        if self.no_capture or not bundle.captured_routes:
            return None
        return (self.rl_log_dir or bundle.capture.log_dir or FALLBACK_LOG_DIR).absolute()


def read_bundle(context: typer.Context, file: Path | None) -> Bundle:
    """Return the bundle in `file`; ends the command with a usage error for None, with exit 1 for a bad bundle."""
    from switchyard_py.config import ConfigError, load_bundle

    if file is None:
        context.fail("no route bundle: give one with --routing-profiles FILE before the command")
    try:
        return load_bundle(file)
    except ConfigError as error:
        end(str(error))


def end(problem: str, code: int = 1) -> NoReturn:
    """End the command with a one-line error."""
    typer.echo(f"error: {problem}", err=True)
    raise typer.Exit(code)
