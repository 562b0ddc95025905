"""Answers DNS questions of a sandbox from its rules alone: no question is passed on, so none can carry data out.

An allowed name is at 127.0.0.1, where the gate listens; a name that is not allowed does not exist, which programs
believe at once; to a refusal they come back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

QUERY_MOST = 512  # bytes; what a datagram may have without extensions, and far more than one question needs
_HEAD = struct.Struct(">HHHHHH")
_A, _AAAA, _ANY_TYPE, _IN, _OPT = 1, 28, 255, 1, 41
_RESPONSE, _OPCODE, _TRUNCATED, _RECURSION, _AVAILABLE = 0x8000, 0x7800, 0x0200, 0x0100, 0x0080
FORMERR, NXDOMAIN = 1, 3
TTL_S = 5  # rules change live
_HERE = bytes([127, 0, 0, 1])


@dataclass(frozen=True, slots=True)
class Question:
    """One question: ``name`` is text as it came, not yet checked; ``raw`` its bytes, which an answer repeats."""

    number: int
    flags: int
    name: str
    kind: int
    raw: bytes


def parse(data: bytes) -> Question:
    """Read a datagram that asks one question.

    Raises:
        ValueError: it is anything else.
    """
    if not _HEAD.size < len(data) <= QUERY_MOST:
        raise ValueError("no DNS question")
    number, flags, questions, answers, authorities, additional = _HEAD.unpack_from(data)
    if flags & (_RESPONSE | _OPCODE | _TRUNCATED) or (questions, answers, authorities) != (1, 0, 0) or additional > 1:
        raise ValueError("no DNS question")
    labels, at = [], _HEAD.size
    while at < len(data) and data[at]:
        size = data[at]
        if size > 63 or at + 1 + size >= len(data):  # a pointer has no place in a question
            raise ValueError("no valid name in a DNS question")
        labels.append(data[at + 1 : at + 1 + size])
        at += 1 + size
    if at + 5 > len(data):
        raise ValueError("a DNS question that ends early")
    kind, group = struct.unpack_from(">HH", data, at + 1)
    end = at + 5
    if group != _IN:
        raise ValueError("a DNS question of another class")
    rest = data[end:]
    if additional:  # the options of EDNS, of which none is needed
        if len(rest) < 11 or rest[0] or int.from_bytes(rest[1:3], "big") != _OPT:
            raise ValueError("a DNS question with more than a question")
        rest = rest[11 + int.from_bytes(rest[9:11], "big") :]
    if rest or any(b"." in label for label in labels):
        raise ValueError("a DNS question with more than a question")
    return Question(number, flags, b".".join(labels).decode("latin-1"), kind, data[_HEAD.size : end])


def answer(question: Question, allowed: bool) -> bytes:
    """The answer to a question."""
    flags = _RESPONSE | _AVAILABLE | question.flags & _RECURSION
    if not allowed:
        return _HEAD.pack(question.number, flags | NXDOMAIN, 1, 0, 0, 0) + question.raw
    if question.kind not in (_A, _ANY_TYPE):  # the name is there, and has no such record
        return _HEAD.pack(question.number, flags, 1, 0, 0, 0) + question.raw
    record = b"\xc0\x0c" + struct.pack(">HHIH", _A, _IN, TTL_S, len(_HERE)) + _HERE
    return _HEAD.pack(question.number, flags, 1, 1, 0, 0) + question.raw + record


def respond(data: bytes, decide: Callable[[str], bool]) -> bytes | None:
    """The answer to a datagram, None for what is not worth one."""
    try:
        question = parse(data)
    except ValueError:
        if len(data) < _HEAD.size or data[2] & 0x80:  # an answer to an answer could go on for ever
            return None
        return _HEAD.pack(int.from_bytes(data[:2], "big"), _RESPONSE | FORMERR, 0, 0, 0, 0)
    return answer(question, decide(question.name))
