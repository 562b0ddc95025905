"""The host's QEMU and a kernel for its machines: where they are, and what is fast here, found by trying it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from proctor.core.errors import InputError, IsolationUnavailable
from proctor.isolation import kept

INSTALL = "apt-get install qemu-system-x86 linux-image-cloud-amd64"
KERNEL = "PROCTOR_MICROVM_KERNEL"
_BINARY = "qemu-system-x86_64"
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/libexec", "/opt/qemu/bin")
_KERNELS = ("vmlinuz-*cloud-amd64", "vmlinuz-*kvm", "vmlinuz-*virtual", "vmlinuz-*")
_KVM_S = 6.0
BOOTED = b"Serial: 8250/16550 driver"  # what the kernel says when most of it is up


# Moves descriptors to their numbers: high first, so that none is overwritten before it was moved.
PLACE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # it dies with this process
count = int(sys.argv[1])
high = [os.dup2(int(fd), 100 + at) for at, fd in enumerate(sys.argv[2 : 2 + count])]
for at, fd in enumerate(high):
    os.dup2(fd, 3 + at)
os.closerange(3 + count, 200)
os.execv(sys.argv[2 + count], sys.argv[2 + count :])
"""


@dataclass(frozen=True, slots=True)
class Qemu:
    """What machines are made of here.

    Attributes:
        path: the binary.
        version: as it calls itself.
        kernel: the kernel's file.
        modules: directory of its modules.
        release: the kernel's version.
        accelerator: ``kvm``, where a machine booted with it, or ``tcg``.
        monitor: ``qemu`` or ``firecracker``: which program that is, and how it is spoken to.
    """

    path: str
    version: str
    kernel: str
    modules: str
    release: str
    accelerator: str
    monitor: str = "qemu"


def find(environ: Mapping[str, str] | None = None) -> Qemu:
    """QEMU and the kernel of this host.

    Raises:
        IsolationUnavailable: something is missing; names what was looked for and what to do.
        InputError: the kernel that the environment names is none.
    """
    environ = os.environ if environ is None else environ
    path = program(_BINARY, environ, f"install it: {INSTALL}")
    image, modules, release = kernel(environ)
    found = version(path, os.stat(path).st_mtime_ns, r"version (\S+)")
    return Qemu(path, found, image, modules, release, _accelerator(path, image))


def program(name: str, environ: Mapping[str, str], remedy: str) -> str:
    """Where a program that runs machines lies.

    Raises:
        IsolationUnavailable: nowhere; or this host's CPU is of another kind.
    """
    if os.uname().machine != "x86_64":
        raise IsolationUnavailable("isolation 'microvm' is for x86-64 only, and this host is " + os.uname().machine)
    search = os.pathsep.join([environ.get("PATH", ""), *_FOLDERS])
    path = shutil.which(name, path=search)
    if path is None:
        looked = ", ".join(dict.fromkeys(filter(None, search.split(os.pathsep))))
        raise IsolationUnavailable(f"isolation 'microvm' needs `{name}`, and there is none in {looked}; {remedy}")
    return os.path.realpath(path)


SPEED = {"kvm": "KVM: full speed", "tcg": "no KVM that works, so TCG: programs run 10 to 30 times slower"}


def kernel(environ: Mapping[str, str]) -> tuple[str, str, str]:
    """The kernel for machines: its file, the directory of its modules, its version; errors as of ``find``."""
    if named := environ.get(KERNEL, ""):
        release = _release(Path(named))
        if release is None:
            raise InputError(f"{named!r} is no kernel that can be read; name a bzImage such as /boot/vmlinuz-6.1.0-9-cloud-amd64", field=KERNEL)  # fmt: skip
        if (modules := _modules(Path(named), release)) is None:
            raise InputError(f"there are no modules of {named!r} in /lib/modules/{release} or beside it; unpack the whole package", field=KERNEL)  # fmt: skip
        return named, modules, release
    for pattern in _KERNELS:
        for path in sorted(Path("/boot").glob(pattern), reverse=True):
            release = _release(path)
            if release is not None and (modules := _modules(path, release)) is not None:
                return str(path), modules, release
    raise IsolationUnavailable(
        f"isolation 'microvm' needs a kernel for its machines, and none in /boot can be read and has its modules in "
        f"/lib/modules; install one: {INSTALL} (or name one that was unpacked: {KERNEL}=DIR/boot/vmlinuz-...)"
    )


def _release(path: Path) -> str | None:
    """The version in the header of a bzImage; None where it is none."""
    try:
        with open(path, "rb") as file:
            head = file.read(0x10000)
    except OSError:
        return None
    if head[0x202:0x206] != b"HdrS":
        return None
    at = struct.unpack_from("<H", head, 0x20E)[0] + 0x200
    found = re.match(rb"[0-9][A-Za-z0-9.+~_-]{0,100}", head[at : at + 101])
    return found.group().decode() if found else None


def _modules(kernel: Path, release: str) -> str | None:
    top = kernel.resolve().parent.parent
    for place in (top / "lib/modules" / release, top / "usr/lib/modules" / release, Path("/lib/modules") / release):
        if (place / "kernel").is_dir():
            return str(place)
    return None


@cache
def version(path: str, stamp: int, form: str) -> str:
    """What a program says its version is: the first group of ``form``; ``stamp`` is when the program was changed."""
    del stamp
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=False, cwd="/"
        ).stdout
    except (OSError, subprocess.SubprocessError) as exc:
        raise IsolationUnavailable(f"isolation 'microvm': {path} does not run: {exc}") from exc
    found = re.search(form, said)
    if found is None:
        raise IsolationUnavailable(f"isolation 'microvm': {path} does not tell its version")
    return found.group(1)


@cache
def _accelerator(path: str, kernel: str) -> str:
    """KVM where the kernel boots with it. It may be there and hang, or run firmware only, so it is tried, once a boot."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    about = [Path("/proc/sys/kernel/random/boot_id").read_text(), path, kernel, str(os.stat(path).st_mtime_ns)]
    known = kept.folder("machines") / f"kvm-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}"
    with contextlib.suppress(OSError):
        if (told := known.read_text()) in SPEED:
            return told
    found = "kvm" if _boots(path, kernel) else "tcg"
    with contextlib.suppress(OSError):
        known.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in known.parent.glob("kvm-*"):
            old.unlink()
        known.write_text(found)
    return found


def _boots(path: str, kernel: str) -> bool:
    command = [
        path, "-nodefaults", "-no-user-config", "-display", "none", "-accel", "kvm", "-cpu", "host", "-M", "pc",
        "-m", "256M", "-no-reboot", "-serial", "stdio", "-kernel", kernel, "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    )
    try:
        said = process.communicate(timeout=_KVM_S)[0]
    except subprocess.TimeoutExpired as exc:
        said = exc.stdout or b""
    finally:
        process.kill()
        process.communicate()
    return BOOTED in said
