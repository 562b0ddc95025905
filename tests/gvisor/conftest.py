"""Engines inside gVisor, for the tests of this folder; without a `runsc` that works they skip and say so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "engine"))
sys.path.append(str(Path(__file__).parent.parent / "sandboxes"))

from box_help import Boxes
from engine_help import gone, leavings

from proctor.core.errors import IsolationUnavailable
from proctor.engine.shared import SyncEngine
from proctor.isolation import runsc


@pytest.fixture(scope="session")
def build() -> runsc.Runsc:
    try:
        return runsc.find()
    except IsolationUnavailable as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def rooms(build: runsc.Runsc) -> runsc.Runsc:
    """The same where this host has what sandboxes need as well: namespaces."""
    try:
        Boxes(spare=0).close()
    except IsolationUnavailable as exc:
        pytest.skip(f"this host gives no sandboxes: {exc}")
    return build


@pytest.fixture(scope="session")
def boxed(build: runsc.Runsc) -> Iterator[SyncEngine]:
    """Two slots inside gVisor, for tests that leave them as they were."""
    engine = SyncEngine(slots=2, isolation="gvisor")
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def jailed() -> Iterator[SyncEngine]:
    engine = SyncEngine(slots=1)
    yield engine
    engine.close()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """What was made in the test is gone after it: processes, control groups, directories, mounts."""
    before = set(leavings())
    yield
    assert not gone(lambda: set(leavings()) - before)
