"""Who uses what: rows that name a process, and count only as long as it lives."""

from __future__ import annotations

import os
import sqlite3

from proctor.images.database import Database
from proctor.images.owners import Owner, is_alive, this_process


class Lease:
    """An image in use by this process; ends with ``release``, a ``with`` block, or the process."""

    def __init__(self, database: Database, number: int) -> None:
        self._database, self._number, self._pid = database, number, os.getpid()

    def release(self) -> None:
        """It is not used any more. In a forked child this does nothing: the lease is the parent's."""
        if self._pid == os.getpid():
            with self._database.write(durable=False) as database:
                database.execute("DELETE FROM leases WHERE number = ?", (self._number,))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def take(database: sqlite3.Connection, *, image: str | None = None, layer: int | None = None) -> int:
    """Number of a new lease of this process."""
    owner = this_process()
    (number,) = database.execute(
        "INSERT INTO leases (pid, started, boot, space, image, layer) VALUES (?, ?, ?, ?, ?, ?) RETURNING number",
        (owner.pid, owner.started, owner.boot, owner.space, image, layer),
    ).fetchone()
    return int(number)


def remove_dead(database: sqlite3.Connection) -> None:
    """Forget the leases of processes that are gone."""
    for row in database.execute("SELECT DISTINCT pid, started, boot, space FROM leases").fetchall():
        if not is_alive(Owner(*row)):
            database.execute("DELETE FROM leases WHERE pid = ? AND started = ? AND boot = ? AND space = ?", row)


def users_of(database: sqlite3.Connection, image: str) -> list[int]:
    """Numbers of the processes that use an image; call ``remove_dead`` first."""
    return [
        pid for (pid,) in database.execute("SELECT DISTINCT pid FROM leases WHERE image = ? ORDER BY pid", (image,))
    ]
