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


PYTEST = """
import pytest
from solution import f
state = {"calls": []}
def setup_module(module):
    state["module"] = 7
    assert module.f is f
def teardown_module(): state["calls"].append("end")
def setup_function(function): state["name"] = function.__name__
def teardown_function(): state["name"] = ""
@pytest.fixture(autouse=True)
def fill(): state["k"] = 4
@pytest.fixture(name="five")
def make_five(): return 5
@pytest.fixture
def pair(five): return [five, five]
def test_module(): assert f(state["module"]) == 7 and state["name"] == "test_module"
def test_auto(): assert f(state["k"]) == 4
def test_once(pair, five, *, same="x"):
    pair.append(five)
    assert f(len(pair)) == 3 and same == "x"
@pytest.mark.usefixtures("pair")
def test_uses(): assert f(1) == 1
class TestX:
    @classmethod
    def setup_class(cls): cls.n = 3
    def teardown_class(cls): state["calls"].append("class")
    def setup_method(self, method): self.name = method.__name__
    def teardown_method(self): state["calls"].append(self.name)
    @pytest.fixture
    def own(self): return self.n + 1
    def test_class(self): assert f(self.n) == 3 and self.name == "test_class"
    def test_own(self, own, five): assert f(own) == 4 and f(five) == 5
    @pytest.mark.parametrize("a, b", [(1, 1), pytest.param(2, 2, id="two")])
    def test_rows(self, a, b): assert f(a) == b
    @staticmethod
    def test_static(): assert f(1) == 1
    class TestInner:
        def test_inner(self): assert f(2) == 2
@pytest.mark.parametrize("n", [1, 2])
class TestRows:
    def test_a(self, n): assert f(n) == n
@pytest.mark.skip
class TestNever:
    def test_a(self): assert f(1) == 2
@pytest.mark.xfail
class TestKnown:
    def test_a(self): assert f(1) == 2
def test_end():
    rows = ["test_class", "test_own", "test_rows", "test_rows", "test_static", "class"]
    assert state["calls"] == rows and state["name"] == "test_end" and f(1) == 1
"""
UNITTEST = """
import unittest
from solution import f
made = []
def setUpModule(): made.append(1)
class T(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.n = f(3)
    def setUp(self): self.m = f(4)
    def tearDown(self): self.m = None
    def test_a(self): self.assertEqual((self.n, self.m, made), (3, 4, [1]))
    @unittest.expectedFailure
    def test_known(self): self.assertEqual(f(1), 2)
    @unittest.skip("later")
    def test_later(self): self.assertEqual(f(1), 2)
@unittest.skip("all")
class U(unittest.TestCase):
    def test_b(self): self.assertEqual(f(1), 2)
"""


def test_setup_fixtures_and_marks_of_pytest(engine: SyncEngine) -> None:
    found = passes(engine, "def f(x): return x", PYTEST, module=True)
    assert [case.name for case in found.cases] == [
        "test_module", "test_auto", "test_once", "test_uses", "TestX.test_class", "TestX.test_own",
        "TestX.test_rows[0]", "TestX.test_rows[1]", "TestX.test_static", "TestX.TestInner.test_inner",
        "TestRows.test_a[0]", "TestRows.test_a[1]", "test_end",
    ]  # fmt: skip
    assert run(engine, "def f(x): return -1", PYTEST, module=True).reward == 0.0


def test_setup_and_marks_of_unittest(engine: SyncEngine) -> None:
    for module in (True, False):
        tests = UNITTEST if module else UNITTEST.replace("from solution import f", "")
        found = passes(engine, "def f(x): return x\ndef setUpModule(): raise ValueError", tests, module=module)
        assert [case.name for case in found.cases] == ["T.test_a"]
        assert run(engine, "def f(x): return -1", tests, module=module).reward == 0.0


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("def test_a():\n    for n in (1, 5): assert f(n) == n\n    yield", "generator"),
        ("import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        yield f(1)\n        assert 0", "generator"),
        ("import asyncio\ndef test_a():\n    yield f(1)\ndef test_b(): assert f(1) == 1", "generator"),
        ("import pytest\n@pytest.mark.skipif('1 > 0')\ndef test_a(): assert f(1) == 1\ndef test_b(): assert f(1) == 1", "condition"),
        ("def pytest_generate_tests(metafunc): pass\ndef test_a(): assert f(1) == 1", "pytest_generate_tests"),
        ("import pytest\n@pytest.mark.usefixtures('caplog')\ndef test_a(): assert f(1) == 1", "caplog"),
        ("import pytest\n@pytest.fixture\ndef n(caplog): return 1\ndef test_a(n): assert f(n) == n", "caplog"),
        ("def test_a(nosuch): assert f(1) == 1\ndef test_b(): assert f(lambda: 1)", "nosuch"),
        ("import pytest\n@pytest.hookimpl\ndef g(): pass\ndef test_a(): assert f(1) == 1", "hookimpl"),
        ("import pytest, gc\ndef test_a():\n    with pytest.raises_group(ValueError): f(1)", "raises_group"),
        ("import gc, nosuchmodule\ndef test_a(): assert f(1) == 1", "nosuchmodule"),
    ],
)  # fmt: skip
def test_what_of_pytest_is_not_known_is_said(engine: SyncEngine, tests: str, said: str) -> None:
    found = run(engine, "def f(x): return x", tests)
    assert (found.verdict, found.reward) == (Verdict.INFRASTRUCTURE_ERROR, None), found.cases
    assert said in (found.error or "")


@pytest.mark.parametrize("name", ["capsysbinary", "capfdbinary", "tmpdir", "caplog", "recwarn", "mocker", "nosuch"])
def test_fixtures_that_are_not_here_are_nobodys_wrong_answer(engine: SyncEngine, name: str) -> None:
    for program in ("def f(): return 1", "def f(): return 2", "x = 1"):
        found = run(engine, program, f"def test_a({name}): assert f() == 1\ndef test_b(): assert f() == 1")
        assert found.reward is None
        assert name in (found.error or "")
    own = f"import pytest\n@pytest.fixture\ndef {name}(): return 1\ndef test_a({name}): assert f() == {name}"
    assert run(engine, "def f(): return 1", own).reward == 1.0
    rows = (
        f"import pytest\n@pytest.mark.parametrize('{name}, n', [(1, 2)])\ndef test_a({name}, n): assert f() == {name}"
    )
    assert run(engine, "def f(): return 1", rows).reward == 1.0


def test_warnings_are_seen_beside_the_program(engine: SyncEngine) -> None:
    program = "import warnings\ndef f(): warnings.warn('old one', DeprecationWarning); return 1\n"
    for line in ("pytest.warns(DeprecationWarning, match='old')", "pytest.deprecated_call()"):
        tests = f"import pytest\ndef test_a():\n    with {line}: assert f() == 1"
        found = run(engine, program, tests)
        assert (found.reward, found.claimed) == (1.0, True)
        assert run(engine, program.replace("Deprecation", "User"), tests).reward == 0.0
        assert run(engine, "def f(): return 1", tests).reward == 0.0


def test_a_program_does_not_say_what_the_image_lacks(engine: SyncEngine) -> None:
    program = """
import os, struct, sys
def f(n):
    frame = sys._getframe()
    while frame:
        space = frame.f_globals
        if "emit" in space:
            for fd in range(3, 64):
                try: space["emit"](fd, ("lacks", "a module"))
                except OSError: pass
        frame = frame.f_back
    return 0
"""
    found = run(engine, program, "import gc\ndef test_a(): assert f(1) == 1")
    assert (found.reward, found.claimed) == (0.0, True)


def test_coroutine_tests_are_awaited(engine: SyncEngine) -> None:
    for tests in (
        "import pytest\n@pytest.mark.asyncio\nasync def test_a(): assert f(1) == 5",
        "import pytest\nclass TestX:\n    async def test_a(self): assert f(1) == 5",
        "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n    async def test_a(self): self.assertEqual(f(1), 5)",
    ):
        assert run(engine, "def f(x): return 0", tests).reward == 0.0
        assert run(engine, "def f(x): return 5", tests).reward == 1.0


def test_a_file_that_is_not_read_to_its_end_passes_no_test(engine: SyncEngine) -> None:
    tests = """
import pytest
from solution import easy, make
class TestEasy:
    def test_a(self): assert easy(1) == 1
DATA = make()
class TestHard:
    def test_b(self): assert DATA.x == 1
    @pytest.mark.parametrize("n", [1, 2])
    def test_c(self, n): assert DATA.x == n
@pytest.mark.parametrize("n", [1, 2])
def test_d(n): assert DATA.x == n
"""
    found = run(engine, "def easy(x): return 1\ndef make(): raise ValueError\n", tests, module=True)
    assert found.reward == 0  # as with a runner, which finds no tests there
    assert {case.name for case in found.cases} == {
        "module",
        "TestEasy.test_a",
        "TestHard.test_b",
        "TestHard.test_c",
        "test_d",
    }


def test_tests_that_the_top_level_calls_are_part_of_it(engine: SyncEngine) -> None:
    for tests in ("def test_a():\n    assert f(1) == 1\ntest_a()", "def test_a(g):\n    assert g(1) == 1\ntest_a(f)"):
        passes(engine, "def f(x): return x", tests)
        assert run(engine, "def f(x): return 2", tests).reward == 0.0


@pytest.mark.parametrize(
    ("program", "reward"), [("x = 1", 0.0), ("def f(x): return 0", 0.0), ("def f(x): return 5", 1.0)]
)
def test_a_module_in_a_package(engine: SyncEngine, program: str, reward: float) -> None:
    tests = "from pkg.mod import f\nimport pkg.mod\ndef test_a(): assert f(1) == pkg.mod.f(1) == 5\n"
    found = run(engine, program, tests, module=True)
    assert found.verdict is Verdict.INFRASTRUCTURE_ERROR  # solution.py is no pkg/mod.py
    found = run(engine, program, tests, module=True, file="pkg/mod.py")
    assert (found.reward, found.claimed) == (reward, False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("assert f(3) == 4", "AssertionError: 3 == 4"),
        ("assert f(3) < f(2)", "AssertionError: 3 < 2"),
        ("assert 'a' in f('bc' * 90)", "AssertionError: 'a' in 'bcbc"),
        ("assert f([1, (2,), {'a': None}]) != [1, (2,), {'a': None}]", "[1, (2,), {'a': None}] != [1, (2,), {'a': None}]"),
        ("assert f('\\x1b[31m') == 'x'", "'\\\\x1b[31m' == 'x'"),
        ("assert A() == 5", "AssertionError: <A> == 5"),
        ("assert [A()] == [5]", "AssertionError: [<A>] == [5]"),
        ("assert f(3) == 4, 'said by the test'", "said by the test"),
        ("assert (n := f(3)) == n + 1", "AssertionError: 3 == 4"),
        ("assert not f(3)", "AssertionError: "),
    ],
)  # fmt: skip
def test_a_failed_assertion_says_what_it_compared(engine: SyncEngine, line: str, said: str) -> None:
    program = "class A:\n    def __repr__(s): raise SystemExit\ndef f(x): return x\n"
    for tests in (line, f"def test_a():\n    {line}", f"class TestX:\n    def test_a(self):\n        {line}"):
        found = run(engine, program, tests)
        assert found.reward == 0.0
        assert said in found.cases[0].detail, found.cases
        assert len(found.cases[0].detail) <= 210
        assert "\x1b" not in found.cases[0].detail


def test_the_sides_of_an_assertion_are_computed_once(engine: SyncEngine) -> None:
    program = "seen = []\ndef f(x):\n    seen.append(x)\n    return x\ndef calls(): return list(seen)\n"
    passes(
        engine,
        program,
        "def test_a():\n    assert f(1) == f(1)\n    assert f(2) in (1, 2)\n    assert calls() == [1, 1, 2]",
    )
