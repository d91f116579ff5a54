"""How much of a heavy test to run: all of it in the lane of faults, a tenth or less with the other tests."""

import os

FULL = os.environ.get("SWITCHYARD_FULL_FAULTS") == "1"


def scaled(full: int, quick: int) -> int:
    """`full` in the lane `make test-faults`, else `quick`."""
    return full if FULL else quick
