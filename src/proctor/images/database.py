"""The records of the image store: a SQLite file that processes and threads share.

All use of SQLite in this process is under one lock, which is also held while
the process forks, so a child never inherits a transaction. A transaction that
writes also keeps every other process from moving layers (see ``store.py``).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from proctor.core.errors import InfrastructureError

FORMAT = 1
_APPLICATION = 0x50524F49  # says in the file's header whose it is
_BUSY_S = 60.0
_TABLES = """
CREATE TABLE layers (
    number INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL, entries INTEGER NOT NULL
);
CREATE TABLE images (
    id TEXT PRIMARY KEY, origin TEXT NOT NULL, base TEXT NOT NULL, name TEXT, version INTEGER, digest TEXT NOT NULL,
    settings TEXT NOT NULL, labels TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL, parent TEXT,
    UNIQUE (origin, name, version)
);
CREATE TABLE image_layers (
    image TEXT NOT NULL REFERENCES images (id) ON DELETE CASCADE, position INTEGER NOT NULL,
    layer INTEGER NOT NULL REFERENCES layers (number), PRIMARY KEY (image, position)
);
CREATE INDEX layer_uses ON image_layers (layer);
CREATE TABLE versions (origin TEXT NOT NULL, name TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (origin, name));
CREATE TABLE leases (
    number INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, started TEXT NOT NULL, boot TEXT NOT NULL,
    space TEXT NOT NULL, image TEXT REFERENCES images (id), layer INTEGER REFERENCES layers (number)
);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

_using = threading.Lock()
os.register_at_fork(before=_using.acquire, after_in_parent=_using.release, after_in_child=_using.release)
_inherited: list[sqlite3.Connection] = []  # of the parent, never to be closed in a child


class Database:
    """Transactions on the file, which is made when first used.

    Raises (everything here):
        InfrastructureError: the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One consistent look."""
        with self._use() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction with no other writer beside it; undone when its block raises.

        Args:
            durable: it holds after a power failure too, which costs a disk's wait.
        """
        with self._use() as connection:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Let go of the file; a later use opens it again."""
        with _using:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()

    @contextlib.contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        with _using:
            try:
                yield self._open()
            except (sqlite3.Error, OverflowError) as error:
                raise InfrastructureError(f"the image store's records {self.path} cannot be used: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._pid == os.getpid():
            return self._connection
        if self._connection is not None:
            _inherited.append(self._connection)
            self._connection = None
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._pid = connection, os.getpid()
        return connection


def _prepare(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        connection.execute("BEGIN IMMEDIATE")  # two may make it at once
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != _APPLICATION:
            if connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                raise sqlite3.DatabaseError("it is another program's database")
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != FORMAT:
        raise sqlite3.DatabaseError(f"it is of version {version}, and this Proctor has {FORMAT}")
