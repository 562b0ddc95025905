"""What sealed tests see where they look at the program's own by names that Python knows: ``__mro__``, ``hasattr``, ``dir``.

A stand-in has such names of its own, and they say nothing of what it stands for. So the tests' source is changed to ask
here: a class, a module, and an object whose class has no operator of that name, are asked where the program is. What is
in a namespace is for the program to say, and whoever goes through it tests no more than that: a pass is marked.
"""

from __future__ import annotations

import collections
import sys
import types
from typing import Any

from . import sealing
from .library import Named
from .lineage import is_derived
from .operators import METHODS
from .raising import ErrorType
from .standins import BY_NAME, Standin, StandinType, number_of

ATTRIBUTE, TYPE, NAMED, JOINED, DONE = "__attribute__", "__type__", "__named__", "__joined__", "__done__"
OF_EVERY = "__of_every__"
# What is known here of a class, and of a class of exceptions.
_OF_CLASS = frozenset(("__name__",))
_OF_ERROR = frozenset("__name__ __mro__ __bases__ __base__ __class__ mro".split())
_OF_OBJECT = frozenset(("__class__",))
_LISTS = frozenset(("__all__", "__subclasses__"))


def is_looked_up(name: str) -> bool:
    """A stand-in may have it though the program's own has not."""
    return name == "mro" or (name[:2] == "__" == name[-2:] and len(name) > 4)


def prepare(tests: str, space: dict[str, Any]) -> None:
    """Have what looks into an object done by the program's side, where the object is."""
    space |= {ATTRIBUTE: attribute, TYPE: type_of, NAMED: named, JOINED: joined, DONE: done, OF_EVERY: of_every}
    if "dataclasses" in tests:
        import dataclasses

        for name in ("asdict", "astuple", "fields", "replace"):
            setattr(dataclasses, name, _relayed(f"dataclasses:{name}", getattr(dataclasses, name)))
    if "json" in tests:
        import json

        json.dumps = _with_data(json.dumps)
        json.dump = _with_data(json.dump)
    for name, function in (("id", _id), ("vars", _vars), ("dir", _dir), ("hasattr", _has), ("getattr", _get)):
        if name in tests:
            space.setdefault(name, function)


def attribute(of: Any, name: str, through: bool = True) -> Any:
    """``of.name``, where the name is one of Python's own; ``through``: what is there is looked through, not only whether."""
    kind = type(of)
    if issubclass(kind, StandinType):
        return _said(of, name) if name in _OF_CLASS else _asked(of.__link__, of, name, through)
    if issubclass(kind, ErrorType):
        return getattr(of, name) if name in _OF_ERROR else _asked(of.__link__, of, name, through)
    if issubclass(kind, types.ModuleType) and (link := vars(kind).get("__standin__")) is not None:
        return getattr(of, name) if name == "__name__" else _asked(link, of, name, through)
    if kind is types.MethodType and issubclass(type(of.__self__), Standin):
        return attribute(type(of.__self__).__link__.ask("get", of.__self__, of.__func__.__name__), name)
    if not issubclass(kind, Standin):
        return type_of(of) if name == "__class__" and sealing.OF in vars(kind) else getattr(of, name)
    if name == "__class__" and is_derived(kind):
        return kind  # what it is shown as is what its class is made from
    if name in _OF_OBJECT or is_here(kind, name):
        return getattr(of, name)
    return kind.__link__.ask("get", of, name)


def is_here(kind: Any, name: str) -> bool:
    """A class made here has the operator because the program's has it, or holds data that answers."""
    made = [type.__dict__["__dict__"].__get__(base) for base in type.mro(kind) if base not in (Standin, object)]
    return any("__held__" in space or (name in space and name in METHODS) for space in made)


def _said(of: Any, name: str) -> Any:
    return type.__getattribute__(of, name)


def _asked(link: Any, of: Any, name: str, through: bool) -> Any:
    found = link.ask("get", of, name)
    if name in _LISTS and through:
        _list(link, name)
    return found


def _list(link: Any, name: str) -> None:
    link.mark(f"the tests look through what the program has, by {name}: how much there is, is its own word")


def type_of(of: Any) -> Any:
    """``type(of)``."""
    if issubclass(type(of), StandinType):
        return attribute(of, "__class__")
    return vars(type(of)).get(sealing.OF, type(of))


def of_every(of: Any, name: str) -> Any:
    """``object.name``, to be called: of the program's it is done where that is."""
    plain = getattr(of, name)
    if of is not object or not callable(plain):
        return plain

    def call(*args: Any, **keywords: Any) -> Any:
        link = _link_to(args[0]) if args else None
        return (
            plain(*args, **keywords)
            if link is None
            else link.ask("call", Named(f"builtins:object.{name}"), "", args, keywords)
        )

    return call


def _link_to(of: Any) -> Any:
    """To the program, where that is its object or class; else None."""
    return type(of).__link__ if issubclass(type(of), Standin) else _link_of(of)


def named(of: Any) -> Any:
    """What is called by a name that is the program's and nothing else."""
    if not issubclass(type(of), StandinType):
        return of
    return lambda *args, **keywords: of.__link__.ask("call", of, BY_NAME, args, keywords)


def done(of: Any, name: str) -> Any:
    """A method that is called as a statement, for what it does."""
    if not issubclass(type(of), Standin):
        return getattr(of, name)
    link = type(of).__link__
    link.silent = True
    try:
        return getattr(of, name)
    finally:
        link.silent = False


def _has(of: Any, name: str) -> bool:
    if type(name) is not str or not is_looked_up(name):
        return hasattr(of, name)
    try:
        attribute(of, name, through=False)
    except AttributeError:
        return False
    return True


def _get(of: Any, name: str, *default: Any) -> Any:
    if type(name) is not str or not is_looked_up(name):
        return getattr(of, name, *default)
    try:
        return attribute(of, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _link_of(of: Any) -> Any:
    """To what is asked, where it is the program's class or module; else None."""
    if issubclass(type(of), StandinType | ErrorType):
        return of.__link__
    return vars(type(of)).get("__standin__") if issubclass(type(of), types.ModuleType) else None


def _vars(*of: Any) -> Any:
    if not of:
        return sys._getframe(1).f_locals
    if issubclass(type(of[0]), Standin):
        return of[0].__dict__
    if (link := _link_of(of[0])) is None:
        return vars(*of)
    _list(link, "vars")
    return link.ask("vars", of[0])


def _dir(*of: Any) -> Any:
    if not of:
        return sorted(sys._getframe(1).f_locals)
    if (link := _link_of(of[0])) is None:
        return dir(*of)
    _list(link, "dir")
    return sorted(link.ask("call", Named("builtins:dir"), "", of))


def _with_data(plain: Any) -> Any:
    return lambda obj, *args, **options: plain(data_in(obj), *args, **options)


def data_in(value: Any, depth: int = 0) -> Any:
    """A value with the data of what only looks like data in it, for functions that take nothing else."""
    kind = type(value)
    if depth < 100 and (kind is list or kind is tuple):
        return kind(data_in(part, depth + 1) for part in value)
    if depth < 100 and kind in _DICTS:
        return {data_in(key, depth + 1): data_in(part, depth + 1) for key, part in value.items()}
    made = kind.__made_from__ if issubclass(kind, Standin) else None
    return data_in(kind.__link__.content(value), depth + 1) if made in _WRITTEN else value


_DICTS = frozenset((dict, collections.Counter, collections.OrderedDict, collections.defaultdict))
# Classes made from these go where only data will do; one that merely holds some does not.
_WRITTEN = _DICTS | {str, int, float, list, tuple}


def joined(of: Any) -> Any:
    """``of.join``: what a text joins may be texts of a class of the program's, which have to be looked into."""
    if type(of) is not str:
        return of.join
    return lambda parts: of.join(data_in(part) if type(part) is not str else part for part in parts)


def _id(of: Any) -> int:
    """Which object it is; it is kept, or its number would be another's."""
    _kept.append(of)
    if isinstance(of, Standin):
        type(of).__link__.identical(of, of)
        return number_of(of)
    return id(of)


_kept: list[Any] = []


def _relayed(name: str, plain: Any) -> Any:
    def call(*args: Any, **keywords: Any) -> Any:
        if args and isinstance(args[0], Standin | StandinType):
            kind = args[0] if isinstance(args[0], StandinType) else type(args[0])
            return kind.__link__.ask("call", Named(name), "", args, keywords)
        return plain(*args, **keywords)

    return call
