"""Read rows from files, and fields from rows, so that every error names file, line and field."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar, cast

from proctor.core.errors import InputError
from proctor.grading import pysource

MAX_LINE = 1 << 30  # bytes of one line, or of a file that is one JSON array
_T = TypeVar("_T")
_OTHER_FILES = (
    (b"\xff\xfe", "UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "UTF-16; save it as UTF-8"),
    (b"PAR1", "a parquet file; give its rows to proctor in Python, or write them as JSON lines"),
    (b"ARROW1", "an Arrow file; give its rows to proctor in Python, or write them as JSON lines"),
    (b"PK\x03\x04", "a zip file; unpack it"),
)  # what a file begins with, and what it is


class NotJson(ValueError):
    """A text is not JSON: why, and where, counted from 1."""

    def __init__(self, error: json.JSONDecodeError) -> None:
        self.why, self.line, self.column = error.msg, error.lineno, error.colno
        super().__init__(f"{self.why} (line {self.line}, column {self.column})")


def loads(text: str | bytes) -> Any:
    """JSON as Python data; ValueError that says what is wrong, also for depth, repeated keys and huge numbers."""
    try:
        return json.loads(text, parse_int=pysource.big_int, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise NotJson(error) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} stands twice in one object")
    return found


def read_rows(path: str | Path) -> Iterator[tuple[str, Any]]:
    """(place, value) for each line of a JSONL file, or each item of a JSON array; either may be gzipped.

    Raises:
        InputError: the file cannot be read, or a line is not JSON.
    """
    name = str(path)
    try:
        with open(path, "rb") as file:
            start = file.peek(2)[:2]
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if start == b"\x1f\x8b" else cast(BinaryIO, file)
            yield from _rows(io.BufferedReader(cast(io.RawIOBase, stream)) if start == b"\x1f\x8b" else stream, name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"the gzip file is damaged ({error})", where=name) from None
    except FileNotFoundError:
        raise InputError("there is no such file", where=name) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=name) from None


def _rows(stream: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    number, empty = 0, True
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise InputError(f"the line is longer than {MAX_LINE} bytes", where=f"{name}:{number}")
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if number == 1 and (other := next((what for start, what in _OTHER_FILES if line.startswith(start)), None)):
            raise InputError(f"not JSON: {other}", where=name)
        if not line.strip():
            continue
        if empty and line.lstrip().startswith(b"["):
            yield from _array(line + stream.read(MAX_LINE), name, number)
            return
        empty = False
        yield f"{name}:{number}", _decoded(line.rstrip(), name, number)
    if empty:
        raise InputError("the file is empty", where=name)


def _decoded(data: bytes, name: str, number: int) -> Any:
    """``number``: the line of the file in which ``data`` begins."""
    # An object that goes on in the next line: what a pretty printer leaves.
    opened = data.strip() == b"{" or (data.startswith(b"{") and data.endswith((b",", b"{", b"[")))
    fix = "; each row stands on one line, or all of them in one array" if opened else ""
    try:
        return loads(data.decode("utf-8"))
    except NotJson as error:
        where = f"{name}:{number + error.line - 1}"
        raise InputError(f"not JSON: {error.why} (column {error.column}){fix}", where=where) from None
    except UnicodeDecodeError as error:
        what = f"byte 0x{data[error.start]:02x} at column {error.start + 1} is no UTF-8; save the file as UTF-8"
        raise InputError(f"not JSON: {what}", where=f"{name}:{number}") from None
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=f"{name}:{number}") from None


def _array(data: bytes, name: str, number: int) -> Iterator[tuple[str, Any]]:
    items = _decoded(data.rstrip(), name, number)
    for position, item in enumerate(items, 1):
        yield f"{name}: item {position}", item


class Row:
    """One row with the place where it was read; a field that is null counts as absent.

    ``base``: the folder of the file that it was read from, None where it was none.
    """

    def __init__(self, data: Any, where: str, base: Path | None = None) -> None:
        if not isinstance(data, Mapping):
            raise InputError(f"a JSON object is expected, not {kind_of(data)}", where=where)
        self.data: dict[str, Any] = {str(key): plain(value) for key, value in data.items()}
        self.where, self.base = where, base

    def fail(self, field: str | None, message: str) -> NoReturn:
        """Raise InputError about a field of this row."""
        raise InputError(message, where=self.where, field=field)

    def check(self, build: Callable[[], _T], prefix: str = "") -> _T:
        """What build() returns; its InputError and ValueError get this row's place."""
        try:
            return build()
        except InputError as error:
            if error.where:
                raise
            raise InputError(str(error), where=self.where) from None
        except ValueError as error:
            self.fail(prefix or None, str(error))

    def has(self, *names: str) -> bool:
        """One of these fields is there."""
        return any(self.data.get(name) is not None for name in names)

    def first(self, *names: str) -> Any:
        """The value of the first of these fields that is there, else None."""
        return next((self.data[name] for name in names if self.data.get(name) is not None), None)

    def text(self, name: str, default: str | None = None) -> str | None:
        """A string field, or the default."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fail(name, f"a string is expected, not {kind_of(value)}")
        return value

    def need(self, name: str) -> str:
        """A string field that must be there and not be empty."""
        value = self.text(name)
        if not value:
            self.fail(name, "missing" if value is None else "an empty string")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A bool field, or the default."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, bool):
            self.fail(name, f"true or false is expected, not {kind_of(value)}")
        return default if value is None else value

    def items(self, name: str) -> list[Any]:
        """A list field; absent is empty."""
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            self.fail(name, f"a list is expected, not {kind_of(value)}")
        return list(value)

    def mapping(self, name: str) -> dict[str, Any]:
        """An object field; absent is empty."""
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.fail(name, f"an object is expected, not {kind_of(value)}")
        return {str(key): item for key, item in value.items()}

    def json(self, name: str) -> Any:
        """A field that is data, or the same data as JSON text or as a Python literal."""
        value = self.data.get(name)
        if not isinstance(value, str):
            return value
        try:
            return loads(value)
        except ValueError as error:
            try:
                return pysource.literal(value)
            except ValueError:
                self.fail(name, f"neither JSON nor a Python literal: {error}")

    def names(self, known: Iterable[str], *, strict: bool) -> None:
        """Refuse keys that are not known; unless strict, only those that look like a slip of a known one."""
        known = sorted(known)
        for key in self.data:
            if key in known:
                continue
            near = get_close_matches(key, known, 1, 0.6 if strict else 0.85)
            if strict or near:
                hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
                self.fail(key, f"unknown key{hint}")


def plain(value: Any) -> Any:
    """Arrays of numeric libraries, as data sets hand them out, become lists."""
    return value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value


def kind_of(value: Any) -> str:
    """The JSON name of a value's type."""
    if isinstance(value, bool):
        return "true or false"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")


def encoded(text: str) -> bytes:
    """The bytes of a text as a program gets them: UTF-8, line ends as they are."""
    return text.encode("utf-8", "surrogatepass")
