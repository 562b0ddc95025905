"""The tests' side of sealed tests: stand-ins for what the program defines.

A function of the program is an object that can be called; an instance, one
whose attributes and special methods are the program's; a class, a class of our
own made after its description. What comes back from a call is data, or another
stand-in. A stand-in never equals data: whether it does would be for the program
to say. Two of them are compared by the program's own ``__eq__``, as a test of
a class means it. Exceptions arrive as real ones, of built-in classes or of
classes made here below the same built-in class.
"""

from __future__ import annotations

from typing import Any

from . import raising
from .sealing import Refused
from .soundness import MADE, has


def stop(word: str, reason: str) -> Any:
    """These tests cannot be sealed ("refused"), or their verdict would be the program's word ("undecided").

    Said at once, whatever the test would make of an exception; nothing more is sent to the program.
    """
    for tell in on_stop:
        tell(word, reason)
    raise Refused(reason)


def refuse(reason: str) -> Any:
    """These tests cannot be sealed."""
    stop("refused", reason)


on_stop: list[Any] = []


def no_protocol(name: str) -> None:
    """Libraries look for these by themselves, and take the answer for their own memory, or for a file's name."""
    if name.startswith(("__array", "__cuda", "__dlpack", "__reduce", "__getstate", "__fspath", "__buffer")):
        raise AttributeError(name)


class StandinType(type):
    """The type of classes that stand for the program's own."""

    __link__: Any  # to the program

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any], link: Any = None) -> Any:
        if link is None and bases and name != "Standin":
            refuse("they derive a class from one of the program's")
        made = super().__new__(mcs, name, bases, space)
        if link is not None:
            type.__setattr__(made, "__link__", link)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], link: Any = None) -> None:
        super().__init__(name, bases, space)

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        return cls.__link__.ask("call", cls, "", args, keywords)

    def __getattr__(cls, name: str) -> Any:
        no_protocol(name)
        return cls.__link__.ask("get", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        cls.__link__.ask("set", cls, name, (value,))


class Standin(metaclass=StandinType):
    """An object of the program's. Whatever is not here is asked for over there."""

    __slots__ = ("__ended__", "__keep__", "__number__", "__owner__", "__sound__", "__via__", "__weakref__")

    def __getattr__(self, name: str) -> Any:
        no_protocol(name)
        return type(self).__link__.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        type(self).__link__.ask("set", self, name, (value,))

    def __delattr__(self, name: str) -> None:
        type(self).__link__.ask("delete", self, name)

    def __copy__(self) -> Any:
        stop("undecided", "the tests copy an object of the program's")

    def __deepcopy__(self, memo: Any) -> Any:
        stop("undecided", "the tests copy an object of the program's")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Standin):
            return False
        equal = number_of(self) == number_of(other)
        if self is not other:
            type(self).__link__.compared(type(self), equal)
        return equal

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return number_of(self)

    def __str__(self) -> str:
        return text(type(self).__link__.ask("special", self, "__str__"))

    def __repr__(self) -> str:
        return text(type(self).__link__.ask("special", self, "__repr__"))

    def __format__(self, spec: str) -> str:
        return text(type(self).__link__.ask("special", self, "__format__", (spec,)))

    def __del__(self) -> None:
        try:
            if self.__keep__ is None:
                type(self).__link__.let_go(number_of(self))
        except Exception:
            pass  # at the interpreter's end there may be nothing left to tell


def is_standin(value: Any) -> bool:
    """It is the program's, whatever it looks like."""
    return isinstance(value, Standin | StandinType)


def blank(made: Any, number: int, keep: Any = None) -> None:
    """Fill a new stand-in's slots; ``keep``: what it is another name of."""
    for slot, first in (
        ("number", number),
        ("via", ""),
        ("owner", None),
        ("sound", 0),
        ("ended", False),
        ("keep", keep),
    ):
        object.__setattr__(made, f"__{slot}__", first)


def reference(value: Any, via: str = "", owner: Any = None, sound: int = 0) -> Any:
    """Another name of an object, with what the tests' way to it says."""
    if not (via or sound):
        return value
    made = object.__new__(type(value))
    blank(made, number_of(value), value)
    for slot, given in (("via", via), ("owner", owner), ("sound", sound)):
        object.__setattr__(made, f"__{slot}__", given)
    return made


def is_same(one: Any, other: Any) -> bool:
    """``one is other``, for whom two references to an object are the object."""
    if isinstance(one, Standin) and isinstance(other, Standin):
        return number_of(one) == number_of(other)
    return one is other


def again(held: list[Any]) -> Any:
    """Gives the tests' own reference to an object that they had put into a container, where it still is in there.

    Only where the container held objects of one class and nothing else: no data was due in any place of it.
    """
    alike = len({type(item) for item in held}) == 1 and isinstance(held[0], Standin)
    known = {number_of(item): item for item in held} if alike else {}
    return lambda new: known.get(number_of(new), new) if known and isinstance(new, Standin) else new


def number_of(value: Any) -> int:
    number = object.__getattribute__(value, "__number__")
    assert type(number) is int
    return number


def weak(value: Any) -> Any:
    import weakref

    return weakref.ref(value)


def text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("no text came back")
    return value


def _special(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        return type(self).__link__.ask("special", self, name, args)

    method.__name__ = name
    return method


def _compared(name: str) -> Any:
    """Equality is for two stand-ins alone, and a plain truth value."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, Standin):
            return name == "__ne__"
        link = type(self).__link__
        said = link.ask("special", self, name, (other,)) is True
        link.compared(type(self), said == (name == "__eq__"))
        return said

    method.__name__ = name
    return method


def _next(self: Any) -> Any:
    if self.__ended__:
        raise StopIteration  # an iterator ends once: what a program gives afterwards is another answer
    return type(self).__link__.ask("special", self, "__next__")


def _iter(self: Any) -> Any:
    if self.__sound__ != MADE and has(type(self), "__next__"):
        return self  # an iterator is its own: another one would be a second life
    return type(self).__link__.ask("special", self, "__iter__")


def _exit(self: Any, kind: Any, value: Any, trace: Any) -> bool:
    """What ends a test is the tests' to raise, and no program's to swallow; nor are their frames and texts for it."""
    said = type(self).__link__.ask("special", self, "__exit__", (None, raising.bare(value), None))
    if said is not True or value is None or isinstance(value, AssertionError):
        return False
    if not raising.is_raised_by_tests(value):
        stop("undecided", f"__exit__ of the program's swallows {type(value).__name__[:50]}: what follows is not tested")
    return True


def _call(self: Any, *args: Any, **keywords: Any) -> Any:
    return type(self).__link__.ask("call", self, "", args, keywords)


def _truth(self: Any) -> bool:
    return type(self).__link__.ask("special", self, "__bool__") is True


def _methods() -> dict[str, Any]:
    from .serving import SPECIAL

    found = {name: _special(name) for name in SPECIAL}
    found |= {"__eq__": _compared("__eq__"), "__ne__": _compared("__ne__"), "__call__": _call, "__bool__": _truth}
    found |= {"__iter__": _iter, "__next__": _next, "__exit__": _exit}
    for name in ("__str__", "__repr__", "__format__"):
        del found[name]  # every stand-in has these
    return found


METHODS = _methods()
