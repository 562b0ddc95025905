"""Lists, dicts and sets that passed between sealed tests and the program: each side has one of its own, under one number.

Before a request the tests' side says what the tests changed in them since, and
the answer says what the program did, so that two names of one container stay
two names of one container across the pipe. Each side compares by identity of
the parts: no code of a part's class is run. What the tests no longer hold is
let go, and so are the oldest, where they get too many or too large.
"""

from __future__ import annotations

import array
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from operator import is_
from typing import Any

# Remembered between requests: containers, and parts of all of them. A board of 100 by 100 fits; a look at it takes 3 ms.
MOST, MOST_PARTS = 120, 10_500

MOST_NANS = 1000
_NAMES = (str, int, bytes, bool)

Items = list[tuple[int, tuple[Any, ...]]]  # number of a container and all that it holds now


def parts(container: Any) -> Iterable[Any]:
    """What it holds, keys before values."""
    return chain(container, container.values()) if isinstance(container, dict) else container


def contents(container: Any) -> tuple[Any, ...]:
    """What it holds, as it is sent: pairs of a dict."""
    return tuple(container.items()) if isinstance(container, dict) else tuple(container)


def refill(container: Any, items: tuple[Any, ...]) -> None:
    """Make it hold these, one by one: an ordered dict keeps their order, and a Counter does not add."""
    if isinstance(container, array.array):
        del container[:]
    elif isinstance(container, dict) and _are(list(container), [key for key, _ in items]):
        pass  # whoever iterates over it goes on
    elif isinstance(container, deque) and len(container) == len(items):
        for place, item in enumerate(items):
            container[place] = item
        return
    else:
        container.clear()
    if isinstance(container, dict):
        for key, value in items:
            container[key] = value
    elif isinstance(container, set):
        container.update(items)
    else:
        container.extend(items)


def _are(keys: list[Any], others: list[Any]) -> bool:
    """The same keys in the same order, as far as that is known without a question to their classes."""
    pairs = zip(keys, others, strict=False)
    return len(keys) == len(others) and all(a is b or (type(a) is type(b) in _NAMES and a == b) for a, b in pairs)


class Nans:
    """NaNs that passed, by number: a NaN is no NaN's equal, so that containers know each by what object it is.

    ``step``: 1 on the tests' side and 2 on the program's, which gives the numbers that the other side does not.
    """

    def __init__(self, step: int) -> None:
        self.objects: dict[int, float] = {0: math.nan}
        self.numbers = {id(math.nan): 0}
        self.next = step

    def number(self, value: float) -> int:
        """The number of a NaN; -1 of one too many, which is any."""
        found = self.numbers.get(id(value))
        if found is None and len(self.objects) < MOST_NANS:
            found, self.next = self.next, self.next + 2
            self.objects[found], self.numbers[id(value)] = value, found
        return -1 if found is None else found

    def of(self, number: Any) -> float:
        """The NaN of a number; ValueError where it is none."""
        if type(number) is not int:
            raise ValueError("no number")
        if number not in self.objects and number > 0 and len(self.objects) < MOST_NANS:
            made = float("nan")
            self.objects[number], self.numbers[id(made)] = made, number
        return self.objects[number] if number in self.objects else float("nan")


class Row:
    """A container, and what it held when both sides had the same."""

    __slots__ = ("container", "held")

    def __init__(self, container: Any) -> None:
        self.container, self.held = container, list(parts(container))

    def is_changed(self) -> bool:
        """Some part is another object than it was."""
        container, held = self.container, self.held
        double = isinstance(container, dict)
        if len(container) * (1 + double) != len(held):
            return True
        if isinstance(container, bytearray):
            return bytes(container) != bytes(held)
        if isinstance(container, array.array):
            return container.tobytes() != array.array(container.typecode, held).tobytes()
        return not all(map(is_, parts(container), held))


def _holders(row: Row) -> int:
    return sys.getrefcount(row.container)


_OURS = _holders(Row([]))  # references to a container that nobody but its row has


def _holds(held: Iterable[Any], gone: set[int]) -> bool:
    return any(id(part) in gone or (type(part) is tuple and _holds(part, gone)) for part in held)


class Kept:
    """The containers that one side remembers, by number."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.numbers: dict[int, int] = {}  # id of a container -> its number
        self.next = 0

    def __getitem__(self, number: int) -> Any:
        return self.rows[number].container

    def add(self, number: int, container: Any) -> None:
        self.rows[number] = Row(container)
        self.numbers[id(container)] = number
        self.next = max(self.next, number + 1)

    def drop(self, number: int) -> None:
        row = self.rows.pop(number, None)
        if row is not None:
            self.numbers.pop(id(row.container), None)

    def changed(self) -> Items:
        """What changed since this was asked; from now on that is what was."""
        found = []
        for number, row in self.rows.items():
            if row.is_changed():
                found.append((number, contents(row.container)))
                row.held = list(parts(row.container))
        return found

    def unneeded(self) -> list[int]:
        """Drops what nobody else has, and the oldest of what is too much; gives the numbers."""
        before = list(self.rows)
        for number in before:
            if _holders(self.rows[number]) <= _OURS:
                self.drop(number)
        size, gone = sum(len(row.held) for row in self.rows.values()), set[int]()
        while len(self.rows) > MOST or size > MOST_PARTS:
            oldest = next(iter(self.rows))
            size -= len(self.rows[oldest].held)
            gone.add(id(self.rows[oldest].container))
            self.drop(oldest)
        while gone and (holding := [number for number, row in self.rows.items() if _holds(row.held, gone)]):
            gone |= {id(self.rows[number].container) for number in holding}
            for number in holding:  # else it would go as a number, and what it holds would not go at all
                self.drop(number)
        return [number for number in before if number not in self.rows]

    def change(self, rows: Iterable[Any], find: Callable[[list[Any]], Callable[[Any], Any]]) -> list[int]:
        """Do here what was done there; the numbers of what changed.

        Args:
            rows: ``Items``.
            find: of what a container held, makes what finds an object among it.
        """
        done = []
        for number, items in rows:
            row = self.rows[number]
            container = row.container
            if isinstance(container, dict):
                same = find(list(container.values()))
                items = tuple((key, same(value)) for key, value in items)
            else:
                items = tuple(map(find(list(container)), items))
            refill(container, items)
            row.held = list(parts(container))
            done.append(number)
        return done

    def within(self, numbers: Iterable[int]) -> set[int]:
        """These, and all that are in them."""
        found: set[int] = set()
        waiting: list[Any] = [self.rows[number].container for number in numbers if number in self.rows]
        while waiting:
            value = waiting.pop()
            number = self.numbers.get(id(value))
            if number is not None and number not in found:
                found.add(number)
                waiting += self.rows[number].held
            elif type(value) is tuple:
                waiting += value
        return found
