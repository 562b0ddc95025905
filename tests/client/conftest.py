"""Runtimes for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from client_help import Driven

from proctor import AsyncRuntime, Runtime
from proctor.client.embedded import EmbeddedBackend, close_all


@pytest.fixture(scope="module", autouse=True)
def nothing_stays() -> Iterator[None]:
    """This process's own engine ends with each module: other tests look for what engines leave."""
    yield
    close_all()


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    """One engine for tests that leave it as it was."""
    backend = EmbeddedBackend()
    yield backend
    backend.close()


@pytest.fixture(params=["sync", "async"])
def runtime(request: pytest.FixtureRequest, backend: EmbeddedBackend) -> Iterator[Any]:
    """A Runtime, then an AsyncRuntime driven like it."""
    if request.param == "sync":
        yield Runtime(backend=backend)
        return
    loop = asyncio.new_event_loop()
    yield Driven(AsyncRuntime(backend=backend), loop)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture
def sbx(runtime: Any) -> Iterator[Any]:
    """A sandbox, of each kind."""
    with runtime.sandboxes.create(memory_mib=256, disk_mib=256) as box:
        yield box
