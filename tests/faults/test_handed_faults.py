"""The handed list of faults, where it is there: each has a test in this folder, and its program the right verdict."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fault_help import counts_exactly, graded

from handed import handed
from proctor.core.errors import InputError
from proctor.core.verdict import Verdict
from proctor.engine.languages import language
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import CheckerSpec, Problem, TestCase

OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR
LATE, OUTPUT, MEMORY = Verdict.TIME_LIMIT, Verdict.OUTPUT_LIMIT, Verdict.MEMORY_LIMIT

# The verdicts that are right for each case; one stands for all of them.
RIGHT: dict[str, tuple[Verdict, ...]] = {
    "F02": (OK,) * 10 + (WRONG,) * 2,
    "F03": (WRONG,),
    "F06": (WRONG,),
    "F07": (WRONG,),
    "F09": (WRONG, OK),
    "F10": (WRONG,),
    "F11": (CRASH,),
    "F13": (OK, OK, WRONG),
    "F14": (OK,),
    "F15": (OK,),
    "F16": (OK,),
    "F17": (OK,),
    "F18": (OK,),
    "F23": (OK,),
    "F24": (OK,),
    "F25": (OK,),
    "F26": (OK,),
    "F27": (OK,),
    "F28": (OK,),
    "F29": (OK,),
    "F30": (OK,),
    "F31": (OK,),
    "F32": (CRASH,),
    "F33": (MEMORY,),
    "F37": (OK,),  # nobody kills anything here
    "F40": (LATE,),
    "F43": (OK,),
    "F46": (OUTPUT,),
    "F49": (OK,),
    "F51": (OK,),  # as python3 itself has it: its worker fails, and the program prints 7 all the same
    "F52": (OK, WRONG),
    "F54": (OK,),
    "F61": (CRASH,),  # 64 processes at most, where they are counted exactly
    "F65": (OK,),  # bash reads the script itself: its first line is a comment
}
# Where the list gives a Python expression, which is not evaluated here.
EXPECTED = {
    "F16": b"1" + b"0" * 5000 + b"\n",
    "F23": b"".join(b"%d\n" % (n * n) for n in range(90_000)),
    "F25": b"x" * 1_000_000 + b"\n",
}
LANGUAGES = {"F30": "javascript", "F65": "bash"}


def rows() -> dict[str, dict[str, Any]]:
    lines = (handed("faults") / "faults.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def test_every_fault_has_a_test_here() -> None:
    found: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found |= set(re.findall(r"^(F\d\d): ", ast.get_docstring(node) or ""))
    assert rows().keys() <= found


def problem_of(row: dict[str, Any]) -> Problem:
    """The problem that the tests of a row are; those without an expected value are notes to a reader."""
    name, more = row["id"], {}
    cases: list[TestCase] = []
    for test in row["tests"]:
        expected = EXPECTED.get(name, str(test.get("expected")).encode())
        if "call" in test:
            call = ast.parse(test["call"], mode="eval").body
            assert isinstance(call, ast.Call)
            arguments = tuple(ast.literal_eval(argument) for argument in call.args)
            entry = ast.unparse(call.func)
            cases.append(TestCase(args=arguments, expected=test["expected"], entry_point=entry))
            more = {"mode": "function", "checker": CheckerSpec(kind="value")}
        elif "stdin" in test and ("expected" in test or name in EXPECTED):
            cases.append(TestCase(stdin=test["stdin"].encode(), expected=expected))
        if "tolerance" in test:
            more["checker"] = CheckerSpec(kind="numbers", abs=test["tolerance"])
    known = {"id": name, "mode": "stdio", "cases": tuple(cases), "language": LANGUAGES.get(name, "python")}
    return Problem(**{**known, "time_limit_s": 2, "memory_limit_mib": 512, **more})


@pytest.mark.parametrize("name", RIGHT)
def test_the_program_of_a_fault_gets_the_right_verdict(engine: SyncEngine, name: str) -> None:
    row = rows()[name]
    problem = problem_of(row)
    try:
        language(problem.language)
    except InputError as error:
        pytest.skip(str(error))
    limits = {"wall_s": 1} if name == "F40" else {"output_bytes": 4 << 20} if name == "F46" else None
    found = graded(engine, row["program"], problem, limits=limits)
    verdicts = tuple(case.verdict for case in found.cases)
    right = RIGHT[name] if name != "F61" or counts_exactly(engine) else (WRONG,)
    assert verdicts == (right * len(verdicts) if len(right) == 1 else right), found


def test_no_simple_fault_is_left_out() -> None:
    """What the table above lacks has no program to grade, or another kind of test."""
    left = {name for name, row in rows().items() if name not in RIGHT}
    simple = {name for name in left if all("stdin" in test and "expected" in test for test in rows()[name]["tests"])}
    assert simple <= {"F12", "F35"}  # a sentence for a program; an input of megabytes
