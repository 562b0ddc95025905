"""Whether what the tests hold of the program's may be used as data: a matter of how they got it, never of what it is.

An object's number, its class and all that it answers are the program's word.
So soundness belongs to a reference: the one that the tests got by calling a
class that they name. The same object, met again in any other answer, is another
reference, and not sound. Of unsound ones tests may use what no data has: call
them, go through an iterator once, ask for an attribute or for a method of
another name, print them, compare them with another object.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
from typing import Any

from . import sealing
from .comparing import ORDERS
from .serving import SPECIAL

# MADE: by calling a class that the tests show to be one. UNSURE: by calling what has the name of one.
# OF_ITS_KIND: a method, or an operator, of such an object or class gave it, and it is of the same class.
UNSURE, OF_ITS_KIND, MADE = 1, 2, 3

# The name of each method that data has, of every kind that is copied.
_DATA = frozenset(name for kind in sealing.COPIED for name in dir(kind) if name[:2] != "__")
# Those that are methods in each kind that has them: no test uses one of data but by calling it.
_METHODS = frozenset(
    name for name in _DATA if all(callable(getattr(kind, name)) for kind in sealing.COPIED if hasattr(kind, name))
)
# What data does without a word, whatever it holds, and what of data is no method: called for what it does, it judges nothing.
_SILENT = frozenset("add append appendleft clear discard extend extendleft insert update".split())
_BEYOND_DOUBT = frozenset(f"__{name}__" for name in "call next enter exit str repr format hash bool eq ne del".split())
# Operators whose result is often of the operands' class, or a part that is.
_OF_A_KIND = frozenset(
    f"__{name}__"
    for name in (
        "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift neg pos invert getitem enter "
        "radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift "
        "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift"
    ).split()
)


def data_has(name: str) -> bool:
    """A method or attribute of that name is found in data too."""
    return name in _DATA


def only_method(name: str) -> bool:
    """Of data it is a method."""
    return name in _METHODS


def has(kind: type, name: str) -> bool:
    """A class made here has a special method; looked up without asking the program."""
    return any(name in type.__dict__["__dict__"].__get__(base) for base in type.mro(kind))


def is_silent(name: str) -> bool:
    """A call of that name, as a statement, is judged by nothing: of data it never fails, or always."""
    return name in _SILENT or name not in _METHODS


def is_arithmetic(name: str) -> bool:
    """An operator that computes."""
    return name in _OF_A_KIND and name not in ("__getitem__", "__enter__")


def is_made(level: int, via: str) -> bool:
    """The tests made it, by calling a class or by an operator that computes: no data was due there."""
    return level in (UNSURE, MADE) or (level == OF_ITS_KIND and is_arithmetic(via))


def is_small(value: Any) -> bool:
    """A number as near to nothing as tests allow what they do not hold exactly; or what is no data, and may be one."""
    if type(value) not in sealing.COPIED:
        return True
    if type(value) is datetime.timedelta:
        return bool(abs(value) < datetime.timedelta(seconds=1))
    kinds = (bool, int, float, complex, decimal.Decimal, fractions.Fraction)
    return type(value) in kinds and not abs(value) >= 0.01


def is_class_name(name: str) -> bool:
    """Written as classes are: a capital first, and not only capitals."""
    bare = name.lstrip("_")
    return bare[:1].isupper() and any(letter.islower() for letter in bare)


def may_be_data(what: str, kind: type, name: str) -> bool:
    """This use of an object of a class made here is one that data has too."""
    if what == "special":
        return name not in _BEYOND_DOUBT and not (name == "__iter__" and has(kind, "__next__"))
    return what == "get" and (data_has(name) or (name in SPECIAL and name not in _BEYOND_DOUBT))


def is_operator(name: str) -> bool:
    """A method that compares, or that an operator calls, taken by its name: what it gives is taken for data."""
    return name in ("__eq__", "__ne__", *ORDERS) or (name in SPECIAL and name not in _BEYOND_DOUBT)


class Names:
    """By which names the tests took classes from the program, and what that says of them.

    Args:
        shown: names that the tests' own source, or the prompt, uses as classes.
        entry: names that the problem asks the program for; they are no classes by name alone.
        classes: names that can only be meant as classes; a pass of a program where one is not is marked.
        derived: names that the tests derive classes from.
        members: what the tests take of classes by names in capitals.
        near: the tests hold something not exactly.
        stops: the tests speak of StopIteration.
    """

    def __init__(
        self,
        shown: frozenset[str] = frozenset(),
        entry: frozenset[str] = frozenset(),
        classes: frozenset[str] = frozenset(),
        derived: frozenset[str] = frozenset(),
        members: dict[str, set[str]] | None = None,
        near: bool = False,
        stops: bool = False,
    ) -> None:
        self.members, self.near, self.stops = members or {}, near, stops
        self.shown, self.entry, self.classes, self.derived = shown, entry, classes, derived
        self._levels: dict[Any, int] = {}
        self._came: set[Any] = set()

    def level(self, kind: Any, by_name: bool = False) -> int:
        """What an object is that the tests made by calling this class: MADE, UNSURE or 0.

        ``by_name``: by a name of theirs that is the program's and nothing else, so that no answer was called.
        """
        return self._levels.get(kind, 0) if by_name or kind not in self._came else 0

    def took(self, kind: Any, name: str) -> None:
        """The tests took this class by that name; of several names the one that says least counts."""
        found = 0
        if name in self.shown:
            found = MADE
        elif is_class_name(name) and name not in self.entry:
            found = UNSURE
        self._levels[kind] = min(found, self._levels.get(kind, found))

    def came(self, kind: Any) -> None:
        """This class came in an answer, where data may have been due: calling that is no proof from now on."""
        self._came.add(kind)


def of_special(name: str, of: int) -> int:
    """What the result of an operator is, of the same class as the object, which is ``of``."""
    return OF_ITS_KIND if of and name in _OF_A_KIND else 0
