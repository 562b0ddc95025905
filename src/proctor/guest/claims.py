"""What of a pass of sealed tests is the program's word: what its objects say of each other, and which one one is."""

from __future__ import annotations

from typing import Any

from . import sealing
from .comparing import ORDERS, reason
from .standins import Standin, StandinType, is_same, number_of


class Claims:
    """The part of a link to the program that keeps account of it.

    Attributes:
        claim: why a pass is partly the program's word; "" where it is not.
        reading: an answer is being read: nothing is asked meanwhile, and nothing that is compared counts.
    """

    def __init__(self) -> None:
        self.claim = ""
        self.reading = False
        self.members: dict[tuple[Any, str], Any] = {}  # a class and a name -> the object that it has by that name
        self.met: set[int] = set()  # objects that came in answers
        self.first: set[int] = set()  # for the first time in the last one
        self.given: set[int] = set()  # and that the program was given as an argument in this request
        self.known: set[int] = set()  # members of enumerations, asked for before anything else
        self.acting = 0  # the object that is asked now: its methods may give it back
        self.unearned: set[int] = set()  # came again though not given: which one it is, is the program's word
        self.returned: set[int] = set()  # exceptions of the tests' own that came back, by their ids
        sealing.on_compared[:] = [self.answered]

    def compared(self, name: str, one: Any, other: Any, said: bool) -> None:
        """Note what two objects said of each other when tests asked."""
        self.answered(type(one), name, said)

    def identical(self, one: Any, other: Any) -> bool:
        """``one == other`` where their class has no ``__eq__``: which of the objects that it was given comes back is an answer."""
        equal = number_of(one) == number_of(other)
        if equal and number_of(one) in self.unearned and not (self.by_name(one) or self.by_name(other)):
            self.compared("__eq__", one, other, equal)
        return equal

    def by_name(self, value: Any) -> bool:
        """The tests took this of a class by a name that was asked for before anything else: an enumeration's member."""
        owner = value.__owner__  # an object, which may have no hash, or a class
        member = self.members.get((owner, value.__via__)) if isinstance(owner, StandinType) else None
        return member is not None and number_of(member) == number_of(value)

    def comes(self, number: int) -> None:
        """An answer holds this object."""
        if number not in self.met:
            self.first.add(number)
        elif number not in (self.given | self.first | self.known) and number != self.acting:
            self.unearned.add(number)
        self.met.add(number)

    def constructed(self, value: Any) -> None:
        """A class gave this object: a call of it, of one of its methods, or what it has by a name."""
        if number_of(value) not in self.first:
            self.unearned.add(number_of(value))

    def answered(self, kind: Any, name: str, said: bool) -> None:
        """Note what an object of a class, or data of the program's that a class of that name made, says of itself.

        That two are not equal is no claim: so are any two objects. That one is not smaller is one that it is not.
        """
        if not self.reading and (name in ORDERS or said):
            self.mark(reason(kind, name))

    def mark(self, reason: str) -> None:
        """A pass is partly the program's word; the first reason is told."""
        self.claim = self.claim or reason

    def same(self, one: Any, other: Any) -> bool:
        """``one is other`` in tests."""
        if isinstance(one, Standin) and isinstance(other, Standin):
            return self.identical(one, other)
        if one is other and id(one) in self.returned:
            self.mark("the tests ask which of their exceptions the program gave back")
        return is_same(one, other) or self.may_be_same(one, other)

    def other(self, one: Any, other: Any) -> bool:
        """``one is not other`` in tests."""
        different = not is_same(one, other)
        if different:
            self.may_be_same(one, other)
        return different

    def may_be_same(self, one: Any, other: Any) -> bool:
        """Equal data that cannot be changed, which the program may have given back as it was: a pass is marked."""
        fixed = type(one) is type(other) and type(one) in sealing.FIXED
        alike = (fixed or sealing.are_records(one, other)) and bool(one == other)
        if alike and not self.claim:
            self.claim = f"the tests ask whether two equal values of {type(one).__name__} are the same object"
        return alike
