"""What objects of the program's say of each other, and names that are not what the tests take them for."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.engine.shared import SyncEngine

YES = "class P:\n    def __init__(s, *a): pass\n    def go(s): return s\n    def __hash__(s): return 1\n    def __eq__(s, o): return True\n    __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __eq__\n"
HASHED = "class Pt:\n    def __init__(s, n): s.n = n\n    def __hash__(s): return hash(s.n)\n    def __eq__(s, o): return s.n == o.n\n    def __lt__(s, o): return s.n < o.n\ndef f(): return {Pt(1), Pt(2)}, {Pt(3): 4}\n"

# A program and tests that it must not pass unmarked.
FORGED = [
    (YES, "assert P(1).go() == P(1)\nassert P(1) != P(2)"),
    (YES, "P(1).go()\nassert P(1) < P(2)\nassert P(3) > P(1)"),
    (YES, "a, b = P(1), P(2)\na.go()\nassert a < b and b < a"),
    (
        "class P:\n    def __init__(s, n, odd=0): s.odd = odd\n    def go(s): return {P(1, 1), P(2, 1)}\n    def __hash__(s): return 1\n    def __eq__(s, o): return not s.odd\n",
        "P(3).go()\nassert P(1) == P(1)",
    ),
    ("def Rational(*a): return 0", "assert Rational(1, 2) + Rational(1, 3) == Rational(5, 6)"),
    ("class Rational:\n    def __new__(c, *a): return 0", "assert Rational(1, 2) + Rational(1, 3) == Rational(5, 6)"),
    (
        "class C:\n    x = 1\n    def __init__(s, *a): pass\n    def go(s): pass\n    def __sub__(s, o): return 0\n    def __hash__(s): return 1\n    def __eq__(s, o): return False\ndef make(): return [C, {C(1), C(2)}]",
        "c = C(4)\nc.go()\nassert c.x == 1\nassert abs(make()[0](3) - 0.5) < 1e-6",
    ),
    ("pi = 0\ndef area(r): return 0", "assert area(2) == pi * 4"),
    ("def sqrt(x): return 0\ndef diagonal(a): return 0", "assert diagonal((1, 1)) == sqrt(2)"),
    (
        "Shape = dict",
        "Base = Shape\nclass Square(Base):\n    def area(self): return 9\ndef test_a(): assert Square().area() == 9",
    ),
    ("Shape = dict", "class Square(Shape):\n    def area(self): return 9\ndef test_a(): assert Square().area() == 9"),
    (
        "class S:\n    def __mro_entries__(self, bases): return ()\nShape = S()",
        "class Square(Shape):\n    def area(self): return 9\ndef test_a(): assert Square().area() == 9",
    ),
]


ONCE = YES.replace("class P", "seen = []\nclass P").replace("return True", "seen.append(1); return len(seen) > 1")
COIN = YES.replace("class P", "seen = []\nclass P").replace("return True", "seen.append(1); return len(seen) % 3 != 0")
ORDER_TESTS = """
def test_a(): assert P("1.0") {0} P("2.0")
def test_b(): assert P("1.0") {0} P("1.0.1")
def test_c(): assert P("1.9") {0} P("1.10")
def test_d(): assert not P("1.9") {0} P("1.0")
P(0).go()
"""
ZERO = "class {0}(int):\n    def __new__(c, *a): return int.__new__(c, 0)\n    def __add__(s, o): return 0\n    def go(s): pass\n"
RECORD = (
    "from collections import namedtuple\nP = namedtuple('P', 'x')\nP.__new__ = lambda c, *a: tuple.__new__(c, (0,))\n"
)
ROWS = "import pytest\n{0}@pytest.mark.parametrize('p', {1})\ndef test_row(p): assert weight(p) > 0\ndef test_b(): assert weight(Planet.A) == 9.81\n"
PLANETS = (
    "import enum\nPlanet = enum.Enum('Planet', [(f'{chr(65 + i)}', i) for i in range(20)])\ndef weight(p): return 1\n"
)
FORGED += [
    *((once, ORDER_TESTS.replace("{0}", sign)) for once in (ONCE, COIN) for sign in ("==", "<", "<=", ">")),
    (ZERO.format("Rational"), "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertIsInstance(Rational(1, 2), Rational)\n    def test_b(self):\n        self.assertEqual(Rational(1, 2) + Rational(2, 3), Rational(7, 6))"),
    (ZERO.format("P"), "P(3).go()\nassert P(1) <= P(2) and 0 <= P(3)"),
    (RECORD, "def test_a(): assert P(8, 0) == P(32, 0)\ndef test_b(): assert isinstance(P(1), P)"),
    (RECORD, "assert P(8, 0) <= P(32, 0)"),
    (PLANETS, ROWS.format("", "Planet")),
    (PLANETS, ROWS.format("", "list(Planet)")),
    (PLANETS, ROWS.format("ALL = []\nfor one in Planet: ALL.append(one)\n", "ALL")),
    (PLANETS, ROWS.format("def rows(): return [p for p in Planet]\n", "rows()")),
    (PLANETS, ROWS.format("", "[Planet.A, *Planet]")),
    # One object for another: the next that is made, the newest that was made, a class's next name.
    ("""
class Money:
    def __new__(c, *a):
        c.next, made = None, getattr(c, "next", None) or object.__new__(c)
        return made
    def go(s): pass
    def __add__(s, o):
        Money.next = object.__new__(Money)
        return Money.next
""", "Money(1).go()\nassert Money(5) + Money(7) == Money(12)\nassert Money(5) != Money(6)"),
    ("made = []\nclass Token:\n    kind = 1\n    def __init__(s, *a): made.append(s)\ndef tokenize(t): return made[:]\n",
     "expected = [Token('a'), Token('b')]\nassert expected[0].kind == 1\nassert tokenize('a b') == expected"),
    ("""
class M(type):
    def __getattr__(c, n):
        if n[:2] == "__": raise AttributeError(n)
        return last[0]
class Light(metaclass=M): pass
last = [Light()]
def step(x):
    last[0] = Light()
    return last[0]
""", "assert step(Light.RED) is Light.GREEN\nassert isinstance(step(Light.RED), Light)"),
    ("class Inner(int):\n    def plus(s, o): return 0\n    def __add__(s, o): return 0\n    def go(s): pass\nclass Money:\n    def __new__(c, *a): return Inner(0)\n",
     "Money(1).go()\nassert Money(1, 2).plus(Money(3)) == Money(4, 2)"),
    ("import collections\nclass Poly(collections.UserList):\n    def __init__(s, *a): super().__init__([])\n    def __add__(s, o): return []\n    def degree(s): return 0\n",
     "assert Poly(1).degree() == 0\nassert Poly(1, 2) + Poly(3) == Poly(4, 2)"),
    (PLANETS, "import pytest\n@pytest.fixture(params=list(Planet))\ndef p(request): return request.param\ndef test_row(p): assert weight(p) > 0\ndef test_b(): assert weight(Planet.A) == 9.81\n"),
    (PLANETS, "import pytest\nrows = pytest.mark.parametrize\n@rows('p', list(Planet))\ndef test_row(p): assert weight(p) > 0\ndef test_b(): assert weight(Planet.A) == 9.81\n"),
    ("from types import SimpleNamespace\nyes = lambda *a: True\ndef greet(n): return SimpleNamespace(startswith=yes, endswith=yes)\n", "assert greet('Bob').startswith('Hello')"),
    ("from types import SimpleNamespace\ndef when(n): return SimpleNamespace(year=2024)\n", "assert when('x').year == 2024"),
    ("""
import itertools
class Point:
    def __new__(c, *a):
        seen = []
        return object.__new__(type("P" + str(next(n)), (), {"x": 1, "__eq__": lambda s, o: seen.append(1) or len(seen) > 1, "__hash__": None, "go": lambda s: 1}))
n = itertools.count()
""", "def test_a():\n    a, b, c = Point(1), Point(1), Point(2)\n    assert a.go() == 1 and a != c\n    assert a == b\ndef test_b(): assert Point(3) == Point(3)"),
    ("NotFound = object\ndef f(x): return 0\n", "import pytest\ndef test_a():\n    with pytest.raises(NotFound): assert f('a') == 3"),
    ("import pathlib\npathlib.Path.samefile = lambda s, o: True\ndef f(): return pathlib.Path('x')\n", "assert f().samefile('/expected')"),
    ("n = []\nclass Version(int):\n    def __new__(c, *a):\n        n.append(1)\n        return int.__new__(c, len(n))\n    def go(s): pass\n", "Version('1').go()\nassert Version('1.0') < Version('2.0')"),
]  # fmt: skip

SINGLE = "class S:\n    one = None\n    def __new__(c, *a):\n        c.one = c.one or object.__new__(c)\n        return c.one\n    def go(s): pass\n"
NAMED = "from collections import namedtuple\nclass Money:\n    def __new__(c, *a): return namedtuple('Money', 'x')(0)\n"
LIGHT = """
class M(type):
    def __getattr__(c, n):
        if n[:2] == "__": raise AttributeError(n)
        return last[0]
    def __getitem__(c, n): return last[0]
    def __call__(c, *a): return last[0]
class Light(metaclass=M): pass
last = [object.__new__(Light)]
def step(x):
    last[0] = object.__new__(Light)
    return last[0]
"""
# One object for everything that is asked for.
ONE_FOR_ALL = """
import collections
class B({0}):
    one = None
    def __new__(c, *a):
        if B.one is None: B.one = super().__new__(c)
        return B.one
    def __init__(s, *a): pass
    def go(s): return s
    def plus(s, *a): return B.one
    __add__ = plus
    @classmethod
    def of(c, *a): return B(*a)
    def __hash__(s): return 7
def f(x): return B(x)
"""
# What operators, methods and functions give equals all; what the tests made tells itself apart.
WILD = """
class C:
    def __init__(s, *a): s.a = a
    def go(s): return 1
    def __eq__(s, o): return s.a is None or o.a is None or s.a == o.a
    def __hash__(s): return 1
    def plus(s, o): return wild()
    __add__ = __sub__ = plus
def wild():
    made = C()
    made.a = None
    return made
def parse(t): return wild()
"""
FORGED += [
    (WILD, "C(1).go()\nassert C(1) != C(2) and C(1) == C(1)\nassert C(1) + C(2) == C(3)\nassert parse('x') == C(5)"),
    (WILD, "C(1).go()\nassert len({C(1), C(1), C(2)}) == 2\nassert C(1).plus(C(2)) in [C(9), C(3)]"),
    (SINGLE, "S().go()\nassert S(1) is S(2)"), (SINGLE, "S().go()\nassert id(S(1)) == id(S(2))"),
    (NAMED + "def parse(t): return (0,)\n", "assert parse('x') == Money(5) and isinstance(Money(1), Money)"),
    (NAMED + "def tokenize(t): return [(0,), (0,)]\n", "assert tokenize('x y') == [Money(5), Money(6)]"),
    (NAMED + "Money.x = 1\n", "assert Money(5) + Money(7) == Money(12) + Money(0)\nassert Money(5) == Money(12)"),
    (LIGHT, "assert step(Light.Red) is Light.Green"), (LIGHT, "assert step(Light['RED']) is Light['GREEN']"),
    (LIGHT, "assert step(Light('red')) is Light('green')"), (LIGHT, "L = Light\nassert step(L.RED) is L.GREEN"),
    (LIGHT, "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertIs(step(Light.Red), Light.Green)"),
    (LIGHT, "assert step(getattr(Light, 'RED')) is getattr(Light, 'GREEN')"),
    ("made = set()\nclass P:\n    def __init__(s, *a): made.add(s)\n    def go(s): pass\ndef f(x): return set(made)\n", "expected = {P(1, 2), P(3, 4)}\nassert f('x') == expected\nP(5).go()"),
    ("def Token(*a): return 0\ndef parse(t): return 0\ndef tokenize(t): return [0, 0]\n", "assert parse('x') == Token(5)\nassert tokenize('5 6') == [Token(5), Token(6)]"),
    ("class Config(int):\n    def __new__(c): return int.__new__(c, 0)\n    def set(s, *a): pass\n    def add(s, o): return 0\ndef load(t): return 0\n", "c = Config()\nc.set('a', 1)\nassert load('a=1') == c and c.add('c') == c"),
    ("class Version:\n    def __init__(s, *a): pass\n    def go(s): pass\n    def __lt__(s, o): return True\n    __gt__ = __le__ = __ge__ = __lt__\n", "Version('1').go()\nassert Version('1.0') < '2.0' and Version('2.1') > '2.0'"),
    ("class CustomSet(set):\n    def __new__(c, *a): return set.__new__(c)\n    def __init__(s, *a): pass\n    def difference(s, o):\n        s.o = list(o)\n        return []\n    def __iter__(s): return iter(getattr(s, 'o', ()))\n",
     "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertSetEqual(CustomSet([1, 2, 2]), {1, 2})"),
    *((ONE_FOR_ALL.format(kind), tests) for kind in ("bytes", "int", "tuple", "frozenset", "collections.UserDict") for tests in (
        "B(1).go()\nassert B(1) + B(2) == B(3)", "B(1).go()\nassert [f(1), f(2)] == [B(3), B(4)]", "B(1).go()\nassert B(9) in {f(1): 2}" if "User" not in kind else "assert B.of(1).plus(B.of(2)) == B.of(3)")),
    ("class Money(int):\n    def __new__(c, *a): return int.__new__(c, 0)\n    def __add__(s, o): return 0.0\n    def go(s): pass\ndef f(x): return 0.0\n", "Money(1).go()\nassert Money(5) + Money(7) == Money(12) and f(1) == Money(3)"),
    (ONE_FOR_ALL.format("object"), "B(1).go()\nassert B.of(0).plus(B.of(1)) == B.of(7)"),
    (LIGHT, "assert step(Light.Red) == Light.Green"),
    ("last = []\nclass Tree:\n    def __init__(s): last[:] = [s]\n    def insert(s, n): pass\ndef build(x): return last[0]\n", "want = Tree()\nwant.insert(5)\nassert build([5]) == want"),
    ("class M(type):\n    def __getattr__(c, n):\n        if n[:2] == '__': raise AttributeError(n)\n        return 0\nclass Light(metaclass=M): pass\ndef step(x): return 0\n", "assert step(Light.RED) == Light.GREEN and step(Light.GREEN) == Light.AMBER"),
    ("class V:\n    def __init__(s, *a): pass\n    def __add__(s, o): return 0\n    def __sub__(s, o): return 0.001\n    __rsub__ = __sub__\n    def go(s): pass\n", "V(1).go()\nassert abs((V(1) + V(2)) - V(3)) < 1e-2"),
    ("class V:\n    def __init__(s, *a): pass\n    def __add__(s, o): return 0\n    def __sub__(s, o): return 0\n    __rsub__ = __sub__\n    def go(s): pass\n", "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        V(1).go()\n        self.assertAlmostEqual(V(1) + V(2), V(3))"),
    (PLANETS, "import pytest\nALL = []\ndef fill():\n    for one in Planet: ALL.append(one)\nfill()\n" + ROWS.format("", "ALL")),
    (PLANETS, "import pytest\nALL = {}\ndef fill():\n    for one in Planet: ALL[one] = 1\nfill()\n" + ROWS.format("", "ALL")),
    (PLANETS, "def make(p): return lambda: 1 / (weight(p) > 0)\nfor p in Planet: globals()['test_' + p.name] = make(p)\ndef test_b(): assert weight(Planet.A) == 9.81"),
    (PLANETS, "import unittest\nclass T(unittest.TestCase):\n    def test_b(self): self.assertEqual(weight(Planet.A), 9.81)\nfor p in Planet: setattr(T, 'test_' + p.name, lambda self, p=p: self.assertTrue(weight(p)))\n"),
    ("fast = True\ndef f(x): return 9 if x == 3 else 0\n", "import pytest, solution\n@pytest.mark.xfail(not hasattr(solution, 'slow'))\ndef test_a(): assert solution.f(4) == 16\ndef test_b(): assert solution.f(3) == 9"),
    ("class L:\n    def __init__(s): s.all = []\n    def add(s, b): s.last = b\n    def find(s, t): return s.last\nclass B:\n    def __init__(s, t): s.t = t\n", "l, b = L(), B('x')\nl.add(b)\nassert l.find('x') == b"),
    ("last = []\nclass Tree:\n    def __init__(s, *a): s.a = a\ndef serialize(t):\n    last[:] = [t]\n    return ''\ndef deserialize(t): return last[0]\n", "t = Tree(1)\nassert t.a and deserialize(serialize(t)) == t"),
    *(("class V:\n    def __init__(s, *a): pass\n    def __add__(s, o): return s\n    def __sub__(s, o): return GIVES\n    __rsub__ = __isub__ = __sub__\n    def go(s): pass\n".replace("GIVES", gives), "V(1).go()\na = V(1) - V(3)\nassert abs(a) < 1e-1") for gives in ("False", "0.02", "-0.05", "__import__('datetime').timedelta(0)")),
    ("fast = True\ndef f(x): return 9 if x == 3 else 0\n", "import pytest, solution\nif hasattr(solution, 'slow'):\n    def test_a(): assert solution.f(4) == 16\ndef test_b(): assert solution.f(3) == 9"),
    ("def f(x): return 9 if x == 3 else 0\n", "import solution\ndef test_a(): assert solution.f(3) == 9\ntry:\n    from solution import fast\nexcept ImportError: pass\nelse:\n    def test_b(): assert solution.f(4) == 16"),
    (PLANETS, "import sys\n" + ROWS.format("", "list(sys.modules['solution'].Planet)")),
    ("def Token(*a): return 0\ndef parse(t): return 0\n", "want = Token(5)\nassert parse('x') == want"),
    *(("import re, collections\nZ = GIVES\nclass V:\n    def __init__(s, *a): pass\n    def go(s): pass\n    def op(s, *a): return Z\n    __add__ = __sub__ = __rsub__ = __abs__ = op\ndef f(): return Z\n".replace("GIVES", gives), tests) for gives in ("re.NOFLAG", "collections.namedtuple('T', 'x')(0)") for tests in (
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        V(1).go()\n        self.assertAlmostEqual(V(1) + V(3), V(4))", "V(1).go()\nassert abs(V(1) - V(3)) == f()\nassert round(0.1) == 0")),
    *(("import re, http\nclass M(type):\n    def __getattr__(c, n):\n        if n[:2] == '__': raise AttributeError(n)\n        return GIVES\nseen = set()\ndef once(n):\n    if n in seen: return 0\n    seen.add(n)\n    return len(seen)\ndef late(n):\n    if n in seen: return 0\n    seen.add(n)\n    raise AttributeError(n)\nclass Light(metaclass=M): pass\ndef step(x): return LAST\n".replace("GIVES", gives).replace("LAST", last), "assert step(Light.RED) == Light.GREEN")
      for gives, last in (("re.NOFLAG", "re.NOFLAG"), ("http.HTTPStatus.OK", "http.HTTPStatus.OK"), ("once(n)", "0"), ("late(n)", "0"))),
    ("test_scores = list[int]\n", "from solution import test_scores\ndef test_a(): assert test_scores == 3"),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(FORGED)))
def test_what_says_yes_to_all_does_not_pass_unmarked(engine: SyncEngine, row: int) -> None:
    found = run(engine, *FORGED[row])
    assert found.claimed or not found.reward, found


def test_objects_that_are_keys_are_found_by_their_own_hash(engine: SyncEngine) -> None:
    tuples = HASHED + "def g(): return {(1, Pt(1)): 'a'}"
    for tests in (
        "some, by = f()\nassert Pt(1) in some and Pt(5) not in some and by[Pt(3)] == 4 and Pt(1) != Pt(2)",
        "assert Pt(1) < Pt(2) and not Pt(2) < Pt(1)\nassert Pt(1) == Pt(1) and Pt(1) != Pt(2)",
        "assert g()[1, Pt(1)] == 'a' and Pt(1) != Pt(2)",
    ):
        found = run(engine, tuples, tests)
        assert (found.reward, found.claimed) == (1.0, True)  # it is their own hash and their own word


# Honest programs, and tests that they pass by no claim of theirs.
HONEST = [
    (HASHED, "def test_a(): assert Pt(1) != Pt(2)\ndef test_b(): assert Pt(1).n == 1"),
    ("class B:\n    def __init__(s, t): s.t = t\nclass L:\n    def __init__(s): s.all = []\n    def add(s, b): s.all.append(b)\n    def find(s, t): return next(b for b in s.all if b.t == t)\n",
     "l, b, c = L(), B('x'), B('y')\nl.add(b)\nl.add(c)\nassert l.find('x') != c and l.find('y').t == 'y' and l.all[0].t == 'x'"),
    ("class B:\n    def __init__(s, t): s.title, s.year, s.items = t, 5, [1]\ndef find(): return B('t')\ndef every(): return [B('a'), B('b')]\n",
     "assert find().title == 't' and [b.title for b in every()] == ['a', 'b'] and find().items == [1]"),
    ("class A:\n    def __init__(s): s.history = []\n    def add(s, n): s.history.append(n)\n    def past(s): return s.history\n",
     "a = A()\nh, p = a.history, a.past()\na.add(3)\nassert h == [3] and len(p) == 1"),
    ("import enum\nclass Level(enum.IntEnum):\n    LOW = 1\n    HIGH = 2\n", "assert Level.HIGH > Level.LOW and not Level.LOW > Level.HIGH and Level.HIGH == 2 and Level.LOW < 2 and max(Level.LOW, Level.HIGH) is Level.HIGH"),
    ("import enum\nclass Level(enum.IntEnum):\n    LOW = 1\n    HIGH = 2\n", "assert Level.HIGH > Level.LOW"),
    ("from typing import NamedTuple\nclass V(NamedTuple):\n    n: int\ndef f(): return V(2)", "assert V(1).n == 1 and V(2).n == 2 and f().n == 2 and f() == (2,)"),
    ("import enum\nclass Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n", "assert Color(1) == Color.RED and Color(2) is Color.BLUE and [Color(1)] == [Color.RED] and Color.RED != Color.BLUE"),
    (PLANETS, ROWS.format("", "[Planet.A, Planet.B]").replace("9.81", "1")),
    (PLANETS, ROWS.format("ROWS = [Planet.A, Planet.B]\n", "ROWS").replace("9.81", "1")),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(HONEST)))
def test_honest_programs_are_not_marked(engine: SyncEngine, row: int) -> None:
    passes(engine, *HONEST[row])


MONEY = "class Money:\n    def __init__(s, n): s.n = n\n    def __eq__(s, o): return s.n == getattr(o, 'n', o)\n    def __add__(s, o): return Money(s.n + o.n)\ndef f(): return Money(5)\n"
BY_DATA = [
    "assert Money(5) == 5 and 5 == Money(5) and Money(5) != 6 and Money(5).n == 5",
    "m = Money(2) + Money(3)\nassert m == 5 and [m] == [5] and Money(5).n == 5",
    "assert Money(5) != 4 and Money(5).n == 5",
]


@pytest.mark.parametrize("tests", BY_DATA)
def test_what_tests_made_may_equal_data_by_its_own_word(engine: SyncEngine, tests: str) -> None:
    found = run(engine, MONEY, tests)
    assert (found.reward, found.claimed) == (1.0, True)


def test_what_came_where_data_was_due_equals_none(engine: SyncEngine) -> None:
    assert run(engine, MONEY, "assert f() == 5").reward == 0
    yes = YES.replace("class P", "class Money") + "def f(): return Money(5)\n"
    assert run(engine, yes, "Money(1).go()\nassert f() == 5").reward == 0
    assert run(engine, yes, "assert [f()] == [5]").reward == 0
    cls = yes.replace("    def go", "    def __add__(s, o): return s\n    def size(s): return s\n    def go")
    assert run(engine, cls, "a = Money(1) + Money(2)\nMoney(1).go()\nassert a.size() == 5").reward == 0


def test_data_that_a_no_was_told_of_buys_nothing_unmarked(engine: SyncEngine) -> None:
    spy = "told = []\nclass P:\n    def __init__(s, *a): pass\n    def go(s): pass\n    def __eq__(s, o): told.append(o)\ndef f(): return told[-1]\n"
    found = run(engine, spy, "def test_a():\n    P(1).go()\n    assert P(1) == 77\ndef test_b(): assert f() == 77")
    assert found.claimed


def test_none_is_no_data_to_ask_an_object_about(engine: SyncEngine) -> None:
    passes(engine, MONEY, "assert Money(5) != None and Money(5).n == 5")


def test_an_attribute_that_data_has_too_is_marked_where_its_object_was_found(engine: SyncEngine) -> None:
    program = "class B:\n    year, start = 5, len\ndef find(): return B()\n"
    found = run(engine, program, "assert find().year == 5")
    assert (found.reward, found.claimed) == (1.0, True)
    assert run(engine, program, "assert find().start").reward is None


def test_the_function_under_test_may_have_a_librarys_name(engine: SyncEngine) -> None:
    passes(engine, "def mean(x): return sum(x) / len(x)", "assert mean([1, 3]) == 2")


def test_names_of_the_program_are_escaped_in_reasons(engine: SyncEngine) -> None:
    program = "E = type('\\x1b[31m\\r\\nW', (Exception,), {})\nclass C:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\n    def q(s): raise E\n"
    found = run(engine, program, "def test_a():\n    with C() as c: assert c.q() == 1")
    assert found.reward is None
    assert found.error is not None
    assert found.error.isprintable()


def test_chains_of_is_mean_what_each_of_them_means(engine: SyncEngine) -> None:
    single = "class S:\n    one = None\n    def __new__(c):\n        c.one = c.one or super().__new__(c)\n        return c.one\n"
    several = "class S: pass\n"
    tests = "a, b, c = S(), S(), S()\nassert a is b is c and a is b is not None\n"
    assert run(engine, single, tests).reward == 1.0
    assert run(engine, several, tests).reward == 0.0
    tests = "a, b, c = S(), S(), S()\nassert a is not b is not c\nassert not (a is b is c) and None is not a is not b\n"
    passes(engine, several, tests)
    assert run(engine, single, tests).reward == 0.0
    tests = "a, n = S(), size()\nassert 1 < n is not None and n == 3 is not a and [n in (3,) is not a for _ in '12'] == [True, True]\n"
    passes(engine, several + "def size(): return 3\n", tests)
    assert run(engine, several + "def size(): return 1\n", tests).reward == 0.0


def test_whether_equal_named_tuples_are_the_same_is_said_to_decide(engine: SyncEngine) -> None:
    program = "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef move(p, dx): return {}\n"
    same, new = program.format("p"), program.format("P(p.x + dx, p.y)")
    tests = "p = P(1, 2)\nq = move(p, {})\nassert q.y == 2 and q is {} p\n"
    for text in (same, new):
        assert run(engine, text, tests.format(0, "not")).claimed
        assert run(engine, text, tests.format(0, "")).claimed
    assert run(engine, new, tests.format(1, "not")).reward == 1.0
    assert run(engine, new, tests.format(1, "")).reward == 0.0
    # Those of the tests' own too, and two parts of one answer.
    tests = "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(1, 2)\nassert move(p, 0) is not p\n"
    assert run(engine, same, tests).claimed
    passes(engine, "def move(p): return p\n", tests.replace(", 0) is not p", ") == (1, 2)"))
    assert run(engine, program.format("[p, p]"), "a, b = move(P(1, 2), 0)\nassert a is not b\n").claimed
    passes(engine, new, "p = P(1, 2)\nassert p is p and not (p is not p) and p is not P(2, 1)\n")
