"""Equality of function results with expected values: by structure, never by a program's methods."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict, defaultdict, deque
from enum import IntEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.core.errors import InputError
from proctor.grading.values import Tolerance, parts, plain, same_truth, same_value, show
from proctor.guest.protocol import Members, Opaque, Pairs, decode_value, encode_value, parse_call_results, record

NAN, INF = math.nan, math.inf
EVALPLUS = Tolerance(1e-6, 1e-7, floats_only=True)


def wire(value: Any) -> Any:
    """A value as it comes from a program."""
    (result,) = parse_call_results(record(("value", value)))
    assert result.error is None
    return result.value


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
    result = same_value(wire(got), plain(expected, "expected"))
    assert result.ok is ok, result
    assert result.detail.isprintable()
    assert result.detail.isascii()


def test_kinds_of_dict_and_list_that_python_holds_equal() -> None:
    for got, expected in [
        (Counter("abca"), {"a": 2, "b": 1, "c": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(int, a=1), {"a": 1}),
        (iter([1, 2]), [1, 2]),
        ((n for n in (1, 2)), [1, 2]),
        ({1: 2}.keys(), [1]),
    ]:
        assert same_value(wire(got), expected).ok
    assert plain(Counter("ab"), "expected") == {"a": 1, "b": 1}


class Point(NamedTuple):
    x: int
    y: int


class Colour(IntEnum):
    RED = 1


def test_an_object_of_a_class_made_from_data_is_that_data() -> None:
    """As for Python's own ==, but by its content: what its class makes of equality has no say."""

    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    class Many(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter([7])

    class Named(dict):  # type: ignore[type-arg]
        pass

    class Text(str):
        def __str__(self) -> str:
            return "lie"

    for got, expected in [
        (Point(1, 2), (1, 2)), ([Point(1, 2)], [(1, 2)]), ({Point(1, 2): 1}, {(1, 2): 1}), (Colour.RED, 1), (Liar(4), 4),
        (Many([1]), [1]), (Named(a=1), {"a": 1}), (Text("a"), "a"), (type("F", (float,), {})(0.5), 0.5),
        (type("S", (set,), {})({1}), {1}), (type("B", (bytes,), {})(b"a"), b"a"),
    ]:  # fmt: skip
        assert same_value(wire(got), expected, exact_types=True).ok, got
        assert plain(got, "expected") == expected
    for got, expected in [
        (Point(1, 2), (1, 3)),
        (Point(1, 2), [1, 2]),
        (Liar(4), 5),
        (Many([1]), [7]),
        (Text("a"), "lie"),
    ]:
        assert not same_value(wire(got), expected, exact_types=True).ok, got


@pytest.mark.parametrize("got", [deque([0, 1, 2]), range(3)], ids=["deque", "range"])
def test_what_python_holds_unequal_to_a_list_is_no_list(got: Any) -> None:
    for exact in (False, True):
        result = same_value(wire(got), [0, 1, 2], exact_types=exact)
        assert not result.ok
        assert type(got).__name__ in result.detail
        assert not same_value(wire([got]), [[0, 1, 2]], exact_types=exact).ok
    assert same_truth(wire(got), True).ok
    with pytest.raises(InputError, match=type(got).__name__):  # nothing that a program gives would be equal to it
        plain(got, "expected")
    assert decode_value(encode_value(got)) == [0, 1, 2]  # as an argument


def test_a_lying_object_equals_nothing() -> None:
    class Yes:
        def __eq__(self, other: object) -> bool:
            return True

        def __bool__(self) -> bool:
            return True

        __hash__ = object.__hash__

    got = wire(Yes())
    assert isinstance(got, Opaque)
    for expected in (4, "x", [], None, True, {1}):
        assert not same_value(got, expected).ok
    assert not same_value([got], [4]).ok
    assert not same_value(wire({Yes()}), {4}).ok
    assert not same_value(wire({(1, Yes()): 1}), {(1, 4): 1}).ok
    assert "object of class 'Yes'" in same_value(got, 4).detail

    class Int(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert not same_value(decode_value(encode_value(Int(3))), 4).ok


def test_truth() -> None:
    import re

    match = wire(re.match("a", "abc"))
    assert same_truth(match, True).ok
    assert not same_truth(match, False).ok
    assert same_truth(None, False).ok
    assert same_truth([], False).ok
    assert same_truth([0], True).ok
    for empty, full in (({}, {0: 0}), (set(), {0}), (frozenset(), frozenset({0}))):
        assert same_truth(wire(empty), False).ok
        assert same_truth(wire(full), True).ok
    assert not same_truth(Opaque("X", None), True).ok
    assert not same_truth(Opaque("X", None), False).ok


def test_exact_types_keep_lists_and_tuples_apart() -> None:
    assert not same_value([1, 2], (1, 2), exact_types=True).ok
    assert same_value((1, 2.0), (1, 2), exact_types=True).ok  # numbers compare by value all the same
    assert same_value(wire({1, 2}), frozenset({1, 2}), exact_types=True).ok
    assert same_value(wire({(1, 2): [3]}), {(1, 2): [3]}, exact_types=True).ok
    assert not same_value(wire({(1, 2): [3]}), {(1, 2): (3,)}, exact_types=True).ok
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
    assert same_value(wire(got), expected, tolerance=tolerance).ok is ok


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
    assert same_value(wire(value), value, exact_types=exact_types).ok
    assert len(show(wire(value))) <= 80
    assert parts(value) == parts(plain(value, "expected"))


# Few values, so that many are equal, in every kind that Python holds equal to another.
FEW = st.sampled_from([0, 1, -1, -2, 2, 1.0, -2.0, -0.0, 0.5, True, False, 1 + 0j, 1j, None, "", "1", b"", b"1"])
KEYS = st.recursive(FEW, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
COMPARED = st.recursive(
    FEW,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
    ),
    max_leaves=6,
)


@given(COMPARED, COMPARED)
def test_equality_is_pythons_where_no_nan_and_no_list_is_a_tuple(a: Any, b: Any) -> None:
    assert same_value(wire(a), b).ok is (a == b)


@given(st.sets(KEYS, max_size=6), st.data())
def test_members_and_keys_are_pythons_in_any_order(members: set[Any], data: st.DataObject) -> None:
    """Nearly equal ones, which two drawn sets hardly ever are."""
    other = set(data.draw(st.permutations(list(members))))
    if data.draw(st.booleans()):
        other ^= {data.draw(KEYS)}
    assert same_value(wire(members), other).ok is (members == other)
    assert same_value(wire(frozenset(members)), other).ok is (members == other)
    first, second = dict.fromkeys(members, 1), dict.fromkeys(other, 1)
    assert same_value(wire(first), second).ok is (first == second)


def test_a_member_or_key_that_came_twice_does_not_stand_for_another() -> None:
    assert not same_value(Members("set", [1, 1]), {1, 2}).ok
    assert not same_value(Members("set", [1, True]), {1, 2}).ok
    assert not same_value(Pairs([(1, "x"), (1.0, "x")]), {1: "x", 2: "x"}).ok
    assert not same_value(Members("set", [Members("frozenset", [1, 1])]), {frozenset({1, 2})}).ok
    assert not same_value(Members("set", [Members("frozenset", [1, 1])]), {frozenset({1})}).ok
    assert same_value(Members("set", [(1, Members("frozenset", [2, 1]))]), {(True, frozenset({1, 2}))}).ok


def flood(bits: int, filler: int, attackers: int) -> list[int]:
    """Ints that make CPython's dict of 2**bits slots walk nearly all of ``filler`` of them for each attacker."""
    size, mask = 1 << bits, (1 << bits) - 1
    rank, keys, at = [size] * size, list[int](), 1
    for number in range(filler):  # a key alone in its slot: the order in which a dict walks once the hash is used up
        rank[at] = number
        keys.append(at)
        at = (at * 5 + 1) & mask
    start, found = filler // 5, 0
    for base in range(size):
        if rank[base] == size:
            continue
        for high in range(1, 33):
            key = perturb = base + (high << bits)
            slot = base
            while perturb and rank[slot] < size:
                perturb >>= 5
                slot = (slot * 5 + perturb + 1) & mask
            if rank[slot] < start:
                keys.append(key)
                found += 1
                if found == attackers:
                    return keys
    raise AssertionError("too few attackers")


def test_keys_chosen_to_make_a_table_quadratic_cost_no_time() -> None:
    keys = flood(20, 360_000, 2_000)
    count = len(keys).to_bytes(4, "big")
    start = time.process_time()
    row = b"t\0\0\0\2" + encode_value("value") + b"S" + count + b"".join(map(encode_value, keys))
    stream = len(row).to_bytes(4, "big") + row
    honest = set(range(len(keys)))
    assert len(stream) > 3_000_000
    start = time.process_time()
    (result,) = parse_call_results(stream)
    assert not same_value(result.value, 5).ok
    assert not same_value(result.value, honest).ok
    assert not same_value([Members("set", [Members("frozenset", result.value.items)])], [{frozenset(honest)}]).ok
    assert not same_value(Pairs([(key, 1) for key in result.value]), dict.fromkeys(honest, 1)).ok
    assert time.process_time() - start < 4  # all of it; a dict of these keys alone takes longer
    start = time.process_time()
    (result,) = parse_call_results(stream, nodes=[parts([1, 2]) + 1000])
    assert not same_value(result.value, [1, 2]).ok
    assert time.process_time() - start < 0.1


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
