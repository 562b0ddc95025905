"""Test files of sealed unit tests: pytest's and unittest's features, and faults of a file's own."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import Problem

pytestmark = pytest.mark.environments
OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


def test_pytest_files(engine: SyncEngine) -> None:
    tests = """
import pytest
from solution import half, Empty
@pytest.fixture
def four():
    return 4
@pytest.fixture
def kept():
    yield [1]
@pytest.mark.parametrize("n, want", [(2, 1), (4, 2), pytest.param(6, 3, id="six")])
def test_half(n, want):
    assert half(n) == want
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("m", [1, 3])
def test_odd(n, m):
    with pytest.raises(ValueError, match="odd"):
        half(n * m)
def test_fixture(four, kept):
    assert half(four) == pytest.approx(2.0000001) and kept == [1]
class TestMore:
    def setup_method(self):
        self.n = 8
    def test_eight(self):
        assert half(self.n) == 4
def test_lists():
    assert [0.1 + 0.2, half(2)] == pytest.approx([0.3, 1])
    with pytest.raises(Empty):
        half(None)
"""
    program = """
class Empty(Exception): pass
def half(n):
    if n is None: raise Empty
    if n % 2: raise ValueError("odd number")
    return n // 2
"""
    found = passes(engine, program, tests, module=True)
    assert {case.name for case in found.cases} >= {
        "test_half[2]",
        "test_odd[1-0]",
        "test_fixture",
        "TestMore.test_eight",
    }
    wrong = run(engine, program.replace("n // 2", "1"), tests, module=True)
    assert [case.name for case in wrong.cases if case.verdict is WRONG] == [
        "test_half[1]", "test_half[2]", "test_fixture", "TestMore.test_eight",
    ]  # fmt: skip


# ---------------------------------------------------------------- test files with faults of their own


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("def test_x(:\n    pass", "not Python: line 1"),
        (
            "import unittest\n@unittest.skip('x')\nclass T(unittest.TestCase):\n    def test_a(self): assert f()",
            "no test",
        ),
        (
            "import unittest\nclass T(unittest.TestCase):\n    @unittest.skip('x')\n    def test_a(self): assert f()",
            "no test",
        ),
        ("import pytest\n@pytest.mark.skip\ndef test_a():\n    assert f()", "no test"),
    ],
)
def test_files_that_test_nothing_are_refused(tests: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Problem(id="p", mode="unit_tests", test_code=tests)
    with pytest.raises(ValueError, match=r"mysol.py"):
        Problem(id="p", mode="unit_tests", test_code="assert f()", module="mysol")


def test_what_the_test_file_lacks_here_is_nobodys_wrong_answer(engine: SyncEngine) -> None:
    for tests, lack in (
        ("import not_installed_here\nassert f() == 1", "not_installed_here"),
        ("def test_x():\n    import not_installed_here.deep\n    assert f() == 1", "not_installed_here"),
        ("def test_x(recwarn):\n    assert f() == 1", "recwarn"),
        (
            "import unittest\n@unittest.skipIf(True, 'here')\nclass T(unittest.TestCase):\n    def test_a(self): assert f()",
            "skipped all",
        ),
    ):
        found = run(engine, "def f(): return 1", tests)
        assert (found.verdict, found.reward) == (Verdict.INFRASTRUCTURE_ERROR, None), tests
        assert lack in (found.error or "")


def test_a_program_cannot_say_that_the_tests_lack_something(engine: SyncEngine) -> None:
    lies = """
class F(ImportError):
    def __init__(self, *args): super().__init__("x", name="numpy")
def f(): raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
def g(): raise F()
import numpy_that_is_not_there as numpy
"""
    for program in (lies, lies.rpartition("import")[0], "import os\ndef f(): import numpy_not_there", "x = 1"):
        for tests in (
            "def test_x():\n    assert f() == 1",
            "assert f() == 1",
            "from solution import missing\nassert f()",
            "g()\nassert f()",
        ):
            assert run(engine, program, tests).reward == 0.0


def test_marks_of_pytest(engine: SyncEngine) -> None:
    tests = """
import pytest
def test_plain():
    assert f() == 1
@pytest.mark.skip(reason="later")
def test_skipped():
    assert f() == 2
@pytest.mark.skipif(True, reason="never here")
def test_not_here():
    assert f() == 2
@pytest.mark.xfail
def test_known():
    assert f() == 2
@pytest.mark.slow
def test_marked():
    assert f() == 1
"""
    found = passes(engine, "def f(): return 1", tests)
    assert [case.name for case in found.cases] == ["test_plain", "test_marked"]
    assert run(engine, "def f(): return 5", tests).reward == 0.0


def test_what_a_failed_test_said(engine: SyncEngine) -> None:
    tests = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(), 2)"
    for program, said in (
        ("def f(): return 1", "AssertionError: 1 != 2"),
        ("def f(): raise KeyError('no')", "KeyError: 'no'"),
    ):
        (case,) = run(engine, program, tests).cases
        assert case.detail == said


def test_rows_that_do_not_fit_fail_their_test_alone(engine: SyncEngine) -> None:
    tests = "import pytest\n@pytest.mark.parametrize('a, b', [(1, 2, 3)])\ndef test_x(a, b): assert f() == 1\ndef test_y(): assert f() == 1\n"
    found = run(engine, "def f(): return 1", tests)
    assert [case.verdict for case in found.cases] == [WRONG, OK]
