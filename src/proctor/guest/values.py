"""Plain data as bytes, and back, between processes that do not trust each other.

Nothing is pickled or evaluated. The reader is bounded in size, depth and count
and fails with ``ValueError`` on anything else.
"""

from __future__ import annotations

import collections
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

MAX_BODY = 160 << 20  # 64 MiB of files or stdin, or two streams at their widest
MAX_DEPTH = 200  # nested containers; deeper than any test data seen, shallower than the C stack
MAX_NODES = 2_000_000  # some 2 s of decoding here, in all that one process sends; real results have thousands


@dataclass(frozen=True, slots=True)
class Opaque:
    """What stands for a value that is not plain data: its class's name, and ``bool(value)``, None where that raised."""

    type_name: str
    truthy: bool | None = None


class _Table:
    __slots__ = ()
    items: list[Any]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


@dataclass(frozen=True, slots=True, repr=False)
class Members(_Table):
    """What stands for a set that came out of a guest: its members, as they came, and perhaps one twice."""

    kind: Literal["set", "frozenset"]
    items: list[Any]

    def __repr__(self) -> str:
        inside = f"{{{', '.join(map(repr, self.items))}}}" if self.items else ""
        return inside if self.kind == "set" and inside else f"{self.kind}({inside})"


@dataclass(frozen=True, slots=True, repr=False)
class Pairs(_Table):
    """What stands for a dict that came out of a guest: its keys and values, as they came, and perhaps a key twice."""

    items: list[tuple[Any, Any]]

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key!r}: {value!r}' for key, value in self.items)}}}"


class Encoder:
    """Walks a value without calling any method that a program could have written.

    An object of a class that is made from a kind of data (a namedtuple, an
    IntEnum) is the data in it, as it is for Python's own ``==``. ``exact``: for a
    value that is compared: a deque and a range are no lists.
    """

    def __init__(self, limit: int, *, exact: bool = False) -> None:
        self.out = bytearray()
        self.limit = limit
        self.exact = exact

    def put(self, value: Any, depth: int = 0) -> None:
        kind = type(value)
        if depth > MAX_DEPTH:
            raise ValueError("value is nested too deeply")
        if len(self.out) > self.limit:
            raise ValueError("value is too large")
        if value is None:
            self.out += b"N"
        elif kind is bool:
            self.out += b"T" if value else b"F"
        elif kind is int:
            if -(1 << 63) <= value < 1 << 63:
                self.out += b"q" + value.to_bytes(8, "big", signed=True)
            else:
                self.blob(b"i", b"%x" % value)
        elif kind is float:
            self.out += b"f" + struct.pack(">d", value)
        elif kind is complex:
            self.out += b"c" + struct.pack(">dd", value.real, value.imag)
        elif kind is str:
            self.blob(b"s", value.encode("utf-8", "surrogatepass"))
        elif kind is bytes or kind is bytearray:
            self.blob(b"b", bytes(value))
        elif kind in _SEQUENCES:
            self.many(_SEQUENCES[kind], list(value), depth)
        elif kind is range and not self.exact:
            self.many(b"l", list(value), depth)
        elif issubclass(kind, dict):
            self.many(b"d", [x for pair in dict.items(value) for x in pair], depth)
        elif isinstance(value, Opaque):
            self.opaque(value.type_name, value.truthy)
        else:
            self.other(value, kind, depth)

    def other(self, value: Any, kind: type, depth: int) -> None:
        module = kind.__module__ if type(kind.__module__) is str else ""
        for base, tag in _SEQUENCES.items():
            if issubclass(kind, base):
                self.many(tag, list(base.__iter__(value)), depth)
                return
        for base, plain in _SCALARS:
            if issubclass(kind, base):
                self.put(plain(value), depth)
                return
        if kind is collections.deque and not self.exact:
            self.many(b"l", list(value), depth)
            return
        iterates = hasattr(kind, "__next__") or (module == "builtins" and kind.__name__ in _VIEWS)
        if iterates:  # a generator: its own code runs, inside the program's process
            items = []
            for item in value:
                items.append(item)
                if len(items) > MAX_NODES:
                    raise ValueError("iterator gives too many items")
            self.many(b"l", items, depth)
            return
        try:
            truthy = bool(value)
        except BaseException:
            truthy = None
        self.opaque(str(kind.__name__), truthy)

    def blob(self, tag: bytes, data: bytes) -> None:
        if len(self.out) + len(data) > self.limit:
            raise ValueError("value is too large")
        self.out += tag + struct.pack(">I", len(data)) + data

    def many(self, tag: bytes, items: list[Any], depth: int) -> None:
        self.out += tag + struct.pack(">I", len(items))
        for item in items:
            self.put(item, depth + 1)

    def opaque(self, name: str, truthy: bool | None) -> None:
        self.blob(b"o", name[:100].encode("utf-8", "surrogatepass"))
        self.out += {True: b"T", False: b"F", None: b"N"}[truthy]


_SEQUENCES: dict[Any, bytes] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z"}
# The data in an object of a class that is made from it.
_SCALARS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (bytes, lambda value: bytes(memoryview(value))),
)
_VIEWS = ("dict_keys", "dict_values", "dict_items")


def encode_value(value: Any, limit: int = MAX_BODY, *, exact: bool = False) -> bytes:
    """Plain data as bytes; ValueError when it is deeper or larger than the bounds. ``exact``: see ``Encoder``."""
    encoder = Encoder(limit, exact=exact)
    encoder.put(value)
    return bytes(encoder.out)


class TooManyParts(ValueError):
    """A value has more parts than it may have."""


class Decoder:
    """Reads one value; ``hostile``: sets and dicts come as ``Members`` and ``Pairs``, and nothing is hashed."""

    def __init__(self, data: bytes, nodes: int = MAX_NODES, *, hostile: bool = False) -> None:
        self.data, self.at, self.left, self.hostile = data, 0, nodes, hostile

    def special(self, depth: int) -> Any:
        """What a reader of its own makes of more than plain data."""
        raise ValueError("unknown tag")

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise ValueError("value is cut short")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def count(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def get(self, depth: int = 0) -> Any:
        self.left -= 1
        if self.left < 0 or depth > MAX_DEPTH + 1:
            raise (TooManyParts if self.left < 0 else ValueError)("value is nested too deeply or has too many parts")
        tag = self.take(1)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == b"q":
            return int.from_bytes(self.take(8), "big", signed=True)
        if tag == b"f":
            return struct.unpack(">d", self.take(8))[0]
        if tag == b"c":
            return complex(*struct.unpack(">dd", self.take(16)))
        if tag == b"i":
            return int(self.take(self.count()), 16)  # base 16 is linear and has no digit guard
        if tag in (b"s", b"b"):
            data = self.take(self.count())
            return data if tag == b"b" else data.decode("utf-8", "surrogatepass")
        if tag == b"o":
            name = self.take(self.count()).decode("utf-8", "surrogatepass")
            return Opaque(name[:100], _CONSTANTS.get(self.take(1)))
        if tag == b"x":
            return self.special(depth)
        count = self.count()
        if count > len(self.data) - self.at:
            raise ValueError("count is larger than the data")
        items = [self.get(depth + 1) for _ in range(count)]
        if tag in (b"l", b"t"):
            return items if tag == b"l" else tuple(items)
        pairs = tag == b"d"
        if tag not in (b"S", b"Z", b"d") or (pairs and len(items) % 2):
            raise ValueError("unknown tag, or a dict of an odd number of parts")
        if not all(map(is_key, items[::2] if pairs else items)):
            raise ValueError("key is not hashable")
        if pairs:
            return (Pairs if self.hostile else dict)(list(zip(items[::2], items[1::2], strict=True)))
        kind: Literal["set", "frozenset"] = "set" if tag == b"S" else "frozenset"
        return Members(kind, items) if self.hostile else {"set": set, "frozenset": frozenset}[kind](items)


_CONSTANTS: dict[bytes, Any] = {b"N": None, b"T": True, b"F": False}


def is_key(value: Any) -> bool:
    """Of a kind that can be hashed; looked at, not tried. Members of a frozenset were looked at when it was read."""
    kind = type(value)
    if kind is tuple:
        return all(map(is_key, value))
    return not (kind in (list, set, dict, Pairs) or (kind is Members and value.kind == "set"))


def decode_value(data: bytes) -> Any:
    """The value that ``encode_value`` wrote, or ValueError; for the host's own data, as it builds sets and dicts."""
    return whole(Decoder(data))


def whole(decoder: Decoder) -> Any:
    """All that a decoder holds, as one value."""
    value = decoder.get()
    if decoder.at != len(decoder.data):
        raise ValueError("bytes after the value")
    return value
