"""What right programs are asked in test files: relayed, or left open with the reason; never a wrong answer."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.engine.shared import SyncEngine

pytestmark = pytest.mark.environments

ERROR = """
class Broke(Exception):
    kind = "own"
    def __init__(self, text, code=3):
        super().__init__(text)
        self.code, self.seen = code, [1]
    @property
    def double(self): return 2 * self.code
    def hint(self): return "x"
    def __str__(self): return "nice " + self.args[0]
def f():
    try: 1 / 0
    except ZeroDivisionError as exc: raise Broke("m") from exc
"""
CAUGHT = "import pytest\nwith pytest.raises(Broke{}) as e: f()\nassert {}"
COLORS = "import enum\nclass Color(enum.Enum):\n    RED = 1\n    BLUE = 2\ndef f(): return Color.RED\n"
POINT = "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int = 0\n    y: int = 0\n"
OF_DATA = "import collections, datetime, decimal, fractions\nfor name, kind in (('Money', decimal.Decimal), ('Share', fractions.Fraction), ('Cx', complex), ('Day', datetime.date), ('Moment', datetime.datetime), ('Span', datetime.timedelta), ('Ring', collections.deque), ('Tally', collections.Counter), ('Od', collections.OrderedDict), ('Bytes', bytearray), ('Few', set), ('Lower', collections.UserDict), ('Users', collections.UserList), ('Texts', collections.UserString), ('Chain', collections.ChainMap)):\n    globals()[name] = type(name, (kind,), {})\nclass Amount(decimal.Decimal): pass\ndef f(): return Amount('1.5')\n"
TUPLES = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    x: int\n    y: int = 2\n    def total(s): return s.x + s.y\ndef make(): return Pair(1)\n"
MADE_OF_DATA = """
import enum
class L(list):
    def summed(s): return sum(s)
class D(dict): pass
class S(str): pass
class N(int): pass
class Kind(str, enum.Enum): A = "a"
class Level(enum.IntEnum): ONE = 1
def f(): return L([1, 2]), D(a=1), S("a"), N(3), Kind.A, Level.ONE
"""
BUILDER = "class Builder:\n    def __init__(s): s.n, s.items = 0, []\n    def add(s, k): s.n += k; return s\n    def total(s): return sum(s.items)\n"
# A program and tests that it passes; True: by no claim of its own.
PASSED = [
    (BUILDER, "b = Builder()\nassert b.add(1) is b and b.n == 1", True),
    (BUILDER, "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        b = Builder()\n        self.assertIs(b.add(1), b)", False),
    (BUILDER, "b = Builder()\nb.items.append(3)\nassert b.total() == 3\nb.items += [4]\nassert b.total() == 7", True),
    (ERROR, CAUGHT.format("", "e.value.code == 3 and e.value.seen == [1] and e.value.kind == 'own'"), True),
    (ERROR, CAUGHT.format("", "e.value.double == 6 and str(e.value) == 'nice m' and e.value.args == ('m',)"), True),
    (ERROR, CAUGHT.format(", match='nice m'", "isinstance(e.value.__cause__, ZeroDivisionError)"), True),
    (ERROR, "import pytest\nwith pytest.raises(Broke): raise Broke('m')\nassert f", True),
    ("def f(): raise ValueError('x') from KeyError('k')", "try: f()\nexcept ValueError as e: assert str(e.__cause__) == \"'k'\"", True),
    (COLORS, "assert [c.value for c in Color] == [1, 2] and len(list(Color)) == 2\nassert Color.RED.value == 1", True),
    (COLORS, "assert len(Color) == 2 and Color['RED'] is Color.RED and Color.RED in Color and Color(2) is Color.BLUE and isinstance(f(), Color)", True),
    (COLORS, "assert len(Color) == 2", False),
    (POINT, "import copy\np = Point(1, 2)\nq = copy.copy(p)\nq.x = 5\nassert (p.x, q.x) == (1, 5) and q is not p", True),
    (POINT, "import copy\np = Point(1, 2)\n(q,) = copy.deepcopy([p])\nq.x = 5\nassert p.x == 1 and q.y == 2", True),
    (POINT, "import dataclasses\np = Point(1)\nassert dataclasses.asdict(p) == {'x': 1, 'y': 0} and dataclasses.astuple(p) == (1, 0)", True),
    (POINT, "from dataclasses import fields, replace, is_dataclass\nassert [f.name for f in fields(Point)] == ['x', 'y']\nassert replace(Point(1), x=2).x == 2 and is_dataclass(Point)", True),
    (POINT, "assert vars(Point(1)) == {'x': 1, 'y': 0} and 'x' in dir(Point(1))", True),
    ("def g():\n    yield 1", "import types\nfrom collections.abc import Iterator, Iterable, Generator\nx = g()\nassert all(isinstance(x, k) for k in (types.GeneratorType, Iterator, Iterable, Generator)) and list(x) == [1]", True),
    ("def f():\n    'says'\n    return 1\nclass A:\n    'of a class'", "assert f.__doc__ == 'says' and f.__name__ == 'f' and A.__doc__ == 'of a class' and A().__doc__ == 'of a class'", True),
    (MADE_OF_DATA, "l, d, s, n, k, o = f()\nassert l == [1, 2] and [1, 2] == l and d == {'a': 1} and s == 'a' and n == 3 and k == 'a' and o == 1", True),
    (MADE_OF_DATA, "l, d, s, n, k, o = f()\nassert s in ('b', 'a') and {'a': 5}[s] == 5 and isinstance(l, list) and isinstance(n, int) and l.summed() == 3 and l != [2]", True),
    (OF_DATA, "import datetime as dt\nfrom collections import Counter, OrderedDict, deque\nfrom decimal import Decimal\nfrom fractions import Fraction\n"
     "assert Money('1.10') == Decimal('1.1') and Money('1') + Decimal(1) == 2 and Share(1, 2) == Fraction(1, 2) and Cx(1, 2) == 1 + 2j\n"
     "assert Day(2020, 1, 2) == dt.date(2020, 1, 2) and isinstance(Day(2020, 1, 2), dt.date) and Moment(2020, 1, 2, 3) == dt.datetime(2020, 1, 2, 3)\n"
     "assert Span(days=1) == dt.timedelta(1) and Ring([1, 2]) == deque([1, 2]) and Tally('aab') == {'a': 2, 'b': 1} == Counter('aab')\n"
     "assert Od(a=1) == OrderedDict(a=1) and Bytes(b'x') == b'x' and Money('1') != Decimal(2) and Money(1) < 2", False),
    (OF_DATA, "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertSetEqual(Few([1, 2, 2]), {1, 2})", False),
    (OF_DATA, "import collections\nassert Lower({'A': 1}) == {'A': 1} and Users([1]) == [1] and Texts('a') == 'a' and Chain({'a': 1}) == {'a': 1}\n"
     "assert isinstance(Users([1]), collections.UserList) and Users([1]) != [2] and Users([1]) == Users([1])", False),
    (OF_DATA + "class Score(int): pass\n", "assert Score(5) < 5.5 and 5.5 > Score(5) and Score(5) == 5.0 and not Score(5) >= 5.5", False),
    (COLORS.replace("enum.Enum", "enum.IntEnum"), "assert Color.RED < 1.5 and Color.BLUE >= 1.5 and Color.RED == 1.0", True),
    ("def f(n): raise ValueError('x')\nclass E:\n    gap = 3\ndef g(): return E()", "import pytest\ndef test_a():\n    with pytest.raises(ValueError) as e: f(-1)\n    assert 'x' in str(e.value)\ndef test_b():\n    e = g()\n    assert e.gap == 3", True),
    (OF_DATA, "import decimal\nassert f() == decimal.Decimal('1.5') and f() != 1", True),
    (TUPLES, "p = make()\nassert p == (1, 2) and isinstance(p, Pair) and p._replace(x=3) == (3, 2) and p.y == 2", True),
    (TUPLES, "assert make() == Pair(1)", False),
    (TUPLES, "assert make() == Pair(1) and make() != Pair(2) and not Pair(1) > make()", False),
    ("def f(v, kind): return isinstance(v, kind)", "from typing import Optional, Union\nassert f(1, int | str) and not f(1.5, str | None) and f(None, Optional[int]) and f('a', Union[int, str])", True),
    ("class A: pass\ndef f(v, kind): return isinstance(v, kind)", "assert f(A(), A | None) and not f(1, A | None)", True),
    ("f = len", "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertRaises(TypeError, f)", True),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(PASSED)))
def test_idioms_of_test_files_are_relayed(engine: SyncEngine, row: int) -> None:
    program, tests, sure = PASSED[row]
    if sure:
        passes(engine, program, tests)
    else:
        assert run(engine, program, tests).reward == 1.0


# What cannot be relayed, and what the reason names.
LEFT_OPEN = [
    (ERROR, CAUGHT.format("", "e.value.hint() == 'x'"), "hint"),
    (ERROR, "assert Broke('m').code == 3", "code"),
    (ERROR, "assert str(Broke('m')) == 'nice m'", "text"),
    (TUPLES, "assert make().total() == 3", "total"),
    (MADE_OF_DATA, "assert f()[2].upper() == 'A'", "upper"),
    (MADE_OF_DATA, "assert f()[3] + 1 == 4", "__add__"),
    (
        COLORS.replace("RED = 1", "RED = 'red'")
        .replace("BLUE = 2", "BLUE = 'blue'")
        .replace("enum.Enum", "str, enum.Enum"),
        "assert Color.RED in 'a red car'",
        "Color",
    ),
]


@pytest.mark.parametrize("row", range(len(LEFT_OPEN)))
def test_what_cannot_be_relayed_is_no_wrong_answer(engine: SyncEngine, row: int) -> None:
    program, tests, said = LEFT_OPEN[row]
    found = run(engine, program, tests)
    assert found.reward is None, found.cases
    assert said in (found.error or "")


# Programs that are wrong in what the relayed answers say.
WRONG = [
    (ERROR.replace("code=3", "code=4"), CAUGHT.format("", "e.value.code == 3")),
    (ERROR.replace("nice", "bad"), CAUGHT.format(", match='nice m'", "1")),
    (ERROR.replace(" from exc", " from None"), CAUGHT.format("", "isinstance(e.value.__cause__, ZeroDivisionError)")),
    (ERROR, CAUGHT.format("", "hasattr(e.value, 'other')")),
    (COLORS.replace("    BLUE = 2\n", ""), "assert [c.value for c in Color] == [1, 2]\nassert Color.RED.value"),
    (POINT.replace("y: int = 0", "y: int = 5"), "import dataclasses\nassert dataclasses.asdict(Point(1)) == {'x': 1, 'y': 0}"),
    ("def g(): return iter([1])", "import types\nassert isinstance(g(), types.GeneratorType)"),
    ("def f(): return 1", "assert f.__doc__"),
    ("class Alpha: pass", "assert not [x for x in Alpha]"),
    (TUPLES.replace("= 2", "= 3"), "assert make() == (1, 2)"),
]  # fmt: skip
# Objects that are made of data, and say of themselves that they are other data.
LIES = [
    "class L({kind}):\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n    __hash__ = None\ndef f(): return L({value})\n",
    "class M(type): pass\nclass L({kind}, metaclass=M):\n    def __iter__(s): return iter([9, 9])\n    def __len__(s): return 2\ndef f(): return L({value})\n",
    "class L({kind}):\n    @property\n    def __class__(s): return {kind}\n    def __getattribute__(s, n): return lambda *a: True\ndef f(): return L({value})\n",
]


@pytest.mark.parametrize("row", range(len(WRONG)))
def test_wrong_programs_earn_nothing_by_idioms(engine: SyncEngine, row: int) -> None:
    program, tests = WRONG[row]
    assert run(engine, program, tests).reward == 0.0


@pytest.mark.parametrize("lie", LIES)
def test_objects_made_of_data_are_that_data_and_no_other(engine: SyncEngine, lie: str) -> None:
    for kind, value, wanted in (
        ("list", "[1]", "[9, 9]"),
        ("str", "'x'", "'y'"),
        ("int", "1", "2"),
        ("dict", "{}", "{9: 9}"),
    ):
        program = lie.format(kind=kind, value=value)
        for tests in (f"assert f() == {wanted}", f"assert {wanted} == f()", f"assert f() in [{wanted}]"):
            assert run(engine, program, tests).reward == 0.0, (program, tests)


def test_an_object_made_of_data_does_not_try_one_answer_after_another(engine: SyncEngine) -> None:
    program = """
import sys
class L(list):
    def __hash__(s): return 0
x = L([0])
def f():
    sys.setprofile(lambda *a: x.__setitem__(0, (x[0] + 1) % 10))
    return x
"""
    assert run(engine, program, "assert f() in [[n] for n in (90, 91, 92)]").reward == 0.0
    assert (
        run(engine, program, "r = f()\nassert not (r == [3] or r == [4] or r == [5])\nassert r == [77]").reward == 0.0
    )
