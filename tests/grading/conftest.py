"""An engine for the files here that make none of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proctor.engine.shared import SyncEngine


@pytest.fixture(scope="module")
def engine() -> Iterator[SyncEngine]:
    engine = SyncEngine(slots=2)
    yield engine
    engine.close()
