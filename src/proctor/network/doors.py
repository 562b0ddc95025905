"""Listeners of a sandbox whose sockets this process cannot have: its network is not the host's (``guest/doors.py``)."""

from __future__ import annotations

import asyncio
import socket

SENDER = 6  # bytes of an address and a port before each datagram
NAMES = "dns"


class Door:
    """A TCP listener inside: for each byte that comes, a connection waits for a socket of its own."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock

    async def accept(self) -> socket.socket:
        """The next connection; OSError where the other end does not take it."""
        if not await asyncio.get_running_loop().sock_recv(self.sock, 1):
            raise OSError("nobody is behind this door any more")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            socket.send_fds(self.sock, [b"c"], [theirs.fileno()], socket.MSG_NOSIGNAL)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def close(self) -> None:
        """Nobody is let in any more."""
        self.sock.close()


class Names:
    """A UDP listener inside: datagrams, each behind who asked."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock

    async def receive(self, most: int) -> tuple[bytes, bytes]:
        """A question and who asked."""
        data = await asyncio.get_running_loop().sock_recv(self.sock, SENDER + most)
        if len(data) < SENDER:
            raise OSError("nobody asks here any more")
        return data[SENDER:], data[:SENDER]

    def send(self, data: bytes, sender: bytes) -> None:
        """An answer; BlockingIOError where nobody takes it."""
        self.sock.send(sender + data, socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Nobody is answered any more."""
        self.sock.close()
