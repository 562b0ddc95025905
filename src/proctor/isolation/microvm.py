"""The wall of a virtual machine: a kernel of its own around the agent and its jail."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import Any

from proctor.core.errors import InfrastructureError
from proctor.core.image import Image
from proctor.guest import cgroups
from proctor.isolation import monitors, qemu, sweep, template
from proctor.isolation.base import AgentProcess
from proctor.isolation.jail import JailBoundary

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OWN_MIB = 512  # that QEMU takes beside the machine's memory: its translations of code, most of all
_TASKS = 64  # QEMU's threads
_WORN_MIB = 1024  # of its own pages, at which a machine is replaced: what it once wrote it does not give back


class MicrovmBoundary(JailBoundary):
    """Starts agents inside virtual machines, one a slot, each a copy of one that was saved when its agent was ready.

    Args:
        found: what runs them; None looks for it.

    Raises:
        IsolationUnavailable: there is no QEMU, no Firecracker or no kernel here.
    """

    agent_mib = 192

    def __init__(self, *, cgroup: bool = True, found: qemu.Qemu | None = None) -> None:
        super().__init__("microvm", cgroup=cgroup)
        self.qemu = found or monitors.find()
        self._templates: dict[str, template.Template] = {}
        self._lock = threading.Lock()

    def prepare(self, image: Image) -> None:
        """Boot and save a machine where none was saved before; see ``Boundary``."""
        self.template(image)

    def start(self, image: Image, number: int) -> AgentProcess:
        """Start one agent; see ``Boundary``."""
        saved = self.template(image)
        name = self.name(number)
        around = Around(saved.told["memory_mib"], cgroups.create(name) if self.cgroup else [])
        try:
            agent = self.copy(saved, image, name)
        except BaseException:
            around.close()
            sweep.remove_named(name, sweep.NOBODY)
            raise
        agent.around = around
        around.supervisor = agent.process.pid
        return agent

    def copy(self, saved: template.Template, image: Image, name: str, layers: tuple[int, ...] = ()) -> AgentProcess:
        """Start a copy of a saved machine; ``layers``: index and table of its second disk, where it has one."""
        state = os.open(f"/proc/self/fd/{saved.state}", os.O_RDONLY | os.O_CLOEXEC)  # read from its beginning by each
        try:
            told = {"memory": saved.memory, "state": state, "disk": saved.disk, "readable": _readable(self.qemu.path)}
            second = {"layers": layers} if layers else {}
            more = {"machine": saved.told | told | second, "root": _root(self.qemu), "group": self._group()}
            fds = (saved.memory, state) if saved.disk < 0 else (saved.memory, state, saved.disk)
            agent = self.spawn(image, name, more, fds + layers)
        finally:
            os.close(state)
        agent.pace = saved.pace
        return agent

    def template(self, image: Image) -> template.Template:
        """The saved machine of an image."""
        with self._lock:
            found = self._templates.get(image.digest)
            if found is not None and not (found.folder / "told").is_file():
                found.close()  # somebody has removed it
                found = None
            if found is None:
                found = self._templates[image.digest] = template.get(image, self.qemu)
            return found

    def close(self) -> None:
        """Let go of the saved machines."""
        with self._lock:
            while self._templates:
                self._templates.popitem()[1].close()

    def _group(self) -> int:
        """The group that may use KVM, where that is how QEMU can; 0 for none."""
        if self.qemu.accelerator != "kvm" or os.geteuid() != 0:
            return 0
        info = os.stat("/dev/kvm")
        return info.st_gid if not info.st_mode & stat.S_IWOTH else 0


def _root(found: qemu.Qemu) -> dict[str, Any]:
    """What QEMU sees of the host: its program, libraries and firmware."""
    binds = [[path, path] for path in _SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    if not found.path.startswith("/usr/"):
        prefix = os.path.dirname(os.path.dirname(found.path))
        binds.append([prefix, prefix])
    if os.path.exists("/etc/ld.so.cache"):
        binds.append(["/etc/ld.so.cache", "/etc/ld.so.cache"])
    return {
        "binds": binds,
        "links": [[os.readlink(path), path] for path in _SYSTEM if os.path.islink(path)],
        "files": {},
        "dirs": [],
        "covers": {},
        "devices": ["kvm"] if found.accelerator == "kvm" else [],
    }


def _readable(path: str) -> list[str]:
    """The same where no mount can hide the rest."""
    places = [*_SYSTEM, "/etc/ld.so.cache", os.path.dirname(os.path.dirname(path))]
    return [place for place in dict.fromkeys(places) if os.path.exists(place)]


def bound(group: cgroups.Group, memory_mib: int, vcpu: float = 1) -> None:
    """Set the bounds around a machine of so much memory."""
    group.set_memory(memory_mib + _OWN_MIB << 20)
    group.set_pids(_TASKS)
    group.set_cpu(min(1 + vcpu, len(os.sched_getaffinity(0))))  # the machine's one, and QEMU's own loop


class Around:
    """The bounds around one machine. They are its own, whatever the job: it cannot have more memory than it was given."""

    def __init__(self, memory_mib: int, paths: list[str]) -> None:
        self.supervisor, self.memory_mib = -1, memory_mib
        self.group = cgroups.Group(paths).stay_out()
        bound(self.group, memory_mib)

    def bound(self, memory_mib: int, workspace_mib: int, processes: int) -> None:
        """See that a job fits into the machine.

        Raises:
            InfrastructureError: it does not.
        """
        del processes
        room = self.memory_mib * 7 // 8
        if memory_mib + workspace_mib > room:
            raise InfrastructureError(
                f"isolation 'microvm': a machine has room for jobs of {room} MiB, and this one may use "
                f"{memory_mib} MiB and a workspace of {workspace_mib} MiB; lower memory_mib, or score it with isolation 'jail'"
            )

    def worn(self) -> bool:
        """It holds so much memory of the host that a new one is better."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            for child in Path(f"/proc/{self.supervisor}/task/{self.supervisor}/children").read_text().split():
                for row in Path(f"/proc/{child}/status").read_text().splitlines():
                    if row.startswith("RssAnon:") and int(row.split()[1]) >> 10 > _WORN_MIB:
                        return True
        return False

    def close(self) -> None:
        """Let go of it."""
        self.group.close()
