"""Odd numbers and odd bytes: what each kind of checker says of them, and tolerances of single cases."""

from __future__ import annotations

from typing import Any

import pytest
from fake_engine import FakeEngine, each, ran

import proctor
from proctor.core.errors import InputError
from proctor.core.verdict import Verdict
from proctor.grading.checker_names import parse_checker
from proctor.grading.formats import problems_from_rows
from proctor.grading.problem import CheckerSpec, Problem, TestCase

LONG = b"7" * 100_000


@pytest.mark.parametrize(
    ("spec", "output", "expected", "ok"),
    [
        # nan and inf are words: equal to themselves, near to nothing
        ("numbers", b"nan", b"nan", True),
        ("numbers", b"NaN", b"nan", False),
        ("numbers:case=no", b"NaN", b"nan", True),
        ("numbers", b"-nan", b"nan", False),
        ("numbers", b"nan", b"0", False),
        ("numbers:abs=1e300", b"nan", b"1", False),
        ("numbers", b"inf", b"inf", True),
        ("numbers", b"-inf", b"inf", False),
        ("numbers:rel=1", b"inf", b"1", False),
        ("numbers", b"Infinity", b"inf", False),
        ("rcmp6", b"nan", b"nan", False),  # testlib reads no nan
        ("rcmp6", b"inf", b"inf", False),
        # zeros and ends of the range of doubles
        ("numbers:abs=0", b"-0", b"0", True),
        ("numbers:abs=0", b"-0.0", b"0", True),
        ("tokens", b"-0", b"0", False),
        ("icmp", b"-0", b"0", False),
        ("numbers", b"1e-400", b"0", True),
        ("numbers:abs=0", b"1e-400", b"0", False),
        ("numbers", b"1e400", b"1e400", True),
        ("numbers", b"1.0000001e400", b"1e400", True),
        ("numbers", b"1.1e400", b"1e400", False),
        ("numbers", b"1e400", b"inf", False),
        ("numbers", b"1e400", b"1e401", False),
        ("numbers:abs=0", b"1" + b"0" * 400, b"1e400", True),
        ("numbers", b"1e999999999999999999999", b"1e999999999999999999999", True),  # the same word
        ("numbers", b"1e999999999999999999999", b"2e999999999999999999999", False),
        # 100,000 digits
        ("numbers", LONG, LONG, True),
        ("numbers:abs=0.5", LONG[:-1] + b"8", LONG, False),
        ("numbers:abs=1", LONG[:-1] + b"8", LONG, True),
        ("numbers:rel=1e-9", LONG[:-1] + b"8", LONG, True),
        ("hcmp", LONG, LONG, True),
        ("hcmp", b"0" + LONG, LONG, False),
        ("tokens", LONG[:-1], LONG, False),
        # line ends, a byte-order mark, NUL, what is not UTF-8
        ("tokens", b"1\r\n2\r\n", b"1\n2\n", True),
        ("lines", b"1 \r\n2\r\n\r\n", b"1\n2\n", True),
        ("lines:blanks=keep", b"1\r\n2\r\n", b"1\n2\n", True),
        ("exact", b"1\r\n", b"1\n", False),
        ("tokens", b"\xef\xbb\xbf1", b"1", False),
        ("numbers", b"\xef\xbb\xbf1", b"1", False),
        ("tokens", b"1\0", b"1", False),
        ("tokens", b"1\0 2", b"1 2", False),
        ("numbers", b"1\0", b"1", False),
        ("lines", b"1\0\n", b"1", False),
        ("tokens", b"\xff\xfe", b"\xff\xfe", True),
        ("tokens", b"\xff", b"\xfe", False),
        ("tokens:case=no", b"\xc3\x84", b"\xc3\xa4", False),  # A-Z alone are folded
        # a right start is wrong; blanks by rule
        ("tokens", b"1 2", b"1 2 3", False),
        ("tokens", b"1 2 3 4", b"1 2 3", False),
        ("numbers", b"1.5", b"1.5 2", False),
        ("lines", b"a\nb", b"a\nb\nc", False),
        ("exact", b"ab", b"abc", False),
        ("unordered_tokens", b"1 2", b"1 2 3", False),
        ("unordered_lines", b"a\nb\nb", b"a\nb", False),
        ("tokens", b" 1\n\n\t2  ", b"1 2", True),
        ("lines", b"a \t\n\n\n", b"a", True),
        ("lines", b"a\n\nb", b"a\nb", False),
        ("lines", b" a", b"a", False),
        ("lines:blanks=squeeze", b" a  b\t\n\n", b"a b", True),
        ("lines:blanks=keep", b"a \n", b"a\n", False),
        ("lines:blanks=keep", b"a\n  \n\t", b"a\n", True),  # as in testlib's fcmp
        ("exact", b"a\n\n", b"a\n", False),
        # yes and no
        ("yesno", b"yes", b"YES", True),
        ("yesno", b"Yes\n", b"yes", True),
        ("yesno", b"y", b"YES", False),
        ("yesno", b"yes no", b"YES", False),
        ("nyesno", b"yes NO", b"YES no", True),
        ("tokens", b"yes", b"YES", False),
    ],
)
def test_odd_outputs(spec: str, output: bytes, expected: bytes, ok: bool) -> None:
    assert parse_checker(spec)(output, expected).ok is ok


# ---------------------------------------------------------------- tolerances of single cases


def stdio(*cases: TestCase, **checker: Any) -> Problem:
    return Problem(id="p", mode="stdio", cases=cases, checker=CheckerSpec(**checker))


def verdicts(problem: Problem, output: bytes, **options: Any) -> list[bool]:
    engine = FakeEngine(each(lambda case: ran(output)))
    (found,) = proctor.grade(["print(1)"], problem, engine=engine, **options)
    engine.close()
    return [case.verdict is Verdict.ACCEPTED for case in found.cases]


def test_a_case_may_have_tolerances_of_its_own() -> None:
    cases = [
        TestCase(expected=b"1.0"),
        TestCase(expected=b"1.0", abs=0.1),
        TestCase(expected=b"1.0", rel=0.01),
        TestCase(expected=b"1.0", abs=0.0),
    ]
    assert verdicts(stdio(*cases), b"1.05") == [False, True, False, False]
    assert verdicts(stdio(*cases, kind="numbers", abs=0.5), b"1.05") == [True, True, False, False]
    assert verdicts(stdio(*cases, kind="numbers", abs=0.5), b"1.00") == [True] * 4
    assert verdicts(stdio(*cases), b"1.05", checker="numbers:abs=0.2") == [True] * 4  # another checker judges all


def test_tolerances_in_problem_files() -> None:
    row = {"id": "p", "cases": [{"expected": "1.0", "abs": 0.1}, {"expected": "1.0"}], "checker": "numbers"}
    (problem,) = problems_from_rows([row])
    assert verdicts(problem, b"1.05") == [True, False]
    with pytest.raises(InputError, match=r"cases\[0\].abs"):
        problems_from_rows([{**row, "cases": [{"expected": "1.0", "abs": -1}]}])
    with pytest.raises(InputError, match=r"cases\[0\].abs.*'lines' has no tolerance"):
        problems_from_rows([{**row, "checker": "lines"}])


def test_yes_and_no_in_any_case_in_problem_files() -> None:
    row = {"id": "p", "cases": [{"expected": "YES"}], "checker": {"kind": "tokens", "case_sensitive": False}}
    (problem,) = problems_from_rows([row])
    assert verdicts(problem, b"yes\n") == [True]
    assert verdicts(problem, b"yes yes\n") == [False]
