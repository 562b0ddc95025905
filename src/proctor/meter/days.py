"""UTC days, and to which of them what was used belongs. Times are microseconds since the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

DAY = 24 * 3600 * 10**6
_EPOCH = date(1970, 1, 1)


def day_of(time_us: int) -> int:
    """Days since 1970-01-01, UTC."""
    return time_us // DAY


def day_start(day: int) -> int:
    """The first microsecond of a day."""
    return day * DAY


def number_of(day: date) -> int:
    """The same of a date."""
    return (day - _EPOCH).days


def date_of(day: int) -> date:
    """The date of such a day."""
    return _EPOCH + timedelta(days=day)


def next_day(time_us: int) -> str:
    """When the day after begins, as ``2026-12-01T00:00:00Z``."""
    return f"{date_of(day_of(time_us) + 1)}T00:00:00Z"


def by_day(before: tuple[int, int], after: tuple[int, int], now_us: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Days, and figures as they stood at the end of each, the last of them ``after``.

    Figures are microseconds of CPU and of wall time. The wall time that was added is that just before now, and the
    CPU time is spread evenly over it. So neither a clock that was set back nor one that was set forward between two
    looks moves a cost to a day that nobody lived.
    """
    cpu, wall = after[0] - before[0], after[1] - before[1]
    start, at = now_us - wall, before
    for midnight in range((start // DAY + 1) * DAY, now_us + 1, DAY) if wall else ():
        at = (before[0] + cpu * (midnight - start) // wall, before[1] + midnight - start)
        yield day_of(midnight - 1), at
    if at != after:
        yield day_of(now_us), after
