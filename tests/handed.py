"""Where data that was handed to this project lies, for tests that use it when it is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def handed(name: str) -> Path:
    """The path of a file or folder of that data; skips the test when it is not on this machine."""
    place = os.environ.get("PROCTOR_HANDED") or Path(__file__).resolve().parent.parent.parent / "shared"
    path = Path(place) / name
    if not path.exists():
        pytest.skip(f"{name} was not handed over (PROCTOR_HANDED names its folder)")
    return path
