"""Engines for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proctor.engine.shared import SyncEngine

from engine_help import gone, leavings


@pytest.fixture(scope="session")
def engine() -> Iterator[SyncEngine]:
    """Two slots, for tests that leave it as it was."""
    engine = SyncEngine(slots=2)
    yield engine
    engine.close()


@pytest.fixture
def clean() -> Iterator[None]:
    """Nothing of what the test's own engines made is left after it."""
    before = set(leavings())
    yield
    assert not gone(lambda: set(leavings()) - before)
