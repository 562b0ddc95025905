"""Grades of cases as bytes, and which of them may be kept.

What is kept must be what any later run would find. So nothing is that this
host failed on, and nothing that could have hung on its load: a time limit
counts when the engine saw it again in a run alone (``Outcome.confirmed``) or
when the program had used so much CPU time that no host would have been fast
enough (``DECISIVE``); a kill from outside when it happened again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.settling import DECISIVE
from proctor.grading.grades import CaseGrade

MAX_BYTES = 16 << 20  # of one program's grades, before they are packed
_SIGKILL = 9
_TIMED = (EndedBy.CPU, EndedBy.WALL)
_BYTES = ("stdout", "stderr", "result")
_FIELDS = (
    "exit_code", "signal", *_BYTES, "stdout_truncated", "stderr_truncated", "cpu_s", "wall_s", "waited_s", "peak_memory_bytes",
    "ended_by", "steady", "left_processes", "stdin_read", "compile_failed", "confirmed",
)  # fmt: skip


def lasting(cases: Sequence[CaseGrade], limits: Limits) -> bool:
    """Another run would find the same, whatever this host was doing meanwhile."""
    late = False
    for case in cases:
        out = case.outcome
        if not case.verdict.is_score or out.error is not None:
            return False
        if out.ended_by in _TIMED:
            decided = out.ended_by is EndedBy.CPU and not out.compile_failed and out.cpu_s >= DECISIVE * limits.cpu_s
            if not (out.confirmed or decided):
                return False
            late = True
        elif case.verdict is Verdict.TIME_LIMIT and not late:
            return False  # not run, and no limit before it is sure
        if out.compile_failed and (out.signal == _SIGKILL or b"Killed signal" in out.stderr):
            return False
        if out.signal == _SIGKILL and out.ended_by is None and not out.confirmed:
            return False
    return bool(cases)


def pack(cases: Sequence[CaseGrade]) -> bytes | None:
    """Grades as bytes; None where they are too large to be worth it."""
    places: dict[int, int] = {}
    outcomes: list[list[Any]] = []
    rows = []
    size = 0
    for case in cases:
        out = case.outcome
        if id(out) not in places:
            size += len(out.stdout) + len(out.stderr) + len(out.result)
            if size > MAX_BYTES:
                return None
            places[id(out)] = len(outcomes)
            values = [getattr(out, name) for name in _FIELDS]
            outcomes.append([value.decode("latin-1") if isinstance(value, bytes) else value for value in values])
        rows.append([case.verdict, case.detail, case.name, places[id(out)], case.shared, case.claim, case.score])
    return zlib.compress(json.dumps([outcomes, rows], separators=(",", ":")).encode(), 1)


def unpack(data: bytes) -> tuple[CaseGrade, ...]:
    """The grades that ``pack`` was given.

    Raises:
        ValueError: the bytes are of something else.
    """
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, 8 * MAX_BYTES)
        if not reader.eof:
            raise ValueError("it is cut off, or too long")
        outcomes, rows = json.loads(text)
        made = [_outcome(values) for values in outcomes]
        return tuple(
            CaseGrade(
                verdict=Verdict(verdict),
                detail=detail,
                name=name,
                outcome=made[place],
                shared=shared,
                claim=claim,
                score=score,
            )
            for verdict, detail, name, place, shared, claim, score in rows
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, zlib.error) as exc:
        raise ValueError(f"no grades: {exc}") from exc


def _outcome(values: list[Any]) -> Outcome:
    told = dict(zip(_FIELDS, values, strict=True))
    for name in _BYTES:
        told[name] = told[name].encode("latin-1")
    if told["ended_by"] is not None:
        told["ended_by"] = EndedBy(told["ended_by"])
    return Outcome(**told)
