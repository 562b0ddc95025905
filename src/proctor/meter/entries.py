"""What is written into the ledger, one sandbox at a time, inside a transaction of the caller's."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass

from proctor.core.process import boot_id, is_alive
from proctor.meter.days import by_day, day_of, day_start
from proctor.meter.prices import PICOS, Prices

RUNNING, SETTLED, CLOSED = 0, 1, 2
FOREIGN_US = 15 * 60 * 10**6  # after which one that cannot be seen, and was not heard of, is taken for ended
MOST_PICOS = 1 << 62  # 4.6 million dollars: what a number of the file holds


@dataclass(frozen=True, slots=True)
class Opening:
    """A sandbox as it was made; times in microseconds since the epoch, vCPUs in millionths."""

    id: str
    key: str
    name: str | None
    labels: Mapping[str, str]
    vcpu: int
    memory: int
    gpus: int
    ceiling: int | None
    prices: Prices
    at: int


@dataclass(slots=True)
class Figures:
    """The highest that were told of a sandbox: microseconds. ``at`` is when, since the epoch and since boot."""

    cpu: int
    wall: int
    at: int
    tick: int
    reason: str | None = None  # why it ended; None: it runs


def ticks() -> int:
    """Microseconds since this boot, by a clock that nobody sets and that counts while the host sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def number_for(database: sqlite3.Connection, table: str, column: str, text: str) -> int:
    """The number of a text in a table of texts; it is put there where it is new."""
    database.execute(f"INSERT OR IGNORE INTO {table} ({column}) VALUES (?)", (text,))
    (number,) = database.execute(f"SELECT id FROM {table} WHERE {column} = ?", (text,)).fetchone()
    return int(number)


def price_list(database: sqlite3.Connection, known: dict[int, Prices], number: int) -> Prices:
    """The price list of that number."""
    if number not in known:
        found = database.execute("SELECT list FROM prices WHERE id = ?", (number,)).fetchone()
        try:
            known[number] = Prices.from_json(found[0])
        except (TypeError, ValueError):
            raise sqlite3.DatabaseError("a price list in it is malformed") from None
    return known[number]


def insert(database: sqlite3.Connection, new: Opening, owner: str, tick: int) -> bool:
    """Open a sandbox's row; False where its id is there already."""
    values = (
        *(new.id, new.key, new.name, number_for(database, "owners", "name", owner)),
        number_for(database, "prices", "list", new.prices.to_json()),
        *(new.vcpu, new.memory, new.gpus, new.ceiling, new.at, new.at, tick),
    )
    done = database.execute(
        "INSERT OR IGNORE INTO sandboxes (id, key, name, owner, prices, vcpu, memory, gpus, ceiling, opened, seen, tick)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )
    if done.rowcount != 1:
        return False
    number = done.lastrowid
    rows = [(number, name, value) for name, value in new.labels.items()]
    database.executemany("INSERT INTO labels VALUES (?, ?, ?)", rows)
    _add(database, number or 0, new.key, day_of(new.at), (1, 0, 0, 0, 0))
    return True


def update(database: sqlite3.Connection, known: dict[int, Prices], sandbox: str, told: Figures) -> bool:
    """Bring a row up to date; lower figures, and all after it was closed, change nothing. False: there is no such row."""
    found = database.execute(
        "SELECT number, key, prices, vcpu, memory, gpus, cpu, wall, state FROM sandboxes WHERE id = ?", (sandbox,)
    ).fetchone()
    if found is None:
        return False
    number, key, prices, vcpu, memory, gpus, cpu, wall, state = found
    if state == CLOSED:
        return True
    prices = price_list(database, known, prices)
    before, after = (cpu, wall), (max(cpu, told.cpu), max(wall, told.wall))

    def sums(figures: tuple[int, int]) -> tuple[int, int, int, int]:
        cost = min(MOST_PICOS, prices.picos(*figures, vcpu, memory, gpus))
        return prices.charged_us(*figures, vcpu), figures[1] * memory // 1000, figures[1] * gpus, cost

    last = sums(before)
    for day, figures in by_day(before, after, told.at):
        now = sums(figures)
        _add(database, number, key, day, (0, *(a - b for a, b in zip(now, last, strict=True))))
        last = now
    if state == SETTLED and told.reason is None and after == before:
        return True  # nothing new: it is as dead as it was
    # An owner that was taken for gone, and speaks, is not.
    ended = told.at if told.reason is not None else None
    database.execute(
        "UPDATE sandboxes SET cpu = ?, wall = ?, picos = ?, seen = ?, tick = ?, state = ?, ended = ?, reason = ? WHERE number = ?",
        (*after, last[3], told.at, told.tick, RUNNING if ended is None else CLOSED, ended, told.reason, number),
    )
    return True


def _add(database: sqlite3.Connection, number: int, key: str, day: int, added: tuple[int, ...]) -> None:
    database.execute(
        "INSERT INTO spent (sandbox, day, first, cpu, memory, gpu, picos) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO"
        " UPDATE SET cpu = cpu + excluded.cpu, memory = memory + excluded.memory, gpu = gpu + excluded.gpu,"
        " picos = picos + excluded.picos",
        (number, day, *added),
    )
    database.execute(
        "INSERT INTO daily (key, day, first, cpu, memory, gpu, picos, storage) VALUES (?, ?, ?, ?, ?, ?, ?, 0)"
        " ON CONFLICT DO UPDATE SET first = first + excluded.first, cpu = cpu + excluded.cpu,"
        " memory = memory + excluded.memory, gpu = gpu + excluded.gpu, picos = picos + excluded.picos",
        (key, day, *added),
    )


def settle(database: sqlite3.Connection, own: str, now_us: int, reason: str) -> int:
    """Close the rows of processes that are no more, at what was last told of them; returns how many.

    Of a process that cannot be seen from here, rows that were not heard of for 15 minutes. It costs nothing to be
    wrong: the next figures of such a row open it again.
    """
    settled = 0
    rows = database.execute(
        "SELECT id, name FROM owners WHERE id IN (SELECT DISTINCT owner FROM sandboxes WHERE state = 0)"
    ).fetchall()
    for owner, name in rows:
        alive = True if name == own else is_alive(name)
        if alive:
            continue
        heard = now_us if alive is False else now_us - FOREIGN_US
        settled += database.execute(
            "UPDATE sandboxes SET state = ?, ended = seen, reason = ? WHERE state = 0 AND owner = ? AND (? OR seen <= ?)",
            (SETTLED, reason, owner, alive is False, heard),
        ).rowcount
    return settled


def running_now(
    database: sqlite3.Connection, known: dict[int, Prices], key: str, now_us: int, tick: int
) -> tuple[int, int]:
    """What running sandboxes of a key have cost today beyond what is written, and what their ceilings leave them.

    In picodollars. Nobody knows the CPU time since they were last heard of, so for that the floor is counted.
    """
    today, used, reserved = day_of(now_us), 0, 0
    rows = database.execute(
        "SELECT prices, vcpu, memory, gpus, ceiling, cpu, wall, picos, tick, owners.name"
        " FROM sandboxes JOIN owners ON owners.id = owner WHERE state = 0 AND key = ?",
        (key,),
    )
    for number, vcpu, memory, gpus, ceiling, cpu, wall, picos, seen, owner in rows.fetchall():
        prices = price_list(database, known, number)
        here = bool(boot_id()) and owner.startswith(f"{boot_id()}/")
        after = (cpu, wall + (max(0, tick - seen) if here else 0))
        last = picos
        for day, figures in by_day((cpu, wall), after, now_us):
            cost = prices.picos(*figures, vcpu, memory, gpus)
            used += cost - last if day == today else 0
            last = cost
        if ceiling is not None:
            reserved += max(0, ceiling * PICOS - last)
    return used, reserved


def storage_cost(
    database: sqlite3.Connection, known: dict[int, Prices], key: str | None, first: int, last: int, now_us: int
) -> dict[tuple[str, int], int]:
    """Picodollars of what was stored from day ``first`` to ``last``, by key and day, up to now."""
    costs: dict[tuple[str, int], int] = {}
    where, given = ("key = ? AND ", [key]) if key is not None else ("", [])
    rows = database.execute(
        f"SELECT key, prices, bytes, since, until FROM stored WHERE {where}(until IS NULL OR until > ?) AND since < ?",
        (*given, day_start(first), day_start(last + 1)),
    )
    for name, number, size, since, until in rows.fetchall():
        prices = price_list(database, known, number)
        for day, cost in stored_by_day(prices, size, since, now_us if until is None else min(until, now_us)):
            if first <= day <= last:
                costs[name, day] = costs.get((name, day), 0) + cost
    return costs


def stored_by_day(prices: Prices, size: int, since: int, end: int) -> list[tuple[int, int]]:
    """Days, and the picodollars of each, of bytes that were kept from ``since`` to ``end``."""
    if end <= since:
        return []
    found, last = [], 0
    for day in range(day_of(since), day_of(end - 1) + 1):
        cost = prices.storage_picos(size, min(end, day_start(day + 1)) - since)
        found.append((day, cost - last))
        last = cost
    return found
