"""Descriptors: whole reads and writes on the control stream, and numbers out of a program's way."""

from __future__ import annotations

import _socket  # the C part alone: the full module costs every fork
import array
import fcntl
import os

_HIGH = 16  # above the streams of a program, below any limit on open files that a trainer could work under
FAILED = 70  # status of a jail that cannot go on; any status but 0 has the agent replaced


def high(fd: int) -> int:
    """The same file on a descriptor that no program's stream will take."""
    moved: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(fd)
    return moved


def peek(fd: int) -> bytes:
    """First byte of what waits on the control socket, b"" at its end."""
    sock = _socket.socket(fileno=os.dup(fd))
    try:
        return sock.recv(1, _socket.MSG_PEEK)
    finally:
        sock.close()


def take_pipes(fd: int) -> tuple[int, int]:
    """Two descriptors that the host sent with one byte: to read from, and to write to."""
    source, sink = take_fds(fd, 2)
    return source, sink


def take_fds(fd: int, count: int) -> list[int]:
    """Descriptors that the host sent with one byte."""
    sock = _socket.socket(fileno=os.dup(fd))
    try:
        byte, extra, _, _ = sock.recvmsg(1, _socket.CMSG_LEN(4 * count))
    finally:
        sock.close()
    if not byte:
        raise EOFError
    fds = array.array("i")
    for level, kind, data in extra:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds.frombytes(data[: 4 * count])
    if len(fds) != count:
        raise ValueError(f"{len(fds)} descriptors came, not {count}")
    return [high(number) for number in fds]


def read_exact(fd: int, count: int) -> bytes:
    """``count`` bytes, or EOFError."""
    if count == 0:
        return b""
    parts, left = [], count
    while left:
        part = os.read(fd, min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """All of ``data``; ends this process when the host no longer reads."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BrokenPipeError:
            os._exit(FAILED)
