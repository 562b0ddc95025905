"""Nothing that a program sends ends, skips or repeats the code of sealed unit tests."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine

pytestmark = pytest.mark.environments
OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


# ---------------------------------------------------------------- exceptions

RUNNERS = {
    "unittest stops": ("import unittest.case", "unittest.case._ShouldStop"),
    "unittest skips": ("import unittest", "unittest.SkipTest"),
    "doctest": ("import doctest", "doctest.UnexpectedException"),
    "the debugger": ("import bdb", "bdb.BdbQuit"),
    "an interrupt": ("", "KeyboardInterrupt"),
    "a generator's end": ("", "GeneratorExit"),
    "one of its own": ("import unittest\nclass E(unittest.SkipTest): pass", "E"),
    "an end of its own": ("class E(GeneratorExit): pass", "E"),
}
UNITTEST = """
import unittest
from solution import f, make
class T(unittest.TestCase):
    def test_a(self): self.assertEqual(f(1), "secret-a")
    def test_rows(self):
        for n, want in ((1, 5), (2, 6)):
            with self.subTest(n=n): self.assertEqual(f(n), want)
    def test_raises(self):
        with self.assertRaises(ValueError): f(-1)
class S(unittest.TestCase):
    def setUp(self): self.made = make()
    def test_b(self): self.assertEqual(self.made.q(), 1)
def test_c(): assert f(1) == 5
"""


@pytest.mark.parametrize("name", RUNNERS)
def test_no_exception_of_a_runner_reaches_the_tests(engine: SyncEngine, name: str) -> None:
    before, raised = RUNNERS[name]
    program = f"{before}\ndef f(*a): raise {raised}\ndef make(): raise {raised}\n"
    found = run(engine, program, UNITTEST, module=True)
    assert (found.reward, found.claimed, len(found.cases)) == (0.0, False, 5), found.cases


def test_a_program_does_not_skip_tests(engine: SyncEngine) -> None:
    program = "import unittest\nREADY = False\ndef f(n):\n    if n: raise unittest.SkipTest\n    return 0\n"
    tests = """
import unittest, sys
import solution
from solution import f
OLD = sys.version_info < (3, 8)
class T(unittest.TestCase):
    def test_easy(self): self.assertEqual(f(0), 0)
    @unittest.skipIf(OLD, "old")
    def test_hard(self): self.assertEqual(f(10), 55)
    @unittest.skipUnless(sys.platform.startswith("linux"), "linux")
    def test_more(self): self.assertEqual(f(11), 89)
    @unittest.skipUnless(solution.READY, "not ready")
    def test_own(self): self.assertEqual(f(12), 144)
    @unittest.skipIf(sys.platform.startswith("linux"), "not linux")
    def test_elsewhere(self): self.assertEqual(f(0), 1)
"""
    found = run(engine, program, tests, module=True)
    assert {case.name: case.verdict for case in found.cases} == {
        "T.test_easy": OK, "T.test_hard": WRONG, "T.test_more": WRONG, "T.test_own": WRONG,
    }  # fmt: skip


def test_exceptions_that_tests_ask_for_still_come(engine: SyncEngine) -> None:
    program = """
import zipfile, statistics, subprocess, sys
class Own(KeyError): pass
def f(n): raise [ValueError("x"), statistics.StatisticsError("s"), zipfile.BadZipFile("z"), Own("o"), SystemExit(3)][n]
"""
    tests = """
import pytest, statistics, zipfile
from solution import f, Own
@pytest.mark.parametrize("n, kind", [(0, ValueError), (1, statistics.StatisticsError), (2, zipfile.BadZipFile), (3, Own),
                                     (3, LookupError), (4, SystemExit)])
def test_a(n, kind):
    with pytest.raises(kind): f(n)
"""
    passes(engine, program, tests, module=True)


def test_a_name_for_all_exceptions_catches_no_failed_assertion(engine: SyncEngine) -> None:
    tests = (
        "from solution import f, Empty\nimport pytest\ndef test_a():\n    with pytest.raises(Empty): assert f(1) == 5\n"
    )
    for kind in ("AssertionError", "Exception", "BaseException"):
        assert not run(engine, f"Empty = {kind}\ndef f(n): return 0\n", tests, module=True).reward


SWALLOWS = """
import contextlib
class Conn:
    def __enter__(s): return s
    def __exit__(s, *a): return True
    def query(s, *a): raise ValueError
    def row(s, *a): return {}
def quiet(): return contextlib.suppress(Exception)
"""


@pytest.mark.parametrize(
    "body",
    [
        "with Conn() as c: assert c.query('x') == 5",
        "with Conn() as c: assert c.row()['one'] == 1",
        "with Conn() as c: assert c.row() + 1 == 2",
        "with quiet(): assert Conn().query(1) == 5",
        "with Conn() as c: raise ValueError(c.query(1))",
        "with Conn() as c:\n        try: c.query(1)\n        except ValueError: raise",
        "import contextlib\n    with contextlib.ExitStack() as s: assert s.enter_context(Conn()).query(1) == 5",
    ],
)
def test_a_programs_exit_does_not_end_what_is_tested(engine: SyncEngine, body: str) -> None:
    found = run(engine, SWALLOWS, f"def test_a():\n    {body}\ndef test_b(): pass\n")
    assert found.reward is None
    assert "swallows" in (found.error or "")


def test_what_the_tests_raise_themselves_may_be_swallowed(engine: SyncEngine) -> None:
    program = """
import contextlib
class Tx:
    seen = None
    def __enter__(s): return s
    def __exit__(s, kind, value, trace):
        s.seen = kind is not None and (kind.__name__, str(value), isinstance(value, kind))
@contextlib.contextmanager
def quiet():
    try: yield 1
    except ValueError: pass
"""
    tests = """
import pytest
def test_a():
    t = Tx()
    with pytest.raises(ValueError):
        with t: raise ValueError("x")
    assert t.seen == ("ValueError", "x", True)
    with t: pass
    assert t.seen is False
def test_b():
    with quiet(): raise ValueError("x")
    with pytest.raises(KeyError):
        with quiet(): raise KeyError(1)
"""
    passes(engine, program, tests)


def test_a_programs_exit_does_not_learn_what_was_expected(engine: SyncEngine) -> None:
    program = """
class C:
    known = []
    def __enter__(s): return s
    def __exit__(s, t, v, tb): C.known += [str(x) for x in (v, *getattr(v, "args", ()))]
    def f(s, n): return next((k[-9:-1] for k in C.known if "secret" in k), 0)
    def said(s): return "".join(C.known)
"""
    tests = """
import unittest
class T(unittest.TestCase):
    def test_a(self):
        with C() as c: self.assertEqual(c.f(1), 'secret-a')
    def test_b(self):
        with C() as c: self.assertEqual(c.f(1), 'secret-a')
    def test_c(self):
        with C() as c:
            if c.f(1) != 'secret-a': raise AssertionError('secret-a')
    def test_d(self):
        with C() as c: {'secret-a': 1}[c.f(1)]
    def test_e(self): assert 'secret' in C().said()
"""
    found = run(engine, program, tests)
    assert found.reward == 0.0, found.cases


# ---------------------------------------------------------------- iterators

ITERATORS = {
    "gives new ones": (
        "class O:\n    n = 0\n    def __next__(s): raise StopIteration\n    def __iter__(s):\n        s.n += 1\n        return iter('aabb' if s.n < 2 else 'ab')\n",
        0.0,
    ),
    "has a class that iterates": (
        "class M(type): __next__ = 1\nclass O(metaclass=M):\n    n = 0\n    def __iter__(s):\n        s.n += 1\n        return iter('aabb' if s.n < 2 else 'ab')\n",
        None,
    ),
    "ends at once": ("class O:\n    def __iter__(s): return s\n    def __next__(s): raise StopIteration\n", 0.0),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_has_one_life(engine: SyncEngine, name: str) -> None:
    program, reward = ITERATORS[name]
    tests = "from collections import Counter\nr = f('aabb')\nassert Counter(r) == Counter('aabb')\nassert ''.join(r) == 'ab'"
    assert run(engine, f"{program}def f(x): return O()\n", tests).reward == reward


def test_an_end_of_send_ends_no_loop(engine: SyncEngine) -> None:
    program = "class S:\n    def __init__(s, *a): pass\n    def send(s, x): raise StopIteration\n"
    found = run(engine, program, "s = S(1)\nassert all(map(lambda c: s.send(c[0]) == c[1], [(1, 2)]))")
    assert found.reward is None


def test_copies_are_made_where_the_object_is(engine: SyncEngine) -> None:
    tests = "import copy\na = A()\nassert copy.deepcopy(a).n == copy.copy(a).n == 1"
    passes(engine, "class A:\n    n = 1\n", tests)
    program = "class Gauge:\n    n = 1\n    def __copy__(s): return s\n    def __sub__(s, o): return 0\n"
    found = run(engine, program, "import copy\ng = Gauge()\ng.n = 2\nassert copy.copy(g) - 5 < 1")
    assert (found.reward, found.claimed) == (1.0, True)
