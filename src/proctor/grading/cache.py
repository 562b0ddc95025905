"""Grades that were found before, by content: a SQLite file that processes and threads share.

A key says everything that a reward depends on (``identity``), so an entry is
never wrong, only unused. The file is a help and no more: whatever happens to
it (no room, no permission, bytes that were changed), the worst is that
programs run that need not have. Each entry carries a checksum of its key and
value; one that does not fit is as good as none. A file that fails is left
alone from then on, and ``trouble`` says why.

There is no write-ahead log, since that does not work where a home directory
lies on a network. Nothing is written in the way of a look-up: what is new
waits, and goes out in one transaction from a thread of its own.

All use of SQLite in this process is under one lock, which is also held while
the process forks: so a child never inherits a transaction, and no lock on the
file is lost when another connection to it is closed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.core.errors import InputError
from proctor.grading.cache_file import FORMAT, NotACache, check_file, default_path, is_there

DEFAULT_BYTES = 1 << 30
LEAST_BYTES = 64 << 10
MAX_VALUE = 1 << 20  # bytes of one entry
_APPLICATION = 0x50524F43  # says in the file's header whose it is
_WAITING, _WAITING_BYTES = 64, 4 << 20  # entries, and bytes of them, that wait to be written
_MOST_BYTES = 64 << 20  # that wait; what is more is not kept
_KEPT_SHARE = 0.9  # of the bound, that is left when there was too much
_BUSY_S = 10.0  # another process's transaction takes milliseconds
_ASKED = 500  # keys in one look-up
_TABLES = """
CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, checksum BLOB NOT NULL, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS uses (key BLOB PRIMARY KEY, used INTEGER NOT NULL, hits INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

log = logging.getLogger("proctor")
_said: set[str] = set()
_using = threading.Lock()
os.register_at_fork(before=_using.acquire, after_in_parent=_using.release, after_in_child=_using.release)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache holds.

    Attributes:
        path: the file.
        entries: programs whose grades are kept.
        bytes: of the file that are in use. limit: the bound on them.
        hits: programs that did not have to run, since the file was made.
        trouble: why it cannot be used; None: it can.
    """

    path: Path
    entries: int
    bytes: int
    limit: int
    hits: int
    trouble: str | None


_FAULTS = (sqlite3.Error, OSError, ValueError, OverflowError, NotACache)


class Cache:
    """Keys and values as bytes. May be used from many threads, and goes on in a forked child.

    Args:
        path: the file; None is the user's own. It is made when first used; the
            folder is made only for the user's own.
        limit: bytes that it may hold; the entries that were not used for the
            longest time go first.

    Attributes:
        trouble: why it is not used any more; None while all is well.
    """

    def __init__(self, path: str | Path | None = None, *, limit: int = DEFAULT_BYTES) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < LEAST_BYTES:
            raise InputError(f"{limit!r} is not a whole number of at least {LEAST_BYTES}", field="limit")
        self.limit = limit
        self.trouble: str | None = None
        self._own_place = path is None
        try:
            self.path = Path(path) if path is not None else default_path()
        except RuntimeError as error:
            self.path, self.trouble = Path(os.devnull), f"this user has no home directory ({error})"
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._new: dict[bytes, bytes] = {}
        self._leaving: list[dict[bytes, bytes]] = []  # on their way to the file; until they are there, they are here
        self._bytes = 0
        self._used: dict[bytes, int] = {}
        self._writer: threading.Thread | None = None

    # ------------------------------------------------------------ use

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values that are there, each as it was put."""
        found: dict[bytes, bytes] = {}
        self._own()
        with self._guard:
            for waiting in (*self._leaving, self._new):
                found |= {key: waiting[key] for key in keys if key in waiting}
        with self._database() as database:
            if database is not None:
                for at in range(0, len(keys), _ASKED):
                    some = keys[at : at + _ASKED]
                    marks = ",".join("?" * len(some))
                    rows = database.execute(f"SELECT key, checksum, value FROM entries WHERE key IN ({marks})", some)
                    found |= {key: value for key, checksum, value in rows if _is_whole(key, checksum, value)}
        return found

    def hit(self, keys: Sequence[bytes]) -> None:
        """These were of use."""
        self._own()
        with self._guard:
            for key in keys:
                self._used[key] = self._used.get(key, 0) + 1

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value; it is on the disk soon, or after ``close``."""
        if self.trouble is not None or len(value) > min(MAX_VALUE, self.limit // 8):
            return
        self._own()
        with self._guard:
            if self._bytes > _MOST_BYTES:
                return  # the disk does not keep up
            self._new[key] = value
            self._bytes += len(value)
            full = len(self._new) >= _WAITING or self._bytes >= _WAITING_BYTES
            if full and (self._writer is None or not self._writer.is_alive()):
                self._writer = threading.Thread(target=self.flush, name="proctor-cache", daemon=True)
                self._writer.start()

    def recall(self, name: str) -> str | None:
        """A fact that was kept by ``remember``."""
        with self._database() as database:
            if database is not None:
                for value, checksum in database.execute(
                    "SELECT value, (SELECT value FROM facts WHERE name = ?) FROM facts WHERE name = ?",
                    (f"{name} checksum", name),
                ):
                    if isinstance(value, str) and checksum == _checksum(name.encode(), value.encode()).hex():
                        return value
        return None

    def remember(self, name: str, value: str) -> None:
        """Keep a fact."""
        rows = [(name, value), (f"{name} checksum", _checksum(name.encode(), value.encode()).hex())]
        with self._transaction() as database:
            if database is not None:
                database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", rows)

    def flush(self) -> None:
        """Write out what waits."""
        self._own()
        with self._guard:
            new, used = self._new, self._used
            self._new, self._used, self._bytes = {}, {}, 0
            if not new and not used:
                return
            self._leaving.append(new)
        try:
            self._write(new, used)
        finally:
            with self._guard:
                self._leaving[:] = [waiting for waiting in self._leaving if waiting is not new]

    def _write(self, new: dict[bytes, bytes], used: dict[bytes, int]) -> None:
        now = time.time_ns() // 1000
        with self._transaction() as database:
            if database is None:
                return
            rows = [(key, _checksum(key, value), value) for key, value in new.items()]
            database.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
            database.executemany("INSERT OR IGNORE INTO uses VALUES (?, ?, 0)", [(key, now) for key in new])
            told = [(now, count, key) for key, count in used.items()]
            database.executemany("UPDATE uses SET used = ?, hits = hits + ? WHERE key = ?", told)
            database.execute(
                "INSERT INTO facts VALUES ('hits', ?) ON CONFLICT(name) DO UPDATE SET value = value + excluded.value",
                (str(sum(used.values())),),
            )
            self._make_room(database)

    def close(self) -> None:
        """Write out what waits and let go of the file; a later use opens it again."""
        self._own()
        with self._guard:
            writer = self._writer
        if writer is not None:
            writer.join()
        self.flush()
        with _using:
            self._drop()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------ for people

    def stats(self) -> CacheStats:
        """Counts, from the file; all 0 where there is none yet."""
        entries = size = hits = 0
        if self._is_there():
            self.flush()
            with self._database() as database:
                if database is not None:
                    entries = database.execute("SELECT COUNT(*) FROM uses").fetchone()[0]
                    size = _size(database)
                    row = database.execute("SELECT value FROM facts WHERE name = 'hits'").fetchone()
                    hits = int(row[0]) if row else 0
        return CacheStats(self.path, entries, size, self.limit, hits, self.trouble)

    def clear(self) -> int:
        """Forget everything, and give the disk space back; returns how many entries there were.

        Raises:
            InputError: the file is no cache of Proctor's, so it is left alone.
        """
        with self._guard:
            self._forget()
        if not self._is_there():
            if self.trouble is not None:
                raise InputError(f"{self.path}: {self.trouble}")
            return 0
        before = self.stats().entries
        with self._transaction() as database:
            if database is not None:
                for table in ("entries", "uses", "facts"):
                    database.execute(f"DELETE FROM {table}")
        with self._database() as database:
            if database is not None:
                database.execute("VACUUM")
                return before
        if self.path != default_path() or self.path.is_symlink() or not self.path.is_file():
            raise InputError(f"{self.path}: {self.trouble}; remove it yourself if it is of no use")
        for name in (self.path, self.path.with_name(self.path.name + "-journal")):
            name.unlink(missing_ok=True)
        self.trouble = None
        return 0

    def _is_there(self) -> bool:
        """There is such a file; where that cannot be known, there is trouble."""
        try:
            return is_there(self.path)
        except (OSError, ValueError) as error:
            self._fail(error)
            return False

    # ------------------------------------------------------------ SQLite

    def _own(self) -> None:
        """In a forked child: what waits is the parent's to write."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._guard = threading.Lock()
            self._connection = None
            self._forget()

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection | None]:
        """The open file, for this thread alone; None where there is trouble. What fails inside is trouble."""
        self._own()
        with _using:
            database = None
            try:
                database = self._open() if self.trouble is None else None
            except _FAULTS as error:
                self._fail(error)
            try:
                yield database
            except _FAULTS as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._drop()
        self.trouble = f"{error}" if isinstance(error, NotACache) else f"{type(error).__name__}: {error}"
        told = f"the cache {self.path} cannot be used, so scoring goes on without it: {self.trouble}"
        if told not in _said:  # once, not in each step of a training run
            _said.add(told)
            log.warning("%s", told)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection | None]:
        with self._database() as database:
            if database is None:
                yield None
                return
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        check_file(self.path, make_folder=self._own_place)
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if application != _APPLICATION:
                connection.execute("BEGIN IMMEDIATE")  # two may make it at once
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
                if application != _APPLICATION and tables:
                    raise NotACache("it is another program's database")
                for statement in filter(str.strip, _TABLES.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                connection.execute("COMMIT")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != FORMAT:
                raise NotACache(f"it is of version {version}, and this Proctor has {FORMAT}")
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _make_room(self, database: sqlite3.Connection) -> None:
        excess = _size(database) - self.limit
        while excess > 0:
            wanted = excess + int((1 - _KEPT_SHARE) * self.limit)
            rows = database.execute(
                "SELECT uses.key, LENGTH(value) FROM uses LEFT JOIN entries USING (key) ORDER BY used LIMIT 1000"
            ).fetchall()
            gone = []
            for key, length in rows:
                if wanted <= 0:
                    break
                gone.append((key,))
                wanted -= (length or 0) + 200
            if not gone:
                return
            for table in ("entries", "uses"):
                database.executemany(f"DELETE FROM {table} WHERE key = ?", gone)
            excess = _size(database) - self.limit


def _size(database: sqlite3.Connection) -> int:
    """Bytes of the file that hold something."""
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.sha256(len(key).to_bytes(8, "big") + key + value).digest()


def _is_whole(key: object, checksum: object, value: object) -> bool:
    if not isinstance(key, bytes) or not isinstance(value, bytes):
        return False
    return checksum == _checksum(key, value)
