"""The machine's first file system: an interpreter, the kernel's modules and what is run first, as a cpio archive.

The root of programs lies on a disk that the kernel can read only with modules,
and something has to load those: the image's own interpreter, with the few files
that it maps and imports.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from proctor.core.errors import IsolationUnavailable

MODULES = {
    "qemu": ("virtio_pci", "virtio_blk", "virtio_console", "erofs"),
    "firecracker": ("virtio_mmio", "virtio_blk", "virtio_rng", "vmw_vsock_virtio_transport", "erofs"),
}
FOR_ROOMS = ("overlay",)  # that roots of sandboxes are made of
_NEEDED = "import __future__, encodings.ascii, encodings.latin_1, encodings.utf_8, ctypes, json, os, struct, fcntl, socket, select, sys, _ctypes"
_TOLD = (
    "import json; files = {getattr(m, a, None) for m in list(sys.modules.values()) for a in ('__file__', '__cached__')}; "
    "maps = {line.split(maxsplit=5)[5].strip() for line in open('/proc/self/maps') if '/' in line}; "
    "print(json.dumps([sorted(f for f in files | maps | {sys.executable} if f and os.path.isfile(f)), sys.prefix]))"
)


@dataclass(slots=True)
class Archive:
    """A cpio archive in the kernel's ``newc`` form. Parents are made as they are needed."""

    out: BinaryIO
    made: set[str] = field(default_factory=set)
    number: int = 0

    def folder(self, path: str) -> None:
        """A directory, and those above it."""
        path = path.strip("/")
        if path and path not in self.made:
            self.folder(os.path.dirname(path))
            self._entry(path, stat.S_IFDIR | 0o755, b"")

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """A file; the first of a name counts."""
        self._leaf(path, stat.S_IFREG | mode, content)

    def link(self, path: str, target: str) -> None:
        """A symbolic link; the first of a name counts."""
        self._leaf(path, stat.S_IFLNK | 0o777, os.fsencode(target))

    def _leaf(self, path: str, mode: int, content: bytes) -> None:
        if path.strip("/") not in self.made:
            self.folder(os.path.dirname(path))
            self._entry(path.strip("/"), mode, content)

    def _entry(self, path: str, mode: int, content: bytes, mtime: int = 0) -> None:
        self.made.add(path)
        self.number += 1
        name = os.fsencode(path) + b"\0"
        fields = (self.number, mode, 0, 0, 1, mtime, len(content), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08x" % value for value in fields) + name
        self.out.write(head.ljust(-(-len(head) // 4) * 4, b"\0") + content.ljust(-(-len(content) // 4) * 4, b"\0"))

    def close(self) -> None:
        """Write its end."""
        self._entry("TRAILER!!!", 0, b"")


def write(
    out: BinaryIO,
    python: str,
    links: list[list[str]],
    modules: Path,
    first: dict[str, bytes],
    wanted: tuple[str, ...] = MODULES["qemu"],
) -> None:
    """Write the archive.

    Args:
        python: the image's interpreter, which lies at the same place here.
        links: of the image's plan, [[target, path]]: where the loader looks for libraries.
        modules: directory of the kernel's modules.
        first: files that are run first: path -> content.
        wanted: modules that are to be loaded, without what they need.
    """
    archive = Archive(out)
    for path in ("dev", "proc", "sys", "root", "image"):
        archive.folder(path)
    for target, path in links:
        if not path.startswith(("/dev", "/proc")):
            archive.link(path, target)
    names = []
    for name, content in _modules(modules, wanted):
        names.append(name)
        archive.file(f"/modules/{name}", content)
    archive.file("/modules/order", json.dumps(names).encode())
    for path in _closure(python):
        _add(archive, path)
    for path, content in first.items():
        archive.file(path, content, 0o755)
    archive.close()


def _add(archive: Archive, path: str) -> None:
    """A file of the host at its real path, and the links beside it that stand for it."""
    real = os.path.realpath(path)
    archive.file(real, Path(real).read_bytes(), 0o755)
    folder = os.path.dirname(real)
    if ".so" in os.path.basename(real):
        for name in os.listdir(folder):
            if os.path.islink(f"{folder}/{name}") and os.path.realpath(f"{folder}/{name}") == real:
                archive.link(f"{folder}/{name}", os.path.basename(real))
    if os.path.islink(path):
        archive.link(f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}", real)


def _closure(python: str) -> list[str]:
    """Files that the interpreter maps and imports for what runs first."""
    try:
        told = subprocess.run(
            [python, "-I", "-S", "-c", f"{_NEEDED}; {_TOLD}"], capture_output=True, timeout=60, check=True, env={}
        )
        files, prefix = json.loads(told.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise IsolationUnavailable(f"isolation 'microvm': the interpreter {python} does not start: {exc}") from exc
    found: list[str] = list(files)
    loader = re.search(rb"/lib[^\0]{0,60}/ld-[^\0]{1,60}\0", Path(python).read_bytes()[: 1 << 20])
    if loader is not None:
        found.append(os.fsdecode(loader.group()[:-1]))
    found += [path for path in ("/etc/ld.so.cache", f"{prefix}/lib/python3/os.py") if os.path.isfile(path)]
    return found


def _modules(folder: Path, wanted: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """The wanted modules and what they need, in the order in which they are loaded."""
    files = {re.sub(r"\.ko(\.xz)?$", "", path.name).replace("-", "_"): path for path in folder.rglob("*.ko*")}
    builtin = folder / "modules.builtin"
    inside = {os.path.basename(row).removesuffix(".ko").replace("-", "_") for row in builtin.read_text().split()} if builtin.is_file() else set()  # fmt: skip
    order: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in order or name in inside:
            return
        path = files.get(name)
        if path is None or path.suffix not in (".ko", ".xz"):
            has = "is not there" if path is None else f"is {path.name}, and only .ko and .ko.xz can be read"
            raise IsolationUnavailable(f"isolation 'microvm': the kernel module {name} in {folder} {has}")
        content = path.read_bytes()
        if path.suffix == ".xz":
            content = lzma.decompress(content)
        for row in re.findall(rb"\0depends=([^\0]*)\0", content):
            for needed in filter(None, row.decode().split(",")):
                add(needed.replace("-", "_"))
        order[name] = content

    for name in wanted:
        add(name)
    return [(f"{name}.ko", content) for name, content in order.items()]
