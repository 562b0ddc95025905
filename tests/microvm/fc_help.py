"""A host with Firecracker, as far as the tests can have one: a program that speaks its API, and processes for machines."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import zlib
from inspect import unwrap
from pathlib import Path
from typing import Any

import pytest

from proctor.core.image import Image
from proctor.core.limits import Limits
from proctor.images.host import host_image
from proctor.isolation import erofs, firecracker, firsttime, initramfs, qemu, template
from proctor.isolation.jail import JailBoundary

HERE = Path(__file__).parent
LIMITS = Limits(cpu_s=20, wall_s=120, memory_mib=128)
TEMPLATE = ["PUT /machine-config", "PUT /boot-source", "PUT /drives/root", "PUT /vsock", "PUT /entropy", "PUT /actions", "PATCH /vm", "PUT /snapshot/create"]  # fmt: skip
COPY = ["PUT /snapshot/load", "PATCH /vm"]


def needs_device() -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("what stands for Firecracker runs by /usr/bin/python3")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("the walls around Firecracker hold the device /dev/kvm, which this user has not; it need not work")


class Host:
    """The program's directory, the socket beside it, and what it was asked."""

    def __init__(self, prefix: Path, image: Image) -> None:
        self.prefix, self.image = prefix, image
        (prefix / "bin").mkdir(parents=True)
        prefix.chmod(0o755)
        for name, place in (("fc_monitor.py", "firecracker"), ("fc_description.py", "fc_description.py")):
            shutil.copy(HERE / name, prefix / "bin" / place)
            (prefix / "bin" / place).chmod(0o755)
        (prefix / "machines").mkdir()
        self.version("1.16.1")
        self.faults()
        self.jails = JailBoundary("jail")
        self.processes: list[dict[str, Any]] = []  # each a monitor, in the order in which they came
        self.number = 0
        self.threads: list[threading.Thread] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(prefix / "outside"))
        (prefix / "outside").chmod(0o777)
        self.listener.listen(20)
        self.acceptor = threading.Thread(target=self._accept, daemon=True)
        self.acceptor.start()

    def version(self, version: str) -> None:
        (self.prefix / "version").write_text(version)

    def faults(self, **faults: str) -> None:
        """Request, as in "PUT /vsock" -> what is answered, or "die"; see the monitor for others."""
        (self.prefix / "faults").write_text(json.dumps(faults))

    def environ(self, **more: str) -> dict[str, str]:
        return {"PATH": f"{self.prefix}/bin", "PROCTOR_MICROVM_MONITOR": "firecracker", **more}

    def requests(self, number: int) -> list[tuple[str, str, Any]]:
        """What a monitor was asked: method, path, body."""
        return [(method, path, body) for method, path, body, _, _ in self.processes[number]["requests"]]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.acceptor.join()
        self.listener.close()
        for thread in self.threads:
            thread.join()

    # ------------------------------------------------------------ machines

    def _accept(self) -> None:
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            known: dict[str, Any] = {"requests": [], "around": None, "woken": None}
            self.processes.append(known)
            thread = threading.Thread(target=self._serve, args=(sock, known), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, known: dict[str, Any]) -> None:
        """One monitor: its machine ends with it."""
        process, identity, told = None, -1, {}
        # To close the file flushes once more what could not be written, so that is within.
        with contextlib.suppress(ConnectionError), sock, sock.makefile("rw") as file:
            for line in file:
                if not line.endswith("\n"):
                    break  # the monitor was killed as it wrote
                words = json.loads(line)
                if "request" in words:
                    known["requests"].append(words["request"])
                elif "start" in words:
                    identity = self.jails.take()
                    told = self._told(words["start"], identity)
                    known |= {"around": words.get("around"), "woken": Path(told["woken"])}
                    process = self._start(told)
                    file.write(json.dumps({"guest": told["listen"]}) + "\n")
                    file.flush()
                else:
                    file.write(json.dumps({"saved": json.loads(Path(told["keep"]).read_text())}) + "\n")
                    file.flush()
        if process is not None:
            process.send_signal(signal.SIGKILL)  # its agent sees that and goes too
            process.wait()
            self.jails.give_back(identity)

    def _told(self, saved: Any, identity: int) -> dict[str, Any]:
        self.number += 1
        folder = self.prefix / "machines" / str(self.number)
        folder.mkdir()
        name = self.jails.name(1000 + self.number)
        agent = {"name": name, "box": f"/tmp/{name}", "uid": identity}
        return {
            "guest": str(firsttime.GUEST), "listen": f"{folder}/port", "saved": saved, "keep": f"{folder}/config",
            "plan": self.image.plan, "agent": agent, "cpu": f"{folder}/cpu", "woken": f"{folder}/woken", "folder": str(folder),
        }  # fmt: skip

    def _start(self, told: dict[str, Any]) -> subprocess.Popen[bytes]:
        path = Path(told["folder"]) / "told"
        path.write_text(json.dumps(told))
        with open(path.parent / "log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "fc_guest.py"), str(path)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )  # fmt: skip
        while not os.path.exists(told["listen"]) and process.poll() is None:
            threading.Event().wait(0.01)
        return process


def kernel(folder: Path) -> Path:
    """A kernel's file and its modules, in form only: nothing boots them here."""
    packed = zlib.compressobj(wbits=31)
    payload = packed.compress(b"\x7fELF" + bytes(1000)) + packed.flush()
    head = bytearray(0x1000)
    head[0x1F1] = 4
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x20E, 0x100)
    head[0x300 : 0x300 + 8] = b"6.1.0-9\0"
    struct.pack_into("<II", head, 0x248, 0x1000 - 5 * 512, len(payload))
    (folder / "boot").mkdir(parents=True)
    (folder / "boot/vmlinuz-6.1.0-9").write_bytes(bytes(head) + payload)
    modules = folder / "lib/modules/6.1.0-9/kernel"
    modules.mkdir(parents=True)
    for name in initramfs.MODULES["firecracker"]:
        (modules / f"{name}.ko").write_bytes(b"\0depends=\0")
    return folder / "boot/vmlinuz-6.1.0-9"


class Place:
    """A host that seems to have Firecracker, KVM and a kernel, and a small image to copy."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.host = Host(folder / "opt", host_image())
        small = folder / "small"
        small.mkdir()
        (small / "file").write_bytes(os.urandom(10_000))
        plan = {"binds": [[str(small), "/small"]], "links": [], "files": {}, "dirs": [], "covers": {}}
        whole = erofs.save
        patch.setattr(erofs, "save", lambda _, extra, place: whole(plan, extra, place))
        patch.setattr(template, "MEMORY_MIB", 1024)
        (folder / "kvm").touch()
        (folder / "kvm").chmod(0o666)
        patch.setattr(firecracker, "KVM", str(folder / "kvm"))
        patch.setattr(firecracker, "_tried", unwrap(firecracker._tried))
        patch.setattr(qemu, "version", unwrap(qemu.version))
        patch.setenv("PATH", f"{folder}/opt/bin:{os.environ['PATH']}")
        patch.setenv(qemu.KERNEL, str(kernel(folder / "kernel")))
        patch.setenv("PROCTOR_MICROVM_MONITOR", "firecracker")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def methods(self, number: int) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.host.requests(number)]
