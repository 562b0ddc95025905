"""Objects of library classes that hold data and can change: they stay where they are, and what they hold is looked at here.

A ``UserDict``, ``UserList``, ``ChainMap`` or ``SimpleNamespace`` of the program's is a stand-in like any other; but what
compares it, or reads it, asks the program only for the data that it holds. So no answer about it is the program's word.
"""

from __future__ import annotations

import collections
import types
from typing import Any

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (collections.UserDict, collections.UserList, collections.ChainMap, types.SimpleNamespace)
}
# What the program's side sends of one.
HELD: dict[str, Any] = {
    "UserDict": lambda value: dict(value.data),
    "UserList": lambda value: list(value.data),
    "ChainMap": dict,
    "SimpleNamespace": lambda value: dict(vars(value)),
}
_READ = {
    "UserDict": "__len__ __iter__ __contains__ __getitem__ keys values items get",
    "ChainMap": "__len__ __iter__ __contains__ __getitem__ keys values items get",
    "UserList": "__len__ __iter__ __contains__ __getitem__ count index",
    "SimpleNamespace": "",
}


def of_class(kind: type) -> str:
    """The name in ``KINDS`` of exactly this class; "" for any other."""
    name = type.__dict__["__name__"].__get__(kind)
    return name if KINDS.get(name) is kind else ""


def is_looked_into(kind: type) -> bool:
    """A class made here that has ``methods``; what derives from one is an object like any other."""
    return "__held__" in vars(kind)


def methods(which: str) -> dict[str, Any]:
    """What the stand-ins' class for such objects has."""
    kind = KINDS[which]
    data: Any = list if which == "UserList" else dict

    def held(value: Any) -> Any:
        """What the other side of a comparison holds, where it may be equal; else None."""
        if is_looked_into(type(value)):
            theirs = type(value).__held__
            if theirs is kind or (issubclass(kind, _MAPPING) and issubclass(theirs, _MAPPING)):
                return type(value).__link__.content(value)
            return None
        if type(value) is data and which != "SimpleNamespace":
            return value
        if of_class(type(value)) == which or (which != "SimpleNamespace" and type(value) in (*_MAPPING, *_LIST)):
            found = HELD[of_class(type(value))](value)
            return found if type(found) is data else None
        return None

    def equal(self: Any, other: Any) -> bool:
        if other is self:
            return True
        if (theirs := held(other)) is None:
            return False
        same = bool(type(self).__link__.content(self) == theirs)
        if is_looked_into(type(other)):
            type(self).__link__.compared("__eq__", self, other, same)
        return same

    def reads(name: str) -> Any:
        return lambda self, *args: getattr(data, name)(type(self).__link__.content(self), *args)

    found = {name: reads(name) for name in _READ[which].split()}
    if which == "SimpleNamespace":

        def attribute(self: Any, name: str) -> Any:
            if name[:2] != "__" and name in (content := type(self).__link__.content(self)):
                return content[name]
            raise AttributeError(f"{which!r} object has no attribute {name!r}")

        found["__getattr__"] = attribute
    found |= {"__data__": data, "__held__": kind, "__class__": property(lambda self: kind)}
    return found | {"__eq__": equal, "__ne__": lambda self, other: not equal(self, other), "__hash__": None}


_MAPPING, _LIST = (collections.UserDict, collections.ChainMap), (collections.UserList,)
