"""Data sets of inputs and outputs: APPS, TACO, PRIME; LiveCodeBench; verification_info.

What an input or output means when it is not text:

* programs: a list is its lines; a number or a bool is what Python prints
  for it (``12``, ``True``).
* functions whose inputs are text: one JSON argument a line, and the output is
  JSON of the result.
* functions whose inputs are lists: the list holds the arguments, and the
  output is the result. Where every output of a problem is a list of exactly
  one item, that item is the result: APPS wraps the results of some sources.
* functions: an object whose keys all look like whole numbers has whole numbers
  as keys, as upstream reads it.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import re
import zlib
from typing import Any

from proctor.grading.formats import asserts, rows
from proctor.grading.formats.common import (
    ID_KEYS,
    LIMIT_KEYS,
    TOLD_LIMITS,
    built,
    id_of,
    language_of,
    rest,
    text_lines,
    told_limits,
)
from proctor.grading.formats.prelude import prelude
from proctor.grading.formats.rows import Row, kind_of
from proctor.grading.problem import CheckerSpec, Problem, TestCase

APPS_KEYS = (
    *ID_KEYS, *LIMIT_KEYS, *TOLD_LIMITS, "preamble", "language", "input_output", "ground_truth", "reward_model", "inputs", "outputs",
    "fn_name", "assert_case", "question", "solutions", "starter_code", "difficulty", "url", "prompt", "data_source",
    "extra_info", "ability", "raw_tags", "name", "source", "tags", "skill_types", "date", "picture_num",
    "Expected Auxiliary Space", "Expected Time Complexity",
)  # fmt: skip
LCB_KEYS = (
    *LIMIT_KEYS, *TOLD_LIMITS, "preamble", "question_title", "question_content", "platform", "question_id", "contest_id", "contest_date",
    "starter_code", "difficulty", "public_test_cases", "private_test_cases", "metadata", "language",
)  # fmt: skip
INFO_KEYS = (
    *ID_KEYS,
    *LIMIT_KEYS,
    *TOLD_LIMITS,
    "preamble",
    "verification_info",
    "prompt",
    "source",
    "task_type",
    "gold_standard_solution",
    "metadata",
)
MAX_UNPACKED = 1 << 30  # bytes of one problem's private tests


def read_apps(row: Row, fallback: str) -> Problem:
    """``{"inputs", "outputs", "fn_name"?}`` as the row, or under input_output, ground_truth or reward_model.ground_truth."""
    row.names(APPS_KEYS, strict=False)
    tests = row
    if row.has("reward_model") and not row.has("input_output", "ground_truth", "inputs"):
        tests = Row(row.mapping("reward_model"), f"{row.where}: field 'reward_model'")
    for name in ("input_output", "ground_truth"):
        if tests.has(name):
            if tests.data[name] == "":
                tests.fail(name, "empty: the row has no tests, so nothing can be judged; leave it out")
            tests = Row(tests.json(name), f"{row.where}: field {name!r}")
            break
    solutions = row.json("solutions") if row.first("solutions") not in (None, "") else None  # "": it has none
    reference = solutions[0] if isinstance(solutions, list) and solutions and isinstance(solutions[0], str) else None
    used = (
        "input_output",
        "ground_truth",
        "inputs",
        "outputs",
        "fn_name",
        "assert_case",
        "solutions",
        "preamble",
        *LIMIT_KEYS,
    )
    return _paired(row, tests, id_of(row, fallback), reference_solution=reference, metadata=rest(row, *used))


def _paired(row: Row, tests: Row, name: str, **fields: Any) -> Problem:
    if lines := tests.items("assert_case"):
        source = "\n".join(map(str, lines)) + "\n"
        entry = tests.text("fn_name") or asserts.first_call(source)
        cases = asserts.cases_of(source, [entry] if entry else [])
        mode = "function" if cases else "unit_tests"
        return _problem(row, name, mode, cases or (), entry, test_code=source, **fields)
    inputs, outputs = tests.items("inputs"), tests.items("outputs")
    if not inputs:
        tests.fail("inputs", "missing or empty; a problem needs at least one case")
    if len(inputs) != len(outputs):
        tests.fail("outputs", f"{len(outputs)} of them for {len(inputs)} inputs")
    function = tests.text("fn_name")
    pairs = list(zip(inputs, outputs, strict=True))
    cases = _calls(tests, pairs) if function else _texts(tests, pairs)
    return _problem(row, name, "function" if function else "stdio", cases, function, **fields)


def _problem(
    row: Row, name: str, mode: str, cases: tuple[TestCase, ...], function: str | None, **fields: Any
) -> Problem:
    limits, notes = told_limits(row, calls=mode != "stdio")
    usual = prelude(function) if mode == "function" and function else ""
    return built(
        row,
        notes=notes,
        id=name,
        mode=mode,
        cases=cases,
        entry_point=function,
        solution_class="Solution" if function and "." not in function else None,
        preamble=row.text("preamble", usual),
        checker=CheckerSpec(kind="tokens" if mode == "stdio" else "value"),
        **fields,
        **limits,
    )


def _texts(row: Row, pairs: list[tuple[Any, Any]]) -> tuple[TestCase, ...]:
    return tuple(
        TestCase(stdin=text_lines(row, given, f"inputs[{n}]"), expected=text_lines(row, wanted, f"outputs[{n}]"))
        for n, (given, wanted) in enumerate(pairs)
    )


def _calls(row: Row, pairs: list[tuple[Any, Any]]) -> tuple[TestCase, ...]:
    wrapped = all(isinstance(wanted, list) and len(wanted) == 1 for _, wanted in pairs)
    found = []
    for n, (given, wanted) in enumerate(pairs):
        if isinstance(given, str):
            args = [_json(row, line, f"inputs[{n}]") for line in given.split("\n") if line.strip()]
            result = _json(row, wanted, f"outputs[{n}]") if isinstance(wanted, str) else wanted
        elif isinstance(given, list):
            args, result = given, wanted
        else:
            row.fail(f"inputs[{n}]", f"a list of the arguments is expected, not {kind_of(given)}")
        if wrapped:
            result = result[0]
        found.append(TestCase(args=tuple(map(_whole_keys, args)), expected=_whole_keys(result)))
    return tuple(found)


def _json(row: Row, text: str, field: str) -> Any:
    try:
        return rows.loads(text)
    except ValueError as error:
        row.fail(field, f"not JSON: {error}")


def _whole_keys(value: Any) -> Any:
    if isinstance(value, dict) and value and all(re.fullmatch(r"-?\d{1,4000}", key) for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def read_livecodebench(row: Row) -> Problem:
    """Public and private tests, ``[{"input", "output", "testtype"}]``; private ones may be packed."""
    row.names(LCB_KEYS, strict=False)
    tests = [*_listed(row, "public_test_cases"), *_listed(row, "private_test_cases")]
    if not tests:
        row.fail("public_test_cases", "no test cases, public or private")
    info = row.json("metadata") if row.has("metadata") else {}
    function = info.get("func_name") if isinstance(info, dict) else None
    kinds = {test.get("testtype") for test in tests}
    if not kinds <= {"stdin", "functional"} or len(kinds) != 1:
        row.fail("testtype", f"all 'stdin' or all 'functional' are expected, not {sorted(map(str, kinds))}")
    if kinds == {"functional"} and not isinstance(function, str):
        row.fail("metadata", "functional tests need func_name")
    for n, test in enumerate(tests):
        if not isinstance(test.get("input"), str) or not isinstance(test.get("output"), str):
            row.fail(f"test {n}", "input and output must be strings")
    pairs = [(test["input"], test["output"]) for test in tests]
    functional = kinds == {"functional"}
    cases = _calls(row, pairs) if functional else _texts(row, pairs)
    used = ("public_test_cases", "private_test_cases", "preamble", *LIMIT_KEYS)
    name, mode = id_of(row), "function" if functional else "stdio"
    return _problem(row, name, mode, cases, function if functional else None, metadata=rest(row, *used))


def _listed(row: Row, name: str) -> list[dict[str, Any]]:
    value = row.data.get(name)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        text: str = value
        value = row.check(lambda: rows.loads(text if text.lstrip()[:1] in ("[", "{") else unpack(text)), name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        row.fail(name, f"a list of objects is expected, not {kind_of(value)}")
    return value


def unpack(packed: str) -> str:
    """The text in LiveCodeBench's packing: base64 of zlib of a pickled string.

    The pickle is read, never run: only one that consists of a single string is
    taken. ValueError for anything else.
    """
    try:
        data = base64.b64decode(packed, validate=True)
        stream = zlib.decompressobj()
        raw = stream.decompress(data, MAX_UNPACKED)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise ValueError(f"not base64 of zlib data: {error}") from None
    if not stream.eof:
        raise ValueError(f"the packed tests are cut off, or larger than {MAX_UNPACKED} bytes")
    return pickled_text(raw)


_STRINGS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE")
_FRAMING = ("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT")


def pickled_text(data: bytes) -> str:
    """The string in a pickle that holds one string and nothing else; ValueError for any other."""
    text: str | None = None
    end = 0
    try:
        for code, argument, position in pickletools.genops(data):
            if code.name in _STRINGS and text is None and isinstance(argument, str):
                text = argument
            elif code.name == "STOP" and position is not None:
                end = position + 1
            elif code.name not in _FRAMING:
                raise ValueError(f"{code.name} is not part of a pickled string")
    except Exception as error:  # genops reports junk with whatever its struct and int calls raise
        raise ValueError(f"not the pickle of one string: {error}") from None
    if text is None or end != len(data):
        raise ValueError("not the pickle of one string")
    return text


def read_verification_info(row: Row, fallback: str) -> Problem:
    """``verification_info`` of open-r1 and PrimeIntellect, as data, JSON or a Python literal."""
    row.names(INFO_KEYS, strict=False)
    info = Row(row.json("verification_info"), f"{row.where}: field 'verification_info'")
    language = language_of(info)
    common: dict[str, Any] = {
        "language": language,
        "reference_solution": row.text("gold_standard_solution"),
        "metadata": rest(row, "verification_info", "preamble", *LIMIT_KEYS),
    }
    name = id_of(row, fallback)
    if info.has("inputs") and not info.has("test_cases"):
        return _paired(row, info, name, **common)
    tests = info.json("test_cases")
    if not isinstance(tests, list) or not tests or not all(isinstance(test, dict) for test in tests):
        info.fail("test_cases", "a list of objects is expected, with at least one")
    functions = {test.get("fn_name") or info.first("fn_name") for test in tests}
    if len(functions) != 1:
        info.fail("test_cases", "all cases are expected to name the same fn_name, or none")
    for n, test in enumerate(tests):
        for key in ("input", "output"):
            if key not in test:
                info.fail(f"test_cases[{n}].{key}", "missing")
    function = functions.pop()
    pairs = [(test["input"], test["output"]) for test in tests]
    cases = _calls(info, pairs) if function else _texts(info, pairs)
    return _problem(row, name, "function" if function else "stdio", cases, function, **common)
