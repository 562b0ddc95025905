"""Streams and pipes over one serial port: what an agent in a machine and its host say to each other.

Theory of operation. Descriptors do not pass into a machine. So both ends of the
port have a relay, with the same code: it reads what is written to the agent's
control socket, or into a pipe, on its side, and writes it there on the other. The
agent and the engine speak as if one socket joined them, descriptors included.

A channel goes one way. 0 is the control stream into the machine, 1 the one out
of it. Others are made when the host sends descriptors over the control stream, or
over a socket that came that way: each has two numbers, one for what goes into the
machine and one for what comes out, of which an end of a pipe uses one and a socket
both. The machine's relay makes pipes and sockets, and hands their other ends over
where the host's were. Each channel may have ``WINDOW`` bytes under way that the other
end has not yet passed on; so nothing grows, and a reader that is slow holds up its
own writer and nobody else. The end of a file and a reader's going away are passed on
too.

A message is ``kind, channel, length``, then bytes. What comes from a machine is
hostile: what does not follow these rules ends it, and it can open nothing itself.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

HEAD = struct.Struct(">BIH")
DATA, END, GONE, PASSED, GIVEN, TOLD = 1, 2, 3, 4, 5, 6
WINDOW, PIECE = 1 << 18, 1 << 15
INTO, OUT_OF = 0, 1
_ROW = struct.Struct(">Ic")  # of what is given: the first of its numbers, and its kind
_READ, _WRITE, _STREAM, _PACKETS = b"r", b"w", b"s", b"q"
_QUEUED = 1 << 20  # bytes for the port beyond which nothing more is read for it
_TOO_MUCH = 4 << 20  # waits for the port only where the other end sends and does not read
_MOST = 512  # channels at once: a pair has two, a sandbox some ten, and two for each connection
_MOST_GIVEN = 8  # descriptors at once


class Broken(Exception):
    """The other end of the port does not follow the rules, or is gone."""


@dataclass(slots=True)
class _Source:
    """Reads here what is written there."""

    fd: int
    kind: bytes = _READ
    credit: int = WINDOW
    shared: bool = False  # the descriptor is not this one's to close

    @property
    def ready(self) -> bool:
        """As much as may come at once may be sent."""
        return self.credit >= (PIECE if self.kind == _PACKETS else 1)

    def close(self) -> None:
        """Read no more: whoever writes is told."""
        if self.shared:
            return
        if self.kind != _READ:
            _shut(self.fd, socket.SHUT_RD)
        os.close(self.fd)


@dataclass(slots=True)
class _Sink:
    """Writes here what was read there."""

    fd: int
    kind: bytes = _WRITE
    waiting: deque[bytes | list[int]] = field(default_factory=deque)  # bytes, and descriptors to be handed over between
    size: int = 0
    ended: bool = False
    shared: bool = False

    def close(self) -> None:
        """Write no more: whoever reads is told."""
        for item in self.waiting:
            for fd in item if isinstance(item, list) else ():
                os.close(fd)
        self.waiting.clear()
        if self.kind != _WRITE:
            _shut(self.fd, socket.SHUT_WR)
        if not self.shared:
            os.close(self.fd)


def _shut(fd: int, how: int) -> None:
    sock = socket.socket(fileno=fd)
    try:
        sock.shutdown(how)
    except OSError:
        pass  # its other end is gone already
    finally:
        sock.detach()


def _hand(fd: int, fds: list[int]) -> None:
    """Send descriptors over a socket, with one byte, and close them; BlockingIOError where it takes nothing now."""
    sock = socket.socket(fileno=fd)
    try:
        socket.send_fds(sock, [b"p"], fds)
    finally:
        sock.detach()
    for one in fds:
        os.close(one)


def _kind(fd: int) -> bytes:
    """What a descriptor of the host's is; ValueError where nothing inside could stand for it."""
    if stat.S_ISFIFO(mode := os.fstat(fd).st_mode):
        return _READ if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY else _WRITE
    if stat.S_ISSOCK(mode):
        sock = socket.socket(fileno=fd)
        try:
            return {socket.SOCK_STREAM: _STREAM, socket.SOCK_SEQPACKET: _PACKETS}[sock.type]
        except KeyError:
            raise ValueError("a socket of a kind that does not pass") from None
        finally:
            sock.detach()
    raise ValueError("neither a pipe nor a socket")


class Relay:
    """One end. ``turn`` waits once and passes on what there is.

    Args:
        port: the serial port, or the socket that QEMU has for it.
        control: the stream that is joined to the other side's; None until there is one.
        inside: this is the machine's end.
        told: called with what the other end says to this one itself.
    """

    def __init__(
        self, port: int, control: socket.socket | None, *, inside: bool, told: Callable[[bytes], None]
    ) -> None:
        self.port, self.control, self.inside, self.told = port, control, inside, told
        os.set_blocking(port, False)
        self.sources: dict[int, _Source] = {}
        self.sinks: dict[int, _Sink] = {}
        self.out = bytearray()
        self.coming = bytearray()
        self.next = 2
        self.heard = False  # something came out of the machine
        self.before: Callable[[], None] | None = None  # called when something is about to go into the machine
        if control is not None:
            self.join(control)

    def join(self, control: socket.socket) -> None:
        """Join the control stream."""
        self.control = control
        control.setblocking(False)
        source, sink = (OUT_OF, INTO) if self.inside else (INTO, OUT_OF)
        self.sources[source] = _Source(control.fileno(), _STREAM, shared=True)
        self.sinks[sink] = _Sink(control.fileno(), _STREAM, shared=True)

    def say(self, kind: int, channel: int, data: bytes = b"") -> None:
        """Queue a message."""
        if len(self.out) > _TOO_MUCH:
            raise Broken("the other end reads nothing")
        self.out += HEAD.pack(kind, channel, len(data)) + data

    def turn(self, timeout: int | None, watched: dict[int, int] | None = None) -> set[int]:
        """Wait until something can be passed on, or for ``timeout`` ms.

        Args:
            watched: further descriptors -> events to wait for.

        Returns:
            Those of ``watched`` that are ready.

        Raises:
            Broken: the port is of no more use.
        """
        wanted = dict(watched or {})
        known = {*self.sources, *self.sinks}  # what is opened meanwhile may have the number of what was closed
        full = len(self.out) > _QUEUED
        for source in self.sources.values():
            if source.ready and not full:
                wanted[source.fd] = wanted.get(source.fd, 0) | select.POLLIN
        for sink in self.sinks.values():
            wanted[sink.fd] = wanted.get(sink.fd, 0) | (select.POLLOUT if sink.waiting else 0)
        wanted[self.port] = select.POLLIN | (select.POLLOUT if self.out else 0)
        poller = select.poll()
        for fd, events in wanted.items():
            poller.register(fd, events)
        ready = dict(poller.poll(timeout))
        if ready.get(self.port, 0) & ~select.POLLOUT:
            self._receive()
        for channel, source in list(self.sources.items()):
            if (
                ready.get(source.fd, 0) & (select.POLLIN | select.POLLHUP | select.POLLERR)
                and source.ready
                and not full
                and channel in known
            ):
                self._read(channel, source)
        for channel, sink in list(self.sinks.items()):
            if channel in known and ready.get(sink.fd, 0) & (select.POLLOUT | select.POLLERR | select.POLLHUP):
                self._write(channel, sink, gone=not ready[sink.fd] & select.POLLOUT)
        if self.out:
            self.flush()
        return {fd for fd in watched or {} if fd in ready}

    # ------------------------------------------------------------ the port

    def flush(self) -> None:
        """Give the port what it takes now."""
        try:
            while self.out:
                del self.out[: os.write(self.port, memoryview(self.out)[:PIECE])]
        except BlockingIOError:
            pass
        except OSError as exc:
            raise Broken(str(exc)) from exc

    def _receive(self) -> None:
        before = len(self.coming)
        while len(self.coming) - before < 4 * PIECE:  # a machine's port gives a page at a time
            try:
                data = os.read(self.port, 4 * PIECE)
            except BlockingIOError:
                break
            except OSError as exc:
                raise Broken(str(exc)) from exc
            if not data and len(self.coming) == before:
                raise Broken("the port was closed")
            if not data:
                break
            self.coming += data
        at = 0
        while len(self.coming) - at >= HEAD.size:
            kind, channel, length = HEAD.unpack_from(self.coming, at)
            if len(self.coming) - at < HEAD.size + length:
                break
            at += HEAD.size
            self._got(kind, channel, bytes(self.coming[at : at + length]))
            at += length
        del self.coming[:at]

    def _got(self, kind: int, channel: int, data: bytes) -> None:
        if kind == TOLD:
            self.told(data)
        elif kind == DATA:
            if (sink := self.sinks.get(channel)) is None:
                return  # it went away, and the other end was told
            if not data or sink.size + len(data) > WINDOW or sink.ended:
                raise Broken("more came than was asked for, or nothing")
            sink.waiting.append(data)
            sink.size += len(data)
            self.heard = True
        elif kind == END:
            if sink := self.sinks.get(channel):
                sink.ended = True
                self._write(channel, sink, gone=False)
        elif kind == GONE:
            if channel > OUT_OF and (source := self.sources.pop(channel, None)):
                source.close()
        elif kind == PASSED:
            count = int.from_bytes(data, "big")
            if source := self.sources.get(channel):
                source.credit += count
                if source.credit > WINDOW:
                    raise Broken("more was passed on than was sent")
        elif kind == GIVEN and self.inside:
            self._make(channel, data)
        else:
            raise Broken(f"a message of kind {kind}")

    # ------------------------------------------------------------ this side

    def _read(self, channel: int, source: _Source) -> None:
        fds: list[int] = []
        most = PIECE if source.kind == _PACKETS else min(source.credit, PIECE)
        try:
            if source.kind != _READ and not self.inside:
                data, fds = _hear(source.fd, most)
            else:
                data = os.read(source.fd, most)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if fds:
            data = data[:-1]  # the byte that they came with: the kernel ends a read behind it
        if data:
            source.credit -= len(data)
            if channel == INTO and self.before is not None:
                self.before()
            self.say(DATA, channel, data)
        if fds:
            self._take(channel, fds)
        elif not data:
            self.say(END, channel)
            self.sources.pop(channel).close()

    def _write(self, channel: int, sink: _Sink, *, gone: bool) -> None:
        written = 0
        try:
            while sink.waiting and not gone:
                item = sink.waiting[0]
                if isinstance(item, list):
                    _hand(sink.fd, item)
                elif (count := os.write(sink.fd, item)) < len(item):
                    sink.waiting[0] = item[count:]
                    written += count
                    continue
                else:
                    written += count
                sink.waiting.popleft()
        except BlockingIOError:
            pass
        except OSError:
            gone = True
        sink.size -= written
        if gone:
            self.say(GONE, channel)
        elif written:
            self.say(PASSED, channel, written.to_bytes(4, "big"))
        if gone or (sink.ended and not sink.waiting):
            self.sinks.pop(channel).close()

    def _take(self, channel: int, fds: list[int]) -> None:
        """The host's side: descriptors came, for whoever reads this channel in the machine."""
        rows = b""
        for at, fd in enumerate(fds):
            try:
                kind = _kind(fd)
                if len(self.sources) + len(self.sinks) > _MOST:
                    raise ValueError("too many of them")
            except ValueError as exc:
                for one in fds[at:]:
                    os.close(one)
                raise Broken(f"descriptors that cannot pass: {exc}") from exc
            rows += _ROW.pack(self.next, kind)
            self._open(self.next, INTO, kind, fd)
            self.next += 2
        self.say(GIVEN, channel, rows)

    def _make(self, channel: int, rows: bytes) -> None:
        """The machine's side: make what stands for them, and hand the other ends over."""
        fds: list[int] = []
        for number, kind in _ROW.iter_unpack(rows):
            if kind in (_READ, _WRITE):
                read, write = os.pipe2(os.O_CLOEXEC)
                theirs, ours = (read, write) if kind == _READ else (write, read)
            else:
                form = socket.SOCK_STREAM if kind == _STREAM else socket.SOCK_SEQPACKET
                one, two = socket.socketpair(socket.AF_UNIX, form)
                theirs, ours = one.detach(), two.detach()
            self._open(number, OUT_OF, {_READ: _WRITE, _WRITE: _READ}.get(kind, kind), ours)
            fds.append(theirs)
        sink = self.sinks.get(channel)
        if sink is None:  # nobody is there to take them, which the others see by their ends
            for fd in fds:
                os.close(fd)
            return
        sink.waiting.append(fds)
        self._write(channel, sink, gone=False)

    def _open(self, number: int, source: int, kind: bytes, fd: int) -> None:
        """Join a descriptor to its channels: ``source`` is which of its two numbers is read here."""
        os.set_blocking(fd, False)
        if kind != _WRITE:
            self.sources[number + source] = _Source(fd, kind)
        if kind != _READ:
            self.sinks[number + 1 - source] = _Sink(fd if kind == _WRITE else os.dup(fd), kind)


def _hear(fd: int, most: int) -> tuple[bytes, list[int]]:
    sock = socket.socket(fileno=fd)
    try:
        data, fds, _, _ = socket.recv_fds(sock, most, _MOST_GIVEN, socket.MSG_CMSG_CLOEXEC)
    finally:
        sock.detach()
    return data, list(fds)
