"""What a zygote hands to its jails, and what a case's process goes on with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .cgroups import Group


@dataclass(slots=True)
class Slot:
    """What a zygote hands to each of its jails."""

    control: int
    group: Group
    namespaces: bool
    box: str  # directory of the workspace where there is no mount namespace
    uid: int | None
    seccomp: bytes | None
    landlock_abi: int
    readable: list[str]
    python: str
    env: dict[str, str]
    preloaded: frozenset[str]
    features: dict[str, Any] = field(default_factory=dict)
    sentry: bool = False  # inside gVisor
    only: bool = False  # one sandbox's room, behind a wall of its own
    unset: tuple[int, ...] = ()  # resource limits that this kernel lets nobody set
    pace: float = 1.0  # CPU seconds that this machine counts for one of the host's
    uncounted: int = 0  # of a case's processes, those that its limit does not count


@dataclass(slots=True)
class Run:
    """How the child goes on after the walls are up; only ever seen in a case's process."""

    source: str | None = None  # a script to run in this warm interpreter
    argv: list[str] = field(default_factory=list)
    request: bytes | None = None
    cwd: str = "/workspace"
    piped: bool = False  # what was written to its stderr cannot be taken back
