"""Objects of the program's where sealed unit tests have data due."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine

pytestmark = pytest.mark.environments
OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


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
        "m = Money(5)\nassert m.n == 5 and m - 2 != Money(5) and 5 in m",
        "assert rich() != Money(7)",
        "a = account()\na.deposit(5)\nassert a.deposit(2).balance == 7",
        "assert adder(5)(3) == 8",
    ):
        passes(engine, program, tests)
    for tests in (
        "m = Money(5)\nassert m.n == 5 and m - 2 == Money(3)",
        "assert Money(1).n == 1 and Money(1) < 2",
        "assert Money(1000) == rich() and rich() != Money(7)",
    ):
        found = run(engine, program, tests)
        assert (found.reward, "own word" in found.claim) == (1.0, True)


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
    passes(
        engine,
        program,
        "assert isinstance(Complex(3, 4), Complex) and abs(Complex(3, 4)) == 5\nassert Complex(3, 4).conjugate() != Complex(3, 4)",
    )
    found = run(engine, program, "assert abs(Complex(3, 4).conjugate()) == 5")
    assert (found.reward, found.claimed) == (1.0, True)
    assert "conjugate" in found.claim or "Complex" in found.claim


# A program, tests that it must not pass unmarked, and how it may be graded: "none" or "claimed".
GIVES_ITSELF = """
class Circle:
    def __init__(s, *a): pass
    area = property(lambda s: s)
    def items_of(s): return [s] * 3
    def fill(s, out, table): out.append(s); table["x"] = s
    def run(s):
        for i in range(3): yield s
    def __getitem__(s, i): return s
    def __abs__(s): return s
    def __round__(s, n=0): return s
    def __call__(s, *a): return s
    def __mul__(s, o): return s
    def __sub__(s, o): return 0
    __rsub__ = __sub__
    def __lt__(s, o): return True
    __gt__ = __lt__
    @staticmethod
    def solve(x): return Circle(x)
    @classmethod
    def of(cls, x): return cls(x)
def kind(): return Circle
def fill(x): x[0] = x[1]
f = Circle
"""
WITHOUT_REWARD = [
    "x = [1.0, Circle(2)]\nx[1].own = 1\nfill(x)\nassert x[0] - 5 < 1",
    "assert abs(Circle(5).area - 78.5) < 1e-6",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertAlmostEqual(Circle(5).area, 78.5)",
    "c = Circle(1)\nassert all(abs(a - b) < 1e-5 for a, b in zip(c.items_of(), [1, 2, 3]))",
    "c, out = Circle(1), []\nc.fill(out, {})\nassert out[0] - 0.5 < 1e-6",
    "c, table = Circle(1), {}\nc.fill([], table)\nassert table['x'] - 0.5 < 1e-6",
    "c = Circle(1)\nc.own = 1\nfor got, want in zip(c.run(), [1, 2]): assert got - want < 1e-9",
    "c = Circle(1)\nassert 0.4 < list(c.run())[0] < 0.6",
    "c = Circle(1)\nc.own = 1\nassert abs(c) - 5.0 < 1e-9",
    "c = Circle(1)\nc.own = 1\nassert round(c, 2) - 5.0 < 1e-9",
    "c = Circle(1)\nc.own = 1\nassert c(3) - 5.0 < 1e-9",
    # By another name, or where it came in an answer, the class is none that the tests called as one.
    "assert Circle(1).own_name if False else True\nassert f(3) - 0.5 < 1e-6",
    "assert isinstance(Circle(1), Circle)\nassert kind()(3) - 0.5 < 1e-6",
]
CLAIMED = [
    "c = Circle(1)\nc.own = 1\nassert c[1] - 4.0 < 1e-9",
    "c = Circle(1)\nc.own = 1\nassert c * Circle(2) - 11.0 < 1e-9",
    "assert Circle.solve(3) - 0.5 < 1e-6",
    "assert Circle.of(3) - 0.5 < 1e-6",
]


@pytest.mark.parametrize("tests", [*WITHOUT_REWARD, *CLAIMED])
def test_soundness_is_a_matter_of_how_the_tests_got_an_object(engine: SyncEngine, tests: str) -> None:
    found = run(engine, GIVES_ITSELF, tests)
    if tests in CLAIMED:
        assert (found.reward, found.claimed) == (1.0, True), found.cases
    else:
        assert found.reward is None, found.cases
        assert "data" in (found.error or "")


def test_a_capital_does_not_make_a_class(engine: SyncEngine) -> None:
    average = """
class Average:
    def __init__(s, *a): pass
    def __sub__(s, o): return 0
    def startswith(s, o): return True
class BANNER: startswith = staticmethod(lambda x: True)
class GCD(Average): pass
"""
    for tests in ("assert abs(Average([1, 2]) - 1.5) < 1e-6", "assert Average([2]).startswith('2')"):
        found = run(engine, average, tests)
        assert found.claimed, found.cases
        assert "Average" in found.claim
        assert run(engine, average, tests, entry_point="Average").reward is None
    for tests in ("assert BANNER.startswith('Hello')", "assert GCD(1) - 5 < 1"):
        assert run(engine, average, tests).reward is None, tests


@pytest.mark.parametrize(
    "tests",
    [
        "v = Money(5)\nassert v.n == 5 and v - 2 == 3",
        "assert Money(5).n == 5 and Money(5) - 2 == 3",
        "assert isinstance(Money(5), Money) and Money(5) - 2 == 3",
        "import unittest\nclass T(unittest.TestCase):\n    def setUp(self): self.m = Money(5)\n"
        "    def test_a(self): self.assertEqual((self.m.n, self.m - 2), (5, 3))",
        "class TestM:\n    m = Money(5)\n    def test_a(self): assert (self.m.n, self.m - 2) == (5, 3)",
        "assert Money(5) != Money(6) and Money(5) - 2 == 3",
        "import solution\nv = solution.Money(5)\nv.n = 9\nassert v - 2 == 7",
        "from solution import Money as M\nv = M(5)\nassert v.n == 5 and v - 2 == 3",
    ],
)
def test_tests_show_which_names_are_classes(engine: SyncEngine, tests: str) -> None:
    program = "class Money:\n    def __init__(s, n): s.n = n\n    def __sub__(s, o): return s.n - o\n    def __eq__(s, o): return s.n == o.n\n"
    passes(engine, program, tests, module="solution" in tests)


def test_a_prompt_shows_which_names_are_classes(engine: SyncEngine) -> None:
    program = "class Gauge:\n    def __init__(s, n): s.n = n\n    def __sub__(s, o): return s.n - o\n"
    tests = "assert Gauge(5) - 2 == 3"
    assert run(engine, program, tests).claimed
    prompt = 'class Gauge:\n    """A number."""\n    def __init__(self, n):\n'
    passes(engine, program, tests, prompt=prompt)


def test_objects_that_are_equal_are_said_to_decide(engine: SyncEngine) -> None:
    tests = "class_of = Rational(1, 2).top\nassert Rational(1, 2) + Rational(1, 3) == Rational(5, 6)"
    for program in (
        "class Rational:\n    top = 1\n    def __init__(s, *a): pass\n    def __eq__(s, o): return True\n    def __add__(s, o): return s\n",
        "class Rational:\n    top, one = 1, None\n    def __new__(c, *a):\n        c.one = c.one or object.__new__(c)\n        return c.one\n    def __add__(s, o): return s\n",
    ):
        found = run(engine, program, tests)
        assert (found.reward, found.claimed) == (1.0, True)
        assert "'Rational' by ==" in found.claim
        assert run(engine, program, f"{tests}\nassert Rational(1, 2) != Rational(1, 3)").reward == 0.0


def test_objects_in_a_list_that_the_program_sorts_stay_the_tests_own(engine: SyncEngine) -> None:
    program = (
        "class Card:\n    def __init__(s, n): s.n = n\n    def __lt__(s, o): return s.n < o.n\ndef order(x): x.sort()\n"
    )
    tests = "a, b = Card(2), Card(1)\nx = [a, b]\norder(x)\nassert a.n == 2 and x[0] is b"
    passes(engine, program, tests)
    found = run(engine, program, f"{tests} and x[0] < x[1] and not x[1] < x[0]")
    assert (found.reward, "'Card' by <" in found.claim) == (1.0, True)


def test_nothing_is_sent_to_an_object_in_doubt(engine: SyncEngine) -> None:
    program = """
seen = []
class L:
    def __sub__(s, o): seen.append(o); return 1e9
def f(x): return seen[-1] if seen else L()
"""
    tests = "def test_a(): assert abs(f(2) - 1.5) < 1e-6\ndef test_b(): assert f(2) == 1.5"
    found = run(engine, program, tests)
    assert found.reward == 0.0  # test_b learnt nothing from test_a, and failed
    assert not any(case.verdict is OK for case in found.cases)


def test_a_certain_failure_closes_what_is_left_open(engine: SyncEngine) -> None:
    program = "class L:\n    def __gt__(s, o): return True\ndef f(n): return n\ndef g(): return L()\n"
    left_open = "def test_open(): assert g() > 3\n"
    wrong, right = "def test_wrong(): assert f(1) == 2\n", "def test_right(): assert f(1) == 1\n"
    caught = "def test_caught():\n    try: assert g() > 3\n    except BaseException: pass\n"
    case = "import unittest\nclass T(unittest.TestCase):\n    def test_open(self): self.assertGreater(g(), 3)\n"
    for tests in (left_open, left_open + right, right + left_open, caught + right, case + right):
        found = run(engine, program, tests)
        assert found.reward is None, found.cases
        assert "did not make" in (found.error or "")
    for tests in (left_open + wrong + right, right + wrong + left_open, wrong + caught + right, case + wrong + right):
        for policy, reward in (("share", 1 / 3), ("all_or_nothing", 0.0)):
            found = run(engine, program, tests, policy=policy)
            assert found.reward == pytest.approx(reward), (tests, found.cases)
            assert [case.detail for case in found.cases if "left open" in case.detail]
    expected = f"import pytest\n@pytest.mark.xfail\n{left_open}"
    assert run(engine, program, expected + right).reward is None
    assert run(engine, program, expected + right + wrong).reward == pytest.approx(1 / 3)
    assert run(engine, program, f"{wrong}assert g() > 3\n").reward is None  # what comes after depends on it


def test_an_attribute_that_is_missing_is_no_doubt(engine: SyncEngine) -> None:
    found = run(engine, "class A: pass\ndef f(): return A()", "assert f().startswith('x')")
    assert found.reward == 0.0
