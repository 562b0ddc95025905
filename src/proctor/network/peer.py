"""TCP connections of a gate: read and written with small, bounded buffers, so that a slow side slows the other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Coroutine, Sequence
from typing import Any

from proctor.network import http

PIECE = 64 << 10  # bytes moved at once
_CHUNK_LINE = 64
_GOODBYE_S, _GOODBYE_MOST = 2.0, 1 << 20  # what is thrown away so that last words are not


class Activity:
    """When something last moved on a connection, either side."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self.last = self._clock()

    def touch(self) -> None:
        self.last = self._clock()

    def left(self, idle_s: float) -> float:
        return self.last + idle_s - self._clock()


class Peer:
    """One side of a connection. ``buffer`` is what was received and not yet used."""

    def __init__(self, sock: socket.socket, activity: Activity) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # not a TCP socket, in tests
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.activity = sock, activity
        self.buffer = bytearray()
        self._loop = asyncio.get_running_loop()

    async def more(self) -> bool:
        """Receive something into the buffer; False at the end."""
        data = await self._loop.sock_recv(self.sock, PIECE)
        await asyncio.sleep(
            0
        )  # what is ready is given without a turn of the loop, which is not this connection's alone
        self.activity.touch()
        self.buffer += data
        return bool(data)

    async def until(self, mark: bytes, most: int) -> bytes:
        """All up to and with ``mark``; ValueError when that is over ``most`` bytes, EOFError when it does not come."""
        start = 0
        while True:
            at = self.buffer.find(mark, start)
            if 0 <= at <= most - len(mark):
                return self.take(at + len(mark))
            if at >= 0 or len(self.buffer) >= most:
                raise ValueError("a head that is too long")
            start = max(0, len(self.buffer) - len(mark) + 1)
            if not await self.more():
                raise EOFError

    def take(self, most: int) -> bytes:
        """Up to ``most`` bytes of the buffer."""
        data = bytes(self.buffer[:most])
        del self.buffer[:most]
        return data

    async def some(self, most: int = PIECE) -> bytes:
        """1 to ``most`` bytes; b"" at the end."""
        if not self.buffer:
            await self.more()
        return self.take(min(most, PIECE))

    async def send(self, data: bytes) -> None:
        """Send in pieces: a peer that takes some of it is not idle."""
        for at in range(0, len(data), PIECE):
            await self._loop.sock_sendall(self.sock, data[at : at + PIECE])
            await asyncio.sleep(0)
            self.activity.touch()

    def end(self) -> None:
        """Say that no more will be sent."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    async def goodbye(self) -> None:
        """End so that what was sent last arrives: bytes that nobody read would make the kernel drop it."""
        self.end()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                left = _GOODBYE_MOST
                while left > 0 and (data := await self._loop.sock_recv(self.sock, PIECE)):
                    left -= len(data)
        self.sock.close()

    def abort(self) -> None:
        """End at once; what is on its way is lost."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


async def copy(source: Peer, sink: Peer) -> None:
    """Copy until the source's end, and pass that on."""
    while data := await source.some():
        await sink.send(data)
    sink.end()


async def copy_body(source: Peer, sink: Peer, body: http.Body) -> None:
    """Copy a body as its head announced it.

    Raises:
        EOFError: it ends early.
        ValueError: its chunks are not valid.
    """
    if body == "rest":
        while data := await source.some():
            await sink.send(data)
    elif body == "chunked":
        await _copy_chunks(source, sink)
    else:
        await _copy_bytes(source, sink, body)


async def _copy_bytes(source: Peer, sink: Peer, count: int) -> None:
    while count:
        data = await source.some(count)
        if not data:
            raise EOFError
        await sink.send(data)
        count -= len(data)


async def _copy_chunks(source: Peer, sink: Peer) -> None:
    while True:
        line = (await source.until(b"\r\n", _CHUNK_LINE))[:-2]
        size = http.parse_chunk(line)
        if size:
            await sink.send(b"%x\r\n" % size)
            await _copy_bytes(source, sink, size)
        if await source.until(b"\r\n", _CHUNK_LINE) != b"\r\n":
            raise ValueError("no valid chunk, or headers after the last one")
        if not size:
            await sink.send(b"0\r\n\r\n")
            return
        await sink.send(b"\r\n")


async def overseen(
    jobs: Sequence[Coroutine[Any, Any, None]], activity: Activity, idle_s: float, *, decisive: int | None = None
) -> None:
    """Do all jobs side by side until they are done, one fails, or nothing moved for ``idle_s`` seconds.

    Args:
        decisive: index of the job whose end is the end of all.

    Raises:
        TimeoutError: nothing moved.
    """
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        pending = set(tasks)
        while pending and (decisive is None or not tasks[decisive].done()):
            wait = max(0.01, activity.left(idle_s))
            done, pending = await asyncio.wait(pending, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if not done and activity.left(idle_s) <= 0:
                raise TimeoutError
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def splice(one: Peer, other: Peer, activity: Activity, idle_s: float) -> None:
    """Both directions, until both have ended."""
    await overseen([copy(one, other), copy(other, one)], activity, idle_s)
