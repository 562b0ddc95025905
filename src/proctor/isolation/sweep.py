"""Remove what agents may have left: only after all of their guards were killed at once."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from proctor.core.process import pid_namespace, start_time

PREFIX = "proctor-"
BOXES = Path(tempfile.gettempdir())
NOBODY = -1  # instead of an identity: its processes on the host are known by their names alone, whoever they run as


def owner_prefix() -> str:
    """Beginning of the names that this process gives."""
    return f"{PREFIX}{os.getpid()}-{start_time(os.getpid())}-{pid_namespace()}-"


def is_stale(name: str) -> bool:
    """The process that gave this name is no more. Names of other containers, and of others, never are."""
    parts = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or len(parts) != 6 or not parts[0].isdigit() or parts[2] != pid_namespace():
        return False
    start = start_time(int(parts[0]))
    return start != parts[1] and (bool(start) or _is_gone(int(parts[0])))


def _is_gone(pid: int) -> bool:
    """Not only unseen, as where no more files can be opened or /proc hides it: its agents would be killed."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass
    return False


@cache
def parents() -> tuple[str, ...]:
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
    for parent in parents():
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(parent)):
                if is_stale(entry.name):
                    remove_group(entry.path)
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(BOXES)):
            if is_stale(entry.name):
                remove_box(entry.path)


def remove_group(path: str) -> bool:
    """Kill what is in a control group and remove it; False while something in it is still dying."""
    with contextlib.suppress(OSError, ValueError):
        for word in Path(f"{path}/cgroup.procs").read_text().split():
            if int(word) > 1:  # 0 is a process that this container cannot see, and to kill it would be to kill ours
                os.kill(int(word), signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.rmdir(path)
    return not os.path.isdir(path)


def remove_box(path: str) -> bool:
    """Remove a directory of this user with all that is in it; never follows a link."""
    try:
        if os.lstat(path).st_uid != os.geteuid() or not _is_dir(path):
            return True  # somebody else's: no concern of ours
    except OSError:
        return True
    with contextlib.suppress(OSError):
        _empty(path)
        os.rmdir(path)
    return not os.path.lexists(path)


def _is_dir(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _empty(top: str) -> None:
    """Directories are moved up to the top before they are emptied: a program may nest them without end."""
    number, waiting = 0, True
    while waiting:
        waiting = False
        for entry in list(os.scandir(top)):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, 0o700)
                    number, waiting = number + 1, True
                    os.rename(inner.path, f"{top}/.swept-{number}")
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)


def _strays(name: str, identity: int) -> Iterator[int]:
    """Processes of an agent without namespaces that its end did not take along.

    Most of root's have a user of their own. The rest is known by its arguments,
    environment or directory, as long as it did not hide all three.
    """
    root, word = os.geteuid() == 0, os.fsencode(name)
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        place = f"/proc/{entry}"
        with contextlib.suppress(OSError):
            user = os.stat(place).st_uid
            named = identity == NOBODY and root
            if not named and (
                (root and user not in (0, identity, identity + 1)) or (not root and user != os.geteuid())
            ):
                continue
            ours = (
                (root and user != 0 and not named)
                or word in os.fsencode(os.readlink(f"{place}/cwd"))
                or any(word in Path(f"{place}/{file}").read_bytes() for file in ("cmdline", "environ"))
            )
            if ours and not _reaped(int(entry)):
                yield int(entry)


def _reaped(pid: int) -> bool:
    """It is dead already. As pid 1 of a container this process inherits such ones, and nobody else collects them."""
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def remove_named(name: str, identity: int) -> bool:
    """Remove what an agent whose supervisor was killed had made; False while something is still dying."""
    strays = list(_strays(name, identity))
    for pid in strays:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    groups = [remove_group(f"{parent}/{name}") for parent in parents() if os.path.isdir(f"{parent}/{name}")]
    return not strays and all(groups) and remove_box(str(BOXES / name))
