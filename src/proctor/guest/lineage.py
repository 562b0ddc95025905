"""What sealed tests are told of a program's class by ``isinstance`` and ``issubclass`` with a library's: what it is made from."""

from __future__ import annotations

import abc
import sys
import types
from typing import Any

from .library import Named, library_name
from .likedata import MADE_FROM
from .raising import ALSO
from .standins import Standin, StandinType, says

ISINSTANCE, ISSUBCLASS = "__isinstance__", "__issubclass__"
_isinstance, _issubclass = isinstance, issubclass


def is_instance(value: Any, kinds: Any) -> bool:
    """As Python has it; an object of the program's is one of what its class is made from."""
    if _isinstance(value, StandinType):
        return _is_class_of(value, kinds)
    if _isinstance(value, BaseException):
        return _isinstance(value, kinds) or mixes(type(value), kinds)
    return _isinstance(value, kinds) or (_isinstance(value, Standin) and derives(type(value), kinds))


def _is_class_of(value: Any, kinds: Any) -> bool:
    """A class of the program's: whether one can go through it, say, is known where its own class is."""
    if _isinstance(kinds, tuple | types.UnionType):
        return any(_is_class_of(value, kind) for kind in (kinds if _isinstance(kinds, tuple) else kinds.__args__))
    meta = _isinstance(kinds, type) and _issubclass(kinds, type) and kinds is not type
    abstract = (meta or type(kinds) is abc.ABCMeta) and library_name(kinds) is not None
    if not (abstract or _isinstance(kinds, StandinType)):
        return _isinstance(value, kinds)
    return value.__link__.ask("call", Named("builtins:isinstance"), "", (value, kinds)) is True


def is_subclass(kind: Any, kinds: Any) -> bool:
    """As Python has it; a class of the program's is made from what it was there."""
    if _issubclass(kind, kinds) or (_isinstance(kind, StandinType) and derives(kind, kinds)) or mixes(kind, kinds):
        return True
    asked = kinds if _isinstance(kinds, tuple) else (kinds,)
    return any(_isinstance(one, StandinType) and says(one, "issubclass", kind) for one in asked)


def mixes(kind: Any, kinds: Any) -> bool:
    """A class of exceptions of the program's is made from one of these too, which is no class of exceptions."""
    return any(_issubclass(also, kinds) for base in type.mro(kind) for also in vars(base).get(ALSO, ()))


def derives(kind: Any, kinds: Any) -> bool:
    """A class made here stands for one that is made from one of these."""
    if _isinstance(kinds, tuple):
        return any(derives(kind, one) for one in kinds)
    if _isinstance(kinds, types.UnionType):
        return any(derives(kind, one) for one in kinds.__args__)
    if not _isinstance(kinds, type) or _isinstance(kinds, StandinType) or kinds is object:
        return False
    for base in type.mro(kind):
        has = type.__dict__["__dict__"].__get__(base)
        if any(
            real is not None and _issubclass(real, kinds)
            for real in (_loaded(has.get("__library__")), has.get(MADE_FROM))
        ):
            return True
    return False


def is_derived(kind: Any) -> bool:
    """The program's class is made from a kind of data, or from a library's class that holds some; it is not that class."""
    made = [type.__dict__["__dict__"].__get__(base) for base in type.mro(kind) if base is not Standin]
    return any(MADE_FROM in space for space in made)


def _loaded(library: Any) -> Any:
    """The class of that name, where the tests have loaded its module: no name of the program's is imported."""
    module, _, name = library.partition(":") if type(library) is str else ("", "", "")
    found = vars(sys.modules[module]).get(name) if type(sys.modules.get(module)) is types.ModuleType else None
    return found if _isinstance(found, type) and not _isinstance(found, StandinType) else None
