"""What is asked of a sandbox, and what it answers: the same through every door (in this process, or over HTTP)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from proctor.core.errors import ProctorError

KIB, MIB = 1 << 10, 1 << 20
OUTPUT_KEPT = 64 * KIB  # bytes of each stream in the result of a command that is not streamed
OUTPUT_KEPT_LONG = 1 * MIB  # of one whose time limit is over LONG_S
LONG_S = 60.0
# MiB beyond its files that a sandbox always has: else one that filled its disk would leave nothing for its own pid 1.
FLOOR_MIB = 96


class State(StrEnum):
    """Of a sandbox. A stopped one keeps its record, and no process and no file."""

    RUNNING = "running"
    STOPPED = "stopped"


class StopReason(StrEnum):
    """Why a sandbox is no longer running."""

    REQUEST = "request"
    LEASE = "lease_end"
    COST = "max_cost"
    FAULT = "infrastructure_error"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class NetworkRules:
    """What may be reached: nothing unless ``internet``, then what ``allow`` names (empty: everything) and ``deny`` does not.

    Entries are host names, ``*.suffix``, addresses or networks in CIDR form. Private, loopback and link-local addresses
    are refused unless an entry of ``allow`` names them by address.
    """

    internet: bool = False
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a sandbox is made from.

    Attributes:
        name: unique among the running ones of an owner; None for none.
        labels: names and values, to find it by.
        vcpu: share of CPUs; decides what is charged at least, and the CPU bound where the host has one.
        memory_mib: MiB for its processes and files together, raised to ``disk_mib`` and FLOOR_MIB where it is less.
        disk_mib: MiB of files that it may write; they are kept in memory.
        timeout_seconds: seconds until its lease ends.
        max_cost_micros: millionths of a dollar after which it is stopped; None for no ceiling.
        network: what it may reach.
        image: name of an image, None for the host's interpreter.
        snapshot: id or name of a snapshot; takes the place of ``image``.
        env: environment of its commands beyond the image's.
        gpu: number of GPUs, which no other sandbox has at that time.
        gpu_models: names of models, of which each of them is one; empty for any.
        isolation: the wall around it, ``auto``, ``jail``, ``gvisor`` or ``microvm``; a named one is never stepped down from.
    """

    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    vcpu: float = 1.0
    memory_mib: int = 1024
    disk_mib: int = 1024
    timeout_seconds: float = 300.0
    on_lease_end: str = "stop"
    max_cost_micros: int | None = None
    network: NetworkRules = NetworkRules()
    image: str | None = None
    snapshot: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    gpu: int = 0
    gpu_models: tuple[str, ...] = ()
    isolation: str = "auto"

    @property
    def bound_mib(self) -> int:
        """MiB that its processes and files may have together."""
        return max(self.memory_mib, self.disk_mib + FLOOR_MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    """One look at a sandbox. Times are seconds since the epoch."""

    id: str
    state: State
    spec: SandboxSpec
    created_at: float
    expires_at: float
    stopped_at: float | None = None
    stop_reason: StopReason | None = None
    cpu_seconds: float = 0.0
    cost_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """One command.

    Attributes:
        argv: the command and its arguments; no shell. A shell's command is ``("bash", "-c", text)``.
        cwd: directory, ``/workspace`` when None.
        user: ``sandbox`` or ``root``.
        env: beyond the sandbox's own.
        stdin: all of its standard input; ``None`` with ``stdin_open`` for a pipe that the caller writes to.
        timeout_s: seconds of wall time; None for the life of the sandbox.
        keep: bytes of each stream that come back; None streams all of it to the caller.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    user: str = "sandbox"
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    stdin_open: bool = False
    timeout_s: float | None = LONG_S
    keep: int | None = OUTPUT_KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command ended: ``exit_code`` is None where it was ended by a limit, negative for a signal."""

    exit_code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    timed_out: bool = False
    out_of_memory: bool = False
    duration_ms: float = 0.0
    process_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """A file in a sandbox. ``kind`` is ``file``, ``directory``, ``symlink`` or ``other``."""

    path: str
    kind: str
    size: int
    mode: int
    modified_at: float
    target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """A snapshot: an image made from a sandbox's files. ``size_bytes`` is what it alone stores."""

    id: str
    name: str | None
    digest: str
    size_bytes: int
    created_at: float
    expires_at: float | None
    labels: Mapping[str, str] = field(default_factory=dict)


class SandboxError(ProctorError):
    """A request that cannot be met. ``code`` is a word for machines, ``status`` as in HTTP."""

    def __init__(self, message: str, *, code: str, status: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.status, self.hint = code, status, hint
