"""Judge the value that a function gave against the one that was expected.

Both sides are plain data: the result was decoded from bytes by
``proctor.guest.protocol``, so it holds exact built-in types, ``Members`` and
``Pairs`` where the program had sets and dicts, and no method of the program's.
Equality is Python's own (``1 == 1.0 == True``, sets and dicts
in any order) with three differences, each of which a test set needs: nan
equals nan; a list equals a tuple unless the case says otherwise, because
tests from JSON have no tuples; and an object that is not data equals nothing (an
object of a class made from tuple, int or another kind of data is that data).

The walk keeps its own stack and is linear in the smaller of the two values.
Only the expected value's members and keys are put into a hash table; those that
the program gave are looked up there, since it could choose keys that make a
table of its own quadratic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proctor.core.errors import InputError
from proctor.grading.checkers import EXCERPT, CheckResult
from proctor.guest.protocol import Members, Opaque, Pairs, decode_value, encode_value

MAX_DEPTH = 400  # nested containers; the decoder stops before, so only a caller's own values reach it

_NUMBERS = (bool, int, float, complex)
_SEQUENCES = (list, tuple)
_SETS = (set, frozenset, Members)
_DICTS = (dict, Pairs)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two numbers may differ: ``abs + rel * |expected|``, as numpy's allclose has it.

    Attributes:
        floats_only: evalplus' rule: the tolerance holds only where the whole
            expected value is a float, or a list or tuple of floats and no
            more; False: at every number, however deep.
    """

    abs: float = 0.0
    rel: float = 0.0
    floats_only: bool = False


EXACT = Tolerance()


def same_value(got: Any, expected: Any, *, tolerance: Tolerance = EXACT, exact_types: bool = False) -> CheckResult:
    """Compare a decoded result with the expected value; never raises.

    Args:
        got: from ``parse_call_results``; may hold ``Opaque``. Real sets and dicts do as well, where they are the caller's.
        expected: plain data, the caller's.
        tolerance: for numbers; equal ones need none.
        exact_types: a list is no tuple. Numbers compare by value all the same.
    """
    if tolerance.floats_only and not _is_floats(expected):
        tolerance = EXACT
    try:
        where = _difference(got, expected, tolerance, exact_types)
    except (RecursionError, MemoryError):
        where = "the values are too deep to compare"
    return CheckResult(True) if where is None else CheckResult(False, where)


def same_truth(got: Any, expected: bool) -> CheckResult:
    """``bool(got) is expected``, for tests such as ``assert f(x)``; an object's truth came with its frame."""
    truth = got.truthy if isinstance(got, Opaque) else bool(got)
    if truth is expected:
        return CheckResult(True)
    return CheckResult(False, f"expected something {'true' if expected else 'false'}, got {show(got)}")


def plain(value: Any, field: str) -> Any:
    """The same value in exact built-in types, as a result would come back; InputError where that cannot be.

    A Counter becomes a dict, a namedtuple a tuple. A deque, a range, an object
    of any other class, or data beyond the bounds of ``proctor.guest.protocol``
    is refused, because no program could ever give a value equal to it.
    """
    try:
        data = decode_value(encode_value(value, exact=True))
    except (ValueError, RecursionError, OverflowError) as exc:
        raise InputError(f"the value cannot be sent as data: {exc}", field=field) from None
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, Opaque):
            raise InputError(f"a value of class {item.type_name!r} is not plain data", field=field)
        if type(item) is dict:
            stack.extend(item)
            stack.extend(item.values())
        elif type(item) in _SEQUENCES or type(item) in _SETS:
            stack.extend(item)
    return data


def show(value: Any, limit: int = EXCERPT) -> str:
    """Printable ASCII of at most ``limit`` characters; cheap, however large or deep the value is."""
    text = _show(value, 4)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _is_floats(value: Any) -> bool:
    if type(value) is float:
        return True
    return type(value) in _SEQUENCES and all(type(item) is float for item in value)


def _difference(got: Any, expected: Any, tolerance: Tolerance, exact_types: bool) -> str | None:
    """What differs first, or None."""
    stack: list[tuple[Any, Any, int]] = [(got, expected, 0)]
    while stack:
        a, b, depth = stack.pop()
        if depth > MAX_DEPTH:
            return "the values are nested too deeply"
        kind_a, kind_b = type(a), type(b)
        if kind_a in _NUMBERS and kind_b in _NUMBERS:
            if not _same_number(a, b, tolerance):
                return f"expected {show(b)}, got {show(a)}"
        elif kind_a in _SEQUENCES and kind_b in _SEQUENCES:
            if exact_types and kind_a is not kind_b:
                return f"expected a {kind_b.__name__}, got a {kind_a.__name__}: {show(a)}"
            if len(a) != len(b):
                return f"expected {len(b)} items, got {len(a)}: expected {show(b)}, got {show(a)}"
            stack.extend((x, y, depth + 1) for x, y in zip(reversed(a), reversed(b), strict=True))
        elif kind_a in _SETS and kind_b in _SETS:
            if len(a) != len(b) or _leftover(a, b):
                return f"expected {show(b)}, got {show(a)}"
        elif kind_a in _DICTS and kind_b in _DICTS:
            pairs = _matched(a, b)
            if pairs is None:
                return f"the keys differ: expected {show(b)}, got {show(a)}"
            stack.extend((x, y, depth + 1) for x, y in reversed(pairs))
        elif kind_a is not kind_b or kind_a not in _SCALARS or a != b:
            return f"expected {show(b)}, got {show(a)}"
    return None


_SCALARS = (str, bytes, type(None))


def _same_number(a: Any, b: Any, tolerance: Tolerance) -> bool:
    if a == b:
        return True
    if complex in (type(a), type(b)):
        return _same_number(a.real, b.real, tolerance) and _same_number(a.imag, b.imag, tolerance)
    if a != a or b != b:
        return bool(a != a and b != b)
    if not tolerance.abs and not tolerance.rel:
        return False
    try:
        gap = abs(a - b)
        bound = tolerance.abs + tolerance.rel * abs(b)
    except OverflowError:  # an int beyond the floats, beside a float
        return False
    return bool(gap <= bound) and bound != float("inf")


class _Ids:
    """Numbers for the members and keys of an expected value, equal ones having the same.

    Parts of tuples and frozensets are numbered too, so that one of them is
    looked up as the numbers of its parts, whatever their order in a set.
    """

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def add(self, item: Any) -> int:
        """The number of a member that is expected."""
        kind = type(item)
        if kind is tuple:
            item = (tuple, *map(self.add, item))
        elif kind in _SETS:
            item = (frozenset, *sorted(map(self.add, item)))
        elif kind in _INEXACT and item != item:
            item = _NAN
        return self.known.setdefault(item, len(self.known))

    def find(self, item: Any) -> int | None:
        """The number of an equal member that is expected; None: there is none. Looks up and keeps nothing."""
        kind = type(item)
        if kind is tuple or kind in _SETS:
            parts: list[Any] = [tuple if kind is tuple else frozenset]
            for part in item:
                number = self.find(part)
                if number is None:
                    return None
                parts.append(number)
            if kind is not tuple:
                parts[1:] = sorted(parts[1:])
            item = tuple(parts)
        elif kind in _INEXACT:
            item = _NAN if item != item else item
        elif kind not in _EXACT:
            return None  # no data
        return self.known.get(item)


_INEXACT = (float, complex)
_EXACT = (int, str, bytes, bool, type(None))
_NAN = object()


def _leftover(got: Any, expected: Any) -> bool:
    """Some member of ``got`` is not in ``expected``, or is there less often; both have one size."""
    ids, left = _Ids(), dict[int | None, int]()
    for item in expected:
        number = ids.add(item)
        left[number] = left.get(number, 0) + 1  # twice: nan, which Python holds apart
    for item in got:
        found = ids.find(item)
        if not left.get(found):
            return True
        left[found] -= 1
    return False


def _matched(got: Any, expected: Any) -> list[tuple[Any, Any]] | None:
    """Pairs of values under equal keys, or None where the keys differ."""
    if len(got) != len(expected):
        return None
    ids, left = _Ids(), dict[int | None, list[Any]]()
    for key, value in reversed(expected.items()):  # backwards, as they are taken from the end
        left.setdefault(ids.add(key), []).append(value)
    pairs = []
    for key, value in _items(got):
        under = left.get(ids.find(key))
        if not under:
            return None
        pairs.append((value, under.pop()))
    return pairs


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items if type(value) is Pairs else value.items()


def parts(value: Any) -> int:
    """How many parts a caller's plain value has, itself included: a value that is equal to it has as many."""
    count, stack = 0, [value]
    while stack:
        item = stack.pop()
        count += 1
        if type(item) is dict:
            stack.extend(item)
            stack.extend(item.values())
        elif type(item) in _SEQUENCES or type(item) in _SETS:
            stack.extend(item)
    return count


def _show(value: Any, depth: int) -> str:
    kind = type(value)
    if isinstance(value, Opaque):
        return f"<object of class {value.type_name[:40]!a}>"
    if kind is int and not -(10**40) < value < 10**40:
        return f"<int of {value.bit_length()} bits>"
    if kind in (str, bytes):
        return ascii(value[:EXCERPT])
    if kind in _SEQUENCES or kind in _SETS or kind in _DICTS:
        if not depth:
            return "..."
        few = []
        for count, item in enumerate(_items(value) if kind in _DICTS else value):
            if count == 20:
                few.append("...")
                break
            pair = kind in _DICTS
            few.append(f"{_show(item[0], 1)}: {_show(item[1], depth - 1)}" if pair else _show(item, depth - 1))
            if sum(map(len, few)) > 2 * EXCERPT:
                break
        kind = {"set": set, "frozenset": frozenset}[value.kind] if kind is Members else kind
        return _BRACKETS[kind].format(", ".join(few) + ("," if kind is tuple and len(value) == 1 else ""))
    return ascii(value)


_BRACKETS: dict[type, str] = {
    list: "[{}]",
    tuple: "({})",
    dict: "{{{}}}",
    Pairs: "{{{}}}",
    set: "{{{}}}",
    frozenset: "frozenset({{{}}})",
}
