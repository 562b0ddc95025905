"""The wall of sandboxes: one agent that forks any number of them, each behind namespaces of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from proctor.guest import cgroups
from proctor.isolation import sweep
from proctor.isolation.base import AgentProcess, Boundary
from proctor.isolation.identities import LAYER_ROOT
from proctor.isolation.jail import JailBoundary

# Of a CPU, against any other process, where all want one. Fifty sandboxes that compute without end left the engine
# beside them a hundredth of two cores, and leases ended more than 5 s late; nobody else may be starved like that either.
WEIGHT = 0.125


@dataclass(slots=True)
class RoomGroup:
    """The control group of one sandbox, as seen from outside it; empty where this user may make none.

    Attributes:
        meter: bounds and meters.
        doors: descriptors that a process writes 0 to in order to enter; closed once they were sent.
    """

    paths: list[str]
    meter: cgroups.Group
    doors: list[int] = field(default_factory=list)

    def bound(self, memory_mib: int, processes: int, vcpu: float) -> None:
        """Set what a sandbox may use beyond what its pid 1 has now."""
        self.meter.set_memory(self.meter.usage() + (memory_mib << 20))
        self.meter.set_pids(processes + 2)
        self.meter.set_cpu(vcpu)

    def close_doors(self) -> None:
        """Nobody else enters."""
        for fd in self.doors:
            os.close(fd)
        self.doors.clear()

    def kill_all_but_init(self) -> bool:
        """Kill every process in it but the one that is pid 1 inside; False where from outside none is told from another."""
        for word in self.processes():
            with contextlib.suppress(OSError):
                rows = Path(f"/proc/{word}/status").read_text().splitlines()
                inside = next((row.split()[-1] for row in rows if row.startswith("NSpid")), "1")
                if inside != "1":
                    os.kill(word, signal.SIGKILL)
        return True

    def kill(self) -> bool:
        """Kill every process in it; False where there is none any more."""
        found = self.processes()
        for pid in found:
            if pid > 1:  # 0 is a process that this container cannot see
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        return bool(found)

    def processes(self) -> list[int]:
        """Their numbers on the host."""
        for path in self.paths[:1]:
            with contextlib.suppress(OSError):
                return [int(word) for word in Path(f"{path}/cgroup.procs").read_text().split()]
        return []

    def remove(self) -> bool:
        """Kill what is in it and remove it; False while something in it is still dying."""
        self.close_doors()
        gone = [sweep.remove_group(path) for path in self.paths]
        if all(gone):
            self.meter.close()
        return all(gone)


class RoomBoundary(Boundary, Protocol):
    """A wall behind which there are sandboxes.

    Attributes:
        processes: that each of them may have at once.
    """

    processes: int

    def group(self, agent: AgentProcess, number: int) -> RoomGroup:
        """The control group of a sandbox of this agent; whoever asks removes it."""
        ...


class LobbyBoundary(JailBoundary):
    """Starts lobbies. Their level is always jail: without namespaces nothing would keep two sandboxes apart.

    Args:
        layers: directory of the store whose layers sandboxes may lie on; None for none.
    """

    def __init__(self, layers: Path | None = None, *, cgroup: bool = True) -> None:
        super().__init__("jail", cgroup=cgroup)
        self.layers = layers
        self.extra = {"lobby": True}
        self.processes = 256  # of a sandbox: a hundred sandboxes of them fit in the 32,768 numbers of a host

    def take(self) -> int:
        """The identities of sandboxes, which all engines share."""
        return LAYER_ROOT

    def give_back(self, identity: int) -> None:
        """Nothing to do: they are never taken."""

    def group(self, agent: AgentProcess, number: int) -> RoomGroup:
        """A new control group for a sandbox of this agent. Its name lets the agent's end, or a sweep, find it."""
        paths = cgroups.create(room_name(agent.name, number)) if self.cgroup else []
        cgroups.lighten(paths, WEIGHT)
        meter = cgroups.Group(paths)
        doors, meter.procs = meter.procs, []
        return RoomGroup(paths, meter, doors)

    def ended(self, agent: AgentProcess) -> bool:
        """See ``Boundary``. All of its processes die with it, in its namespaces; left may be control groups.

        Not by identity as for other agents: the sandboxes of all engines have the same.
        """
        gone = [True]
        for parent in sweep.parents():
            with contextlib.suppress(OSError):
                for entry in list(os.scandir(parent)):
                    if entry.name == agent.name or entry.name.startswith(f"{agent.name}.r"):
                        gone.append(sweep.remove_group(entry.path))
        return all(gone)


def room_name(agent: str, number: int) -> str:
    """Name of a room's control group: the agent's, and a number."""
    return f"{agent}.r{number}"
