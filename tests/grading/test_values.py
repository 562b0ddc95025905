"""Equality of function results with expected values: by structure, never by a program's methods."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.core.errors import InputError
from proctor.grading.values import Tolerance, plain, same_truth, same_value, show
from proctor.guest.protocol import Opaque, decode_value, encode_value

NAN, INF = math.nan, math.inf
EVALPLUS = Tolerance(1e-6, 1e-7, floats_only=True)


NUMBERED = {"ids": lambda value: None if isinstance(value, bool) else "-"}  # pytest cannot print big ints either


@pytest.mark.parametrize(
    ("got", "expected", "ok"),
    [
        (4, 4, True),
        (4.0, 4, True),
        (1, True, True),
        (0, False, True),
        (1, 1.0, True),
        (1 + 0j, 1, True),
        ("1", 1, False),
        (b"a", "a", False),
        (None, None, True),
        (None, 0, False),
        (None, False, False),
        ("", None, False),
        ([], None, False),
        ([1, 2], (1, 2), True),
        ([1, [2, (3,)]], (1, (2, [3])), True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ([[1, 2], [1, 2]], [[1, 2], [1, 3]], False),
        ({1, 2}, {2, 1}, True),
        ({1, 2}, frozenset({2, 1}), True),
        ({1, 2}, [1, 2], False),
        ({1.0}, {True}, True),
        ({NAN, 1}, {1, NAN}, True),
        ({(1, NAN)}, {(1.0, NAN)}, True),
        ({(1, NAN)}, {(2, NAN)}, False),
        ({frozenset({1, 2})}, {frozenset({2, 1.0})}, True),
        ({"a": 1, "b": [2]}, {"b": (2,), "a": 1.0}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({NAN: 1, 2.5: 3}, {2.5: 3, NAN: 1}, True),
        ({(1, 2): "x"}, {(1.0, 2): "x"}, True),
        ({1: "x"}, {"1": "x"}, False),
        (NAN, NAN, True),
        ([NAN], [NAN], True),
        (NAN, 1.0, False),
        (complex(NAN, 1), complex(NAN, 1), True),
        (INF, INF, True),
        (-INF, INF, False),
        (0.1 + 0.2, 0.3, False),
        (10**5000, 10**5000, True),
        (10**5000, 10**5000 + 1, False),
        (10**5000, 1.5, False),
        (10**5000, INF, False),
        ("\ud800", "\ud800", True),
    ],
    **NUMBERED,
)
def test_equality(got: Any, expected: Any, ok: bool) -> None:
    result = same_value(decode_value(encode_value(got)), plain(expected, "expected"))
    assert result.ok is ok, result
    assert result.detail.isprintable()
    assert result.detail.isascii()


def test_kinds_of_dict_and_list_that_python_holds_equal() -> None:
    for got, expected in [
        (Counter("abca"), {"a": 2, "b": 1, "c": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(int, a=1), {"a": 1}),
        (deque([1, 2]), [1, 2]),
        (iter([1, 2]), [1, 2]),
        ((n for n in (1, 2)), [1, 2]),
        ({1: 2}.keys(), [1]),
        (range(3), [0, 1, 2]),
    ]:
        assert same_value(decode_value(encode_value(got)), expected).ok
    assert plain(Counter("ab"), "expected") == {"a": 1, "b": 1}


def test_a_lying_object_equals_nothing() -> None:
    class Yes:
        def __eq__(self, other: object) -> bool:
            return True

        def __bool__(self) -> bool:
            return True

        __hash__ = object.__hash__

    got = decode_value(encode_value(Yes()))
    assert isinstance(got, Opaque)
    for expected in (4, "x", [], None, True, {1}):
        assert not same_value(got, expected).ok
    assert not same_value([got], [4]).ok
    assert "object of class 'Yes'" in same_value(got, 4).detail

    class Int(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert not same_value(decode_value(encode_value(Int(3))), 4).ok


def test_truth() -> None:
    import re

    match = decode_value(encode_value(re.match("a", "abc")))
    assert same_truth(match, True).ok
    assert not same_truth(match, False).ok
    assert same_truth(None, False).ok
    assert same_truth([], False).ok
    assert same_truth([0], True).ok
    assert not same_truth(Opaque("X", None), True).ok
    assert not same_truth(Opaque("X", None), False).ok


def test_exact_types_keep_lists_and_tuples_apart() -> None:
    assert not same_value([1, 2], (1, 2), exact_types=True).ok
    assert same_value((1, 2.0), (1, 2), exact_types=True).ok  # numbers compare by value all the same
    assert same_value({1, 2}, frozenset({1, 2}), exact_types=True).ok
    assert not same_value([(1,)], [[1]], exact_types=True).ok


@pytest.mark.parametrize(
    ("got", "expected", "tolerance", "ok"),
    [
        (0.1 + 0.2, 0.3, EVALPLUS, True),
        (1.0000001, 1.0, EVALPLUS, True),
        (1.00001, 1.0, EVALPLUS, False),
        ([0.1 + 0.2, 1.0], [0.3, 1.0], EVALPLUS, True),
        ((0.1 + 0.2,), [0.3], EVALPLUS, True),
        ([0.1 + 0.2, "x"], [0.3, "x"], EVALPLUS, False),  # evalplus: floats, or lists of nothing else
        ([[0.1 + 0.2]], [[0.3]], EVALPLUS, False),
        (3.0000001, 3, EVALPLUS, False),
        (3.0, 3, EVALPLUS, True),
        (3, 3.0000001, EVALPLUS, True),
        (0.5, [0.5], EVALPLUS, False),  # nothing is broadcast
        (NAN, 1.0, EVALPLUS, False),
        (1.0, INF, EVALPLUS, False),
        (INF, INF, EVALPLUS, True),
        ([[3.0000001], {"a": 2.0000001}], [[3], {"a": 2}], Tolerance(1e-4, 1e-7), True),
        ([[3.1]], [[3]], Tolerance(1e-4, 1e-7), False),
        (1e33, 1.00000001e33, Tolerance(1e-4, 1e-7), True),
        (10**400, 1.5, Tolerance(1e-4, 1e-7), False),
        (1.0 + 1e-9j, 1.0, Tolerance(1e-6), True),
        ("1.0000001", "1.0", Tolerance(1e-4), False),
        ({0.1 + 0.2}, {0.3}, Tolerance(1e-4), False),  # members of sets and keys are exact
    ],
    **NUMBERED,
)
def test_tolerance(got: Any, expected: Any, tolerance: Tolerance, ok: bool) -> None:
    assert same_value(got, expected, tolerance=tolerance).ok is ok


def test_big_ints_are_compared_without_digits() -> None:
    result = same_value(10**6000, 10**6000 + 1)
    assert not result.ok
    assert "bits" in result.detail


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.complex_numbers(),
        st.text(max_size=4),
        st.binary(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.floats()), inner, max_size=4),
        st.sets(st.one_of(st.integers(), st.floats(), st.tuples(st.integers(), st.floats())), max_size=4),
    ),
    max_leaves=12,
)


@given(PLAIN, st.booleans())
def test_a_value_equals_itself_after_the_wire(value: Any, exact_types: bool) -> None:
    assert same_value(decode_value(encode_value(value)), value, exact_types=exact_types).ok
    assert len(show(value)) <= 80


@given(PLAIN, PLAIN)
def test_equality_is_pythons_where_no_nan_and_no_tuple_is(a: Any, b: Any) -> None:
    if not any(word in repr((a, b))[1:-1] for word in ("nan", "(")):
        assert same_value(a, b).ok is (a == b)


def test_deep_and_wide_values_end() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert not same_value(deep, deep).ok
    assert show(deep) == "[[[[...]]]]"
    level: Any = 1
    for _ in range(150):
        level = (level,)
    assert same_value(level, level).ok
    while isinstance(deep, list) and deep:  # a chain this long is freed by hand
        deep = deep.pop()
    start = time.process_time()
    assert same_value(list(range(10**6)), list(range(10**6))).ok
    assert same_value(set(range(10**6)), set(range(10**6))).ok
    assert not same_value({(n, 0.5) for n in range(10**5)}, {(n, 1.5) for n in range(10**5)}).ok
    assert time.process_time() - start < 6


@pytest.mark.parametrize("value", [object(), [object()], {1: object()}, {"a": {1, 2, frozenset({int})}}])
def test_expected_values_that_are_no_data_are_refused(value: Any) -> None:
    with pytest.raises(InputError, match="not plain data"):
        plain(value, "expected")
