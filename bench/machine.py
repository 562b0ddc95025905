"""What the machine is, and whether it had time for a measurement."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

QUIET = 0.15  # of the CPUs may be busy with other things


def busy(seconds: float = 0.4) -> float:
    """Share of the CPUs that others use now, while this process sleeps; stolen time counts."""

    def ticks() -> tuple[int, int]:
        numbers = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]

    before = ticks()
    time.sleep(seconds)
    after = ticks()
    total, idle = after[0] - before[0], after[1] - before[1]
    return 1 - idle / total if total else 0.0


def load() -> float:
    """Load average of the last minute."""
    return os.getloadavg()[0]


def about() -> dict[str, str | int]:
    """Where this was measured."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": model or platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def proportional(pid: int) -> int:
    """Bytes of memory of a process, what it shares divided by who shares it; 0 when it cannot be seen."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) << 10 for row in rows if row.startswith("Pss:")), 0)


def family(pid: int) -> list[int]:
    """A process and all that came from it."""
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue
    return found
