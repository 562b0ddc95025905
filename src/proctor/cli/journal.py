"""What makes ``score`` resumable: a journal beside the output.

``OUT.journal`` is text, one record a line:

- the first line is a JSON header: what is being scored, as digests and options;
- every other line is ``N<TAB>CHECK<TAB>LINE``: completion number N is done,
  LINE is its line of the output, and CHECK the first 16 hex digits of SHA-256
  over ``N<TAB>LINE``. The order is that of finishing.

A line counts once its newline is there and CHECK fits, so a process killed at
any moment loses at most the line that it was writing, and one that was damaged
or changed is not taken over: its completion is scored again. When all are done the output is
written to ``OUT.tmp`` in input order and renamed over ``OUT``; the journal
then shrinks to its header with ``"done": true`` and the output's digest, by
which the same command, run again, knows that nothing is left to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.cli.records import read_record, record
from proctor.cli.render import to_json
from proctor.core.errors import InputError

FORMAT = 2
_LOCK_WAIT_S = 3.0
_SYNC_EVERY_S = 2.0


class Journal:
    """The lines of an output that are done, on disk, in the order of finishing.

    Args:
        out: the output file.
        about: what is being scored: the same for two runs that must give the
            same output.
        total: completions in all.
        restart: drop what an earlier run left, whatever it was.

    Raises:
        InputError: an earlier run's journal or output is of other inputs.
        OSError: the journal cannot be read or written.
    """

    resumes = True

    def __init__(self, out: Path, about: Mapping[str, Any], total: int, *, restart: bool = False) -> None:
        self.out, self.total = out, total
        self.path = out.with_name(out.name + ".journal")
        self._about = dict(about)
        self._places: dict[int, tuple[int, int]] = {}  # number -> offset and length of its line
        self._synced = time.monotonic()
        self.finished = False
        self.damaged = 0  # lines that were passed over
        self._opened = False  # it is ours: locked, and of the same inputs
        self._fd = self._open_fd()
        try:
            self._lock()
            self._open(restart)
            self._opened = True
        except BaseException:
            self.close()
            raise

    def _open_fd(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _lock(self) -> None:
        # A killed run's children may hold on for a moment before the kernel ends them.
        until = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(self._fd), self.path.stat()):
                    return
                os.close(self._fd)  # its holder put another file in its place
                self._fd = self._open_fd()
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InputError(
                        f"another proctor is writing {self.out}; wait for it or give another --out"
                    ) from None
                time.sleep(0.05)

    def _open(self, restart: bool) -> None:
        size = os.fstat(self._fd).st_size
        header = None if restart or not size else self._header()
        if header is None:
            if self.out.exists() and self.out.stat().st_size and not restart:
                self._unlink()
                raise InputError(
                    f"{self.out} exists and is not a result that can be gone on with; "
                    "give another --out, or --restart to replace it"
                )
            self._start()
            return
        changed = [
            key
            for key in {**header, **self._about}
            if key not in ("done", "sha256", "inputs", "from_cache") and header.get(key) != self._about.get(key)
        ]
        if changed and not self._has_lines():
            self._start()
            return
        if changed:
            raise InputError(
                f"{self.out} was begun with other inputs or options ({', '.join(_told(key, header, self._about) for key in changed)}); "
                "give them again, give another --out, or --restart to begin anew"
            )
        if header.get("done") is True:
            self._reopen_finished(str(header.get("sha256")))
        else:
            self._read_places()

    def _header(self) -> dict[str, Any] | None:
        """The first line; None when there is no whole first line yet."""
        with open(os.dup(self._fd), "rb") as file:
            file.seek(0)
            line = file.readline()
        if not line.endswith(b"\n"):
            return None
        try:
            header = json.loads(line)
        except ValueError:
            header = None
        if not isinstance(header, dict) or header.get("journal") != FORMAT:
            raise InputError(f"{self.path} is not a journal of this version; --restart begins anew")
        return {key: value for key, value in header.items() if key != "journal"}

    def _has_lines(self) -> bool:
        """Something was scored that a new beginning would lose."""
        with open(os.dup(self._fd), "rb") as file:
            file.seek(0)
            file.readline()
            return bool(file.readline()) or self.out.exists()

    def _start(self) -> None:
        os.ftruncate(self._fd, 0)
        self._places.clear()
        self._end = 0
        self._write((to_json({"journal": FORMAT, **self._about}) + "\n").encode())
        self.sync()

    def _read_places(self) -> None:
        """Find the whole lines; cut off a broken last one, and pass over what is not as it was written."""
        offset, self._end = 0, 0
        with open(os.dup(self._fd), "rb") as file:
            file.seek(0)
            for line in file:
                if offset:
                    if not line.endswith(b"\n"):
                        break
                    read = read_record(line)
                    if read is None or read.number >= self.total:
                        self.damaged += 1
                    else:
                        self._places[read.number] = (offset + len(line) - 1 - len(read.text), len(read.text))
                offset += len(line)
                self._end = offset
        os.ftruncate(self._fd, self._end)

    def _reopen_finished(self, digest: str) -> None:
        """The output is complete if it still is what was written."""
        try:
            data = self.out.read_bytes()
        except FileNotFoundError:
            self._start()
            return
        lines = data.split(b"\n")
        if hashlib.sha256(data).hexdigest() != digest or len(lines) != self.total + 1:
            raise InputError(
                f"{self.out} was changed since it was written; give another --out, or --restart to replace it"
            )
        self.finished = True

    def forget(self, is_void: Callable[[Mapping[str, Any]], bool]) -> int:
        """Drop the lines for which ``is_void`` holds, so that they are done again; returns how many."""
        if self.finished:
            with self.out.open("rb") as file:
                kept = [(n, line.rstrip(b"\n")) for n, line in enumerate(file) if not is_void(json.loads(line))]
            if len(kept) == self.total:
                return 0
            self.finished = False
        else:
            kept = [(n, line) for n, line in self._lines() if not is_void(json.loads(line))]
            if len(kept) == len(self._places):
                return 0
        dropped = (self.total if not self._places else len(self._places)) - len(kept)
        fresh = self.path.with_name(self.path.name + ".tmp")
        with fresh.open("wb") as file:
            file.write((to_json({"journal": FORMAT, **self._about}) + "\n").encode())
            for number, line in kept:
                file.write(record(number, line))
            file.flush()
            os.fsync(file.fileno())
        self._swap(fresh)
        self._places.clear()
        self._read_places()
        return dropped

    def _swap(self, fresh: Path) -> None:
        """Put another file in the journal's place; the lock goes over to it."""
        new = os.open(fresh, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(new, fcntl.LOCK_EX)
        fresh.replace(self.path)
        os.close(self._fd)
        self._fd = new

    def __contains__(self, number: int) -> bool:
        return self.finished or number in self._places

    def __len__(self) -> int:
        return self.total if self.finished else len(self._places)

    def add(self, number: int, line: str) -> None:
        """Record that a completion is done.

        Args:
            number: its place in the input, from 0.
            line: its line of the output, without a newline.

        Raises:
            OSError: it could not be written; what was there before still is.
        """
        text = line.encode()
        self._write(record(number, text))
        self._places[number] = (self._end - len(text) - 1, len(text))
        if time.monotonic() - self._synced > _SYNC_EVERY_S:
            self.sync()

    def _write(self, data: bytes) -> None:
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], self._end + done)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end)
            error.filename = str(self.path)
            raise
        self._end += len(data)

    def sync(self) -> None:
        """Have it on the disk, not only with the kernel."""
        os.fsync(self._fd)
        self._synced = time.monotonic()

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        for number in sorted(self._places):
            offset, length = self._places[number]
            yield number, os.pread(self._fd, length, offset)

    def grades(self) -> Iterator[dict[str, Any]]:
        """The lines that are done, as JSON objects, in input order."""
        if self.finished:
            with self.out.open("rb") as file:
                for line in file:
                    yield json.loads(line)
        else:
            for _, line in self._lines():
                yield json.loads(line)

    def finish(self, from_cache: int = 0) -> None:
        """Write the output in input order, whole or not at all, and shrink the journal.

        Args:
            from_cache: completions that did not have to run; kept in the header for reports.

        Raises:
            OSError: there is no room or no permission; the journal is kept.
        """
        if self.finished:
            return
        if len(self._places) != self.total:
            raise ValueError(f"{len(self._places)} of {self.total} are done")
        digest = hashlib.sha256()
        fresh = self.out.with_name(self.out.name + ".tmp")
        try:
            with fresh.open("wb") as file:
                for _, line in self._lines():
                    digest.update(line + b"\n")
                    file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.out)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            error.filename = str(fresh)
            raise
        self.finished = True
        # From here the output is there; a journal that cannot be shrunk still says the truth.
        told = {"done": True, "sha256": digest.hexdigest(), "from_cache": from_cache}
        header = to_json({"journal": FORMAT, **self._about, **told}) + "\n"
        small = self.path.with_name(self.path.name + ".tmp")
        with contextlib.suppress(OSError):
            small.write_text(header, "ascii")
            self._swap(small)

    def _unlink(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        """Let go of the file and its lock; a journal in which nothing was ever recorded goes, so no failed start leaves one."""
        if self._fd >= 0:
            if self._opened and not (self.finished or self._places or self.damaged or self.out.exists()):
                self._unlink()
            os.close(self._fd)
            self._fd = -1


def _told(key: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    old, new = before.get(key), now.get(key)
    if isinstance(old, str | int | bool | None) and isinstance(new, str | int | bool | None) and len(str(old)) < 64:
        return f"{key}: {old!r} then, {new!r} now"
    return f"{key} changed"


def digest_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Plain:
    """Where the output is no regular file (a pipe, a device): lines go out in input order, nothing is kept.

    Args:
        stream: an open binary stream; it is not closed.
        name: what errors call it.
    """

    finished, damaged, resumes = False, 0, False

    def __init__(self, stream: io.RawIOBase | Any, name: str, total: int) -> None:
        self._stream, self._name, self.total = stream, name, total
        self._waiting: dict[int, bytes] = {}
        self._next = 0

    def __contains__(self, number: int) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def add(self, number: int, line: str) -> None:
        self._waiting[number] = line.encode() + b"\n"
        try:
            while self._next in self._waiting:
                self._stream.write(self._waiting.pop(self._next))
                self._next += 1
            self._stream.flush()
        except OSError as error:
            error.filename = self._name
            raise

    def forget(self, is_void: Callable[[Mapping[str, Any]], bool]) -> int:
        return 0

    def grades(self) -> Iterator[dict[str, Any]]:
        return iter(())

    def sync(self) -> None:
        """Nothing is kept."""

    def finish(self, from_cache: int = 0) -> None:
        """Nothing is left to write."""

    def close(self) -> None:
        """The stream is the caller's."""
