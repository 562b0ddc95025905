"""Source and literals of strangers: read, never run, and never the end of this process."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.grading.pysource import MAX_CHAIN, LiteralError, big_int, holds_tests, literal, nodes, parse

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.frozensets(st.integers(), max_size=4)
        | st.sets(st.integers(), max_size=4)
    ),
    max_leaves=20,
)


@given(plain)
def test_literal_reads_what_repr_writes(value: object) -> None:
    again = literal(repr(value))
    assert again == value
    assert repr(again) == repr(value) or isinstance(value, complex | list | dict | tuple | set | frozenset)


def test_literal_reads_the_values_that_python_has_no_literal_for() -> None:
    assert literal("(inf, -inf, set(), frozenset({1}), float('-inf'))") == (
        math.inf,
        -math.inf,
        set(),
        frozenset({1}),
        -math.inf,
    )
    assert math.isnan(literal("[nan]")[0])
    assert literal("9" * 5000) == big_int("9" * 5000)
    assert big_int("-" + "7" * 9000) == -((10**9000 - 1) // 9 * 7)


@pytest.mark.parametrize(
    "source",
    ["f()", "__import__('os')", "a", "[x for x in y]", "1+1", "...", "{**{}}", "{[]: 1}", "{[1]}", "-'a'", "f'{1}'", "1 if 1 else 2", "", "float('1')", "set([1, []])",
     "[" * 102 + "]" * 102, "[" * 5000, "-" * 10_000 + "1", "1" + "+1" * 10_000, "lambda: 1", "open", "a.b"],
)  # fmt: skip
def test_literal_refuses_all_else(source: str) -> None:
    with pytest.raises(LiteralError):
        literal(source)


@given(st.text(alphabet="()[]{}+-*.,:; \n'\"fnotlambdaifelse=1x#\\", max_size=200))
def test_parse_answers_any_text(source: str) -> None:
    tree = parse(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as an error, one about an escape would be a SyntaxError
        try:
            compile(source, "x", "exec", dont_inherit=True, flags=0x400)
        except (SyntaxError, ValueError):
            assert tree is None


HOSTILE = {
    "unary": "'-' * 90000 + '1'",
    "not": "'not ' * 50000 + '1'",
    "sum": "'1' + '+1' * 90000",
    "attributes": "'a' + '.b' * 90000",
    "calls": "'a' + '()' * 90000",
    "calls with commas": "'a' + '(1, 2)' * 30000",
    "subscripts": "'a' + '[0]' * 60000",
    "powers": "'1' + '**1' * 60000",
    "lambdas": "'lambda a, b: ' * 15000 + '1'",
    "lambdas within the parser's own bound": "'lambda a,b:' * 2500 + '1'",
    "lambdas with defaults": "'lambda a=1,b=2:' * 2500 + '1'",
    "lambdas in brackets": "'(' + 'lambda a,*b:' * 2500 + '1,2)'",
    "lambdas behind a default that is one": "'lambda a=lambda b,c:1,d=2:' * 2500 + '1'",
    "ternaries behind digits": "'1if 1else ' * 5000 + '1'",
    "ternaries": "'1 if f(1, 2) else ' * 10000 + '1'",
    "elif": "'if 1: pass\\n' + 'elif f(1, 2): pass\\n' * 10000",
    "in an f-string": "'f\"{a' + '+1' * 90000 + '}\"'",
    "brackets": "'(' * 90000",
    "lines in brackets": "'(' + '-\\n' * 90000 + '1)'",
    "walls of text": "'x = 1\\n' * 5000000",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_nesting_cannot_end_the_process(name: str) -> None:
    """Also where the process raised its recursion limit and the thread's stack is small."""
    script = f"""
import sys, threading
from proctor.grading.pysource import parse
sys.setrecursionlimit(10**6)
threading.stack_size(1 << 20)
thread = threading.Thread(target=lambda: print(parse({HOSTILE[name]})))
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr[-300:]


def test_honest_programs_with_many_operators_parse() -> None:
    table = "T = [" + ", ".join(["-1", "2 * 3", "f(1, 2)", "a.b"] * 3000) + "]\n"
    text = "'''\n" + "-" * 5000 + "\n'''\n"
    assert parse(table + text + "x = 1 - 2\n" * 3000) is not None
    assert parse("x = 1" + " + 1" * (MAX_CHAIN - 100)) is not None


def test_honest_programs_with_many_lambdas_parse() -> None:
    table = "T = [" + "lambda a, b=lambda x, y: x: a + b, " * 1500 + "]\n"
    calls = "f(" + "key=lambda a, *b: (a, b), x=-1, " * 800 + ")\n"
    assert parse(table + calls + "g = lambda a, b: a, 1 + 2\n" * 1000) is not None
    assert parse("D = {" + "lambda a, b: 1: [1:2, 3], ".replace("1:2", "x[1:2]") * 1500 + "}\n") is not None


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        ("x = 1", False),
        ("# nothing\n", False),
        ("'assert f(1) == 2'", False),
        ("def check(f):\n    assert f(1) == 2\n", False),
        ("def check(f):\n    pass\ncheck(f)\n", False),
        ("def test_a():\n    pass\n", False),
        ("import solution\nprint(solution.f(1))\n", False),
        ("def check(f):\n    assert f(1) == 2\ncheck(f)\n", True),
        ("assert f(1) == 2", True),
        ("def test_a():\n    assert f(1) == 2\n", True),
        ("class T(TestCase):\n    def test_a(self):\n        self.assertEqual(f(1), 2)\n", True),
        ("if f(1) != 2:\n    raise ValueError\n", True),
        ("this does not parse", True),
    ],
)
def test_sources_that_check_nothing_are_told_apart(source: str, holds: bool) -> None:
    assert holds_tests(source) is holds


@pytest.mark.parametrize("action", ["error", "always"])
def test_warnings_about_the_source_are_not_ours(action: str, recwarn: pytest.WarningsRecorder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(action)  # type: ignore[arg-type]
        assert parse(f"x = '\\d'  # {action}") is not None
        assert literal("'\\d'") == "\\d"
    assert not recwarn.list


def test_source_that_is_no_text_for_python() -> None:
    assert parse("x = '\ud800'") is None
    assert parse("x = 1\0") is None


def test_nodes_are_those_of_a_walk_but_for_contexts() -> None:
    """In its order too: the first of a kind is the first for whoever walked."""
    with open(__file__, encoding="utf-8") as file:
        tree = parse(file.read())
    assert tree is not None
    assert list(nodes(tree)) == [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
