"""A host with GPUs, as far as one can be made: nodes of the driver's numbers, a library, texts and an nvidia-smi.

No driver answers at such a node: opening it is ENXIO where a sandbox is let
through to it, and something else where it is not.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.isolation import gpus

VERSION = "550.54.15"
MODELS = ("Tesla T4", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")
NAMES = ["nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
SHARED = NAMES[3:]
# A program that tells what opening each of NAMES comes to.
OPEN = """
import errno, os
for name in {names}:
    try:
        os.close(os.open("/dev/" + name, os.O_RDWR))
        print(name, "open")
    except OSError as exc:
        print(name, errno.errorcode[exc.errno])
"""
_PROGRAM = "int cuInit(unsigned flags) { return 4200 + flags; }\n"
_SMI = """#!/bin/sh
if [ "$1" = -q ]; then cat <<END
GPU 00000000:01:00.0
    Product Name                          : Tesla V100-SXM2-16GB
    Minor Number                          : 0
END
else echo "NVIDIA-SMI $CUDA_VISIBLE_DEVICES"; fi
"""


class Tree:
    """Directories that stand for those of a host; ``find`` looks at them."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.dev, self.proc, self.sys = (top / name for name in ("dev", "proc", "sys"))
        self.lib, self.bin = top / "lib", top / "bin"
        for folder in (self.dev, self.proc, self.sys, self.lib, self.bin):
            folder.mkdir()
        self.places = gpus.Places(
            str(self.dev), str(self.proc), str(self.sys), str(top / "cache"), (str(self.lib),), (str(self.bin),)
        )

    def find(self) -> gpus.Gpus:
        return gpus.find(self.places)

    def node(self, name: str, major: int, minor: int, mode: int = 0o666) -> None:
        path = self.dev / name
        path.parent.mkdir(exist_ok=True)
        try:
            os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
        except PermissionError:
            pytest.skip("this user makes no device nodes")
        path.chmod(mode)
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError as exc:
            if exc.strerror not in ("No such device or address", "No such device"):
                pytest.skip(f"device nodes in {self.dev} cannot be opened: {exc}")

    def write(self, path: str, text: str, below: Path | None = None) -> None:
        place = (below or self.proc) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def gpu(self, number: int, model: str = "") -> None:
        self.node(f"nvidia{number}", 195, number)
        if model:
            uuid = f"GPU-0000000{number}-aaaa-bbbb-cccc-dddddddddddd"
            self.write(
                f"gpus/0000:0{number + 1}:00.0/information",
                f"Model: \t\t {model}\nIRQ:   \t\t 1{number}\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n",
            )
            place = f"devices/pci0000:00/0000:0{number + 1}:00.0"
            self.write(f"{place}/numa_node", f"{number}\n", self.sys)
            (self.sys / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
            (self.sys / f"bus/pci/devices/0000:0{number + 1}:00.0").symlink_to(f"../../../{place}")

    def shared(self) -> None:
        self.node("nvidiactl", 195, 255)
        self.node("nvidia-uvm", 507, 0)
        self.node("nvidia-uvm-tools", 507, 1)

    def library(self, name: str = "libcuda.so.1", version: str = VERSION, folder: Path | None = None) -> Path:
        """A plain shared object under the driver's names."""
        folder = folder or self.lib
        folder.mkdir(exist_ok=True)
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler")
        (self.top / "cuda.c").write_text(_PROGRAM)
        stem = name.partition(".so")[0]
        real = folder / f"{stem}.so.{version}"
        command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(real), str(self.top / "cuda.c")]
        subprocess.run(command, check=True)
        (folder / name).symlink_to(real.name)
        return real

    def smi(self) -> None:
        (self.bin / "nvidia-smi").write_text(_SMI)
        (self.bin / "nvidia-smi").chmod(0o755)

    def whole(self, models: tuple[str, ...] = MODELS) -> Tree:
        """A host as it should be."""
        for number, model in enumerate(models):
            self.gpu(number, model)
        self.shared()
        self.library()
        self.library("libnvidia-ml.so.1")
        self.smi()
        kernel = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Tue Mar  5 22:23:56 UTC 2024\n"
        self.write("version", kernel)
        self.write("module/nvidia/initstate", "live\n", self.sys)
        self.write("module/kvm/initstate", "live\n", self.sys)
        self.write("devices/system/memory/block_size_bytes", "8000000\n", self.sys)
        self.write("devices/system/node/node0/cpumap", "3\n", self.sys)
        self.write("params", "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n")
        return self


@contextmanager
def a_tree() -> Iterator[Tree]:
    """In a directory that every user may enter, which a test's own is not."""
    top = Path(tempfile.mkdtemp(prefix="a-host-with-gpus-"))
    try:
        top.chmod(0o755)
        yield Tree(top)
    finally:
        shutil.rmtree(top)
