"""What sealed tests find in exceptions of the program's, and what a program gets by them."""

from __future__ import annotations

import pytest
from sealed_help import decided, passes, run

from proctor.engine.shared import SyncEngine

# What a program raises, and what is true of it as ``e.value``.
RAISED = [
    ("raise ValueError('bad', [1, {2: (3,)}])", "ValueError", "e.value.args == ('bad', [1, {2: (3,)}])"),
    ("raise KeyError((1, 2))", "KeyError", "e.value.args[0] == (1, 2)"),
    ("open('nope.txt')", "FileNotFoundError", "e.value.filename == 'nope.txt' and 'nope.txt' in str(e.value) and e.value.errno == 2"),
    ("raise ExceptionGroup('two', [ValueError(1), KeyError('k')])", "ExceptionGroup", "len(e.value.exceptions) == 2 and e.value.message == 'two' and isinstance(e.value.exceptions[1], KeyError)"),
    ("raise ExceptionGroup('deep', [ExceptionGroup('in', [Own('x')])])", "ExceptionGroup", "isinstance(e.value.exceptions[0].exceptions[0], Own)"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt", "e.value.args == ()"),
    ("e = Own('x')\n    e.add_note('look')\n    raise e", "Own", "e.value.__notes__ == ['look']"),
    ("try: {}[1]\n    except KeyError: raise Own('x')", "Own", "isinstance(e.value.__context__, KeyError)"),
    ("b'\\xff'.decode()", "UnicodeDecodeError", "e.value.start == 0"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "kind", "holds"), RAISED)
def test_what_was_raised_is_found_as_it_was(engine: SyncEngine, source: str, kind: str, holds: str) -> None:
    program = f"class Own(Exception): pass\ndef f():\n    {source}\ndef g(): return 5\n"
    tests = f"import pytest\ndef test_a():\n    with pytest.raises({kind}) as e: f()\n    assert {holds}\ndef test_b(): assert g() == 5"
    passes(engine, program, tests)


def test_an_exception_that_cannot_be_made_here_fails_its_program(engine: SyncEngine) -> None:
    program = "class E(ExceptionGroup):\n    message = 5\ndef f(): raise E('a', [ValueError()])\n"
    assert run(engine, program, "def test_a(): assert f() == 1").reward == 0


def test_an_interrupt_of_the_programs_ends_its_own_test_alone(engine: SyncEngine) -> None:
    program = "def f(x):\n    if x: raise KeyboardInterrupt\n    return 0\n"
    plain = "def test_a(): assert f(1) == 0\ndef test_b(): assert f(0) == 0"
    assert run(engine, program, plain).reward == 0.5
    group = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(1), 0)\n    def test_b(self): self.assertEqual(f(0), 0)"
    assert run(engine, program, group).reward == 0.5
    assert run(engine, program, "assert f(1) == 0").reward == 0


def test_the_programs_own_complaint_does_not_leave_tests_open(engine: SyncEngine) -> None:
    program = "class S(str): pass\ndef f(*a):\n    e = TypeError('S')\n    e.x = S()\n    raise e\n"
    assert run(engine, program, "def test_a(): assert f() == 1").reward == 0
    honest = "class S(str): pass\ndef f(): return S('a')\n"
    passes(engine, honest, "def test_a(): assert '/'.join(['x', f()]) == 'x/a'")
    assert run(engine, honest, "def test_a(): assert 'xb'.replace('b', f()) == 'xa'").reward is None


def test_arguments_may_have_any_name(engine: SyncEngine) -> None:
    program = "def kw(**given): return given\nclass Item:\n    def __init__(this, cls=None, self=None): this.kept = cls, self\n"
    passes(
        engine, program, "assert kw(self=1, cls=2) == {'self': 1, 'cls': 2}\nassert Item(cls=3, self=4).kept == (3, 4)"
    )


def test_classes_of_exceptions_are_asked_for_what_they_have(engine: SyncEngine) -> None:
    program = "class ApiError(Exception):\n    status = 500\n    @classmethod\n    def of(cls, code): return cls(f'code {code}')\n    @staticmethod\n    def about(): return 'an error'\nclass Missing(ApiError):\n    status = 404\ndef get(n): raise Missing(n)\n"
    tests = "import pytest\nfrom solution import ApiError, Missing, get\ndef test_a(): assert (ApiError.status, Missing.status) == (500, 404) and hasattr(Missing, 'status')\ndef test_b(): assert ApiError.about() == 'an error' and not hasattr(Missing, 'nothing')\ndef test_c():\n    with pytest.raises(ApiError) as info: get('x')\n    assert info.value.status == 404 and info.type is Missing and str(Missing.of(3)) == 'code 3'\n@pytest.mark.parametrize('kind, status', [(ApiError, 500), (Missing, 404)])\ndef test_d(kind, status): assert kind.status == status\n"
    assert run(engine, program, tests, module=True).reward == 1.0
    assert run(engine, program.replace("404", "405"), tests, module=True).reward < 1.0
    names = "class TestError(Exception):\n    pytestmark = 'x'\n    def test_a(self): pass\ndef f(): raise TestError\n"
    own = "import pytest\nfrom solution import TestError, f\ndef test_a():\n    with pytest.raises(TestError): f()\n"
    assert [case.name for case in run(engine, names, own, module=True).cases] == ["test_a"]


def test_a_stop_iteration_that_tests_expect_comes_and_is_marked(engine: SyncEngine) -> None:
    program = "class Queue:\n    def __init__(self): self.q = []\n    def get(self):\n        if not self.q: raise StopIteration('empty')\n        return self.q.pop()\n"
    tests = "import pytest\nfrom solution import Queue\ndef test_a():\n    with pytest.raises(StopIteration, match='empty'): Queue().get()\n"
    found = run(engine, program, tests, module=True)
    assert (found.reward, found.claimed) == (1.0, True)
    assert run(engine, program.replace("raise StopIteration('empty')", "return None"), tests, module=True).reward == 0.0


def test_what_a_module_says_of_itself_is_relayed(engine: SyncEngine) -> None:
    tests = "import solution\ndef test_a(): assert solution.__version__ == '1.2' and solution.f(1) == 1\n"
    assert run(engine, "__version__ = '1.2'\ndef f(x): return x", tests, module=True).reward == 1.0
    named = "from solution import __version__, f\ndef test_a(): assert __version__ == '1.2' and f(1) == 1\n"
    assert run(engine, "__version__ = '1.2'\ndef f(x): return x", named, module=True).reward == 1.0
    assert run(engine, "__version__ = '1.1'\ndef f(x): return x", named, module=True).reward == 0.0


def test_exceptions_in_groups_and_answers_are_as_they_were(engine: SyncEngine) -> None:
    program = """
class Bad(Exception):
    def __init__(self, field, **more):
        super().__init__(f'bad {field}')
        self.field, self.more = field, more
    @property
    def code(self): return len(self.field)
def errors(names): return [Bad(name, at=1) for name in names]
def check(names): raise ExceptionGroup('many', errors(names))
def loop():
    one = Bad('x')
    one.again = one
    return [one, one]
"""
    tests = """
import pytest
from solution import check, errors, loop, Bad
def same(found): assert [(str(e), e.field, e.more, e.code) for e in found] == [('bad a', 'a', {'at': 1}, 1), ('bad bc', 'bc', {'at': 1}, 2)]
def test_group():
    with pytest.raises(ExceptionGroup) as e: check(['a', 'bc'])
    same(e.value.exceptions)
def test_answer(): same(errors(['a', 'bc']))
def test_loop(): assert loop()[0].field == 'x'
"""
    passes(engine, program, tests, module=True)
    assert run(engine, program.replace("bad {", "Bad {"), tests, module=True).reward < 0.5


def test_an_exception_of_the_tests_comes_back_as_itself(engine: SyncEngine) -> None:
    program = """
class Err:
    def __init__(self, e): self.error = e
    def unwrap(self): raise self.error
def both(a, b): return [b, a]
"""
    tests = """
import pytest
from solution import Err, both
def test_error():
    boom = ValueError('boom')
    r = Err(boom)
    assert r.error is boom
    with pytest.raises(ValueError) as e: r.unwrap()
    assert e.value is boom
def test_both():
    a, b = KeyError(1), KeyError(1)
    assert both(a, b)[0] is b and both(a, b)[1] is not b
"""
    found = run(engine, program, tests, module=True)
    assert found.reward == 1.0, found.cases
    wrong = program.replace("self.error = e", "self.error = ValueError('boom')").replace("[b, a]", "[a, b]")
    assert run(engine, wrong, tests, module=True).reward == 0.0


def test_an_answer_that_cannot_be_sent_is_no_exception_that_tests_expect(engine: SyncEngine) -> None:
    tests = """
import pytest
def test_large():
    with pytest.raises(Exception): many(3_000_000)
def test_small(): assert many(3) == [0, 1, 2]
"""
    assert run(engine, "def many(n): return list(range(n))\n", tests).reward == 0.5
    assert run(engine, "def many(n): raise ValueError([0] * 3_000_000)\n", tests).reward == 0.0
    refuses = "def many(n):\n    if n > 10**6: raise ValueError('too large')\n    return list(range(n))\n"
    passes(engine, refuses, tests)


def test_an_exception_made_from_a_librarys_is_one_of_it(engine: SyncEngine) -> None:
    program = """
import configparser, json, subprocess
class Broken({}): pass
class Worse(Broken): pass
class Twice({}, KeyError): pass
def load(text, kind=Broken):
    try: return json.loads(text)
    except json.JSONDecodeError as exc: raise kind(exc.msg, exc.doc, exc.pos) from exc
"""
    tests = """
import json, pytest
def test_raised():
    with pytest.raises(json.JSONDecodeError) as caught: load('{')
    assert type(caught.value) is Broken and caught.value.pos == 1 and caught.value.lineno == 1
    assert isinstance(caught.value, ValueError) and 'line 1 column 2' in str(caught.value)
def test_worse():
    with pytest.raises(json.JSONDecodeError): load('{', Worse)
def test_classes():
    assert issubclass(Broken, json.JSONDecodeError) and issubclass(Worse, ValueError) and issubclass(Twice, KeyError)
    assert issubclass(Twice, json.JSONDecodeError) and not issubclass(Broken, KeyError)
"""
    names = "from solution import load, Broken, Worse, Twice\n"
    passes(engine, program.replace("{}", "json.JSONDecodeError"), names + tests, module=True)
    assert (
        run(engine, program.replace("{}", "Exception", 1).replace("{}, ", ""), names + tests, module=True).reward == 0.0
    )


@pytest.mark.parametrize("raised", ["BaseException('negative')", "GeneratorExit()", "Own('negative')"])
def test_what_is_no_exception_is_not_caught_as_one(engine: SyncEngine, raised: str) -> None:
    program = f"class Own(BaseException): pass\ndef f(x):\n    raise {raised}\n"
    assert run(engine, program, "import pytest\ndef test():\n    with pytest.raises(Exception): f(-1)\n").reward == 0.0
    tests = (
        "def test():\n    try:\n        f(-1)\n    except Exception:\n        pass\n    else:\n        assert False\n"
    )
    assert run(engine, program, tests).reward == 0.0
    assert (
        run(engine, program, "import pytest\ndef test():\n    with pytest.raises(BaseException): f(-1)\n").reward == 1.0
    )


def test_a_class_of_no_exceptions_is_none(engine: SyncEngine) -> None:
    program = "class Own({}): pass\n"
    tests = "def test(): assert issubclass(Own, Exception)\n"
    assert run(engine, program.format("Exception"), tests).reward == 1.0
    assert run(engine, program.format("BaseException"), tests).reward == 0.0


def test_the_end_of_an_iterator_is_no_runtime_error(engine: SyncEngine) -> None:
    program = "def first(xs):\n    {}\n    return next(iter(xs))\n"
    tests = "import pytest\ndef test():\n    assert first([3]) == 3\n    with pytest.raises(RuntimeError): first([])\n"
    assert run(engine, program.format("if not xs: raise RuntimeError('empty')"), tests).reward == 1.0
    assert run(engine, program.format(""), tests).reward == 0.0


@pytest.mark.parametrize(
    "test",
    [
        "    try:\n        f(-1)\n    except:\n        return\n    assert False\n",
        "    with pytest.raises(BaseException):\n        f(-1)\n",
    ],
)
def test_an_answer_that_cannot_be_sent_fails_a_test_that_catches_everything(engine: SyncEngine, test: str) -> None:
    program = "def f(x):\n    found = []\n    for _ in range(400): found = [found]\n    return found\n"
    tests = f"import pytest\ndef test_errors():\n{test}"
    assert run(engine, program, tests).reward == 0.0
    assert run(engine, "def f(x): raise ValueError(x)\n", tests).reward == 1.0


def test_arguments_of_an_exception_are_what_they_are(engine: SyncEngine) -> None:
    program = """import datetime
from decimal import Decimal
class Money:
    def __str__(self): return 'bad'
def f(): raise ValueError('bad', Decimal('5'), datetime.date(2020, 1, 1))
def g(): raise ValueError(Money())
def numbers():
    yield 1
    return Decimal('2')
"""
    tests = """import datetime, pytest
from decimal import Decimal
def test_data():
    with pytest.raises(ValueError) as e: f()
    assert e.value.args == ('bad', Decimal('5'), datetime.date(2020, 1, 1))
def test_end():
    it = numbers()
    next(it)
    with pytest.raises(StopIteration) as e: next(it)
    assert e.value.value == Decimal('2')
def test_text():
    with pytest.raises(ValueError) as e: g()
    assert str(e.value) == 'bad'
"""
    assert run(engine, program, tests).reward == 1.0
    wrong = "import pytest\ndef test():\n    with pytest.raises(ValueError) as e: g()\n    assert isinstance(e.value.args[0], str)\n"
    assert run(engine, program, wrong).reward == 0.0
    wrong = "import pytest\ndef test():\n    it = numbers()\n    next(it)\n    with pytest.raises(StopIteration) as e: next(it)\n    assert e.value.value == '2'\n"
    assert run(engine, program, wrong).reward == 0.0


SHOWN = """class Failed(Exception):
    def __init__(self, code): self.code = code; super().__init__(code)
    {}
def f(x): raise Failed(x)
"""
CATCH = "import pytest\ndef test():\n    with pytest.raises(Failed) as e: f(4)\n    {}\n"


def test_an_exception_has_the_repr_of_its_class(engine: SyncEngine) -> None:
    own = "def __repr__(self): return f'Failed(code={self.code})'"
    tests = CATCH.format("assert repr(e.value) == 'Failed(code=4)'")
    assert run(engine, SHOWN.format(own), tests).reward == 1.0
    assert run(engine, SHOWN.format(""), tests).reward == 0.0
    assert run(engine, SHOWN.format(own), CATCH.format("assert repr(e.value) == 'Failed(4)'")).reward == 0.0


@pytest.mark.parametrize(
    ("own", "test"),
    [
        ("def __eq__(self, other): return True", "assert e.value != Failed(5)"),
        ("def __bool__(self): return False", "assert e.value"),
        ("def __len__(self): return 3", "assert len(e.value) == 3"),
    ],
)
def test_operators_of_an_exception_are_not_here(engine: SyncEngine, own: str, test: str) -> None:
    assert run(engine, SHOWN.format(own), CATCH.format(test)).reward is None


def test_an_exception_may_be_of_another_class_too(engine: SyncEngine) -> None:
    program = "class Ours: pass\nclass Failed({}ValueError): pass\ndef f(x): raise Failed(x)\n"
    tests = CATCH.format(
        "assert isinstance(e.value, Ours) and issubclass(Failed, Ours) and isinstance(e.value, ValueError)"
    )
    assert run(engine, program.format("Ours, "), tests).reward == 1.0
    assert run(engine, program.format(""), tests).reward == 0.0


def test_from_none_is_told(engine: SyncEngine) -> None:
    program = "def f(x):\n    try: 1 / 0\n    except ZeroDivisionError: raise ValueError(x){}\n"
    tests = "import pytest\ndef test():\n    with pytest.raises(ValueError) as e: f(1)\n    assert e.value.__suppress_context__\n"
    assert run(engine, program.format(" from None"), tests).reward == 1.0
    assert run(engine, program.format(""), tests).reward == 0.0


ERRORS = """
class NotFound(Exception):
    def __init__(self, what, code=404):
        super().__init__(what)
        self.code = code
class Low(Exception): pass
"""
# Tests with exceptions of the program's classes that go to the program, a right one, and one that knows no classes.
GIVEN = {
    "one that the tests made": (
        "assert status(NotFound('x')) == 404 and status(NotFound('x', code=410)) == 410 and status(Low()) == 0",
        "def status(e): return e.code if isinstance(e, NotFound) else 0",
        "def status(e): return 404",
    ),
    "one that the program raised": (
        "try: fail()\nexcept NotFound as e: assert status(e) == 410 and str(e) == 'y'\nelse: assert False",
        "def fail(): raise NotFound('y', 410)\ndef status(e): return e.code if type(e) is NotFound else 0",
        "def fail(): raise NotFound('y', 410)\ndef status(e): return 404",
    ),
    "one that a context sees": (
        "import pytest\nwith Quiet():\n    raise NotFound('x')\nwith pytest.raises(Low):\n    with Quiet():\n        raise Low()",
        "class Quiet:\n    def __enter__(s): return s\n    def __exit__(s, kind, e, tb): return kind is NotFound",
        "class Quiet:\n    def __enter__(s): return s\n    def __exit__(s, kind, e, tb): return True",
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_exceptions_of_its_classes_are_that_for_the_program(engine: SyncEngine, name: str) -> None:
    tests, right, wrong = GIVEN[name]
    decided(engine, ERRORS + right, ERRORS + wrong, tests)
