"""The ledger's file, and what waits in memory until it can be written."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from proctor.core.errors import InputError
from proctor.core.sandbox import StopReason
from proctor.meter import database as file
from proctor.meter import entries
from proctor.meter.database import Database, LedgerError
from proctor.meter.entries import Figures, Opening
from proctor.meter.prices import Prices

_AGAIN_S = 1.0  # after a failure, until figures are written again
_MOST_WAITING = 100_000

log = logging.getLogger("proctor")
_said: set[str] = set()


class Book:
    """What a ledger writes to. Its methods are for those who hold ``database.using()``."""

    def __init__(
        self, path: str | Path | None, clock: Callable[[], float], ticks: Callable[[], int], name: Callable[[], str]
    ) -> None:
        self.trouble: str | None = None
        self._clock, self._ticks, self._name = clock, ticks, name
        self._database = Database(file.default_path() if path is None else Path(path))
        self._lists: dict[int, Prices] = {}
        self._settled = False
        self._begin()

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._live: dict[str, Opening] = {}  # that were opened here, and not closed
        self._openings: dict[str, Opening] = {}  # of these, those that are not in the file
        self._waiting: dict[str, Figures] = {}
        self._again = -math.inf
        self._dropped = False

    def _own(self) -> None:
        """In a forked child: what waits is the parent's to write."""
        if self._pid != os.getpid():
            self._begin()

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._database.write() as database:
                if not self._settled:
                    entries.settle(database, self._name(), self._now(), StopReason.FAULT)
                yield database
            self._settled, self.trouble = True, None
        except BaseException:
            self._lists.clear()  # what was read in it may never have been
            raise

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with file.using():
            self._own()
            with contextlib.suppress(LedgerError):  # it can still be read
                self._write()
                if not self._settled:
                    with self._writing():
                        pass
            with self._database.read() as database:
                yield database

    def _waits(self) -> bool:
        return self.trouble is not None and time.monotonic() < self._again

    def _tell(self, sandbox_id: str, cpu: int, wall: int, reason: str | None) -> None:
        told = self._waiting.get(sandbox_id)
        if told is None:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting[sandbox_id] = Figures(cpu, wall, self._now(), self._ticks(), reason)
            else:
                self._dropped = True
        elif told.reason is None:
            told.cpu, told.wall, told.reason = max(told.cpu, cpu), max(told.wall, wall), reason
            told.at, told.tick = self._now(), self._ticks()

    def _keep(self, new: Opening) -> None:
        if len(self._openings) < _MOST_WAITING:
            self._openings[new.id] = self._live[new.id] = new
        else:
            self._dropped = True

    def _write_known(self) -> None:
        unknown = self._write()
        if unknown and not self._dropped:
            raise InputError(f"there is no sandbox {unknown[0]!r:.80} in the ledger; open it first", field="sandbox_id")

    def _write_now(self) -> None:
        """Even if it failed just now: a limit is to be checked against all that is known, or this is the last chance."""
        self._again = -math.inf
        self._write()

    def _write(self) -> list[str]:
        """Write what waits; where that fails it goes on waiting. Returns the ids that there are not."""
        unknown: list[str] = []
        if self._waits() or not (self._waiting or self._openings):
            return unknown
        try:
            with self._writing() as database:
                for new in self._openings.values():
                    entries.insert(database, new, self._name(), self._ticks())
                for name, told in self._waiting.items():
                    if entries.update(database, self._lists, name, told):
                        continue
                    if name in self._live:  # somebody began a new file
                        entries.insert(database, self._live[name], self._name(), told.tick)
                        entries.update(database, self._lists, name, told)
                    else:
                        unknown.append(name)
        except LedgerError as error:
            self._fail(error)
            return []
        for name, told in self._waiting.items():
            if told.reason is not None:
                self._live.pop(name, None)
        self._openings, self._waiting = {}, {}
        return unknown

    def _fail(self, error: LedgerError) -> None:
        self.trouble, self._again = str(error), time.monotonic() + _AGAIN_S
        if self.trouble not in _said:  # once, not in each step of a training run
            _said.add(self.trouble)
            log.warning("%s; what sandboxes use is kept in memory until it can be written", error)
