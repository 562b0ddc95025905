"""The way out of a sandbox whose sockets the host cannot have: gVisor's network is its own, and a machine's.

Where a jail hands the host the sockets that listen in its network namespace,
here a process of the sandbox listens, and the host sends it a socket for each
door. On those of TCP it knocks, with one byte, for each connection that it has
accepted, and the host answers with a socket of that connection's own; bytes then
pass both ways, with bounded buffers. Questions for names come and go as
datagrams, each behind the address of who asked.

It decides nothing: what may be reached is the host's to say. It has no rights
and no file, and what it could do wrong a program of its sandbox could as well.
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import signal
from dataclasses import dataclass, field

from . import linux
from .stream import take_fds

SENDER = 6  # bytes of an address and a port before each datagram
_PIECE, _MOST_WAITING = 1 << 16, 1 << 17
_MOST = 256  # connections at once: the host allows fewer
_QUERY_MOST = 4096
_LATER = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)
_IDENTITY = 65_533  # nobody else's in a sandbox


@dataclass(slots=True, eq=False)
class _Side:
    """One of the two sockets of a connection, and what waits to be written to it."""

    sock: _socket.socket
    other: _Side | None = None
    waiting: bytearray = field(default_factory=bytearray)
    read_end: bool = False  # nothing more comes from it
    write_end: bool = False  # it was told that nothing more comes

    @property
    def events(self) -> int:
        assert self.other is not None
        reading = not self.read_end and len(self.other.waiting) < _MOST_WAITING
        return (select.POLLIN if reading else 0) | (select.POLLOUT if self.waiting else 0)


class Doors:
    """Serves until the host closes a door.

    Args:
        listeners: sockets that listen, and the last one for names.
        doors: the host's, in the same order.
    """

    def __init__(self, listeners: list[_socket.socket], doors: list[int]) -> None:
        self.listeners, self.names = listeners[:-1], listeners[-1]
        self.doors = doors[:-1]
        self.asked = _socket.socket(fileno=doors[-1])
        self.sides: dict[int, _Side] = {}
        self.knocked: dict[int, _socket.socket] = {}  # a door -> the connection that waits for the host's socket
        for sock in (*listeners, self.asked):
            sock.setblocking(False)

    def turn(self) -> None:
        """Wait once and pass on what there is; EOFError when the host has closed a door."""
        poller = select.poll()
        for at, sock in enumerate(self.listeners):
            waits = self.doors[at] in self.knocked
            if not waits and len(self.sides) < 2 * _MOST:
                poller.register(sock.fileno(), select.POLLIN)
            poller.register(self.doors[at], select.POLLIN if waits else 0)
        for sock in (self.names, self.asked):
            poller.register(sock.fileno(), select.POLLIN)
        for fd, side in self.sides.items():
            poller.register(fd, side.events)
        ready = dict(poller.poll())
        for door in self.doors:
            if ready.get(door, 0) & select.POLLIN and door in self.knocked:
                self.join(self.knocked.pop(door), take_fds(door, 1)[0])
            elif ready.get(door, 0):
                raise EOFError
        for fd, events in ready.items():
            if fd in self.sides:
                self.move(self.sides[fd], events)
        if self.names.fileno() in ready:
            self.ask()
        if self.asked.fileno() in ready:
            self.answer()
        for at, sock in enumerate(self.listeners):
            if sock.fileno() in ready:
                self.knock(sock, self.doors[at])

    def knock(self, listener: _socket.socket, door: int) -> None:
        """Accept a connection and ask the host for a socket of its own; that may let it wait."""
        try:
            fd, _ = listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        self.knocked[door] = _socket.socket(fileno=fd)
        os.write(door, b"c")

    def join(self, sock: _socket.socket, theirs: int) -> None:
        """Bytes pass from here on."""
        one, two = _Side(sock), _Side(_socket.socket(fileno=theirs))
        one.other, two.other = two, one
        for side in (one, two):
            side.sock.setblocking(False)
            self.sides[side.sock.fileno()] = side

    def move(self, side: _Side, events: int) -> None:
        """Read from and write to one side."""
        other = side.other
        assert other is not None
        try:
            if events & select.POLLOUT:
                self.write(side)
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR) and not side.read_end:
                data = side.sock.recv(_PIECE)
                side.read_end = not data
                other.waiting += data
                self.write(other)
            elif events & (select.POLLHUP | select.POLLERR) and not side.waiting:
                raise ConnectionResetError
        except OSError as exc:
            if exc.errno not in _LATER:
                self.drop(side)
                return
        if side.write_end and other.write_end:
            self.drop(side)

    @staticmethod
    def write(side: _Side) -> None:
        """Write what it takes, and its end after that."""
        assert side.other is not None
        while side.waiting:
            try:
                del side.waiting[: side.sock.send(side.waiting[:_PIECE])]
            except OSError as exc:
                if exc.errno in _LATER:
                    return
                raise
        if side.other.read_end and not side.write_end:
            side.write_end = True
            side.sock.shutdown(_socket.SHUT_WR)

    def drop(self, side: _Side) -> None:
        """End a connection."""
        assert side.other is not None
        for one in (side, side.other):
            self.sides.pop(one.sock.fileno(), None)
            one.sock.close()

    def ask(self) -> None:
        """Pass a question on."""
        try:
            data, (host, port) = self.names.recvfrom(_QUERY_MOST)
            self.asked.send(_socket.inet_aton(host) + port.to_bytes(2, "big") + data)
        except OSError:
            return  # it is asked again

    def answer(self) -> None:
        """Pass an answer back."""
        try:
            data = self.asked.recv(_QUERY_MOST + SENDER)
            if not data:
                raise EOFError
            address = _socket.inet_ntoa(data[:4]), int.from_bytes(data[4:SENDER], "big")
            self.names.sendto(data[SENDER:], address)
        except OSError as exc:
            if exc.errno == errno.ECONNRESET:
                raise EOFError from exc


def serve(listeners: list[_socket.socket], doors: list[int]) -> int:
    """Be the process of the doors; its status."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.dup2(0, 2)  # nothing of the host's but the doors
    kept = {0, 1, 2, *doors, *(sock.fileno() for sock in listeners)}
    for name in os.listdir("/proc/self/fd"):  # ends of commands' pipes, which would never be seen to end
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # of the listing itself
    try:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(_IDENTITY, _IDENTITY, _IDENTITY)
            os.setresuid(_IDENTITY, _IDENTITY, _IDENTITY)
        linux.drop_capabilities(0)
        made = Doors(listeners, doors)
        while True:
            made.turn()
    except (EOFError, BrokenPipeError):
        return 0
