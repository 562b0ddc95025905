"""What the readers of all formats share: language, limits, printed text, the built problem."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from proctor.engine.languages import LANGUAGES
from proctor.grading.formats.rows import Row, encoded, kind_of
from proctor.grading.problem import DEFAULT_MEMORY_LIMIT_MIB, DEFAULT_TIME_LIMIT_S, Problem, TestCase, check_number

_LANGUAGES = {name: row for row in LANGUAGES for name in (row.name, *row.aliases)}
ID_KEYS = ("problem_id", "id", "task_id", "question_id", "uid", "in_source_id")
LIMIT_KEYS = ("time_limit_s", "memory_limit_mib")
TOLD_LIMITS = ("time_limit", "memory_limit")
"""As data sets of contests give them: ``2.0 seconds``, ``256.0 megabytes``."""
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0} | dict.fromkeys(
    ("ms", "millisecond", "milliseconds"), 1e-3
)
_MIB = {"": 1.0, "mb": 1.0, "mib": 1.0, "m": 1.0, "megabyte": 1.0, "megabytes": 1.0, "b": 2.0**-20, "byte": 2.0**-20,
        "bytes": 2.0**-20} | dict.fromkeys(("kb", "kib", "k", "kilobyte", "kilobytes"), 2.0**-10) | dict.fromkeys(
    ("gb", "gib", "g", "gigabyte", "gigabytes"), 2.0**10
)  # fmt: skip


def language_of(row: Row) -> str:
    """The canonical name of the row's language; python where it names none."""
    name = row.text("language", "python") or ""
    known = _LANGUAGES.get(name.lower())
    if known is None:
        near = get_close_matches(name.lower(), _LANGUAGES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted({r.name for r in LANGUAGES}))}"
        row.fail("language", f"unknown language {name!r}; {hint}")
    return known.name


def source_name(language: str) -> str:
    """The file name of a solution in a language."""
    return _LANGUAGES[language].source


def limits_of(row: Row) -> dict[str, Any]:
    """The row's own limits, checked, or the defaults."""
    seconds = row.first("time_limit_s") if row.has("time_limit_s") else DEFAULT_TIME_LIMIT_S
    memory = row.first("memory_limit_mib") if row.has("memory_limit_mib") else DEFAULT_MEMORY_LIMIT_MIB
    row.check(lambda: check_number(seconds, "time_limit_s", 0.01, 86_400))
    row.check(lambda: check_number(memory, "memory_limit_mib", 16, 1 << 20))
    if memory != int(memory):
        row.fail("memory_limit_mib", f"{memory!r} is not a whole number of MiB")
    return {"time_limit_s": float(seconds), "memory_limit_mib": int(memory)}


def told_limits(row: Row, *, calls: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """``limits_of``, or else what a data set's ``time_limit`` and ``memory_limit`` say, and notes on what they do not.

    Of several amounts (``1 - 2 seconds``) the largest counts. ``calls``: the
    limit is for all calls of a function together, and a contest's is for one
    case, so the default is the least.
    """
    found, notes = limits_of(row), []
    for name, key, units, low, high in (
        ("time_limit", "time_limit_s", _SECONDS, DEFAULT_TIME_LIMIT_S if calls else 0.01, 86_400),
        ("memory_limit", "memory_limit_mib", _MIB, 16, 1 << 20),
    ):
        value = row.data.get(name)
        if value is None or value == "" or row.has(key):
            continue
        amount = _amount(value, units)
        if amount is None:
            notes.append(f"{name} {str(value)[:80]!r} is not understood, so the default counts: {found[key]}")
        else:
            amount = min(max(amount, low), high)
            found[key] = amount if key == "time_limit_s" else math.ceil(amount)
    return found, tuple(notes)


def _amount(value: Any, units: dict[str, float]) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    parts = _AMOUNT.findall(str(value).lower()) if isinstance(value, str) else [(str(value), "")]
    unit = next((unit for _, unit in reversed(parts) if unit), "")  # of 1 - 2 seconds both are seconds
    try:
        amounts = [float(number) * units[own or unit] for number, own in parts]
    except (KeyError, ValueError):
        return None
    return max((amount for amount in amounts if 0 < amount < math.inf), default=None)


def id_of(row: Row, fallback: str | None = None) -> str:
    """The row's id as text: a number becomes its digits, as completions name it."""
    for name in ID_KEYS:
        value = row.data.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            row.fail(name, f"a non-empty string or a number is expected, not {value!r}")
        return str(value)
    if fallback is None:
        row.fail("id", f"missing; one of {', '.join(ID_KEYS)}")
    return fallback


def printed(value: Any) -> str:
    """What Python prints for a JSON value: 12, True, [65, 24]; text as it is."""
    return value if isinstance(value, str) else str(value)


def text_lines(row: Row, value: Any, field: str) -> bytes:
    """Standard input or output in the APPS family: text, a list of lines, or one value as Python prints it."""
    if value is None:
        row.fail(field, "no value; an empty output is written as an empty string")
    if isinstance(value, dict):
        row.fail(field, f"{kind_of(value)} is neither text nor a list of lines")
    return encoded("\n".join(map(printed, value)) if isinstance(value, list | tuple) else printed(value))


def rest(row: Row, *used: str) -> dict[str, Any]:
    """The row's other fields."""
    return {key: value for key, value in row.data.items() if key not in used and value is not None}


def built(row: Row, *, notes: tuple[str, ...] = (), **fields: Any) -> Problem:
    """The problem, with notes about its cases; what does not fit is an InputError with the row's place."""
    notes = (*notes, *case_notes(fields.get("cases", ())))
    return row.check(lambda: Problem(source=row.where, notes=notes, **fields))


def case_notes(cases: Iterable[TestCase]) -> tuple[str, ...]:
    """Warnings about cases that say the same, or say two things of one input."""
    first: dict[Any, tuple[int, Any]] = {}
    same: list[str] = []
    against: list[str] = []
    for number, case in enumerate(cases):
        key = (case.stdin, case.entry_point, case.compare, _key(case.args), _key(case.kwargs))
        expected = _key(case.expected)
        seen = first.setdefault(key, (number, expected))
        if seen[0] != number:
            (same if seen[1] == expected else against).append(f"{seen[0]} and {number}")
    notes = []
    if same:
        notes.append(f"{len(same)} duplicate case(s), counted from 0: {_few(same)}")
    if against:
        notes.append(f"{len(against)} pair(s) of cases with one input and different expected values: {_few(against)}")
    return tuple(notes)


def _few(items: list[str]) -> str:
    return ", ".join(items[:5]) + (", ..." if len(items) > 5 else "")


def _key(value: Any) -> Any:
    """Something hashable that tells values apart, 1 from True and 1.0 too."""
    if isinstance(value, bytes):
        return value
    try:
        return repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python turns into text
        return _deep(value)


def _deep(value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        return (type(value).__name__, *map(_deep, value))
    if isinstance(value, dict):
        return ("dict", *((_deep(k), _deep(v)) for k, v in value.items()))
    return (type(value).__name__, value)
