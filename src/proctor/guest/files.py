"""Files of a sandbox, for its owner: read, written and listed by its pid 1, inside its own root.

Every name is looked up in the sandbox's mount namespace, where nothing of the
host's can be reached, and never through /proc's links to open files, which
would lead into this process. Only regular files are opened; a named pipe or a
device is refused, so that nothing here waits for a program.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any

from . import linux, tree
from .stream import high

PIECE = 1 << 20
MOST_OPEN = 64
_MOST_LISTED = 100_000
_MOST_BYTES = 15 << 20  # of a listing
_NO_MAGICLINKS = 0x02
_PROC, _SYS = 0x9FA0, 0x62656572


Place = tuple[int, str, str]  # of a file that is being written: its directory, its name meanwhile, its name then


class Refused(Exception):
    """A request that cannot be met: ``code`` and words for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def open_at(path: str, flags: int, mode: int = 0o644) -> int:
    """Open a regular file or a directory, links followed within the root but not /proc's magic ones."""
    if not flags & os.O_PATH:
        flags |= os.O_NONBLOCK | os.O_NOCTTY
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _NO_MAGICLINKS)
    try:
        fd = linux.openat2(path, how)
    except OSError as exc:
        if exc.errno != errno.ENOSYS:
            raise
        # gVisor. Of this process /proc shows nothing there, and the other links lead to files of the sandbox's own.
        fd = os.open(path, flags | os.O_CLOEXEC, mode)
    kind = os.fstat(fd).st_mode
    if linux.filesystem(fd) in (_PROC, _SYS) or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        os.close(fd)
        raise Refused("not_a_file", f"{path!r} is no regular file")
    return high(fd)


class Files:
    """Open files of one sandbox's owner, and what else may be done by path.

    Args:
        uid: owner of what is made.
        home: directory that relative paths are in.
    """

    def __init__(self, uid: int, home: str = "/workspace") -> None:
        self.uid, self.home = uid, home
        self._open: dict[int, tuple[int, Place | None]] = {}
        self._number = 0

    def path(self, header: dict[str, Any], name: str = "path") -> str:
        """An absolute path from a request."""
        return os.path.join(self.home, header[name])

    # ------------------------------------------------------------ content

    def write(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """All of a file at once."""
        made = self.create(header)
        self.push(made, body)
        return {**self.close(made), "path": made["path"]}

    def create(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Begin to write a file beside its place; ``close`` puts it there, so that no reader sees half of it."""
        mode = header.get("mode")
        with contextlib.suppress(FileNotFoundError):  # what is there must be reached without a magic link
            os.close(open_at(self.path(header), os.O_PATH))
        path = os.path.realpath(self.path(header))
        with self._inside(path, make=True) as (folder, name):
            was = None
            with contextlib.suppress(FileNotFoundError):
                was = os.lstat(name, dir_fd=folder)
            if was is not None and not stat.S_ISREG(was.st_mode):
                raise Refused("not_a_file", f"{path!r} is there and is no regular file")
            part = f".{name[:100]}.{os.urandom(6).hex()}"
            self._room()
            fd = high(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder))
            os.fchmod(fd, mode & 0o1777 if mode is not None else stat.S_IMODE(was.st_mode) if was else 0o644)
            os.fchown(fd, self.uid, self.uid)
            return {"handle": self._keep(fd, (high(os.dup(folder)), part, name)), "path": path}

    def push(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Append to a file that ``create`` began; a failure gives it up."""
        fd, _ = self._file(header)
        view = memoryview(body)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            self.abort(header)
            raise
        return {}

    def close(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """End reading, or put a written file in its place."""
        fd, place = self._file(header)
        del self._open[header["handle"]]
        size = os.fstat(fd).st_size
        os.close(fd)
        if place is not None:
            try:
                os.rename(place[1], place[2], src_dir_fd=place[0], dst_dir_fd=place[0])
            finally:
                os.close(place[0])
        return {"size": size}

    def abort(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Give a written file up."""
        fd, place = self._file(header)
        del self._open[header["handle"]]
        os.close(fd)
        if place is not None:
            with contextlib.suppress(OSError):
                os.unlink(place[1], dir_fd=place[0])
            os.close(place[0])
        return {}

    def open(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Begin to read a file."""
        self._room()
        fd = open_at(self.path(header), os.O_RDONLY)
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(fd)
            raise Refused("is_a_directory", f"{self.path(header)!r} is a directory")
        return {"handle": self._keep(fd, None), "size": info.st_size, "mode": stat.S_IMODE(info.st_mode)}

    def pull(self, header: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """The next piece of a file, empty at its end."""
        fd, _ = self._file(header)
        return {}, os.read(fd, min(header.get("count", PIECE), PIECE))

    def _file(self, header: dict[str, Any]) -> tuple[int, Place | None]:
        try:
            return self._open[header["handle"]]
        except KeyError:
            raise Refused("no_such_handle", "the file is not open") from None

    def _room(self) -> None:
        """Refuse one more open file than there may be."""
        if len(self._open) >= MOST_OPEN:
            raise Refused("too_many_files", f"{MOST_OPEN} files are being read and written; end one first")

    def _keep(self, fd: int, place: Place | None) -> int:
        self._number += 1
        self._open[self._number] = fd, place
        return self._number

    # ------------------------------------------------------------ names

    def mkdir(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """A directory and what it lies in; one that is there is left as it is."""
        with self._inside(f"{self.path(header).rstrip('/')}/", make=True):
            return {}

    def remove(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """A file, a link, or with ``recursive`` a directory with all that is in it."""
        with self._inside(self.path(header).rstrip("/")) as (folder, name):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                os.unlink(name, dir_fd=folder)
            elif header.get("recursive"):
                tree.remove_live(folder, name)
            else:
                os.rmdir(name, dir_fd=folder)
        return {}

    def rename(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Move a file or a directory; what is at the new name is replaced as by rename(2)."""
        target = self.path(header, "to").rstrip("/")
        with self._inside(self.path(header).rstrip("/")) as old, self._inside(target, make=True) as new:
            os.rename(old[1], new[1], src_dir_fd=old[0], dst_dir_fd=new[0])
        return {}

    def chmod(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Set the permission bits of a file; no set-user or set-group bits."""
        fd = open_at(self.path(header), os.O_RDONLY)
        os.fchmod(fd, header["mode"] & 0o1777)
        os.close(fd)
        return {}

    def stat(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """What a path is; a link is followed unless ``link``."""
        path = self.path(header)
        if header.get("link"):
            with self._inside(path.rstrip("/")) as (folder, name):
                return {"info": describe(path, os.lstat(name, dir_fd=folder))}
        return {"info": describe(path, os.stat(path))}

    @contextlib.contextmanager
    def _inside(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open directory that a path lies in, and its last name; ``make`` makes what is missing of the way."""
        way, _, name = path.rpartition("/")
        folder = self._folder(way or "/", make)
        try:
            yield folder, name or "."
        finally:
            os.close(folder)

    def _folder(self, path: str, make: bool) -> int:
        try:
            return open_at(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if not make:
                raise
        with self._inside(path.rstrip("/"), True) as (above, name):
            os.mkdir(name, 0o755, dir_fd=above)
            os.chown(name, self.uid, self.uid, dir_fd=above, follow_symlinks=False)
        return open_at(path, os.O_RDONLY | os.O_DIRECTORY)

    def list(self, header: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """What is below a directory, ``depth`` levels deep, in the order of names.

        ``glob`` is matched with the path from there; ``hidden`` shows names that begin with a dot; at most ``limit``.
        """
        top = self.path(header).rstrip("/") or "/"
        limit, size = min(header.get("limit") or _MOST_LISTED, _MOST_LISTED), 0
        pattern, hidden = header.get("glob"), header.get("hidden", True)
        rows: list[bytes] = []
        waiting = [("", header.get("depth") or 1)]
        more = False
        os.close(open_at(top, os.O_RDONLY | os.O_DIRECTORY))
        while waiting and not more:
            folder, depth = waiting.pop()
            try:
                names = sorted(os.listdir(f"{top}/{folder}" if folder else top))
            except OSError:
                if not folder:
                    raise
                continue
            below = []
            for name in names:
                if name.startswith(".") and not hidden:
                    continue
                inside = f"{folder}/{name}" if folder else name
                path = f"{top.rstrip('/')}/{inside}"
                try:
                    info = os.lstat(path)
                except OSError:
                    continue
                if stat.S_ISDIR(info.st_mode) and depth > 1 and path not in ("/proc", "/dev"):
                    below.append((inside, depth - 1))
                if pattern is not None and not matches(inside, pattern):
                    continue
                row = json.dumps(describe(path, info)).encode()
                size += len(row) + 1
                if len(rows) >= limit or size > _MOST_BYTES:
                    more = True
                    break
                rows.append(row)
            waiting += reversed(below)
        return {"more": more}, b"[" + b",".join(rows) + b"]"


def matches(path: str, pattern: str) -> bool:
    """Shell pattern over a relative path: ``*`` stays in one directory, ``**`` crosses them."""
    return _matches(path.split("/"), pattern.split("/"))


def _matches(parts: list[str], wanted: list[str]) -> bool:
    reach = {0}  # numbers of patterns that may come next; no backtracking, so no pattern takes long
    for part in parts:
        step: set[int] = set()
        for at in _past_stars(reach, wanted):
            if at < len(wanted):
                if wanted[at] == "**":
                    step.add(at)
                elif fnmatch.fnmatchcase(part, wanted[at]):
                    step.add(at + 1)
        reach = step
    return len(wanted) in _past_stars(reach, wanted)


def _past_stars(reach: set[int], wanted: list[str]) -> set[int]:
    found = set(reach)
    for at in sorted(reach):
        while at < len(wanted) and wanted[at] == "**":
            at += 1
            found.add(at)
    return found


def describe(path: str, info: os.stat_result) -> dict[str, Any]:
    """A file as data."""
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink"))
    kind = next((name for test, name in kinds if test(info.st_mode)), "other")
    row = {
        "path": path,
        "kind": kind,
        "size": info.st_size,
        "mode": stat.S_IMODE(info.st_mode),
        "mtime_ns": info.st_mtime_ns,
    }
    if kind == "symlink":
        row["target"] = os.readlink(path)
    return row
