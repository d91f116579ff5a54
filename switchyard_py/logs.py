"""Plain log lines on stderr."""

import logging
import sys

# Workers share one stderr.
FORMAT = "%(asctime)s %(levelname)s [%(process)d] %(message)s"


def configure_logging(level: str) -> None:
    """Log to stderr from `level` on, a name of uvicorn's (critical, error, warning, info, debug, trace)."""
    # `trace` is a level of the HTTP server only.
    number = logging.getLevelNamesMapping().get(level.upper(), logging.DEBUG)
    logging.basicConfig(stream=sys.stderr, level=number, format=FORMAT)
