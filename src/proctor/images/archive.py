"""An image archive as a file: what is in it, and its blobs as checked, unpacked streams. All of it is hostile."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from proctor.core.errors import InputError
from proctor.images.tarstream import Bounds, Source, TarReader, components, refuse, show

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_OUTER = Bounds(members=20_000, stream_bytes=64 << 30, file_bytes=32 << 30, depth=16)
_JSON_BYTES = 4 << 20
_RATIO, _FREE_BYTES = 250, 256 << 20  # how much larger than packed, beyond that many bytes
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the file a member's bytes are."""

    offset: int
    size: int


class Archive:
    """The members of an archive, by name. Their bytes are read when they are wanted.

    Args:
        file: seekable; ``open_archive`` makes one of whatever there is.
        told: called with the number of bytes that were read since the last call.

    Raises:
        InputError: it is no tar archive, broken or hostile.
    """

    def __init__(self, file: BinaryIO, told: Callable[[int], None] | None = None) -> None:
        self._file, self._told = file, told
        self._places: dict[str, Place] = {}
        links: dict[str, tuple[bytes, ...]] = {}
        file.seek(0)
        for member in TarReader(file, _OUTER, jump=file):
            name = _name(member.path)
            if member.kind == "file":
                if name in self._places:
                    raise refuse(f"{show(name.encode())} is twice in the archive")
                self._places[name] = Place(member.offset, member.size)
            elif member.kind in ("symlink", "link"):  # docker save links layers that are the same
                links[name] = _target(member.path, member.target, member.kind == "symlink")
        for name, target in links.items():
            if (place := self._places.get(_name(target))) is not None:
                self._places.setdefault(name, place)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def size(self, name: str) -> int:
        """Bytes of a member.

        Raises:
            InputError: it is not there.
        """
        place = self._places.get(name)
        if place is None:
            raise InputError(f"the archive has no {name[:200]!r}, which it needs; make it anew")
        return place.size

    def blob(self, digest: str, size: int | None = None) -> str:
        """Name of the member that a descriptor of an OCI layout means."""
        kind, _, text = digest.partition(":")
        if kind != "sha256" or not is_hex(text):
            raise refuse(f"{digest[:100]!r} is not a sha256 digest")
        name = f"blobs/sha256/{text}"
        if size is not None and self.size(name) != size:
            raise refuse(f"{name} has {self.size(name)} bytes, and its descriptor says {size}")
        return name

    def json(self, name: str, digest: str | None = None) -> Any:
        """A member as JSON, after its sha256 was checked."""
        if self.size(name) > _JSON_BYTES:
            raise refuse(f"{name[:100]!r} has {self.size(name)} bytes, more than any description of an image")
        raw = self.raw(name, digest)
        data = b"".join(iter(lambda: raw.read(_CHUNK), b""))
        raw.check()
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise refuse(f"{name[:100]!r} is not JSON ({type(error).__name__})") from error

    def raw(self, name: str, digest: str | None = None) -> Checked:
        """A member's bytes; ``digest`` is what they must have."""
        size = self.size(name)
        return Checked(_Region(self._file, self._places[name].offset, size, self._told), digest, name)


class Checked:
    """A stream that knows at its end whether it was the right one."""

    def __init__(self, source: Source, digest: str | None, name: str) -> None:
        self._source, self._wanted, self._name = source, digest, name
        self._digest = hashlib.sha256()

    def read(self, size: int = _CHUNK, /) -> bytes:
        """Some bytes, ``b""`` at the end."""
        data = self._source.read(min(size, _CHUNK) if size >= 0 else _CHUNK)
        self._digest.update(data)
        return data

    def check(self) -> None:
        """Read what is left.

        Raises:
            InputError: the bytes are not those that the digest is of.
        """
        while self.read():
            pass
        if self._wanted is not None and f"sha256:{self._digest.hexdigest()}" != self._wanted:
            raise refuse(f"{self._name[:100]!r} does not have the sha256 that the archive says ({self._wanted[:71]})")


class _Region:
    """Part of a file."""

    def __init__(self, file: BinaryIO, offset: int, size: int, told: Callable[[int], None] | None) -> None:
        self._file, self._at, self._end, self._told = file, offset, offset + size, told

    def read(self, size: int, /) -> bytes:
        self._file.seek(self._at)
        data = self._file.read(min(size, self._end - self._at))
        if not data and self._at < self._end:
            raise refuse("the archive was cut off")
        self._at += len(data)
        if self._told is not None:
            self._told(len(data))
        return data


class _Unpacked:
    """An uncompressed stream whose every failure is the archive's."""

    def __init__(self, inner: Source, packed: int) -> None:
        self._inner, self._most, self._count = inner, max(_FREE_BYTES, packed * _RATIO), 0

    def read(self, size: int, /) -> bytes:
        try:
            data = self._inner.read(min(size, _CHUNK))
        except (EOFError, OSError, ValueError, zlib.error) as error:
            if isinstance(error, InputError):
                raise
            raise refuse(f"a layer cannot be unpacked: {error}") from error
        except Exception as error:  # the zstd library's own kind
            if type(error).__name__ != "ZstdError":
                raise
            raise refuse(f"a layer cannot be unpacked: {error}") from error
        self._count += len(data)
        if self._count > self._most:
            raise refuse(f"a layer is more than {_RATIO} times as large as it is packed")
        return data


def unpacked(source: Source, size: int) -> Source:
    """A stream without its compression, which its first bytes tell: gzip, zstd or none.

    Args:
        size: bytes of the stream as it is.

    Raises (while reading, too):
        InputError: another compression, zstd where no library for it is installed, or broken.
    """
    head = source.read(6)
    while 0 < len(head) < 6 and (more := source.read(6 - len(head))):
        head += more
    whole = _Rejoined(head, source)
    for magic, name in _OTHERS.items():
        if head.startswith(magic):
            raise InputError(f"the archive is packed with {name}; only gzip and zstd are taken, so unpack it first")
    if head.startswith(_GZIP):
        return _Unpacked(cast(Source, gzip.GzipFile(fileobj=cast(BinaryIO, whole), mode="rb")), size)
    if head.startswith(_ZSTD):
        return _Unpacked(_zstd(whole), size)
    return whole


def _zstd(source: Source) -> Source:
    for module, make in (("compression.zstd", "ZstdFile"), ("zstandard", "ZstdDecompressor")):
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        if make == "ZstdFile":
            return cast(Source, found.ZstdFile(source))
        return cast(Source, found.ZstdDecompressor().stream_reader(source, read_across_frames=True))
    raise InputError(
        "the archive is packed with zstd; pip install zstandard (the extra `images`), or save it with gzip"
    )


class _Rejoined:
    """A stream whose beginning was looked at."""

    def __init__(self, head: bytes, rest: Source) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = _CHUNK, /) -> bytes:
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._rest.read(size)


@contextlib.contextmanager
def open_archive(source: Path | BinaryIO, box: Path, told: Callable[[int], None] | None = None) -> Iterator[Archive]:
    """An archive from a file or a stream, packed or not.

    Args:
        box: an empty directory for what must be written down first: streams, and archives that are packed as a whole.

    Raises:
        InputError: it is no archive. OSError: it cannot be read.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(source, "rb")) if isinstance(source, Path) else source
        packed = True
        if isinstance(source, Path):
            head = file.read(6)
            file.seek(0)
            packed = head.startswith((_GZIP, _ZSTD, *_OTHERS))
        if packed:
            size = source.stat().st_size if isinstance(source, Path) else 1 << 40
            file = _written_down(unpacked(file, size), stack.enter_context(open(box / "archive", "w+b")))
        yield Archive(file, told)


def _written_down(source: Source, file: BinaryIO) -> BinaryIO:
    size = 0
    while data := source.read(_CHUNK):
        size += len(data)
        if size > _OUTER.stream_bytes:
            raise refuse(f"the archive is larger than {_OUTER.stream_bytes} bytes when unpacked")
        if shutil.disk_usage(file.fileno()).free < _FREE_BYTES:
            raise InputError("the disk is nearly full; the archive does not fit on it")
        file.write(data)
    file.flush()
    return file


def is_hex(text: str) -> bool:
    """64 hexadecimal digits, as sha256 has them."""
    return len(text) == 64 and all(char in "0123456789abcdef" for char in text)


def _name(path: tuple[bytes, ...]) -> str:
    return b"/".join(path).decode("utf-8", "surrogateescape")


def _target(path: tuple[bytes, ...], target: bytes, relative: bool) -> tuple[bytes, ...]:
    """Where a link within the archive leads; it is only ever looked up in the archive."""
    parts = list(path[:-1]) if relative and not target.startswith(b"/") else []
    for part in target.split(b"/"):
        if part == b".." and parts:
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return components(b"/".join(parts), _OUTER, "a link's target")
