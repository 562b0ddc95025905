"""The ledger's file: SQLite, for this user alone, shared by processes and threads.

It has a write-ahead log, so that a transaction takes microseconds and what was
committed outlives a kill of any process; after a loss of power the last
transactions may be missing, and no more. Such a log needs one host, so where
the file lies on a network there is none, and transactions take milliseconds.

All use of SQLite by the ledgers of a process is under one lock. It is held
while the process forks, and the files are closed before, since locks on a file
do not pass to a child.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from proctor.core.errors import InfrastructureError

FORMAT = 2
BUSY_S = 5.0  # another process's transaction takes milliseconds
_APPLICATION = 0x50524C44  # says in the file's header whose it is
_NETWORKED = ("nfs", "cifs", "smb", "9p", "ceph", "lustre", "gpfs", "beegfs", "afs", "glusterfs", "fuse.")
_TABLES = """
CREATE TABLE prices (id INTEGER PRIMARY KEY, list TEXT NOT NULL UNIQUE);
CREATE TABLE owners (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE sandboxes (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, name TEXT,
    owner INTEGER NOT NULL, prices INTEGER NOT NULL,
    vcpu INTEGER NOT NULL, memory INTEGER NOT NULL, gpus INTEGER NOT NULL DEFAULT 0, ceiling INTEGER,
    opened INTEGER NOT NULL, seen INTEGER NOT NULL, tick INTEGER NOT NULL,
    cpu INTEGER NOT NULL DEFAULT 0, wall INTEGER NOT NULL DEFAULT 0, picos INTEGER NOT NULL DEFAULT 0,
    state INTEGER NOT NULL DEFAULT 0, ended INTEGER, reason TEXT
);
CREATE INDEX running ON sandboxes (key, owner) WHERE state = 0;
CREATE INDEX ended ON sandboxes (ended) WHERE ended IS NOT NULL;
CREATE TABLE labels (
    sandbox INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (sandbox, name)
) WITHOUT ROWID;
CREATE INDEX labelled ON labels (name, value, sandbox);
CREATE TABLE spent (
    sandbox INTEGER NOT NULL, day INTEGER NOT NULL, first INTEGER NOT NULL,
    cpu INTEGER NOT NULL, memory INTEGER NOT NULL, gpu INTEGER NOT NULL DEFAULT 0, picos INTEGER NOT NULL,
    PRIMARY KEY (sandbox, day)
) WITHOUT ROWID;
CREATE INDEX spent_on ON spent (day);
CREATE TABLE daily (
    key TEXT NOT NULL, day INTEGER NOT NULL, first INTEGER NOT NULL,
    cpu INTEGER NOT NULL, memory INTEGER NOT NULL, gpu INTEGER NOT NULL DEFAULT 0, picos INTEGER NOT NULL,
    storage INTEGER NOT NULL,
    PRIMARY KEY (key, day)
) WITHOUT ROWID;
CREATE TABLE stored (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, prices INTEGER NOT NULL,
    bytes INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER
) WITHOUT ROWID;
CREATE INDEX stored_for ON stored (key, until);
"""
# What a file of the format one number lower lacks; a Proctor of then that has it open can go on writing into it.
_ADDED = (
    "ALTER TABLE sandboxes ADD COLUMN gpus INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE spent ADD COLUMN gpu INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE daily ADD COLUMN gpu INTEGER NOT NULL DEFAULT 0",
)

_using = threading.RLock()
_open: weakref.WeakSet[Database] = weakref.WeakSet()


def using() -> threading.RLock:
    """The lock that all use of the ledgers in this process is under."""
    return _using


class LedgerError(InfrastructureError):
    """The ledger cannot be read or written; says why, and what to do."""


def default_path() -> Path:
    """Under ``XDG_STATE_HOME``, or ``~/.local/state`` where that is not set.

    Raises:
        LedgerError: this user has no home directory.
    """
    told = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(told) if os.path.isabs(told) else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise LedgerError(f"{error}; set XDG_STATE_HOME to a folder for the ledger") from None
    return base / "proctor" / "ledger.sqlite"


class Database:
    """One file; it is opened, and made, when it is first used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        with _using:
            _open.add(self)

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other process writes beside; undone where the block raises.

        Raises:
            LedgerError: the file cannot be used.
        """
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the file.

        Raises:
            LedgerError: the file cannot be used.
        """
        with self._transaction("BEGIN") as connection:
            yield connection

    def close(self) -> None:
        """Let go of the file; a later use opens it again."""
        with _using:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with _using:
            try:
                connection = self._connect()
                connection.execute(begin)
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError, OverflowError, TypeError) as error:
                self.close()
                raise LedgerError(f"the ledger {self.path} cannot be used: {_words(error)}") from error

    def _connect(self) -> sqlite3.Connection:
        if self._connection is not None:
            if _identity(self.path) == self._identity:
                return self._connection
            self.close()  # it was moved away
        _check_file(self.path)
        identity = _identity(self.path)
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _set_up(connection, self.path)
        except BaseException:
            connection.close()
            raise
        self._connection, self._identity = connection, identity
        return connection


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    # In this order: another process may make them meanwhile, in one transaction.
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != _APPLICATION and tables:
        raise LedgerError(f"{path} is another program's database; move it away")
    _set_journal(connection, "DELETE" if _is_networked(path) else "WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if application != _APPLICATION:
        connection.execute("BEGIN IMMEDIATE")  # two may make it at once
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != _APPLICATION:
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == FORMAT - 1:
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == FORMAT - 1:  # else another process has done it meanwhile
            for statement in (*_ADDED, f"PRAGMA user_version = {FORMAT}"):
                connection.execute(statement)
        connection.execute("COMMIT")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != FORMAT:
        raise LedgerError(
            f"the ledger {path} is of version {version}, and this Proctor has {FORMAT}: use the Proctor that made it, or move it away"
        )


def _set_journal(connection: sqlite3.Connection, mode: str) -> None:
    """SQLite does not wait by itself for others who do the same."""
    give_up = time.monotonic() + BUSY_S
    while True:
        try:
            (now,) = connection.execute("PRAGMA journal_mode").fetchone()
            if str(now).upper() != mode:
                connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _identity(path: Path) -> tuple[int, int]:
    """Which file has that name now."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _check_file(path: Path) -> None:
    """Make it, for this user alone, or see that it is this user's."""
    try:
        found = path.stat()
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(f"the ledger {path} is not a regular file; name another")
    if found.st_uid not in (os.geteuid(), 0):
        raise LedgerError(f"the ledger {path} belongs to another user, who could write any sum into it; name another")


def _words(error: Exception) -> str:
    """What happened and what to do about it."""
    said = str(error)
    if isinstance(error, sqlite3.DatabaseError) and any(word in said for word in ("malformed", "not a database")):
        return f"{said}; move it away, with its -wal and -shm files, and a new one is begun"
    if "full" in said or "disk I/O" in said:
        return f"{said}; free some space on its disk"
    if "readonly" in said or "unable to open" in said or isinstance(error, PermissionError):
        return f"{said}; let this user write to it and to its folder"
    if "locked" in said or "busy" in said:
        return f"{said}; another process has held it for {BUSY_S:.0f} s"
    return f"{type(error).__name__}: {said}"


def _is_networked(path: Path) -> bool:
    """The file system that holds it may be used by other hosts."""
    place, best, kind = os.path.realpath(path.parent), "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].replace("\\040", " ")
        if (place == point or place.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind.startswith(_NETWORKED)


def _before_fork() -> None:
    _using.acquire()
    for database in list(_open):
        database.close()


def _after_in_child() -> None:
    global _using
    _using = threading.RLock()  # the old one is held by a thread that is not here


os.register_at_fork(before=_before_fork, after_in_parent=lambda: _using.release(), after_in_child=_after_in_child)
