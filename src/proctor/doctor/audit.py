"""What is left on the host after a run: a snapshot before, one after, and the difference.

Reads /proc and /sys and writes nothing. Of processes, only those that come
from this one or were handed to pid 1 count, and they are counted by command:
an engine may replace an agent by another of the same kind.
"""

from __future__ import annotations

import os
import re
import site
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "escape_mark"
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")
# An agent's arguments differ from one to the next; what it is does not.
_AGENT = re.compile(r"(\S+/guest/main\.py) .*")
# What runsc starts for an agent, with the directory that names the agent; whatever has such an ancestor is of gVisor.
_RUNSC = re.compile(r"runsc.* --root[= ]\S*/proctor-\d+-")
GVISOR = "gVisor of an agent"
# Control groups and folders are named for the process whose engine made them.
_OWNER = re.compile(r"proctor-(\d+)-")
JAIL_UIDS = 1 << 30  # identities of jails are above all that hosts hand out
SLACK_FILES, SLACK_MIB, SLACK_INODES = 1024, 512, 2000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the host.

    Attributes:
        processes: command -> how many, of this process' family.
        things: kind -> names, where a new name is something left behind.
        rising: counters that must not rise by more than a slack.
        falling: counters that must not fall by more than a slack.
        others: command -> how many, of processes that are not of the family.
    """

    processes: Counter[str]
    things: dict[str, frozenset[str]]
    rising: dict[str, int]
    falling: dict[str, int]
    others: Counter[str]


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _column(path: str, column: int, only: tuple[str, ...] | None = None) -> Iterator[str]:
    """One column of a table under /proc/net or /proc/sysvipc, its first line left out."""
    for line in _read(path).splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) > column and (only is None or (len(fields) > 3 and fields[3] in only)):
            yield fields[column]


def _processes() -> dict[int, tuple[int, str]]:
    """Every process that can be seen: its parent, and its command with the word zombie before it where it is one."""
    found: dict[int, tuple[int, str]] = {}
    for name in _listed("/proc"):
        stat = _read(f"/proc/{name}/stat") if name.isdigit() else ""
        if ")" not in stat:
            continue
        fields = stat.rpartition(")")[2].split()
        command = (
            _read(f"/proc/{name}/cmdline").replace("\0", " ").strip() or f"[{_read(f'/proc/{name}/comm').strip()}]"
        )
        found[int(name)] = int(fields[1]), ("zombie " if fields[0] in "ZX" else "") + command
    return found


def _descends(pid: int, processes: dict[int, tuple[int, str]]) -> bool:
    me, seen = os.getpid(), {os.getpid()}
    while pid in processes and pid not in seen:
        seen.add(pid)
        pid = processes[pid][0]
        if pid == me:
            return True
    return False


# Identities that jails of this process were seen with, by the block of 512 that one engine takes.
_blocks: set[int] = set()


def _related(pid: int, processes: dict[int, tuple[int, str]]) -> bool:
    """A descendant of this process, or an orphan that one of its agents left."""
    parent, command = processes[pid]
    if pid == os.getpid():
        return False
    if parent == 1:
        # Others on this host have orphans too: ours carry an agent's arguments or an identity of our jails.
        return f'"parent": {os.getpid()},' in command or _owner(f"/proc/{pid}") // 512 in _blocks
    if not _descends(pid, processes):
        return False
    if (owner := _owner(f"/proc/{pid}")) >= JAIL_UIDS:
        _blocks.add(owner // 512)
    return True


def is_identity(uid: int) -> bool:
    """A jail of this process was seen with such an identity."""
    return uid // 512 in _blocks


def is_ours(pid: int) -> bool:
    """The process descends from this one or was left by one of its agents; False when it is gone."""
    processes = _processes()
    return pid in processes and _related(pid, processes)


def _commands() -> tuple[Counter[str], Counter[str]]:
    """Commands of the processes that are ours, and of the others but for the kernel's own."""
    processes = _processes()
    ours, others = Counter[str](), Counter[str]()
    for pid, (parent, command) in processes.items():
        if _related(pid, processes):
            ours[GVISOR if _in_gvisor(pid, processes) else _AGENT.sub(r"\1", command)[:160]] += 1
        elif pid != os.getpid() and 2 not in (pid, parent):
            others[command[:160]] += 1
    return ours, others


def _in_gvisor(pid: int, processes: dict[int, tuple[int, str]]) -> bool:
    seen: set[int] = set()
    while pid in processes and pid not in seen:
        if _RUNSC.search(processes[pid][1]):
            return True
        seen.add(pid)
        pid = processes[pid][0]
    return False


def _owner(path: str) -> int:
    try:
        return Path(path).stat().st_uid
    except OSError:
        return -1


def _places() -> list[str]:
    """Folders from which some Python starts up, where an attack might leave a hook."""
    return [*site.getsitepackages(), site.getusersitepackages(), f"{sys.prefix}/lib"]


def _marked() -> Iterator[str]:
    for folder in (*TEMPORARY, "/", "/root", "/home", Path.home(), Path.cwd()):
        yield from (str(Path(folder, name)) for name in _listed(folder) if MARK in name)
    for folder in _places():
        for name in ("escape_mark.pth", "sitecustomize.py", "usercustomize.py"):
            if Path(folder, name).exists():
                yield str(Path(folder, name))


def _temporary() -> Iterator[str]:
    """Entries of the shared folders that are attributable: of our names, or of an identity of our jails."""
    for folder in TEMPORARY:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            try:
                stranger = entry.stat(follow_symlinks=False).st_uid // 512 in _blocks
            except OSError:
                continue
            if stranger or entry.name.startswith(("proctor-", "PROBE_")):
                yield entry.path


def _cores() -> Iterator[str]:
    for folder in ("/", "/tmp", "/var/crash", "/var/lib/systemd/coredump", Path.cwd()):
        try:
            yield from (entry.path for entry in os.scandir(folder) if entry.name.startswith("core") and entry.is_file())
        except OSError:
            continue


def _listed(folder: str | Path, *starts: str) -> list[str]:
    try:
        return [path.name for path in Path(folder).iterdir() if not starts or path.name.startswith(starts)]
    except OSError:
        return []


def _cgroups() -> Iterator[str]:
    """Control groups of engines and what a program made inside one; other programs of a host make theirs all the time."""
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        for name in folders:
            if "proctor-" in folder + name or MARK in name:
                yield f"{folder}/{name}"


def snapshot() -> Snapshot:
    """The host as it is now, as far as this user may see it."""
    net = ("tcp", "tcp6", "udp", "udp6")
    kinds: dict[str, Iterable[str]] = {
        "mount": (line.split()[4] for line in _read("/proc/self/mountinfo").splitlines()),
        "System V segment": _column("/proc/sysvipc/shm", 1),
        "System V queue": _column("/proc/sysvipc/msg", 1),
        "System V semaphore": _column("/proc/sysvipc/sem", 1),
        # Only named ones that an attack made: other programs of this host open sockets all the time.
        "unix socket": (name for name in _column("/proc/net/unix", 7) if MARK in name),
        "listener": (f"{kind} {at}" for kind in net for at in _column(f"/proc/net/{kind}", 1, ("0A",))),
        "network interface": _listed("/sys/class/net"),
        "network namespace": _listed("/run/netns"),
        "cgroup": _cgroups(),
        "block device": _listed("/sys/block", "loop", "dm-"),
        "marked file": _marked(),
        "temporary file": _temporary(),
        "core file": _cores(),
    }
    memory = {line.partition(":")[0]: line.split()[1] for line in _read("/proc/meminfo").splitlines() if ":" in line}
    falling = {"MiB of available memory": int(memory.get("MemAvailable", "0")) >> 10}
    for folder in ("/", *TEMPORARY):
        try:
            disk = os.statvfs(folder)
        except OSError:
            continue
        falling[f"MiB free in {folder}"] = disk.f_bavail * disk.f_frsize >> 20
        falling[f"inodes free in {folder}"] = disk.f_favail
    rising = {
        "open files of this process": len(_listed("/proc/self/fd")),
        "open files of the host": int((_read("/proc/sys/fs/file-nr").split() or ["0"])[0]),
        "MiB of shared memory": int(memory.get("Shmem", "0")) >> 10,
        "kernel keys": len(_read("/proc/keys").splitlines()),
    }
    ours, others = _commands()
    return Snapshot(ours, {kind: frozenset(names) for kind, names in kinds.items()}, rising, falling, others)


def quiet(gap_s: float = 0.25, patience_s: float = 5.0) -> Snapshot:
    """A snapshot once the family of this process has stopped changing: an agent that is done makes ready for the next job."""
    end = time.monotonic() + patience_s
    seen = snapshot()
    while time.monotonic() < end:
        time.sleep(gap_s)
        last, seen = seen, snapshot()
        if last.processes == seen.processes:
            break
    return seen


def busy(before: Snapshot, after: Snapshot) -> bool:
    """Other programs of this host came, went or worked meanwhile, so its memory and disks say nothing about ours."""
    return before.others != after.others or os.getloadavg()[1] > (os.cpu_count() or 1) + 1


def _belongs(name: str, running: bool) -> bool:
    """The thing is another process's engine's, or where ``running`` that of this one's."""
    owner = _OWNER.search(name)
    return owner is not None and (running or int(owner[1]) != os.getpid())


def compare(before: Snapshot, after: Snapshot, *, running: bool = False) -> list[str]:
    """One line for each thing that is left over.

    Args:
        running: this process's engine still runs, so what it holds is not left over.
    """
    left = [
        f"process: {command}"
        for command in (after.processes - before.processes).elements()
        if not (running and command == GVISOR)
    ]
    for kind, names in after.things.items():
        fresh = sorted(names - before.things.get(kind, frozenset()))
        left += [f"{kind}: {name}" for name in fresh if not _belongs(name, running)]
    own = "open files of this process"
    if not running and after.rising[own] > before.rising[own] + 8:
        left.append(f"{own}: {before.rising[own]} before, {after.rising[own]} after")
    return left


def amounts(before: Snapshot, after: Snapshot) -> list[str]:
    """One line for each amount of the host that rose or fell by more than its slack; on a busy host others move them too."""
    found = []
    for name, value in after.rising.items():
        slack = {"kernel keys": 2, "MiB of shared memory": SLACK_MIB}.get(name, SLACK_FILES)
        if value > before.rising.get(name, value) + slack:
            found.append(f"amount of {name}: {before.rising[name]} before, {value} after")
    for name, value in after.falling.items():
        slack = SLACK_INODES if name.startswith("inodes") else SLACK_MIB
        if value < before.falling.get(name, value) - slack:
            found.append(f"amount of {name}: {before.falling[name]} before, {value} after")
    return found


def settled(before: Snapshot, *, running: bool = False, patience_s: float = 8.0) -> list[str]:
    """What is still left over after at most ``patience_s`` seconds: a killed process takes a moment to go."""
    end = time.monotonic() + patience_s
    while True:
        left = compare(before, snapshot(), running=running)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)
