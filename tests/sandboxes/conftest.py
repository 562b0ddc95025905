"""One engine of sandboxes for the tests that leave it as it was, and a sandbox of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from box_help import Boxes

from proctor.core.errors import IsolationUnavailable
from proctor.engine.sandbox import Sandbox


@pytest.fixture(scope="module")
def boxes() -> Iterator[Boxes]:
    try:
        found = Boxes()
    except IsolationUnavailable as exc:
        pytest.skip(f"this host gives no sandboxes: {exc}")
    yield found
    found.close()


@pytest.fixture
def box(boxes: Boxes) -> Iterator[Sandbox]:
    made = boxes.new()
    yield made
    boxes.run(boxes.engine.delete(made.id))
