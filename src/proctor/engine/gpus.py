"""Who has which GPU: handed out whole, to one sandbox at a time of all processes of this host.

A device that is handed out is a name in the kernel's own space of socket names
that this process holds: it needs no file, any user's processes see that it is
taken, and it is free again when this process dies, however that happens. It
reaches as far as the network namespace does: two containers that were given
the same GPU do not see each other.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from proctor.core.sandbox import SandboxError, SandboxSpec
from proctor.isolation.gpus import Gpu, Gpus, is_model, refusal

POINT, HOME = "/.gpus", "/usr/local/nvidia"  # in the agent's root and in a sandbox's, as in ``guest/gpus.py``
_PARAMS = "ModifyDeviceFiles"  # else the driver's libraries try to make nodes


class Pool:
    """The GPUs of a host, and which of them this process has handed out."""

    def __init__(self, found: Gpus) -> None:
        self.found = found
        self.held: dict[Gpu, socket.socket] = {}
        self.elsewhere = False  # the last ``take`` met one that another process holds

    def check(self, spec: SandboxSpec, level: str = "jail") -> None:
        """Refuse what can never be.

        Raises:
            SandboxError: ``no_gpu`` where this host or level gives none, or none of that model; ``too_large`` for more
                than it has.
        """
        if not spec.gpu:
            return
        if why := refusal(level):
            raise SandboxError(f"gpu: {why}", code="no_gpu", status=400)
        if not self.found.devices:
            raise SandboxError(
                f"gpu: this host has none to give to a sandbox: {'; '.join(self.found.missing)}",
                code="no_gpu", status=400, hint="leave gpu out, or do what the message says and start this process anew",
            )  # fmt: skip
        fitting = self.fitting(spec.gpu_models)
        if not fitting:
            models = ", ".join(dict.fromkeys(gpu.model for gpu in self.found.devices))
            raise SandboxError(
                f"gpu: this host has no {' or '.join(spec.gpu_models)}; it has: {models}", code="no_gpu", status=400,
                hint="ask for one of those, or for any",
            )  # fmt: skip
        if spec.gpu > len(fitting):
            of = f" of the model {' or '.join(spec.gpu_models)}" if spec.gpu_models else ""
            raise SandboxError(
                f"gpu: {spec.gpu} are more than the {len(fitting)} that this host has{of}", code="too_large",
                status=400, hint=f"ask for at most {len(fitting)}",
            )  # fmt: skip

    def fitting(self, models: Collection[str]) -> list[Gpu]:
        """Those of any of these models, handed out or not; all where none is named."""
        return [gpu for gpu in self.found.devices if not models or any(is_model(name, gpu.model) for name in models)]

    def take(self, count: int, models: Collection[str], but: Collection[Gpu] = ()) -> tuple[Gpu, ...] | None:
        """So many that nobody has, lowest numbers first; None where there are not, and then none is taken."""
        self.elsewhere = False
        free = [gpu for gpu in self.fitting(models) if gpu not in self.held and gpu not in but]
        if len(free) < count:
            return None
        taken: list[Gpu] = []
        for gpu in free:
            if len(taken) == count:
                break
            if (sock := _hold(gpu)) is not None:
                self.held[gpu] = sock
                taken.append(gpu)
        if len(taken) == count:
            return tuple(taken)
        self.elsewhere = True
        self.give_back(taken)
        return None

    def give_back(self, gpus: Collection[Gpu]) -> None:
        """Others may have them."""
        for gpu in gpus:
            if (sock := self.held.pop(gpu, None)) is not None:
                sock.close()

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        self.give_back(list(self.held))

    def hidden(self) -> list[list[Any]]:
        """What the agent's root binds for ``plan`` to name; see ``guest/root.py``."""
        return [[path, f"{POINT}/{inside}", is_node] for path, inside, is_node in self.found.hidden()]

    def plan(self, gpus: Sequence[Gpu]) -> dict[str, Any] | None:
        """The part of a sandbox's root that is theirs; see ``guest/floor.py``."""
        if not gpus:
            return None
        texts = {path: text for gpu in gpus for path, text in gpu.texts}
        for path, text in self.found.texts:
            rows = [f"{_PARAMS}: 0" if row.startswith(f"{_PARAMS}:") else row for row in text.splitlines()]
            texts[path] = "\n".join(rows) + "\n"
        texts.setdefault("params", f"{_PARAMS}: 0\n")
        return {
            "nodes": [*self.found.nodes, *(name for gpu in gpus for name in (gpu.node, *gpu.capabilities))],
            "libraries": [[library.name, list(library.links)] for library in self.found.libraries],
            "program": self.found.smi is not None,
            "texts": texts,
            "system": [*self.found.system, *(gpu.system for gpu in gpus if gpu.system)],
            "links": {f"bus/pci/devices/{gpu.bus}": f"../../../{gpu.system}" for gpu in gpus if gpu.system},
        }


def environment(base: Mapping[str, str], own: Mapping[str, str], gpus: Sequence[Gpu]) -> dict[str, str]:
    """Variables of a sandbox's commands: its image's, those that its GPUs need, and its own, which come first."""
    env = {**base, **own}
    if not gpus:
        return env
    libraries = [part for part in env.get("LD_LIBRARY_PATH", "").split(":") if part]
    path = env.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").split(":")
    return {
        **env,
        # By what they are called everywhere, where that is known; and as CUDA counts, which sees no others.
        "NVIDIA_VISIBLE_DEVICES": ",".join(gpu.uuid or str(gpu.number) for gpu in gpus),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(gpus)))),
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        **own,
        "LD_LIBRARY_PATH": ":".join(dict.fromkeys([*libraries, f"{HOME}/lib64"])),
        "PATH": ":".join(dict.fromkeys([*path, f"{HOME}/bin"])),
    }


def _hold(gpu: Gpu) -> socket.socket | None:
    """A socket whose name says that a device is taken; None where somebody has that name."""
    what = f"{os.path.realpath(gpu.path)}:{os.stat(gpu.path).st_rdev}" if os.path.exists(gpu.path) else gpu.path
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.bind(f"\0proctor-gpu-{hashlib.sha256(what.encode()).hexdigest()[:32]}")
    except OSError:
        sock.close()
        return None
    return sock
