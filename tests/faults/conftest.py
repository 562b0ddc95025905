"""The engine of the tests of this folder."""

from __future__ import annotations

import pytest

from proctor.engine.shared import SyncEngine, shared_engine


@pytest.fixture(scope="session")
def engine() -> SyncEngine:
    """The one that this process shares, and that ``proctor.grade`` takes by itself."""
    return shared_engine()
