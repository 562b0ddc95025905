"""Saved machines: one is booted once for an image, until its agent says READY, and kept in the cache directory.

A directory holds all of it: the disk's index and table, the first file system,
the machine's memory and state, and what was measured. Its name is a digest of
what it was made from.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.core.errors import IsolationUnavailable
from proctor.core.image import Image
from proctor.core.runner import RUNNER
from proctor.guest import blocks, channels, machine
from proctor.isolation import erofs, firecracker, firsttime, initramfs, kept, saving
from proctor.isolation.firsttime import BOOT_S
from proctor.isolation.kept import GUEST
from proctor.isolation.qemu import PLACE, Qemu

MEMORY_MIB = 4096  # of a machine: what it does not use costs nothing
LAYERS_BYTES = 1 << 40  # of the disk that a sandbox's layers lie on, whatever they are: it is part of the saved machine
_INSIDE = "/.proctor"
_MOST_BYTES, _MOST_KEPT = 4 << 30, 8
_COMMAND_LINE = (
    "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check apparmor=0 selinux=0 audit=0 transparent_hugepage=never "
    "random.trust_cpu=on rdinit=/init"
)


@dataclass(frozen=True, slots=True)
class Template:
    """A saved machine.

    Attributes:
        folder: where it lies.
        told: what ``guest.machine`` is told about it.
        pace: CPU seconds that it counts for one of this host's.
        memory: sealed memory file with its memory.
        state: the same with the state of its devices.
        disk: file with its root, where what runs it reads it from a file; else -1.
    """

    folder: Path
    told: dict[str, Any]
    pace: float
    memory: int
    state: int
    disk: int = -1

    def close(self) -> None:
        """Let go of the memory files; what was started from them has its own."""
        for fd in (self.memory, self.state, self.disk):
            if fd >= 0:
                os.close(fd)


def get(image: Image, qemu: Qemu, told: Callable[[str], None] = lambda _: None, *, room: bool = False) -> Template:
    """The saved machine of an image; made now where there is none.

    Args:
        told: hears what takes a while.
        room: its agent is a sandbox's room, else a slot's.

    Raises:
        IsolationUnavailable: no machine comes up here, and why.
        OSError: the cache directory cannot be written.
    """
    top = kept.folder("machines")
    top.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = _key(image, qemu, room)
    folder = top / key
    with kept.locked(top / f"{key}.lock"):
        if not _whole(folder):
            copy = ", and its files are copied for Firecracker" if qemu.monitor == "firecracker" else ""
            told(f"a machine is booted for this image, once; that takes some 10 s{copy}")
            shutil.rmtree(folder, ignore_errors=True)
            _tidy(top)
            made = Path(tempfile.mkdtemp(prefix="new-", dir=top))
            try:
                _make(made, image, qemu, room)
                os.rename(made, folder)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
        os.utime(folder)
        return _load(folder)


def _whole(folder: Path) -> bool:
    """It is there, and so is the file that it reads its root from, if any."""
    with contextlib.suppress(OSError):
        disk = json.loads((folder / "told").read_text()).get("disk")
        return disk is None or (folder.parent / "disks" / disk).is_file()
    return False


def _key(image: Image, qemu: Qemu, room: bool) -> str:
    single = [path for path, _ in image.plan["binds"] if os.path.isfile(path)]  # of which no directory tells
    named = (qemu.path, qemu.kernel, image.python, *single)
    files = [[path, os.stat(path).st_mtime_ns, os.stat(path).st_size] for path in named]
    about: list[Any] = [RUNNER, image.digest, image.plan, image.env, qemu.version, qemu.accelerator, files]
    about += [kept.guest_files(), [LAYERS_BYTES] if room else []]
    about += [MEMORY_MIB, _COMMAND_LINE, firecracker.COMMAND_LINE, qemu.monitor, os.geteuid(), kept.cpu()]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def _tidy(top: Path) -> None:
    """Remove the machines that are too many, what was left half made, and the files of neither."""
    left = kept.prune(top, _MOST_KEPT, _MOST_BYTES, 2 * BOOT_S)
    named = [json.loads((path / "told").read_text()).get("disk") for path in left]
    saving.tidy(top / "disks", set(filter(None, named)), 2 * BOOT_S)


def _make(folder: Path, image: Image, qemu: Qemu, room: bool) -> None:
    size = erofs.save(image.plan, {f"{_INSIDE}/guest": str(GUEST)}, folder)
    other = qemu.monitor == "firecracker"
    first = f"#!{image.python} -S\nimport sys\nsys.argv = ['first', {image.python!r}, '{_INSIDE}/guest/pid1.py']\nsys.path.insert(0, '/first')\nimport first\n"  # fmt: skip
    with open(folder / "first", "wb") as file:
        content = {"/init": first.encode(), "/first/first.py": (GUEST / "first.py").read_bytes()}
        modules = (*initramfs.MODULES[qemu.monitor], *(initramfs.FOR_ROOMS if room else ()))
        initramfs.write(file, image.python, image.plan["links"], Path(qemu.modules), content, modules)
    told = {
        "monitor": qemu.monitor, qemu.monitor: qemu.path, "version": qemu.version, "accelerator": qemu.accelerator, "memory_mib": MEMORY_MIB,
        "command_line": firecracker.COMMAND_LINE if other else _COMMAND_LINE, "disk_bytes": size, "kernel": qemu.kernel, "release": qemu.release,
    }  # fmt: skip
    if room:
        told["layers_bytes"] = LAYERS_BYTES
    if other:
        disks = folder.parent / "disks"
        told["disk"] = saving.disk(folder, size, disks)
        pace = saving.boot(folder, told, image, disks)
    else:
        pace = _boot(folder, told, image)
    (folder / "told").write_text(json.dumps(told | {"pace": pace}))


def _boot(folder: Path, told: dict[str, Any], image: Image) -> float:
    """Boot a machine and save it as its agent has said READY; how much slower it is than this host."""
    room = "layers_bytes" in told
    sockets = machine.Sockets(layers=room)
    disks = [blocks.Disk.within(str(folder), told["disk_bytes"])]
    if room:
        with erofs.Layers() as none:
            disks.append(blocks.Disk(*none.paths, size=LAYERS_BYTES))
    servers = [blocks.Server(disk, sock) for disk, sock in zip(disks, sockets.disks, strict=True)]
    serving = [threading.Thread(target=_serve, args=(server,), daemon=True) for server in servers]
    for thread in serving:
        thread.start()
    fds = sockets.there()
    command = machine.arguments(
        told | {"first": str(folder / "first")},
        memory=f"mem-path={folder}/memory,share=on",
        serial=f"file,path={folder}/console",
        incoming=False,
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PLACE, str(len(fds)), *map(str, fds), *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, pass_fds=fds, cwd="/", start_new_session=True,
    )  # fmt: skip
    try:
        sockets.keep()
        return _first_time(folder, told, image, sockets, process.pid)
    except (OSError, channels.Broken, TimeoutError) as exc:
        process.kill()
        words = (process.communicate()[1] or b"").decode("utf-8", "replace")[-500:]
        with contextlib.suppress(OSError):
            rows = (folder / "console").read_text("utf-8", "replace").splitlines()
            words += "\n".join([row for row in rows if "]  " not in row and "RSP:" not in row][-30:])[-1500:]
        raise IsolationUnavailable(
            f"isolation 'microvm': a machine of {told['qemu']} does not come up ({exc}); {servers[0].fault} {words.strip()}"
        ) from exc
    finally:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()
        for sock in (sockets.port, sockets.monitor):
            sock.close()
        for thread, disk, sock in zip(serving, disks, sockets.disks, strict=True):
            thread.join()
            disk.close()
            sock.close()


def _serve(server: blocks.Server) -> None:
    while server.step():
        pass


def _first_time(folder: Path, told: dict[str, Any], image: Image, sockets: machine.Sockets, qemu: int) -> float:
    monitor = machine.Monitor(sockets.monitor)
    pace = firsttime.begin(sockets.port.fileno(), told, image, qemu)
    state = os.open(folder / "state", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        monitor.ask("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])
        monitor.ask("getfd", (state,), fdname="state")
        monitor.ask("migrate", uri="fd:state")
        deadline = time.monotonic() + BOOT_S
        while (status := monitor.ask("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() > deadline:
                raise OSError(f"its state cannot be saved: {status}")
            time.sleep(0.02)
    finally:
        os.close(state)
    with contextlib.suppress(OSError):
        monitor.ask("quit")
    return pace


def _load(folder: Path) -> Template:
    told = json.loads((folder / "told").read_text())
    disk = -1
    if "disk" in told:
        disk = os.open(folder.parent / "disks" / told["disk"], os.O_RDONLY | os.O_CLOEXEC)
    memory, state = _sealed(folder / "memory"), _sealed(folder / "state")
    return Template(folder, told | {"folder": str(folder)}, told["pace"], memory, state, disk)


def _sealed(path: Path) -> int:
    """A file's content in memory, where nobody can change it any more; holes stay holes."""
    fd = os.memfd_create("machine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        os.ftruncate(fd, size)
        at = 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break  # only a hole is left
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < end:
                count = os.sendfile(_at(fd, at), file.fileno(), at, min(end - at, 1 << 24))
                if count == 0:
                    break
                at += count
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return fd


def _at(fd: int, offset: int) -> int:
    os.lseek(fd, offset, os.SEEK_SET)
    return fd
