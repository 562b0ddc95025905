"""The engine that a doctor examines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from proctor.core.errors import IsolationUnavailable

if TYPE_CHECKING:
    from proctor.engine.shared import SyncEngine


@contextlib.contextmanager
def opened(isolation: str, slots: int | None = None) -> Iterator[SyncEngine]:
    """The process's shared engine for the length of a block; what an engine cannot do here is said in one line."""
    from proctor.engine.shared import shared_engine

    try:
        engine = shared_engine(slots=slots, isolation=isolation)
        _ = engine.isolation
    except IsolationUnavailable as error:
        raise click.ClickException(f"isolation {isolation!r} cannot be had on this host: {error}") from error
    try:
        yield engine
    finally:
        engine.close()
