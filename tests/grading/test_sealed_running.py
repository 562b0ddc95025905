"""Which tests of a file run, in which order, with what in common, and that none that failed is taken for one that did not run."""

from __future__ import annotations

import textwrap

import pytest
from sealed_help import passes, run

from proctor.engine.shared import SyncEngine

BANK = "class Bank:\n    def __init__(s): s.held = 0\n    def put(s, n): s.held += n\n"
# Tests that only pass where they share what pytest or unittest has them share.
SHARED = [
    "import pytest\n@pytest.fixture(scope='module')\ndef bank(): return Bank()\ndef test_a(bank): bank.put(1)\ndef test_b(bank): assert bank.held == 1",
    "import pytest\n@pytest.fixture(scope='session')\ndef bank():\n    yield Bank()\n@pytest.fixture\ndef full(bank):\n    bank.put(1)\n    return bank\ndef test_a(full): assert full.held == 1\ndef test_b(full): assert full.held == 2",
    "import pytest\n@pytest.fixture(scope='class')\ndef bank(): return Bank()\nclass TestA:\n    def test_b(self, bank):\n        bank.put(1)\n        assert bank.held == 1\n    def test_a(self, bank): assert bank.held == 1\nclass TestB:\n    def test_a(self, bank): assert bank.held == 0",
    "import pytest\nends = []\n@pytest.fixture(scope='module', params=[1, 2])\ndef bank(request):\n    made = Bank()\n    made.put(request.param)\n    yield made\n    ends.append(request.param)\ndef test_a(bank): assert bank.held == (2 if ends else 1)\ndef test_end(): assert ends[0] == 1",
    "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): cls.bank = Bank()\n    def test_1(self): self.bank.put(1)\n    def test_2(self): self.assertEqual(self.bank.held, 1)",
    "bank = Bank()\nclass TestA:\n    def test_put(self): bank.put(1)\n    def test_held(self): assert bank.held == 1",
]


@pytest.mark.parametrize("tests", SHARED)
def test_what_tests_have_in_common_is_shared(engine: SyncEngine, tests: str) -> None:
    passes(engine, BANK, tests)


def test_the_end_of_what_is_shared_is_run_and_counts(engine: SyncEngine) -> None:
    fixture = "import pytest\n@pytest.fixture(scope='module')\ndef bank():\n    yield Bank()\n    assert False, 'at its end'\ndef test_a(bank): assert bank.held == 0"
    found = run(engine, BANK, fixture)
    assert [(case.name, case.verdict) for case in found.cases] == [
        ("test_a", "accepted"), ("fixtures of module", "wrong_answer"),
    ]  # fmt: skip
    group = "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n    def {0}(cls): assert Bank().held == 1\n    def test_a(self): self.assertEqual(Bank().held, 0)\n    def test_b(self): self.assertEqual(Bank().held, 0)"
    assert run(engine, BANK, group.format("setUpClass")).reward == 0
    ended = run(engine, BANK, group.format("tearDownClass"))
    assert {case.name: case.verdict for case in ended.cases} == {
        "T.test_a": "accepted", "T.test_b": "accepted", "tearDownClass": "wrong_answer",
    }  # fmt: skip


def test_a_scope_that_is_computed_is_no_fault_of_the_programs(engine: SyncEngine) -> None:
    tests = "import pytest\n@pytest.fixture(scope=lambda fixture_name, config: 'module')\ndef bank(): return Bank()\ndef test_a(bank): assert bank.held == 0"
    found = run(engine, BANK, tests)
    assert found.reward is None
    assert "scope" in str(found.error)


# Exceptions that leave the tests' side without a word to say of a test that failed.
SILENT = "E = type('', (ValueError,), {})\ndef bad(*a): raise E(10 ** 5000)\nmiddle = bad\ndef none(xs): return True\n"
SKIPPING = [
    "import sys, pytest\npytestmark = pytest.mark.skipif(sys.version_info < (3, 8), reason='old')\ndef test_a(): assert middle([1]) == 1\ndef test_b(): assert none([])",
    "import sys, pytest\n@pytest.mark.skipif(sys.platform == 'win32', reason='w')\nclass TestA:\n    def test_a(self): assert middle([1]) == 1\n    def test_b(self): assert none([])",
    "import pytest\n@pytest.mark.parametrize('n', [1, 2, pytest.param(3, marks=pytest.mark.skip)])\ndef test_a(n): assert middle([n]) == n\ndef test_b(): assert none([])",
]


@pytest.mark.parametrize("tests", SKIPPING)
def test_a_test_that_failed_without_a_word_is_not_taken_for_one_that_was_skipped(
    engine: SyncEngine, tests: str
) -> None:
    found = run(engine, SILENT, tests)
    assert 0 < found.reward <= 0.5
    passed = run(engine, "def middle(xs): return xs[0]\ndef none(xs): return True\n", tests)
    assert (passed.reward, passed.claimed) == (1.0, False)


def test_what_is_skipped_beside_a_test_that_is_left_open_is_no_failure(engine: SyncEngine) -> None:
    program = "class P:\n    def __len__(s): return 2\ndef f(): return P()\n"
    tests = "import pytest\n@pytest.mark.skip\ndef test_a(): assert f() == 3\ndef test_b(): assert len(f()) == 2"
    assert run(engine, program, tests).reward is None


# Whether a test runs is the program's doing, by way of a name that looks like the tests' own.
OPTIONAL = [
    "import pytest\ntry:\n    from solution import fast\n    HAS = True\nexcept ImportError:\n    HAS = False\ndef test_a(): assert solution.slow(0) == 0\n@pytest.mark.skipif(not HAS, reason='x')\ndef test_b(): assert fast(3) == 9",
    "import pytest\nok = False\nif solution.slow(3) == 9:\n    ok = True\ndef test_a(): assert solution.slow(0) == 0\n@pytest.mark.skipif(not ok, reason='x')\ndef test_b(): assert solution.slow(3) == 9",
    "import unittest\ntry:\n    from solution import fast\nexcept ImportError:\n    fast = None\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(solution.slow(0), 0)\n    @unittest.skipIf(fast is None, 'x')\n    def test_b(self): self.assertEqual(fast(3), 9)",
    "import pytest, sys\ndef test_a(): assert solution.slow(0) == 0\n@pytest.mark.skipif(not hasattr(sys.modules['solution'], 'fast'), reason='x')\ndef test_b(): assert solution.fast(3) == 9",
]


@pytest.mark.parametrize("tests", OPTIONAL)
def test_a_skip_that_hangs_on_the_program_is_marked(engine: SyncEngine, tests: str) -> None:
    found = run(engine, "def slow(x): return 0\n", f"import solution\n{tests}", module=True)
    assert found.claimed or found.reward < 1


def test_expected_failures_by_exception_and_strictly(engine: SyncEngine) -> None:
    other = "import pytest\n@pytest.mark.xfail(raises=ValueError)\ndef test_a(): assert f(3) == 9\ndef test_b(): assert f(0) == 0"
    assert run(engine, "def f(x): return 0", other).reward == 0.5
    passes(engine, "def f(x):\n    if x: raise ValueError\n    return 0", other)
    strict = (
        "import pytest\n@pytest.mark.xfail(strict=True)\ndef test_a(): assert f(3) == 0\ndef test_b(): assert f(0) == 0"
    )
    assert run(engine, "def f(x): return 0", strict).reward == 0.5
    passes(engine, "def f(x): return x", strict)


def test_marks_and_set_up_of_a_module_hold_for_its_test_cases(engine: SyncEngine) -> None:
    case = "import pytest, unittest\nclass T(unittest.TestCase):\n    @pytest.mark.xfail({how})\n    def test_a(self): self.assertEqual(f(3), {value})\n    def test_b(self): self.assertEqual(f(0), 0)"
    other = case.format(how="raises=ValueError", value=9)
    assert run(engine, "def f(x): return x", other).reward == 0.5
    passes(engine, "def f(x):\n    if x: raise ValueError\n    return 0", other)
    strict = case.format(how="strict=True", value=0)
    assert run(engine, "def f(x): return 0", strict).reward == 0.5
    passes(engine, "def f(x): return x", strict)
    assert run(engine, "def f(x): return 0", case.format(how="reason='x'", value=0)).reward == 1.0
    kept = "import unittest\nstate = []\ndef setup_module(module): state.append(f(1))\ndef teardown_module(module): state.clear()\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(state, [1])"
    passes(engine, "def f(x): return x", kept)
    assert run(engine, "def f(x): raise ValueError", kept.replace("state, [1]", "1, 1")).reward == 0.0
    subs = "import unittest\nclass T(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_a(self):\n        with self.subTest(n=1): self.assertEqual(f(1), 2)\n    def test_b(self): self.assertEqual(f(2), 2)"
    passes(engine, "def f(x): return x", subs)
    assert run(engine, "def f(x): return 2", subs).reward == 0.5


# Programs by which more, or fewer, tests would run or count than are written; each gets its share of those alone.
FEWER = [
    ("def total(c):\n    c.clear()\n    return 10\ndef f(n): return 0",
     "import pytest\nCASES = [1, 2, 3]\ndef test_a(): assert total(CASES) == 10\n@pytest.mark.parametrize('n', CASES)\ndef test_f(n): assert f(n) == n ** 3", 0.25),
    ("def total(c):\n    c[:] = [0] * 40\n    return 10\ndef f(n): return 0",
     "import pytest\nCASES = [1, 2, 3]\ndef test_a(): assert total(CASES) == 10\n@pytest.mark.parametrize('n', CASES)\ndef test_f(n): assert f(n) == n ** 3", 0.25),
    ("def total(c):\n    c.clear()\n    return 10\ndef f(n): return 0",
     "import pytest\nCASES = [1, 2, 3]\n@pytest.fixture(params=CASES)\ndef n(request): return request.param\ndef test_a(): assert total(CASES) == 10\ndef test_f(n): assert f(n) == n ** 3", 0.25),
    ("def make(): raise ValueError\ndef f(n): return 1",
     "import pytest\ndef test_a(): assert f(1) == 1\nclass TestB:\n    def setup_class(cls): cls.made = make()\n    @pytest.mark.parametrize('n', range(9))\n    def test_b(self, n): assert f(n) == 1", 0.1),
    ("def slow(n): return n", "import pytest, solution\ndef test_a(): assert slow(3) == 3\n@(pytest.mark.xfail(reason='x') if not hasattr(solution, 'fast') else pytest.mark.fast)\ndef test_b(): assert solution.fast(3) == 9", 0.5),
    ("def slow(n): return n", "import pytest, solution\ndef needs(name): return pytest.mark.xfail(not hasattr(solution, name), reason='x')\ndef test_a(): assert slow(3) == 3\n@needs('fast')\ndef test_b(): assert solution.fast(3) == 9", 0.5),
    ("def slow(n): return n", "import unittest, solution\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(slow(3), 3)\n    @(unittest.expectedFailure if not hasattr(solution, 'fast') else lambda f: f)\n    def test_b(self): self.assertEqual(solution.fast(3), 9)", 0.5),
    ("def slow(n): return n", "import pytest\ndef test_a(): assert slow(3) == 3\n@pytest.mark.skipif('fast' not in globals(), reason='x')\ndef test_b(): assert fast(3) == 9", 0.5),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(FEWER)))
def test_no_program_says_how_many_tests_count(engine: SyncEngine, row: int) -> None:
    program, tests, share = FEWER[row]
    assert run(engine, program, tests).reward == pytest.approx(share)


UNNAMED = [
    "import solution\nfor name in vars(solution).get('CASES', []):\n    globals()[f'test_{name}'] = lambda: None\ndef test_a(): assert slow(3) == 3",
    "import unittest, solution\nclass Hard(unittest.TestCase):\n    def test_b(self): self.assertEqual(solution.fast(3), 9)\nclass T(Hard if hasattr(solution, 'fast') else unittest.TestCase):\n    def test_a(self): self.assertEqual(slow(3), 3)\ndel Hard",
    "import pytest, solution\nROWS = [1, 2]\ndef prepare(): solution.normalize(ROWS)\nprepare()\ndef test_a(): assert slow(3) == 3\n@pytest.mark.parametrize('n', ROWS)\ndef test_b(n): assert slow(n) == 9",
]


# Tests that are written in the file, and that by the program's doing are none.
FAST = "    def test_f(self): assert solution.fast(3) == 9\n"
OPS = "def make(n):\n    def check(self): self.assertEqual(solution.f(n), n * n)\n    return check\n"
UNNAMED += [
    f"import {start}\ndef test_a(): assert slow(3) == 3\n{rest}"
    for start, rest in (
        ("solution", f"class TestFast:\n    __test__ = hasattr(solution, 'fast')\n{FAST}"),
        ("solution, unittest", f"class Fast(unittest.TestCase):\n    __test__ = hasattr(solution, 'fast')\n{FAST}"),
        ("solution", f"class TestFast:\n{FAST}if not hasattr(solution, 'fast'):\n    TestFast.__test__ = False"),
        ("solution", f"class TestFast:\n{FAST}if not hasattr(solution, 'fast'):\n    del TestFast"),
        ("solution, pytest", "@pytest.mark.parametrize('n', [1, 2])\ndef test_f(n): assert solution.fast(n) == n * n\nif not hasattr(solution, 'fast'):\n    del test_f"),
        ("solution, unittest", f"BASE = unittest.TestCase if hasattr(solution, 'fast') else object\nclass FastTests(BASE):\n{FAST}"),
        ("solution", f"class _Fast:\n{FAST}TestFast = _Fast if hasattr(solution, 'fast') else None"),
        ("solution, unittest", f"{OPS}OpsTest = type('OpsTest', (unittest.TestCase,), {{f'test_{{n}}': make(n) for n in solution.NONE}})"),
        ("solution, unittest", f"{OPS}class OpsTest(unittest.TestCase):\n    for _n in solution.NONE:\n        locals()[f'test_{{_n}}'] = make(_n)"),
        ("solution, pytest", "ARGS = ('n', solution.NONE)\n@pytest.mark.parametrize(*ARGS)\ndef test_f(n): assert solution.fast(n) == 9"),
    )
]  # fmt: skip


@pytest.mark.parametrize("tests", UNNAMED)
def test_tests_that_the_source_does_not_name_are_marked(engine: SyncEngine, tests: str) -> None:
    program = "def slow(n): return n\ndef normalize(rows): rows.clear()\nCASES = ['b']\nNONE = []\n"
    assert run(engine, program, tests, module=False).claimed


@pytest.mark.parametrize(("imports", "name"), [("from app import core", "core"), ("import app.core", "app.core"), ("import app.core as c", "c"), ("from app.core import CASES, f, slow\nimport app.core as c", "c"), ("from app import core as c", "c")])  # fmt: skip
def test_nor_do_those_of_a_program_in_a_package(engine: SyncEngine, imports: str, name: str) -> None:
    program = "CASES = []\ndef f(n): return 0\ndef slow(n): return n\n"
    rows = f"import pytest\n{imports}\ndef test_a(): assert {name}.slow(3) == 3\n@pytest.mark.parametrize('n', {name}.CASES)\ndef test_f(n): assert {name}.f(n) == n * n"
    assert run(engine, program, rows, module=True, file="app/core.py").claimed
    below = f"{imports}\ndef test_a(): assert {name}.slow(3) == 3\nif hasattr({name}, 'fast'):\n    class TestFast:\n        def test_f(self): assert {name}.fast(3) == 9"
    assert run(engine, program, below, module=True, file="app/core.py").claimed
    honest = (
        f"import pytest\n{imports}\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n): assert {name}.slow(n) == n"
    )
    passes(engine, program, honest, module=True, file="app/core.py")


# Conditions that hang on the program, by ways that do not name it.
HIDDEN = [
    ("import sys, pytest\nfrom solution import *\n", "not hasattr(sys.modules[__name__], 'fast')"),
    ("import sys, pytest\nfrom solution import slow\nM = sys.modules\nS = M['solu' + 'tion']\n", "not hasattr(S, 'fast')"),
    ("import importlib, pytest\nfrom solution import slow\ns = importlib.import_module('solu' + 'tion')\n", "not hasattr(s, 'fast')"),
    ("from importlib import import_module\nimport pytest\nfrom solution import slow\ns = import_module('solu' + 'tion')\n", "not hasattr(s, 'fast')"),
    ("import pytest\nfrom solution import slow, any\n", "any([0])"),
    ("import pytest\nfrom solution import *\n", "any([0])"),
    ("import pytest\nfrom .solution import slow, OFF\n", "OFF"),
]  # fmt: skip


@pytest.mark.parametrize(("start", "condition"), HIDDEN)
def test_conditions_that_hang_on_the_program_unnamed(engine: SyncEngine, start: str, condition: str) -> None:
    program = "def slow(n): return n\ndef any(x): return True\nOFF = True\n"
    tests = f"{start}def test_a(): assert slow(3) == 3\n@pytest.mark.skipif({condition}, reason='x')\ndef test_b(): assert fast(3) == 9\n"
    file = "app/solution.py" if "from ." in start else "solution.py"
    options = {"module": True, "file": file} | ({"test_file": "app/tests.py"} if "from ." in start else {})
    found = run(engine, program, tests, **options)
    assert found.claimed or found.reward == 0.5


def test_conditions_of_rows_are_settled_before_any_test(engine: SyncEngine) -> None:
    program = "def count(x):\n    n = len(x)\n    x.append(1)\n    return n\ndef f(n): return 1\n"
    tests = "import pytest\nBROKEN = []\ndef test_a(): assert count(BROKEN) == 0\n@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.skipif(BROKEN, reason='x')), pytest.param(3, marks=[pytest.mark.skipif(BROKEN, reason='x')])])\ndef test_f(n): assert f(n) == n ** 3"
    assert run(engine, program, tests).reward == 0.5


def test_skips_in_a_body_that_hang_on_the_program_fail(engine: SyncEngine) -> None:
    """By a flag, by what an earlier test left, by how far the test came."""
    head = "import pytest, solution, sys\ntry:\n    from solution import fast\n    HAS = True\nexcept ImportError:\n    HAS = False\nstate = {}\ndef test_a(): assert solution.double(2) == 4\n"
    for body in (
        "    if not HAS:\n        pytest.skip('x')\n    assert fast(3) == 9",
        "    if 'id' not in state:\n        pytest.skip('x')\n    assert fast(3) == 9",
        "    for name in ('fast', 'quick'):\n        if hasattr(solution, name): return\n    pytest.skip('x')",
        "    found = hasattr(solution, 'fast')\n    if not found:\n        pytest.skip('x')",
    ):
        found = run(engine, "def double(n): return n * 2\n", f"{head}def test_b():\n{body}\n", module=True)
        assert found.claimed or found.reward == 0.5


def test_a_mark_that_may_skip_hides_no_skip_of_the_tests_own(engine: SyncEngine) -> None:
    program = "def double(n): return n * 2\ndef fast(n): raise NotImplementedError\n"
    marked = "import sys, unittest, solution\n@unittest.skipIf(sys.platform == 'win32', 'x')\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(solution.double(2), 4)\n    def test_b(self):\n        try:\n            self.assertEqual(solution.fast(3), 9)\n        except NotImplementedError:\n            self.skipTest('x')\n"
    found = run(engine, program, marked, module=True)
    assert found.claimed or found.reward == 0.5
    skipped = (
        marked.replace("== 'win32'", "!= 'win32'")
        + "class U(unittest.TestCase):\n    def test_c(self): self.assertEqual(solution.double(1), 2)\n"
    )
    assert [case.name for case in run(engine, program, skipped, module=True).cases] == ["U.test_c"]


MISSED = [
    "def make(name):\n    function = getattr(solution, name, None)\n    if function is None:\n        return None\n    def test(): assert function(3) == 9\n    return test\ntest_fast = make('fast')",
    "class Base:\n    def test_b(self): assert solution.fast(3) == 9\nclass TestFast(Base):\n    __test__: bool = hasattr(solution, 'fast')",
    "class Base:\n    def test_b(self): assert solution.fast(3) == 9\nclass TestFast(Base):\n    pass\nif not hasattr(solution, 'fast'):\n    del TestFast",
]


@pytest.mark.parametrize("tests", MISSED)
def test_tests_that_nobody_would_miss_are_missed(engine: SyncEngine, tests: str) -> None:
    start = "import solution\ndef test_a(): assert solution.double(2) == 4\n"
    assert run(engine, "def double(n): return n * 2\n", start + tests, module=True).claimed


def test_statements_of_libraries_mark_nothing(engine: SyncEngine) -> None:
    tests = "import pytest\nimport solution\npytestmark = pytest.mark.unit\n@pytest.mark.slow\ndef test_a():\n    if solution.double(2) != 4:\n        pytest.fail('wrong')\ndef test_b():\n    try:\n        solution.double(None)\n        pytest.fail('no error')\n    except TypeError:\n        pass\n"
    passes(engine, "def double(n): return n * 2\n", tests, module=True)


def test_unittest_main_at_the_top_does_nothing(engine: SyncEngine) -> None:
    tests = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(1), 1)\nunittest.main()\n"
    for call in ("unittest.main()", "unittest.main(argv=['x'], exit=False)", "unittest.main(verbosity=2)"):
        passes(engine, "def f(x): return x", tests.replace("unittest.main()", call))
        assert run(engine, "def f(x): return 2", tests.replace("unittest.main()", call)).reward == 0.0


def test_tests_run_in_the_order_of_the_file(engine: SyncEngine) -> None:
    program = "held = []\ndef put(x):\n    held.append(x)\n    return len(held)\n"
    tests = "import unittest\ndef test_a(): assert put(1) == 1\nclass B(unittest.TestCase):\n    def test_b(self): self.assertEqual(put(1), 2)\nclass TestC:\n    def test_c(self): assert put(1) == 3\ndef test_d(): assert put(1) == 4\n"
    found = passes(engine, program, tests)
    assert [case.name for case in found.cases] == ["test_a", "B.test_b", "TestC.test_c", "test_d"]
    both = "import unittest\nmade = []\ndef setUpModule(): made.append(put(1))\ndef test_a(): assert made == [1]\nclass B(unittest.TestCase):\n    def test_b(self): self.assertEqual(made, [1])\n"
    passes(engine, program, both)


def test_classes_that_no_runner_takes_for_tests_lack_nothing(engine: SyncEngine) -> None:
    """Mixins, a base that the file deletes when it was derived from, helpers."""
    tests = """
        import unittest
        from abc import ABC
        class Contract(ABC):
            def test_any(self): self.assertEqual(f(self.n), self.n)
        class Base(unittest.TestCase):
            n = None
            def test_base(self): self.assertEqual(f(self.n), self.n)
        class One(Contract, Base):
            n = 1
        del Base
        class Helper(Contract):
            def test_connection(self): return True
    """
    found = passes(engine, "def f(n): return n", textwrap.dedent(tests))
    assert sorted(case.name for case in found.cases) == ["One.test_any", "One.test_base"]
    data = "import unittest\nclass T(unittest.TestCase):\n    @property\n    def test_data(self): return [1, 2]\n    def test_a(self): self.assertEqual([f(n) for n in self.test_data], [1, 2])\n"
    passes(engine, "def f(n): return n", data)


def test_classes_that_are_no_tests_are_none(engine: SyncEngine) -> None:
    tests = "import unittest\nclass Base(unittest.TestCase):\n    __test__ = False\n    def test_a(self): self.assertEqual(f(self.n), 1)\nclass TestOne(Base):\n    __test__ = True\n    n = 1\nclass TestHelper:\n    def __init__(self, n): self.n = n\n    def test_b(self): assert f(2) == 3\n"
    found = passes(engine, "def f(n): return 1", tests)
    assert [case.name for case in found.cases] == ["TestOne.test_a"]


def test_what_the_module_makes_comes_before_what_a_class_sets_up(engine: SyncEngine) -> None:
    tests = "import pytest\ncalls = []\n@pytest.fixture(autouse=True)\ndef first(): calls.append('module')\nclass TestA:\n    def setup_method(self): calls.append('class')\n    def test_a(self): assert calls == ['module', 'class'] and Bank().held == 0"
    passes(engine, BANK, tests)


def test_fixtures_of_pytest_in_a_unittest_class_are_no_fault_of_the_programs(engine: SyncEngine) -> None:
    tests = "import pytest, unittest\n@pytest.fixture(autouse=True)\ndef made(request): request.cls.bank = Bank()\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(self.bank.held, 0)"
    found = run(engine, BANK, tests)
    assert found.reward is None
    assert "TestCase" in str(found.error)


# Files that no runner finds a test in: whatever the program is, nothing was tested.
NOTHING = [
    "class TestDouble:\n    def __init__(self): self.n = 2\n    def test_a(self): assert f(self.n) == 4",
    "from abc import ABC\nclass DoubleTests(ABC):\n    def test_a(self): assert f(2) == 4",
    "import unittest\nclass Base(unittest.TestCase):\n    __test__ = False\n    def check(self): self.assertEqual(f(2), 4)",
    "import pytest\nclass TestDouble:\n    def __init__(self): pass\n    def test_a(self): assert f(2) == 4\nif __name__ == '__main__':\n    pytest.main()",
]


@pytest.mark.parametrize("tests", NOTHING)
@pytest.mark.parametrize("module", [False, True])
def test_a_file_in_which_no_test_runs_gives_no_score(engine: SyncEngine, tests: str, module: bool) -> None:
    start = "from solution import f\n" if module else ""
    for program in ("def f(n): return 2 * n", "def f(n): return None"):
        found = run(engine, program, start + tests, module=module)
        assert found.reward is None, found.cases


SCRIPTS = [
    "def main():\n    assert f(2) == 4\nif __name__ == '__main__':\n    main()",
    "import sys\ndef main():\n    assert f(2) == 4\n    return 0\nif __name__ == '__main__':\n    sys.exit(main())",
    "import sys\ndef main(): return 0 if f(2) == 4 else 1\nif __name__ == '__main__':\n    sys.exit(main())",
    "import unittest\nclass DoubleTest(unittest.TestCase):\n    def runTest(self): self.assertEqual(f(2), 4)",
    "import unittest\nclass DoubleTest(unittest.TestCase):\n    def runTest(self): self.assertEqual(f(2), 4)\nif __name__ == '__main__':\n    unittest.main()",
]


@pytest.mark.parametrize("tests", SCRIPTS)
@pytest.mark.parametrize("module", [False, True])
def test_files_that_are_run_by_themselves_are(engine: SyncEngine, tests: str, module: bool) -> None:
    start = "from solution import f\n" if module else ""
    passes(engine, "def f(n): return 2 * n", start + tests, module=module)
    for program in ("def f(n): return None", "import sys\ndef f(n): sys.exit(0)", "def f(n): raise SystemExit"):
        assert run(engine, program, start + tests, module=module).reward == 0.0


def test_no_except_of_the_tests_takes_what_pytest_fails_by(engine: SyncEngine) -> None:
    for line in (
        "    try:\n        f(0)\n        pytest.fail('no exception')\n    except Exception:\n        pass",
        "    with pytest.raises(Exception):\n        f(0)\n        pytest.fail('no exception')",
        "    try:\n        with pytest.raises(ZeroDivisionError):\n            f(0)\n    except Exception:\n        pass",
    ):
        tests = f"import pytest\ndef test_a():\n{line}\n"
        assert run(engine, "def f(n): return None", tests).reward == 0.0
        passes(engine, "def f(n): return 1 / n", tests)
    swallows = "class C:\n    def __enter__(self): return self\n    def __exit__(self, *a): return True\n"
    assert not run(engine, swallows, "import pytest\ndef test_a():\n    with C(): pytest.fail('x')").reward


def test_rows_of_a_decorator_that_is_called_hang_on_what_it_is_made_with(engine: SyncEngine) -> None:
    tests = """
import pytest, solution
def cases(rows): return pytest.mark.parametrize('r', rows)
def check(r): assert solution.f(r) == r + 1
test_rows = cases({})(check)
def test_one(): assert solution.f(1) == 2
"""
    few = "ROWS = []\ndef f(x): return 2\n"
    assert run(engine, few, tests.format("solution.ROWS"), module=True).claimed
    right = run(engine, "ROWS = [1]\ndef f(x): return x + 1\n", tests.format("solution.ROWS"), module=True)
    assert (right.reward, right.claimed) == (1.0, True)


@pytest.mark.parametrize(
    ("head", "skips"),
    [
        ("try: import numpy.none as np\nexcept ImportError: np = None\n", "    if np is None: pytest.skip('no numpy')\n"),
        ("import importlib.util\nHAS = importlib.util.find_spec('no_such') is not None\n", "    if not HAS: pytest.skip('no')\n"),
        ("import importlib.util\nHAS = importlib.util.find_spec('no_such') is not None\n@pytest.mark.skipif(not HAS, reason='no')\n", ""),
    ],
)  # fmt: skip
def test_whether_a_library_is_here_is_for_no_program_to_say(engine: SyncEngine, head: str, skips: str) -> None:
    tests = f"import pytest\nfrom solution import f\n{head}def test_np():\n{skips}    assert f(1) == 3\ndef test_a(): assert f(1) == 2\n"
    passes(engine, "def f(x): return x + 1\n", tests, module=True)
    assert run(engine, "def f(x): return x\n", tests, module=True).reward == 0.0
