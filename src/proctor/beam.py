"""Sandboxes in the shape of Beam's SDK: change the import, and the code stays.

    from proctor.beam import Image, Sandbox

Differences: a sandbox is offline unless it is asked for a network
(``block_network=False`` or ``allow_list``), and ``keep_warm_seconds`` counts
from its creation, whether it is used or not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from proctor.client.beam_image import Image
from proctor.client.beam_process import (
    SandboxProcess,
    SandboxProcessManager,
    SandboxProcessResponse,
    SandboxProcessTimeout,
)
from proctor.client.errors import invalid, unsupported
from proctor.client.fields import NEVER_S, seconds, whole
from proctor.client.sync_runtime import Runtime
from proctor.client.sync_sandbox import Sandbox as _Sandbox
from proctor.client.values import Record

__all__ = [
    "Image", "Sandbox", "SandboxFileInfo", "SandboxFileSystem", "SandboxInstance", "SandboxProcess",
    "SandboxProcessManager", "SandboxProcessResponse", "SandboxProcessTimeout",
]  # fmt: skip

_UNITS = {"Mi": 1.0, "Gi": 1024.0, "M": 1.0, "G": 1000.0, "Ki": 1 / 1024}
_LEAVE_OUT = {
    "volumes": "copy files with fs.upload_file", "disks": "copy files with fs.upload_file",
    "secrets": "hand over what a program may know with env", "sync_local_dir": "copy files with fs.upload_file",
    "docker_enabled": "leave it out", "use_vm": "leave it out", "ports": "a sandbox here cannot be reached from outside",
    "authorized": "leave it out", "pool": "leave it out", "context": "leave it out",
}  # fmt: skip


def memory_mib(value: object) -> int:
    """``128`` or ``"512Mi"`` or ``"1Gi"`` as MiB."""
    if isinstance(value, str) and (found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(Ki|Mi|Gi|M|G)", value.strip())):
        value = int(float(found[1]) * _UNITS[found[2]])
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid("memory", value, "give MiB as a number, or text such as '512Mi' or '1Gi'")
    return value


def cores(value: object) -> float:
    """``1.0`` or ``"500m"`` as CPUs."""
    if isinstance(value, str) and (found := re.fullmatch(r"(\d+)m", value.strip())):
        value = int(found[1]) / 1000
    return seconds("cpu", value, least=0.01, most=1024)


class Sandbox:
    """What sandboxes are made from; ``create`` makes one.

    Args:
        cpu: CPUs.
        memory: MiB, or text such as ``"512Mi"``, for processes and files together.
        gpu: model of its GPUs, ``"any"`` for whichever there are, or a list of models of which any will do.
        gpu_count: how many; 1 where only ``gpu`` is given.
        image: what is installed.
        keep_warm_seconds: seconds until it ends by itself; -1 for never.
        env: variables of all of its commands.
        block_network: None or True: offline; False: the internet, or what ``allow_list`` names.
    """

    def __init__(
        self, cpu: float | str = 1.0, memory: int | str = 128, gpu: Any = "", gpu_count: int = 0,
        image: Image | None = None, keep_warm_seconds: int = 600, *, name: str | None = None,
        env: Mapping[str, str] | None = None, block_network: bool | None = None,
        allow_list: Sequence[str] | None = None, runtime: Runtime | None = None, **other: Any,
    ) -> None:  # fmt: skip
        for field, value in other.items():
            if field not in _LEAVE_OUT:
                raise TypeError(
                    f"Sandbox() has no field {field!r}. It has: cpu, memory, image, keep_warm_seconds, env, ..."
                )
            if value:
                raise unsupported(field, _LEAVE_OUT[field])
        if block_network and allow_list:
            raise invalid("allow_list", allow_list, "leave it out with block_network=True")
        self.image = image or Image()
        self._runtime = runtime or Runtime()
        self._fields = {
            "vcpu": cores(cpu), "memory_mib": memory_mib(memory), "timeout_seconds": _lease(keep_warm_seconds),
            "env": {**self.image.variables, **(env or {})}, "network": _network(block_network, allow_list),
            "labels": {"name": name} if name else {}, **_gpus(gpu, gpu_count),
        }  # fmt: skip

    def create(self) -> SandboxInstance:
        """A running sandbox; builds its image first where that was not done before."""
        snapshot = self.image.snapshot(self._runtime)
        return SandboxInstance(self._runtime.sandboxes.create(**self._fields, snapshot=snapshot))

    def connect(self, id: str) -> SandboxInstance:
        """The running sandbox of an id."""
        return SandboxInstance(self._runtime.sandboxes.get(id))

    def create_from_memory_snapshot(self, snapshot_id: str) -> SandboxInstance:
        """Not supported: raises."""
        raise unsupported("create_from_memory_snapshot", "use Image.from_id(create_image_from_filesystem())")

    def debug(self) -> None:
        """Not supported: raises."""
        raise unsupported("debug", "use create(), and process.exec")


def _gpus(gpu: Any, count: object) -> dict[str, Any]:
    """Beam's two fields as ours; a model that this host has not is refused when the sandbox is made."""
    given = gpu if isinstance(gpu, list | tuple) else [gpu]
    names = [str(getattr(each, "value", each) or "") for each in given]
    names = [name for name in names if name not in ("", "NoGPU")]
    if not names and not count:
        return {}
    number = whole("gpu_count", count or 1, least=1, most=64)
    return {"gpu": number, "gpu_model": names or ["any"]}


def _lease(ttl: object) -> float:
    return NEVER_S if ttl == -1 else seconds("keep_warm_seconds", ttl, least=1)


def _network(block: bool | None, allow: Sequence[str] | None) -> dict[str, Any]:
    if block or (block is None and not allow):
        return {"internet": False}
    return {"internet": True, "allow": list(allow or [])}


class SandboxInstance:
    """A running sandbox. A ``with`` block terminates it."""

    def __init__(self, sandbox: _Sandbox) -> None:
        self.sandbox = sandbox
        self.container_id, self.ok, self.error_msg = sandbox.id, True, ""
        self.process = SandboxProcessManager(sandbox)
        self.fs = SandboxFileSystem(sandbox)

    def sandbox_id(self) -> str:
        """Its id, for ``connect``."""
        return self.sandbox.id

    def status(self) -> tuple[int, str]:
        """(-1, "running"), or (0, "stopped")."""
        state = self.sandbox.refresh().state
        return (-1, state) if state == "running" else (0, state)

    def poll(self) -> int | None:
        """None while it runs."""
        code, state = self.status()
        return None if state == "running" else code

    def terminate(self) -> bool:
        """End it; returns when nothing of it is left."""
        self.sandbox.stop()
        return True

    def update_ttl(self, ttl: int) -> None:
        """Let it end by itself after so many seconds from now; -1 for never."""
        self.sandbox.update(timeout_seconds=_lease(ttl))

    def update_network_permissions(self, block_network: bool = False, allow_list: Sequence[str] | None = None) -> None:
        """Change what it may reach, at once."""
        if block_network and allow_list:
            raise invalid("allow_list", allow_list, "leave it out with block_network=True")
        self.sandbox.network.set(_network(block_network, allow_list))

    def create_image_from_filesystem(self) -> str:
        """Keep its files as an image: the id is for ``Image.from_id``."""
        return self.sandbox.snapshot().id

    def snapshot_memory(self) -> str:
        """Not supported: raises."""
        raise unsupported("snapshot_memory", "create_image_from_filesystem keeps the files")

    def expose_port(self, port: int) -> str:
        """Not supported: raises."""
        raise unsupported("expose_port", "a sandbox here cannot be reached from outside")

    def __enter__(self) -> SandboxInstance:
        return self

    def __exit__(self, *error: object) -> None:
        if not self.sandbox._door.backend.closed:
            self.terminate()


class SandboxFileInfo:
    """A file. ``mod_time`` is seconds since the epoch; ``mode`` and ``permissions`` are the permission bits."""

    def __init__(self, record: Record, modified: float) -> None:
        self.name, self.size = record.name, record.size
        self.is_dir = record.type == "directory"
        self.mode = self.permissions = record.mode
        self.mod_time = int(modified)
        self.owner = self.group = "sandbox"

    def __str__(self) -> str:
        return ascii(self.name)[1:-1]


def _info(record: Record) -> SandboxFileInfo:
    return SandboxFileInfo(record, datetime.fromisoformat(record.modifiedAt).timestamp() if record.modifiedAt else 0)


class SandboxFileSystem:
    """``instance.fs``. A path that is not absolute is in /workspace."""

    def __init__(self, sandbox: _Sandbox) -> None:
        self._files = sandbox.files

    def upload_file(self, local_path: str | os.PathLike[str], sandbox_path: str) -> None:
        """Copy a file of this host into the sandbox."""
        self._files.upload(local_path, sandbox_path)

    def download_file(self, sandbox_path: str, local_path: str | os.PathLike[str]) -> None:
        """Copy a file of the sandbox to this host."""
        self._files.download(sandbox_path, local_path)

    def write_bytes(self, sandbox_path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file."""
        self._files.write(sandbox_path, data, mode=mode)

    def write_text(self, sandbox_path: str, text: str, encoding: str = "utf-8", mode: int = 0o644) -> None:
        """Write a file of text."""
        self._files.write(sandbox_path, text.encode(encoding), mode=mode)

    def read_bytes(self, sandbox_path: str) -> bytes:
        """All of a file."""
        return self._files.read(sandbox_path)

    def read_text(self, sandbox_path: str, encoding: str = "utf-8") -> str:
        """All of a file, as text."""
        return self._files.read(sandbox_path).decode(encoding)

    def stat_file(self, sandbox_path: str) -> SandboxFileInfo:
        """What a path is."""
        return _info(self._files.stat(sandbox_path))

    def list_files(self, sandbox_path: str) -> list[SandboxFileInfo]:
        """What is in a directory."""
        return [_info(record) for record in self._files.list(sandbox_path)]

    def create_directory(self, sandbox_path: str) -> None:
        """Make a directory, and those that it is in."""
        self._files.mkdir(sandbox_path)

    def delete_directory(self, sandbox_path: str) -> None:
        """Remove a directory with all that is in it."""
        self._files.remove(sandbox_path, recursive=True)

    def delete_file(self, sandbox_path: str) -> None:
        """Remove a file."""
        self._files.remove(sandbox_path)

    def remove(self, sandbox_path: str) -> None:
        """Remove a file, or a directory with all that is in it."""
        self._files.remove(sandbox_path, recursive=True)
