"""The file of a cache: where it lies, and whose it is."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

FORMAT = 1


class NotACache(Exception):
    """The file is something else, or somebody else's."""


def default_path() -> Path:
    """Under ``XDG_CACHE_HOME``, or ``~/.cache`` where that is not set."""
    told = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(told) if os.path.isabs(told) else Path.home() / ".cache"
    return base / "proctor" / f"grades-{FORMAT}.sqlite"


def is_there(path: Path) -> bool:
    """Something has that name. OSError where that cannot be known."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def check_file(path: Path, *, make_folder: bool) -> None:
    """Make it, readable by this user alone, or see that it is this user's: whoever writes there decides rewards.

    Raises:
        NotACache: it is something else, another user's, or in a folder that is not there.
        OSError: it cannot be looked at, or made.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        if make_folder:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not path.parent.is_dir():
            raise NotACache(f"there is no folder {path.parent}") from None
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise NotACache("it is not a regular file")
    if found.st_uid not in (os.geteuid(), 0):
        raise NotACache("it belongs to another user, who could write any reward into it")
