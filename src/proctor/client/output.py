"""Output of one streamed command, between the engine that brings it and a reader who may be slow, late or missing."""

from __future__ import annotations

import asyncio
from collections import deque

from proctor.client.backend import Pieces

KEPT = 1 << 20  # bytes of each stream for the outcome, and of both for a reader who may still come
HIGH = 1 << 20  # bytes that wait for a reader before the program waits too


class Output:
    """``take`` on one side, ``pull`` on the other; on one event loop.

    Args:
        reading: there is a reader from the beginning.
    """

    def __init__(self, *, reading: bool) -> None:
        self.reading = reading
        self.kept = {1: bytearray(), 2: bytearray()}
        self.written = {1: 0, 2: 0}
        self.ended = False
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._come = asyncio.Event()
        self._room = asyncio.Event()

    async def take(self, stream: int, data: bytes) -> None:
        """A piece of output; waits while the reader has enough to do."""
        self.written[stream] += len(data)
        if (left := KEPT - len(self.kept[stream])) > 0:
            self.kept[stream] += data[:left]
        self._pieces.append((stream, data))
        self._size += len(data)
        self._come.set()
        while self._size > HIGH:
            if self.ended:
                return
            if not self.reading:
                self._size -= len(self._pieces.popleft()[1])
                continue
            self._room.clear()
            await self._room.wait()

    async def pull(self, wait: bool) -> tuple[Pieces, bool]:
        """All that is there; with ``wait`` at least one piece, or the end."""
        self.reading = True
        while wait and not self._pieces and not self.ended:
            self._come.clear()
            await self._come.wait()
        pieces = list(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._room.set()
        return pieces, self.ended

    def drop(self) -> None:
        """Nobody reads any more: the program does not wait."""
        self.reading = False
        self._room.set()

    def end(self) -> None:
        """Nothing more will come."""
        self.ended = True
        self._come.set()
        self._room.set()
