"""Proctor's own format: one problem a line, every key known. See ``KEYS`` and ``CASE_KEYS``."""

from __future__ import annotations

import base64
import binascii
import json
import math
from decimal import Decimal
from typing import Any

from proctor.grading import extract, pysource
from proctor.grading.formats.common import built, language_of, limits_of, rest, source_name
from proctor.grading.formats.judges import JUDGE_KEYS, read_files, read_judge, read_path
from proctor.grading.formats.rows import Row, encoded, kind_of
from proctor.grading.problem import MODES, CheckerProgram, CheckerSpec, Problem, TestCase, check_tolerance

USED = (
    "id", "mode", "language", "cases", "entry_point", "solution_class", "test_code", "checker", "interactor", "preamble",
    "prompt",
    "time_limit_s", "memory_limit_mib", "module", "test_module", "appended", "extra_files", "reference_solution",
    "reference_files", "impossible", "metadata",
)  # fmt: skip
# Kept as metadata and read by nothing but people; the data sets that come in this format have them.
TOLD = (
    "source", "licence", "license", "statement", "validated", "cases_complete", "reference_origin", "test_runner",
    "any_answer_accepted", "reference_quirks", "custom_compare", "suspect_tests", "expected_json_type", "split_key",
    "difficulty", "starter_code", "n_cases_upstream", "n_asserts", "assert_kinds", "assemble", "file",
    "default_validator_is_case_insensitive", "tags", "url", "title",
)  # fmt: skip
KEYS = (*USED, *TOLD)
STDIO_KEYS = ("stdin", "expected", "stdin_b64", "expected_b64", "abs", "rel", "held_out", "origin")
TALK_KEYS = ("stdin", "expected", "stdin_b64", "expected_b64", "held_out", "origin")
FUNCTION_KEYS = (
    "args", "kwargs", "expected", "args_py", "kwargs_py", "expected_py", "abs", "rel", "entry_point", "compare",
    "held_out", "origin",
)  # fmt: skip
CHECKER_KEYS = ("kind", "abs", "rel", "case_sensitive", "only_if_expected_is_float", *JUDGE_KEYS)
_KINDS = {"float": "numbers", "floats": "numbers"}


def read(row: Row) -> Problem:
    """The problem of one row; InputError names the place and the field of what does not fit."""
    row.names(KEYS, strict=True)
    language, mode = language_of(row), _mode(row)
    entry, statement = row.text("entry_point"), row.text("statement")
    prompt = row.text("prompt")
    if prompt is None and language == "python" and entry and statement and extract.opens_body(statement, entry):
        prompt = statement
    test_module = row.text("test_module")
    cases = () if mode == "unit_tests" else _cases(row, mode)
    return built(
        row,
        id=row.need("id"),
        mode=mode,
        language=language,
        cases=cases,
        entry_point=entry,
        solution_class=row.text("solution_class"),
        test_code=_test_code(row, language),
        checker=_checker(row, mode),
        interactor=_interactor(row, mode),
        preamble=row.text("preamble", ""),
        prompt=prompt,
        module=read_path(row, "module", row.text("module") or row.text("file") or source_name(language)),
        test_module=read_path(row, "test_module", test_module) if test_module else None,
        appended=row.flag("appended", test_module is None),
        extra_files=read_files(row, "extra_files"),
        reference_solution=row.text("reference_solution"),
        reference_files=read_files(row, "reference_files"),
        impossible=row.flag("impossible", False),
        metadata={**rest(row, *USED), **row.mapping("metadata")},
        **limits_of(row),
    )


def _mode(row: Row) -> str:
    mode = row.text("mode")
    if mode is None:
        if not row.has("cases", "test_code"):
            named = "; test_module is the file name of test_code, not its text" if row.has("test_module") else ""
            row.fail("cases", f"missing; a problem has cases, or test_code{named}")
        mode = "unit_tests" if not row.has("cases") else "function" if row.has("entry_point") else "stdio"
        mode = "interactive" if row.has("interactor") else mode
    if mode not in MODES:
        row.fail("mode", f"{mode!r} is not one of {', '.join(MODES)}")
    return mode


def _cases(row: Row, mode: str) -> tuple[TestCase, ...]:
    items = row.items("cases")
    if not items:
        row.fail("cases", f"mode {mode} needs at least one case")
    return tuple(_case(row, item, f"cases[{n}]", mode) for n, item in enumerate(items))


def _test_code(row: Row, language: str) -> str | None:
    """The tests; ``check(candidate)`` is called where the problem names a function and the source does not."""
    source, entry = row.text("test_code"), row.text("entry_point")
    if source and entry and language == "python" and row.flag("appended", row.text("test_module") is None):
        return pysource.with_call_of_check(source, entry)
    return source


def _case(row: Row, item: Any, place: str, mode: str) -> TestCase:
    if not isinstance(item, dict):
        row.fail(place, f"an object is expected, not {kind_of(item)}")
    known = {"stdio": STDIO_KEYS, "interactive": TALK_KEYS}.get(mode, FUNCTION_KEYS)
    if not item.keys() <= set(known):
        # A data set's columns hold null where a case has no such key.
        item = {key: value for key, value in item.items() if value is not None or key in known}
        Row(item, f"{row.where}: {place}").names(known, strict=True)
    return _call(row, item, place) if mode == "function" else _stdio(row, item, place, mode)


def _stdio(row: Row, item: dict[str, Any], place: str, mode: str) -> TestCase:
    stdin = _bytes(row, item, "stdin", place)
    expected = _bytes(row, item, "expected", place)
    if expected is None and mode == "stdio":
        row.fail(f"{place}.expected", 'missing; if nothing is to be printed, write ""')
    _tolerances(row, item, place)
    return TestCase(
        stdin=stdin or b"", expected=expected or b"", abs=item.get("abs"), rel=item.get("rel"),
        held_out=_held_out(row, item, place),
    )  # fmt: skip


def _held_out(row: Row, item: dict[str, Any], place: str) -> bool:
    value = item.get("held_out")
    if value is not None and not isinstance(value, bool):
        row.fail(f"{place}.held_out", f"true or false is expected, not {kind_of(value)}")
    return bool(value)


def _tolerances(row: Row, item: dict[str, Any], place: str) -> None:
    for name in ("abs", "rel"):
        row.check(lambda name=name: check_tolerance(item.get(name), f"{place}.{name}"))  # type: ignore[misc]


def _bytes(row: Row, item: dict[str, Any], name: str, place: str) -> bytes | None:
    value, packed = item.get(name), item.get(f"{name}_b64")
    if name == "expected" and isinstance(value, int) and not isinstance(value, bool):
        value = _digits(value)  # of all values that are not text, a whole number alone is printed one way
    if value is not None and not isinstance(value, str):
        hint = "; write what is to be printed as text" if name == "expected" else ""
        row.fail(f"{place}.{name}", f"a string is expected, not {kind_of(value)}: {_shown(value)}{hint}")
    if packed is not None:
        try:
            data = base64.b64decode(packed, validate=True)
        except (TypeError, binascii.Error, ValueError):
            row.fail(f"{place}.{name}_b64", "not base64")
        if value is not None and encoded(value) != data:
            row.fail(f"{place}.{name}_b64", f"says something else than {name}; keep one of the two")
        return data
    if value is None:
        return None
    return encoded(value)


def _digits(value: int) -> str:
    return str(value) if abs(value) < 10**4000 else str(Decimal(value))  # Python itself stops at 4300


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):  # a number of more digits than Python turns into text, or no JSON
        return type(value).__name__
    return text if len(text) <= 80 else f"{text[:79]}…"


def _call(row: Row, item: dict[str, Any], place: str) -> TestCase:
    def value(name: str, default: Any) -> Any:
        source = item.get(f"{name}_py")
        if source is None:
            return item.get(name, default)
        if not isinstance(source, str):
            row.fail(f"{place}.{name}_py", f"a string is expected, not {kind_of(source)}")
        found = row.check(lambda: pysource.literal(source), f"{place}.{name}_py")
        if (other := item.get(name)) is not None and not _may_stand_for(other, found):
            row.fail(f"{place}.{name}_py", f"says something else than {name}; keep one of the two")
        return found

    if "expected" not in item and item.get("expected_py") is None:
        row.fail(f"{place}.expected", "missing; if None is the right result, write null")
    args, kwargs = value("args", ()), value("kwargs", {})
    args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
    if not isinstance(args, list | tuple):
        row.fail(f"{place}.args", f"a list of the arguments is expected, not {kind_of(args)}")
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        row.fail(f"{place}.kwargs", "an object of the arguments by name is expected")
    compare, entry = item.get("compare") or "equal", item.get("entry_point")
    expected = value("expected", None)
    if compare not in ("equal", "truth") or (compare == "truth" and not isinstance(expected, bool)):
        row.fail(f"{place}.compare", "'equal', or 'truth' with an expected value of true or false")
    if entry is not None and not isinstance(entry, str):
        row.fail(f"{place}.entry_point", f"a string is expected, not {kind_of(entry)}")
    _tolerances(row, item, place)
    return TestCase(
        args=tuple(args),
        kwargs=kwargs,
        expected=expected,
        entry_point=entry,
        abs=item.get("abs"),
        rel=item.get("rel"),
        exact_types=True,  # a tuple would have been written as a literal, so a list in JSON is a list
        compare="truth" if compare == "truth" else "equal",
        held_out=_held_out(row, item, place),
    )


def _may_stand_for(data: Any, value: Any) -> bool:
    """JSON data may be a Python value, as far as JSON has words: data sets hold both, one of them the poorer.

    Lists stand for tuples and, in any order, for sets, keys are text, and numbers lose digits.
    """
    waiting = [(data, value)]
    while waiting:
        a, b = waiting.pop()
        if isinstance(b, complex | bytes) or (isinstance(b, float) and not math.isfinite(b)):
            continue  # JSON has no word for it
        if isinstance(b, bool) or b is None or isinstance(b, str):
            same = type(a) is type(b) and a == b
        elif isinstance(b, int | float):
            same = isinstance(a, int | float) and not isinstance(a, bool) and (a == b or _near(a, b))
        elif isinstance(b, dict):
            same = isinstance(a, dict) and len(a) == len(b)
            if same and all(isinstance(key, str) for key in b):
                same = a.keys() == b.keys()
                waiting += [(a[key], b[key]) for key in b if same]
        else:
            same = isinstance(a, list) and len(a) == len(b)
            waiting += zip(a, b, strict=True) if same and isinstance(b, list | tuple) else ()
        if not same:
            return False
    return True


def _near(a: float, b: float) -> bool:
    try:
        return math.isclose(a, b, rel_tol=1e-9)
    except OverflowError:  # an int that no float holds
        return False


def _checker(row: Row, mode: str) -> CheckerSpec:
    default = "value" if mode == "function" or mode == "unit_tests" else "tokens"
    given = row.data.get("checker")
    if mode == "interactive" and given is not None:
        row.fail("checker", "the interactor judges this problem; leave the checker out")
    if given is None:
        return CheckerSpec(kind=default)  # type: ignore[arg-type]
    if isinstance(given, str):
        given = {"kind": given}
    if not isinstance(given, dict):
        row.fail("checker", f"an object is expected, not {kind_of(given)}")
    inner = Row(given, f"{row.where}: field 'checker'")
    inner.names(CHECKER_KEYS, strict=True)
    kind = inner.text("kind", default) or default
    kind = _KINDS.get(kind, kind)
    if mode != "stdio" and kind in ("numbers", "value"):
        kind = "value"
    elif mode != "stdio" and kind != "program":
        row.fail("checker.kind", f"{kind!r} compares printed text; mode {mode} takes 'value' or 'float'")
    elif mode == "stdio" and kind == "value":
        row.fail("checker.kind", "'value' compares function results, not printed text")
    if kind != "program" and inner.has(*JUDGE_KEYS):
        given_key = next(key for key in JUDGE_KEYS if inner.has(key))
        inner.fail(given_key, f"only a checker of kind 'program' has it, not {kind!r}")
    program = read_judge(inner, row.base) if kind == "program" else None
    if kind not in ("tokens", "numbers") and mode == "stdio":
        for number, case in enumerate(row.items("cases")):
            if isinstance(case, dict) and (case.get("abs") is not None or case.get("rel") is not None):
                row.fail(f"cases[{number}].abs", f"a checker of kind {kind!r} has no tolerance")
    cased = not row.flag("default_validator_is_case_insensitive", False)
    return inner.check(
        lambda: CheckerSpec(
            kind=kind,  # type: ignore[arg-type]
            abs=given.get("abs"),
            rel=given.get("rel"),
            case_sensitive=inner.flag("case_sensitive", cased),
            only_if_expected_is_float=inner.flag("only_if_expected_is_float", False),
            program=program,
        )
    )


def _interactor(row: Row, mode: str) -> CheckerProgram | None:
    given = row.data.get("interactor")
    if given is None:
        return None
    if mode != "interactive":
        row.fail("interactor", f"mode {mode} has none; write mode interactive")
    if not isinstance(given, dict):
        row.fail("interactor", f"an object is expected, not {kind_of(given)}")
    inner = Row(given, f"{row.where}: field 'interactor'")
    inner.names(JUDGE_KEYS, strict=True)
    if (inner.text("protocol") or "").lower().startswith("codeforces"):
        inner.fail("protocol", "'codeforces' has no interactors; use testlib or kattis")
    return read_judge(inner, row.base)
