"""What a sandbox with GPUs has beside others: their nodes, the driver's libraries, and what tells of them in /proc and /sys.

The agent's root holds the nodes, libraries and parts of /sys of all GPUs of the host below
``POINT``, where no sandbox sees them: a sandbox's root is made of other
directories. From there a sandbox binds those that it was given, and no other
has a path to any: nobody in a sandbox can make a node.
"""

from __future__ import annotations

import os
from typing import Any

from . import linux
from .root import mount_proc, point

POINT = "/.gpus"
HOME = "/usr/local/nvidia"  # where images made for CUDA look
_SMALL = "mode=755,size=1m,nr_inodes=4096"
_PLAIN = linux.MS_NOSUID | linux.MS_NODEV
# Of what a full /proc has beside processes: CUDA asks for the kernel module and its numbers, libraries for processors.
_SHOWN = ("cpuinfo", "meminfo", "devices", "modules")
_SETTINGS = ("vm/mmap_min_addr", "vm/overcommit_memory")  # of /proc/sys


def devices(target: str, names: list[str]) -> None:
    """Lay out a /dev of the sandbox's own: what that of all others has, and the nodes of these names."""
    linux.mount("none", target, "tmpfs", _PLAIN | linux.MS_NOEXEC, _SMALL)
    for entry in os.scandir("/dev"):
        place = f"{target}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif not entry.is_dir():
            _bind(entry.path, place)
    for name in names:
        _bind(f"{POINT}/dev/{name}", f"{target}/{name}")
    _close(target, linux.MS_NOEXEC)


def libraries(old: str, rows: list[list[Any]], program: bool) -> None:
    """Lay out ``HOME`` in the root that this process is in.

    Args:
        old: where the agent's root is now.
        rows: [file below ``POINT``/lib, [names that stand for it]].
        program: there is an nvidia-smi.
    """
    if os.path.lexists(HOME) and not os.path.isdir(HOME):
        os.unlink(HOME)
    os.makedirs(HOME, exist_ok=True)
    linux.mount("none", HOME, "tmpfs", _PLAIN, _SMALL)
    for name, links in rows:
        _bind(f"{old}{POINT}/lib/{name}", f"{HOME}/lib64/{name}")
        for link in links:
            os.symlink(name, f"{HOME}/lib64/{link}")
    os.symlink("lib64", f"{HOME}/lib")
    if program:
        _bind(f"{old}{POINT}/bin/nvidia-smi", f"{HOME}/bin/nvidia-smi")
    _close(HOME)


def proc(target: str, texts: dict[str, str]) -> None:
    """Mount a /proc that has ``driver/nvidia`` with these texts, and of the rest no more than the driver reads.

    Where the kernel refuses a full one, because the host's own is covered in places, it is as in all sandboxes.
    """
    flags = _PLAIN | linux.MS_NOEXEC
    try:
        linux.mount("proc", target, "proc", flags, "hidepid=2")
    except OSError:
        mount_proc(target)
        return
    made = {"driver": {f"nvidia/{path}": text for path, text in texts.items()}, "sys": _settings(f"{target}/sys")}
    for entry in os.scandir(target):
        if entry.name.isdigit() or entry.is_symlink() or entry.name in (*_SHOWN, *made):
            continue
        if entry.is_dir():
            linux.mount("none", entry.path, "tmpfs", flags | linux.MS_RDONLY, "mode=555,size=4k,nr_inodes=2")
        else:
            linux.mount("/dev/null", entry.path, None, linux.MS_BIND)
    for folder, files in made.items():
        linux.mount("none", f"{target}/{folder}", "tmpfs", flags, _SMALL)
        for path, text in files.items():
            place = f"{target}/{folder}/{path}"
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "w", encoding="utf-8") as file:
                file.write(text)
        if folder == "driver":
            os.makedirs(f"{target}/{folder}/nvidia-uvm")
        _close(f"{target}/{folder}", linux.MS_NOEXEC)


def _settings(folder: str) -> dict[str, str]:
    found = {}
    for name in _SETTINGS:
        try:
            with open(f"{folder}/{name}", encoding="utf-8") as file:
                found[name] = file.read()
        except OSError:
            continue  # this kernel has none, or does not tell
    return found


def system(target: str, places: list[str], links: dict[str, str]) -> None:
    """Lay out a /sys that has these parts of the host's, read-only; without it CUDA does not start.

    Args:
        places: files and directories below ``POINT``/sys.
        links: {path: what it leads to}.
    """
    linux.mount("none", target, "tmpfs", _PLAIN | linux.MS_NOEXEC, _SMALL)
    for path in places:
        _bind(f"{POINT}/sys/{path}", f"{target}/{path}")
    for path, to in links.items():
        os.makedirs(os.path.dirname(f"{target}/{path}"), exist_ok=True)
        os.symlink(to, f"{target}/{path}")
    _close(target, linux.MS_NOEXEC)


def _bind(source: str, target: str) -> None:
    point(target, os.path.isdir(source))
    linux.mount(source, target, None, linux.MS_BIND)


def _close(target: str, more: int = 0) -> None:
    linux.mount("none", target, None, _PLAIN | more | linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY)
