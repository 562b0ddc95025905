"""A read-only disk whose content is files of this host: what the machine's kernel reads its root from.

QEMU asks for pieces over a socket, in the network block device protocol, and
may only read. The beginning of the disk is a file, ``index``; behind it a table
says which file lies where. A file that is not the one that was there when the
table was made is not read: the machine gets an error, and its slot a fault.
"""

from __future__ import annotations

import bisect
import mmap
import os
import socket
import struct
from collections.abc import Iterator

BLOCK = 4096
EXTENT = struct.Struct("<QQQQQQ")  # first block, size, mtime in ns, inode, and where its path begins, and its length
_HEADER = struct.Struct("<QQ")  # extents, bytes of the index

_MAGIC, _OPTION, _REPLY = 0x4E42444D41474943, 0x49484156454F5054, 0x0003E889045565A9
_REQUEST, _SIMPLE = 0x25609513, 0x67446698
_FIXED, _NO_ZEROES = 1, 2
_EXPORT_NAME, _ABORT, _INFO, _GO = 1, 2, 6, 7
_ACK, _TOLD, _UNSUPPORTED = 1, 3, 0x80000001
_FLAGS = 0b11  # has flags, read only
_READ, _DISCONNECT = 0, 2
_EIO, _EINVAL, _EPERM = 5, 22, 1
_LARGEST = 32 << 20
_OPEN = 64  # files that are kept open


class Disk:
    """The content, from the two files that ``isolation/erofs.py`` writes.

    Args:
        index, table: their paths.
        size: bytes in all; what is behind the content is zeros.
    """

    def __init__(self, index: str, table: str, size: int) -> None:
        self.size = size
        self.index = os.open(index, os.O_RDONLY | os.O_CLOEXEC)
        with open(table, "rb") as file:
            self.table = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.count, self.own = _HEADER.unpack_from(self.table)
        self.paths = _HEADER.size + self.count * EXTENT.size
        self.files: dict[int, int] = {}

    @classmethod
    def within(cls, folder: str, size: int) -> Disk:
        """Of a directory that has both."""
        return cls(f"{folder}/index", f"{folder}/table", size)

    def close(self) -> None:
        """Let go of its files."""
        for fd in (self.index, *self.files.values()):
            os.close(fd)
        self.files.clear()
        self.table.close()

    def read(self, at: int, count: int) -> bytes:
        """``count`` bytes from ``at``; OSError where a file is not the one that was there."""
        return b"".join(self._pieces(at, count))

    def _pieces(self, at: int, count: int) -> Iterator[bytes]:
        end = at + count
        while at < min(end, self.own):
            piece = os.pread(self.index, min(end, self.own) - at, at)
            yield piece or bytes(min(end, self.own) - at)
            at += len(piece) or min(end, self.own) - at
        while at < end:
            number = bisect.bisect_right(range(self.count), at // BLOCK, key=lambda i: self._extent(i)[0]) - 1
            start, size = (0, 0) if number < 0 else self._extent(number)[:2]
            inside = at - start * BLOCK
            if inside < size:
                piece = os.pread(self._file(number), min(end - at, size - inside), inside)
                if not piece:
                    raise OSError(_EIO, "a file of the image became shorter")
                yield piece
                at += len(piece)
            else:  # behind a file's end, up to the next one
                following = self._extent(number + 1)[0] * BLOCK if number + 1 < self.count else end
                yield bytes(min(end, following) - at)
                at = min(end, following)

    def _extent(self, number: int) -> tuple[int, ...]:
        return EXTENT.unpack_from(self.table, _HEADER.size + number * EXTENT.size)

    def _file(self, number: int) -> int:
        if number in self.files:
            return self.files[number]
        _, size, mtime, inode, offset, length = self._extent(number)
        path = self.table[self.paths + offset : self.paths + offset + length]
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        info = os.fstat(fd)
        if (info.st_size, info.st_mtime_ns, info.st_ino) != (size, mtime, inode):
            os.close(fd)
            raise OSError(_EIO, f"{os.fsdecode(path)} has changed since the machine's image was made")
        if len(self.files) >= _OPEN:
            os.close(self.files.pop(next(iter(self.files))))
        self.files[number] = fd
        return fd


class Server:
    """Serves a disk on one socket; ``step`` when there is something to read. QEMU is not believed either."""

    def __init__(self, disk: Disk, sock: socket.socket) -> None:
        self.disk, self.sock = disk, sock
        self.fault = ""  # why a read failed
        self.greeted = self.agreed = False
        sock.sendall(struct.pack(">QQH", _MAGIC, _OPTION, _FIXED | _NO_ZEROES))

    def step(self) -> bool:
        """Answer one message; False at the end."""
        try:
            if not self.greeted:
                self._exact(4)
                self.greeted = True
            elif not self.agreed:
                return self._negotiate()
            else:
                return self._request()
        except (EOFError, OSError):
            return False
        return True

    def _exact(self, count: int) -> bytes:
        data = self.sock.recv(count, socket.MSG_WAITALL)
        if len(data) != count:
            raise EOFError
        return data

    def _negotiate(self) -> bool:
        magic, option, length = struct.unpack(">QII", self._exact(16))
        if magic != _OPTION or length > 4096:
            return False
        self._exact(length)
        if option == _EXPORT_NAME:
            self.sock.sendall(struct.pack(">QH", self.disk.size, _FLAGS))
            self.agreed = True
        elif option in (_INFO, _GO):
            self._reply(option, _TOLD, struct.pack(">HQH", 0, self.disk.size, _FLAGS))
            self._reply(option, _ACK, b"")
            self.agreed = option == _GO
        elif option == _ABORT:
            return False
        else:
            self._reply(option, _UNSUPPORTED, b"")
        return True

    def _reply(self, option: int, kind: int, data: bytes) -> None:
        self.sock.sendall(struct.pack(">QIII", _REPLY, option, kind, len(data)) + data)

    def _request(self) -> bool:
        magic, _, kind, cookie, at, count = struct.unpack(">IHHQQI", self._exact(28))
        if magic != _REQUEST or kind == _DISCONNECT:
            return False
        if kind != _READ:
            return False  # the disk was said to be read only
        error, data = 0, b""
        if count > _LARGEST or at + count > self.disk.size:
            error = _EINVAL
        else:
            try:
                data = self.disk.read(at, count)
            except OSError as exc:
                error, self.fault = _EIO, str(exc)
        self.sock.sendall(struct.pack(">IIQ", _SIMPLE, error, cookie) + data)
        return True
