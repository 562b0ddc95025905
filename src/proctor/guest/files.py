"""Files of a sandbox, for its owner: read, written and listed by its pid 1, inside its own root.

Every name is looked up in the sandbox's mount namespace, where nothing of the
host's can be reached, in the way that ``ways`` goes: no link of a program's
leads where the program may not go. Only regular files are opened; a named pipe
or a device is refused, so that nothing here waits for a program.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import os
import stat
import time
from collections.abc import Iterator
from typing import Any

from . import tree, ways
from .stream import high

PIECE = 1 << 20
MOST_OPEN = 64
_MOST_LISTED = 100_000
_MOST_BYTES = 15 << 20  # of a listing
_LIST_S = 5.0  # a listing that takes longer is cut: pid 1 does nothing else meanwhile


Place = tuple[int, str, str]  # of a file that is being written: its directory, its name meanwhile, its name then


class Refused(Exception):
    """A request that cannot be met: ``code`` and words for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def open_file(path: str, flags: int, user: int) -> tuple[int, ways.Way]:
    """Open a regular file or a directory; see ``ways``."""
    try:
        fd, way = ways.open_file(path, flags, user)
    except ValueError:
        raise Refused("not_a_file", f"{path!r} is no regular file") from None
    except BlockingIOError:
        raise Refused(
            "not_a_file", f"{path!r} cannot be opened: a program of the sandbox holds a lease on it"
        ) from None
    return high(fd), way


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
        with ways.find(self.path(header), self.uid, make=True) as way:
            was = None
            with contextlib.suppress(FileNotFoundError):
                was = os.lstat(way.name, dir_fd=way.folder)
            if was is not None and not stat.S_ISREG(was.st_mode):
                raise Refused("not_a_file", f"{way.path!r} is there and is no regular file")
            way.allow_change()
            part = f".{way.name[:100]}.{os.urandom(6).hex()}"
            self._room()
            folder = high(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=way.folder))
            try:
                made = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = high(os.open(part, made, dir_fd=folder))
            except BaseException:
                os.close(folder)
                raise
            os.fchmod(fd, mode & 0o1777 if mode is not None else stat.S_IMODE(was.st_mode) if was else 0o644)
            os.fchown(fd, self.uid, self.uid)
            return {"handle": self._keep(fd, (folder, part, way.name)), "path": way.path}

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
        fd, _ = open_file(self.path(header), os.O_RDONLY, self.uid)
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
        with ways.find(self.path(header).rstrip("/"), self.uid, make=True) as way:
            ways.mkdir(way, self.uid)
        return {}

    def remove(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """A file, a link, or with ``recursive`` a directory with all that is in it."""
        with self._last(header) as way:
            if not stat.S_ISDIR(os.lstat(way.name, dir_fd=way.folder).st_mode):
                os.unlink(way.name, dir_fd=way.folder)
            elif header.get("recursive"):
                tree.remove_live(way.folder, way.name)
            else:
                os.rmdir(way.name, dir_fd=way.folder)
        return {}

    def rename(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Move a file or a directory; what is at the new name is replaced as by rename(2)."""
        with self._last(header) as old, self._last(header, "to", make=True) as new:
            os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)
        return {}

    def chmod(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Set the permission bits of a file; no set-user or set-group bits."""
        fd, way = open_file(self.path(header), os.O_RDONLY, self.uid)
        try:
            if way.user >= 0 and os.fstat(fd).st_uid != way.user:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            os.fchmod(fd, header["mode"] & 0o1777)
        finally:
            os.close(fd)
        return {}

    def stat(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """What a path is; a link is followed unless ``link``."""
        path = self.path(header).rstrip("/") if header.get("link") else self.path(header)
        with ways.find(path, self.uid, follow=not header.get("link")) as way:
            return {"info": describe(self.path(header), way.folder, way.name)}

    @contextlib.contextmanager
    def _last(self, header: dict[str, Any], key: str = "path", make: bool = False) -> Iterator[ways.Way]:
        """The way to a name that is to be taken away or made, its last link not followed."""
        with ways.find(self.path(header, key).rstrip("/"), self.uid, follow=False, make=make) as way:
            if way.name == ".":  # a way that ends in .. or at the root
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            way.allow_change()
            yield way

    def list(self, header: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """What is below a directory, ``depth`` levels deep, in the order of names.

        ``glob`` is matched with the path from there; ``hidden`` shows names that begin with a dot; at most ``limit``, and what
        is found in some seconds: ``more`` tells that there is more.
        """
        top = self.path(header).rstrip("/")
        limit, size = min(header.get("limit") or _MOST_LISTED, _MOST_LISTED), 0
        pattern, hidden = header.get("glob"), header.get("hidden", True)
        rows: list[bytes] = []
        waiting = [("", header.get("depth") or 1)]
        more = False
        begin, way = open_file(top or "/", os.O_RDONLY | os.O_DIRECTORY, self.uid)
        tree = ways.Below(begin, way)
        end = time.monotonic() + _LIST_S
        try:
            while waiting and not more:
                inside, depth = waiting.pop()
                try:
                    names = sorted(os.listdir(tree.enter(inside)))
                except OSError:
                    if not inside:
                        raise
                    continue
                below = []
                for name in names:
                    if name.startswith(".") and not hidden:
                        continue
                    path = f"{inside}/{name}" if inside else name
                    try:
                        info = describe(f"{top}/{path}", tree.last, name)
                    except OSError:
                        continue
                    if info["kind"] == "directory" and depth > 1 and f"{top}/{path}" not in ("/proc", "/dev"):
                        below.append((path, depth - 1))
                    if pattern is not None and not matches(path, pattern):
                        continue
                    row = json.dumps(info).encode()
                    size += len(row) + 1
                    if len(rows) >= limit or size > _MOST_BYTES:
                        more = True
                        break
                    rows.append(row)
                waiting += reversed(below)
                more = more or (bool(waiting) and time.monotonic() > end)
        finally:
            tree.close()
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


def describe(path: str, folder: int, name: str) -> dict[str, Any]:
    """A file in an open directory as data; ``path`` is what it is called."""
    info = os.lstat(name, dir_fd=folder)
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
        row["target"] = os.readlink(name, dir_fd=folder)
    return row
