"""One command of a sandbox: its process, its pipes, and what is kept of its output.

Streams are pipes and not the memory files of a scored case: a service may write
for hours, and a reader wants its words when they come. They are read whether
somebody keeps the bytes or not, so that a program never waits for a full pipe
whose reader has had enough; only a streamed command waits for its reader.
"""

from __future__ import annotations

import os
import resource
import signal
from dataclasses import dataclass, field

from . import case, linux, procfs, watch
from .slot import Run
from .stream import high

PIECE = 1 << 16
CREDIT = 1 << 20  # bytes of a streamed command that may be on their way to a reader who has not taken them yet
_STACK = 8 << 20
_OPEN = 4096
_PENDING = 1024  # queued signals and timers, of which a user has a number for all of its processes
# Anything that changes what an interpreter does when it starts: such a command gets a real one.
_STARTS = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_")


@dataclass(eq=False, slots=True)
class Command:
    """A command under way. Times are ``time.monotonic`` seconds."""

    number: int
    pid: int
    started: float
    deadline: float | None
    keep: int | None
    pipes: dict[int, int]  # descriptor of ours -> 1 stdout, 2 stderr
    stdin: int = -1
    waiting: bytearray = field(default_factory=bytearray)  # for its standard input
    closing: bool = False  # end its input once that is written
    kept: dict[int, bytearray] = field(default_factory=lambda: {1: bytearray(), 2: bytearray()})
    seen: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0})
    credit: int = CREDIT
    kills: int = 0  # of this group for memory, before it
    timed_out: bool = False
    killed: bool = False  # for memory, by us
    status: int | None = None
    ended: float = 0.0

    def take(self, fd: int, data: bytes) -> bytes:
        """Note output; returns what is to be streamed."""
        stream = self.pipes[fd]
        self.seen[stream] += len(data)
        if self.keep is None:
            self.credit -= len(data)
            return data
        room = self.keep - len(self.kept[stream])
        if room > 0:
            self.kept[stream] += data[:room]
        return b""

    @property
    def readable(self) -> list[int]:
        """Descriptors to read from now; none while a reader has enough to do."""
        if self.keep is None and self.credit <= 0 and self.status is None:
            return []
        return list(self.pipes)

    def feed(self) -> None:
        """Write what its standard input takes now; closes it at the end or when nobody reads."""
        try:
            while self.waiting:
                del self.waiting[: os.write(self.stdin, self.waiting[:PIECE])]
        except BlockingIOError:
            return
        except OSError:
            self.waiting.clear()
            self.closing = True
        if self.closing:
            os.close(self.stdin)
            self.stdin = -1

    def close(self) -> None:
        """Let go of its descriptors."""
        for fd in self.pipes:
            os.close(fd)
        self.pipes.clear()
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


def rows(processes: int | None, memory: int | None, unset: tuple[int, ...] = ()) -> list[tuple[int, int, int]]:
    """Resource limits of a command, each as (which, soft, hard).

    ``processes``: None where a control group bounds them. This limit counts all sandboxes of a user together.
    ``unset``: those that this kernel does not have.
    """
    limits = [
        (resource.RLIMIT_CORE, 1, 1),  # 1, not 0: a core handler of the host is not even started
        (resource.RLIMIT_NOFILE, 1024, _OPEN),
        (resource.RLIMIT_STACK, _STACK, resource.RLIM_INFINITY),
        (resource.RLIMIT_SIGPENDING, _PENDING, _PENDING),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_RTPRIO, 0, 0),
        (resource.RLIMIT_NICE, 0, 0),
    ]
    if processes is not None:
        limits.append((resource.RLIMIT_NPROC, processes, processes))
    if memory is not None:  # no control group bounds it
        limits.append((resource.RLIMIT_DATA, 4 * memory + (1 << 30), 4 * memory + (1 << 30)))
    return [row for row in limits if row[0] not in unset]


def setup(
    streams: tuple[int, int, int], *, cwd: str, uid: int | None, limits: list[tuple[int, int, int]],
    seccomp: bytes | None, mark: int,
) -> case.Setup:  # fmt: skip
    """What ``case.enter`` needs for a command: the walls of a scored case but for Landlock.

    A sandbox may write wherever its own root lets it, and that root holds nothing of the host's to write to.
    """
    return case.Setup(
        *streams, -1, cwd, limits, uid, None, seccomp, mark, capabilities=0 if uid else linux.CAPABILITIES_OF_ROOT
    )


def warm_run(argv: list[str], cwd: str, env: dict[str, str], base: dict[str, str], sites: list[str]) -> Run | None:
    """How to run a command in this warm interpreter, or None where only a fresh one is certain to do the same.

    ``python3 file.py ...`` is; not with options, with variables that an interpreter reads when it starts, or where
    something was installed that changes its start.
    """
    if argv[0] not in ("python3", "python") or len(argv) < 2 or argv[1].startswith("-"):
        return None
    if any(env.get(name) != base.get(name) for name in {*env, *base} if name.startswith(_STARTS)):
        return None
    if env.get("PATH") != base.get("PATH") or env.get("HOME") != base.get("HOME"):
        return None
    path = os.path.join(os.path.realpath(cwd), argv[1])
    if not path.endswith(".py") or not os.path.isfile(path):
        return None
    if os.path.lexists(f"{env.get('HOME', '')}/.local/lib") or any(_starts(site) for site in sites):
        return None
    return Run(path, list(argv), None, cwd, piped=True)


def _starts(site: str) -> bool:
    """Something in a directory of packages is run when an interpreter starts."""
    try:
        names = os.listdir(site)
    except OSError:
        return False
    return any(name.endswith(".pth") or name.startswith(("sitecustomize", "usercustomize")) for name in names)


def kill_tree(pid: int) -> None:
    """Kill a command's process, its session and all that come from it. First all are stopped: then none forks away."""
    seen: set[int] = set()
    while fresh := {pid, *procfs.descendants(pid)} - seen:
        for number in fresh:
            watch.signal_one(number, signal.SIGSTOP)
        seen |= fresh
    for number in seen:
        watch.signal_one(number, signal.SIGKILL)
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass


def make_pipes(stdin: str, data: bytes) -> tuple[tuple[int, int, int], dict[int, int], int]:
    """The three streams of a command, our ends of stdout and stderr, and our end of its input (-1: none)."""
    made: list[int] = []  # of this call, closed where it fails
    try:
        return _make_pipes(stdin, data, made)
    except BaseException:
        for fd in made:
            os.close(fd)
        raise


def _make_pipes(stdin: str, data: bytes, made: list[int]) -> tuple[tuple[int, int, int], dict[int, int], int]:
    def up(fd: int) -> int:
        made.append(fd)
        made[-1] = high(fd)
        return made[-1]

    ours = -1
    if stdin == "pipe":
        reader, writer = os.pipe2(os.O_CLOEXEC)
        source, ours = up(reader), up(writer)
        os.set_blocking(ours, False)
    elif stdin == "data":
        source = up(os.memfd_create("stdin", os.MFD_CLOEXEC))
        view = memoryview(data)
        while view:
            view = view[os.write(source, view) :]
        os.lseek(source, 0, os.SEEK_SET)
    else:
        source = up(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    pipes: dict[int, int] = {}
    sinks = []
    for stream in (1, 2):
        reader, writer = os.pipe2(os.O_CLOEXEC)
        reader = up(reader)
        os.set_blocking(reader, False)
        pipes[reader] = stream
        sinks.append(up(writer))
    return (source, sinks[0], sinks[1]), pipes, ours
