"""Problems from files and from data-set rows, whatever format they are in.

======================  =====================================================
``proctor``             our JSONL: ``id``, ``mode``, ``cases`` or ``test_code``
``humaneval``           ``task_id, prompt, test, entry_point``
``mbpp``                ``task_id, test_list``
``apps``                APPS, TACO, PRIME: ``{"inputs", "outputs", "fn_name"?}``
``livecodebench``       ``public_test_cases, private_test_cases``
``verification-info``   ``verification_info`` of open-r1 and PrimeIntellect
======================  =====================================================

Files are JSONL or one JSON array, plain or gzipped. ``auto`` tells the format
from the fields of the first row.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from proctor.core.errors import InputError
from proctor.grading.formats import codesets, proctor, testcases
from proctor.grading.formats.rows import Row, plain, read_rows
from proctor.grading.problem import Problem

_READERS: dict[str, Callable[[Row], Problem]] = {
    "proctor": proctor.read,
    "humaneval": codesets.read_humaneval,
    "mbpp": codesets.read_mbpp,
    "apps": lambda row: testcases.read_apps(row, _digest(row)),
    "livecodebench": testcases.read_livecodebench,
    "verification-info": lambda row: testcases.read_verification_info(row, _digest(row)),
}
FORMATS = ("auto", *_READERS)
# In this order: the fields that tell a format, all of one group.
_MARKS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("verification-info", (("verification_info",),)),
    ("livecodebench", (("public_test_cases",), ("private_test_cases",))),
    ("mbpp", (("task_id", "test_list"),)),
    ("humaneval", (("task_id", "prompt", "test"), ("prompt", "test", "entry_point"))),
    ("proctor", (("cases",), ("test_code",), ("id", "mode"))),
    ("apps", (("input_output",), ("ground_truth",), ("inputs", "outputs"), ("reward_model",), ("assert_case",))),
)


def load_problems(path: str | Path, format: str = "auto") -> list[Problem]:
    """The problems of a file, in its order.

    Raises:
        InputError: an unreadable file, an unknown format, a row that is not a
            problem (with file, line and field), or an id that stands twice.
    """
    return _read(read_rows(path), format, Path(path).parent)


def problems_from_rows(rows: Iterable[Mapping[str, Any]], format: str = "auto") -> list[Problem]:
    """The problems of rows such as a data set yields; errors name rows counted from 1. Raises as load_problems."""
    return _read(((f"row {number}", _plain(row)) for number, row in enumerate(rows, 1)), format)


def _read(rows: Iterable[tuple[str, Any]], format: str, base: Path | None = None) -> list[Problem]:
    name = format.replace("_", "-")
    if name not in FORMATS:
        raise InputError(f"{format!r} is not one of {', '.join(FORMATS)}", field="format")
    found: dict[str, Problem] = {}
    for where, data in rows:
        row = Row(data, where, base)
        if name == "auto":
            name = detect(row)
        problem = _READERS[name](row)
        if (before := found.setdefault(problem.id, problem)) is not problem:
            row.fail("id", f"{problem.id!r} stands twice; first in {before.source}")
    return list(found.values())


def detect(row: Row) -> str:
    """The format that a row's fields tell; InputError with what was looked for."""
    for name, groups in _MARKS:
        if any(all(row.has(field) for field in group) for group in groups):
            return name
    looked = "; ".join(f"{name}: {' or '.join('+'.join(group) for group in groups)}" for name, groups in _MARKS)
    keys = ", ".join(sorted(row.data)) or "none"
    fields = sorted({field for _, groups in _MARKS for group in groups for field in group})
    slips = ((key, difflib.get_close_matches(key, fields, 1, 0.75)) for key in sorted(row.data) if key not in fields)
    slip = "".join(f"{key!r}: did you mean {near[0]!r}? The format " for key, near in slips if near)
    if row.has("completion", "completions", "response", "responses", "generation"):
        slip += "this looks like a completion, not a problem; are the two files swapped? The format "
    message = f"{slip}cannot be told from the keys ({keys}); looked for {looked}; name one: {', '.join(_READERS)}"
    raise InputError(message, where=row.where, field="format")


def _digest(row: Row) -> str:
    """An id for a row that has none: it follows from the row's content alone."""
    text = json.dumps(row.data, sort_keys=True, default=str)
    return f"row-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _plain(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
