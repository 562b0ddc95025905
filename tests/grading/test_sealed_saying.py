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


@pytest.mark.parametrize("row", range(len(FORGED)))
def test_what_says_yes_to_all_does_not_pass_unmarked(engine: SyncEngine, row: int) -> None:
    found = run(engine, *FORGED[row])
    assert found.claimed or not found.reward, found


def test_objects_that_are_keys_are_found_by_their_own_hash(engine: SyncEngine) -> None:
    passes(
        engine,
        HASHED,
        "some, by = f()\nassert Pt(1) in some and Pt(5) not in some and by[Pt(3)] == 4 and Pt(1) != Pt(2)",
    )
    passes(engine, HASHED, "assert Pt(1) < Pt(2) and not Pt(2) < Pt(1)\nassert Pt(1) == Pt(1) and Pt(1) != Pt(2)")
    tuples = HASHED + "def g(): return {(1, Pt(1)): 'a'}"
    passes(engine, tuples, "assert g()[1, Pt(1)] == 'a' and Pt(1) != Pt(2)")


def test_the_function_under_test_may_have_a_librarys_name(engine: SyncEngine) -> None:
    passes(engine, "def mean(x): return sum(x) / len(x)", "assert mean([1, 3]) == 2")


def test_names_of_the_program_are_escaped_in_reasons(engine: SyncEngine) -> None:
    program = "E = type('\\x1b[31m\\r\\nW', (Exception,), {})\nclass C:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\n    def q(s): raise E\n"
    found = run(engine, program, "def test_a():\n    with C() as c: assert c.q() == 1")
    assert found.reward is None
    assert found.error is not None
    assert found.error.isprintable()
