"""Uses of one sandbox, any number at once, and times at which there are none: while its files are read as a whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable


class Stillness:
    """On one event loop. ``use`` waits for a stillness to end; ``hold`` for another one, and then for all uses."""

    def __init__(self) -> None:
        self._uses = 0
        self._held = False
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[None]:
        """The body changes the sandbox, or asks it for something."""
        await self._until(lambda: not self._held)
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            self._tell()

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Nobody else uses it in the body."""
        await self._until(lambda: not self._held)
        self._held = True
        try:
            await self._until(lambda: not self._uses)
            yield
        finally:
            self._held = False
            self._tell()

    async def _until(self, ready: Callable[[], bool]) -> None:
        """Looked at again after each wait: somebody else may have been woken first."""
        while not ready():
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
