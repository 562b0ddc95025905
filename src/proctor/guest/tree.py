"""Directories that a program has left: read them or remove them without being led astray.

Only called after every process of the program is dead, so nothing moves
meanwhile; only ``remove_live`` minds that it may. Names are bytes; links are
never followed.
"""

from __future__ import annotations

import errno
import os
import stat

_DEEP = 32  # directories open one in the other
_MOST = 1 << 22  # entries, where a file system bounds none
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: bytes, keep: bool = False) -> None:
    """Remove a tree of any depth, width and mode; ``keep`` leaves the empty top.

    Directories are moved into a new one beside the top before they are emptied,
    so neither the length of a path nor recursion bounds the depth. Beside it,
    because in it every name may be taken by the program.
    """
    os.chmod(path, 0o700)  # before anything is made: FileNotFoundError where there is nothing to remove
    heap = os.path.join(os.path.dirname(path.rstrip(b"/")), b".removed-" + os.urandom(8).hex().encode())
    os.mkdir(heap, 0o700)
    count = 0

    def empty(folder: bytes) -> None:
        nonlocal count
        with os.scandir(folder) as entries:
            listing = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_dir in listing:
            inside = os.path.join(folder, name)
            if is_dir:
                os.chmod(inside, 0o700)  # a directory that may not be written cannot be moved
                count += 1
                os.rename(inside, os.path.join(heap, b"%d" % count))
            else:
                os.unlink(inside)

    empty(path)
    while waiting := os.listdir(heap):
        for name in waiting:
            empty(os.path.join(heap, name))
            os.rmdir(os.path.join(heap, name))
    os.rmdir(heap)
    if not keep:
        os.rmdir(path)


def remove_live(above: int, name: str) -> None:
    """Remove a tree while programs may rename, link and make what they like in it.

    Each directory is opened by its name in the one above, never through a link,
    and all is done in what was opened: so nothing goes that a program could not
    have moved there. One that lies too deep moves up to the top first. Nothing
    is made, since there may be no room for it.

    Args:
        above: the open directory that the tree lies in.

    Raises:
        OSError: EBUSY or ENOTEMPTY where programs make more than is removed.
    """
    top = _enter(above, name)
    try:
        _Live(top).remove()
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=above)


def _enter(above: int, name: str) -> int:
    """Open a directory, whatever its mode."""
    try:
        return os.open(name, _FOLDER | os.O_RDONLY, dir_fd=above)
    except PermissionError:
        found = os.open(name, _FOLDER | os.O_PATH, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{found}", 0o700)
        return os.open(".", _FOLDER | os.O_RDONLY, dir_fd=found)
    finally:
        os.close(found)


class _Live:
    def __init__(self, top: int) -> None:
        self.top = top
        self.left = 2 * os.fstatvfs(top).f_files or _MOST
        self.moved: list[str] = []

    def remove(self) -> None:
        self.empty(self.top, 0)
        while self.moved:
            self.folder(self.top, self.moved.pop(), 0)

    def empty(self, folder: int, depth: int) -> None:
        os.fchmod(folder, 0o700)
        for name in os.listdir(folder):
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            try:
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                continue
            except (IsADirectoryError, PermissionError):
                self.folder(folder, name, depth)

    def folder(self, above: int, name: str, depth: int) -> None:
        try:
            found = _enter(above, name)
        except FileNotFoundError:
            return
        try:
            if depth < _DEEP:
                self.empty(found, depth + 1)
                os.rmdir(name, dir_fd=above)
            else:
                os.fchmod(found, 0o700)  # else it may not be moved
                aside = f".removed-{os.urandom(8).hex()}"
                os.rename(name, aside, src_dir_fd=above, dst_dir_fd=self.top)
                self.moved.append(aside)
        except FileNotFoundError:
            pass  # a program was faster
        finally:
            os.close(found)


def collect(
    path: str, most_bytes: int, most_files: int, names: frozenset[str] | None = None
) -> dict[str, tuple[bytes, bool]]:
    """Regular files below ``path``, or those of them in ``names``: name -> (content, executable).

    Links, devices, pipes and files with a second name are left out; OSError
    (EFBIG) when there is more than the bounds.
    """
    found: dict[str, tuple[bytes, bool]] = {}
    total, waiting = 0, [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(os.path.join(path, folder) if folder else path) as entries:
            listing = sorted(entry.name for entry in entries)
        for name in listing:
            inside = f"{folder}/{name}" if folder else name
            info = os.lstat(f"{path}/{inside}")
            if stat.S_ISDIR(info.st_mode) and inside.count("/") < 32:
                waiting.append(inside)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or (names is not None and inside not in names):
                continue
            total += info.st_size
            if total > most_bytes or len(found) >= most_files:
                raise OSError(27, "the program's files are too many or too large")
            fd = os.open(f"{path}/{inside}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                with open(fd, "rb", closefd=False) as file:
                    content = file.read(info.st_size)
            finally:
                os.close(fd)
            found[inside] = (content, bool(info.st_mode & 0o111))
    return found
