"""The way to a file of a sandbox, gone name by name, for its owner.

Who asks is the owner, and pid 1 may do everything in the sandbox. So a link
that its user has left where the owner will look, or write, must not lead where
that user may not go itself: beyond such a link each step is one that the user
could have made. Links of root's own lead anywhere in the sandbox, but for
those of /proc, which would lead into this process. Directories are held open
as they are passed, so that nothing that is moved meanwhile leads elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from . import linux

PROC, SYS = 0x9FA0, 0x62656572
READ, WRITE, SEARCH = 4, 2, 1
_MOST_LINKS = 40  # as the kernel's own
_MOST_HELD = 64  # open directories
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(slots=True)
class Way:
    """Where a path has led.

    Attributes:
        folder: descriptor of the open directory that the last name is in.
        name: the last name, "." where that is the directory itself; no link unless it was not to be followed.
        user: whose steps have to be allowed, since a link of this user's was on the way; -1 for nobody's.
        path: absolute, without links.
    """

    folder: int
    name: str
    user: int
    path: str

    def allow(self, info: os.stat_result, wanted: int) -> None:
        """See that ``wanted`` (READ, WRITE, SEARCH added up) of a file is the user's to do; PermissionError if not."""
        if self.user < 0:
            return
        shift = 6 if info.st_uid == self.user else 3 if info.st_gid == self.user else 0
        if info.st_mode >> shift & wanted != wanted:
            raise PermissionError(errno.EACCES, "a link of the sandbox's user leads where that user may not go")

    def allow_change(self) -> None:
        """See that the last name is the user's to make, replace or take away."""
        folder = os.fstat(self.folder)
        self.allow(folder, WRITE | SEARCH)
        if self.user < 0 or not folder.st_mode & stat.S_ISVTX or folder.st_uid == self.user:
            return
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(self.name, dir_fd=self.folder).st_uid != self.user:
                raise PermissionError(errno.EACCES, "a link of the sandbox's user leads to what is another's")


@contextlib.contextmanager
def find(path: str, user: int, *, follow: bool = True, make: bool = False) -> Iterator[Way]:
    """Go to where an absolute path leads; the directory is open meanwhile.

    Args:
        user: of the sandbox; links of its lead only where it may go.
        follow: the last name as well.
        make: directories that are missing on the way, for ``user``.

    Raises:
        OSError: there is no such way; ELOOP beyond 40 links, or at a link in /proc.
    """
    way = Way(os.open("/", _DIRECTORY), ".", -1, "/")
    names, links = [name for name in reversed(path.split("/")) if name not in ("", ".")], 0
    below: list[str] = []  # what the directory's path is made of
    try:
        while names:
            way.name = names.pop()
            way.allow(os.fstat(way.folder), SEARCH)
            try:
                info = None if way.name == ".." else os.lstat(way.name, dir_fd=way.folder)
            except FileNotFoundError:
                if not names:
                    break
                if not make:
                    raise
                mkdir(way, user)
                info = None
            if info is not None and stat.S_ISLNK(info.st_mode) and (names or follow):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                found = _link(way, user, plain=below == ["proc"])
                if found is None:
                    names.append(way.name)  # it is no link any more
                    continue
                target, owner = found
                if owner == user:
                    way.user = user
                if target.startswith("/"):
                    _step(way, os.open("/", _DIRECTORY))
                    below.clear()
                names += [name for name in reversed(target.split("/")) if name not in ("", ".")]
                way.name = "."
            elif names or way.name == "..":
                _step(way, os.open(way.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=way.folder))
                if way.name == "..":
                    del below[-1:]
                else:
                    below.append(way.name)
                way.name = "."
        if way.name != "." and path.endswith(("/", "/.")):
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(os.lstat(way.name, dir_fd=way.folder).st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        way.path = "/" + "/".join([*below, *([] if way.name == "." else [way.name])])
        yield way
    finally:
        os.close(way.folder)


def mkdir(way: Way, user: int) -> None:
    """See that the last name of a way is a directory: one that is made is the user's."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(way.name, dir_fd=way.folder).st_mode):
            return
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    way.allow_change()
    os.mkdir(way.name, 0o755, dir_fd=way.folder)
    made = os.open(way.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=way.folder)
    try:
        if not os.listdir(made):  # else a program has put another in its place
            os.fchown(made, user, user)
    finally:
        os.close(made)


def open_file(path: str, flags: int, user: int) -> tuple[int, Way]:
    """Open a regular file or a directory by its way, which is over by then; it may be read by whose way it is.

    Raises:
        OSError: there is none, or it may not be.
        ValueError: it is of another kind, or lies in /proc or /sys.
    """
    for _ in range(_MOST_LINKS):
        with find(path, user) as way:
            try:
                fd = os.open(
                    way.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=way.folder
                )
            except OSError as exc:
                if exc.errno == errno.ELOOP:
                    continue  # it has become a link meanwhile
                raise
        try:
            info = os.fstat(fd)
            if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)) or linux.filesystem(fd) in (PROC, SYS):
                raise ValueError("no regular file")
            way.allow(info, READ)
        except BaseException:
            os.close(fd)
            raise
        return fd, way
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


class Below:
    """Directories below an open one, entered in any order; none through a link.

    Those on the way to the last are held, so that its siblings and what is in it are one step away.

    Args:
        top: descriptor of that directory, closed with this.
        way: by which it was found.
    """

    def __init__(self, top: int, way: Way) -> None:
        self._way = way
        self._held: list[tuple[list[str], int]] = [([], top)]

    @property
    def last(self) -> int:
        """Descriptor of the directory that was entered last."""
        return self._held[-1][1]

    def enter(self, path: str) -> int:
        """Open a directory by its path from the top; "" is the top.

        Raises:
            OSError: it is not there any more, is a link by now, or whose way it is may not read it.
        """
        names = path.split("/") if path else []
        while self._held[-1][0] != names[: len(self._held[-1][0])]:
            os.close(self._held.pop()[1])
        for count in range(len(self._held[-1][0]), len(names)):
            self._way.allow(os.fstat(self.last), SEARCH)
            fd = os.open(names[count], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.last)
            self._held.append((names[: count + 1], fd))
            if len(self._held) > _MOST_HELD:
                os.close(self._held.pop(1)[1])
        self._way.allow(os.fstat(self.last), READ)
        return self.last

    def close(self) -> None:
        """Close all."""
        while self._held:
            os.close(self._held.pop()[1])


def _step(way: Way, fd: int) -> None:
    os.close(way.folder)
    way.folder = fd


def _link(way: Way, user: int, *, plain: bool) -> tuple[str, int] | None:
    """Where a link leads and whose it is, of one moment; None where the name is no link any more.

    Args:
        plain: it is one of /proc's own few that name a path.
    """
    link = os.open(way.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=way.folder)
    try:
        info = os.fstat(link)
        if not stat.S_ISLNK(info.st_mode):
            return None
        if linux.filesystem(link) in (PROC, SYS) and not plain:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        try:
            return os.readlink("", dir_fd=link), info.st_uid
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.EINVAL, errno.ENOTDIR):
                raise
        # gVisor reads no link by its descriptor. By its name it may be another by now, if its directory is not root's.
        folder = os.fstat(way.folder)
        anybodys = folder.st_uid != 0 or folder.st_mode & 0o022
        return os.readlink(way.name, dir_fd=way.folder), user if anybodys else info.st_uid
    finally:
        os.close(link)
