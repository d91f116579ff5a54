"""A simulator on a real socket, for the length of a `with`."""

import pytest
from running_simulator import RunSimulator, running_simulator


@pytest.fixture
def running() -> RunSimulator:
    """`running(**settings)` is a context manager: a client of a simulator with these settings."""
    return running_simulator
