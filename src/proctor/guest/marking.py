"""Marks of pytest on tests: what they say is noted before any test runs, since a test may hand the program what it hangs on."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from .raising import innermost

_noted: dict[
    int, tuple[Any, Any]
] = {}  # number of a mark -> itself, so that the number stays its own, and its rows or condition


_SKIPS = ((f"{__package__}.testkit", "skip"), ("unittest.case", "skipTest"), ("_pytest.outcomes", "skip"))


class Fault(Exception):
    """The test file asks for what is not here; no program is to blame."""


def marks(name: str, *places: Any) -> list[Any]:
    """Marks of that name on a test, on its class, or on its module's ``pytestmark``."""
    found = []
    for place in places:
        whole = isinstance(place, list | tuple) or type(place).__name__ in ("Mark", "MarkDecorator")
        given = place if whole else getattr(place, "pytestmark", None)
        rows = given if isinstance(given, list | tuple) else [given]
        found += [mark for mark in rows if getattr(mark, "name", "") == name]
    return found


def skips(*places: Any) -> bool:
    """The test file itself skips this test."""
    return bool(marks("skip", *places)) or any(map(_holds, marks("skipif", *places)))


def is_skip(exc: BaseException) -> bool:
    """The tests skipped themselves, by a call of the testkit's, pytest's or unittest's; no program's exception is that."""
    trace = innermost(exc)
    frame = trace.tb_frame if trace is not None else None
    return frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) in _SKIPS


def is_expected_to_fail(*places: Any) -> bool:
    """The test file itself says so."""
    return any(
        not (mark.args or "condition" in mark.kwargs) or _holds(mark) for mark in marks("xfail", *places)
    ) or any(getattr(place, "__unittest_expecting_failure__", False) for place in places)


def _holds(mark: Any) -> bool:
    condition = noted(mark, mark.args[0] if mark.args else mark.kwargs.get("condition", False))
    if isinstance(condition, str):
        raise Fault(f"the tests have a condition in a string, {condition[:50]!r}, which is not known here")
    return bool(condition)


def noted(mark: Any, now: Any) -> Any:
    """Rows or condition of a mark as they were before any test; ``now`` for one that was not there then."""
    return _noted.get(id(mark), (mark, now))[1]


def collect(space: dict[str, Any], foreign: Callable[[Any], bool]) -> None:
    """Note how many rows the tests of a module have, and which conditions hold."""
    waiting, seen = [space.get("pytestmark"), *space.values()], set()
    while waiting:
        place = waiting.pop()
        if place is None or id(place) in seen or foreign(place):
            continue
        seen.add(id(place))
        if isinstance(place, type):
            waiting += [part for base in place.__mro__[:-1] for part in vars(base).values()]
        elif isinstance(place, staticmethod | classmethod):
            waiting.append(place.__func__)
        is_mark = type(place).__name__ in ("Mark", "MarkDecorator")
        if not (is_mark or isinstance(place, type | types.FunctionType | list | tuple)):
            continue
        options = getattr(place, "__fixture__", None) if isinstance(place, types.FunctionType) else None
        if isinstance(options, dict) and options.get("params") is not None:
            options["params"] = list(options["params"])
        for mark in marks("parametrize", place):
            values = mark.args[1] if len(mark.args) > 1 else mark.kwargs.get("argvalues", ())
            rows = list(values)
            _noted[id(mark)] = mark, rows
            own = [row.marks for row in rows if type(row).__name__ == "ParameterSet" and not foreign(row)]
            waiting += [one for given in own for one in (given if isinstance(given, list | tuple) else (given,))]
        for mark in (*marks("skipif", place), *marks("xfail", place)):
            condition = mark.args[0] if mark.args else mark.kwargs.get("condition", False)
            if not isinstance(condition, str):
                _noted[id(mark)] = mark, bool(condition)
