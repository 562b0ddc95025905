"""Bounds of one case."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from proctor.core.errors import InputError

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one case; each holds for the whole process tree.

    Attributes:
        cpu_s: CPU seconds, user and system, of all processes together.
        wall_s: seconds that the case may last, the time spent waiting for a
            busy CPU not counted; None gives ``2 * cpu_s + 3``.
        memory_mib: MiB of memory, the files in the workspace included.
        processes: processes and threads at once.
        open_files: file descriptors a process.
        workspace_mib: MiB of files in the workspace and /tmp together.
        workspace_inodes: files and directories there.
        output_bytes: bytes a stream (stdout, stderr); a program that writes
            more is ended.
        stdout_keep: bytes of stdout that come back; None keeps all that the
            limit allows.
        stderr_keep: bytes of stderr that come back.
    """

    cpu_s: float = 10.0
    wall_s: float | None = None
    memory_mib: int = 512
    processes: int = 64
    open_files: int = 256
    workspace_mib: int = 64
    workspace_inodes: int = 4096
    output_bytes: int = 16 * MIB
    stdout_keep: int | None = None
    stderr_keep: int = 64 * KIB

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name in ("wall_s", "stdout_keep"):
                continue
            kinds = (int, float) if name in ("cpu_s", "wall_s") else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
                raise InputError(f"{value!r} is not a number from {low} to {high}", field=name)

    @property
    def wall(self) -> float:
        """Seconds of wall time allowed, the default filled in."""
        return 2 * self.cpu_s + 3 if self.wall_s is None else self.wall_s

    def with_(self, **changes: Any) -> Limits:
        """A copy with some fields changed; an unknown name is an InputError."""
        known = {f.name for f in fields(self)}
        for name in changes:
            if name not in known:
                raise InputError(f"unknown limit; known are {', '.join(sorted(known))}", field=name)
        return replace(self, **changes)


_RANGES: dict[str, tuple[float, float]] = {
    "cpu_s": (0.01, 86_400),
    "wall_s": (0.01, 604_800),
    "memory_mib": (16, 1 << 20),
    "processes": (1, 30_000),
    "open_files": (16, 65_536),
    "workspace_mib": (1, 1 << 20),
    "workspace_inodes": (16, 10_000_000),
    "output_bytes": (0, 1 << 30),
    "stdout_keep": (0, 1 << 30),
    "stderr_keep": (0, 1 << 30),
}
