"""The ledger: what each sandbox used and cost, kept in a file while it runs.

A row is opened when a sandbox is made, brought up to date while it runs, and
closed once. Figures are absolute and only grow: each says what was used since
the start, so one that is told twice, or late, changes nothing, and nothing is
counted twice. What was told is on the disk when the call returns. A process
that was killed leaves its rows open, and whoever next opens the ledger closes
them at what was last told.

Scoring never waits for the ledger's health. Where the file fails, figures are
kept in memory and written when it can be written again (``trouble`` says what
is wrong, a warning says it once), and sandboxes are made; but not under a
daily limit, which nobody could check: then creates are refused.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from proctor.core.errors import InputError
from proctor.core.process import this_process
from proctor.core.sandbox import SandboxError, SandboxSpec, StopReason
from proctor.core.settings import Settings, load
from proctor.meter import database as file
from proctor.meter import entries, totals
from proctor.meter.book import Book
from proctor.meter.database import LedgerError
from proctor.meter.days import day_of, next_day
from proctor.meter.entries import Opening
from proctor.meter.limits import LOCAL, DailyLimit, daily_micros, text, whole_micros
from proctor.meter.prices import PICOS, Prices
from proctor.meter.totals import SandboxCost, Total
from proctor.meter.usage import mebibytes, microseconds, millionths, whole_gpus

_MOST_BYTES = 1 << 60
_LATEST = 10**10  # seconds since the epoch: the year 2286


class Ledger(Book):
    """Of one user, shared by all of that user's processes. May be used from many threads, and goes on in a forked child.

    Args:
        path: the file; None is the user's own. It is made when first used.
        prices: the price list for what is opened from now on.
        daily_micros: limit for each key that is given no other; None: none.
        clock: seconds since the epoch. ticks: microseconds since boot.
        name: of the process that owns what is opened here.

    Attributes:
        trouble: why the file could not be used the last time; None while all is well.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        prices: Prices | None = None,
        daily_micros: int | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], int] = entries.ticks,
        name: Callable[[], str] = this_process,
    ) -> None:
        super().__init__(path, clock, ticks, name)
        self.prices = Prices() if prices is None else prices
        self.daily_micros = whole_micros(daily_micros, "daily_micros")

    @classmethod
    def from_settings(cls, settings: Settings | None = None, path: str | Path | None = None) -> Ledger:
        """With the prices and the limit of the settings; None reads the user's own.

        Raises:
            InputError: a setting is unusable.
        """
        settings = load() if settings is None else settings
        return cls(path, prices=Prices.from_settings(settings), daily_micros=daily_micros(settings))

    # ------------------------------------------------------------ sandboxes

    def open_sandbox(
        self, sandbox_id: str, spec: SandboxSpec, *, key: str = LOCAL, daily_micros: int | None = None
    ) -> None:
        """See that a sandbox may be made, and open its row: in one transaction, so that two never share what is left.

        Told again of a sandbox that this process opened, nothing changes.

        Args:
            key: whose spending it is.
            daily_micros: that key's daily limit; None is the ledger's own.

        Raises:
            SandboxError: ``spending_limit_reached`` (402), ``budget_exceeded`` (409), or ``ledger_unavailable`` (503)
                where there is a limit and the file cannot be used.
            InputError: the id is another's, or a figure of the spec is unusable.
        """
        limit = whole_micros(daily_micros, "daily_micros")
        limit = self.daily_micros if limit is None else limit
        new = Opening(
            id=text(sandbox_id, "sandbox_id"),
            key=text(key, "key"),
            name=None if spec.name is None else text(spec.name, "name"),
            labels={text(n, "labels"): text(v, "labels", least=0) for n, v in spec.labels.items()},
            vcpu=millionths(spec.vcpu),
            memory=mebibytes(spec.memory_mib),
            gpus=whole_gpus(spec.gpu),
            ceiling=whole_micros(spec.max_cost_micros, "max_cost_micros"),
            prices=self.prices,
            at=self._now(),
        )
        with file.using():
            self._own()
            if limit is None and self._waits():
                self._keep(new)
                return
            if limit is not None:
                self._write_now()
            try:
                with self._writing() as database:
                    row = database.execute(
                        "SELECT state, owners.name FROM sandboxes JOIN owners ON owners.id = owner WHERE sandboxes.id = ?",
                        (new.id,),
                    ).fetchone()
                    if row is not None or new.id in self._openings:
                        if row is None or row == (entries.RUNNING, self._name()):
                            return
                        raise InputError(
                            f"there is a sandbox {new.id!r:.80} already; give a new id", field="sandbox_id"
                        )
                    if limit is not None:
                        self._daily(database, new.key, limit).admit(new.ceiling)
                    entries.insert(database, new, self._name(), self._ticks())
            except LedgerError as error:
                self._fail(error)
                if limit is not None:
                    raise _unchecked(error, new.key) from error
                self._keep(new)
                return
            self._live[new.id] = new

    def set_ceiling(self, sandbox_id: str, max_cost_micros: int) -> None:
        """Give a running sandbox another ceiling. A higher one is held against the daily limit like a new sandbox's.

        Raises:
            SandboxError: as for ``open_sandbox``; then it has the ceiling that it had.
            InputError: the figure is unusable.
        """
        ceiling = whole_micros(max_cost_micros, "max_cost_micros")
        with file.using():
            self._own()
            if self.daily_micros is not None:
                self._write_now()
            try:
                with self._writing() as database:
                    row = database.execute("SELECT key, ceiling FROM sandboxes WHERE id = ?", (sandbox_id,)).fetchone()
                    database.execute("UPDATE sandboxes SET ceiling = ? WHERE id = ?", (ceiling, sandbox_id))
                    if row is not None and (row[1] is None or row[1] < max_cost_micros):
                        self._daily(database, row[0], self.daily_micros).admit_raised(max_cost_micros)
            except LedgerError as error:
                self._fail(error)
                if self.daily_micros is not None:
                    raise _unchecked(error, LOCAL) from error
            for known in (self._live, self._openings):
                if sandbox_id in known:
                    known[sandbox_id] = replace(known[sandbox_id], ceiling=ceiling)

    def checkpoint(self, sandbox_id: str, cpu_seconds: float, wall_seconds: float) -> None:
        """Say what a running sandbox has used since its start. Lower figures than before change nothing.

        Raises:
            InputError: a figure is unusable, or there is no such sandbox.
        """
        self.checkpoints({sandbox_id: (cpu_seconds, wall_seconds)})

    def checkpoints(self, figures: Mapping[str, tuple[float, float]]) -> None:
        """The same of several, in one transaction: CPU seconds and wall seconds by id."""
        told = {
            name: (microseconds(cpu, "cpu_seconds"), microseconds(wall, "wall_seconds"))
            for name, (cpu, wall) in figures.items()
        }
        with file.using():
            self._own()
            for name, (cpu, wall) in told.items():
                self._tell(name, cpu, wall, None)
            self._write_known()

    def close_sandbox(
        self,
        sandbox_id: str,
        cpu_seconds: float,
        wall_seconds: float,
        *,
        reason: StopReason = StopReason.REQUEST,
    ) -> None:
        """Say what a sandbox has used in all, and that it has ended. What is told afterwards changes nothing.

        Raises:
            InputError: as for ``checkpoint``.
        """
        cpu, wall = microseconds(cpu_seconds, "cpu_seconds"), microseconds(wall_seconds, "wall_seconds")
        with file.using():
            self._own()
            self._tell(sandbox_id, cpu, wall, str(reason))
            self._write_known()

    # ------------------------------------------------------------ storage

    def store(
        self, snapshot_id: str, size_bytes: int, since: float, until: float | None = None, *, key: str = LOCAL
    ) -> None:
        """Bytes that are kept from ``since`` to ``until``, seconds since the epoch; None: until further notice.

        Told again, ``until`` moves the end, unless that has passed already; the rest stays as it was. A snapshot
        that was removed is one whose ``until`` is now.

        Raises:
            InputError: a figure is unusable.
            LedgerError: the file cannot be used; say it again later.
        """
        text(snapshot_id, "snapshot_id"), text(key, "key")
        if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or not 0 <= size_bytes <= _MOST_BYTES:
            raise InputError(f"{size_bytes!r:.60} is not a number of bytes from 0 to 2^60", field="size_bytes")
        begin = microseconds(since, "since", _LATEST)
        end = None if until is None else microseconds(until, "until", _LATEST)
        with file.using():
            self._own()
            with self._writing() as database:
                prices = entries.number_for(database, "prices", "list", self.prices.to_json())
                database.execute(
                    "INSERT OR IGNORE INTO stored VALUES (?, ?, ?, ?, ?, ?)",
                    (snapshot_id, key, prices, size_bytes, begin, end),
                )
                if end is not None:
                    database.execute(
                        "UPDATE stored SET until = MAX(since, ?) WHERE id = ? AND (until IS NULL OR until > ?)",
                        (end, snapshot_id, self._now()),
                    )

    # ------------------------------------------------------------ limits

    def limit(self, key: str = LOCAL, daily_micros: int | None = None) -> DailyLimit:
        """What a key may spend today and what it has spent, with what runs counted up to now.

        Raises:
            LedgerError: the file cannot be used.
        """
        limit = whole_micros(daily_micros, "daily_micros")
        limit = self.daily_micros if limit is None else limit
        with file.using():
            self._own()
            self._write_now()
            with self._writing() as database:
                return self._daily(database, text(key, "key"), limit)

    def admit(
        self, key: str = LOCAL, max_cost_micros: int | None = None, *, daily_micros: int | None = None
    ) -> DailyLimit:
        """See whether a sandbox might be made now. ``open_sandbox`` does so itself, and sets its ceiling aside.

        Raises:
            SandboxError: ``spending_limit_reached`` (402) or ``budget_exceeded`` (409).
            LedgerError: the file cannot be used.
        """
        found = self.limit(key, daily_micros)
        found.admit(whole_micros(max_cost_micros, "max_cost_micros"))
        return found

    # ------------------------------------------------------------ sums

    def sandbox(self, sandbox_id: str) -> SandboxCost | None:
        """What is known of one; None where there is no such row.

        Raises:
            LedgerError: the file cannot be used. So for all below.
        """
        with self._reading() as database:
            return totals.sandbox(database, sandbox_id)

    def total(
        self,
        *,
        since: date | None = None,
        until: date | None = None,
        label: tuple[str, str] | None = None,
        key: str | None = None,
    ) -> Total:
        """All that was spent from the day ``since`` to the day ``until``, both included; UTC."""
        with self._reading() as database:
            asked = totals.Asked(since, until, label, key, self._now())
            return totals.total(database, self._lists, asked)

    def totals(
        self,
        by: str,
        *,
        since: date | None = None,
        until: date | None = None,
        label: tuple[str, str] | None = None,
        key: str | None = None,
        top: int | None = None,
    ) -> list[Total]:
        """The same by ``sandbox``, ``label``, ``day`` or ``key``: the dearest first, days by date; ``top`` of them.

        What has several labels counts in each. Storage has no labels and no sandbox, so it is in sums by day and by
        key only, and not where ``label`` is given.

        Raises:
            InputError: there is no such ``by``.
        """
        if by not in totals.KINDS:
            raise InputError(f"{by!r:.60} is none of {', '.join(totals.KINDS)}", field="by")
        with self._reading() as database:
            asked = totals.Asked(since, until, label, key, self._now())
            return totals.by(database, self._lists, by, asked, top)

    def prune(self, days: int) -> int:
        """Forget sandboxes and snapshots that ended more than ``days`` days ago; sums by day and key stay.

        Returns:
            How many sandboxes.

        Raises:
            InputError: not a whole number from 1.
        """
        if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= 100_000:
            raise InputError(f"{days!r:.60} is not a whole number of days from 1", field="days")
        before, gone = self._now() - days * 24 * 3600 * 10**6, 0
        while True:
            with file.using():
                self._own()
                with self._writing() as database:
                    some = totals.prune(database, self._lists, before)
            gone += some[0]
            if not any(some):
                return gone

    # ------------------------------------------------------------ the file

    def settle(self) -> int:
        """Close the rows of processes that are no more; done by itself when the file is opened and where a limit is asked.

        Returns:
            How many.

        Raises:
            LedgerError: the file cannot be used.
        """
        with file.using():
            self._own()
            with self._writing() as database:
                return entries.settle(database, self._name(), self._now(), StopReason.FAULT)

    def close(self) -> None:
        """Write what waits and let go of the file; a later use opens it again."""
        with file.using():
            self._own()
            self._write_now()
            self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _daily(self, database: sqlite3.Connection, key: str, limit: int | None) -> DailyLimit:
        now = self._now()
        today = day_of(now)
        entries.settle(database, self._name(), now, StopReason.FAULT)
        row = database.execute("SELECT picos + storage FROM daily WHERE key = ? AND day = ?", (key, today)).fetchone()
        stored = entries.storage_cost(database, self._lists, key, today, today, now)
        running, reserved = entries.running_now(database, self._lists, key, now, self._ticks())
        used = (row[0] if row else 0) + sum(stored.values()) + running
        return DailyLimit(key, limit, used // PICOS, -(-reserved // PICOS), next_day(now))


def _unchecked(error: LedgerError, key: str) -> SandboxError:
    return SandboxError(
        f"{error}, and without it the daily limit of the key {key!r:.80} cannot be checked",
        code="ledger_unavailable",
        status=503,
        hint="put the ledger right, or take the limit away (daily_micros in the settings, section [limits])",
    )
