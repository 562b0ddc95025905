"""The NVIDIA GPUs of this host: their nodes, the driver's libraries, and what keeps them from being given to sandboxes.

Nothing of the driver is opened or called here: a look at names, modes and
texts, in places that are given. ``nvidia-smi`` is asked only for models that
the kernel module does not tell.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.isolation import driver
from proctor.isolation.gvisor import has_nvproxy

UNKNOWN = "unknown model"
SHARED = ("nvidiactl", "nvidia-uvm")  # without them nothing of CUDA starts; each sandbox with a GPU has them
_WANTED = ("nvidia-uvm-tools",)
_NODE = re.compile(r"nvidia(\d+)")
_ASK_S = 20.0
_MOST_TEXT = 1 << 16
_TEXTS = ("information", "numa_status", "registry")  # of a device
_SYSTEM = (
    "module/nvidia", "module/nvidia_uvm", "module/nvidia_modeset", "module/nvidia_drm", "devices/system/node",
    "devices/system/cpu", "devices/system/memory/block_size_bytes",
)  # fmt: skip
_INSTALL = "install the NVIDIA driver, and check that `nvidia-smi` lists the GPU on this host"
_IN_CONTAINER = "in a container start it with its GPUs (docker run --gpus all)"


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look.

    Attributes:
        dev: directory of the nodes. proc: of the kernel module's texts. sys: of the kernel's objects.
        cache: of the loader. libraries: directories that are looked through beside it.
        programs: directories of ``nvidia-smi``.
    """

    dev: str = "/dev"
    proc: str = "/proc/driver/nvidia"
    sys: str = "/sys"
    cache: str = "/etc/ld.so.cache"
    libraries: tuple[str, ...] = driver.FOLDERS
    programs: tuple[str, ...] = driver.PROGRAMS


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device.

    Attributes:
        number: its minor number. node: its name below ``dev``.
        path: the node on this host.
        capabilities: names of the nodes of its MIG instances.
        bus: its place on the bus, as in ``0000:01:00.0``; None where the kernel module does not tell.
        system: its directory below ``sys``, None where there is none.
        texts: what the kernel module says of it: (path below ``proc``, text).
    """

    number: int
    node: str
    path: str
    model: str = UNKNOWN
    uuid: str | None = None
    bus: str | None = None
    system: str | None = None
    capabilities: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.number}: {self.model}" + (", MIG" if self.capabilities else "")


@dataclass(frozen=True, slots=True)
class Gpus:
    """What was found.

    Attributes:
        devices: that can be given to sandboxes; none where ``missing`` says why.
        nodes: names of the nodes that all sandboxes with a GPU share.
        libraries: files of the driver. smi: path of ``nvidia-smi``, None where there is none.
        version: of the kernel module, None where it does not say.
        texts: what the kernel module says of no single device.
        system: what of ``sys`` concerns no single device.
        missing: what was looked for in vain, with where and what to do; a sentence each.
    """

    places: Places
    devices: tuple[Gpu, ...] = ()
    nodes: tuple[str, ...] = ()
    libraries: tuple[driver.Library, ...] = ()
    smi: str | None = None
    version: str | None = None
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    system: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def state(self) -> str:
        """In words: what there is to give, or what is missing."""
        if not self.devices:
            return f"none to give: {'; '.join(self.missing)}"
        kernel = f", driver {self.version}" if self.version else ""
        but = f"; not these: {'; '.join(self.missing)}" if self.missing else ""
        return f"{len(self.devices)} to give ({', '.join(map(str, self.devices))}){kernel}{but}"

    def hidden(self) -> list[tuple[str, str, bool]]:
        """What the agent of sandboxes binds where no sandbox sees it: (path here, name there, whether it is a node)."""
        if not self.devices:
            return []
        names = [*self.nodes, *(name for gpu in self.devices for name in (gpu.node, *gpu.capabilities))]
        rows = [(f"{self.places.dev}/{name}", f"dev/{name}", True) for name in names]
        rows += [(library.path, f"lib/{library.name}", False) for library in self.libraries]
        parts = [*self.system, *(gpu.system for gpu in self.devices if gpu.system)]
        rows += [(f"{self.places.sys}/{part}", f"sys/{part}", False) for part in parts]
        return rows + ([(self.smi, "bin/nvidia-smi", False)] if self.smi else [])


def find(places: Places | None = None) -> Gpus:
    """Look for what a sandbox with a GPU needs; never fails."""
    places = places or Places()
    names = _names(places.dev)
    found = {int(match[1]): name for name in names if (match := _NODE.fullmatch(name))}
    if not found:
        none = f"no NVIDIA GPU: there is no {places.dev}/nvidia0 or the like; {_INSTALL}, or {_IN_CONTAINER}"
        return Gpus(places, missing=(none,))
    texts = _texts(places.proc, ("version", "params"))
    version = driver.version(texts.get("version", ""))
    closed = {name: why for name in found.values() if (why := _closed(f"{places.dev}/{name}"))}
    devices = [name for _, name in sorted(found.items()) if name not in closed]
    lacking = []
    for name in SHARED:
        if name not in names:
            ask = "`nvidia-modprobe -u -c=0`" if name == "nvidia-uvm" else "`nvidia-modprobe`"
            lacking.append(f"there is no {places.dev}/{name}: run {ask} as root, or {_IN_CONTAINER}")
        elif why := _closed(f"{places.dev}/{name}"):
            lacking.append(why)
    libraries = driver.libraries(places.cache, places.libraries, version)
    if not any(driver.MAIN in (library.name, *library.links) for library in libraries):
        looked = ", ".join((places.cache, *places.libraries))
        lacking.append(f"there is no {driver.MAIN} in {looked}: {_INSTALL}")
    missing = (*closed.values(), *lacking)
    if lacking or not devices:
        return Gpus(places, version=version, missing=missing)
    smi = driver.program(places.programs)
    told = _described(places, [_minor(f"{places.dev}/{name}") for name in devices])
    if smi is not None and not all(row.model for row in told.values()):
        asked = _asked(smi)
        for number, row in told.items():
            row.model = row.model or asked.get(number, "")
    gpus = tuple(_gpu(places, name, told) for name in devices)
    shared = (*SHARED, *(name for name in _WANTED if name in names and not _closed(f"{places.dev}/{name}")))
    system = tuple(path for path in _SYSTEM if os.path.exists(f"{places.sys}/{path}"))
    return Gpus(places, gpus, shared, libraries, smi, version, tuple(texts.items()), system, missing)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _minor(path: str) -> int:
    return os.minor(os.stat(path).st_rdev)


def _closed(path: str, *, write: bool = True) -> str | None:
    """Why the user of a sandbox could not open a node; None where it could."""
    try:
        found = os.stat(path)
    except OSError as exc:
        return f"{path} cannot be looked at: {exc.strerror}"
    if not stat.S_ISCHR(found.st_mode):
        return f"{path} is no character device: remove it, and run `nvidia-modprobe` as root"
    need = stat.S_IROTH | (stat.S_IWOTH if write else 0)
    # To the programs of root's sandboxes, which have an identity of their own, they are others.
    if os.geteuid() == 0 and found.st_mode & need != need:
        return (
            f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, so no program of a sandbox may open it: "
            "set NVreg_DeviceFileMode=0666 for the kernel module, or chmod it"
        )
    if not os.access(path, os.R_OK | (os.W_OK if write else 0)):
        return f"{path} may not be opened by this user, or is kept from it by a devices control group: allow it"
    return None


def _texts(folder: str, names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        with contextlib.suppress(OSError), open(f"{folder}/{name}", encoding="utf-8", errors="replace") as file:
            found[name] = file.read(_MOST_TEXT)
    return found


@dataclass(slots=True)
class _Told:
    """What the kernel module says of a device."""

    model: str = ""
    uuid: str | None = None
    bus: str | None = None
    texts: list[tuple[str, str]] = field(default_factory=list)


def _described(places: Places, numbers: list[int]) -> dict[int, _Told]:
    """What the kernel module says of each device, by its minor number."""
    found = {number: _Told() for number in numbers}
    for bus in sorted(_names(f"{places.proc}/gpus")):
        texts = _texts(f"{places.proc}/gpus/{bus}", _TEXTS)
        rows = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", texts.get("information", ""), re.M))
        number, uuid = rows.get("Device Minor", ""), rows.get("GPU UUID", "")
        if number.isascii() and number.isdigit() and int(number) in found:
            known = uuid if uuid.startswith("GPU-") and "?" not in uuid else None  # a GPU that slept has no UUID yet
            files = [(f"gpus/{bus}/{name}", text) for name, text in texts.items()]
            found[int(number)] = _Told(rows.get("Model", ""), known, bus, files)
    return found


def _asked(smi: str) -> dict[int, str]:
    """Models by minor number, out of ``nvidia-smi -q``; what it does not say is left out."""
    try:
        done = subprocess.run(
            [smi, "-q"], capture_output=True, text=True, timeout=_ASK_S, check=False, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[int, str] = {}
    model = ""
    for line in done.stdout.splitlines():
        name, colon, value = (part.strip() for part in line.partition(":"))
        if name == "Product Name" and colon:
            model = value
        elif name == "Minor Number" and value.isascii() and value.isdigit() and model:
            found[int(value)] = model
    return found


def _gpu(places: Places, name: str, told: Mapping[int, _Told]) -> Gpu:
    path = f"{places.dev}/{name}"
    number = _minor(path)
    row = told[number]
    texts = list(row.texts)
    system = os.path.realpath(f"{places.sys}/bus/pci/devices/{row.bus}")
    inside = row.bus is not None and os.path.isdir(system) and system.startswith(f"{os.path.realpath(places.sys)}/")
    nodes = []
    top = Path(places.proc, "capabilities", f"gpu{number}", "mig")
    for access in sorted(top.glob("gi*/access")) + sorted(top.glob("gi*/ci*/access")):
        text = _texts(str(access.parent), ("access",)).get("access", "")
        minor = re.search(r"^DeviceFileMinor:\s*(\d+)", text, re.M)
        node = f"nvidia-caps/nvidia-cap{minor[1]}" if minor else ""
        if minor and not _closed(f"{places.dev}/{node}", write=False):
            nodes.append(node)
            texts.append((str(access.relative_to(places.proc)), text))
    below = os.path.relpath(system, os.path.realpath(places.sys)) if inside else None
    return Gpu(number, name, path, row.model or UNKNOWN, row.uuid, row.bus, below, tuple(nodes), tuple(texts))


# ---------------------------------------------------------------- models and levels


def is_model(asked: str, model: str) -> bool:
    """Whether a GPU of a model is what was asked for: ``T4`` is ``Tesla T4``, ``A100-80`` is ``NVIDIA A100-SXM4-80GB``.

    Each part of what was asked (parts are divided by blanks, ``-`` and ``_``) is a run of the model's words, or its
    number of GB; ``any`` is every model.
    """
    words = re.findall(r"[a-z0-9]+", model.lower())
    runs = {"".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, len(words) + 1)}
    parts = re.findall(r"[a-z0-9]+", asked.lower())
    return parts == ["any"] or (bool(parts) and all({part, f"{part}gb"} & runs for part in parts))


def refusal(level: str) -> str | None:
    """Why sandboxes of an isolation level get no GPU; None where they do."""
    if level == "jail":
        return None
    if level == "microvm":
        return "isolation 'microvm' gives no GPU: its virtual machines have none of the host's devices; use 'jail'"
    if level == "gvisor":
        knows = "knows" if has_nvproxy() else "does not know"
        return f"isolation 'gvisor' gives no GPU (the `runsc` here {knows} --nvproxy, which it would take); use 'jail'"
    return f"isolation {level!r} gives no GPU; use 'jail'"
