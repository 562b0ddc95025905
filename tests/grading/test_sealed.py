"""Unit tests apart from the program: what they can do, what a program cannot, and when they must run beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from handed import handed
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.api import grade
from proctor.grading.formats import load_problems
from proctor.grading.grades import Grade
from proctor.grading.judge import Named
from proctor.grading.problem import Problem
from proctor.grading.sealed import judge_sealed, unsealable
from proctor.guest import protocol

pytestmark = pytest.mark.environments
OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


@pytest.fixture(scope="module")
def engine() -> Iterator[SyncEngine]:
    engine = SyncEngine(slots=2)
    yield engine
    engine.close()


def run(engine: SyncEngine, program: str, tests: str, *, module: bool = False, **fields: object) -> Grade:
    problem = Problem(
        id="p", mode="unit_tests", test_code=tests, appended=not module, test_module="tests.py" if module else None,
        time_limit_s=2, **fields,
    )  # fmt: skip
    (found,) = grade([program], problem, engine=engine, extract="whole")
    return found


def passes(engine: SyncEngine, program: str, tests: str, **options: object) -> Grade:
    found = run(engine, program, tests, **options)
    assert found.verdict is OK, found.cases
    assert not found.claimed, found.claim
    return found


# ---------------------------------------------------------------- names


def test_every_way_to_name_the_program(engine: SyncEngine) -> None:
    program = "LIMIT = 3\ndef add(a, b):\n    return a + b\n"
    passes(engine, program, "def check(candidate):\n    assert candidate(1, 2) == LIMIT\ncheck(add)\n")
    for how in (
        "from solution import add",
        "from solution import *",
        "import solution\nadd = solution.add",
        "import solution as s\nfrom solution import add as add",
    ):
        passes(engine, program, f"{how}\ndef test_it():\n    assert add(1, 2) == 3\n", module=True)


def test_names_of_the_tests_own_and_of_the_preamble_win(engine: SyncEngine) -> None:
    lies = "import math\ndef helper(x): return 0\ndef isclose(a, b): return True\ndef abs(x): return 0\ndef f(x): return 9\n"
    tests = "assert helper(f(1)) == 5"
    assert run(engine, lies, tests, preamble="def helper(x):\n    return x + 4\n").reward == 0.0
    for test in (
        "assert abs(f(1) - 1) < 0.1",
        "assert math.isclose(f(1), 1)",
        "from math import isclose\nassert isclose(f(1), 1)",
    ):
        assert run(engine, lies, test).reward == 0.0
        assert run(engine, "import math\ndef f(x): return 1\n", test).reward == 1.0
    # What the library has under the same name is the library's.
    assert run(engine, "from math import isclose\ndef f(x): return 1\n", "assert isclose(f(1), 1)").reward == 1.0


# ---------------------------------------------------------------- values


def test_values_come_and_go_as_they_are(engine: SyncEngine) -> None:
    passes(
        engine,
        "def same(x): return x\n",
        """
import collections, datetime, decimal, fractions
values = [None, True, 10**50, -1.5, float("inf"), "\\ud800 x", b"b", (1, [2]), {1: {2}}, frozenset({3}), 2 + 3j,
          collections.Counter("aab"), collections.OrderedDict(a=1), collections.deque([1], 3), range(3), bytearray(b"x"),
          decimal.Decimal("1.10"), fractions.Fraction(1, 3), datetime.date(2024, 1, 2), datetime.timedelta(1), int, ...,
          collections.defaultdict(list, {1: [2]}), slice(1, 2), ValueError("x").args]
for value in values:
    back = same(value)
    assert back == value and type(back) is type(value), value
assert same(float("nan")) != same(float("nan"))
assert type(same(OSError(2, "x"))) is FileNotFoundError
assert {1: 2}.keys() == same({1: 2}.keys())
""",
    )


def test_named_tuples_are_tuples(engine: SyncEngine) -> None:
    program = "import collections\nP = collections.namedtuple('P', 'x y')\ndef f(): return P(1, 2)\n"
    passes(engine, program, "assert f() == (1, 2) and f().y == 2\nassert isinstance(f(), tuple)")


def test_changed_arguments_come_back(engine: SyncEngine) -> None:
    program = """
def sort(x):
    x.sort()
    return x
def deep(grid, d, s):
    grid[0][0] = 9
    d["k"].append(1)
    s.add(2)
"""
    tests = """
x = [3, 1, 2]
y = x
assert sort(x) is x and y == [1, 2, 3]
row = [0, 0]
grid, d, s = [row, [1]], {"k": []}, set()
deep(grid, d, s)
assert row == [9, 0] and grid[0] is row and d == {"k": [1]} and s == {2}
"""
    passes(engine, program, tests)


def test_printed_text_is_seen(engine: SyncEngine) -> None:
    tests = """
import io, contextlib
out = io.StringIO()
with contextlib.redirect_stdout(out):
    hello()
assert out.getvalue() == "hello\\n"
"""
    passes(engine, "def hello(): print('hello')\n", tests)


# ---------------------------------------------------------------- objects


CLASSES = """
class Empty(LookupError):
    pass
class Base:
    kind = "base"
class Stack(Base):
    def __init__(self, *items): self.items = list(items)
    def push(self, item): self.items.append(item); return self
    def pop(self):
        if not self.items: raise Empty("nothing here")
        return self.items.pop()
    @property
    def top(self): return self.items[-1]
    @classmethod
    def of(cls, n): return cls(*range(n))
    @staticmethod
    def twice(n): return 2 * n
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __contains__(self, item): return item in self.items
    def __getitem__(self, at): return self.items[at]
    def __setitem__(self, at, value): self.items[at] = value
    def __eq__(self, other): return isinstance(other, Stack) and self.items == other.items
    def __add__(self, other): return Stack(*self.items, *other.items)
    def __str__(self): return f"Stack{self.items}"
    def __enter__(self): return self
    def __exit__(self, *error): self.items.clear()
    def __call__(self, n, *, more=0): return n + more
def numbers(n):
    for i in range(n):
        got = yield i
        if got: yield got
"""


def test_objects_methods_and_operators(engine: SyncEngine) -> None:
    tests = """
import unittest
from solution import Stack, Base, Empty, numbers
class T(unittest.TestCase):
    def test_methods(self):
        s = Stack(1, 2)
        self.assertEqual(s.push(3), s)
        self.assertEqual(s.pop(), 3)
        self.assertEqual((s.top, len(s), list(s), s[0], 2 in s, 5 in s), (2, 2, [1, 2], 1, True, False))
        s[0] = 7
        self.assertEqual(s.items, [7, 2])
        self.assertEqual(list(Stack.of(3)), [0, 1, 2])
        self.assertEqual(Stack.twice(4), 8)
        self.assertEqual(s(1, more=2), 3)
        self.assertTrue(s)
        self.assertFalse(Stack())
        self.assertEqual(str(s), "Stack[7, 2]")
        self.assertEqual(list(s + Stack(5)), [7, 2, 5])
        s.items = [4]
        self.assertEqual(s.pop(), 4)
        with s as same:
            self.assertIs(same, s)
    def test_classes(self):
        self.assertIsInstance(Stack(), Stack)
        self.assertIsInstance(Stack(), Base)
        self.assertTrue(issubclass(Stack, Base))
        self.assertEqual((Stack.kind, Stack().kind, Stack.__name__, type(Stack()).__name__), ("base", "base", "Stack", "Stack"))
    def test_equality(self):
        self.assertEqual(Stack(1), Stack(1))
        self.assertNotEqual(Stack(1), Stack(2))
        self.assertNotEqual(Stack(1), [1])
        self.assertFalse([1] == Stack(1))
    def test_exceptions(self):
        with self.assertRaises(Empty) as caught:
            Stack().pop()
        self.assertEqual(str(caught.exception), "nothing here")
        with self.assertRaisesRegex(LookupError, "nothing"):
            Stack().pop()
        self.assertTrue(issubclass(Empty, LookupError))
        with self.assertRaises(TypeError):
            Stack.twice()
        with self.assertRaises(AttributeError):
            Stack().missing
        self.assertFalse(hasattr(Stack(), "missing"))
    def test_generators(self):
        self.assertEqual(list(numbers(3)), [0, 1, 2])
        it = numbers(2)
        self.assertIs(iter(it), it)
        self.assertEqual((next(it), it.send("x"), next(it)), (0, "x", 1))
        with self.assertRaises(StopIteration):
            next(it)
        self.assertEqual(next(numbers(0), "end"), "end")
    def test_handing_objects_back(self):
        a, b = Stack(1), Stack(2)
        self.assertEqual(list(Stack.__add__(a, b)), [1, 2])
        push = a.push
        push(9)
        self.assertEqual(a.items, [1, 9])
"""
    found = passes(engine, CLASSES, tests, module=True)
    assert len([case for case in found.cases if case.name.startswith("T.")]) == 6


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


# ---------------------------------------------------------------- attacks

TESTS = "def test_a():\n    assert f(1) == 'secret-a'\ndef test_b():\n    assert f(2) == 'secret-b'\n"
HONEST = "def f(n): return {1: 'secret-a', 2: 'secret-b'}[n]\n"
FORGERIES = {
    "leaves": "import os\nos._exit(0)",
    "leaves when called": "import os\ndef f(n): os._exit(0)",
    "equal to all": "class Y:\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n    __hash__ = None\ndef f(n): return Y()",
    "a text that is equal to all": "class Y(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\ndef f(n): return Y('x')",
    "a proxy class": "class M(type):\n    def __eq__(c, o): return True\n    __hash__ = type.__hash__\nclass Y(metaclass=M): pass\ndef f(n): return Y",
    "not implemented": "def f(n): return NotImplemented",
    "searches memory": """
import gc, sys
def f(n):
    for o in gc.get_objects():
        try:
            text = repr(o)
        except Exception: continue
        if "secret-" in text and "get_objects" not in text:
            at = text.index("secret-"); return text[at:at + 8]
    frame = sys._getframe()
    while frame:
        for v in frame.f_locals.values():
            if "secret-" in str(v)[:10**6]: return "secret-" + "ab"[n - 1]
        frame = frame.f_back
""",
    "reads its own memory": """
import re
def f(n):
    maps = open("/proc/self/maps").read().splitlines()
    for line in maps:
        first, _, mode = line.partition(" ")
        if not mode.startswith("rw"): continue
        a, b = (int(x, 16) for x in first.split("-"))
        try:
            m = open("/proc/self/mem", "rb", 0); m.seek(a); data = m.read(min(b - a, 1 << 26))
        except OSError: continue
        word = b"secr" + b"et-"
        at = data.find(word + b"ab"[n - 1:n])
        if at >= 0: return data[at:at + 8].decode()
""",
    "looks for files": """
import os
def f(n):
    for root, _, files in os.walk("/"):
        if root.startswith(("/proc", "/sys", "/usr", "/lib")): continue
        for file in files:
            try: text = open(os.path.join(root, file)).read(10**6)
            except Exception: continue
            if "secret-" in text and "os.walk" not in text: return "secret-" + "ab"[n - 1]
""",
    "reads the pipe": """
import os, fcntl
def f(n):
    found = b""
    for fd in range(3, 256):
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK); found += os.read(fd, 10**6)
        except OSError: pass
    at = found.find(b"secret-"); return found[at:at + 8].decode("latin1")
""",
    "writes the pipe": """
import os
def f(n):
    for fd in range(3, 256):
        try: os.write(fd, b"\\0\\0\\0\\4" + b"VVVV" * 100)
        except OSError: pass
    return 1
""",
    "reports for the tests": """
import os, struct
def f(n):
    for fd in range(1, 256):
        try: os.write(fd, b"x" * 3)
        except OSError: pass
""",
    "replaces built-ins": "import builtins\nbuiltins.AssertionError = Exception\nbuiltins.str = object\nbuiltins.isinstance = lambda *a: True\ndef f(n): return 1",
    "replaces unittest": "import unittest, sys\nunittest.TestCase.run = lambda *a: None\nsys.modules['solution'] = None\ndef f(n): return 1",
    "raises": "def f(n): raise AssertionError('secret-a')",
    "raises the end": "def f(n): raise SystemExit(0)",
    "raises an interrupt": "def f(n): raise KeyboardInterrupt",
    "raises at the end of a loop": "def f(n): raise StopIteration('secret-a')",
    "an exception that passes": "class AssertionError(Exception): pass\ndef f(n): raise AssertionError",
    "the tests' names": "def test_a(): pass\ndef test_b(): pass\ndef f(n): return 0",
    "never answers": "def f(n):\n    while True: pass",
    "waits": "import time\ndef f(n): time.sleep(1000)",
    "answers without end": "def f(n): return 'x' * (64 << 20)",
    "an endless generator": "def f(n):\n    while True: yield 1",
    "recursive data": "def f(n):\n    x = []\n    x.append(x)\n    return x",
    "dies": "import ctypes\ndef f(n): ctypes.string_at(0)",
    "kills all": "import os, signal\ndef f(n): os.kill(-1, signal.SIGKILL)",
    "is left by a thread": "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(0.1), os._exit(0))).start()\ndef f(n): time.sleep(0.05); return 1",
    "redefines the server": """
import sys
def f(n):
    frame = sys._getframe()
    while frame:
        for name in ("answer", "packed", "act"):
            server = frame.f_locals.get("self")
            if hasattr(server, name): setattr(type(server), name, lambda *a, **k: b"")
        frame = frame.f_back
    return 1
""",
}


def test_the_honest_program_passes(engine: SyncEngine) -> None:
    assert passes(engine, HONEST, TESTS).reward == 1.0


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_earn_nothing(engine: SyncEngine, name: str) -> None:
    for _ in range(2):
        found = run(engine, FORGERIES[name], TESTS)
        assert found.reward == 0.0, found.cases
        assert not found.claimed
    assert passes(engine, HONEST, TESTS).reward == 1.0  # and the next program is none the worse


def test_a_class_that_is_equal_to_all_is_equal_only_to_its_own(engine: SyncEngine) -> None:
    program = "class A:\n    def __eq__(s, o): return True\n    __hash__ = None\n"
    assert run(engine, program, "assert A() == 5").reward == 0.0
    assert run(engine, program, "assert 5 == A()").reward == 0.0
    assert run(engine, program, "assert A() in [1, 2]").reward == 0.0
    assert run(engine, program, "assert A() == A()").reward == 1.0  # what it says of itself is what it does
    wrong = program.replace("return True", "return 1")
    assert run(engine, wrong, "assert A() == A()").reward == 0.0


def test_a_programs_own_files_are_not_beside_the_tests(engine: SyncEngine) -> None:
    problem = Problem(
        id="p",
        mode="unit_tests",
        test_code="import helper\nassert f() == helper.want",
        extra_files={"helper.py": "want = 1"},
    )
    row = {
        "completion": "def f(): return 5",
        "extra_files": {"helper.py": "want = 5", "sitecustomize.py": "", "unittest.py": "x"},
    }
    (found,) = grade([row], problem, engine=engine)
    assert found.reward == 0.0


def test_slow_tests_with_what_a_program_gave_are_its_time(engine: SyncEngine) -> None:
    found = run(engine, "def f():\n    while True: yield 1", "assert sum(f()) == 3")
    assert found.verdict is Verdict.TIME_LIMIT
    flood = "def f(): return {(1 << 61) - 1 << k if k else 0: 0 for k in range(3000)} | {k * ((1 << 61) - 1): 0 for k in range(60000)}"
    assert run(engine, flood, "assert f() == {}").reward == 0.0


# ---------------------------------------------------------------- what cannot be sealed

BESIDE = {
    "import inspect\nassert 'for' not in inspect.getsource(f)": "source",
    "from unittest import mock\nassert f(1) == 2": "names",
    "from unittest.mock import patch\nassert f(1) == 2": "names",
    "import unittest.mock\nassert f(1) == 2": "names",
    "def test_x(monkeypatch): assert f(1) == 2": "names",
    "assert f.__code__.co_argcount == 1": "__code__",
    "assert 'for' not in open('solution.py').read()\nassert f(1) == 2": "source",
    "import sys, io\nsys.stdin = io.StringIO('5')\nassert f(1) == 2": "input",
    "import asyncio\nassert asyncio.run(f(1)) == 2": "coroutines",
    "exec('assert f(1) == 2')": "source",
    "def test_x(tmp_path): assert f(tmp_path) == 2": "files",
    "import tempfile\nassert f(1) == 2": "files",
    "open('in.txt', 'w').write('x')\nassert f('in.txt') == 2": "files",
    "import random\nrandom.seed(1)\nassert f(1) == 2": "seed",
    "import os\nos.environ['X'] = '1'\nassert f(1) == 2": "environ",
    "import threading\nassert f(1) == 2": "threads",
    "input = lambda: '5'\nassert f(1) == 2": "input",
}


@pytest.mark.parametrize("tests", BESIDE)
def test_tests_that_look_into_the_program_run_beside_it(tests: str) -> None:
    reason = unsealable(tests, "solution")
    assert reason is not None
    assert BESIDE[tests] in reason
    assert reason.startswith("line ")


def test_tests_that_pass_their_own_functions_run_beside_the_program(engine: SyncEngine) -> None:
    program = "def apply(f, x): return f(x)\nclass A: pass\n"
    for tests in (
        "assert apply(lambda x: x + 1, 1) == 2",
        "def inc(x): return x + 1\ndef test_x(): assert apply(inc, 1) == 2",
        "try:\n    ok = apply(lambda x: x, 1) == 1\nexcept BaseException:\n    ok = False\nassert ok",
        "class B(A): pass\nassert apply(len, [1]) == 1",
        "class Own: pass\nassert apply(type, Own()) is Own",
    ):
        found = run(engine, program, tests)
        assert found.verdict is OK, (tests, found.cases)
        assert found.claimed
        assert "program" in found.claim
        assert found.to_json()["claim"] == found.claim
    assert not passes(engine, program, "assert apply(len, [1, 2]) == 2 and apply(str.upper, 'a') == 'A'").claimed


def test_claimed_verdicts_can_be_refused(engine: SyncEngine) -> None:
    problem = Problem(id="p", mode="unit_tests", test_code="import inspect\nassert f(1) == 2")
    (found,) = grade(["def f(n): return 2"], problem, engine=engine, claimed="refuse")
    assert (found.verdict, found.reward, found.claimed) == (OK, None, True)
    sealed = Problem(id="p", mode="unit_tests", test_code="assert f(1) == 2")
    assert grade(["def f(n): return 2"], sealed, engine=engine, claimed="refuse")[0].reward == 1.0
    with pytest.raises(ValueError, match="claimed"):
        grade([""], sealed, engine=engine, claimed="perhaps")


# ---------------------------------------------------------------- the verdict


def ended(**fields: object) -> Outcome:
    return Outcome(**{"exit_code": 0, **fields})  # type: ignore[arg-type]


def said(*rows: object) -> bytes:
    return b"".join(protocol.record(row) for row in rows)


@pytest.mark.parametrize(
    ("program", "tests", "verdict"),
    [
        (ended(), ended(result=said(("test", "a", True, ""), ("finished", "n"))), OK),
        (ended(), ended(result=said(("test", "a", True, ""), ("finished", "other"))), WRONG),
        (ended(), ended(result=said(("test", "a", True, ""))), WRONG),
        (ended(), ended(result=said(("test", "a", True, ""), ("broken", "gone"), ("finished", "n"))), WRONG),
        (ended(exit_code=1), ended(result=said(("test", "a", True, ""), ("finished", "n"))), CRASH),
        (
            ended(ended_by=EndedBy.CPU),
            ended(result=said(("test", "a", True, ""), ("finished", "n"))),
            Verdict.TIME_LIMIT,
        ),
        (ended(), ended(ended_by=EndedBy.CPU), Verdict.TIME_LIMIT),
        (ended(), ended(ended_by=EndedBy.MEMORY), Verdict.MEMORY_LIMIT),
        (Outcome(error="lost"), Outcome(error="lost"), Verdict.INFRASTRUCTURE_ERROR),
    ],
)
def test_both_ends_are_judged(program: Outcome, tests: Outcome, verdict: Verdict) -> None:
    assert {case.verdict for case in judge_sealed(program, tests, "n", Named(("a",)))} == {verdict}


# ---------------------------------------------------------------- real test files


def test_published_test_sets_can_be_sealed() -> None:
    counts = []
    for family in ("humaneval", "humanevalplus", "mbpp", "mbppplus", "exercism-python"):
        problems = [p for p in load_problems(handed(f"data/handed/problems_{family}.jsonl")) if p.mode == "unit_tests"]
        counts += [unsealable(p.test_code or "", p.module.removesuffix(".py")) is None for p in problems]
    assert sum(counts) / len(counts) >= 0.97


@pytest.mark.parametrize("family", ["exercism-python", "mbpp"])
def test_references_pass_sealed_published_tests(engine: SyncEngine, family: str) -> None:
    problems = [p for p in load_problems(handed(f"data/handed/problems_{family}.jsonl")) if p.mode == "unit_tests"][:30]
    rows = [{"completion": p.reference_solution, "extra_files": p.reference_files} for p in problems]
    for problem, found in zip(problems, grade(rows, problems, engine=engine), strict=True):
        assert found.verdict is OK, (problem.id, json.dumps(found.to_json()))


def test_limits_hold_on_both_sides(engine: SyncEngine) -> None:
    found = grade(
        ["def f(): return [0] * 10**9"],
        Problem(id="p", mode="unit_tests", test_code="assert f()"),
        engine=engine,
        limits=Limits(memory_mib=64, cpu_s=2),
    )
    assert found[0].verdict in (Verdict.MEMORY_LIMIT, Verdict.WRONG_ANSWER)
    assert found[0].reward == 0.0


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


# ---------------------------------------------------------------- objects where data is due

LIAR = """
class L:
    def __sub__(s, o): return 0
    __rsub__ = __add__ = __radd__ = __mul__ = __round__ = __abs__ = __sub__
    def __lt__(s, o): return True
    __gt__ = __le__ = __ge__ = __contains__ = __lt__
    def __and__(s, o): return o
    def __xor__(s, o): return set()
    def lower(s): return s
    def startswith(s, o): return True
    def difference(s, o): s.o = o; return set()
    def __iter__(s): return iter(getattr(s, "o", ()))
    def __getitem__(s, k): return {1: 2}[k]
    def get(s, *a): return 2
    def sort(s, key=None): pass
    def count(s, x): return 1
    def __len__(s): return 1
def f(*a): return L()
def g(*a): return [L()] * 3
"""
JUDGED_BY_THE_LIAR = [
    "assert abs(f(2) - 1.414) < 1e-3",
    "assert abs(1.414 - f(2)) < 1e-3",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertAlmostEqual(f(2), 1.414)",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertAlmostEqual(f(2), 1.4, delta=0.1)",
    "assert all(abs(a - b) < 1e-3 for a, b in zip(g(), [1, 2, 3]))",
    "assert abs(round(f(), 2) - 3.14) < 0.01",
    "assert 3.1 < f() < 3.2",
    "assert 3 in f()",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertIn(3, f())",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertSetEqual(f(2), {1, 2, 77})",
    "assert {1, 2} <= f()",
    "assert f() ^ {1, 2} == set()",
    "assert f().lower().startswith('hello')",
    "r = f()\nassert r[1] == 2",
    "assert f().get(1, 0) == 2",
    "r = f()\nr.sort(key=lambda x: x)\nassert r.count(5) == 1",
]


@pytest.mark.parametrize("tests", JUDGED_BY_THE_LIAR)
def test_an_object_where_data_is_due_is_no_judge(engine: SyncEngine, tests: str) -> None:
    found = run(engine, LIAR, tests)
    assert not found.reward, found.cases
    assert not found.claimed
    if found.reward is None:
        assert "did not make" in (found.error or "")


def test_an_object_of_a_class_that_the_tests_name_is_under_test(engine: SyncEngine) -> None:
    program = """
class Money:
    def __init__(self, n): self.n = n
    def __sub__(self, o): return Money(self.n - o)
    def __lt__(self, o): return self.n < o
    def __contains__(self, o): return o in (self.n,)
    def __eq__(self, o): return self.n == o.n
def rich(): return Money(1000)
def account():
    class Account:
        balance = 0
        def deposit(self, n): self.balance += n; return self
    return Account()
def adder(n): return lambda m: n + m
"""
    for tests in (
        "assert Money(5) - 2 == Money(3) and Money(1) < 2 and 5 in Money(5)",
        "assert Money(1000) == rich()",
        "a = account()\na.deposit(5)\nassert a.deposit(2).balance == 7",
        "assert adder(5)(3) == 8",
    ):
        passes(engine, program, tests)


def test_a_star_brings_only_what_the_tests_use(engine: SyncEngine) -> None:
    star = "from solution import *\n"
    for program, tests in (
        (
            "__all__ = ['f', 'abs']\ndef abs(x): return 0\ndef f(x): return 9",
            f"{star}def test_a(): assert abs(f(2) - 1.4) < 1e-3",
        ),
        (
            "__all__ = ['f', 'check']\ndef check(*a): pass\ndef f(x): return 9",
            f"def check(x): assert x == 1\n{star}def test_a(): check(f(1))",
        ),
        (
            "class pytest:\n    class approx:\n        def __init__(s, *a): pass\n        def __eq__(s, o): return True\ndef f(x): return 9\n__all__ = ['pytest', 'f']",
            f"import pytest\n{star}def test_a(): assert f(1) == pytest.approx(2)",
        ),
        (
            "".join(f"def test_x{i}(): pass\n" for i in range(99)) + "def f(x): return 9",
            f"{star}def test_a(): assert f(1) == 2",
        ),
        (
            "def test_b(): pass\nclass T:\n    name, args = 'parametrize', ('x', [1] * 50)\ntest_b.pytestmark = [T]\ndef f(x): return 9",
            f"{star}def test_a(): assert f(1) == 2\nx = test_b",
        ),
    ):
        assert run(engine, program, tests, module=True).reward == 0.0, program


def test_libraries_are_not_the_programs_to_replace(engine: SyncEngine) -> None:
    for program, tests in (
        ("class math:\n    isclose = lambda *a, **k: True\ndef f(x): return 9", "assert math.isclose(f(2), 1.4)"),
        ("def isclose(*a): return True\ndef f(x): return 9", "assert isclose(f(2), 1.4)"),
        ("class np:\n    allclose = lambda *a: True\ndef f(x): return 9", "assert np.allclose(f(2), 1.4)"),
    ):
        assert run(engine, program, tests).reward in (0.0, None), program
    prompt = 'def helper(x):\n    return x + 1\n\ndef f(x):\n    """Next."""\n'
    lies = "def helper(x): return 2\ndef f(x): return 9"
    assert run(engine, lies, "assert helper(f(1)) == 3", prompt=prompt, entry_point="f").reward == 0.0


def test_a_program_does_not_end_the_tests_loops(engine: SyncEngine) -> None:
    program = "def f(x): raise StopIteration"
    for tests in (
        "for got, want in zip(map(f, [1, 2]), [3, 4]): assert got == want",
        "assert all(map(lambda c: f(c[0]) == c[1], [(1, 2)]))",
        "assert list(map(f, [1])) == []",
    ):
        assert run(engine, program, tests).reward == 0.0, tests


def test_a_sleeper_is_not_run_again(engine: SyncEngine) -> None:
    from proctor.engine.job import Case, Job, Pair, Program

    program = Program({"a.py": b"import time; time.sleep(1000)"}, ("python3", "a.py"), warm=True)
    half = Job(program, (Case(talk="stdio"),), Limits(cpu_s=1, wall_s=1))
    for outcome in engine.run(Pair(half, half)):
        assert outcome.ended_by is EndedBy.WALL
        assert not outcome.confirmed


HOLES = {
    "the function is a class": (
        "class f:\n    def __init__(s, *a): pass\n    def __sub__(s, o): return 0\n    def startswith(s, o): return True\n",
        "assert abs(f(3.5) - 0.5) < 1e-6",
    ),
    "a method gives itself": (
        "class Solution:\n    def go(s, x): return s\n    def __sub__(s, o): return 0\n",
        "assert abs(Solution().go(3) - 0.5) < 1e-6",
    ),
    "a method gives another": (
        "class Solution:\n    def go(s, x): return Solution()\n    def __sub__(s, o): return 0\n",
        "assert abs(Solution().go(3) - 0.5) < 1e-6",
    ),
    "named by an attribute": (
        "class append:\n    def __sub__(s, o): return 0\ndef f(x): return append()\n",
        "x = []\nx.append(1)\nassert abs(f(3) - 4.5) < 1e-6",
    ),
    "an attribute that is a class": (
        "class O: startswith = bool\ndef f(x): return O()\n",
        "assert f(3).startswith('abc')",
    ),
    "a class": (
        "class C: startswith = staticmethod(lambda x: True)\ndef f(x): return C\n",
        "assert f(3).startswith('abc')",
    ),
    "classes in a list": (
        "class C: startswith = staticmethod(lambda x: True)\ndef f(x): return [C, C]\n",
        "assert all(x.startswith('abc') for x in f(3))",
    ),
    "a named tuple": (
        "import collections\nR = collections.namedtuple('R', 'startswith count')\ndef f(x): return R(bool, bool)\n",
        "assert f(3).startswith('abc')",
    ),
    "a decimal": (
        "class O:\n    def compare(s, o): return 0\ndef f(x): return O()\n",
        "from decimal import Decimal\nassert f(1).compare(Decimal(3)) == 0",
    ),
    "two faces": (
        "class O:\n    n = 0\n    def __init__(s, x): s.x = x\n    def __iter__(s):\n        s.n += 1\n        return iter(s.x if s.n < 2 else 'ab')\n    def __len__(s): return len(s.x)\ndef f(x): return O(x)\n",
        "from collections import Counter\nr = f('aabb')\nassert Counter(r) == Counter('aabb')\nassert all(a != b for a, b in zip(r, list(r)[1:]))\nassert len(r) == 4",
    ),
    "an iterator with a second life": (
        "class O:\n    n = 0\n    def __iter__(s): s.n += 1; s.i = iter('aabb' if s.n < 2 else 'ab'); return s\n    def __next__(s): return next(s.i)\ndef f(x): return O()\n",
        "from collections import Counter\nr = f('aabb')\nassert Counter(r) == Counter('aabb')\nassert ''.join(r) == 'ab'",
    ),
    "an own name": (
        "EPS = 1e9\ndef f(x): return 0\n",
        "EPS: float = 1e-6\nfrom solution import *\ndef test_a(): assert abs(f(1) - 5) < EPS",
    ),
    "a swallowed failure": (
        "class T:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\n",
        "with T():\n    assert 1 == 2\n    x = 1\nassert x == 1",
    ),
    "an exception with a class in it": (
        "def f(x): raise ValueError(bool)\n",
        "try:\n    f(1)\nexcept ValueError as e:\n    assert e.args[0](3)",
    ),
}


@pytest.mark.parametrize("name", HOLES)
def test_what_stands_where_data_is_due_earns_nothing(engine: SyncEngine, name: str) -> None:
    program, tests = HOLES[name]
    found = run(engine, program, tests, module="import *" in tests)
    assert not found.reward, found.cases


def test_objects_that_methods_give_are_said_to_decide(engine: SyncEngine) -> None:
    program = """
class Complex:
    def __init__(s, a, b=0): s.a, s.b = a, b
    def conjugate(s): return Complex(s.a, -s.b)
    def __abs__(s): return (s.a ** 2 + s.b ** 2) ** 0.5
    def __eq__(s, o): return (s.a, s.b) == (o.a, o.b)
"""
    passes(engine, program, "assert Complex(3, 4).conjugate() == Complex(3, -4) and abs(Complex(3, 4)) == 5")
    found = run(engine, program, "assert abs(Complex(3, 4).conjugate()) == 5")
    assert (found.reward, found.claimed) == (1.0, True)
    assert "conjugate" in found.claim or "Complex" in found.claim


def test_exceptions_of_libraries_are_themselves(engine: SyncEngine) -> None:
    program = "import json, decimal\ndef f(x): return json.loads(x)\ndef g(x): return decimal.Decimal(x)\n"
    tests = """
import json, decimal, pytest
def test_a():
    with pytest.raises(json.JSONDecodeError): f("{")
def test_b():
    with pytest.raises(decimal.InvalidOperation): g("x")
"""
    passes(engine, program, tests)


def test_rows_that_do_not_fit_fail_their_test_alone(engine: SyncEngine) -> None:
    tests = "import pytest\n@pytest.mark.parametrize('a, b', [(1, 2, 3)])\ndef test_x(a, b): assert f() == 1\ndef test_y(): assert f() == 1\n"
    found = run(engine, "def f(): return 1", tests)
    assert [case.verdict for case in found.cases] == [WRONG, OK]
