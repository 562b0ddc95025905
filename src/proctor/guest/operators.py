"""The special methods of stand-ins whose classes have them: each asks the program, and gives what it gave.

What Python does with an answer is left to Python: that of a comparison may be
any value, and its truth is asked for where the tests ask for it.
"""

from __future__ import annotations

from typing import Any

from . import raising, sealing
from .comparing import ORDERS
from .soundness import has, is_made
from .standins import Standin, another, is_standin, number_of, stop, unlike


def _special(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        return type(self).__link__.ask("special", self, name, args)

    return method


def _compared(name: str) -> Any:
    """``__eq__`` or ``__ne__`` of a class's own, which is the only one to know what it says.

    It is told of another object, of data where the tests made the object, and where they say that it is not None. Elsewhere
    data may be the answer that was due: there the two differ, and a test that asks for no more than that is marked.
    """

    def method(self: Any, other: Any) -> Any:
        link, theirs = type(self).__link__, isinstance(other, Standin)
        same = theirs and number_of(self) == number_of(other)
        if link.reading or link.looking:
            return same if name == "__eq__" else not same
        is_data = type(other) in sealing.COPIED
        told = is_made(self.__sound__, self.__via__) or (other is None and name == "__ne__")
        if not theirs and not (is_data and told):
            found = unlike(self, other)
            if name == "__ne__" or not is_data:
                link.answered(type(self), "__eq__", True)
            return found if name == "__eq__" or found is NotImplemented else not found
        answer = link.ask("special", self, name, (other,))
        if answer is NotImplemented:
            return link.identical(self, other) if same and name == "__eq__" else answer
        different = not is_standin(answer) and bool(answer) is (name == "__ne__")
        seen = is_data and other is not None  # it may serve a later answer
        link.compared("__eq__", self, other, seen or not different)
        return answer

    return method


def _hash(self: Any) -> Any:
    link, number = type(self).__link__, number_of(self)
    if link.reading or link.looking:  # an ordered dict hashes its keys as it is gone through
        return link.hashes.get(number, link.hashed.get(number, number))
    found = link.hashed[number] = link.ask("special", self, "__hash__")
    return found


def _ordered(name: str) -> Any:
    """An order, which is noted: it is the object's word."""

    def method(self: Any, other: Any) -> Any:
        link = type(self).__link__
        said = link.ask("special", self, name, (other,))
        if said is not NotImplemented:
            link.answered(type(self), name, True)
        return said

    return method


def _next(self: Any) -> Any:
    if self.__ended__:
        raise StopIteration  # an iterator ends once: what a program gives afterwards is another answer
    return type(self).__link__.ask("special", self, "__next__")


def _iter(self: Any) -> Any:
    """An iterator that the tests did not make has one life, where data may be due: what it gives after that is another answer."""
    made = is_made(self.__sound__, self.__via__)
    if made or not has(type(self), "__next__"):
        found = type(self).__link__.ask("special", self, "__iter__")
        # Itself again, and whether it has ended is for the program to say.
        return another(found) if is_standin(found) and number_of(found) == number_of(self) else found
    if self.__life__ is None:
        found = type(self).__link__.ask("special", self, "__iter__")
        if is_standin(found) and number_of(found) == number_of(self):
            found = self
        object.__setattr__(self, "__life__", (found,))
    return self.__life__[0]


def _exit(self: Any, kind: Any, value: Any, trace: Any) -> Any:
    """What ends a test is the tests' to raise, and no program's to swallow; nor are their frames and texts for it."""
    ask = type(self).__link__.ask
    if value is None or trace is None:  # nothing was raised, or it is called by its name: what it says is a value
        return ask("special", self, "__exit__", (kind if value is None else None, value, None))
    said = ask("special", self, "__exit__", (None, raising.bare(value), None))
    may_be_its = isinstance(value, Exception) or raising.is_programs(value)
    if not said or isinstance(value, AssertionError) or not may_be_its:
        return False
    if not raising.is_raised_by_tests(value):
        stop("undecided", f"__exit__ of the program's swallows {type(value).__name__[:50]}: what follows is not tested")
    return True


def _call(self: Any, /, *args: Any, **keywords: Any) -> Any:
    return type(self).__link__.ask("call", self, "", args, keywords)


def _truth(self: Any) -> bool:
    return type(self).__link__.ask("special", self, "__bool__") is True


def _methods() -> dict[str, Any]:
    from .serving import SPECIAL

    inherited = ("__str__", "__repr__", "__format__")  # by every stand-in
    found = {name: _special(name) for name in SPECIAL if name not in inherited}
    found |= {"__hash__": _hash, "__call__": _call, "__bool__": _truth, "__iter__": _iter, "__next__": _next}
    found |= {"__exit__": _exit} | {name: _compared(name) for name in ("__eq__", "__ne__")}
    found |= {name: _ordered(name) for name in ORDERS}
    for name, method in found.items():
        method.__name__ = name
    return found


METHODS = _methods()
