"""Reads a hostile tar archive, one member at a time, from a stream.

The standard library's reader holds extension headers of any size in memory and
guesses where an archive is wrong. This one knows bounds, takes ustar, pax and
GNU long names, keeps names as bytes, and refuses whatever else there is: what
is read here is read in one way or not at all. Nothing is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from proctor.core.errors import InputError

BLOCK = 512
_CHUNK = 1 << 20
_SKIP = 1 << 16  # bytes that are rather read than jumped over
_TYPES = {
    b"\0": "file", b"0": "file", b"7": "file", b"1": "link", b"2": "symlink", b"3": "char", b"4": "block",
    b"5": "directory", b"6": "fifo",
}  # fmt: skip
_EXTENSIONS = {b"x": "pax", b"g": "global", b"L": "name", b"K": "linkname"}
_DIGITS = re.compile(rb"[0-7]*")
_DECIMAL = re.compile(rb"\d{1,19}")
_TIME = re.compile(rb"(-?)(\d{1,19})(?:\.(\d*))?")
_LATEST = 1 << 33  # seconds since the epoch; file systems end about there


class Source(Protocol):
    """What an archive is read from: ``b""`` at its end, never None."""

    def read(self, size: int, /) -> bytes: ...


class Seekable(Source, Protocol):
    """One that can jump over what is not wanted."""

    def seek(self, offset: int, whence: int = 0, /) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of an archive is taken before it is refused.

    Attributes:
        members: headers of all kinds, extension headers among them.
        stream_bytes: of the archive, uncompressed.
        file_bytes: of one file.
        header_bytes: of one extension header.
        path_bytes: of one path or link target.
        depth: components of one path.
        name_bytes: of all paths and link targets together, which are in memory until the archive is stored.
        lookups: directories of the layers below that may be looked into; one takes 5 us.
    """

    members: int = 1_000_000
    stream_bytes: int = 32 << 30
    file_bytes: int = 16 << 30
    header_bytes: int = 1 << 20
    path_bytes: int = 4095
    depth: int = 128
    name_bytes: int = 128 << 20
    lookups: int = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member.

    Attributes:
        path: components of its name, without empty ones and ``.``; () is the top. Never holds ``..``.
        kind: file, directory, symlink, link (a further name of a file), char, block or fifo.
        absolute: its name began with ``/``.
        mode: permission bits, 12 of them.
        size: bytes that follow; 0 unless a file.
        mtime_ns: nanoseconds since the epoch.
        target: of a symlink or link, as it was written.
        device: major and minor number.
        pax: its extended header and the archive's global one together.
        offset: where its bytes begin in the stream.
    """

    path: tuple[bytes, ...]
    kind: str
    absolute: bool = False
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    size: int = 0
    mtime_ns: int = 0
    target: bytes = b""
    device: tuple[int, int] = (0, 0)
    pax: Mapping[bytes, bytes] = field(default_factory=dict)
    offset: int = 0


def components(name: bytes, bounds: Bounds, what: str = "a name") -> tuple[bytes, ...]:
    """A name as components.

    Raises:
        InputError: it leads upwards, is too long or too deep, or no file can have it.
    """
    parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise refuse(f"{what} leads out of the archive by '..': {show(name)}")
    if b"\0" in name:
        raise refuse(f"{what} holds a zero byte: {show(name)}")
    if len(name) > bounds.path_bytes or any(len(part) > 255 for part in parts):
        raise refuse(f"{what} is longer than a path can be: {show(name)}")
    if len(parts) > bounds.depth:
        raise refuse(f"{what} is nested deeper than {bounds.depth} directories: {show(name)}")
    return parts


def refuse(why: str) -> InputError:
    """The error of an archive that is not taken."""
    return InputError(f"{why}; it is broken or hostile, make the archive anew")


def show(name: bytes) -> str:
    """A hostile name for a message: ASCII, short, on one line."""
    text = ascii(name[:80].decode("utf-8", "surrogateescape"))
    return text + ("…" if len(name) > 80 else "")


class TarReader:
    """Members of a stream in order; ``read`` gives the bytes of the one that came last.

    Args:
        source: the uncompressed archive. With ``jump`` it can seek, and what is not read is jumped over.
        whole: its end must be marked, so that a stream that was cut off is refused.
    """

    def __init__(self, source: Source, bounds: Bounds, *, whole: bool = True, jump: Seekable | None = None) -> None:
        self._source, self._bounds, self._whole, self._jump = source, bounds, whole, jump
        self._at = 0
        self._left = 0  # bytes of the current member that were not read
        self._padding = 0
        self._headers = 0
        self._global: dict[bytes, bytes] = {}

    def __iter__(self) -> Iterator[Member]:
        while (member := self._next()) is not None:
            yield member

    def read(self, size: int = _CHUNK) -> bytes:
        """At most ``size`` of the member's bytes; ``b""`` when there are no more."""
        data = self._exactly(min(size, self._left, _CHUNK))
        self._left -= len(data)
        return data

    def drain(self) -> None:
        """Read what follows the last member, for the sake of a checksum."""
        while data := self._source.read(_CHUNK):
            self._count(len(data))

    # ------------------------------------------------------------ bytes

    def _count(self, size: int) -> None:
        self._at += size
        if self._at > self._bounds.stream_bytes:
            raise refuse(f"the archive is larger than {self._bounds.stream_bytes} bytes when unpacked")

    def _upto(self, size: int) -> bytes:
        data = self._source.read(size) if size else b""
        if 0 < len(data) < size:
            parts = bytearray(data)
            while len(parts) < size and (more := self._source.read(size - len(parts))):
                parts += more
            data = bytes(parts)
        self._count(len(data))
        return data

    def _exactly(self, size: int) -> bytes:
        data = self._upto(size)
        if len(data) != size:
            raise refuse("the archive ends in the middle of a member")
        return data

    def _skip(self) -> None:
        size, self._left, self._padding = self._left + self._padding, 0, 0
        if self._jump is not None and size > _SKIP:
            self._count(size)
            self._jump.seek(size - 1, 1)
            if not self._source.read(1):
                raise refuse("the archive ends in the middle of a member")
            return
        while size:
            size -= len(self._exactly(min(size, _CHUNK)))

    # ------------------------------------------------------------ headers

    def _next(self) -> Member | None:
        long: dict[str, bytes] = {}
        pax: dict[bytes, bytes] | None = None
        while True:
            self._skip()
            block = self._upto(BLOCK)
            if not block and not self._whole and not long and pax is None:
                return None
            if len(block) != BLOCK:
                raise refuse("the archive was cut off")
            if block == bytes(BLOCK):
                if long or pax is not None:
                    raise refuse("an extension header has no member")
                return None
            self._headers += 1
            if self._headers > self._bounds.members:
                raise refuse(f"the archive has more than {self._bounds.members} members")
            _check_sum(block)
            kind = _EXTENSIONS.get(block[156:157])
            if kind is None:
                return self._member(block, long, self._global | (pax or {}))
            body = self._extension(block)
            if kind == "pax":
                if pax is not None:
                    raise refuse("a member has two pax headers")
                pax = _records(body)
            elif kind == "global":
                found = _records(body)
                if found.keys() & {b"path", b"linkpath", b"size"} or any(key.startswith(b"GNU.") for key in found):
                    raise refuse("a global pax header names a path or size for all members")
                self._global |= {key: found[key] for key in (b"mtime", b"uid", b"gid") if key in found}
            else:
                if kind in long:
                    raise refuse(f"a member has two long {kind}s")
                long[kind] = body.split(b"\0", 1)[0]

    def _extension(self, block: bytes) -> bytes:
        size = _number(block[124:136], "size")
        if size > self._bounds.header_bytes:
            raise refuse(f"an extension header of {size} bytes; {self._bounds.header_bytes} are the most")
        self._left, self._padding = size, -size % BLOCK
        body = self._exactly(size)
        self._left = 0
        return body

    def _member(self, block: bytes, long: Mapping[str, bytes], pax: Mapping[bytes, bytes]) -> Member:
        name, target = _text(block[0:100]), _text(block[157:257])
        if block[257:263] == b"ustar\0" and block[345]:
            name = _text(block[345:500]) + b"/" + name
        name = pax.get(b"path", long.get("name", name))
        target = pax.get(b"linkpath", long.get("linkname", target))
        flag = block[156:157]
        kind = _TYPES.get(flag)
        if flag == b"S" or any(key.startswith(b"GNU.sparse.") for key in pax):
            raise refuse(f"{show(name)} is a sparse member, which is not taken")
        if kind is None:
            raise refuse(f"{show(name)} is of the unknown type {show(flag)}")
        if flag == b"\0" and name.endswith(b"/"):
            kind = "directory"
        size = _decimal(pax[b"size"], "size") if b"size" in pax else _number(block[124:136], "size")
        if kind != "file" and size:
            raise refuse(f"{show(name)} is a {kind} and claims {size} bytes")
        if size > self._bounds.file_bytes:
            raise refuse(f"{show(name)} has {size} bytes; {self._bounds.file_bytes} are the most in one file")
        self._left, self._padding = size, -size % BLOCK
        path = components(name, self._bounds)
        if not path and kind != "directory":
            raise refuse(f"the top of the archive is a {kind}")
        if kind in ("symlink", "link") and (not target or b"\0" in target or len(target) > self._bounds.path_bytes):
            raise refuse(f"the link {show(name)} leads to {show(target)}")
        device = (0, 0)
        if kind in ("char", "block"):
            device = (_number(block[329:337], "devmajor"), _number(block[337:345], "devminor"))
        time = pax.get(b"mtime")
        return Member(
            path=path,
            kind=kind,
            absolute=name.startswith(b"/"),
            mode=_number(block[100:108], "mode") & 0o7777,
            uid=_decimal(pax[b"uid"], "uid") if b"uid" in pax else _number(block[108:116], "uid"),
            gid=_decimal(pax[b"gid"], "gid") if b"gid" in pax else _number(block[116:124], "gid"),
            size=size,
            mtime_ns=_clamp(_number(block[136:148], "mtime", signed=True), 0) if time is None else _nanoseconds(time),
            target=target if kind in ("symlink", "link") else b"",
            device=device,
            pax=pax,
            offset=self._at,
        )


def _check_sum(block: bytes) -> None:
    told = _number(block[148:156], "checksum")
    rest = block[:148] + b" " * 8 + block[156:]
    if told not in (sum(rest), sum(byte - 256 if byte > 127 else byte for byte in rest)):
        raise refuse("a header's checksum is wrong")


def _text(data: bytes) -> bytes:
    return data.split(b"\0", 1)[0]


def _number(data: bytes, what: str, signed: bool = False) -> int:
    """An octal number, or GNU's binary form."""
    if data[0] & 0x80:
        if data[0] == 0x80:
            value = int.from_bytes(data[1:], "big")
        elif data[0] == 0xFF and signed:
            value = int.from_bytes(data, "big", signed=True)
        else:
            raise refuse(f"a header's {what} is negative")
        if abs(value) >= 1 << 63:
            raise refuse(f"a header's {what} is too large")
        return value
    digits = data.split(b"\0", 1)[0].strip(b" ")
    if not _DIGITS.fullmatch(digits):
        raise refuse(f"a header's {what} is {show(digits)}, no octal number")
    return int(digits or b"0", 8)


def _decimal(value: bytes, what: str) -> int:
    if not _DECIMAL.fullmatch(value):
        raise refuse(f"a pax header's {what} is {show(value)}, no number")
    return int(value)


def _nanoseconds(value: bytes) -> int:
    found = _TIME.fullmatch(value)
    if found is None:
        raise refuse(f"a pax header's mtime is {show(value)}, no number")
    return 0 if found[1] else _clamp(int(found[2]), int((found[3] or b"")[:9].ljust(9, b"0")))


def _clamp(seconds: int, nanoseconds: int) -> int:
    return min(max(seconds, 0), _LATEST) * 10**9 + nanoseconds


def _records(body: bytes) -> dict[bytes, bytes]:
    """``LENGTH KEY=VALUE\\n`` again and again."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(body):
        space = body.find(b" ", at, at + 20)
        digits = body[at:space] if space > 0 else b""
        if not _DECIMAL.fullmatch(digits):
            raise refuse("a pax header's record has no length")
        end = at + int(digits)
        key, equals, value = body[space + 1 : end - 1].partition(b"=")
        if end > len(body) or end <= space + 1 or body[end - 1 : end] != b"\n" or not equals or not key:
            raise refuse("a pax header's record is not of its length")
        found[key] = value
        at = end
    if len(found) > 1000:
        raise refuse("a pax header has more than 1000 records")
    return found
