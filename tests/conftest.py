"""Fixtures that tests of several layers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from handed import handed


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of the data that was handed over; skips the test where it is not on this machine."""
    return handed("data").parent
