"""Objects of library classes that hold data and can change: they stay where they are, and what they hold is looked at here.

A ``UserDict``, ``UserList``, ``UserString``, ``ChainMap``, ``SimpleNamespace`` or ``argparse.Namespace`` of the program's is a stand-in like any other; but what
compares it, or reads it, asks the program only for the data that it holds. So no answer about it is the program's word.
"""

from __future__ import annotations

import collections
import sys
import types
from collections import abc
from typing import Any

from .copies import module_of

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        collections.UserDict,
        collections.UserList,
        collections.UserString,
        collections.ChainMap,
        types.SimpleNamespace,
    )
}
# What the program's side sends of one.
HELD: dict[str, Any] = {
    "UserDict": lambda value: dict(value.data),
    "UserList": lambda value: list(value.data),
    "ChainMap": dict,
    "UserString": lambda value: str(value.data),
    "SimpleNamespace": lambda value: dict(vars(value)),
    "Namespace": lambda value: dict(vars(value)),
}
# What an object of a class derived from one compares as: by way of its own methods, where the class has any.
COMPARED: dict[str, Any] = {
    "UserDict": lambda value: dict(value.items()),
    "UserList": lambda value: list(value.data),
    "ChainMap": lambda value: dict(value.items()),
    "UserString": lambda value: str(value.data),
    "Mapping": lambda value: dict(value.items()),
    "MutableMapping": lambda value: dict(value.items()),
    "Set": set,
    "MutableSet": set,
}
# Abstract classes whose own ``__eq__`` compares by what the other methods give; the narrower first.
ABSTRACT: tuple[type, ...] = (abc.MutableMapping, abc.Mapping, abc.MutableSet, abc.Set)
DERIVED = " derived"  # behind the name of such a class's base
_READ = {
    "UserDict": "__len__ __iter__ __contains__ __getitem__ keys values items get",
    "ChainMap": "__len__ __iter__ __contains__ __getitem__ keys values items get",
    "UserList": "__len__ __iter__ __contains__ __getitem__ count index",
    "UserString": " ".join(name for name in dir(str) if name[0] != "_") + " __len__ __iter__ __contains__ __getitem__",
}


def of_class(kind: type) -> str:
    """The name in ``KINDS`` of exactly this class; "" for any other."""
    name = type.__dict__["__name__"].__get__(kind)
    return name if KINDS.get(name) is kind or (name == "Namespace" and kind is _namespace()) else ""


def _namespace() -> Any:
    """``argparse.Namespace``; None where nobody here has loaded the module."""
    found = sys.modules.get("argparse")
    return getattr(found, "Namespace", None) if type(found) is types.ModuleType else None


def is_looked_into(kind: type) -> bool:
    """A class made here that has ``methods``; what derives from one is an object like any other."""
    return "__held__" in vars(kind)


def _number(value: Any) -> Any:
    return object.__getattribute__(value, "__number__")


def methods(which: str) -> dict[str, Any]:
    """What the stand-ins' class for such objects has."""
    kind: Any = KINDS[which] if which in KINDS else module_of("argparse").Namespace
    data: Any = {"UserList": list, "UserString": str}.get(which, dict)
    has_names = which in ("SimpleNamespace", "Namespace")

    def held(value: Any) -> Any:
        """What the other side of a comparison holds, where it may be equal; else None."""
        if is_looked_into(type(value)):
            theirs = type(value).__held__
            if theirs is kind or (issubclass(kind, _MAPPING) and issubclass(theirs, _MAPPING)):
                return type(value).__link__.content(value)
            return None
        if not has_names and type(value) in (_DICTS if data is dict else (data,)):
            return data(value)
        if of_class(type(value)) == which or (which in ("UserDict", "ChainMap") and type(value) in _MAPPING):
            found = HELD[of_class(type(value))](value)
            return found if type(found) is data else None
        return None

    def equal(self: Any, other: Any) -> bool:
        if issubclass(type(other), type(self)) and _number(other) == _number(self):
            return bool(type(self).__link__.identical(self, other))
        if (theirs := held(other)) is None:
            return False
        same = bool(type(self).__link__.content(self) == theirs)
        link = type(self).__link__
        if is_looked_into(type(other)):
            link.compared("__eq__", self, other, same)
        elif type(self) in link.called:
            link.answered(type(self), "__eq__", same)  # the data may be what another object of the class was to be
        return same

    def text_hash(self: Any) -> int:
        return hash(type(self).__link__.content(self))

    def reads(name: str) -> Any:
        return lambda self, *args: getattr(data, name)(type(self).__link__.content(self), *args)

    found = {name: reads(name) for name in _READ.get(which, "").split()}
    if has_names:

        def attribute(self: Any, name: str) -> Any:
            if name == "__dict__":
                return type(self).__link__.content(self)
            link = type(self).__link__
            if name[:2] != "__" and name in (content := link.content(self)):
                link.found(self, name, content[name])
                return content[name]
            raise AttributeError(f"{which!r} object has no attribute {name!r}")

        found["__getattr__"] = attribute
    found |= {"__data__": data, "__held__": kind, "__class__": property(lambda self: kind)}
    return found | {
        "__eq__": equal,
        "__ne__": lambda self, other: not equal(self, other),
        "__hash__": text_hash if data is str else None,
    }


def real_class(library: Any) -> Any:
    """The class that a library's object is shown as to ``isinstance``; None: it is shown as no more than a stand-in.

    Only classes whose objects are equal to nothing else, and only where the tests have loaded the module.
    """
    if library not in _SHOWN:
        return None
    module, _, name = str(library).partition(":")
    found = sys.modules.get(module)
    return getattr(found, name, None) if type(found) is types.ModuleType else None


_SHOWN = frozenset("re:Match _io:StringIO _io:BytesIO functools:partial queue:Queue random:Random "
                   "logging:Logger string:Template".split())  # fmt: skip
_DICTS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict, types.MappingProxyType)
_MAPPING = (collections.UserDict, collections.ChainMap)
