"""The wall of a virtual machine around sandboxes: a machine for each one.

All are copies of one machine, which was saved as its agent, a sandbox's room,
said READY. What a sandbox lies on is on a second disk, which its copy mounts when
it is woken; so there is one saved machine for all images and snapshots.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from proctor.core.errors import IsolationUnavailable
from proctor.core.image import Image
from proctor.core.sandbox import SandboxError, SandboxSpec
from proctor.guest import cgroups
from proctor.isolation import erofs, microvm, monitors, qemu, sweep, template
from proctor.isolation.base import AgentProcess
from proctor.isolation.enclosed import ContainerGroup, Enclosing

_EMULATED = 0.5  # weight of a machine whose CPU is emulated
MOST_MIB = template.MEMORY_MIB * 7 // 8


def check(spec: SandboxSpec) -> None:
    """SandboxError ``too_large`` (400) for what a machine has not."""
    if spec.bound_mib > MOST_MIB:
        name = "memory_mib" if spec.memory_mib > MOST_MIB else "disk_mib"
        raise SandboxError(
            f"{name}: a sandbox of {spec.bound_mib} MiB, its files included, is more than a virtual machine has for one "
            f"({MOST_MIB})", code="too_large", status=400, hint="ask for less, or for isolation 'gvisor' or 'jail'",
        )  # fmt: skip
    if spec.vcpu > 1:
        raise SandboxError(
            f"vcpu: a virtual machine has one CPU, and {spec.vcpu:g} are asked for", code="too_large", status=400,
            hint="ask for 1 or less, or for isolation 'gvisor' or 'jail'",
        )  # fmt: skip


def find(environ: Mapping[str, str] | None = None) -> qemu.Qemu:
    """What machines of sandboxes are made of: QEMU, in any case.

    Raises:
        IsolationUnavailable: it cannot be had; or the environment names Firecracker.
        InputError: what the environment names is none.
    """
    environ = os.environ if environ is None else environ
    if environ.get(monitors.MONITOR) == "firecracker":
        raise IsolationUnavailable(
            f"isolation 'microvm': sandboxes have machines of QEMU's alone, and {monitors.MONITOR} names firecracker; "
            "take it out of the environment, or use isolation 'gvisor' or 'jail'"
        )
    return monitors.find(environ) if environ.get(monitors.MONITOR) else qemu.find(environ)


class Saved:
    """The machine that sandboxes of one engine are copies of.

    Args:
        ground: the image of the agent of sandboxes in jails.
    """

    def __init__(self, ground: Image) -> None:
        inside = {path for _, path in ground.plan["binds"] if path.startswith("/.")}  # the store's layers
        plan = {
            **ground.plan, "binds": [bind for bind in ground.plan["binds"] if bind[1] not in inside], "hidden": [],
            "owner": 1000,  # the sandbox's user, by the number that it has inside
        }  # fmt: skip
        self.image = replace(ground, plan=plan)
        self._found: template.Template | None = None
        self._lock = threading.Lock()
        self._closed = False

    def get(self, found: qemu.Qemu) -> template.Template:
        """It; booted and saved now where it was not before.

        Raises:
            IsolationUnavailable: no machine comes up here, and why.
            OSError: the cache directory cannot be written.
        """
        with self._lock:
            if self._found is not None and not (self._found.folder / "told").is_file():
                self._found.close()  # somebody has removed it
                self._found = None
            if self._found is None:
                self._found = template.get(self.image, found, room=True)
            made = self._found
        if self._closed:
            self.close()
        return made

    def close(self) -> None:
        """Let go of it; where it is being made that happens at its end, and nobody waits for it."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            if self._found is not None:
                self._found.close()
            self._found = None
            self._lock.release()


class MachineGroup(ContainerGroup):
    """The control group around one machine. What its sandbox may use is kept inside; all of it has no more than this."""

    def bound(self, memory_mib: int, processes: int, vcpu: float) -> None:
        """Let the machine compute as much as its sandbox may."""
        del memory_mib, processes
        self.meter.set_cpu(vcpu)


class MachineBoundary(Enclosing, microvm.MicrovmBoundary):
    """Starts machines for the sandboxes on one root.

    Args:
        saved: what they are copies of.
        layers: directories of the store's layers that they lie on.

    Raises:
        IsolationUnavailable: there is no QEMU or no kernel here, or the environment names Firecracker.
        OSError: a layer cannot be read.
    """

    processes = 256
    names = socket.SOCK_SEQPACKET  # whose end passes

    def __init__(self, saved: Saved, layers: Sequence[str], *, cgroup: bool = True) -> None:
        super().__init__(cgroup=cgroup, found=find())
        self.saved = saved
        self.layers = erofs.Layers(layers)
        self._groups = {}
        if self.qemu.accelerator == "tcg":  # else it would seem to hang beside three others that compute
            self.weight = _EMULATED

    def prepare(self, image: Image) -> None:
        """Boot and save the machine where that was not done before; see ``Boundary``."""
        self.saved.get(self.qemu)

    def start(self, image: Image, number: int) -> AgentProcess:
        """Start one machine; see ``Boundary``."""
        saved = self.saved.get(self.qemu)
        name = self.name(number)
        paths = cgroups.create(name) if self.cgroup else []
        meter = cgroups.Group(paths).stay_out()
        microvm.bound(meter, saved.told["memory_mib"])
        try:
            agent = self.copy(saved, image, name, self.layers.fds)
        except BaseException:
            meter.close()
            sweep.remove_named(name, sweep.NOBODY)
            raise
        self._groups[name] = MachineGroup(paths, meter)
        return agent

    def close(self) -> None:
        """Let go of the layers."""
        self.layers.close()
