"""Operators of the program's own in sealed tests: what they give is what Python gives, and no more."""

from __future__ import annotations

import pytest
from sealed_help import run

from proctor.engine.shared import SyncEngine

POINT = """class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __eq__(self, other):
        {eq}
    {more}
"""
SAME = "return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)"


def rewards(engine: SyncEngine, right: str, wrong: str, tests: str) -> tuple[float | None, float | None]:
    """Of a right program and one that real pytest fails in its last test."""
    return run(engine, right, tests).reward, run(engine, wrong, tests).reward


@pytest.mark.parametrize(
    "test",
    [
        "def test(): assert Point(1, 2) != Point(1, 3)",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertNotEqual(Point(1, 2), Point(1, 3))",
    ],
)
def test_a_class_is_asked_for_its_own_not_equal(engine: SyncEngine, test: str) -> None:
    own = "def __ne__(self, other): return self.x != other.x {} self.y != other.y"
    right, wrong = (POINT.format(eq=SAME, more=own.format(sign)) for sign in ("or", "and"))
    assert rewards(engine, right, wrong, test) == (1.0, 0.0)


@pytest.mark.parametrize("test", ["assert Point(1, 2) != None", "assert not (Point(1, 2) == None)"])
def test_an_object_that_the_tests_made_is_compared_with_none(engine: SyncEngine, test: str) -> None:
    crashes = POINT.format(eq="return (self.x, self.y) == (other.x, other.y)", more="")
    agrees = POINT.format(eq="return True", more="")
    tests = f"def test():\n    assert Point(1, 2) == Point(1, 2)\n    {test}\n"
    assert rewards(engine, POINT.format(eq=SAME, more=""), crashes, tests) == (1.0, 0.0)
    assert run(engine, agrees, tests).reward == 0.0


@pytest.mark.parametrize("other", ["object()", "(1, 2)"])
def test_that_an_object_of_a_function_differs_from_anything_is_marked(engine: SyncEngine, other: str) -> None:
    program = POINT.format(eq="return True", more="") + "def origin(): return Point(0, 0)\n"
    found = run(engine, program, f"def test(): assert origin() != {other}")
    assert found.reward == 1.0
    assert "compare objects of 'Point'" in found.claim
    assert run(engine, program, f"def test(): assert origin() == {other}").reward == 0.0


@pytest.mark.parametrize("test", ["assert (p == q) == False", "assert (p == q) is False"])
def test_a_comparison_gives_what_its_method_gave(engine: SyncEngine, test: str) -> None:
    nothing = POINT.format(eq="if (self.x, self.y) == (other.x, other.y): return True", more="")
    tests = f"def test():\n    p, q = Point(1, 2), Point(1, 3)\n    {test}\n"
    assert rewards(engine, POINT.format(eq=SAME, more=""), nothing, tests) == (1.0, 0.0)


def test_a_comparison_may_give_an_object(engine: SyncEngine) -> None:
    program = """class Field:
    def __init__(self, name): self.name = name
    def __eq__(self, other): return Condition(self.name, '=', other)
    def __lt__(self, other): return Condition(self.name, '<', other)
class Condition:
    def __init__(self, *parts): self.parts = parts
    def sql(self): return ' '.join(map(str, self.parts))
"""
    tests = "def test():\n    assert (Field('age') == 5).sql() == 'age = 5'\n    assert (Field('age') < 5).sql() == 'age < 5'\n"
    assert run(engine, program, tests).reward == 1.0
    assert run(engine, program.replace("'='", "'is'"), tests).reward == 0.0


def test_of_two_classes_either_may_know(engine: SyncEngine) -> None:
    program = """class A:
    def __init__(self, x): self.x = x
class B:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return self.x == other.x
"""
    tests = "def test():\n    assert A(1) == B(1)\n    assert not A(1) == B(2)\n"
    assert run(engine, program, tests).reward == 1.0
    assert run(engine, program.replace("__eq__", "same"), tests).reward == 0.0


def test_what_the_tests_compare_with_may_know(engine: SyncEngine) -> None:
    program = "class A:\n    pass\ndef make(): return A()\n"
    tests = """class Any:
    def __init__(self, answer): self.answer = answer
    def __eq__(self, other): return self.answer
def test():
    assert make() == Any(True)
    assert make() != Any(False)
"""
    found = run(engine, program, tests)
    assert found.reward == 1.0, found.cases


def test_a_class_may_say_only_that_its_objects_have_no_hash(engine: SyncEngine) -> None:
    program = "class A:\n    __hash__ = None\n"
    tests = "import pytest\ndef test():\n    with pytest.raises(TypeError):\n        {A()}\n"
    assert rewards(engine, program, "class A:\n    pass\n", tests) == (1.0, 0.0)


CONTEXT = """class Context:
    def __enter__(self): return self
    def __exit__(self, kind, value, trace): return {}
"""


@pytest.mark.parametrize(
    ("said", "reward"), [("self", 1.0), ("1", 1.0), ("kind is ValueError", 1.0), ("None", 0.0), ("0", 0.0)]
)
def test_any_true_value_of_exit_swallows(engine: SyncEngine, said: str, reward: float) -> None:
    tests = "def test():\n    with Context():\n        raise ValueError('x')\n"
    assert run(engine, CONTEXT.format(said), tests).reward == reward


def test_who_swallows_by_any_true_value_raises_nothing(engine: SyncEngine) -> None:
    tests = "import pytest\ndef test():\n    with pytest.raises(ValueError):\n        with Context():\n            raise ValueError('x')\n"
    assert rewards(engine, CONTEXT.format("False"), CONTEXT.format("self"), tests) == (1.0, 0.0)


def test_exit_that_is_called_by_its_name_gives_what_it_gives(engine: SyncEngine) -> None:
    tests = "def test():\n    c = Context()\n    assert {} c.__exit__(None, None, None)\n    assert c.__exit__(KeyError, KeyError('x'), None) == 5\n"
    program = CONTEXT.format("5 if kind is KeyError else {}")
    assert run(engine, program.format(False), tests.format("not")).reward == 1.0
    assert run(engine, program.format(True), tests.format("not")).reward == 0.0
    assert run(engine, program.format(True), tests.format("")).reward == 1.0


def test_exit_is_given_a_traceback(engine: SyncEngine) -> None:
    program = CONTEXT.format("trace is not None and trace is value.__traceback__")
    assert run(engine, program, "def test():\n    with Context():\n        raise KeyError('x')\n").reward == 1.0


def test_whether_an_object_is_still_there_is_asked_beside_it(engine: SyncEngine) -> None:
    program = "kept = []\nclass Node:\n    def __init__(self): kept.append(self)\n"
    tests = "import weakref\ndef test():\n    n = Node()\n    r = weakref.ref(n)\n    del n\n    assert r() is None\n"
    found = run(engine, program, tests)
    assert found.reward == 0.0
    right = run(engine, "class Node:\n    pass\n", tests)
    assert (right.reward, right.claimed) == (1.0, True)
    assert run(engine, "def f(x): return x\n", "import sys\ndef test(): assert sys.getrefcount(f([])) < 9\n").claimed


COUNTDOWN = """class Countdown:
    def __init__(self, n): self.n = self.i = n
    def __iter__(self):
        {}
    def __next__(self):
        if self.i <= 0: raise StopIteration
        self.i -= 1
        return self.i + 1
"""


@pytest.mark.parametrize("loop", ["list(Countdown(3))", "[x for x in Countdown(3)]", "list(make(3))"])
@pytest.mark.parametrize(
    ("body", "reward"),
    [("return self", 1.0), ("self.i = self.n; return self", 1.0), ("pass", 0.0), ("raise ValueError", 0.0), ("return [9]", 0.0),
     ("return iter([9])", 0.0)],
)  # fmt: skip
def test_an_iterator_is_asked_for_its_iterator(engine: SyncEngine, loop: str, body: str, reward: float) -> None:
    program = COUNTDOWN.format(body) + "def make(n): return Countdown(n)\n"
    assert run(engine, program, f"def test(): assert {loop} == [3, 2, 1]\n").reward == reward


def test_an_iterator_that_starts_again_starts_again(engine: SyncEngine) -> None:
    program = COUNTDOWN.format("self.i = self.n; return self")
    tests = """def test():
    c = Countdown(3)
    assert c.n == 3
    assert list(c) == [3, 2, 1]
    assert list(c) == [3, 2, 1]
    assert iter(c) is c
    assert next(c) == 3
"""
    assert run(engine, program, tests).reward == 1.0
    tests = "def test():\n    c = Countdown(3)\n    for x in c: break\n    assert list(c) == [2, 1]\n"
    assert run(engine, COUNTDOWN.format("return self"), tests).reward == 1.0
    assert run(engine, program, tests).reward == 0.0


def test_a_class_is_no_generator_by_its_name(engine: SyncEngine) -> None:
    tests = "import types\ndef test(): assert isinstance(f(), types.GeneratorType)\n"
    assert run(engine, "def f(): yield 1\n", tests).reward == 1.0
    liar = COUNTDOWN.format("return self").replace("Countdown", "generator") + "def f(): return generator(1)\n"
    assert run(engine, liar, tests).reward == 0.0
