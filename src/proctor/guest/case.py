"""What a case's process does between fork and the program's first instruction.

Everything that holds a program is switched on here, in this order, after the
last of our own file accesses and before any of its code: session, streams,
limits, identity, capabilities, Landlock, descriptors, system call filter.
A step that fails ends the process with ``SETUP_FAILED`` and a note on the
result channel; the jail reports it as its own fault, never as the program's.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C part alone: the wrappers make sets of all signals
import os
import resource
import signal
from dataclasses import dataclass
from typing import Any

from . import linux

RESULT_FD = 3
TALK_FD = 5  # 4 is the mark's


@dataclass(slots=True)
class Setup:
    """All that the child needs, made ready before the fork."""

    stdin: int
    stdout: int
    stderr: int
    result: int
    cwd: str
    rlimits: list[tuple[int, int, int]]
    uid: int | None  # None: this user is the only one there is, so it stays
    landlock: int | None
    seccomp: bytes | None
    mark: int  # its closing tells the jail that the program's own code begins
    out: int = -1  # where a harness that talks to another one writes
    capabilities: int = 0  # to keep


def rlimits(
    limits: dict[str, Any], cpu_s: int, *, group_memory: bool, group_cpu: bool, processes: int
) -> list[tuple[int, int, int]]:
    """Resource limits, each as (which, soft, hard).

    They back up what the jail watches from outside. No address-space limit:
    numpy fails to import under one on a host of many cores. Where no group
    bounds memory, private writable memory is bounded far above the watched limit.
    """
    size = max(limits["workspace"], limits["output"]) + 1
    rows = [
        (resource.RLIMIT_CORE, 1, 1),  # 1, not 0: a core handler of the host is not even started
        (resource.RLIMIT_FSIZE, size, size),
        (resource.RLIMIT_NOFILE, limits["files"], limits["files"]),
        (resource.RLIMIT_NPROC, processes, processes),
        (
            resource.RLIMIT_STACK,
            limits["stack"],
            resource.RLIM_INFINITY,
        ),  # programs raise it: as on other hosts they may
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_RTPRIO, 0, 0),
        (resource.RLIMIT_NICE, 0, 0),
    ]
    if not group_cpu:  # else none: with it a process's own clock moves by ticks of 4 ms, and not by microseconds
        rows.append((resource.RLIMIT_CPU, cpu_s, cpu_s + 1))
    if not group_memory:
        backstop = 4 * limits["memory"] + (1 << 30)
        rows.append((resource.RLIMIT_DATA, backstop, backstop))
    return rows


def _size(limit: int) -> float:
    """To compare by: no limit is a negative number."""
    return limit if limit >= 0 else float("inf")


def enter(setup: Setup) -> None:
    """Turn this freshly forked process into the program's; see the module's text."""
    os.setsid()
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)  # the jail ignores it; an exec makes this the default
    os.dup2(setup.stdin, 0)
    os.dup2(setup.stdout, 1)
    os.dup2(setup.stderr, 2)
    os.chdir(setup.cwd)
    os.umask(0o022)
    for which, soft, hard in setup.rlimits:
        limit = resource.getrlimit(which)[1]
        hard = min((hard, limit), key=_size)
        resource.setrlimit(which, (min((soft, hard), key=_size), hard))
    os.setpriority(os.PRIO_PROCESS, 0, 0) if os.getpriority(os.PRIO_PROCESS, 0) < 0 else None
    if setup.uid is not None:
        try:
            os.setgroups([])
        except PermissionError:
            pass  # denied in this user namespace, where no further group is mapped anyway
        os.setresgid(setup.uid, setup.uid, setup.uid)
        os.setresuid(setup.uid, setup.uid, setup.uid)
    linux.drop_capabilities(setup.capabilities)
    linux.prctl(
        linux.PR_SET_DUMPABLE, 1
    )  # its own /proc/self is readable, as in a fresh process, and the next file its own
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")
        os.close(score)
    except OSError:
        pass  # no proc here: the kernel then takes the largest, which may be the agent
    _signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if setup.landlock is not None:
        linux.landlock_restrict(setup.landlock)
    mark = 4
    os.dup2(setup.result, RESULT_FD) if setup.result >= 0 else None
    os.dup2(setup.mark, mark) if setup.mark != mark else None
    os.dup2(setup.out, TALK_FD) if setup.out >= 0 else None
    linux.close_range(5 if setup.out < 0 else 6)
    if setup.seccomp is not None:
        linux.seccomp_load(setup.seccomp)
    os.write(mark, b"1")
    os.close(mark)
    if setup.result < 0:
        os.close(RESULT_FD)


def execute(argv: list[str], env: dict[str, str], path: str | None) -> None:
    """Replace this process by a command; 127 and a message where that fails, as a shell does."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores both; a fresh process does not
    try:
        if path is not None:
            os.execve(path, argv, env)
        if "/" in argv[0]:
            os.execve(argv[0], argv, env)
        for folder in env.get("PATH", "/bin:/usr/bin").split(":"):
            if os.path.exists(f"{folder}/{argv[0]}"):  # a folder that is hidden holds no command
                os.execve(f"{folder}/{argv[0]}", argv, env)
        raise FileNotFoundError(2, "not found")
    except OSError as exc:
        os.write(2, f"{argv[0]}: {exc.strerror}\n".encode("utf-8", "surrogateescape"))
        os._exit(127 if isinstance(exc, FileNotFoundError) else 126)
