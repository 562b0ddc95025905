"""What a level does not do, said beforehand with the reason: everything else that fails is a fault.

A declaration excuses one check on one level, where the level's own features
are as it says, and only for the failure that it describes. What this host
failed on is never excused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Features = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One thing that a level does not do.

    Attributes:
        level: of ``proctor.isolation.base.LEVELS``, but for ``auto``.
        check: its key.
        why: the reason, for users.
        shown: a pattern that is found in what the check then says.
        where: the features with which it is so; None: always.
    """

    level: str
    check: str
    why: str
    shown: str
    where: Callable[[Features], bool] | None = None


def _lacks(name: str) -> Callable[[Features], bool]:
    return lambda features: not features.get(name)


_UNMETERED = (
    "without a control group that meters CPU, every child has to stay to be counted: SIGCHLD keeps its default, and "
    "setting it does nothing"
)
_EMULATED = (
    "where no KVM is, a machine's clocks count what its emulated CPU took, and the outcome what that would have been on this "
    "host: a program that computes until its own clock says so has used less"
)
_MICROVM: tuple[Declaration, ...] = tuple(
    Declaration(
        level="microvm",
        check=check,
        shown=r"^CPU seconds 0\.\d+ is not between",
        why=_EMULATED,
        where=lambda features: float(features.get("pace") or 1) > 1,
    )
    for check in ("cpu_within", "cpu_clocks")
)
_GVISOR: tuple[Declaration, ...] = (
    Declaration(
        level="gvisor",
        check="inodes",
        shown=r"^got \d+ of \d+ files",
        why="this build of runsc has no bound on the number of files; memory bounds them",
        where=_lacks("inodes"),
    ),
    Declaration(
        level="gvisor",
        check="proc_of_its_own",
        shown=r"True \[b'-\w+'\] True True.*\(warm\)$",
        why="nobody may set what /proc/self/cmdline shows: in a warm interpreter it is the agent's",
    ),
    Declaration(
        level="gvisor",
        check="stopped_child",
        shown=r"^[01] instead of 2\b",
        why="gVisor hangs up on a stopped child when the program ends, so it is gone before anything is counted as left",
    ),
    Declaration(
        level="gvisor",
        check="own_abstract_sockets",
        shown=r"Invalid argument",
        why="gVisor has no abstract names in a network namespace of a case's own",
    ),
    Declaration(
        level="gvisor",
        check="own_loopback",
        shown=r"^stdout is 'connected",
        why="the case's own network namespace has a loopback, which nobody else reaches",
    ),
    *(
        Declaration(
            level="gvisor",
            check=check,
            shown=r"^got \d+ of \d+ MiB",
            why="memory is looked at every 2 to 10 ms from inside: a program gets beyond its limit for a moment",
        )
        for check in ("memory", "memory_tree")
    ),
)

_DEGRADED: tuple[Declaration, ...] = (
    Declaration(
        level="degraded",
        check="multiprocessing_pool",
        shown=r"PermissionError: \[Errno 13\]",
        why="/dev/shm is the host's and out of reach, and semaphores between processes live there",
    ),
    Declaration(
        level="degraded",
        check="interpreter_state",
        shown=r"^warm, .* and real interpreter, .* differ: stdout .* False \d+ \d+\\n' and .* False \d+ \d+\\n'$",  # finders
        why="the host's own packages cannot be hidden: their .pth files run in a real interpreter, and not in a warm one",
    ),
    Declaration(
        level="degraded",
        check="workspace",
        shown=r"^got \d+ of \d+ MiB",
        why="the workspace is a directory of the host's: the size of a file is bounded, their sum is not",
    ),
    Declaration(
        level="degraded",
        check="inodes",
        shown=r"^got \d+ of \d+ files",
        why="the workspace is a directory of the host's: the number of files is not bounded",
    ),
    Declaration(
        level="degraded",
        check="workspace_path",
        shown=r"^stdout is '/\S+/workspace /",
        why="without mounts the workspace has the path that it has on the host; HOME names it, and TMPDIR its temporary directory",
    ),
    Declaration(
        level="degraded",
        check="modes_and_times",
        shown=r"PermissionError: \[Errno 1\]",
        why="what passes Landlock is refused by the filter: chmod, chown, utime and truncate by path, of own files as well",
    ),
    Declaration(
        level="degraded",
        check="proc_of_its_own",
        shown=r"PermissionError: \[Errno 13\]",
        why="/proc is the host's, so there is none",
    ),
    *(
        Declaration(
            level="degraded",
            check=check,
            shown=r"Address family not supported",
            why="sockets would be the host's: there are connected pairs of streams, and no others",
        )
        for check in ("own_unix_sockets", "own_abstract_sockets")
    ),
    *(
        Declaration(
            level="degraded",
            check=check,
            shown=shown,
            why="without a control group or an identity of its own the limit counts the user's other processes too, and is coarse",
            where=lambda features: not features.get("pids") and not features.get("root"),
        )
        for check, shown in (
            ("processes_limit", r"^got \d+ of \d+ processes"),
            ("processes_exact", r"^case 1: stdout is '\d+"),
            ("threads_exact", r"^case 1: stdout is '\d+"),
        )
    ),
)

DECLARED: tuple[Declaration, ...] = (
    *_GVISOR,
    *_MICROVM,
    *_DEGRADED,
    *(
        Declaration(level=level, check="children_told", shown=r"^stdout is '\[\]", why=_UNMETERED, where=_lacks("cpu"))
        for level in ("jail", "degraded", "gvisor")
    ),
)


def declaration(check: str, level: str, features: Features) -> Declaration | None:
    """What a level with these features declares about a check."""
    for one in DECLARED:
        if (one.check, one.level) == (check, level) and (one.where is None or one.where(features)):
            return one
    return None


def excuses(one: Declaration, fault: str) -> bool:
    """The declaration is about this failure."""
    return re.search(one.shown, fault) is not None
