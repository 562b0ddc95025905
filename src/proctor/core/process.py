"""Names of processes that are never used again, so that others can tell whether one still runs."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def _state_and_start(pid: int) -> tuple[str, str]:
    """The letter of its state, and its start in clock ticks since boot; empty where there is no such process."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return "", ""


def start_time(pid: int) -> str:
    """Start of a process in clock ticks since boot: with its number, a name that is never reused."""
    return _state_and_start(pid)[1]


def pid_namespace() -> str:
    """Number of this PID namespace: a process number of another container says nothing here."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


@cache
def boot_id() -> str:
    """Of this boot of this kernel; empty where it is not told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def this_process() -> str:
    """This process's own name: boot, PID namespace, number and start."""
    return f"{boot_id()}/{pid_namespace()}/{os.getpid()}/{start_time(os.getpid())}"


def is_alive(name: str) -> bool | None:
    """Whether the process that ``this_process`` named runs; None where that cannot be seen from here.

    One of another boot, of another host that shares the file or of another container cannot be seen. One that was
    killed and not yet waited for does not run.
    """
    parts = name.split("/")
    if len(parts) != 4 or not all(parts) or parts[:2] != [boot_id(), pid_namespace()] or not parts[2].isdigit():
        return None
    if not start_time(os.getpid()):  # there is no /proc
        return None
    state, start = _state_and_start(int(parts[2]))
    return start == parts[3] and state not in ("Z", "X")
