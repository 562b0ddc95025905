"""What happened in one case, before anybody judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class EndedBy(StrEnum):
    """Which limit ended a case; a program that ended by itself has none."""

    CPU = "cpu_time"
    WALL = "wall_time"
    MEMORY = "memory"
    OUTPUT = "output"
    CANCELLED = "cancelled"
    NOT_RUN = "not_run"  # the program had already exceeded its time limit too often in this job


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case, as it was observed from outside the program.

    Attributes:
        exit_code: the status it left with, None when a signal ended it.
        signal: number of the signal that ended it, else None.
        stdout, stderr: what it wrote, up to what the limits keep.
        stdout_truncated, stderr_truncated: more was written than was kept.
        cpu_s: CPU seconds of the whole process tree.
        wall_s: seconds from start to end.
        waited_s: those of them that counted towards no wall limit: it waited for a busy CPU.
        peak_memory_bytes: highest memory of the tree, None where this host cannot tell.
        ended_by: the limit that ended it, if one did.
        result: bytes that the call or test harness wrote beside stdout.
        steady: results of the harness still came in after half of the CPU limit:
            how many there are in the end depends on the speed of the host.
        left_processes: processes that were still there when the main one ended.
        stdin_read: bytes of its standard input that it had read (0 also where it read them in a way that leaves no
            trace); None where there were none.
        compile_failed: this is the outcome of a compilation that failed; the
            cases after it never ran.
        files: name -> content of the files that the case asked for and that are there.
        confirmed: a limit that was seen again when the case ran alone.
        error: the infrastructure's own fault; every other field is then void.
    """

    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    cpu_s: float = 0.0
    wall_s: float = 0.0
    waited_s: float = 0.0
    peak_memory_bytes: int | None = None
    ended_by: EndedBy | None = None
    result: bytes = b""
    steady: bool = False
    left_processes: int = 0
    stdin_read: int | None = None
    compile_failed: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    confirmed: bool = False
    error: str | None = None

    @property
    def ok(self) -> bool:
        """It ran to its own end with exit status 0."""
        return self.error is None and self.exit_code == 0 and self.ended_by is None
