"""Values of the standard library's types in sealed unit tests: what right programs give, and what wrong ones earn."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.engine.shared import SyncEngine

pytestmark = pytest.mark.environments

# What a program gives, and what the tests compare it with.
SAME = [
    ("import datetime as d", "d.datetime(2024, 1, 2, tzinfo=d.timezone.utc)", "f().utcoffset() == d.timedelta(0) and f().tzinfo is d.timezone.utc"),
    ("import datetime as d", "d.datetime(2024, 1, 2, fold=1, tzinfo=d.timezone(d.timedelta(hours=-3, minutes=30), 'X'))", "f().tzname() == 'X' and f().fold == 1"),
    ("import datetime as d\nfrom zoneinfo import ZoneInfo", "d.datetime(2024, 7, 2, 3, tzinfo=ZoneInfo('Europe/Berlin'))", "f().tzinfo.key == 'Europe/Berlin' and f().utcoffset() == d.timedelta(hours=2)"),
    ("import datetime as d", "d.time(1, 2, 3, tzinfo=d.timezone.utc)", "f().isoformat() == '01:02:03+00:00'"),
    ("import datetime as d", "d.timezone.utc", "f().utcoffset(None) == d.timedelta(0)"),
    ("from zoneinfo import ZoneInfo", "ZoneInfo('Asia/Tokyo')", "f().key == 'Asia/Tokyo'"),
    ("from pathlib import *", "Path('/a/b.txt')", "isinstance(f(), Path) and f().name == 'b.txt' and str(f()) == '/a/b.txt' and f() / 'c' == Path('/a/b.txt/c') and isinstance(Path(), back(type(f())))"),
    ("from pathlib import *", "[PurePath('a'), PurePosixPath('b'), PureWindowsPath('c:/d')]", "f()[2].drive == 'c:' and type(f()[0]) is PurePosixPath and back(type(f()[0]))"),
    ("from uuid import *", "UUID('12345678123456781234567812345678')", "f().version is None and f().hex.startswith('1234')"),
    ("import uuid", "{uuid.uuid5(uuid.NAMESPACE_DNS, 'a'): 1}", "list(f())[0].version == 5"),
    ("from ipaddress import *", "[ip_address('1.2.3.4'), ip_network('10.0.0.0/8'), ip_interface('10.0.0.1/8'), ip_address('::1'), ip_network('ff::/16'), ip_interface('ff::1/8')]", "f()[0] in ip_network('1.0.0.0/8') and f()[1].num_addresses == 1 << 24"),
    ("from array import array", "array('d', [1.5, 2])", "f().typecode == 'd' and list(f()) == [1.5, 2.0] and sum(f()) == 3.5"),
    ("from types import MappingProxyType as M", "M({'a': [1]})", "f() == {'a': [1]} and f()['a'] == [1] and isinstance(f(), M)"),
    ("from types import SimpleNamespace as N", "N(a=1, b=N(c=[2]))", "f().b.c == [2] and f().a == 1 and isinstance(f(), N) and not hasattr(f(), 'x') and f() != N(a=1) and f() != {'a': 1} and vars(f())['a'] == 1"),
    ("from collections import *", "UserDict(a=1)", "f() == {'a': 1} and f()['a'] == 1 and list(f()) == ['a'] and 'a' in f() and len(f()) == 1 and dict(f()) == {'a': 1} and f() == OrderedDict(a=1) and f() != {'a': 2}"),
    ("from collections import *", "UserList([1, 2])", "f() == [1, 2] and f()[1] == 2 and [x for x in f()] == [1, 2] and f() != [1]"),
    ("from collections import *", "ChainMap({'a': 1}, {'a': 2, 'b': 3})", "f() == {'a': 1, 'b': 3} and f()['b'] == 3 and f().get('c') is None"),
    ("from collections import UserString", "UserString('abc')", "f() == 'abc' and f().upper() == 'ABC' and f()[0] == 'a' and f() != 'x' and {f(): 1}['abc'] == 1"),
    ("from argparse import Namespace", "Namespace(a=1)", "f().a == 1 and isinstance(f(), Namespace) and vars(f()) == {'a': 1} and f() != Namespace(a=2)"),
    ("", "memoryview(b'abc')", "f() == b'abc' and bytes(f()) == b'abc' and f().tobytes() == b'abc' and f()[0] == 97"),
    ("", "memoryview(bytearray(b'abc'))[1:]", "f() == b'bc' and back(f()) == b'bc'"),
    ("", "[list[int], dict[str, tuple[int, ...]], int | None, list[int | str]]", "f()[0].__args__ == (int,) and f()[2] == int | None"),
    ("from typing import *\nimport collections.abc as abc, collections", "[Optional[int], Union[int, str], abc.Mapping, collections.Counter, type(None), abc.Callable]", "len(f()) == 6"),
    ("from http import HTTPStatus as H\nimport calendar, signal", "[H.OK, H.NOT_FOUND, signal.Signals.SIGINT]", "f()[1] == 404 and f()[1].phrase == 'Not Found' and f()[0] is H.OK"),
    ("import re", "re.compile('a(b)+', re.I)", "f().match('ABB').group(1) == 'B' and f().pattern == 'a(b)+' and not f().search('x')"),
    ("import re", "re.compile(b'a', re.S)", "f().findall(b'aba') == [b'a', b'a']"),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(SAME)))
def test_values_of_library_types_come_and_go_as_they_are(engine: SyncEngine, row: int) -> None:
    imports, value, more = SAME[row]
    program = f"{imports}\ndef f(): return {value}\ndef same(x): return x == {value}\ndef back(x): return x\n"
    passes(engine, program, f"{imports}\nassert f() == {value}\nassert {value} == f()\nassert {more}")
    if (
        "UserList" not in value
        and "UserDict" not in value
        and "ChainMap" not in value
        and "Namespace(a" not in value
        and "UserS" not in value
        and "N(a" not in value
    ):
        readonly = value.replace("memoryview(bytearray(b'abc'))[1:]", "memoryview(b'bc')")
        passes(engine, program, f"{imports}\nassert same({readonly}) is True\nassert back({readonly}) == {value}")


# Wrong programs, with what the tests hold them to.
WRONG = [
    ("import datetime as d\ndef f(): return d.datetime(2024, 1, 2)", "import datetime as d\nassert f() == d.datetime(2024, 1, 2, tzinfo=d.timezone.utc)"),
    ("import datetime as d\ndef f(): return d.datetime(2024, 1, 2, tzinfo=d.timezone(d.timedelta(hours=1)))", "import datetime as d\nassert f() == d.datetime(2024, 1, 2, tzinfo=d.timezone.utc)"),
    ("import datetime as d\nclass Z(d.tzinfo):\n    def utcoffset(s, t): return d.timedelta(hours=2)\n    def __eq__(s, o): return True\ndef f(): return d.datetime(2024, 1, 2, tzinfo=Z())", "import datetime as d\nassert f() == d.datetime(2024, 1, 2, tzinfo=d.timezone.utc)"),
    ("from pathlib import Path\ndef f(): return Path('b')", "from pathlib import Path\nassert f() == Path('a')"),
    ("from pathlib import Path\nclass P(type(Path())):\n    def __eq__(s, o): return True\n    __hash__ = None\ndef f(): return P('b')", "from pathlib import Path\nassert f() == Path('a')"),
    ("import uuid\ndef f(): return uuid.UUID(int=1)", "import uuid\nassert f() == uuid.UUID(int=2)"),
    ("import uuid\nclass U(uuid.UUID):\n    def __eq__(s, o): return True\n    __hash__ = None\ndef f(): return U(int=1)", "import uuid\nassert f() == uuid.UUID(int=2)"),
    ("import re\ndef f(): return re.compile('a')", "import re\nassert f() == re.compile('b')"),
    ("from types import SimpleNamespace as N\ndef f(): return N(a=1)", "from types import SimpleNamespace as N\nassert f() == N(a=2)"),
    ("from types import SimpleNamespace as N\nclass L(N):\n    def __eq__(s, o): return True\ndef f(): return L(a=1)", "from types import SimpleNamespace as N\nassert f() == N(a=2)"),
    ("from types import SimpleNamespace as N\nclass L:\n    def __eq__(s, o): return True\ndef f(): return N(a=L())", "from types import SimpleNamespace as N\nassert f() == N(a=2)"),
    ("from collections import UserDict\nclass L(UserDict):\n    def __eq__(s, o): return True\ndef f(): return L(a=1)", "assert f() == {'a': 2}"),
    ("from collections import UserList\ndef f(): return UserList([1])", "assert f() == [2]"),
    ("from types import MappingProxyType as M\ndef f(): return M({'a': 1})", "assert f() == {'a': 2}"),
    ("from array import array\ndef f(): return array('i', [1])", "from array import array\nassert f() == array('i', [2])"),
    ("def f(): return memoryview(b'a')", "assert f() == b'b'"),
    ("from http import HTTPStatus\ndef f(): return HTTPStatus.OK", "from http import HTTPStatus\nassert f() is HTTPStatus.NOT_FOUND"),
    ("class A:\n    _version, n = 4, 0\n    @property\n    def _ip(s): s.n += 1; return s.n\na = A()\ndef f(): return a", "import ipaddress\nassert any(ipaddress.ip_address(n) == f() for n in (1, 2, 3))"),
    ("class A:\n    _version, _ip = 4, 1\ndef f(): return A()", "import ipaddress\nassert f() in ipaddress.ip_network('0.0.0.0/8')"),
    ("def f(): return list[int]", "assert f() == list[str]"),
    ("import re\ndef f(): return re.match('a', 'a')", "import re\nassert f() == re.match('a', 'a')"),  # as beside
]  # fmt: skip
# Where only the library's own operator could say whether two are equal.
OPEN = [
    ("import typing\ndef f(): return typing.List[int]", "import typing\nassert f() == typing.List[int]", "typing:_GenericAlias"),
    ("from email.headerregistry import Address as A\ndef f(): return [A('x', 'y', 'z')]", "from email.headerregistry import Address as A\nassert [A('x', 'y', 'z')] == f()", "registry:Address"),
    ("import email.headerregistry as h\nclass L:\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\nL.__module__, L.__qualname__ = 'email.headerregistry', 'Address'\nh.Address = L\ndef f(): return L()", "from email.headerregistry import Address as A\nassert f() == A('x', 'y', 'z')", "registry:Address"),
]  # fmt: skip
# A program that says of its objects that they are a library's: where data is due it is wrong all the same.
CLAIM = """
import {module}
class L:
    def __eq__(s, o): return True
    def __ne__(s, o): return False
    def __getattr__(s, n): return lambda *a: True
L.__module__, L.__qualname__, L.__name__ = {module!r}, {name!r}, {name!r}
{module}.{name} = L
def f(): return L()
"""


def test_objects_of_some_library_classes_are_shown_as_such(engine: SyncEngine) -> None:
    program = "import argparse, re, io, functools\ndef f(): return [argparse.Namespace(a=1), re.match('a', 'a'), io.StringIO('t'), functools.partial(max, 1)]\n"
    tests = "import argparse, re, io, functools\nn, m, s, p = f()\nassert isinstance(n, argparse.Namespace) and n.a == 1 and isinstance(m, re.Match) and m.group() == 'a'\nassert isinstance(s, io.StringIO) and s.getvalue() == 't' and isinstance(p, functools.partial) and p(3) == 3"
    passes(engine, program, tests)
    assert run(engine, "def f(): return [1, 2, 3, 4]", tests).reward == 0.0


@pytest.mark.parametrize("row", range(len(WRONG)))
def test_wrong_values_of_library_types_earn_nothing(engine: SyncEngine, row: int) -> None:
    program, tests = WRONG[row]
    assert run(engine, program, tests).reward == 0.0


@pytest.mark.parametrize("row", range(len(OPEN)))
def test_objects_of_a_library_that_are_not_copied_leave_a_comparison_open(engine: SyncEngine, row: int) -> None:
    program, tests, said = OPEN[row]
    found = run(engine, program, tests)
    assert found.reward is None, found.cases
    assert said in (found.error or "")


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        ("datetime", "datetime", "datetime.datetime(2024, 1, 2)"),
        ("pathlib", "PosixPath", "pathlib.Path('a')"),
        ("uuid", "UUID", "uuid.UUID(int=3)"),
        ("builtins", "int", "5"),
        ("decimal", "Decimal", "decimal.Decimal(1)"),
        ("collections", "UserDict", "collections.UserDict(a=1)"),
        ("types", "SimpleNamespace", "types.SimpleNamespace(a=1)"),
        ("re", "Pattern", "re.compile('a')"),
        ("argparse", "Namespace", "argparse.Namespace(a=1)"),
        ("typing", "TypeVar", "4"),
    ],
)
def test_no_program_leaves_a_comparison_with_data_open_by_a_librarys_name(
    engine: SyncEngine, module: str, name: str, value: str
) -> None:
    tests = f"import {module}\nassert f() == {value}"
    assert run(engine, CLAIM.format(module=module, name=name), tests).reward == 0.0


def test_objects_of_a_library_do_not_leave_other_tests_open(engine: SyncEngine) -> None:
    """The test that is open beside one that fails counts as failed."""
    program = "import typing\ndef f(): return typing.List[int]\ndef g(): return 1\n"
    tests = "import typing\ndef test_a(): assert f() == typing.List[int]\ndef test_b(): assert g() == 2\n"
    found = run(engine, program, tests)
    assert found.reward == 0.0
    assert run(engine, program, tests, policy="all_or_nothing").reward == 0.0


def test_a_path_of_the_programs_is_asked_of_its_file_where_the_program_runs(engine: SyncEngine) -> None:
    program = """
from pathlib import Path
def f():
    path = Path("made.txt").resolve()
    path.write_bytes(b"one two")
    return path
"""
    tests = "assert f().exists() and f().read_text() == 'one two' and f().parent.is_dir()\nassert not (f().parent / 'x').exists()\nwith f().open() as file: assert file.read() == 'one two'"
    passes(engine, program, tests)
    # What is here, and not where the program runs, is not found by a path of the program's.
    program = "from pathlib import Path\ndef f(): return Path('tests.py')\n"
    assert run(engine, program, "assert f().name == 'tests.py'\nassert f().exists()", module=False).reward == 0.0


def test_containers_of_library_types_stay_shared(engine: SyncEngine) -> None:
    program = """
from array import array
from types import MappingProxyType, SimpleNamespace
rows = {}
def view(): return MappingProxyType(rows)
def put(k, v): rows[k] = v
def double(a):
    for i in range(len(a)): a[i] *= 2
def grow(n): n.x += 1
ns = SimpleNamespace(x=1)
def get(): return ns
"""
    tests = """
import pytest
from array import array
v = view()
assert v == {}
put("a", 1)
assert v == {"a": 1} and view()["a"] == 1
with pytest.raises(TypeError): v["b"] = 2
a = array("d", [1, float("nan")])
double(a)
assert a[0] == 2 and a[1] != a[1]
n = get()
grow(n)
assert n.x == 2
n.x = 5
grow(n)
assert get().x == 6
"""
    found = run(engine, program, tests)
    assert found.reward == 1.0, found.cases
    assert run(engine, program.replace("*= 2", "*= 3"), tests).reward == 0.0


ABSTRACT = """
from collections.abc import Mapping, MutableMapping, MutableSet, Set
class Over:
    def __init__(s, d): s._d = dict(d)
    def __getitem__(s, k): return s._d[k]
    def __setitem__(s, k, v): s._d[k] = v
    def __delitem__(s, k): del s._d[k]
    def __iter__(s): return iter(s._d)
    def __len__(s): return len(s._d)
class View(Over, Mapping): pass
class Table(Over, MutableMapping): pass
class Of:
    def __init__(s, d): s._d = list(d)
    def __contains__(s, k): return k in s._d
    def __iter__(s): return iter(s._d)
    def __len__(s): return len(s._d)
    def add(s, k): s._d.append(k)
    def discard(s, k): s._d.remove(k)
class Few(Of, Set): pass
class Many(Of, MutableSet): pass
def f(): return View({"a": 1})
def g(): return Few([1, 2])
"""


@pytest.mark.parametrize(
    "tests",
    [
        "assert f() == {'a': 1} and {'a': 1} == f() and f() != {'a': 2} and f() != [('a', 1)]",
        "assert g() == {2, 1} and frozenset((1, 2)) == g() and g() != [1, 2] and g() != {1}",
        "v = View({'a': 1})\nassert list(v.keys()) == ['a'] and list(v.items()) == [('a', 1)] and list(v.values()) == [1]",
        "v = View({'a': 1})\nassert v.keys() == {'a'} and ('a', 1) in v.items()",
        "import collections.abc as c\nassert isinstance(f(), c.Mapping) and not isinstance(f(), (dict, c.MutableMapping))",
        "import collections.abc as c\nassert isinstance(g(), c.Set) and not isinstance(g(), (set, c.MutableSet))",
        "t = Table({'a': 1})\nt['b'] = 2\ndel t['a']\nassert dict(t) == {'b': 2} and len(t) == 1 and list(t) == ['b']",
        "m = Many([1, 2])\nm.add(3)\nm.discard(1)\nassert sorted(m) == [2, 3]",
    ],
)
def test_classes_made_from_abstract_mappings_and_sets_compare_as_what_they_hold(engine: SyncEngine, tests: str) -> None:
    assert run(engine, ABSTRACT, "def test_a():\n    " + tests.replace("\n", "\n    ")).reward == 1.0


def test_what_an_abstract_class_holds_is_looked_at_here(engine: SyncEngine) -> None:
    passes(engine, ABSTRACT, "assert f() == {'a': 1} and g() == {1, 2}")
    liar = "from collections.abc import Mapping\nclass L(Mapping):\n    def __getitem__(s, k): return 1\n    def __iter__(s): return iter('a')\n    def __len__(s): return 1\n    def __eq__(s, o): return True\ndef f(): return L()"
    assert run(engine, liar, "assert f() == {'a': 2}").reward == 0
    assert run(engine, liar.replace("    def __eq__(s, o): return True\n", ""), "assert f() == {'a': 2}").reward == 0


LINEAGE = """
import abc, collections.abc, enum, numbers
class Color(enum.Enum):
    RED = 1
class Level(enum.IntEnum):
    LOW = 1
class Row(collections.abc.Sequence):
    def __len__(s): return 1
    def __getitem__(s, i): return (5,)[i]
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(s): ...
class Square(Shape):
    def area(s): return 4
class Pile(list): pass
class Plain: pass
def f(): return [Color.RED, Level.LOW, Row(), Square(), Pile(), Plain()]
"""


@pytest.mark.parametrize(
    "tests",
    [
        "import enum\nassert issubclass(Color, enum.Enum) and isinstance(Color.RED, enum.Enum) and not isinstance(Color.RED, enum.IntEnum)",
        "from enum import IntEnum\nassert issubclass(Level, (str, IntEnum)) and issubclass(Level, int) and isinstance(Level.LOW, int | str)",
        "from collections import abc\nassert isinstance(Row(), abc.Sequence) and issubclass(Row, abc.Sized) and not isinstance(Row(), abc.Mapping)",
        "import abc\nassert issubclass(Shape, abc.ABC) and isinstance(Square(), Shape) and issubclass(Square, Shape)",
        "assert issubclass(Pile, list) and isinstance(Pile(), list) and not issubclass(Plain, list) and issubclass(Plain, object)",
        "import enum, unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertIsInstance(Color.RED, enum.Enum)\n        self.assertNotIsInstance(Plain(), enum.Enum)",
    ],
)
def test_a_class_is_made_from_what_it_was_in_the_program(engine: SyncEngine, tests: str) -> None:
    passes(engine, LINEAGE, tests)


def test_what_is_not_made_from_a_class_is_none_of_it(engine: SyncEngine) -> None:
    assert run(engine, LINEAGE, "import enum\nassert isinstance(f()[5], enum.Enum)").reward == 0
    assert run(engine, LINEAGE, "from enum import Enum\nassert issubclass(Plain, Enum)").reward == 0
    tests = "import enum, unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertNotIsInstance(Color.RED, enum.Enum)"
    assert run(engine, LINEAGE, tests).reward == 0
    named = "class Enum: pass\nEnum.__module__, Enum.__qualname__ = 'antigravity', 'Enum'\nclass Color(Enum): RED = 1\n"
    assert run(engine, named, "import enum\nassert issubclass(Color, enum.Enum)").reward == 0
