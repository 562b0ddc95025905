"""Values and frames: what goes in comes out, and junk is refused in bounded time and memory."""

from __future__ import annotations

import itertools
import math
import struct
import sys
import time
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.guest import protocol
from proctor.guest.protocol import Opaque, decode_value, encode_value


@contextmanager
def bounded(seconds: float, mib: float | None = None) -> Iterator[None]:
    """Fails when the block takes more CPU time, or memory (which is dear to measure), than that."""
    if mib is not None:
        tracemalloc.start()
    start, peak = time.process_time(), 0
    try:
        yield
        took = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1] if mib is not None else 0
    finally:
        tracemalloc.stop()
    assert took < seconds
    assert peak <= (mib or 0) * (1 << 20)


def form(value: Any) -> Any:
    """A value's types and parts in one order, so that two of them compare as data, nan being itself."""
    kind = type(value).__name__
    if isinstance(value, float):
        return kind, "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, complex):
        return kind, form(value.real), form(value.imag)
    if isinstance(value, list | tuple):
        return kind, [form(x) for x in value]
    if isinstance(value, dict):
        return kind, [(form(k), form(v)) for k, v in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted((form(x) for x in value), key=repr)
    return kind, value


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types all the way down."""
    return bool(form(left) == form(right))


_text = st.text(alphabet=st.characters(exclude_categories=())) | st.text(alphabet=st.characters(categories=["Cs"]))
_huge = st.integers() | st.builds(
    lambda bits, sign: sign * (1 << bits) - 1, st.integers(0, 70_000), st.sampled_from([1, -1])
)
_numbers = st.booleans() | _huge | st.floats(allow_nan=True, allow_infinity=True) | st.complex_numbers()
_atoms = st.none() | _numbers | _text | st.binary()
_keys = st.recursive(
    st.none() | st.integers() | _text | st.binary() | st.booleans(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
_values = st.recursive(
    _atoms,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.lists(inner, max_size=6).map(tuple)
        | st.dictionaries(_keys, inner, max_size=6)
        | st.sets(_keys, max_size=6)
        | st.frozensets(_keys, max_size=6)
    ),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(_values)
@example("\ud800\udfff\0")
@example(-(1 << 63))
@example(1 << 63)
@example(-0.0)
@example({1: {(): [set(), frozenset({frozenset()})]}})
@example({-1: 0, -2: 1})
def test_values_come_back(value: Any) -> None:
    assert same(decode_value(encode_value(value)), value)


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
        (OrderedDict([(2, 1), (1, 2)]), {2: 1, 1: 2}),
        (deque([1, 2]), [1, 2]),
        (range(3), [0, 1, 2]),
        ((x for x in "ab"), ["a", "b"]),
        (map(int, "12"), [1, 2]),
        ({1: 2}.keys(), [1]),
        ({1: 2}.values(), [2]),
        ({1: 2}.items(), [(1, 2)]),
        (bytearray(b"x"), b"x"),
        ([10**20_000], [10**20_000]),
        ("\ud800", "\ud800"),
    ],
)
def test_kin_of_plain_types_come_back_as_those(value: Any, back: Any) -> None:
    assert same(decode_value(encode_value(value)), back)


class Liar:
    """Equal to all, true never, and loud about it."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        raise RuntimeError


class Sub(int):
    """A number that is more than one."""

    def __int__(self) -> int:
        raise RuntimeError


class Listing(list):  # type: ignore[type-arg]
    """A list that is more than one."""

    def __iter__(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "stand_in"),
    [(Liar(), Opaque("Liar")), (object(), Opaque("object", True)), (len, Opaque("builtin_function_or_method", True))],
)  # fmt: skip
def test_what_is_not_plain_is_opaque(value: Any, stand_in: Opaque) -> None:
    assert decode_value(encode_value([value])) == [stand_in]


def test_an_object_of_a_class_made_from_data_is_the_data_in_it() -> None:
    assert same(decode_value(encode_value([Sub(3), Listing([1]), Sub(10**30)])), [3, [1], 10**30])


def test_an_opaque_value_equals_no_data() -> None:
    stand_in = decode_value(encode_value(Liar()))
    assert all(stand_in != value for value in (None, 0, 1, "", "Liar", [], {}, True))


def test_cycles_and_depth_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(protocol.MAX_DEPTH + 5):
        deep = [deep]
    for value in (cycle, deep):
        with pytest.raises(ValueError, match="nested"):
            encode_value(value)


def test_the_deepest_that_is_encoded_is_decoded() -> None:
    deep: Any = 1
    for _ in range(protocol.MAX_DEPTH):
        deep = (deep,)
    assert decode_value(encode_value(deep)) == deep


def test_size_is_bounded() -> None:
    with pytest.raises(ValueError, match="large"):
        encode_value([b"x" * 100] * 100, 1000)
    with pytest.raises(ValueError, match="items"):
        encode_value(iter(int, 1))  # it never ends


# ---------------------------------------------------------------- junk


def refuse(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # any, and nothing else
        decode_value(data)


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([bytes([c]) for c in b"NTFqficsbolStZd\0\1\2\xff"]), max_size=80).map(b"".join)
)
def test_junk_is_a_value_or_a_value_error(data: bytes) -> None:
    row = b"t\0\0\0\2" + encode_value("value") + data
    (result,) = protocol.parse_call_results(len(row).to_bytes(4, "big") + row)
    try:
        value = decode_value(data)
    except ValueError:
        assert result.error == "ProtocolError"
        return
    assert result.error is None  # both readers accept the same
    encode_value(value)  # what was accepted is plain data


@settings(max_examples=150, deadline=None)
@given(_values, st.data())
def test_damaged_values(value: Any, data: st.DataObject) -> None:
    whole = bytearray(encode_value(value))
    cut = data.draw(st.integers(0, len(whole)))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_value(bytes(whole[:cut]))
    except ValueError:
        pass


@settings(max_examples=100, deadline=None)
@given(_values, st.binary(min_size=1, max_size=5))
def test_nothing_may_follow(value: Any, more: bytes) -> None:
    refuse(encode_value(value) + more)


@settings(max_examples=100, deadline=None)
@given(_values, st.data())
def test_nothing_may_lack(value: Any, data: st.DataObject) -> None:
    whole = encode_value(value)
    refuse(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("tag", [b"l", b"t", b"S", b"Z", b"d", b"s", b"b", b"i", b"o"])
def test_a_count_alone_costs_nothing(tag: bytes) -> None:
    with bounded(seconds=1, mib=1):
        for count in (1, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1):
            refuse(tag + count.to_bytes(4, "big"))
            refuse(tag + count.to_bytes(4, "big") + b"N" * min(count - 1, 100))


def test_many_parts_are_bounded() -> None:
    size = protocol.MAX_RESULT
    with bounded(seconds=20):
        refuse(b"l" + (size - 5).to_bytes(4, "big") + b"N" * (size - 5))


def test_counts_that_each_promise_all_the_rest() -> None:
    rest = 1 << 14
    with bounded(seconds=10, mib=50):
        refuse(b"".join(b"l" + (rest - 5 * i).to_bytes(4, "big") for i in range(1, 190)) + b"N" * rest)
        refuse((b"l" + b"\0\0\0\0") * rest)


def test_nesting_is_bounded() -> None:
    with bounded(seconds=2, mib=20):
        for tag in (b"l", b"t", b"Z", b"d"):
            refuse((tag + b"\0\0\0\1") * 100_000 + b"N")
            refuse((tag + b"\0\0\0\2") * 100_000 + b"N" * 100_001)


def table(tag: bytes, keys: list[Any]) -> bytes:
    """A record whose value is a set or dict of these keys, however often one is there."""
    body = b"".join(encode_value(key) + (b"N" if tag == b"d" else b"") for key in keys)
    count = len(keys) * (2 if tag == b"d" else 1)
    row = b"t\0\0\0\2" + encode_value("value") + tag + count.to_bytes(4, "big") + body
    return len(row).to_bytes(4, "big") + row


TUPLES = list(itertools.product((-1, -2), repeat=15))  # all of one hash, as hash(-1) == hash(-2)


@pytest.mark.parametrize("tag", [b"S", b"Z", b"d"])
@pytest.mark.parametrize(
    "keys", [[i * sys.hash_info.modulus + 1 for i in range(20_000)], TUPLES], ids=["ints", "tuples"]
)
def test_keys_of_a_guest_are_not_hashed(tag: bytes, keys: list[Any]) -> None:
    stream = table(tag, keys)
    with bounded(seconds=3):
        (result,) = protocol.parse_call_results(stream)
    assert result.value.items == ([(key, None) for key in keys] if tag == b"d" else keys)


def test_sets_and_dicts_of_a_guest_are_what_came() -> None:
    value = [{1, 2}, frozenset(), set(), {"a": {(1, frozenset({2})): []}}, {}]
    (result,) = protocol.parse_call_results(protocol.record(("value", value)))
    first, *_, last, empty = result.value
    assert (first.kind, sorted(first), len(first)) == ("set", [1, 2], 2)
    assert last.items == [("a", protocol.Pairs([((1, protocol.Members("frozenset", [2])), [])]))]
    assert bool(first) and not empty  # noqa: PT018
    assert repr(result.value) == repr(value)
    with pytest.raises(TypeError):
        hash(first)


@pytest.mark.parametrize("key", [[], {}, {1}, ([],), (1, (2, {3: 4}))])
@pytest.mark.parametrize("tag", [b"S", b"Z", b"d"])
def test_keys_of_a_guest_are_of_kinds_that_can_be_keys(tag: bytes, key: Any) -> None:
    (result,) = protocol.parse_call_results(table(tag, [key]))
    assert result.error == "ProtocolError"
    refuse(table(tag, [key])[4:])


def test_a_value_of_too_many_parts_costs_only_itself() -> None:
    stream = (
        protocol.record(("value", list(range(10))))
        + protocol.record(("value", list(range(11))))
        + protocol.record(("value", 1)) * 2
    )
    results = protocol.parse_call_results(stream, nodes=[13, 13, 3])
    assert [r.value for r in results] == [list(range(10)), Opaque("value of too many parts", True), 1, 1]
    flood = protocol.record(("value", list(range(300_000))))
    with bounded(seconds=0.5):
        assert isinstance(protocol.parse_call_results(flood, nodes=[100])[0].value, Opaque)


def test_keys_that_cannot_be_keys() -> None:
    refuse(b"S\0\0\0\1" + encode_value([]))
    refuse(b"d\0\0\0\2" + encode_value({}) + b"N")
    refuse(b"d\0\0\0\1N")


def test_huge_numbers_are_linear() -> None:
    digits = b"f" * (8 << 20)
    with bounded(seconds=5, mib=100):
        assert decode_value(b"i" + len(digits).to_bytes(4, "big") + digits).bit_length() == 4 * len(digits)
        refuse(b"i" + len(digits).to_bytes(4, "big") + b"g" * len(digits))
        refuse(b"i\0\0\0\0")


# ---------------------------------------------------------------- frames

_headers = st.dictionaries(
    st.text(max_size=10),
    st.recursive(st.none() | st.booleans() | st.integers(-(1 << 62), 1 << 62) | st.text(max_size=10), lambda x: st.lists(x, max_size=4), max_leaves=6),
    max_size=6,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 255), _headers, st.lists(st.binary(max_size=50), max_size=3))
def test_frames_come_back(kind: int, header: dict[str, Any], blobs: list[bytes]) -> None:
    frame = protocol.pack(kind, header, *blobs)
    head, rest = frame[: protocol.HEAD.size], frame[protocol.HEAD.size :]
    got, header_size, body_size = protocol.unpack_head(head)
    assert (got, header_size + body_size) == (kind, len(rest))
    assert protocol.unpack_header(rest[:header_size]) == header
    assert rest[header_size:] == b"".join(blobs)


@given(st.binary(min_size=9, max_size=9))
def test_lengths_are_bounded(head: bytes) -> None:
    try:
        _, header, body = protocol.unpack_head(head)
    except ValueError:
        return
    assert header <= protocol.MAX_HEADER
    assert body <= protocol.MAX_BODY


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b'{"a":NaN,"b":-Infinity,"c":1e999}')
@example(b"\xef\xbb\xbf{}")
@example(b'{\0"\0a\0"\0:\x001\0}\0')
def test_headers_are_objects_or_value_errors(data: bytes) -> None:
    try:
        assert type(protocol.unpack_header(data)) is dict
    except ValueError:
        pass


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        b"[" * 1_000_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"a":' + b"9" * 1_000_000 + b"}",
        b'{"a":' + b"-" + b"9" * 21 + b"}",
        b"[]", b"1", b"null", b'"x"', b"", b"{", b'{"a":1}x', b"\xff\xfe{",
    ],
)  # fmt: skip
def test_hostile_headers(data: bytes) -> None:
    guard = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # as a trainer may have done
    try:
        with bounded(seconds=5, mib=200), pytest.raises(ValueError):  # noqa: PT011  # any, and nothing else
            protocol.unpack_header(data)
    finally:
        sys.set_int_max_str_digits(guard)


# ---------------------------------------------------------------- the harness's stream


def test_results_in_order() -> None:
    stream = protocol.record(("value", [1])) + protocol.record(("raised", "KeyError", "'x'"))
    results = protocol.parse_call_results(stream)
    assert [(r.value, r.error, r.message) for r in results] == [([1], None, ""), (None, "KeyError", "'x'")]


def test_a_record_that_is_cut_short_does_not_count() -> None:
    stream = protocol.record(("value", 1)) + protocol.record(("value", 2))
    assert [r.value for r in protocol.parse_call_results(stream[:-1])] == [1]


@pytest.mark.parametrize(
    "row", [("value",), ("value", 1, 2), ["value", 1], ("raised", 1), "value", None, {"value": 1}, ("Value", 1)]
)
def test_a_record_of_another_shape_is_an_error(row: Any) -> None:
    (result,) = protocol.parse_call_results(protocol.record(row))
    assert (result.value, result.error) == (None, "ProtocolError")


def test_texts_are_cut_and_wrong_types_are_none() -> None:
    (first, second) = protocol.parse_call_results(
        protocol.record(("raised", "E" * 9000, 5)) + protocol.record(("raised", None, "x" * 9000))
    )
    assert (len(first.error or ""), first.message) == (500, "")
    assert (second.error, len(second.message)) == ("Exception", 500)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=100) | st.lists(_values.map(lambda v: protocol.record(v)), max_size=4).map(b"".join))
def test_any_stream_is_read(stream: bytes) -> None:
    protocol.parse_call_results(stream)
    protocol.parse_test_report(stream, "nonce")


def test_a_flood_of_records_is_bounded() -> None:
    stream = b"\0\0\0\1N" * (protocol.MAX_RESULT // 5)
    with bounded(seconds=20):
        assert len(protocol.parse_call_results(stream)) <= protocol.MAX_RECORDS
        assert protocol.parse_test_report(stream, "nonce") is None


def test_a_report_needs_its_last_word() -> None:
    test = protocol.record(("test", "test_a", True, ""))
    end = protocol.record(("finished", "secret"))
    report = protocol.parse_test_report(test + end, "secret")
    assert report is not None
    assert report.tests == {"test_a": True}
    for stream in (
        test,
        end[:-1],
        test + protocol.record(("finished", "guess")),
        end + test,
        b"",
        end + protocol.record(None),
    ):
        assert protocol.parse_test_report(stream, "secret") is None


@pytest.mark.parametrize("claims", [[True, False], [False, True], [1], ["yes"], [None, False], [[True]]])
def test_a_test_that_failed_once_or_oddly_has_failed(claims: list[Any]) -> None:
    stream = b"".join(protocol.record(("test", "test_a", claim, "")) for claim in claims) + protocol.record(
        ("finished", "n")
    )
    report = protocol.parse_test_report(stream, "n")
    assert report is not None
    assert report.tests == {"test_a": False}


def test_requests_hold_what_was_asked() -> None:
    call = protocol.Call("Solution.f", (1, [2.5]), {"key": {"a": None}})
    request = decode_value(protocol.call_request(source_file="s.py", module="s", calls=[call]))
    assert request["calls"] == [("Solution.f", (1, [2.5]), {"key": {"a": None}})]
    tests = decode_value(
        protocol.test_request(
            source_file="s.py", module="s", tests="assert 1", test_module="t", nonce="n", appended=True
        )
    )
    assert (tests["kind"], tests["nonce"], tests["appended"]) == ("tests", "n", True)
