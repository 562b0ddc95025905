"""Engines for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_help import descendants, gone, leavings

from proctor.engine.shared import SyncEngine

_common: list[SyncEngine] = []


@pytest.fixture(scope="session")
def engine() -> Iterator[SyncEngine]:
    """Two slots, for tests that leave it as it was."""
    engine = SyncEngine(slots=2)
    _common.append(engine)
    yield engine
    _common.remove(engine)
    engine.close()


@pytest.fixture
def clean() -> Iterator[None]:
    """Nothing of what the test's own engines made is left after it."""
    yield

    def left() -> list[str]:
        agents = [link.agent for engine in _common for link in engine._engine._links]
        pids = [agent.process.pid for agent in agents]
        known = tuple(f"process {pid} " for pid in [*pids, *descendants(pids)])
        return [line for line in leavings() if not line.startswith(known) and not any(a.name in line for a in agents)]

    assert not gone(left)
