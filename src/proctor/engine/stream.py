"""A socket read and written from an event loop, where one direction's failure leaves the other alone.

asyncio's own streams drop what was received as soon as a send fails; here an
agent's last outcomes are read although it did not take the next case any more.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket

_PIECE = 1 << 20


class Stream:
    """Owns nothing: who made the socket closes it, after ``drop``."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._buffer = bytearray()
        self._turn = asyncio.Lock()
        self._room: asyncio.Event | None = None  # of a send that waits
        self._dropped = False

    async def exactly(self, count: int) -> bytes:
        """The next ``count`` bytes; EOFError when the other end has closed before."""
        loop = asyncio.get_running_loop()
        while len(self._buffer) < count:
            piece = await loop.sock_recv(self.sock, max(1 << 16, min(count - len(self._buffer), _PIECE)))
            if not piece:
                raise EOFError
            self._buffer += piece
        data = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        return data

    async def send(self, data: bytes) -> None:
        """Send all of it. A trainer may have set SIGPIPE to kill: here it is never sent."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                await self._writable()

    async def send_whole(self, data: bytes, fds: list[int] | None = None) -> None:
        """Send all of it, and descriptors behind it, before any other whole send begins.

        A caller that is cancelled leaves no half of it behind; it may close its descriptors at once.
        """
        own = [os.dup(fd) for fd in fds or ()]
        sending = asyncio.get_running_loop().create_task(self._send_whole(data, own))
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(sending)

    async def _send_whole(self, data: bytes, fds: list[int]) -> None:
        try:
            async with self._turn:
                await self.send(data)
                if fds:
                    await self.send_pipes(fds)
        finally:
            for fd in fds:
                os.close(fd)

    async def send_pipes(self, pipes: list[int]) -> None:
        """Give descriptors to the other end, with one byte."""
        while True:
            try:
                socket.send_fds(self.sock, [b"p"], pipes, socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                await self._writable()

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Event()
        if self._dropped:
            raise BrokenPipeError(errno.EPIPE, "the stream was dropped")
        loop.add_writer(self.sock, room.set)
        self._room = room
        try:
            await room.wait()
        finally:
            self._room = None
            if self.sock.fileno() >= 0:
                loop.remove_writer(self.sock)

    def quiet(self) -> bool:
        """Nothing has come that was not asked for, the end included."""
        if self._buffer:
            return False
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def drop(self) -> None:
        """Let the loop forget the socket, so that it may be closed. A send that waits fails."""
        self._dropped = True
        if self._room is not None:
            self._room.set()
        if self.sock.fileno() >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.sock)
            loop.remove_writer(self.sock)
