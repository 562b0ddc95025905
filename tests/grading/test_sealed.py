"""Unit tests apart from the program: what they can do, and when they must run beside it."""

from __future__ import annotations

import json
import textwrap

import pytest
from sealed_help import passes, run

from handed import handed
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.api import grade
from proctor.grading.formats import load_problems
from proctor.grading.named import Named
from proctor.grading.problem import Problem
from proctor.grading.sealable import unsealable
from proctor.grading.sealed import judge_sealed
from proctor.guest import protocol

pytestmark = pytest.mark.environments
OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


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


def test_named_tuples_may_hold_anything(engine: SyncEngine) -> None:
    program = """
        from collections import namedtuple
        from datetime import date
        from decimal import Decimal
        from enum import Enum
        class Kind(Enum):
            A = 1
        class Node:
            def __init__(self, v): self.v = v
        Row = namedtuple("Row", "name born price kind")
        Point = namedtuple("Point", "x y")
        Segment = namedtuple("Segment", "start stop")
        Pair = namedtuple("Pair", "node count")
        def row(): return Row("a", date(2024, 1, 2), Decimal("1.5"), Kind.A)
        def segment(): return Segment(Point(1, 2), Point(3, 4))
        def pair(): return Pair(Node(3), 1)
    """
    tests = """
        from datetime import date
        from decimal import Decimal
        from solution import Kind, Row, pair, row, segment
        def test_row(): assert row().born == date(2024, 1, 2) and row().name == "a" and row().price == Decimal("1.5")
        def test_member(): assert row().kind is Kind.A
        def test_segment(): assert segment().start.x == 1 and segment() == ((1, 2), (3, 4))
        def test_pair(): assert pair().node.v == 3 and pair().count == 1
        def test_made(): assert Row("b", date(2024, 1, 1), 0, Kind.A).name == "b"
    """
    found = run(engine, textwrap.dedent(program), textwrap.dedent(tests), module=True)
    assert (found.reward, [case.detail for case in found.cases if case.verdict is not OK]) == (1.0, [])


def test_named_tuples_may_have_methods(engine: SyncEngine) -> None:
    program = """
        from collections import namedtuple
        from typing import NamedTuple
        class Card(namedtuple("Card", "rank suit")):
            def __str__(self): return self.rank + self.suit
        class Interval(NamedTuple):
            start: int
            end: int = 9
            UNIT = 1
            def overlaps(self, other): return self.start <= other.end and other.start <= self.end
            @property
            def length(self): return self.end - self.start
        class Vector(NamedTuple):
            x: int
            y: int
            def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
        def card(): return Card("A", "S")
        def merge(rows): return [Interval(*row) for row in rows]
        def span(interval): return interval.length
    """
    tests = """
        from solution import Card, Interval, Vector, card, merge, span
        def test_made(): assert Interval(1, 3).length == 2 and Interval(1).end == 9 and Interval(1, 2).start == 1
        def test_given(): assert merge([(1, 2)])[0].start == 1 and merge([(1, 4)])[0].length == 3
        def test_equal(): assert merge([(1, 2), (3, 4)]) == [(1, 2), (3, 4)]
        def test_unpack():
            rank, suit = card()
            assert (rank, suit) == ("A", "S") and [end for _, end in merge([(1, 2)])] == [2]
        def test_parts(): assert card()[0] == "A" and len(card()) == 2 and "S" in card() and card() + (1,) == ("A", "S", 1)
        def test_text(): assert str(card()) == "AS"
        def test_back(): assert span(merge([(2, 5)])[0]) == 3
        def test_sum():
            made = Vector(1, 2) + Vector(3, 4)
            assert made.x == 4 and made == (4, 6)
        def test_methods(): assert Interval(1, 3).overlaps(Interval(2, 4)) and not Interval(1, 3).overlaps(Interval(4, 5))
    """
    found = run(engine, textwrap.dedent(program), textwrap.dedent(tests), module=True)
    assert (found.reward, [case.detail for case in found.cases if case.verdict is not OK]) == (1.0, [])
    lies = "import collections\nclass R(collections.namedtuple('R', 'startswith upper')):\n    def more(self): return 1\ndef f(x): return R(bool, lambda: 'ABC')\n"
    for line in ("assert f(3).startswith('abc')", "assert f(3).upper() == 'ABC'"):
        found = run(engine, lies, line)
        assert not found.reward or found.claimed


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


def test_changed_arguments_keep_their_order(engine: SyncEngine) -> None:
    tests = """
from collections import Counter, OrderedDict, defaultdict
d, c, e = OrderedDict(a=1), Counter("aab"), defaultdict(int, a=1)
f(d, c, e)
assert list(d) == ["b", "a"] and d["b"] == 2 and d == OrderedDict(b=2, a=1)
assert c == Counter("ab") and e == {"a": 1, "z": 0} and e["y"] == 0
"""
    passes(engine, "def f(d, c, e): d['b'] = 2; d.move_to_end('a'); c['a'] -= 1; e['z']\n", tests)


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
        self.assertEqual(str(Stack.of(3)), "Stack[0, 1, 2]")
        self.assertEqual(Stack.twice(4), 8)
        self.assertEqual(s(1, more=2), 3)
        self.assertTrue(s)
        self.assertFalse(Stack())
        self.assertEqual(str(s), "Stack[7, 2]")
        self.assertEqual(str(s + Stack(5)), "Stack[7, 2, 5]")
        s.items = [4]
        self.assertEqual(s.pop(), 4)
        with s as same:
            self.assertIs(same, s)
            assert same is s and s.push(1) is s and same is not Stack()
            self.assertIsNot(same, Stack())
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
        self.assertEqual(str(Stack.__add__(a, b)), "Stack[1, 2]")
        push = a.push
        push(9)
        self.assertEqual(a.items, [1, 9])
"""
    found = run(engine, CLASSES, tests, module=True)
    assert (found.reward, "'Stack' by ==" in found.claim) == (1.0, True)
    assert len([case for case in found.cases if case.name.startswith("T.")]) == 6


# ---------------------------------------------------------------- what cannot be sealed

BESIDE = {
    "import inspect\nassert 'for' not in inspect.getsource(f)": "source",
    "from unittest import mock\nassert f(1) == 2": "names",
    "from unittest.mock import patch\nassert f(1) == 2": "names",
    "import unittest.mock\nassert f(1) == 2": "names",
    "def test_x(monkeypatch): assert f(1) == 2": "names",
    "assert f.__code__.co_argcount == 1": "__code__",
    "import types\nassert isinstance(f, types.FunctionType)": "a function",
    "from types import LambdaType\nassert isinstance(f, LambdaType)": "a function",
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
    "import pickle\nassert pickle.loads(f(1)) == 2": "packed",
    "from doctest import testmod\nassert f(1) == 2": "text",
    "import logging.config\nassert f(1) == 2": "log",
    "from typing import get_type_hints\nassert f(1) == 2": "annotations",
    "import typing\nassert typing.get_type_hints(f)": "annotations",
    "import importlib, solution\nimportlib.reload(solution)": "again",
    "import sys\nsys.modules.pop('solution')": "again",
    "import sys\ndel sys.modules['solution']": "again",
    "import os\nassert os.path.exists(f(1))": "os.path.exists",
    "from os import listdir\nassert listdir('.') == f(1)": "os.listdir",
    "from pathlib import Path\nassert Path('out.txt').read_text() == 'x'": "read_text",
    "from pathlib import Path\nout = Path('a') / 'b'\nassert out.exists()": "exists",
    "import builtins\nbuiltins.input = lambda: '5'": "builtins.input",
    "import sys\nsys.argv = ['x']\nassert f(1) == 2": "sys.argv",
    "f('out.txt')\nassert open('out.txt').read() == 'x'": "written",
    "from decimal import getcontext\ngetcontext().prec = 5": "computes",
    "def test_a(self): self.assertLogs()": "assertLogs",
    "name = 'out.txt'\nf(name)\nassert open(name).read() == 'x'": "written",
    "assert open(f()).read() == 'x'": "written",
    "import io\nassert io.open(f'{1}.txt').read() == f(1)": "written",
    "import gzip\nf('a')\nassert gzip.open('a').read() == b'x'": "written",
    "import glob\nf(1)\nassert glob.glob('*.tmp') == []": "written",
    "from pathlib import Path\nwith Path('a').open() as file: assert f(file.read()) == 2": "open",
    "def read(path): return path.read_text()\nassert read('a') == f(1)": "read_text",
    "import os\nold = os.getcwd()\nf(1)\nassert os.getcwd() == old": "os.getcwd",
    "from sys import getrecursionlimit\nassert getrecursionlimit() == 1000 or f(1)": "sys.getrecursionlimit",
    "import random\nstate = random.getstate()\nf(1)\nassert random.getstate() == state": "random.getstate",
    "import sys\nold = sys.stdout\nf(1)\nassert sys.stdout is old": "streams",
    "from solution import capture\nwith capture() as out: print('hi')\nassert out.getvalue() == 'hi\\n'": "context",
    "import os, solution\nwith solution.cd('/'): assert os.sep == f(1)": "context",
    "from solution import Positive\nclass Item:\n    price = Positive()\nassert Item().price": "class of its own",
    "import time\nstart = time.time()\nf(1)\nassert time.time() - start < 1": "measures",
    "from time import perf_counter\na = perf_counter()\nf(1)\nb = perf_counter()\nassert b - a < 1": "measures",
}
# The same words where they are the program's, or harmless.
SEALED = [
    "code = encode('x')\nprofile = f(1)\nassert (code, profile) == ('y', 2)",
    "fs = FileSystem()\nfs.mkdir('/a')\nassert fs.exists('/a') and fs.listdir('/') == ['a']",
    "import sys, io\nsys.stdout = io.StringIO()\nassert f(1) == 2",
    "import solution\nsolution.LIMIT = 5\nassert solution.f(1) == 2",
    "assert open('data.txt').read() == f(1)",
    "import os\nassert f(os.path.join('a', 'b')) == os.sep",
    "import os\npath = os.path.join('data', 'data.txt')\nwith open(path) as file: assert file.read() == f(1)",
    "assert f().read_text() == 'x' and f().exists()",
    "door = Door()\ndoor.open()\nassert door.glob('x') == door.getstate()",
    "from solution import Timer\nwith Timer() as t: f(1)\nassert t.elapsed >= 0",
    "import pytest, sys\nfrom solution import f\nwith pytest.raises(ValueError): print(f(sys.maxsize))",
    "import unittest\nfrom solution import Stack\nclass T(unittest.TestCase):\n    stack = Stack()\nclass Own:\n    size = len('ab')",
    "import time\nassert f(time.time() - 60) == 2 and f(now=time.time()) < time.time()",
]


@pytest.mark.parametrize("tests", BESIDE)
def test_tests_that_look_into_the_program_run_beside_it(tests: str) -> None:
    reason = unsealable(tests, "solution")
    assert reason is not None
    assert BESIDE[tests] in reason
    assert reason.startswith("line ")


@pytest.mark.parametrize("tests", SEALED)
def test_words_alone_do_not_keep_tests_from_being_sealed(tests: str) -> None:
    assert unsealable(tests, "solution", ("data.txt",)) is None


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
