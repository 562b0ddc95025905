"""What this process may use of its host: a container's own bounds count, not the machine's."""

from __future__ import annotations

import math
import os
from pathlib import Path

from proctor.core.sandbox import SandboxError

_UNKNOWN_MIB = 1024


def cores() -> int:
    """CPUs that this process may keep busy: its affinity, and a control group's quota where that is less."""
    count = len(os.sched_getaffinity(0))
    for folder in _groups("cpu"):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
            if quota.isdigit():
                count = min(count, math.ceil(int(quota) / int(period)))
        except (OSError, ValueError):
            continue
    return max(1, count)


def check_vcpu(vcpu: float) -> None:
    """SandboxError ``too_large`` for more CPUs than this process may use."""
    if vcpu > (most := cores()):
        raise SandboxError(
            f"vcpu: a sandbox of {vcpu:g} CPUs is more than this host has for one ({most})", code="too_large", status=400,
            hint=f"ask for {most} or less",
        )  # fmt: skip


def free_mib() -> int:
    """MiB of memory that are free for programs: the machine's, or what a control group leaves of it."""
    free = _UNKNOWN_MIB
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) >> 10
    for folder in _groups("memory"):
        for bound, used, kept in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                limit = int((folder / bound).read_text())
                usage = int((folder / used).read_text())
                rows = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):
                continue  # "max" is no number: no bound here
            free = min(free, (limit - usage + int(rows.get(kept, 0))) >> 20)
    return max(1, free)


def _groups(controller: str) -> list[Path]:
    """Directories of this process's control group of a controller, and of all above it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        for root in (
            ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
            if not names
            else (f"/sys/fs/cgroup/{names}", f"/sys/fs/cgroup/{controller}")
        ):
            place = Path(root + path)
            # In a container the path may be the host's while only the root of its own group is mounted.
            places = [place, *place.parents] if place.is_dir() else [Path(root)]
            found += [p for p in places if p.is_dir() and p.is_relative_to(root)]
    return list(dict.fromkeys(found))
