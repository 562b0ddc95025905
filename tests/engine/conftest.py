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
    """Nothing of what the test's own engines made is left after it; other tests' engines may live on."""
    before = {_name(line) for line in left()}
    yield
    assert not gone(lambda: [line for line in left() if _name(line) not in before])


def _name(line: str) -> str:
    """What a line of ``left`` is about, without the state that it is in."""
    return " ".join(line.split()[:2])
