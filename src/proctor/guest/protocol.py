"""Frames between host and agent, and what a harness is asked and answers; values are in ``values``.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .values import (
    MAX_BODY,
    MAX_DEPTH,
    MAX_NODES,
    Decoder,
    Members,
    Opaque,
    Pairs,
    TooManyParts,
    decode_value,
    encode_value,
    whole,
)

__all__ = [
    "MAX_BODY", "MAX_DEPTH", "MAX_NODES", "Call", "CallResult", "Members", "Opaque", "Pairs", "TestReport",
    "call_request", "decode_value", "encode_value", "pack", "parse_call_results", "parse_lacks", "parse_refusal", "parse_test_report",
    "record", "sealed_request", "serve_request", "test_request", "unpack_head", "unpack_header",
    "unpack_rows",
]  # fmt: skip

VERSION = 1
HEAD = struct.Struct(">BII")
MAX_HEADER = 1 << 20

# host -> guest
JOB, CASE, CANCEL, END, REQUEST = 1, 2, 3, 4, 5
# guest -> host
READY, OUTCOME, BEAT, DONE, FAULT, ANSWER, EVENT, ENDED, PAUSED = 65, 66, 67, 68, 69, 70, 71, 72, 73

# Status of an agent's supervisor: 0, or that the kernel has killed for memory in the slot's group. When an agent
# broke under a case that is the likely reason: a program can fill the group with files that outlive it.
STATUS_MEMORY = 71

MAX_RESULT = 16 << 20  # bytes of encoded results that come back from one process
LEFT = "left"  # of a test without a result: it skipped itself as it ran
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


def unpack_rows(data: bytes) -> list[Any]:
    """A list as JSON, or ValueError; its members are unchecked."""
    value = unpack_header(b'{"rows":' + data + b"}")["rows"]
    if not isinstance(value, list):
        raise ValueError("a list is due")
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
    """Named tests of one run, in order; True passed. Unless they are sealed, a program's own claim.

    ``skipped``: those that a decorator skipped, with all of their rows; they are no part of ``tests``.
    ``left``: those that skipped themselves as they ran; nor are they.
    ``broken``: the program went away, or answered what cannot be read, before the tests had ended.
    ``undecided``: why a pass of any of them would be the word of an object that the program made up.
    ``open``: tests of which only that holds, and why.
    ``claim``: why a pass is partly the program's word although the tests are apart from it.
    ``lacks``: what the test file asks for and the image has not; only ever told by sealed tests.
    """

    tests: dict[str, bool]
    messages: dict[str, str]
    broken: str = ""
    lacks: str = ""
    undecided: str = ""
    claim: str = ""
    open: Mapping[str, str] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()


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


def serve_request(*, source_file: str, module: str) -> bytes:
    """Ask the harness to load a file of the program and serve the sealed tests at the other end of its pipes."""
    return encode_value({"kind": "serve", "file": source_file, "module": module})


def sealed_request(
    *, module: str, tests: str, test_module: str, test_file: str, nonce: str, appended: bool, preamble: str,
    entry: Sequence[str], classes: Sequence[str] = (),
) -> bytes:  # fmt: skip
    """Ask the harness to run test source against stand-ins for the program at the other end of its pipes.

    ``appended``: what the tests do not define themselves is the preamble's, a library's or the program's;
    ``entry``: names that are the program's whatever library has them too; ``classes``: names that the problem says
    to be classes.
    """
    return encode_value(
        {"kind": "sealed", "file": test_file, "module": module, "tests": tests, "test_module": test_module}
        | {"nonce": nonce, "appended": appended, "preamble": preamble, "entry": list(entry)}
        | {"classes": list(classes)}
    )


test_request.__test__ = False  # type: ignore[attr-defined]  # not a pytest test
TestReport.__test__ = False  # type: ignore[attr-defined]


def record(value: Any) -> bytes:
    """One record of the harness's result stream: 4-byte length, then the value."""
    data = encode_value(value, MAX_RESULT, exact=True)
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
        decoder = Decoder(result[at + 4 : at + 4 + size], allowed, hostile=True)
        try:
            values.append(whole(decoder))
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
    opened: dict[str, str] = {}
    skipped: dict[bool, set[str]] = {False: set(), True: set()}
    finished, told = False, {"broken": "", "lacks": "", "undecided": "", "claim": ""}
    for row in _records(result):
        if isinstance(row, tuple) and len(row) == 4 and row[0] == "test" and isinstance(row[1], str):
            if row[2] is None:
                skipped[row[3] == LEFT].add(row[1])
                continue
            tests[row[1]] = row[2] is True and tests.get(row[1], True)
            messages[row[1]] = _text(row[3])
        if isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], str) and row[0] in told:
            told[row[0]] = _told(row[1])
        if isinstance(row, tuple) and len(row) == 3 and row[0] == "open" and isinstance(row[1], str):
            opened.setdefault(row[1], _told(row[2]))
        finished = isinstance(row, tuple) and row == ("finished", nonce)
    marked, left = map(frozenset, skipped.values())
    return TestReport(tests, messages, **told, open=opened, skipped=marked, left=left) if finished else None


def parse_lacks(result: bytes) -> str:
    """What tests ask for that the image has not, told before the program was loaded: only a first record says so."""
    first = next(iter(_records(result)), None)
    return _told(first[1]) if isinstance(first, tuple) and len(first) == 2 and first[0] == "lacks" else ""


def parse_refusal(result: bytes) -> str | None:
    """Why tests cannot be sealed, where the tests' side said so."""
    rows = _records(result)
    last = rows[-1] if rows else None
    return _told(last[1]) if isinstance(last, tuple) and len(last) == 2 and last[0] == "refused" else None


def _told(value: Any) -> str:
    """A reason for a log and a grade: it may hold names of the program's, so what cannot be printed is escaped."""
    text = _text(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)[:1000]


def _text(value: Any) -> str:
    return value[:500] if isinstance(value, str) else ""
