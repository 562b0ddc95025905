"""Remove what agents of dead engines may have left: only after all of its guards were killed at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from functools import cache
from pathlib import Path

PREFIX = "proctor-"
BOXES = Path(tempfile.gettempdir())


def start_time(pid: int) -> str:
    """Start of a process in clock ticks since boot: with its number, a name that is never reused."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def owner_prefix() -> str:
    """Beginning of the names that this process gives."""
    return f"{PREFIX}{os.getpid()}-{start_time(os.getpid())}-"


def is_stale(name: str) -> bool:
    """The process that gave this name is no more."""
    parts = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or len(parts) < 5 or not parts[0].isdigit():
        return False
    return start_time(int(parts[0])) != parts[1]


@cache
def _parents() -> tuple[str, ...]:
    """Directories in which agents of this user make control groups."""
    places = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ()
    for line in own:
        _, names, path = line.split(":", 2)
        for name in (names or "unified").split(","):
            for root in (f"/sys/fs/cgroup/{name}", "/sys/fs/cgroup"):
                places.update((root + path.rstrip("/"), os.path.dirname(root + path.rstrip("/"))))
    return tuple(sorted(place for place in places if os.path.isdir(place)))


def sweep() -> None:
    """Remove stale control groups and directories; silent about those of other users."""
    for parent in _parents():
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(parent)):
                if is_stale(entry.name):
                    remove_group(entry.path)
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(BOXES)):
            if is_stale(entry.name) and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)


def remove_group(path: str) -> None:
    """Kill what is in a control group and remove it."""
    with contextlib.suppress(OSError, ValueError):
        for pid in Path(f"{path}/cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def remove_named(name: str) -> None:
    """Remove what an agent whose supervisor was killed had made."""
    for parent in _parents():
        if os.path.isdir(f"{parent}/{name}"):
            remove_group(f"{parent}/{name}")
    box = BOXES / name
    if box.is_dir() and not box.is_symlink():
        shutil.rmtree(box, ignore_errors=True)
