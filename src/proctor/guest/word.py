"""What of a pass of sealed tests is the program's word: what its objects say of each other, and which one one is."""

from __future__ import annotations

from typing import Any

from . import sealing
from .comparing import Said
from .standins import is_same, number_of, stop


class Word:
    """The part of a link to the program that keeps account of it.

    Attributes:
        claim: why a pass is partly the program's word; "" where it is not.
        reading: an answer is being read: nothing is asked meanwhile, and nothing that is compared counts.
    """

    def __init__(self) -> None:
        self.claim = ""
        self.reading = False
        self.said = Said()  # by objects, of each other
        self.built: dict[int, bool] = {}  # objects that calls of classes gave; False: more than once
        sealing.on_compared[:] = [self.answered]

    def compared(self, name: str, one: Any, other: Any, said: bool) -> None:
        """Note what two objects said of each other when tests asked; leaves the test open where it contradicts."""
        if self.reading:
            return
        contradiction = self.said.note(name, (type(one), type(other)), (number_of(one), number_of(other)), said)
        if contradiction:
            stop("undecided", contradiction)

    def identical(self, one: Any, other: Any) -> bool:
        """``one == other`` where their class has no ``__eq__``: which of the objects that the tests made it is, is no claim."""
        equal = number_of(one) == number_of(other)
        if self.built.get(number_of(one)) is not True:
            self.compared("__eq__", one, other, equal)
        return equal

    def answered(self, kind: Any, name: str, said: bool) -> None:
        """Note what data of the program's says of itself: made by a class of that name, or of that class."""
        if not self.reading:
            self.said.answered(kind, name, said)

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
