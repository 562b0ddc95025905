"""What of a pass of sealed tests is the program's word: what its objects say of each other, and which one one is."""

from __future__ import annotations

from typing import Any

from . import sealing
from .comparing import Said
from .standins import is_same, number_of, stop


class Claims:
    """The part of a link to the program that keeps account of it.

    Attributes:
        claim: why a pass is partly the program's word; "" where it is not.
        reading: an answer is being read: nothing is asked meanwhile, and nothing that is compared counts.
    """

    def __init__(self) -> None:
        self.claim = ""
        self.reading = False
        self.said = Said()  # by objects, of each other
        self.met: set[int] = set()  # objects that came in answers
        self.first: set[int] = set()  # for the first time in the last one
        self.given: set[int] = set()  # and that the program was given in a request before the last
        self.unearned: set[int] = set()  # came again though not given: which one it is, is the program's word
        self.called: dict[Any, Any] = {}  # a class of objects that a call of another class gave -> that class
        sealing.on_compared[:] = [self.answered]

    def compared(self, name: str, one: Any, other: Any, said: bool) -> None:
        """Note what two objects said of each other when tests asked; leaves the test open where it contradicts."""
        if self.reading:
            return
        kinds = self.booked(type(one)), self.booked(type(other))
        contradiction = self.said.note(name, kinds, (number_of(one), number_of(other)), said)
        if contradiction:
            stop("undecided", contradiction)

    def identical(self, one: Any, other: Any) -> bool:
        """``one == other`` where their class has no ``__eq__``: which of the objects that it was given comes back is an answer."""
        equal = number_of(one) == number_of(other)
        if equal and number_of(one) in self.unearned:
            self.compared("__eq__", one, other, equal)
        return equal

    def comes(self, number: int) -> None:
        """An answer holds this object."""
        if number not in self.met:
            self.first.add(number)
        elif number not in self.given and number not in self.first:
            self.unearned.add(number)
        self.met.add(number)

    def constructed(self, target: Any, value: Any) -> None:
        """A call of a class gave this object."""
        if number_of(value) not in self.first:
            self.unearned.add(number_of(value))
        if type(value) is not target:
            self.called.setdefault(type(value), target)

    def booked(self, kind: Any) -> Any:
        """The class under which an answer is kept: the one that the tests called, where it gives objects of others."""
        return self.called.get(kind, kind)

    def answered(self, kind: Any, name: str, said: bool) -> None:
        """Note what data of the program's says of itself: made by a class of that name, or of that class."""
        if not self.reading:
            self.said.answered(self.booked(kind), name, said)

    def mark(self, reason: str) -> None:
        """A pass is partly the program's word; the first reason is told."""
        self.claim = self.claim or reason

    def same(self, one: Any, other: Any) -> bool:
        """``one is other`` in tests."""
        return is_same(one, other) or self.may_be_same(one, other)

    def other(self, one: Any, other: Any) -> bool:
        """``one is not other`` in tests."""
        different = not is_same(one, other)
        if different:
            self.may_be_same(one, other)
        return different

    def may_be_same(self, one: Any, other: Any) -> bool:
        """Equal data that cannot be changed, which the program may have given back as it was: a pass is marked."""
        alike = type(one) is type(other) and type(one) in sealing.FIXED and bool(one == other)
        if alike and not self.claim:
            self.claim = f"the tests ask whether two equal values of {type(one).__name__} are the same object"
        return alike

    def claims(self) -> str:
        """Why a pass is partly the program's word; "" where it is not."""
        return self.claim or self.said.claim()
