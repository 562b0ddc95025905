"""Fixtures that tests of several layers share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from handed import handed

# A run in the background of a script, or under nohup, has signals ignored, and so
# would every program that a test starts: then none could be interrupted by them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of the data that was handed over; skips the test where it is not on this machine."""
    return handed("data").parent
