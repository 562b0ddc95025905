"""What objects of the program's said of each other when sealed tests compared them, and when that proves nothing.

Only a comparison that a test makes counts, and of it only what its operator
asked: a class that says yes to all of them has answered nothing. ``!=`` is not
among them: it is the opposite of ``==``. An answer counts where its test
passed, since there it was due; and of a class whose answers lost a test no
other answer is proof.
"""

from __future__ import annotations

from typing import Any

ORDERS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_FACTS = {"__lt__": "<", "__gt__": ">", "__eq__": "=="}
_TURNED = {"<": ">", ">": "<", "==": "=="}


class Said:
    """Answers by class of the left side and operator, and what is said of each pair of objects by their numbers."""

    def __init__(self) -> None:
        self._now: dict[tuple[Any, str], set[bool]] = {}  # in the test that runs
        self._due: dict[tuple[Any, str], set[bool]] = {}  # in tests that passed
        self._lost: set[Any] = set()  # classes whose objects were compared in a test that failed
        self._facts: dict[tuple[int, int], str] = {}

    def answered(self, kind: Any, name: str, said: bool) -> None:
        """Keep an answer of a class, or of what has a class's name."""
        self._now.setdefault((kind, name), set()).add(said)

    def note(self, name: str, kinds: tuple[Any, Any], numbers: tuple[int, int], said: bool) -> str:
        """Keep an answer; what it contradicts, "" where nothing.

        Args:
            name: the operator's method.
            kinds: classes of both sides. That objects of two classes differ says nothing of either class.
            numbers: of both objects.
            said: the answer.
        """
        if said or kinds[0] is kinds[1]:
            self.answered(kinds[0], name, said)
        if not said or name not in _FACTS:
            return ""
        sign, pair = _FACTS[name], numbers
        if pair[0] > pair[1]:
            sign, pair = _TURNED[sign], (pair[1], pair[0])
        before = self._facts.setdefault(pair, "==" if pair[0] == pair[1] else sign)
        if before == sign:
            return ""
        return f"objects of {_named(kinds[0])} contradict each other: one {before} the other, and one {sign} the other"

    def forget(self) -> None:
        """Objects may have changed: what they said of each other before need not hold."""
        self._facts.clear()

    def ended(self, passed: bool) -> None:
        """The test that ran is over."""
        now, self._now = self._now, {}
        for key, said in now.items():
            if passed:
                self._due.setdefault(key, set()).update(said)
            else:
                self._lost.add(key[0])

    def claim(self) -> str:
        """Why a pass is partly the program's word; "" where it is not."""
        self.ended(True)
        for (kind, name), said in self._due.items():
            if said == {True} and name == "__eq__":
                return f"objects of {_named(kind)} were compared with each other, and never said to differ"
            if said == {True}:
                return f"objects of {_named(kind)} were compared by {ORDERS[name]}, and the answer was never no"
            if True in said and kind in self._lost:
                return f"objects of {_named(kind)} were compared with each other, also in a test that failed"
        return ""


def _named(kind: Any) -> str:
    return repr((kind if isinstance(kind, str) else type.__dict__["__name__"].__get__(kind))[:50])
