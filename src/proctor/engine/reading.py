"""Frames from a guest, read as what they are: hostile. Every field is checked before it is used."""

from __future__ import annotations

from typing import Any

from proctor.core.errors import FrameError
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.job import Case
from proctor.guest import protocol

_TOP = 1 << 62
_NOTE = 500


def text(value: Any) -> str:
    """A guest's message, at most 2,000 characters of it; anything but a string reads as none."""
    return value[:2000].encode("utf-8", "replace").decode() if isinstance(value, str) else "no message"


def most(limits: Limits, case: Case) -> int:
    """Bytes of streams and files that come back from one case at most."""
    return sum(_keeps(limits)) + (case.collect_bytes if case.collect else 0)


def _keeps(limits: Limits) -> tuple[int, int, int]:
    stdout = limits.output_bytes if limits.stdout_keep is None else min(limits.stdout_keep, limits.output_bytes)
    return stdout, limits.stderr_keep, protocol.MAX_RESULT


def _shown(value: Any) -> str:
    """Short and never recursive: a guest may nest values as deep as it likes."""
    return repr(value)[:50] if value is None or isinstance(value, bool | float | str) else type(value).__name__


def _number(header: dict[str, Any], name: str, high: int, *, none: bool = False) -> Any:
    value = header.get(name)
    if value is None and none:
        return None
    if type(value) is not int or not 0 <= value <= high:
        raise FrameError(f"outcome's {name} is {_shown(value)}")
    return value


def _sizes(header: dict[str, Any], name: str) -> list[int]:
    value = header.get(name)
    if not isinstance(value, list) or len(value) != 3 or any(type(x) is not int or not 0 <= x <= _TOP for x in value):
        raise FrameError(f"outcome's {name} is {_shown(value)}")
    return value


def _files(header: dict[str, Any], case: Case) -> list[tuple[str, int]]:
    rows = header.get("files", [])
    if not isinstance(rows, list) or len(rows) > len(case.collect):
        raise FrameError(f"outcome's files are {_shown(rows)}")
    found: dict[str, int] = {}
    for row in rows:
        good = isinstance(row, list) and len(row) == 2 and type(row[0]) is str and type(row[1]) is int and row[1] >= 0
        if not good or row[0] not in case.collect or row[0] in found:
            raise FrameError(f"outcome has a file {_shown(row)}")
        found[row[0]] = row[1]
    if sum(found.values()) > case.collect_bytes:
        raise FrameError("outcome's files are too large")
    return list(found.items())


def beat(header: dict[str, Any]) -> tuple[float, float]:
    """Seconds that a case has lasted so far, and those of them that count towards no wall limit; FrameError for nonsense."""
    return _number(header, "wall_ns", _TOP) / 1e9, _number(header, "waited_ns", _TOP) / 1e9


def outcome(
    header: dict[str, Any], body: bytes, job: int, index: int, limits: Limits, case: Case
) -> tuple[Outcome, float]:
    """The outcome of ``case``, which is number ``index``, and the CPU seconds of its busiest step.

    ``job`` is a number that only the jail of this job was told: what an
    earlier one may have left in the stream is not taken for this one's.

    Raises:
        FrameError: a field is missing or not what it must be.
    """
    for name, due in (("job", job), ("case", index)):
        if type(header.get(name)) is not int or header[name] != due:
            raise FrameError(f"an outcome of another {name}")
    kept, written = _sizes(header, "kept"), _sizes(header, "written")
    fits = all(k <= w and k <= top for k, w, top in zip(kept, written, _keeps(limits), strict=True))
    files, at = {}, sum(kept)
    for name, size in _files(header, case):
        files[name] = body[at : at + size]
        at += size
    if at != len(body) or not fits:
        raise FrameError("outcome's sizes do not fit")
    ended = header.get("ended")
    if ended is not None and (not isinstance(ended, str) or ended not in [e.value for e in EndedBy]):
        raise FrameError(f"outcome ended by {_shown(ended)}")
    exit_code, signal = _number(header, "exit", 255, none=True), _number(header, "signal", 127, none=True)
    if (exit_code is None) == (signal is None):
        raise FrameError("outcome has neither or both of exit and signal")
    if ended == EndedBy.OUTPUT:
        exit_code, signal = None, 9  # whether it came to its own end before the flood was seen is chance
    stdout, stderr, result = body[: kept[0]], body[kept[0] : kept[0] + kept[1]], body[kept[0] + kept[1] : sum(kept)]
    note = header.get("note")
    if isinstance(note, str):
        stderr += note[:_NOTE].encode("utf-8", "replace")
    found = Outcome(
        exit_code=exit_code, signal=signal, stdout=stdout, stderr=stderr, result=result,
        stdout_truncated=written[0] > kept[0], stderr_truncated=written[1] > kept[1],
        cpu_s=_number(header, "cpu_ns", _TOP) / 1e9, wall_s=_number(header, "wall_ns", _TOP) / 1e9,
        waited_s=_number(header, "waited_ns", _TOP) / 1e9,
        peak_memory_bytes=_number(header, "peak", _TOP) or None, ended_by=EndedBy(ended) if ended else None,
        files=files, steady=header.get("steady") is True, left_processes=_number(header, "left", 1 << 30),
        stdin_read=min(_number(header, "read", _TOP), len(case.stdin)) if case.stdin else None,
    )  # fmt: skip
    return found, _number(header, "step_ns", _TOP) / 1e9
