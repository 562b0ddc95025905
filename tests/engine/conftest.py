"""Engines for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_help import common, gone, left

from proctor.engine.shared import SyncEngine


@pytest.fixture(scope="session")
def engine() -> Iterator[SyncEngine]:
    """Two slots, for tests that leave it as it was."""
    engine = SyncEngine(slots=2)
    common.append(engine)
    yield engine
    common.remove(engine)
    engine.close()


@pytest.fixture
def clean() -> Iterator[None]:
    """Nothing of what the test's own engines made is left after it."""
    yield
    assert not gone(left)
