"""What passes between sealed tests and the program: values as data, and everything else by reference.

A message is a 4-byte length and one value. Plain data and the common value
types of the standard library are copied. An object of the program's own stays
where it is: a ``handle`` tells its number and its class's; a ``class`` tells
what the tests' side needs to make a stand-in. The tests' side sends names of
library functions and classes; of its own code nothing can be sent (``Refused``).

Both sides read what the other wrote with ``values.Decoder``'s bounds. Only the
tests' side has something to lose: a value can cost it time, which its limit
bounds, and can be wrong, which is what tests look for.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import os
import struct
import threading
from collections import abc
from collections.abc import Callable
from typing import Any

from . import copies, values
from .arguments import made_exception
from .library import builtin_exception, data_class, read_of_object

MAX_MESSAGE = 16 << 20  # bytes of one message: what a process may send back in all where values are compared outside
MAX_ALL = 256 << 20  # bytes that one side reads in all

PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict))
# Changed by whoever gets them: compared before and after a call.
MUTABLE = (list, dict, set, bytearray, collections.deque, collections.Counter, collections.OrderedDict,
           collections.defaultdict, array.array)  # fmt: skip
# Kinds whose values are copied, and with which an object of the program's may be confused.
COPIED = (*PLAIN, *MUTABLE, range, decimal.Decimal, fractions.Fraction, datetime.date, datetime.datetime, datetime.time,
          datetime.timedelta, datetime.timezone)  # fmt: skip
_OF_DATA = frozenset(name for kind in COPIED for name in dir(kind))
# Data whose identity is lost on the way.
FIXED = frozenset(COPIED) - frozenset(MUTABLE) - {bool, type(None)}
namedtuple: Any = collections.namedtuple  # here with names from elsewhere
_VIEWS: dict[Any, str] = {abc.KeysView: "keys", abc.ValuesView: "values", abc.ItemsView: "items"}
_VIEWS |= {type(getattr(of(), name)()): name for of in (dict, collections.OrderedDict) for name in _VIEWS.values()}
_CONTAINERS = frozenset(("bytearray", "deque", "Counter", "OrderedDict", "defaultdict", "array"))
_MUTABLE = frozenset(MUTABLE)
_KEYED = frozenset((set, frozenset, dict, collections.Counter, collections.OrderedDict, collections.defaultdict))


class Refused(BaseException):
    """Something of the tests' own that cannot be sent: these tests cannot be sealed."""


class Broken(Exception):
    """The other side is gone, or what it wrote cannot be read."""


class Unsent(BaseException):
    """An answer that cannot be sent: no exception that a test may expect, so that its test fails."""


class Pipe:
    """Whole messages over a pair of descriptors."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink, self.left = source, sink, MAX_ALL

    def send(self, data: bytes) -> None:
        """One message; Broken when nobody reads it."""
        view = memoryview(struct.pack(">I", len(data)) + data)
        try:
            while view:
                view = view[os.write(self.sink, view) :]
        except OSError:
            raise Broken("the program has ended") from None

    def receive(self) -> bytes:
        """The next message; Broken at the end, or when it is too long."""
        size = int.from_bytes(self._exactly(4), "big")
        self.left -= size
        if size > 2 * MAX_MESSAGE or self.left < 0:
            raise Broken("the program has sent too much")
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = os.read(self.source, min(count, 1 << 20))
            if not part:
                raise Broken("the program has ended")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Writer(values.Encoder):
    """Values as bytes; ``foreign`` says what becomes of an object that is no data: a kind and its payload.

    A container that can be changed gets the next number, from ``first`` on, and where it comes again, or was ``known``
    before (by its id), its number stands for it; so one that holds itself can be sent. ``fresh``: those that got one.
    """

    def __init__(
        self, foreign: Callable[[Any], tuple[str, Any]], first: int = 0, known: dict[int, int] | None = None
    ) -> None:
        super().__init__(MAX_MESSAGE)
        self.foreign, self.first = foreign, first
        self.known = known or {}
        self.local: dict[int, int] = {}
        self.fresh: list[Any] = []
        self.named: set[int] = set()  # numbers that stand for containers known before
        self.keys: list[Any] = []  # members of sets and keys of dicts that were put

    def put(self, value: Any, depth: int = 0) -> None:
        kind = type(value)
        if kind in _MUTABLE:
            key = id(value)
            number = self.local.get(key)
            if number is None and (number := self.known.get(key)) is not None:
                self.named.add(number)
            if number is not None:
                self.tagged("same", number, depth)
                return
            self.local[key] = self.first + len(self.fresh)
            self.fresh.append(value)
        if kind in _KEYED:
            self.keys += value
        elif (view := _VIEWS.get(kind)) in ("keys", "items"):  # the reader makes a dict of it
            self.keys += value if view == "keys" else (key for key, _ in value)
        if kind in PLAIN and (kind is not float or value == value):
            super().put(value, depth)
        else:
            self.tagged(*(_library(value, kind) or self.foreign(value)), depth)

    def tagged(self, kind: str, payload: Any, depth: int) -> None:
        self.out += b"x"
        self.blob(b"s", kind.encode())
        self.put(payload, depth + 1)

    def go_on(self) -> Writer:
        """For the next part of the same message."""
        more = Writer(self.foreign, self.first + len(self.fresh), self.known)
        more.local, more.keys = self.local, self.keys
        return more


def _library(value: Any, kind: type) -> tuple[str, Any] | None:
    """Kind and payload of a value type of the standard library, or of one of its functions and classes."""
    if kind is collections.Counter or kind is collections.OrderedDict:
        return kind.__name__, tuple(value.items())
    if kind is collections.defaultdict:
        return "defaultdict", (value.default_factory, tuple(value.items()))
    if kind is collections.deque:
        return "deque", (tuple(value), value.maxlen)
    if kind is bytearray:
        return "bytearray", bytes(value)
    if kind is range:
        return "range", (value.start, value.stop, value.step)
    if kind is slice:
        return "slice", (value.start, value.stop, value.step)
    if kind in _VIEWS:
        return "view", (_VIEWS[kind], tuple(value))
    if kind is decimal.Decimal:
        return "Decimal", str(value)
    if kind is fractions.Fraction:
        return "Fraction", (value.numerator, value.denominator)
    if kind is datetime.timedelta:
        return "timedelta", (value.days, value.seconds, value.microseconds)
    if kind is datetime.date:
        return "date", value.isoformat()
    if value is Ellipsis or value is NotImplemented:
        return "constant", str(value)
    if isinstance(value, type) and data_class(type.__dict__["__name__"].__get__(value)) is value:
        return "builtin", value.__name__
    return copies.encoded(value, kind)


def record_fields(value: Any) -> tuple[str, ...]:
    """Names of the parts of a named tuple that is a tuple in all else; none for any other, which goes by reference."""
    kind: Any = type(value)
    if not issubclass(kind, tuple):
        return ()
    fields: Any = getattr(kind, "_fields", None)
    named = type(fields) is tuple and len(fields) == len(value) and all(type(field) is str for field in fields)
    equal = kind.__eq__ is tuple.__eq__ or kind.__eq__ is _COMPARED["__eq__"]
    more = [name for name, own in vars(kind).items() if not _is_records(name, own) and name not in (fields or ())]
    return fields if named and equal and not more and kind.__bases__ == (tuple,) else ()


def are_records(one: Any, other: Any) -> bool:
    """Named tuples of one name, of which one came from the program: each that comes has a class of its own here."""
    came = OF in vars(type(one)) or OF in vars(type(other))
    return came and type(one).__name__ == type(other).__name__ and record_fields(one) == record_fields(other) != ()


def _is_records(name: str, value: Any) -> bool:
    """Every class of named tuples has this by that name, and it is not the class's own."""
    if name in _MADE_HERE:
        return value is _MADE_HERE[name]
    if name == "__repr__":
        return getattr(value, "__code__", None) is _REPR
    return name in _RECORD


def _missing(self: Any, attribute: str) -> Any:
    if attribute in vars(type(self))[_UNSAFE]:
        on_missing[0](f"the tests ask a named tuple of the program's for {attribute[:50]!r}, which data has too")
    raise AttributeError(attribute)


def _compared(name: str) -> Any:
    """A comparison of named tuples of the program's, with each other or what it may have made: ``on_compared`` is told."""
    plain = getattr(tuple, name)

    def method(self: Any, other: Any) -> Any:
        said = plain(self, other)
        told = type(other).__eq__ is _COMPARED["__eq__"] or hasattr(type(self), _BY_CLASS)
        if said is not NotImplemented and told:
            for tell in on_compared:
                tell(type(self).__name__, *(("__eq__", not said) if name == "__ne__" else (name, said)))
        return said

    return method


_COMPARED = {f"__{name}__": _compared(f"__{name}__") for name in ("eq", "ne", "lt", "le", "gt", "ge")}
on_compared: list[Any] = []
_BY_CLASS = "__made_by_class__"


def made_by_class(value: Any) -> None:
    """The tests got this by calling a class: of a named tuple what is in it is less than what they asked for.

    So whatever it is compared with, data too, may be what the program put into both.
    """
    if isinstance(value, tuple) and type(value) is not tuple and type(value).__eq__ is _COMPARED["__eq__"]:
        setattr(type(value), _BY_CLASS, True)  # each has a class of its own here


OF = "__of__"  # has a class of named tuples made here: the class of the program's that it is in
_UNSAFE = "__unsafe__"  # names of parts that are not to be had by their names
_PLAIN = collections.namedtuple("_PLAIN", ())
_REPR: Any = vars(_PLAIN)["__repr__"].__code__
# What one that is made here has besides: a method of a program's own by such a name is another.
_MADE_HERE: dict[str, Any] = {**_COMPARED, "__getattr__": _missing, "__hash__": tuple.__hash__}
_RECORD = frozenset((*vars(_PLAIN), OF, _BY_CLASS, _UNSAFE)) | {"__annotations__", "__orig_bases__", "__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__"}  # fmt: skip


class Reader(values.Decoder):
    """Bytes as values; ``own`` makes something of the kinds that only one side knows.

    ``first``, ``known``: see ``Writer``; here by number. ``fresh``: containers that came, in their order.
    """

    def __init__(self, data: bytes, own: Callable[[str, Any], Any], first: int = 0, known: Any = None) -> None:
        super().__init__(data)
        self.own, self.first, self.known = own, first, known
        self.fresh: list[Any] = []

    def get(self, depth: int = 0) -> Any:
        tag = self.data[self.at : self.at + 1]
        if tag == b"l" or tag == b"d" or tag == b"S":
            return self.container(tag, depth)
        if tag == b"o":
            raise ValueError("an object without a number")
        return super().get(depth)

    def container(self, tag: bytes, depth: int) -> Any:
        """One that can be changed; it is there before its parts are."""
        self.left -= 1
        self.at += 1
        count = self.count()
        if self.left < 0 or depth > values.MAX_DEPTH + 1 or count > len(self.data) - self.at:
            raise ValueError("value is nested too deeply or has too many parts")
        made: Any = [] if tag == b"l" else {} if tag == b"d" else set()
        self.fresh.append(made)
        items = made if tag == b"l" else []
        for _ in range(count):
            items.append(self.get(depth + 1))
        if tag != b"l" and not all(map(values.is_key, items[::2] if tag == b"d" else items)):
            raise ValueError("key is not hashable")
        if tag != b"l":
            made.update(zip(items[::2], items[1::2], strict=True) if tag == b"d" else items)
        return made

    def special(self, depth: int) -> Any:
        kind = self.get(depth + 1)
        if type(kind) is not str:
            raise ValueError("kind is no text")
        at = len(self.fresh)
        if kind in _CONTAINERS:
            self.fresh.append(None)  # until it is whole: it cannot hold itself
        payload = self.get(depth + 1)
        if kind == "same":
            return self.same(payload)
        maker = _MAKERS.get(kind)
        try:
            made = maker(payload) if maker else self.own(kind, payload)
        except (Broken, Refused):
            raise
        except Exception as exc:
            raise ValueError(f"no {kind}") from exc
        if kind in _CONTAINERS:
            self.fresh[at] = made
        return made

    def same(self, number: Any) -> Any:
        """A container that came before."""
        try:
            found = self.known[number] if number < self.first else self.fresh[number - self.first]
        except (LookupError, TypeError) as exc:
            raise ValueError("no container of that number") from exc
        if found is None:
            raise ValueError("a container that is not whole")
        return found

    def whole(self) -> Any:
        """The value; Broken where it is none."""
        try:
            return values.whole(self)
        except (ValueError, RecursionError, OverflowError, TypeError) as exc:
            raise Broken(f"the answer cannot be read: {exc}") from None


def _factory(value: Any) -> Any:
    """A class of data, or what is asked where it is."""
    if value is not None and not callable(value):
        raise ValueError("nothing that can be called")
    return value


def is_safe(field: str, item: Any) -> bool:
    """A named tuple's part may be had by its name: what it holds cannot be taken for a method of data."""
    return field not in _OF_DATA or issubclass(type(item), COPIED)


def record(payload: Any) -> Any:
    """A named tuple of a class of its own: name, names of the parts, and parts."""
    name, fields, items = payload
    if not 0 < len(fields) <= 100:
        raise ValueError("no fields, or too many")
    unsafe = {field for field, item in zip(fields, items, strict=True) if not is_safe(field, item)}
    made: Any = namedtuple(name, ["" if field in unsafe else field for field in fields], rename=True)
    for method, ours in (_MADE_HERE | {_UNSAFE: unsafe}).items():
        setattr(made, method, ours)
    return made(*items)


def _view(payload: Any) -> Any:
    which, items = payload
    if which == "keys":
        return dict.fromkeys(items).keys()
    return dict(items).items() if which == "items" else dict(enumerate(items)).values()


def _builtin(name: Any) -> Any:
    found = data_class(name)
    if found is None:
        raise ValueError("no class")
    return found


def plain_exception(payload: Any) -> Any:
    """A built-in exception, of a name and arguments."""
    name, arguments = payload
    kind = builtin_exception(name)
    if kind is None:
        raise ValueError("no exception")
    return made_exception(kind, arguments)


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "Counter": lambda items: collections.Counter(dict(items)),
    "OrderedDict": lambda items: collections.OrderedDict(items),
    "defaultdict": lambda payload: collections.defaultdict(_factory(payload[0]), payload[1]),
    "deque": lambda payload: collections.deque(payload[0], payload[1]),
    "bytearray": bytearray,
    "range": lambda payload: range(*payload),
    "slice": lambda payload: slice(*payload),
    "view": _view,
    "Decimal": decimal.Decimal,
    "Fraction": lambda payload: fractions.Fraction(*payload),
    "timedelta": lambda payload: datetime.timedelta(*payload),
    "date": datetime.date.fromisoformat,
    "record": record,
    "constant": {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}.__getitem__,
    "builtin": _builtin,
    "exception": plain_exception,
    "of_object": read_of_object,
    **copies.MAKERS,
}


on_missing: list[Callable[[str], Any]] = []  # told what of a value cannot be had here
lock = threading.RLock()
