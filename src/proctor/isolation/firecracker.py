"""The host's Firecracker: where it is, and whether a machine boots with it, found by trying it."""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from proctor.core.errors import IsolationUnavailable
from proctor.guest import firecracker
from proctor.isolation import kept, qemu

INSTALL = (
    "install it from https://github.com/firecracker-microvm/firecracker/releases, say as /usr/local/bin/firecracker"
)
KVM = "/dev/kvm"
LEAST = (1, 16, 1)  # before it, what the host says after a load may reach the machine before its stream was reset
BOOT_S = 15.0
COMMAND_LINE = (
    "console=ttyS0 quiet reboot=k panic=-1 no_timer_check apparmor=0 selinux=0 audit=0 transparent_hugepage=never "
    f"random.trust_cpu=on rdinit=/init proctor.vsock={firecracker.PORT}"
)
_TOOLS = {b"\x02\x21\x4c\x18": "lz4", b"\x28\xb5\x2f\xfd": "zstd"}
_PACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": lambda data: zlib.decompressobj(31).decompress(data),
    b"\xfd7zXZ": lambda data: lzma.LZMADecompressor().decompress(data),
    b"\x5d\x00\x00": lambda data: lzma.LZMADecompressor().decompress(data),
    b"BZh": lambda data: bz2.BZ2Decompressor().decompress(data),
    b"\x7fELF": lambda data: data,
}


def find(environ: Mapping[str, str] | None = None) -> qemu.Qemu:
    """Firecracker and a kernel of this host, where a machine boots with them.

    Raises:
        IsolationUnavailable: something is missing, or no machine boots; names what was looked for and what to do.
        InputError: the kernel that the environment names is none.
    """
    environ = os.environ if environ is None else environ
    path = qemu.program("firecracker", environ, INSTALL)
    version = qemu.version(path, os.stat(path).st_mtime_ns, r"Firecracker v(\d+\.\d+\.\d+)")
    if tuple(map(int, version.split("."))) < LEAST:
        least = ".".join(map(str, LEAST))
        raise IsolationUnavailable(f"isolation 'microvm': {path} is {version}, and {least} is the first that will do")
    if why := _kvm():
        raise IsolationUnavailable(f"isolation 'microvm': {path} needs KVM, and {KVM} {why}")
    image, modules, release = qemu.kernel(environ)
    _tried(path, os.stat(path).st_mtime_ns, image, KVM)
    return qemu.Qemu(path, version, image, modules, release, "kvm", "firecracker")


def _kvm() -> str:
    """Why a machine cannot use KVM; "" where it may."""
    if not os.path.exists(KVM):
        return "is not there"
    if not os.access(KVM, os.R_OK | os.W_OK):
        return "may not be used by this user; join its group"
    info = os.stat(KVM)
    if os.geteuid() == 0 and info.st_mode & 6 != 6 and not (info.st_gid and info.st_mode & 0o60 == 0o60):
        return f"is for root alone, and machines run as nobody; give it to a group: chgrp kvm {KVM}; chmod 660 {KVM}"
    return ""


@cache
def _tried(path: str, stamp: int, image: str, kvm: str) -> None:
    """Boot a kernel, once a start of the host where it comes up; IsolationUnavailable where it does not."""
    about = [Path("/proc/sys/kernel/random/boot_id").read_text(), path, stamp, image, kvm]
    known = kept.folder("machines") / f"firecracker-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}"
    if known.is_file():
        return
    if why := _boots(path, image):
        raise IsolationUnavailable(
            f"isolation 'microvm': no machine boots with {path} here ({why}); see that KVM works, or take QEMU"
        )
    with contextlib.suppress(OSError):
        known.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in known.parent.glob("firecracker-*"):
            old.unlink()
        known.touch()


def _boots(path: str, image: str) -> str:
    """Boot the kernel with nothing but a console; why it does not come up, "" when it does."""
    folder = Path(tempfile.mkdtemp(prefix="proctor-boots-"))
    process = None
    try:
        (folder / "kernel").write_bytes(unpacked(image))
        with open(folder / "console", "wb") as console:
            process = start(path, folder, console.fileno(), ())
        api = firecracker.Api(f"{folder}/{firecracker.API}", alive(process))
        told = {"memory_mib": 256, "kernel": "kernel", "first": None, "command_line": "console=ttyS0 reboot=k panic=-1"}
        try:
            firecracker.boot(api, told)
            deadline = time.monotonic() + BOOT_S
            while qemu.BOOTED not in (folder / "console").read_bytes():
                if process.poll() is not None or time.monotonic() > deadline:
                    return "it ended" if process.poll() is not None else f"its kernel is not up after {BOOT_S:.0f} s"
                time.sleep(0.05)
        finally:
            api.close()
    except OSError as exc:
        return str(exc)
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def start(path: str, folder: Path, console: int, fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start Firecracker in a directory, for a machine in which nothing but our own runs."""
    command = firecracker.command({"firecracker": path})
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", qemu.PLACE, str(len(fds)), *map(str, fds), *command],
        stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, pass_fds=fds, cwd=folder, start_new_session=True,
    )  # fmt: skip


def alive(process: subprocess.Popen[bytes]) -> Callable[[], None]:
    """Raises OSError when the process has ended."""

    def look() -> None:
        if process.poll() is not None:
            raise OSError(f"Firecracker has ended with {process.returncode}")

    return look


def unpacked(path: str) -> bytes:
    """The kernel in a bzImage, as Firecracker before 1.17 wants it.

    Raises:
        IsolationUnavailable: it is packed in a way that cannot be undone here.
    """
    data = Path(path).read_bytes()
    sectors = data[0x1F1] or 4
    at, length = struct.unpack_from("<II", data, 0x248)
    at += (sectors + 1) * 512
    packed = data[at : at + length]
    for magic, unpack in _PACKED.items():
        if packed.startswith(magic):
            try:
                return unpack(packed)
            except (zlib.error, lzma.LZMAError, OSError, EOFError) as exc:
                raise IsolationUnavailable(f"isolation 'microvm': {path} cannot be unpacked: {exc}") from exc
    tool = next((name for magic, name in _TOOLS.items() if packed.startswith(magic)), None)
    if tool is None:
        raise IsolationUnavailable(f"isolation 'microvm': the kernel {path} is packed in an unknown way")
    if shutil.which(tool) is None:
        raise IsolationUnavailable(
            f"isolation 'microvm': the kernel {path} is packed with {tool}; apt-get install {tool}"
        )
    # The last four bytes are the kernel's size, which is no part of what the tool wrote.
    done = subprocess.run([tool, "-dc"], input=packed[:-4], capture_output=True, check=False, timeout=120)
    if not done.stdout.startswith(b"\x7fELF"):
        words = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise IsolationUnavailable(f"isolation 'microvm': the kernel {path} cannot be unpacked with {tool}: {words}")
    return done.stdout
