"""One permanent control group per slot: limits and meters for a whole process tree.

Works with version 1 (a directory in each hierarchy), version 2 (one
directory) and none. A file that does not exist is a feature that is missing,
never an error: ``features`` says what holds. Files are opened before the root
changes and stay usable through their descriptors.

A slot's group is permanent because moving a process between groups has a tail
of 16 ms.
"""

from __future__ import annotations

import os
import time

_V1 = ("memory", "cpuacct", "pids", "cpu")
_PERIOD_US = 100_000
_TASK = 4 << 20  # bytes that a process costs such a kernel at the least
_LATE_NS = 100 * 10**6
_OVERHEAD, _SLACK_NS = 4, 10**9  # a kernel in user space takes less than so many times what its program does


def find(root: str = "/proc/self") -> dict[str, str]:
    """Controller -> directory of this process; version 2 has the one key ``unified``."""
    mounts: dict[str, tuple[str, str]] = {}
    for line in _read(f"{root}/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind:
            continue
        if kind[0] == "cgroup2":
            mounts["unified"] = (fields[3], fields[4])
        elif kind[0] == "cgroup" and len(kind) > 2:
            for name in kind[2].split(","):
                mounts[name] = (fields[3], fields[4])
    places: dict[str, str] = {}
    for line in _read(f"{root}/cgroup").splitlines():
        number, names, path = line.split(":", 2)
        for name in names.split(",") if names else ["unified"]:
            if name in mounts:
                base, point = mounts[name]
                inside = path[len(base) :] if base != "/" and path.startswith(base) else path
                places[name] = point + ("" if inside == "/" else inside)
        del number
    return places


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> bool:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        return False
    return True


def _make(parent: str, name: str) -> str | None:
    path = f"{parent}/{name}"
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        pass
    except OSError:
        return None
    return path


def create(name: str) -> list[str]:
    """Make a slot's directories where this user may; returns them, empty when it may not.

    Version 2 lets no group have both processes and controllers for children,
    so beside the own group the parent and the root are tried as well.
    """
    places = find()
    made = []
    for controller in _V1:
        if controller in places:
            path = _make(places[controller], name)
            if path:
                made.append(path)
    own = places.get("unified")
    if own and not made:
        root = own
        while os.path.exists(f"{os.path.dirname(root)}/cgroup.controllers"):
            root = os.path.dirname(root)
        for parent in dict.fromkeys((own, os.path.dirname(own) if own != root else own, root)):
            _write(f"{parent}/cgroup.subtree_control", "+memory +pids +cpu")
            path = _make(parent, name)
            if path is None:
                continue
            if os.path.exists(f"{path}/memory.max"):
                return [path]
            remove([path])
    return made


def remove(paths: list[str]) -> bool:
    """Remove a slot's directories; True when none is left."""
    for path in paths:
        try:
            os.rmdir(path)
        except OSError:
            pass
    return not any(os.path.exists(path) for path in paths)


def rooms(paths: list[str]) -> list[str]:
    """Directories of the sandboxes that a slot's agent has: beside its own, their names begin with its."""
    found = []
    for path in paths:
        parent, name = os.path.split(path)
        try:
            found += [f"{parent}/{entry}" for entry in os.listdir(parent) if entry.startswith(f"{name}.r")]
        except OSError:
            pass
    return found


def lighten(paths: list[str], part: float) -> None:
    """Let groups have only ``part`` of the CPU time that another process or group gets where all want one."""
    for path in paths:
        _write(f"{path}/cpu.shares", str(max(2, int(part * 1024))))
        _write(f"{path}/cpu.weight", str(max(1, int(part * 100))))


def members(paths: list[str]) -> list[int]:
    """Processes in a slot's directories."""
    pids: set[int] = set()
    for path in paths:
        pids.update(int(word) for word in _read(f"{path}/cgroup.procs").split())
    return sorted(pids)


class Group:
    """A slot's group, through open descriptors. Bytes and nanoseconds."""

    def __init__(self, paths: list[str]) -> None:
        self.procs = [fd for path in paths if (fd := _open(f"{path}/cgroup.procs", os.O_WRONLY)) is not None]
        self._limit = _first(paths, ("memory.limit_in_bytes", "memory.max"), os.O_WRONLY)
        self._open = b"-1" if any(os.path.exists(f"{path}/memory.limit_in_bytes") for path in paths) else b"max"
        self._usage = _first(paths, ("memory.usage_in_bytes", "memory.current"), os.O_RDONLY)
        self._peak = _first(paths, ("memory.max_usage_in_bytes", "memory.peak"), os.O_RDWR)
        self._events = _first(paths, ("memory.oom_control", "memory.events"), os.O_RDONLY)
        self._fails = _first(paths, ("memory.failcnt",), os.O_RDONLY)
        self._cpu = _first(paths, ("cpuacct.usage",), os.O_RDONLY)
        self._stat = _first(paths, ("cpu.stat",), os.O_RDONLY) if self._cpu is None else None
        self._pids = _first(paths, ("pids.max",), os.O_WRONLY)
        self._quota = _first(paths, ("cpu.cfs_quota_us", "cpu.max"), os.O_WRONLY)
        for path in paths:
            _write(f"{path}/memory.swap.max", "0")
            _write(f"{path}/memory.oom.group", "0")
        self.memory = self._limit is not None and self._usage is not None
        self.cpu = self._cpu is not None or self._stat is not None
        self.pids = self._pids is not None
        self.has_quota = self._quota is not None
        self._outside: dict[str, int] = {}
        self._floor = self._cores = 0

    def join(self) -> None:
        """Move this process into the group."""
        for fd in self.procs:
            os.write(fd, b"0")
            os.close(fd)
        self.procs = []

    def close(self) -> None:
        """Let go of its descriptors; it measures nothing any more."""
        for name in ("_limit", "_usage", "_peak", "_events", "_fails", "_cpu", "_stat", "_pids", "_quota"):
            fd = getattr(self, name)
            if fd is not None:
                os.close(fd)
            setattr(self, name, None)

    def set_memory(self, size: int | None) -> None:
        """Bound the group's memory, None for no bound; ignored where there is no controller."""
        if self._limit is not None:
            try:
                os.pwrite(self._limit, self._open if size is None else b"%d" % size, 0)
            except OSError:
                pass  # below what is in use now: the kernel keeps the old bound, usage is checked at the end

    def set_pids(self, count: int) -> None:
        """Bound the group's processes and threads."""
        if self._pids is not None:
            os.pwrite(self._pids, b"%d" % count, 0)

    def set_cpu(self, cores: float) -> None:
        """Bound the CPUs that the group keeps busy; ignored where there is no controller."""
        if self._quota is not None:
            quota = max(1000, int(cores * _PERIOD_US))
            v1 = self._open == b"-1"
            try:
                os.pwrite(self._quota, b"%d" % quota if v1 else b"%d %d" % (quota, _PERIOD_US), 0)
            except OSError:
                pass  # above what a group further up may have: that one holds it

    # ------------------------------------------------------------ around a kernel of its own

    def stay_out(self) -> Group:
        """Let go of what a process joins it by: this one only looks, and sets bounds."""
        for fd in self.procs:
            os.close(fd)
        self.procs = []
        return self

    def meters(self) -> dict[str, int]:
        """Descriptors of this group's meters, by name: those of ``surround``."""
        found = {"cpu": self._cpu, "cpu_stat": self._stat, "memory": self._usage}
        return {name: fd for name, fd in found.items() if fd is not None}

    def surround(self, meters: dict[str, int]) -> None:
        """Meters of the host's group around the kernel that this process runs in. They count that kernel too."""
        self._outside, self._cores = meters, os.cpu_count() or 1
        self._floor = _number(meters.get("memory"))

    @property
    def surrounded(self) -> list[str]:
        """What is measured from outside."""
        return sorted(name.partition("_")[0] for name in self._outside)

    def outside_ns(self) -> int:
        """CPU nanoseconds that the host has counted, 0 where it does not tell."""
        return _number(self._outside["cpu"]) if "cpu" in self._outside else _usec(self._outside.get("cpu_stat"))

    def held(self, counted: int, start: dict[str, int]) -> int:
        """CPU nanoseconds of a case: what was counted inside, held against what the host says since ``start``.

        Inside, ticks are counted: on a busy host also those in which a program only waited for a CPU, and for one
        that sleeps through the ticks none. The host counts all, and the kernel around the program with it. Where
        it does not tell, no more can have been used than there are CPUs.
        """
        if start["outside"]:
            most = self.outside_ns() - start["outside"]
            return min(max(counted, (most - _SLACK_NS) // _OVERHEAD), most)
        return min(counted, (time.monotonic_ns() - start["now"]) * self._cores) if self._cores else counted

    def had(self, counted: int, start: dict[str, int]) -> int:
        """CPU nanoseconds of a case: what this kernel counted, but no more than its host has given it since ``start``.

        A machine's clocks run on while its host runs something else. The host's word is a moment old.
        """
        if "cpu" not in self._outside:
            return counted
        return min(counted, self.outside_ns() - start["outside"] + _LATE_NS)

    def grown(self, counted: int, processes: int) -> int:
        """Bytes of a tree: what was counted inside, where shared pages count for all that have them, or what the host
        counts beyond the kernel around this process if that is less.
        """
        if "memory" not in self._outside:
            return counted
        kernel = self._floor + _TASK * max(0, processes - 1)
        return min(counted, max(0, _number(self._outside["memory"]) - kernel))

    # ------------------------------------------------------------ meters

    def usage(self) -> int:
        """Bytes in use now, 0 where unknown."""
        return _number(self._usage)

    def reset_peak(self) -> bool:
        """Start a new high-water mark; False where this kernel keeps only one for ever."""
        if self._peak is None:
            return False
        try:
            os.pwrite(self._peak, b"0", 0)
        except OSError:
            return False
        return True

    def peak(self) -> int:
        """Highest bytes since ``reset_peak``, 0 where unknown."""
        return _number(self._peak)

    def oom_kills(self) -> int:
        """Processes that the kernel has killed for memory in this group."""
        return self._event(b"oom_kill")

    def limit_hits(self) -> int:
        """Times that this group's own bound was reached: without one, an OOM kill was the host's."""
        return self._event(b"max") if self._fails is None else _number(self._fails)

    def _event(self, wanted: bytes) -> int:
        if self._events is None:
            return 0
        for line in os.pread(self._events, 512, 0).split(b"\n"):
            name, _, count = line.partition(b" ")
            if name == wanted:
                return int(count)
        return 0

    def cpu_ns(self) -> int:
        """CPU nanoseconds of everything that was ever in the group."""
        if self._cpu is not None:
            return _number(self._cpu)
        return _usec(self._stat)


def _open(path: str, flags: int) -> int | None:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError:
        return None


def _first(paths: list[str], names: tuple[str, ...], flags: int) -> int | None:
    for path in paths:
        for name in names:
            fd = _open(f"{path}/{name}", flags)
            if fd is not None:
                return fd
    return None


def _number(fd: int | None) -> int:
    if fd is None:
        return 0
    try:
        return int(os.pread(fd, 32, 0))
    except (OSError, ValueError):
        return 0


def _usec(fd: int | None) -> int:
    """Nanoseconds, from a version 2 group's ``cpu.stat``."""
    if fd is not None:
        for line in os.pread(fd, 512, 0).split(b"\n"):
            if line.startswith(b"usage_usec "):
                return int(line[11:]) * 1000
    return 0
