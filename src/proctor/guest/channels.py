"""Streams and pipes over one serial port: what an agent in a machine and its host say to each other.

Theory of operation. Descriptors do not pass into a machine. So both ends of the
port have a relay, with the same code: it reads what is written to the agent's
control socket, or into a pipe, on its side, and writes it there on the other. The
agent and the engine speak as if one socket joined them, descriptors included.

A channel goes one way. 0 is the control stream into the machine, 1 the one out
of it; others come in twos when the host sends two descriptors over the control
stream: one to read from (a channel into the machine), one to write to (a channel
out). Each end may have ``WINDOW`` bytes under way that the other has not yet
passed on; so nothing grows, and a reader that is slow holds up its own writer
and nobody else. The end of a file and a reader's going away are passed on too.

A message is ``kind, channel, length``, then bytes. What comes from a machine is
hostile: what does not follow these rules ends it.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

HEAD = struct.Struct(">BIH")
DATA, END, GONE, PASSED, PIPES, TOLD = 1, 2, 3, 4, 5, 6
WINDOW, PIECE = 1 << 18, 1 << 15
INTO, OUT_OF = 0, 1
_QUEUED = 1 << 20  # bytes for the port beyond which nothing more is read for it
_TOO_MUCH = 4 << 20  # waits for the port only where the other end sends and does not read
_MOST = 64  # channels at once: a pair has two


class Broken(Exception):
    """The other end of the port does not follow the rules, or is gone."""


@dataclass(slots=True)
class _Source:
    """Reads here what is written there."""

    fd: int
    credit: int = WINDOW


@dataclass(slots=True)
class _Sink:
    """Writes here what was read there."""

    fd: int
    waiting: bytearray = field(default_factory=bytearray)
    ended: bool = False


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
        self.sources[source] = _Source(control.fileno())
        self.sinks[sink] = _Sink(control.fileno())

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
        full = len(self.out) > _QUEUED
        for source in self.sources.values():
            if source.credit > 0 and not full:
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
                and source.credit > 0
                and not full
            ):
                self._read(channel, source)
        for channel, sink in list(self.sinks.items()):
            if ready.get(sink.fd, 0) & (select.POLLOUT | select.POLLERR | select.POLLHUP):
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
        try:
            data = os.read(self.port, 4 * PIECE)
        except BlockingIOError:
            return
        except OSError as exc:
            raise Broken(str(exc)) from exc
        if not data:
            raise Broken("the port was closed")
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
            if len(sink.waiting) + len(data) > WINDOW or sink.ended:
                raise Broken("more came than was asked for")
            sink.waiting += data
            self.heard = True
        elif kind == END:
            if sink := self.sinks.get(channel):
                sink.ended = True
                self._write(channel, sink, gone=False)
        elif kind == GONE:
            if channel > OUT_OF and (source := self.sources.pop(channel, None)):
                os.close(source.fd)
        elif kind == PASSED:
            count = int.from_bytes(data, "big")
            if source := self.sources.get(channel):
                source.credit += count
                if source.credit > WINDOW:
                    raise Broken("more was passed on than was sent")
        elif kind == PIPES and self.inside:
            self._make_pipes(channel)
        else:
            raise Broken(f"a message of kind {kind}")

    # ------------------------------------------------------------ this side

    def _read(self, channel: int, source: _Source) -> None:
        fds: list[int] = []
        try:
            if channel == INTO and self.control is not None:
                data, fds, _, _ = socket.recv_fds(self.control, min(source.credit, PIECE), 2)
            else:
                data = os.read(source.fd, min(source.credit, PIECE))
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
            self._take_pipes(fds)
        elif not data:
            self.say(END, channel)
            self._close(self.sources.pop(channel).fd)

    def _write(self, channel: int, sink: _Sink, *, gone: bool) -> None:
        written = 0
        try:
            while sink.waiting:
                count = os.write(sink.fd, memoryview(sink.waiting)[:PIECE])
                del sink.waiting[:count]
                written += count
        except BlockingIOError:
            pass
        except OSError:
            gone = True
        if gone:
            self.say(GONE, channel)
        elif written:
            self.say(PASSED, channel, written.to_bytes(4, "big"))
        if gone or (sink.ended and not sink.waiting):
            self._close(self.sinks.pop(channel).fd, half=True)

    def _close(self, fd: int, *, half: bool = False) -> None:
        if self.control is None or fd != self.control.fileno():
            os.close(fd)
        elif half:
            try:
                self.control.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # its other end is gone already

    def _take_pipes(self, fds: list[int]) -> None:
        """The host's side: two descriptors came, to read from and to write to."""
        if len(fds) != 2 or len(self.sources) + len(self.sinks) > _MOST:
            raise Broken("descriptors that are no pair")
        for fd in fds:
            os.set_blocking(fd, False)
        self.sources[self.next] = _Source(fds[0])
        self.sinks[self.next + 1] = _Sink(fds[1])
        self.say(PIPES, self.next)
        self.next += 2

    def _make_pipes(self, channel: int) -> None:
        """The machine's side: make two pipes, and hand their other ends to the agent."""
        assert self.control is not None
        read, write = os.pipe2(os.O_CLOEXEC)
        back, forth = os.pipe2(os.O_CLOEXEC)
        for fd in (write, back):
            os.set_blocking(fd, False)
        self.sinks[channel] = _Sink(write)
        self.sources[channel + 1] = _Source(back)
        sink = self.sinks[INTO]
        self.control.setblocking(True)  # the agent reads all that comes before them
        try:
            self.control.sendall(bytes(sink.waiting))
            socket.send_fds(self.control, [b"p"], [read, forth])
        except OSError:
            pass  # the agent is gone, which is seen elsewhere
        finally:
            self.control.setblocking(False)
        self.say(PASSED, INTO, len(sink.waiting).to_bytes(4, "big")) if sink.waiting else None
        sink.waiting.clear()
        os.close(read)
        os.close(forth)
