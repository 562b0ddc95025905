"""Timing things against each other: in turns, so that what else the machine does hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median, quantiles

Runner = Callable[[], list[float]]  # one turn: seconds of each unit that it did


@dataclass
class Times:
    """Seconds a unit, of all turns."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle of all."""
        return median(self.seconds)

    @property
    def low(self) -> float:
        """A tenth was as fast as this: near what a quiet machine gives."""
        return quantiles(self.seconds, n=10)[0] if len(self.seconds) > 1 else self.seconds[0]

    def as_json(self) -> dict[str, float | int]:
        """Milliseconds, for a machine to read."""
        return {"median_ms": round(self.median * 1e3, 4), "p10_ms": round(self.low * 1e3, 4), "n": len(self.seconds)}


def once(action: Callable[[], object]) -> list[float]:
    """Seconds that a call takes."""
    start = time.perf_counter()
    action()
    return [time.perf_counter() - start]


def contest(sides: dict[str, Runner], seconds: float, least: int = 5) -> dict[str, Times]:
    """Each side in turn, after one turn that does not count, until the time is up.

    Args:
        seconds: for all sides and turns together.
        least: turns of each side, however long they take.
    """
    times = {name: Times() for name in sides}
    for runner in sides.values():
        runner()
    end = time.perf_counter() + seconds
    turns = 0
    while turns < least or time.perf_counter() < end:
        for name, runner in sides.items():
            times[name].seconds += runner()
        turns += 1
    return times
