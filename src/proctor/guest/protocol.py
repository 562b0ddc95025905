"""Frames between host and agent, and values between grader and harness.

The only guest module that the host imports; standard library only, because it
is shipped inside the image as well. Everything that comes out of a guest is
hostile: each reader here is bounded in size, depth and count, and fails with
``ValueError`` on anything else. Nothing is unpickled or evaluated, and no
hostile number or tuple is put into a hash table, which chosen ones make quadratic.

A frame is ``kind (1 byte), header length, body length (4 bytes each, big
endian), header (JSON object), body (bytes)``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

VERSION = 1
HEAD = struct.Struct(">BII")
MAX_HEADER = 1 << 20
MAX_BODY = 160 << 20  # 64 MiB of files or stdin, or two streams at their widest

# host -> guest
JOB, CASE, CANCEL, END = 1, 2, 3, 4
# guest -> host
READY, OUTCOME, BEAT, DONE, FAULT = 65, 66, 67, 68, 69

# Status of an agent's supervisor: 0, or that the kernel has killed for memory in the slot's group. When an agent
# broke under a case that is the likely reason: a program can fill the group with files that outlive it.
STATUS_MEMORY = 71

MAX_RESULT = 16 << 20  # bytes of encoded results that come back from one process
MAX_DEPTH = 200  # nested containers; deeper than any test data seen, shallower than the C stack
MAX_NODES = 2_000_000  # some 2 s of decoding here, in all that one process sends; real results have thousands
MAX_RECORDS = 100_000  # results that one process may give: calls, or named tests


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def pack(kind: int, header: Mapping[str, Any], *blobs: bytes) -> bytes:
    """One frame as bytes; ``blobs`` are joined into its body."""
    head = _ENCODER.encode(header).encode()
    return HEAD.pack(kind, len(head), sum(map(len, blobs))) + head + b"".join(blobs)


def unpack_head(data: bytes) -> tuple[int, int, int]:
    """``(kind, header length, body length)``, checked against the bounds."""
    kind, header, body = HEAD.unpack(data)
    if header > MAX_HEADER or body > MAX_BODY:
        raise ValueError(f"frame of {header} + {body} bytes is over the bound")
    return kind, header, body


def _int(digits: str) -> int:
    if len(digits) > 20:  # 64 bits and a sign; conversion is quadratic where a trainer has lifted Python's own guard
        raise ValueError("number is too long")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_int)


def unpack_header(data: bytes) -> dict[str, Any]:
    """A frame's header: a JSON object, or ValueError (RecursionError included)."""
    try:
        value = _DECODER.decode(str(data, "utf-8"))
    except RecursionError as exc:
        raise ValueError("header is nested too deeply") from exc
    if not isinstance(value, dict):
        raise ValueError("header is not an object")
    return value


# ---------------------------------------------------------------- values


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


class _Encoder:
    """Walks a value without calling any method that a program could have written."""

    def __init__(self, limit: int) -> None:
        self.out = bytearray()
        self.limit = limit

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
        elif issubclass(kind, dict) and kind.__module__ in ("builtins", "collections"):
            self.many(b"d", [x for pair in dict.items(value) for x in pair], depth)
        elif isinstance(value, Opaque):
            self.opaque(value.type_name, value.truthy)
        else:
            self.other(value, kind, depth)

    def other(self, value: Any, kind: type, depth: int) -> None:
        module = kind.__module__ if type(kind.__module__) is str else ""
        if module == "collections" and kind.__name__ == "deque":
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


_SEQUENCES: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z", range: b"l"}
_VIEWS = ("dict_keys", "dict_values", "dict_items")


def encode_value(value: Any, limit: int = MAX_BODY) -> bytes:
    """Plain data as bytes; ValueError when it is deeper or larger than the bounds."""
    encoder = _Encoder(limit)
    encoder.put(value)
    return bytes(encoder.out)


class TooManyParts(ValueError):
    """A value has more parts than it may have."""


class _Decoder:
    """Reads one value; ``hostile``: sets and dicts come as ``Members`` and ``Pairs``, and nothing is hashed."""

    def __init__(self, data: bytes, nodes: int = MAX_NODES, *, hostile: bool = False) -> None:
        self.data, self.at, self.left, self.hostile = data, 0, nodes, hostile

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
        count = self.count()
        if count > len(self.data) - self.at:
            raise ValueError("count is larger than the data")
        items = [self.get(depth + 1) for _ in range(count)]
        if tag in (b"l", b"t"):
            return items if tag == b"l" else tuple(items)
        pairs = tag == b"d"
        if tag not in (b"S", b"Z", b"d") or (pairs and len(items) % 2):
            raise ValueError("unknown tag, or a dict of an odd number of parts")
        if not all(map(_is_key, items[::2] if pairs else items)):
            raise ValueError("key is not hashable")
        if pairs:
            return (Pairs if self.hostile else dict)(list(zip(items[::2], items[1::2], strict=True)))
        kind: Literal["set", "frozenset"] = "set" if tag == b"S" else "frozenset"
        return Members(kind, items) if self.hostile else {"set": set, "frozenset": frozenset}[kind](items)


_CONSTANTS: dict[bytes, Any] = {b"N": None, b"T": True, b"F": False}


def _is_key(value: Any) -> bool:
    """Of a kind that can be hashed; looked at, not tried. Members of a frozenset were looked at when it was read."""
    kind = type(value)
    if kind is tuple:
        return all(map(_is_key, value))
    return not (kind in (list, set, dict, Pairs) or (kind is Members and value.kind == "set"))


def decode_value(data: bytes) -> Any:
    """The value that ``encode_value`` wrote, or ValueError; for the host's own data, as it builds sets and dicts."""
    return _decode(_Decoder(data))


def _decode(decoder: _Decoder) -> Any:
    value = decoder.get()
    if decoder.at != len(decoder.data):
        raise ValueError("bytes after the value")
    return value


# ---------------------------------------------------------------- harness


@dataclass(frozen=True, slots=True)
class Call:
    """One call: ``f``, ``Class.method`` (a fresh instance a call) or ``Class`` itself."""

    target: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call gave: a value (``Members`` and ``Pairs`` in it), or the name and text of what it raised."""

    value: Any = None
    error: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class TestReport:
    """Named tests of one run, in order; True passed. A program's own claim."""

    tests: dict[str, bool]
    messages: dict[str, str]


def call_request(*, source_file: str, module: str, calls: Sequence[Call]) -> bytes:
    """Ask the harness to load a file of the program as ``module`` and make calls in order."""
    packed = [(c.target, tuple(c.args), dict(c.kwargs)) for c in calls]
    return encode_value({"kind": "calls", "file": source_file, "module": module, "calls": packed})


def test_request(*, source_file: str, module: str, tests: str, test_module: str, nonce: str, appended: bool) -> bytes:
    """Ask the harness to run test source against a file of the program.

    ``appended``: in the solution's own namespace, as if at its end; otherwise as a module that imports it.
    """
    return encode_value(
        {"kind": "tests", "file": source_file, "module": module, "tests": tests, "test_module": test_module}
        | {"nonce": nonce, "appended": appended}
    )


test_request.__test__ = False  # type: ignore[attr-defined]  # not a pytest test
TestReport.__test__ = False  # type: ignore[attr-defined]


def record(value: Any) -> bytes:
    """One record of the harness's result stream: 4-byte length, then the value."""
    data = encode_value(value, MAX_RESULT)
    return struct.pack(">I", len(data)) + data


def _records(result: bytes, nodes: Sequence[int] = ()) -> list[Any]:
    """The records that came in full; None for one that cannot be read, ``_TOO_LARGE`` where ``nodes`` has less."""
    values: list[Any] = []
    at, left = 0, MAX_NODES
    while at + 4 <= len(result) and left > 0 and len(values) < MAX_RECORDS:
        size = int.from_bytes(result[at : at + 4], "big")
        if at + 4 + size > len(result):
            break
        allowed = min(left, nodes[len(values)]) if len(values) < len(nodes) else left
        decoder = _Decoder(result[at + 4 : at + 4 + size], allowed, hostile=True)
        try:
            values.append(_decode(decoder))
        except TooManyParts:
            values.append(_TOO_LARGE)
        except (ValueError, RecursionError, OverflowError, MemoryError):
            values.append(None)
        left -= allowed - max(0, decoder.left)
        at += 4 + size
    return values


_TOO_LARGE = ("value", Opaque("value of too many parts", True))  # only what has parts has too many: it is true


def parse_call_results(result: bytes, *, nodes: Sequence[int] = ()) -> list[CallResult]:
    """Results so far, in call order; a record that is not one reads as an error.

    ``nodes``: parts that each call's record may have, two of them its own; the value of a larger one is ``Opaque``.
    """
    results = []
    for row in _records(result, nodes):
        if isinstance(row, tuple) and len(row) == 2 and row[0] == "value":
            results.append(CallResult(row[1]))
        elif isinstance(row, tuple) and len(row) == 3 and row[0] == "raised":
            results.append(CallResult(None, _text(row[1]) or "Exception", _text(row[2])))
        else:
            results.append(CallResult(None, "ProtocolError", "the harness's record is not readable"))
    return results


def parse_test_report(result: bytes, nonce: str) -> TestReport | None:
    """The report of a test run, or None when the harness never reached its end."""
    tests: dict[str, bool] = {}
    messages: dict[str, str] = {}
    finished = False
    for row in _records(result):
        if isinstance(row, tuple) and len(row) == 4 and row[0] == "test" and isinstance(row[1], str):
            tests[row[1]] = row[2] is True and tests.get(row[1], True)
            messages[row[1]] = _text(row[3])
        finished = isinstance(row, tuple) and row == ("finished", nonce)
    return TestReport(tests, messages) if finished else None


def _text(value: Any) -> str:
    return value[:500] if isinstance(value, str) else ""
