"""Stand-ins for objects whose class is made from a kind of data: they compare as the data in them, here."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import operator
import types
from typing import Any

from . import contents
from .comparing import OF_TUPLES, ORDERS
from .sealing import FIXED, is_safe
from .standins import Standin, number_of

_STRICT = ("__lt__", "__gt__")
# What a stand-in is for ``isinstance``, by the name of its class.
_KINDS = {"generator": types.GeneratorType, "map": map, "filter": filter, "zip": zip, "enumerate": enumerate,
          "reversed": reversed}  # fmt: skip
_DATA: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        str, int, float, bytes, list, dict, set, tuple, frozenset, bytearray, complex, decimal.Decimal, fractions.Fraction,
        datetime.date, datetime.datetime, datetime.timedelta, collections.deque, collections.Counter, collections.OrderedDict,
    )
}  # fmt: skip

MADE_FROM = "__made_from__"  # of a class made here: the data that the program's is derived from
_DERIVED: dict[str, Any] = {"UserList": list, "UserString": str, "Set": set, "MutableSet": set}
_ABSTRACT = {kind.__name__: kind for kind in contents.ABSTRACT}


def made_from(bases: tuple[Any, ...]) -> dict[str, Any]:
    """What a class has that names a kind of data among its bases, also where it compares by a method of its own."""
    found = next((_DATA[base] for base in bases if type(base) is str and base in _DATA), None)
    return {} if found is None else {MADE_FROM: found}


def data_methods(data: str, name: str, own: frozenset[str]) -> dict[str, Any]:
    """What a class has that is made from a kind of data: it compares as that data, which is done here.

    Args:
        data: the kind; "" for none.
        name: the class's.
        own: special methods that the class defines by itself.
    """
    if data in contents.HELD:
        return contents.methods(data)
    derived = data.removesuffix(contents.DERIVED) if data.endswith(contents.DERIVED) else ""
    kind: Any = _DERIVED.get(derived, dict) if derived else _DATA.get(data) or _KINDS.get(name)
    shown = contents.KINDS.get(derived) or _ABSTRACT.get(derived, kind)
    found: dict[str, Any] = {"__class__": property(lambda self: shown)} if kind else {}
    if not derived and data not in _DATA:
        return found

    def compare(name: str) -> Any:
        # As beside the program: where one kind leaves it to the other, the other is asked, here.
        plain = getattr(operator, name)

        def method(self: Any, other: Any) -> Any:
            link, theirs = type(self).__link__, isinstance(other, Standin)
            if theirs and type(other).__data__ is None:
                return NotImplemented
            said = plain(link.content(self), link.content(other) if theirs else other)
            if name in _STRICT and type(self) not in link.called:
                return said  # members of an enumeration, say: the same data everywhere would get no yes
            if theirs:
                link.compared(name, self, other, said)
            elif type(self) in link.called:
                link.answered(type(self), name, said)  # the data may be what another object of the class was to be
            return said

        return method

    def equal(self: Any, other: Any) -> bool:
        if isinstance(other, Standin) and number_of(self) == number_of(other):
            return bool(type(self).__link__.identical(self, other))
        if isinstance(other, Standin) and type(other).__data__ is None:
            return False
        return bool(same(self, other))

    same = compare("__eq__")
    found |= {
        "__data__": kind,
        MADE_FROM: None if derived else kind,
        "__eq__": equal,
    }
    if "__ne__" not in own:
        found["__ne__"] = lambda self, other: not equal(self, other)
    found |= {name: compare(name) for name in ORDERS if name not in own and hasattr(kind, name)}
    if not ("__hash__" in own and (derived or kind is tuple)):
        found["__hash__"] = (lambda self: hash(type(self).__link__.content(self))) if kind in FIXED else None
    if kind is tuple:
        found |= {name: _of_tuple(name) for name in OF_TUPLES if name not in own}
    return found


def _of_tuple(name: str) -> Any:
    plain = getattr(tuple, name)

    def method(self: Any, *args: Any) -> Any:
        link = type(self).__link__
        return plain(link.content(self), *(link.content(arg) if _is_tuple(arg) else arg for arg in args))

    return method


def _is_tuple(value: Any) -> bool:
    return isinstance(value, Standin) and type(value).__data__ is tuple


def parts(fields: tuple[str, ...]) -> dict[str, Any]:
    """What a class of named tuples has by the names of its parts: the data, unless that could be taken for a method."""

    def part(at: int, name: str) -> Any:
        def get(self: Any) -> Any:
            link = type(self).__link__
            item = link.content(self)[at]
            return item if is_safe(name, item) else link.ask("get", self, name)

        return property(get)

    if len(fields) > 100 or not all(name.isidentifier() and name[:1] != "_" for name in fields):
        raise ValueError("no fields, or too many")
    return {name: part(at, name) for at, name in enumerate(fields)}
