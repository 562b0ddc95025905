"""Frames between a keeper and those who use its sandboxes, and the data of ``core/sandbox.py`` in them.

A frame is ``kind (1 byte), call (8 bytes), header length, body length (4 bytes
each, big endian), header (JSON object), body (bytes)``. Bytes in a value stand
in the header as their length and follow one another in the body. What a value
may be is told by the type that is due, so each side reads only what it expects.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import math
import struct
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from proctor.core.errors import FrameError

VERSION = 1  # of what is said; both sides must have the same
HEAD = struct.Struct(">BQII")
MOST_HEADER = 64 << 20  # a listing of 100,000 files with long names
MOST_BODY = 160 << 20  # all of a command's standard input, as much as a sandbox takes
BUFFER = 1 << 20  # bytes that are read ahead

# keeper -> client
HELLO, ANSWER, NOTE, BYE = 65, 66, 67, 68
# client -> keeper
CALL, CANCEL = 1, 2


def version() -> str:
    """Of this Proctor; a keeper and its clients are of one."""
    try:
        return importlib.metadata.version("proctor")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


Frame = tuple[int, int, dict[str, Any], bytes]
_PRINTER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def pack(kind: int, call: int, header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """One frame as bytes.

    Raises:
        FrameError: it is larger than a frame may be.
    """
    try:
        head = _PRINTER.encode(header).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as exc:
        raise FrameError(f"this cannot be sent to a keeper: {exc}") from exc
    if len(head) > MOST_HEADER or len(body) > MOST_BODY:
        raise FrameError(f"{len(head)} + {len(body)} bytes are more than a keeper takes at once")
    return HEAD.pack(kind, call, len(head), len(body)) + head + body


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _whole(digits: str) -> int:
    if len(digits) > 40:
        raise ValueError("a number is too long")
    return int(digits)


_READER = json.JSONDecoder(parse_constant=_refuse, parse_int=_whole)


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next frame.

    Raises:
        EOFError, OSError: the other side has gone.
        FrameError: these bytes are no frame.
    """
    kind, call, head, body = HEAD.unpack(await reader.readexactly(HEAD.size))
    if head > MOST_HEADER or body > MOST_BODY:
        raise FrameError(f"a frame of {head} + {body} bytes is over the bound")
    text = await reader.readexactly(head)
    try:
        header = _READER.decode(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as exc:
        raise FrameError(f"a frame's header is not JSON: {exc}") from exc
    if not isinstance(header, dict):
        raise FrameError("a frame's header is no object")
    return kind, call, header, await reader.readexactly(body)


# ---------------------------------------------------------------- values


def plain(value: Any, blobs: list[bytes]) -> Any:
    """A value as JSON has them; its bytes are added to ``blobs``."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), blobs) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        blobs.append(bytes(value))
        return len(blobs[-1])
    if isinstance(value, Mapping):
        return {str(key): plain(item, blobs) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, blobs) for item in value]
    return value


class Blobs:
    """The body of a frame, taken from the front."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = memoryview(body), 0

    def take(self, size: int) -> bytes:
        """The next so many bytes; ValueError where they are not there."""
        if not 0 <= size <= len(self._body) - self._at:
            raise ValueError("a body is shorter than its header says")
        self._at += size
        return bytes(self._body[self._at - size : self._at])

    def end(self) -> None:
        """ValueError where something is left."""
        if self._at != len(self._body):
            raise ValueError("a body is longer than its header says")


def value_of(hint: Any, value: Any, blobs: Blobs) -> Any:
    """What ``plain`` made of a value of this type, checked.

    Raises:
        ValueError: it is something else.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in inner:
            return None
        (one,) = (part for part in inner if part is not type(None))
        return value_of(one, value, blobs)
    if hint is None or hint is type(None):
        return _of(type(None), value)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(value_of(inner[0], item, blobs) for item in _of(list, value))
    if origin is tuple:
        items = _of(list, value)
        return tuple(value_of(part, item, blobs) for part, item in zip(inner, items, strict=True))
    if origin is list:
        return [value_of(inner[0], item, blobs) for item in _of(list, value)]
    if origin in (dict, Mapping):
        return {key: value_of(inner[1], item, blobs) for key, item in _of(dict, value).items()}
    if hint is bytes:
        return blobs.take(_of(int, value))
    if hint is float:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"{value!a:.60} where a number is due")
        return float(value)
    if is_dataclass(hint):
        kinds = types_of(typing.cast(type, hint))
        if _of(dict, value).keys() != kinds.keys():
            raise ValueError(f"a {getattr(hint, '__name__', hint)} has other fields")
        return typing.cast(Callable[..., Any], hint)(
            **{name: value_of(kind, value[name], blobs) for name, kind in kinds.items()}
        )
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return _of(hint, value)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:  # not a bool for an int
        raise ValueError(f"{type(value).__name__} where {kind.__name__} is due")
    return value


@cache
def types_of(kind: type) -> dict[str, Any]:
    """Fields of a dataclass, in order, and their types."""
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}
