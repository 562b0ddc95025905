"""Fixtures that tests of several layers share."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from handed import handed

# A run in the background of a script, or under nohup, has signals ignored, and so
# would every program that a test starts: then none could be interrupted by them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)


# Grades are cached for each user. Each test has a cache of its own, or what one
# found would be taken for what another one finds; fixtures share this one.
_CACHES = tempfile.mkdtemp(prefix="caches-of-tests-")
_OWNER = os.getpid()
atexit.register(lambda: os.getpid() == _OWNER and shutil.rmtree(_CACHES, ignore_errors=True))
_PLACES = ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")  # the ledger and the settings, for the same reason
for _place in _PLACES:
    os.environ[_place] = os.path.join(_CACHES, "fixtures", _place)
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    number = str(next(_numbers))
    for place in _PLACES:
        monkeypatch.setenv(place, os.path.join(_CACHES, number, place))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of the data that was handed over; skips the test where it is not on this machine."""
    return handed("data").parent
