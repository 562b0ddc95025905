"""Classes of the program's that are made from a kind of data, and the data that is in their objects."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
from typing import Any

from . import contents

# Kinds of data that a class may be made from, and how the data is had without a method of the class.
BASES: dict[Any, Any] = {
    str: str.__str__, int: int.__int__, float: float.__float__, bytes: lambda value: bytes(memoryview(value)),
    list: lambda value: list(list.__iter__(value)), dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)), tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)), bytearray: lambda value: bytearray(memoryview(value)),
    complex: lambda value: complex(value.real, value.imag), decimal.Decimal: decimal.Decimal,
    fractions.Fraction: lambda value: fractions.Fraction(value.numerator, value.denominator),
    datetime.datetime: lambda value: datetime.datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo,
        fold=value.fold),
    datetime.date: lambda value: datetime.date.fromordinal(datetime.date.toordinal(value)),
    datetime.timedelta: lambda value: datetime.timedelta(value.days, value.seconds, value.microseconds),
    collections.deque: lambda value: collections.deque(collections.deque.__iter__(value), value.maxlen),
    collections.Counter: lambda value: collections.Counter(dict(dict.items(value))),
    collections.OrderedDict: lambda value: collections.OrderedDict(collections.OrderedDict.items(value)),
}  # fmt: skip


def data_base(kind: type) -> str:
    """The kind of data that a class is made from, or holds, and compares as; "" where there is none."""
    if found := contents.of_class(kind):
        return found
    base = next((base for base in kind.__mro__ if base in BASES), None)
    first = next(found for found in kind.__mro__ if "__eq__" in vars(found))
    if base is None and (held := next(filter(None, map(contents.of_class, kind.__mro__)), "")) in contents.COMPARED:
        return (
            held + contents.DERIVED
            if first.__module__ in ("collections", "collections.abc", "_collections_abc")
            else ""
        )
    if base is None and first in contents.ABSTRACT:
        return next(found.__name__ for found in contents.ABSTRACT if issubclass(kind, found)) + contents.DERIVED
    return base.__name__ if base is not None and first is base and base is not kind else ""


def fields(kind: Any) -> tuple[str, ...]:
    """Names of the parts of a class of named tuples, where they are the parts; none for any other."""
    names = getattr(kind, "_fields", ())
    if type(names) is not tuple or not all(type(name) is str for name in names):
        return ()
    return names if all(type(getattr(kind, name, None)) is _PART for name in names) else ()


_PART = type(collections.namedtuple("_Any", "x").x)  # type: ignore[attr-defined]


def is_datas(kind: type, name: str) -> bool:
    """Of a class that is made from a kind of data: that kind's own method answers."""
    return bool(data_base(kind)) and next(found for found in kind.__mro__ if name in vars(found)) in (
        *BASES,
        *contents.ABSTRACT,
    )


def plain(value: Any) -> Any:
    """The data in an object of a class that is made from a kind of data, or holds it."""
    if found := contents.of_class(type(value)):
        return contents.HELD[found](value)
    if (held := data_base(type(value))).endswith(contents.DERIVED):
        return contents.COMPARED[held.removesuffix(contents.DERIVED)](value)
    return BASES[next(base for base in type(value).__mro__ if base in BASES)](value)
