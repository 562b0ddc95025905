"""Values of the standard library's other types, as what passes between sealed tests and the program.

Only kinds whose value is all that they are: zones, paths, UUIDs, addresses, patterns, arrays, read-only views, members
of public enumerations, classes and their subscripts. Each is made here again, by its own class, from plain parts of
exact types; no module is imported and no file opened by a name that the other side chose. A zone is looked up by a key
that the host's own list of zones has; of any other zone what arrives is its offset at that moment.

A path's file is where the program runs: on the tests' side what a path from there is asked of its file is asked there.
"""

from __future__ import annotations

import array
import collections
import datetime
import functools
import importlib
import operator
import re
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

# Where each class is that is known by name alone; the module is loaded when the first value comes.
_PLACES = {"UUID": "uuid", "ZoneInfo": "zoneinfo"} | dict.fromkeys(
    ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface"), "ipaddress"
)
_PATHS = ("PurePosixPath", "PureWindowsPath", "PosixPath")
_PLACES |= dict.fromkeys(_PATHS, "pathlib")
_ENUMS = {"HTTPStatus": "http", "HTTPMethod": "http", "Day": "calendar", "Month": "calendar", "SafeUUID": "uuid",
          "Signals": "signal", "RegexFlag": "re"}  # fmt: skip
_CLASSES: dict[str, str] = {
    "collections": "Counter OrderedDict defaultdict deque",
    "collections.abc": "Awaitable AsyncIterable AsyncIterator Callable Collection Container Coroutine Generator "
    "Hashable ItemsView Iterable Iterator KeysView Mapping MappingView MutableMapping MutableSequence MutableSet "
    "Reversible Sequence Set Sized ValuesView",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal", "fractions": "Fraction", "uuid": "UUID", "pathlib": "Path PurePath PosixPath PurePosixPath",
    "numbers": "Complex Integral Number Rational Real", "types": "NoneType MappingProxyType", "builtins": "object type", "abc": "ABCMeta", "enum": "EnumType",
}  # fmt: skip
_KNOWN_CLASSES = {name: module for module, names in _CLASSES.items() for name in names.split()}
_FLAGS = int(re.A | re.I | re.L | re.M | re.S | re.U | re.X)  # and not DEBUG, which prints
_FORMATS = frozenset("cbB?hHiIlLqQfd")
_MAX_TEXT = 4096  # characters of a path or a pattern's neighbours: no host has longer paths

on_files: list[Callable[..., Any]] = []  # asks the program's side what a path's method says; none on its own side


def module_of(name: str) -> types.ModuleType:
    """A module of the standard library; never the program's, which may have its name."""
    found = sys.modules.get(name) or importlib.import_module(name)
    if type(found) is not types.ModuleType:
        raise ValueError("no module of a library")
    return found


def _name(kind: type) -> str:
    return str(type.__dict__["__name__"].__get__(kind))


def _is_from(kind: type, module: str) -> bool:
    """It is what that module has by its name; a module that is not loaded has given nobody a class."""
    found = sys.modules.get(module)
    return type(found) is types.ModuleType and vars(found).get(_name(kind)) is kind


def is_copied(kind: type) -> bool:
    """Any value of exactly this class is copied when it comes from the program."""
    return kind in _WRITERS or _is_from(kind, _PLACES.get(_name(kind), "")) or _is_far(kind)


def encoded(value: Any, kind: type) -> tuple[str, Any] | None:
    """Kind and payload of such a value; None for any other."""
    if writer := _WRITERS.get(kind):
        return writer(value)
    if _is_far(kind):
        return "path", ("PosixPath", str(value))
    name = _name(kind)
    if name in _PLACES and _is_from(kind, _PLACES[name]):
        if name in _PATHS:
            return "path", (name, str(value))
        if name == "UUID":
            return "UUID", value.int
        return _zone_key(value) if name == "ZoneInfo" else ("address", (name, str(value)))
    if name in _ENUMS and _is_from(kind, _ENUMS[name]):
        known = value.name in kind.__members__ and kind.__members__[value.name] is value  # type: ignore[attr-defined]
        return ("member", (name, value.name)) if known else None
    if isinstance(value, type):
        name = _name(value)
        if _is_far(value):
            return "class_of", name
        return ("class_of", name) if name in _KNOWN_CLASSES and _is_from(value, _KNOWN_CLASSES[name]) else None
    if kind is _UNION or kind is _UNION_OF_TYPING:
        parts = tuple(None if part is type(None) else part for part in value.__args__)
        return ("union", parts) if all(map(_is_class, parts)) else None
    return None


def of_program(value: Any) -> tuple[str, Any] | None:
    """What becomes of the program's alone: a moment with a zone of its own has its offset, a view is a copy.

    All of it can be sent back: else a program would choose to be judged beside its tests.
    """
    kind = type(value)
    if kind is datetime.datetime or kind is datetime.time:
        offset = value.utcoffset()
        return _moment(value.replace(tzinfo=None if offset is None else datetime.timezone(offset, value.tzname())))
    return _as_bytes(value) if kind is memoryview and value.format.lstrip("@") in _FORMATS else None


def _moment(value: Any) -> tuple[str, Any] | None:
    zone = value.tzinfo
    if zone is not None and type(zone) is not datetime.timezone and encoded(zone, type(zone)) is None:
        return None
    return "moment", (type(value).__name__, value.replace(tzinfo=None).isoformat(), value.fold, zone)


def _zone_key(value: Any) -> tuple[str, Any] | None:
    return ("zone", value.key) if type(value.key) is str and value.key in _zones() else None


@functools.cache
def _zones() -> frozenset[str]:
    """Keys that this host has; a look into some hundred files, once and only where a zone comes."""
    return frozenset(module_of("zoneinfo").available_timezones())


def _view(value: memoryview) -> tuple[str, Any] | None:
    return _as_bytes(value) if value.readonly and value.format.lstrip("@") in _FORMATS else None


def _as_bytes(value: memoryview) -> tuple[str, Any]:
    return "memoryview", (value.tobytes(), value.format.lstrip("@"), tuple(value.shape or ()))


class _Inside:
    """What a read-only view of a mapping is a view of: an operator of it hands that over."""

    def __ror__(self, mapping: Any) -> Any:
        return mapping


def _proxy(value: Any) -> tuple[str, Any]:
    inside = value | _Inside()
    return "mappingproxy", inside if _is_mapping(inside) else dict(value)


def _is_mapping(value: Any) -> bool:
    return type(value) in (dict, collections.Counter, collections.OrderedDict, collections.defaultdict)


def _alias(value: Any) -> tuple[str, Any] | None:
    parts = (value.__origin__, value.__args__)
    return ("alias", parts) if isinstance(parts[0], type) and all(map(_is_part, parts[1])) else None


def _is_class(value: Any) -> bool:
    return value is None or isinstance(value, type) or type(value) is types.GenericAlias


def _is_part(value: Any) -> bool:
    """What may stand in brackets: classes, their subscripts and unions, ``...``, an empty tuple."""
    return _is_class(value) or value is Ellipsis or type(value) is _UNION or (type(value) is tuple and not value)


def _pattern(value: Any) -> tuple[str, Any]:
    return "Pattern", (value.pattern, value.flags & _FLAGS)


_UNION: Any = types.UnionType
_UNION_OF_TYPING: Any = type(typing.Union[int, str])  # noqa: UP007
_WRITERS: dict[type, Callable[[Any], tuple[str, Any] | None]] = {
    datetime.timezone: lambda value: ("timezone", tuple(value.__getinitargs__())),
    datetime.datetime: _moment,
    datetime.time: _moment,
    re.Pattern: _pattern,
    array.array: lambda value: ("array", (value.typecode, tuple(value))),
    memoryview: _view,
    types.MappingProxyType: _proxy,
    types.GenericAlias: _alias,
}


# ---------------------------------------------------------------- and back


def _exact(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds or (kinds == (str,) and len(value) > _MAX_TEXT):
        raise ValueError("not of the kind that is due")
    return value


def _class(name: Any, among: dict[str, str]) -> Any:
    """The class of that name, from the module that is known to have it."""
    return getattr(module_of(among[_exact(name, str)]), name)


def _read_path(payload: Any) -> Any:
    name, text = payload
    if name not in _PATHS or "\0" in _exact(text, str):
        raise ValueError("no path")
    return (_far() if on_files and name == "PosixPath" else _class(name, _PLACES))(text)


def _read_address(payload: Any) -> Any:
    name, text = payload
    if not _exact(name, str).startswith("IP"):
        raise ValueError("no address")
    return _class(name, _PLACES)(_exact(text, str))


def _read_zone(key: Any) -> Any:
    if _exact(key, str) not in _zones():
        raise ValueError("no zone of this host's")
    return module_of("zoneinfo").ZoneInfo(key)


def _read_moment(payload: Any) -> Any:
    name, text, fold, zone = payload
    kind: Any = {"datetime": datetime.datetime, "time": datetime.time}[_exact(name, str)]
    if zone is not None and type(zone) is not datetime.timezone and not _is_from(type(zone), "zoneinfo"):
        raise ValueError("no zone")
    value = kind.fromisoformat(_exact(text, str))
    if value.tzinfo is not None:
        raise ValueError("two zones")
    return value.replace(tzinfo=zone, fold=_exact(fold, int))


def _read_timezone(payload: Any) -> Any:
    offset, *name = payload
    return datetime.timezone(_exact(offset, datetime.timedelta), *(_exact(text, str) for text in name))


def _read_pattern(payload: Any) -> Any:
    text, flags = payload
    if _exact(flags, int) & ~_FLAGS:
        raise ValueError("flags of no pattern")
    return re.compile(_exact(text, str, bytes), flags)


def _read_array(payload: Any) -> Any:
    code, items = payload
    return array.array(_exact(code, str), _exact(items, tuple))


def _read_view(payload: Any) -> Any:
    data, form, shape = payload
    if form not in _FORMATS or not all(type(size) is int for size in _exact(shape, tuple)):
        raise ValueError("no view")
    view = memoryview(_exact(data, bytes))
    return view if form == "B" and len(shape) == 1 else view.cast(form, list(shape))


def _read_proxy(payload: Any) -> Any:
    if not _is_mapping(payload):
        raise ValueError("no mapping")
    return types.MappingProxyType(payload)


def _read_alias(payload: Any) -> Any:
    origin, parts = payload
    if not isinstance(origin, type) or not all(map(_is_part, _exact(parts, tuple))):
        raise ValueError("no subscript of a class")
    return types.GenericAlias(origin, parts)


def _read_union(payload: Any) -> Any:
    if not all(map(_is_class, _exact(payload, tuple))) or len(payload) < 2:
        raise ValueError("no union of classes")
    return functools.reduce(operator.or_, payload)


def _read_member(payload: Any) -> Any:
    name, member = payload
    return _class(name, _ENUMS).__members__[_exact(member, str)]


def _uuid(number: Any) -> Any:
    return module_of("uuid").UUID(int=_exact(number, int))


MAKERS: dict[str, Callable[[Any], Any]] = {
    "UUID": _uuid,
    "path": _read_path,
    "address": _read_address,
    "zone": _read_zone,
    "moment": _read_moment,
    "timezone": _read_timezone,
    "Pattern": _read_pattern,
    "array": _read_array,
    "memoryview": _read_view,
    "mappingproxy": _read_proxy,
    "alias": _read_alias,
    "union": _read_union,
    "member": _read_member,
    "class_of": lambda name: _class(name, _KNOWN_CLASSES),
}


# ---------------------------------------------------------------- paths of the program's


@functools.cache
def _far() -> Any:
    """The class of the program's paths on the tests' side: equal as paths are, and asked of their files over there."""
    pathlib: Any = module_of("pathlib")
    own = set(dir(pathlib.Path)) - set(dir(pathlib.PurePath)) - {"cwd", "home"}
    space: dict[str, Any] = {
        name: _asked(name) for name in own if name[0] != "_" and callable(getattr(pathlib.Path, name))
    }
    space |= {"__slots__": (), "__fspath__": _asked(""), "__bytes__": lambda self: str(self).encode()}
    return type("PosixPath", (pathlib.PosixPath,), space)


def _is_far(kind: type) -> bool:
    return bool(on_files) and _far.cache_info().currsize > 0 and kind is _far()


def _asked(name: str) -> Any:
    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        return on_files[0](name, (self, *args), keywords)

    return method
