"""This host's side of uploads and downloads: nothing outside the directory that was named is read or written.

A sandbox chooses what its files are called and what they are; so each name is
one step, opened in the directory before it, and no link is followed or made.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import IO

from proctor.client.errors import InvalidRequestError, NotFoundError, invalid

PIECE = 1 << 20
MOST_FILES = 100_000
MOST_DEEP = 64
MOST_LONG = 2048  # bytes of a path below the directory: what is longer, ordinary tools cannot name or remove
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Source:
    """Something to upload: ``inside`` is its path below the directory, ``skip`` why it is left out."""

    inside: str
    folder: bool = False
    skip: str | None = None


def is_folder(path: str) -> bool:
    """Whether a directory is to be uploaded; NotFoundError where there is nothing."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as exc:
        raise NotFoundError(f"local_path: {path!a} cannot be read: {exc.strerror}", code="not_found") from exc


def sources(top: str) -> list[Source]:
    """All that is below a directory, in order. Links to files that lie in it count as those files."""
    real = os.path.realpath(top)
    found: list[Source] = []
    for here, folders, files in os.walk(real):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = os.path.join(here, name)
            inside = os.path.relpath(path, real)
            kind = os.lstat(path).st_mode
            if stat.S_ISLNK(kind):
                target = os.path.realpath(path)
                if not target.startswith(real.rstrip("/") + "/"):
                    found.append(Source(inside, skip="a link that leads out of the directory"))
                elif not os.path.isfile(target):
                    found.append(Source(inside, skip="a link to something that is no file"))
                else:
                    found.append(Source(inside))
            elif stat.S_ISDIR(kind):
                found.append(Source(inside, folder=True))
            elif stat.S_ISREG(kind):
                found.append(Source(inside))
            else:
                found.append(Source(inside, skip="no regular file"))
        if len(found) > MOST_FILES:
            raise InvalidRequestError(f"local_path: there are more than {MOST_FILES} files in {top!a}", status=400)
    return found


def open_source(top: str, inside: str | None) -> tuple[IO[bytes], int]:
    """Open a file to upload: ``top`` itself, or one below it; with its permission bits."""
    if inside is None:
        path = top
    else:
        real = os.path.realpath(top)
        path = os.path.realpath(os.path.join(real, inside))
        if not path.startswith(real.rstrip("/") + "/"):
            raise invalid("local_path", inside, "it became a link out of the directory meanwhile")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if inside is not None else 0))
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise invalid("local_path", path, "give a regular file or a directory")
    return os.fdopen(fd, "rb", buffering=0), stat.S_IMODE(info.st_mode) & 0o777


def safe_step(name: str) -> bool:
    """Whether a name from a sandbox is one step down and nothing else."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def too_deep(steps: list[str]) -> bool:
    """Whether a directory lies too deep, or its path is too long, to be brought here with what is in it."""
    return len(steps) > MOST_DEEP or len(os.fsencode("/".join(steps))) > MOST_LONG


class Target:
    """A directory of this host that is filled from a sandbox.

    Args:
        path: made where it is missing; only its parent must be there.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)
        self.top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.top)

    def _folder(self, steps: list[str]) -> int:
        here = os.dup(self.top)
        for step in steps:
            try:
                below = os.open(step, _FOLDER, dir_fd=here)
            finally:
                os.close(here)
            here = below
        return here

    def make(self, steps: list[str]) -> None:
        """A directory; one that is there stays."""
        here = self._folder(steps[:-1])
        try:
            try:
                os.mkdir(steps[-1], 0o755, dir_fd=here)
            except FileExistsError:
                os.close(os.open(steps[-1], _FOLDER, dir_fd=here))
        finally:
            os.close(here)

    def create(self, steps: list[str], mode: int) -> Part:
        """A new file for the place of what has its name."""
        here = self._folder(steps[:-1])
        try:
            return Part(here, steps[-1], mode)
        except BaseException:
            os.close(here)
            raise


class Part:
    """A file that comes beside the place it is for, and takes that only when it is whole: until ``keep`` nothing is lost.

    A file or a link that has the name then goes, and is not followed. Leaving the block without ``keep`` gives it up.

    Args:
        folder: descriptor of the directory; owned from here on.
    """

    def __init__(self, folder: int, name: str, mode: int) -> None:
        self.folder, self.name = folder, name
        self.part: str | None = f".{name[:40]}.{os.urandom(6).hex()}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.part, flags, 0o777 if mode & 0o100 else 0o666, dir_fd=folder)
        self._file = os.fdopen(fd, "wb", buffering=0)

    def write(self, piece: bytes) -> None:
        """More of it."""
        view = memoryview(piece)
        while view:
            view = view[self._file.write(view) :]

    def keep(self) -> None:
        """It is whole: put it in its place."""
        assert self.part is not None
        try:
            os.rename(self.part, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except OSError as exc:
            raise invalid("local_path", self.name, f"it cannot be replaced: {exc.strerror}; give another") from exc
        self.part = None

    def close(self) -> None:
        """Let go of it, and remove what was not kept."""
        self._file.close()
        if self.part is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.part, dir_fd=self.folder)
        if self.folder >= 0:
            os.close(self.folder)
        self.folder = -1

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def part_at(path: str, mode: int) -> Part:
    """A new file for a path; the SDK's errors where there can be none."""
    above, name = os.path.split(path)
    if not name or (os.path.isdir(path) and not os.path.islink(path)):
        raise invalid("local_path", path, "it is a directory; give the name that the file is to have")
    try:
        folder = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise NotFoundError(
            f"local_path: directory {above!a} cannot be opened: {exc.strerror}", code="not_found"
        ) from exc
    try:
        return Part(folder, name, mode)
    except OSError as exc:
        os.close(folder)
        raise invalid("local_path", path, f"no file can be made there: {exc.strerror}; give another") from exc
