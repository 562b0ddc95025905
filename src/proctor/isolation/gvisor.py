"""The wall of gVisor: a kernel in user space around the agent and its jail."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from typing import Any

from proctor.core.image import Image
from proctor.guest import cgroups
from proctor.isolation import checkpoints, runsc, sweep
from proctor.isolation.base import AgentProcess
from proctor.isolation.jail import JailBoundary

# What the kernel in user space may take beside a job: itself (50 MiB), what it keeps of files, pages not given back yet.
KERNEL_MIB = 256
PROCESS_MIB = 12  # what stands for a process on the host: 10 MiB were measured, most of them page tables
# Its own threads. For each process of the program the platforms keep one on the host, with up to a thread for each
# thread of the kernel that ever ran it.
KERNEL_TASKS, MOST_TASKS = 512, 30_000
_ASK_S = 20.0
_END_S = 15.0  # for a container to end by itself once it is told to


class GvisorBoundary(JailBoundary):
    """Starts agents inside containers of ``runsc``, one a slot.

    Each has a control group on the host around all of it where this user may make one. The job's limits are set
    there as well, with room for gVisor itself: nothing inside can change or leave them.

    Raises:
        IsolationUnavailable: no ``runsc`` works here.
    """

    agent_mib = 128

    def __init__(self, *, cgroup: bool = True) -> None:
        super().__init__("gvisor", cgroup=cgroup)
        self.runsc = runsc.find()
        self._saved: dict[str, str | None] = {}  # digest of an image -> directory of its saved container
        self._restored: dict[str, tuple[AgentProcess, str]] = {}  # by name, agents and what each was started from
        self._lock = threading.Lock()

    def prepare(self, image: Image) -> None:
        """Save a container that is ready, where that makes starts faster; see ``Boundary``."""
        with self._lock:
            if image.digest in self._saved:
                return

            def begin(more: dict[str, Any]) -> AgentProcess:
                return self._begin(image, self.name(0), more)

            try:
                self._saved[image.digest] = checkpoints.get(image, self.runsc, self._meters(), begin, self._finish)
            except OSError:
                self._saved[image.digest] = None  # cold starts need none of it

    def start(self, image: Image, number: int) -> AgentProcess:
        """Start one agent; see ``Boundary``."""
        saved = self._saved.get(image.digest)
        if saved is None or any(agent.failed and path == saved for agent, path in self._restored.values()):
            return self._begin(image, self.name(number), {})
        agent = self._begin(image, self.name(number), {"pause": True, "restore": saved})
        self._restored[agent.name] = agent, saved
        return agent

    def ended(self, agent: AgentProcess) -> bool:
        """See ``Boundary``. What no agent comes up from is not used again."""
        _, saved = self._restored.get(agent.name, (agent, None))
        if saved is not None and agent.failed:
            self._saved = {digest: path for digest, path in self._saved.items() if path != saved}
            checkpoints.forget(saved)
        self._restored.pop(agent.name, None)
        return super().ended(agent)

    def _begin(self, image: Image, name: str, more: dict[str, Any]) -> AgentProcess:
        """Start a container, new or saved; one that shall pause is not told what it waits for."""
        group = cgroups.Group(cgroups.create(name) if self.cgroup else []).stay_out()
        try:
            meters = group.meters()
            agent = self.spawn(image, name, {"meters": list(meters), "runsc": self._told(), **more})
            agent.around = Around(group)
            if "restore" in more or (meters and not more):
                with contextlib.suppress(OSError):  # it is dead already: that is seen by whoever reads its first word
                    socket.send_fds(agent.control, [b"m"], list(meters.values()))
            return agent
        except BaseException:
            group.close()
            sweep.remove_named(name, sweep.NOBODY)
            raise

    def _finish(self, agent: AgentProcess) -> None:
        """End a container that was only to be saved, or a try."""
        agent.release()
        try:
            agent.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            agent.process.kill()
            agent.process.wait()
        self.ended(agent)
        agent.forget()

    def _meters(self) -> list[str]:
        """Names of the meters that a container gets here."""
        name = self.name(0)
        group = cgroups.Group(cgroups.create(name) if self.cgroup else []).stay_out()
        try:
            return list(group.meters())
        finally:
            group.close()
            sweep.remove_named(name, sweep.NOBODY)

    def _told(self) -> dict[str, Any]:
        found = self.runsc
        return {"path": found.path, "flags": list(found.flags), "version": found.version, "platform": found.platform}

    def take(self) -> int:
        """None of its own: inside, identities are gVisor's."""
        return sweep.NOBODY

    def give_back(self, identity: int) -> None:
        """Nothing to do: none was taken."""


def has_nvproxy() -> bool:
    """Whether this host's ``runsc`` can pass NVIDIA GPUs into its containers: whether its build knows ``--nvproxy``."""
    path = runsc.locate()
    if path is None:
        return False
    try:
        done = subprocess.run([path, "flags"], capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return "-nvproxy" in done.stdout + done.stderr


class Around:
    """The bounds of the control group around one container."""

    def __init__(self, group: cgroups.Group) -> None:
        self.group = group
        group.set_cpu(len(os.sched_getaffinity(0)))

    def bound(self, memory_mib: int, workspace_mib: int, processes: int) -> None:
        """Set what a job may use, all of it together, with room for the kernel in user space."""
        self.group.set_pids(min(MOST_TASKS, KERNEL_TASKS + processes * (processes + 16)))
        room = memory_mib + workspace_mib + KERNEL_MIB + PROCESS_MIB * processes
        self.group.set_memory(self.group.usage() + (room << 20))

    def worn(self) -> bool:
        """Never: gVisor gives back what a program no longer uses."""
        return False

    def close(self) -> None:
        """Let go of it."""
        self.group.close()
