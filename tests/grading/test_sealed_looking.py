"""Sealed tests that look at the program's own by names that Python knows: classes, modules, what they say of themselves."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine

pytestmark = pytest.mark.environments

OPERATORS = ("iter", "len", "contains", "getitem", "call", "bool", "copy", "deepcopy", "del", "getattr", "dir", "slots")


@pytest.mark.parametrize("name", OPERATORS)
def test_no_class_has_what_only_its_stand_in_has(engine: SyncEngine, name: str) -> None:
    tests = f"assert hasattr(Repo, '__{name}__') and getattr(Repo, '__{name}__') and Repo.__{name}__\n"
    method = "__slots__ = ('x',)" if name == "slots" else f"def __{name}__(self, *rest): return 1"
    passes(engine, f"class Repo:\n    {method}\n", tests, solution_class="Repo")
    lacking = "class Repo:\n    pass\n"
    if name not in ("dir", "call"):  # which every class has
        found = run(engine, lacking, tests, solution_class="Repo")
        assert found.reward == 0.0
        passes(engine, lacking, f"assert not hasattr(Repo, '__{name}__')", solution_class="Repo")


@pytest.mark.parametrize("name", ["copy", "deepcopy", "del", "getattr", "slots", "len", "post_init"])
def test_no_object_has_what_only_its_stand_in_has(engine: SyncEngine, name: str) -> None:
    tests = f"r = Repo()\nassert r.go() == 1\nassert hasattr(r, '__{name}__')\n"
    method = "__slots__ = ('x',)" if name == "slots" else f"def __{name}__(self, *rest): return 1"
    passes(engine, f"class Repo:\n    {method}\n    def go(self): return 1\n", tests)
    assert run(engine, "class Repo:\n    def go(self): return 1\n", tests).reward == 0.0


def test_an_own_method_is_none_that_every_object_has(engine: SyncEngine) -> None:
    tests = """
import pytest
@pytest.mark.parametrize('name', ['__init__', '__repr__', '__eq__', '__hash__', '__str__', '__format__'])
def test_own(name): assert getattr(A, name) is not getattr(object, name)
def test_plain(): assert A.__init__ is not object.__init__ and A.__init__.__doc__ == 'Make.'
"""
    methods = "".join(f"    def __{name}__(self, *a): pass\n" for name in ("repr", "eq", "hash", "str", "format"))
    passes(engine, f"class A:\n{methods}    def __init__(self):\n        'Make.'\n", tests)
    assert run(engine, "class A: pass\n", tests).reward == 0.0


CLASSES = """
'''A module.'''
from abc import ABC
from typing import NamedTuple
class Abstract(ABC): pass
class Shape:
    '''A shape.'''
    __slots__ = ('x', 'y')
class Round(Shape): pass
class Other: pass
class Both(Round, Other): pass
class Meta(type):
    def __iter__(cls): return iter([1])
class Made(metaclass=Meta):
    class Inner: pass
class P(NamedTuple):
    x: int
class Q(NamedTuple):
    x: int
def make(kind): return P(1) if kind == 'p' else Q(1)
class Size:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n if isinstance(other, Size) else NotImplemented
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Shape.__slots__ == ('x', 'y')", "Round.__slots__ == ('x', 'y', 'z')"),
        ("[k.__name__ for k in Both.__mro__] == ['Both', 'Round', 'Shape', 'Other', 'object']", "len(Both.mro()) == 6"),
        ("Both.mro() == [Both, Round, Shape, Other, object] and Both.__bases__ == (Round, Other)", "Both.__base__ is Shape"),
        ("Made.Inner.__qualname__ == 'Made.Inner' and Shape.__module__ == 'solution'", "Made.Inner.__module__ == 'x'"),
        ("repr(Shape) == \"<class 'solution.Shape'>\" and f'{Shape}' == str(Shape)", "repr(Shape) == 'Shape'"),
        ("solution.__doc__ == 'A module.' and Shape.__doc__ == 'A shape.'", "not solution.__doc__"),
        ("type(Made) is Meta and isinstance(Made, Meta) and type(Shape) is type", "type(Shape) is Meta"),
        ("isinstance(Abstract, ABCMeta) and type(Abstract) is ABCMeta", "isinstance(Shape, ABCMeta)"),
        ("isinstance(Made, Iterable) and not isinstance(Shape, Iterable)", "isinstance(Shape, Sized)"),
        ("not hasattr(solution, '__all__')", "hasattr(solution, '__all__')"),
        ("type(make('p')) is P and make('p').__class__ is P", "type(make('q')) is P"),
        ("isinstance(make('p'), P) and type(make('p')) is type(make('p'))", "isinstance(make('q'), P)"),
    ],
)  # fmt: skip
def test_what_a_class_says_of_itself_is_asked_for(engine: SyncEngine, right: str, wrong: str) -> None:
    head = "import solution\nfrom solution import *\nfrom abc import ABCMeta\nfrom collections.abc import Iterable, Sized\n"
    program = CLASSES.lstrip("\n")
    passes(engine, program, f"{head}def test_a(): assert {right}\n", module=True)
    assert run(engine, program, f"{head}def test_a(): assert {wrong}\n", module=True).verdict is Verdict.WRONG_ANSWER


def test_an_operator_that_is_called_by_name_may_give_no_answer(engine: SyncEngine) -> None:
    tests = "p = Size(1)\nassert p.n == 1\nassert p.__eq__('x') is NotImplemented\n"
    assert run(engine, CLASSES.lstrip("\n"), tests).reward == 1.0


LOOPS = {
    "for n in dir(solution):\n        if n[0] != '_': assert getattr(solution, n).__doc__": "",
    "for n, v in vars(solution).items():\n        if n[0] != '_' and callable(v): assert v.__doc__": "",
    "for n in solution.__all__: assert getattr(solution, n)": "gone",
    "for k in solution.Base.__subclasses__(): assert k().area() > 0": "",
    "for n, v in vars(solution.Base).items():\n        if n[0] != '_': assert v.__doc__": "",
    "for n in dir(solution.Base):\n        if n[0] != '_': assert getattr(solution.Base, n).__doc__": "",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_looked_through_is_there_and_marked(engine: SyncEngine, loop: str) -> None:
    whole = """
__all__ = ['Base', 'f']
def f():
    'F.'
class Base:
    'Base.'
    def area(self): 'Area.'
class One(Base):
    'One.'
    def area(self): return 1
"""
    lacking = whole.replace("return 1", "return 0").replace("'f']", "'f', 'gone']").replace("'F.'", "pass")
    lacking = lacking.replace("'Area.'", "pass")
    tests = f"import solution\ndef test_a():\n    {loop}\n"
    found = run(engine, whole, tests, module=True)
    assert found.reward == 1.0
    assert "look through" in found.claim
    assert run(engine, lacking, tests, module=True).reward == 0.0


def test_a_class_that_says_what_belongs_to_it_is_asked_and_marked(engine: SyncEngine) -> None:
    program = """
from abc import ABC
from typing import Protocol, runtime_checkable
@runtime_checkable
class Drawable(Protocol):
    def draw(self): ...
class Base(ABC): pass
class Hook(ABC):
    @classmethod
    def __subclasshook__(cls, other): return hasattr(other, 'draw')
class Duck:
    def draw(self): return 'q'
class Rock: pass
Base.register(Duck)
"""
    head = "from solution import Drawable, Base, Hook, Duck, Rock\n"
    for kind in ("Drawable", "Base", "Hook"):
        yes = f"{head}def test_a(): assert isinstance(Duck(), {kind}) and issubclass(Duck, {kind})\n"
        found = run(engine, program, yes, module=True)
        assert found.reward == 1.0
        assert "says itself" in found.claim
        no = f"{head}def test_a(): assert not isinstance(Rock(), {kind}) and not issubclass(Rock, {kind})\n"
        passes(engine, program, no, module=True)
        assert run(engine, program, no.replace("Rock()", "Duck()"), module=True).reward == 0.0


def test_a_class_stays_sound_by_its_own_name_when_it_comes_in_an_answer(engine: SyncEngine) -> None:
    program = """
class Queue:
    def __init__(self): self.x = []
    def push(self, v): self.x.append(v)
    def pop(self): return self.x.pop(0)
KINDS = {'queue': Queue}
def get_class(name): return KINDS[name]
"""
    head = "import solution\nfrom solution import Queue, get_class\n"
    registry = "def test_registry(): assert get_class('queue') is Queue and solution.KINDS['queue'] is Queue\n"
    once = "    q = {}()\n    q.push(1); q.push(2)\n    assert q.pop() == 1\n"
    use = f"def test_use():\n{once.format('Queue')}{once.format('solution.Queue')}"
    for tests in (registry + use, use + registry):
        passes(engine, program, head + tests, module=True)
        assert run(engine, program.replace("pop(0)", "pop()"), head + tests, module=True).reward == 0.5
    # What an answer makes stays an answer, whatever name it is given.
    other = (
        f"{head}def test_a():\n    Queue = get_class('queue')\n    q = Queue(); q.push(1)\n    assert q.pop() == 1\n"
    )
    assert run(engine, program, other, module=True).reward is None


@pytest.mark.parametrize(
    "fixture",
    [
        "@pytest.fixture\ndef pile(): return Stack()\n",
        "@pytest.fixture(name='pile')\ndef made():\n    s = Stack()\n    yield s\n",
        "@pytest.fixture\ndef base(): return Stack()\n@pytest.fixture\ndef pile(base): return base\n",
    ],
)
@pytest.mark.parametrize("entry", [None, "Stack"])
def test_a_class_that_a_fixture_makes_is_seen_to_be_one(engine: SyncEngine, fixture: str, entry: str | None) -> None:
    program = "class Stack:\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n    def pop(self): return self.x.pop()\n"
    tests = f"import pytest\nfrom solution import Stack\n{fixture}def test_a(pile):\n    pile.push(1); pile.push(2)\n    assert pile.pop() == 2\n"
    passes(engine, program, tests, module=True, entry_point=entry)
    assert run(engine, program.replace("pop()", "pop(0)"), tests, module=True, entry_point=entry).reward == 0.0


def test_what_is_made_once_for_a_class_is_seen_to_be_made(engine: SyncEngine) -> None:
    program = "class Store:\n    def __init__(self): self.d = {}\n    def put(self, k, v): self.d[k] = v\n    def get(self, k): return self.d[k]\n"
    tests = "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): cls.s = Store()\n    def test_a(self):\n        self.s.put(1, 2)\n        self.assertEqual(self.s.get(1), 2)\n"
    passes(engine, program, tests)


def test_a_class_in_brackets_makes_what_the_class_makes(engine: SyncEngine) -> None:
    program = "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass Stack(Generic[T]):\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n    def pop(self): return self.x.pop()\n"
    tests = "s = Stack[int]()\ns.push(1); s.push(2)\nassert s.pop() == 2 and isinstance(s, Stack)\n"
    passes(engine, program, tests)
    assert run(engine, program.replace("pop()", "pop(0)"), tests).reward == 0.0


def test_a_default_that_the_program_computes_is_asked_for(engine: SyncEngine) -> None:
    program = "from collections import defaultdict\ndef table(s):\n    d = defaultdict(lambda: 7)\n    for c in s: d[c] += 1\n    return d\ndef tree(): return defaultdict(tree)\n"
    tests = "d = table('aab')\nassert d == {'a': 9, 'b': 8} and d['z'] == 7 and 'z' in d\nt = tree(); t['a']['b'] = 1\nassert t == {'a': {'b': 1}}\n"
    passes(engine, program, tests)
    assert run(engine, program.replace("7", "6"), tests).reward == 0.0


def test_an_exception_is_another_name_of_no_other(engine: SyncEngine) -> None:
    tests = "import pytest\nfrom solution import f, TooBig\ndef test_a():\n    with pytest.raises(TooBig): f(9)\n"
    passes(engine, "class TooBig(ValueError): pass\ndef f(n): raise TooBig(n)\n", tests, module=True)
    for alias in ("AttributeError", "NameError", "(NameError, TypeError)"):
        found = run(engine, f"TooBig = {alias}\ndef f(n): return missing\n", tests, module=True)
        assert found.claimed or found.reward == 0.0


def test_members_that_are_data_too_go_where_data_goes(engine: SyncEngine) -> None:
    program = "from enum import IntEnum, StrEnum\nclass Level(IntEnum):\n    LOW = 1\nclass Color(StrEnum):\n    RED = 'red'\n    BLUE = 'blue'\n"
    tests = "import json\nassert json.dumps({'l': [Level.LOW], 'c': Color.RED}) == '{\"l\": [1], \"c\": \"red\"}'\nassert ', '.join([Color.RED, 'x', Color.BLUE]) == 'red, x, blue'\n"
    passes(engine, program, tests)
    assert run(engine, program.replace("= 1", "= 2"), tests).reward == 0.0


@pytest.mark.parametrize(
    ("name", "rest"), [("__len__", ") == 3"), ("__eq__", "'x')"), ("__contains__", "2)"), ("__lt__", "5)")]
)
def test_an_operator_that_is_called_by_name_is_no_judge(engine: SyncEngine, name: str, rest: str) -> None:
    """An object has it where its class has not: it would be asked for what data was to say."""
    hides = f"class A:\n    def __init__(self): self.{name} = lambda *a: 3\n    def __getattr__(self, name): return lambda *a: 3\ndef f(): return A()\n"
    tests = f"def test_a(): assert f().{name}({rest}\n"
    found = run(engine, hides, tests)
    assert found.claimed or not found.reward
    shows = f"class A:\n    def {name}(self, *a): return 3\ndef f(): return A()\n"
    by_class = run(engine, shows, f"def test_a(): assert type(f()).{name}(f(), {rest}\n")
    assert by_class.claimed or not by_class.reward


ALL = "class Y:\n    def __eq__(s, o): return True\n    __hash__ = None\ndef use(m, *a): return Y()\n"


@pytest.mark.parametrize(
    ("gives", "tests"),
    [
        ("from collections import namedtuple\nPoint = namedtuple('Point', 'x y')", "use(Point(1, 2), Point(3, 4)) == 5"),
        ("Point = object", "use(Point()) == 5"),
        ("from itertools import count", "use(count(3)) == 5"),
        ("import re\ndef scan(s): return re.compile('a')", "use(scan('a').match('a')) == 5"),
        ("def make(): return {1: 2}", "use(iter(make())) == 5"),
        ("class Point:\n    def __len__(self): return 1", "use(Point().__len__) == 5"),
    ],
)  # fmt: skip
def test_what_a_program_gives_does_not_have_it_judged_beside_its_tests(
    engine: SyncEngine, gives: str, tests: str
) -> None:
    assert not run(engine, f"{gives}\n{ALL}", f"def test_a(): assert {tests}\n").reward


def test_named_tuples_go_back_as_they_are(engine: SyncEngine) -> None:
    program = "from typing import NamedTuple\nclass Point(NamedTuple):\n    x: int\n    y: int\ndef origin(): return Point(0, 3)\ndef norm(p):\n    if not isinstance(p, Point): raise TypeError\n    return p.x + p.y\n"
    tests = "from solution import Point, norm, origin\ndef test_a(): assert norm(origin()) == 3\ndef test_b(): assert norm(Point(1, 2)) == 3\n"
    passes(engine, program, tests, module=True)
    assert run(engine, program.replace("p.x +", ""), tests, module=True).reward < 1


def test_names_around_appended_tests_are_the_programs_too(engine: SyncEngine) -> None:
    for tests in (
        "assert 'add' in globals()",
        "assert 'add' in dir()",
        "def test_a(): assert callable(globals()['add'])",
    ):
        found = run(engine, "def add(a, b): return a + b\n", tests)
        assert (found.reward, found.claimed) == (1.0, True)
        assert run(engine, "def sub(a, b): return a - b\n", tests).reward == 0.0


def test_what_a_class_has_can_be_taken_from_it(engine: SyncEngine) -> None:
    tests = "assert Cfg.limit == 3\ndel Cfg.limit\nassert not hasattr(Cfg, 'limit')\n"
    passes(engine, "class Cfg:\n    limit = 3\n", tests)
    assert run(engine, "class Base:\n    limit = 3\nclass Cfg(Base): pass\n", tests).reward == 0.0


def test_a_method_that_is_called_as_a_statement_is_in_no_doubt(engine: SyncEngine) -> None:
    program = """
class Roster:
    def __init__(self): self.names = []
    def add(self, name): self.names.append(name)
class Engine:
    def __init__(self): self.on = False
    def start(self): self.on = True
    def index(self, x): return 0
class Car:
    def __init__(self): self.engine, self.roster = Engine(), Roster()
def make(): return Engine()
"""
    tests = "car = Car()\ncar.engine.start()\ncar.roster.add('x')\nassert car.engine.on and car.roster.names == ['x']\n"
    passes(engine, program, tests)
    assert run(engine, program.replace("self.on = True", "pass"), tests).reward == 0.0
    # What data would fail by is asked of no object.
    for judges in ("make().index(5)", "with pytest.raises(TypeError): make().add(5)", "assert make().start() is 3"):
        assert not run(
            engine, program, f"import pytest\ndef test_a():\n    {judges}\n    assert not Car().engine.on\n"
        ).reward


def test_members_of_an_enumeration_may_have_any_name(engine: SyncEngine) -> None:
    program = "from enum import Enum\nclass Light(Enum):\n    red = 1\n    Green = 2\n    def next(self): return Light.Green if self is Light.red else Light.red\nclass Tally:\n    total = 0\n    def __init__(self): Tally.total += 1\n"
    tests = "from solution import Light, Tally\ndef test_a():\n    assert Light.red.next() is Light.Green and Light.Green.next() == Light.red\ndef test_total():\n    Tally(); Tally()\n    assert Tally.total == 2\n"
    passes(engine, program, tests, module=True)
    assert run(engine, program.replace("else Light.red", "else self"), tests, module=True).reward == 0.5


def test_a_private_helper_of_a_test_class_is_called_by_its_own_name(engine: SyncEngine) -> None:
    tests = """
import unittest
class TestF(unittest.TestCase):
    def __check(self, value, expected): self.assertEqual(f(value), expected)
    def test_a(self):
        self.__check(1, 2)
        self.__check(3, 4)
class TestG:
    def __check(self, value): assert f(value) == value + 1
    def test_b(self): self.__check(5)
"""
    passes(engine, "def f(x): return x + 1\n", tests)
    assert run(engine, "def f(x): return x\n", tests).reward == 0.0


TEXT = "class Text(str):\n    def __eq__(s, o): return s.lower() == o.lower()\n    def __hash__(s): return hash(s.lower())\n"
TABLE = "class Table(dict):\n    def __eq__(s, o): return dict.__eq__(s, o)\n    __hash__ = None\n"


def test_a_class_with_an_operator_of_its_own_is_still_made_from_data(engine: SyncEngine) -> None:
    tests = """
import json
def test_text():
    assert isinstance(Text('A'), str) and issubclass(Text, str) and not issubclass(Text, dict)
    assert json.dumps([Text('A')]) == '["A"]' and '-'.join([Text('A'), 'b']) == 'A-b'
def test_table():
    assert isinstance(Table(a=1), dict) and json.loads(json.dumps(Table(a=1))) == {'a': 1}
"""
    passes(engine, TEXT + TABLE, tests)
    bare = "class Text:\n    def __init__(s, x): pass\nclass Table:\n    def __init__(s, **x): pass\n"
    assert run(engine, bare, tests).reward == 0.0
    tests = "assert not isinstance(clean('A'), str)"
    passes(engine, "def clean(x): return None\n", tests)
    assert run(engine, TEXT + "def clean(x): return Text(x)\n", tests).reward == 0.0


HOLDERS = {
    "ChainMap": "from collections import ChainMap\ndef load(): return ChainMap({'a': 1})\n",
    "SimpleNamespace": "from types import SimpleNamespace\ndef load(): return SimpleNamespace(a=1)\n",
    "UserDict": "from collections import UserDict\ndef load(): return UserDict(a=1)\n",
    "derived": "from collections import UserDict\nclass D(UserDict): pass\ndef load(): return D(a=1)\n",
    "Mapping": "from collections.abc import Mapping\nclass M(Mapping):\n    def __getitem__(s, k): return {'a': 1}[k]\n    def __iter__(s): return iter('a')\n    def __len__(s): return 1\ndef load(): return M()\n",
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_only_holds_data_does_not_go_where_data_goes(engine: SyncEngine, name: str) -> None:
    tests = "import json\nassert json.loads(json.dumps(load())) == {'a': 1}\n"
    passes(engine, "def load(): return {'a': 1}\n", tests)
    passes(engine, "class D(dict): pass\ndef load(): return D(a=1)\n", tests)
    assert run(engine, HOLDERS[name], tests).reward == 0.0
    tests = "import json, pytest\nwith pytest.raises(TypeError): json.dumps(load())\n"
    passes(engine, HOLDERS[name], tests)
    assert run(engine, "def load(): return {'a': 1}\n", tests).reward == 0.0


def test_a_text_that_only_holds_one_is_not_joined(engine: SyncEngine) -> None:
    tests = "assert '-'.join(words('a b')) == 'a-b'"
    passes(engine, "def words(s): return s.split()\n", tests)
    wrong = "from collections import UserString\ndef words(s): return [UserString(w) for w in s.split()]\n"
    assert run(engine, wrong, tests).reward == 0.0


def test_the_class_of_an_object_is_its_own(engine: SyncEngine) -> None:
    program = (
        "from enum import IntEnum\nclass Stack(list): pass\nclass Level(IntEnum):\n    LOW = 1\ndef f(): return [1]\n"
    )
    tests = """
def test_own():
    assert Stack().__class__.__name__ == 'Stack' and Stack().__class__ is Stack and Level.LOW.__class__ is Level
def test_plain(): assert f() == [1] and f().__class__ is list
"""
    passes(engine, program, tests)
    assert run(engine, program.replace("return [1]", "return Stack([1])"), tests).reward == 0.5


def test_a_named_tuple_has_its_own_order_text_and_hash(engine: SyncEngine) -> None:
    program = """
from typing import NamedTuple
class Task(NamedTuple):
    name: str
    rank: int
    {}
def make(): return Task('a', 5)
"""
    own = {
        "def __lt__(s, o): return s.rank < o.rank": "assert min(Task('a', 5), Task('b', 1)).name == 'b'",
        "def __repr__(s): return f'<{s.name}>'": "assert repr(make()) == '<a>' and make() == ('a', 5)",
        "def __hash__(s): return s.rank": "assert hash(Task('a', 5)) == 5",
        "def __getattr__(s, name): return name.upper()": "assert make().other == 'OTHER'",
    }
    for method, tests in own.items():
        assert run(engine, program.format(method), tests).reward == 1.0, tests
        assert run(engine, program.format("pass"), tests).reward == 0.0, tests
    # And not that of tuples where it has another.
    tests = "assert repr(make()) == \"Task(name='a', rank=5)\""
    passes(engine, program.format("pass"), tests)
    assert run(engine, program.format("def __repr__(s): return 'x'"), tests).reward == 0.0


def test_what_every_object_has_is_asked_where_the_object_is(engine: SyncEngine) -> None:
    plain = "class P:\n    def __init__(s, x): s.x = x\n"
    own = plain + "    def __repr__(s): return 'P'\n"
    tests = "p = P(1)\nassert p.x == 1\nassert repr(p) != object.__repr__(p)\n"
    passes(engine, own, tests)
    assert run(engine, plain, tests).reward == 0.0
    tests = "p = P(1)\nassert repr(p) == object.__repr__(p) and P.__repr__ is object.__repr__\n"
    passes(engine, plain, tests)
    assert run(engine, own, tests).reward == 0.0
    tests = "p = object.__new__(P)\nobject.__setattr__(p, 'x', 3)\nassert p.x == 3 and object.__repr__([]) != '[]'\n"
    passes(engine, plain, tests)
    assert run(engine, plain + "    x = property(lambda s: 2, lambda s, new: None)\n", tests).reward == 0.0


def test_what_is_given_on_means_what_it_means_by_name(engine: SyncEngine) -> None:
    program = "class P:\n    def __init__(s, x): s.x = x\n    def {}(s): return 1\n"
    tests = "import operator\nassert P(1).x == 1 and callable(operator.attrgetter('__len__')(P))\n"
    passes(engine, program.format("__len__"), tests)
    assert run(engine, program.format("size"), tests).reward == 0.0
    program = "class P:\n    def __init__(s, x): s.x = x\n    def copy(s): return {}\n"
    tests = "from operator import is_not\ndef test_a():\n    p = P(1)\n    assert is_not(p.duplicate(), p)\n"
    program = program.replace("copy", "duplicate")
    assert run(engine, program.format("P(s.x)"), tests).reward == 1.0
    assert run(engine, program.format("s"), tests).reward == 0.0
    program = "from collections import namedtuple\nP = namedtuple('P', 'x')\ndef rows(): return [P(1), {}]\n"
    tests = "assert set(map(type, rows())) == {P} and list(map(type, [1, 'a'])) == [int, str]\n"
    passes(engine, program.format("P(2)"), tests)
    assert run(engine, program.format("(2,)"), tests).reward == 0.0


def test_what_changes_while_it_is_asked_whether_something_is_there_is_marked(engine: SyncEngine) -> None:
    program = """
held = []
class M(type):
    @property
    def __size__(c): return {}
class C(metaclass=M): pass
def f(): return held
"""
    tests = "items = f()\nassert hasattr(C, '__size__')\nassert items == {}\n"
    passes(engine, program.format("1"), tests.format("[]"))
    found = run(engine, program.format("held.append(1)"), tests.format("[1]"))
    assert found.claimed
    passes(engine, "__all__ = ['f']\ndef f(): return 1\n", "import solution\ndef test_a(): assert hasattr(solution, '__all__') and solution.f() == 1\n", module=True)  # fmt: skip
