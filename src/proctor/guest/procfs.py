"""What /proc tells of processes: who descends from whom, what they hold and use, and who wants a CPU."""

from __future__ import annotations

import os
import resource

PAGE = os.sysconf("SC_PAGE_SIZE")
_CLOCK_TICK = os.sysconf("SC_CLK_TCK")
_SCHED_IDLE = 5  # the policy's number in <linux/sched.h>


def descendants(root: int) -> list[int]:
    """Every process below ``root``, nearest first."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop(0)
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    children = [int(x) for x in file.read().split()]
            except FileNotFoundError:
                if os.path.exists(f"/proc/{pid}/task/{thread}"):
                    return _descendants_by_parents(root)
                continue
            except OSError:
                continue
            found += children
            waiting += children
    return found


def _descendants_by_parents(root: int) -> list[int]:
    """The same where the kernel does not list a process's children."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            below.setdefault(int(fields[1]), []).append(int(name))
    found, at = list(below.get(root, ())), 0
    while at < len(found):
        found += below.get(found[at], ())
        at += 1
    return found


def resident_sum() -> tuple[int, int]:
    """Bytes of memory of every other process of this PID namespace, and how many there are.

    Shares are counted where they can be told.
    """
    own, total, count = os.getpid(), 0, 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own:
            total += proportional(int(name)) or resident(int(name))
            count += 1
    return total, count


def cpu_of_all() -> int:
    """CPU nanoseconds of all children that ever were, and of what runs now in this PID namespace."""
    own = str(os.getpid())
    running = sum(cpu(int(name)) for name in os.listdir("/proc") if name.isdigit() and name != own)
    return children_ns() + int(running * 1e9)


def cpu(pid: int) -> float:
    """CPU seconds of a process and of its children that have been collected; 0 of one that is gone."""
    fields = _stat(pid)
    return sum(int(x) for x in fields[11:15]) / _CLOCK_TICK if fields else 0.0


def children_ns() -> int:
    """CPU nanoseconds of all children of ours that have been collected."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((usage.ru_utime + usage.ru_stime) * 1e9)


def wants(thread: int | str, nice: int) -> bool:
    """It runs or is ready to, and did not choose to wait by SCHED_IDLE or a nice value beyond ``nice``."""
    fields = _stat(thread)
    return fields is not None and fields[:1] == [b"R"] and int(fields[16]) <= nice and int(fields[38]) != _SCHED_IDLE


def resident(pid: int) -> int:
    """Bytes of memory that it holds, shared or not; 0 of one that is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0


def proportional(pid: int) -> int:
    """Bytes of memory that it holds, of shared ones its part; 0 where that cannot be told."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            rows = dict(line.split(b":", 1) for line in file.read().splitlines()[1:])
        return int(rows[b"Pss"].split()[0]) << 10
    except (OSError, KeyError, ValueError, IndexError):
        return 0


def _stat(pid: int | str) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
