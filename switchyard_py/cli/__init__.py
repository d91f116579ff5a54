"""The `switchyard` command: parses, calls, prints."""

from switchyard_py.cli.application import app, run

__all__ = ["app", "run"]
