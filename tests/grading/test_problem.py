"""What a problem may be."""

from __future__ import annotations

import math
import pickle

import pytest

from proctor.core.errors import InputError
from proctor.grading.problem import CheckerProgram, CheckerSpec, Problem, TestCase

CASE = TestCase(stdin=b"1\n", expected=b"1\n")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": ""}, "id"),
        ({"mode": "batch"}, "mode"),
        ({"cases": ()}, "cases"),
        ({"cases": (TestCase(expected="1"),)}, "cases[0]"),
        ({"time_limit_s": math.nan}, "time_limit_s"),
        ({"time_limit_s": math.inf}, "time_limit_s"),
        ({"time_limit_s": True}, "time_limit_s"),
        ({"time_limit_s": 0}, "time_limit_s"),
        ({"memory_limit_mib": -1}, "memory_limit_mib"),
        ({"mode": "unit_tests"}, "test_code"),
        ({"mode": "function"}, "entry_point"),
        *[({"mode": "function", "entry_point": name}, "entry_point") for name in ("f ", "f()", "a-b", "a..b", "class")],
    ],
)
def test_what_does_not_fit_is_named(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Problem(**{"id": "p", "mode": "stdio", "cases": (CASE,), **fields})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, True, "1e-6"])
def test_tolerances_are_finite_numbers(value: object) -> None:
    with pytest.raises(InputError, match=r"checker\.abs"):
        CheckerSpec(kind="numbers", abs=value)  # type: ignore[arg-type]


def test_a_special_judge_has_its_program() -> None:
    with pytest.raises(InputError, match="program"):
        CheckerSpec(kind="program")
    assert CheckerSpec(kind="program", program=CheckerProgram(source="x")).program is not None


def test_problems_travel_to_other_processes() -> None:
    problem = Problem(id="p", mode="stdio", cases=(CASE,), metadata={"a": [1]})
    assert pickle.loads(pickle.dumps(problem)) == problem
