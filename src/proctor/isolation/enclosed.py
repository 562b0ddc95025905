"""The wall of gVisor around sandboxes: a container for each one."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

from proctor.core.errors import IsolationUnavailable
from proctor.core.image import Image
from proctor.guest import bundle, cgroups
from proctor.isolation import gvisor, runsc, sweep
from proctor.isolation.base import AgentProcess
from proctor.isolation.jail import JailBoundary
from proctor.isolation.lobby import WEIGHT, LobbyBoundary, RoomGroup

_ROOTLESS = "--rootless"  # it is started in a user namespace, whoever starts it
_GUEST = Path(bundle.__file__).parent


class ContainerGroup(RoomGroup):
    """The control group around one container, the kernel in user space included."""

    def bound(self, memory_mib: int, processes: int, vcpu: float) -> None:
        """Set what a sandbox may use, with room for gVisor itself: what is exact is kept inside."""
        room = memory_mib + gvisor.KERNEL_MIB + gvisor.PROCESS_MIB * processes
        self.meter.set_memory(self.meter.usage() + (room << 20))
        self.meter.set_pids(min(gvisor.MOST_TASKS, gvisor.KERNEL_TASKS + processes * (processes + 16)))
        self.meter.set_cpu(vcpu)

    def met_its_memory(self) -> bool:
        """Something of it was killed because all together reached the bound; False too where that cannot be told any more."""
        try:
            return self.meter.oom_kills() > 0
        except OSError:
            return False

    def kill_all_but_init(self) -> bool:
        """Nothing: what the host sees are threads of gVisor."""
        return False


class Enclosing(JailBoundary):
    """What has a control group for each agent, which its one sandbox takes over.

    Attributes:
        processes: that a sandbox may have at once.
        names: kind of socket on which its questions for names pass.
        weight: of a CPU, against any other process.
    """

    processes: int
    names: socket.SocketKind
    weight = WEIGHT
    _groups: dict[str, ContainerGroup]

    def group(self, agent: AgentProcess, number: int) -> ContainerGroup:
        """The control group of this agent's one sandbox: the agent's own. Whoever asks removes it."""
        del number
        group = self._groups.pop(agent.name)
        cgroups.lighten(group.paths, self.weight)
        return group

    def ended(self, agent: AgentProcess) -> bool:
        """See ``Boundary``."""
        if group := self._groups.pop(agent.name, None):  # it never became a sandbox
            group.meter.close()
        return super().ended(agent)


class EnclosedBoundary(Enclosing, LobbyBoundary):
    """Starts containers of ``runsc``, one a sandbox.

    Args:
        layers: directory of the store whose layers sandboxes may lie on; None for none.
        floor: what a sandbox's root is made of: ``layers``, ``host``, ``tops`` and ``covers`` of ``guest/floor.py``.

    Raises:
        IsolationUnavailable: no ``runsc`` works here, or none that sandboxes can use.
    """

    agent_mib = 96
    names = socket.SOCK_DGRAM

    def __init__(self, layers: Path | None, floor: dict[str, Any], *, cgroup: bool = True) -> None:
        super().__init__(layers, cgroup=cgroup)
        self.levels = ["gvisor"]
        self.runsc = runsc.find()
        if self.runsc.platform == "kvm":  # its device is not shown behind the namespaces, nor are its identities let in
            raise IsolationUnavailable(
                f"isolation 'gvisor': of the platforms of {self.runsc.path} only kvm works here, and sandboxes need systrap or ptrace"
            )
        self.floor = floor
        self.processes = 128  # each is 10 MiB of the host's
        self._groups = {}

    def start(self, image: Image, number: int) -> AgentProcess:
        """Start one container; see ``Boundary``."""
        name = self.name(number)
        paths = cgroups.create(name) if self.cgroup else []
        meter = cgroups.Group(paths)
        try:
            fds = meter.meters()
            plan = {**image.plan, "hidden": [[str(_GUEST), bundle.GUEST, False]]}
            flags = [flag for flag in self.runsc.flags if flag != _ROOTLESS]
            told = {
                "path": self.runsc.path, "flags": [*flags, *self.runsc.boxed, _ROOTLESS], "version": self.runsc.version,
                "platform": self.runsc.platform,
            }  # fmt: skip
            alone = os.geteuid() != 0
            more = {
                "root": plan, "meters": list(fds), "runsc": told, "floor": self.floor, "alone": alone,
                **({"known_as": 0} if alone else {}),
            }  # fmt: skip
            agent = self.spawn(image, name, more)
            if fds:
                with contextlib.suppress(OSError):  # it is dead already: that is seen by whoever reads its first word
                    socket.send_fds(agent.control, [b"m"], list(fds.values()))
        except BaseException:
            meter.close()
            for path in paths:
                sweep.remove_group(path)
            raise
        meter.stay_out()
        meter.set_cpu(len(os.sched_getaffinity(0)))
        self._groups[name] = ContainerGroup(paths, meter)
        return agent
