"""The NVIDIA driver's files on this host: its libraries, by the loader's cache and the usual directories, and nvidia-smi."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

MAIN = "libcuda.so.1"
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current", "/usr/lib64", "/usr/lib64/nvidia", "/usr/lib/nvidia", "/usr/lib",
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/run/opengl-driver/lib",
)  # fmt: skip
PROGRAMS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/opt/bin", "/run/current-system/sw/bin")
_STEMS = (
    "cuda", "cudadebugger", "nvcuvid", "nvidia-allocator", "nvidia-cfg", "nvidia-compiler", "nvidia-encode",
    "nvidia-fatbinaryloader", "nvidia-gpucomp", "nvidia-ml", "nvidia-nvvm", "nvidia-nvvm70", "nvidia-opencl",
    "nvidia-opticalflow", "nvidia-pkcs11", "nvidia-pkcs11-openssl3", "nvidia-ptxjitcompiler", "nvidia-sandboxutils",
)  # fmt: skip
_NAME = re.compile(rf"lib({'|'.join(_STEMS)})\.so(\.[0-9.]+)?")
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig", "/usr/bin/ldconfig", "/run/current-system/sw/bin/ldconfig")
_LDCONFIG_S = 20.0
_HEAD = 20  # bytes of an ELF file, up to its machine


@dataclass(frozen=True, slots=True)
class Library:
    """A file of the driver: its real path, its own name, and the names that stand for it (sonames)."""

    path: str
    name: str
    links: tuple[str, ...] = ()


def version(text: str) -> str | None:
    """``550.54.15`` out of the kernel module's text, whichever of its two kinds it is."""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return found[1] if found else None


def libraries(cache: str, folders: tuple[str, ...], wanted: str | None) -> tuple[Library, ...]:
    """Libraries of the driver for programs of this interpreter's kind.

    Args:
        cache: the loader's; its directories come first.
        folders: further directories.
        wanted: the kernel module's version. Where a name is found several times the file of that version is taken,
            else the first: the others are what an earlier or another driver has left.
    """
    chosen: dict[str, str] = {}  # name -> real path
    for folder in dict.fromkeys([*_cached(cache), *folders]):
        for name in _matching(folder):
            path = os.path.realpath(f"{folder}/{name}")
            better = wanted is not None and path.endswith(f".{wanted}")
            known = chosen.get(name)
            if (known is None or (better and not known.endswith(f".{wanted}"))) and _fits(path):
                chosen[name] = path
    found: dict[str, set[str]] = {}
    for name, path in chosen.items():
        found.setdefault(path, set()).add(name)
    made: dict[str, tuple[str, set[str]]] = {}  # by its own name: no two files can have the same in one directory
    for path, names in found.items():
        made.setdefault(os.path.basename(path), (path, set()))[1].update(names)
    return tuple(Library(path, own, tuple(sorted(names - made.keys()))) for own, (path, names) in sorted(made.items()))


def program(folders: tuple[str, ...]) -> str | None:
    """The real path of ``nvidia-smi``."""
    for folder in folders:
        path = f"{folder}/nvidia-smi"
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    return None


def _cached(cache: str) -> Iterator[str]:
    """Directories in which the loader's cache has libraries of the driver."""
    ldconfig = next((path for path in _LDCONFIG if os.access(path, os.X_OK)), None)
    if ldconfig is None or not os.path.isfile(cache):
        return
    try:
        done = subprocess.run(
            [ldconfig, "-p", "-C", cache], capture_output=True, text=True, timeout=_LDCONFIG_S, check=False,
            errors="surrogateescape",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return
    for line in done.stdout.splitlines():
        left, arrow, path = line.partition(" => ")
        if arrow and left.split() and _NAME.fullmatch(left.split()[0]):
            yield os.path.dirname(path.strip())


def _matching(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name))
    except OSError:
        return []


def _fits(path: str) -> bool:
    """A library for this machine and word size, that everybody may read."""
    try:
        if not os.path.isfile(path) or not os.stat(path).st_mode & 0o004:
            return False
        return _kind(path) == _kind(sys.executable)
    except OSError:
        return False


def _kind(path: str) -> tuple[bytes, bytes]:
    """Word size and machine of an ELF file."""
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    return (head[4:6], head[18:20]) if head[:4] == b"\x7fELF" else (b"", b"")
