"""Sums over the ledger. SQLite groups and sorts, on the disk where it must, so a million rows need no memory here.

A number of picodollars of many sandboxes can be larger than a number in SQLite,
so micros and what is left of them are added apart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from proctor.meter.days import date_of, number_of
from proctor.meter.entries import CLOSED, RUNNING, SETTLED, price_list, storage_cost, stored_by_day
from proctor.meter.prices import PICOS, Prices

KINDS = ("sandbox", "label", "day", "key")
_BATCH = 500  # sandboxes forgotten in one transaction: others wait meanwhile
_STATES = {RUNNING: "running", SETTLED: "lost", CLOSED: "stopped"}
_NEVER = -(10**8), 10**8  # days


@dataclass(frozen=True, slots=True)
class Total:
    """One sum.

    Attributes:
        name: what it is of: a sandbox's id, ``label=value``, a date, a key; empty for all.
        sandboxes: that were made in that time.
        cpu_seconds: charged CPU time. gib_seconds: GiB of memory times seconds. gpu_seconds: GPUs times seconds.
        storage_micros: of ``cost_micros``, for what was stored.
        cost_micros: millionths of a dollar; the part of one is left off.
    """

    name: str
    sandboxes: int
    cpu_seconds: float
    gib_seconds: float
    gpu_seconds: float
    storage_micros: int
    cost_micros: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCost:
    """One sandbox's row. Times are seconds since the epoch; CPU time is as measured.

    Attributes:
        state: ``running``, ``stopped``, or ``lost`` where its owner was killed.
        seen_at: when figures were last told.
    """

    id: str
    key: str
    name: str | None
    labels: dict[str, str]
    state: str
    reason: str | None
    opened_at: float
    seen_at: float
    ended_at: float | None
    vcpu: float
    memory_mib: int
    gpus: int
    max_cost_micros: int | None
    cpu_seconds: float
    wall_seconds: float
    cost_micros: int
    prices: Prices = field(repr=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a sum is to be over; days both included, None for no bound."""

    since: date | None
    until: date | None
    label: tuple[str, str] | None
    key: str | None
    now_us: int

    def days(self) -> tuple[int, int]:
        """First and last."""
        first = _NEVER[0] if self.since is None else number_of(self.since)
        return first, _NEVER[1] if self.until is None else number_of(self.until)


_SUMS = "TOTAL(first), TOTAL({0}.cpu), TOTAL({0}.memory), TOTAL({0}.gpu), SUM({0}.picos / 1000000), SUM({0}.picos % 1000000)"


def sandbox(database: sqlite3.Connection, name: str) -> SandboxCost | None:
    """The row of one."""
    row = database.execute(
        "SELECT number, key, name, state, reason, opened, seen, ended, vcpu, memory, gpus, ceiling, cpu, wall, picos, list"
        " FROM sandboxes JOIN prices ON prices.id = prices WHERE sandboxes.id = ?",
        (name,),
    ).fetchone()
    if row is None:
        return None
    number, key, named, state, reason, opened, seen, ended, vcpu, memory, gpus, ceiling, cpu, wall, picos, prices = row
    labels = database.execute("SELECT name, value FROM labels WHERE sandbox = ?", (number,)).fetchall()
    return SandboxCost(
        id=name,
        key=key,
        name=named,
        labels=dict(labels),
        state=_STATES[state],
        reason=reason,
        opened_at=opened / 1e6,
        seen_at=seen / 1e6,
        ended_at=None if ended is None else ended / 1e6,
        vcpu=vcpu / 1e6,
        memory_mib=memory,
        gpus=gpus,
        max_cost_micros=ceiling,
        cpu_seconds=cpu / 1e6,
        wall_seconds=wall / 1e6,
        cost_micros=picos // PICOS,
        prices=Prices.from_json(prices),
    )


def total(database: sqlite3.Connection, known: dict[int, Prices], asked: Asked) -> Total:
    """One sum over all of it."""
    if asked.label is not None:
        where, given = _where("spent", asked)
        row = database.execute(f"SELECT {_SUMS.format('spent')} FROM {_SPENT} WHERE {where}", given).fetchone()
        return _total("", row, 0)
    where, given = _where("daily", asked)
    row = database.execute(f"SELECT {_SUMS.format('daily')}, {_KEPT} FROM daily WHERE {where}", given).fetchone()
    return _total("", row, _picos(row[6:]) + sum(_stored(database, known, asked).values()))


_SPENT = "spent JOIN sandboxes ON sandboxes.number = spent.sandbox"
_KEPT = "SUM(storage / 1000000), SUM(storage % 1000000)"


def by(database: sqlite3.Connection, known: dict[int, Prices], kind: str, asked: Asked, top: int | None) -> list[Total]:
    """Sums by one of ``KINDS``."""
    if kind == "label":
        return _from_spent(database, asked, "labels.name || '=' || labels.value", top, labelled=True)
    if kind == "sandbox":
        return _from_spent(database, asked, "sandboxes.id", top)
    if asked.label is not None:
        found = _from_spent(database, asked, "day" if kind == "day" else "sandboxes.key", None)
    else:
        stored: dict[str | int, int] = {}
        for (key, day), cost in _stored(database, known, asked).items():
            name = day if kind == "day" else key
            stored[name] = stored.get(name, 0) + cost
        where, given = _where("daily", asked)
        rows = database.execute(
            f"SELECT {kind}, {_SUMS.format('daily')}, {_KEPT} FROM daily WHERE {where} GROUP BY {kind}", given
        ).fetchall()
        found = [_total(name, row, _picos(row[6:]) + stored.pop(name, 0)) for name, *row in rows]
        found += [_total(name, (0, 0, 0, 0, 0, 0), cost) for name, cost in stored.items()]
    if kind == "day":
        found.sort(key=lambda each: int(each.name), reverse=True)
        return [replace(each, name=str(date_of(int(each.name)))) for each in found[:top]]
    found.sort(key=lambda each: (-each.cost_micros, each.name))
    return found[:top]


def _from_spent(
    database: sqlite3.Connection, asked: Asked, name: str, top: int | None, *, labelled: bool = False
) -> list[Total]:
    where, given = _where("spent", asked)
    tables = f"{_SPENT} JOIN labels ON labels.sandbox = spent.sandbox" if labelled else _SPENT
    rows = database.execute(
        f"SELECT {name}, {_SUMS.format('spent')} FROM {tables} WHERE {where} GROUP BY 1"
        " ORDER BY SUM(spent.picos / 1000000) DESC, SUM(spent.picos % 1000000) DESC, 1 LIMIT ?",
        (*given, -1 if top is None else top),
    )
    return [_total(first, rest, 0) for first, *rest in rows]


def _where(table: str, asked: Asked) -> tuple[str, list[object]]:
    """Conditions, and the values in them."""
    first, last = asked.days()
    parts, values = [f"{table}.day BETWEEN ? AND ?"], list[object]((first, last))
    if asked.key is not None:
        parts.append("key = ?" if table == "daily" else "sandboxes.key = ?")
        values.append(asked.key)
    if asked.label is not None:
        parts.append("spent.sandbox IN (SELECT sandbox FROM labels WHERE name = ? AND value = ?)")
        values += asked.label
    return " AND ".join(parts), values


def _stored(database: sqlite3.Connection, known: dict[int, Prices], asked: Asked) -> dict[tuple[str, int], int]:
    return storage_cost(database, known, asked.key, *asked.days(), asked.now_us)


def _picos(sums: Sequence[int | None]) -> int:
    """Picodollars of a sum of micros and one of what was left of them."""
    return (sums[0] or 0) * PICOS + (sums[1] or 0)


def _total(name: object, row: Sequence[Any], stored: int) -> Total:
    first, cpu, memory, gpu = row[:4]
    cost = (_picos(row[4:6]) + stored) // PICOS
    return Total(str(name), int(first), cpu / 1e6, memory / 1024 / 1000, gpu / 1e6, stored // PICOS, cost)


def prune(database: sqlite3.Connection, known: dict[int, Prices], before: int) -> tuple[int, int]:
    """Forget some sandboxes and snapshots that ended before a time; returns how many of each."""
    some = database.execute("SELECT number FROM sandboxes WHERE ended < ? LIMIT ?", (before, _BATCH)).fetchall()
    for table, column in (("labels", "sandbox"), ("spent", "sandbox"), ("sandboxes", "number")):
        database.executemany(f"DELETE FROM {table} WHERE {column} = ?", some)
    ended = database.execute(
        "SELECT id, key, prices, bytes, since, until FROM stored WHERE until < ? LIMIT ?", (before, _BATCH)
    ).fetchall()
    for name, key, number, size, since, until in ended:
        for day, cost in stored_by_day(price_list(database, known, number), size, since, until):
            database.execute(
                "INSERT INTO daily (key, day, first, cpu, memory, picos, storage) VALUES (?, ?, 0, 0, 0, 0, ?)"
                " ON CONFLICT DO UPDATE SET storage = storage + excluded.storage",
                (key, day, cost),
            )
        database.execute("DELETE FROM stored WHERE id = ?", (name,))
    return len(some), len(ended)
