"""The root of one sandbox: layers over the image, and a bounded tmpfs on top for all that it writes.

Built by the sandbox's pid 1 in a mount namespace of its own, then pivoted into,
so that neither the layers' store nor another sandbox's files have a path here.
The tmpfs is memory: it has a quota that the kernel keeps, needs no cleaning up,
and nothing that a program names is ever a name on the host's disk.

Overlay mounts do not cross mount points, and the image of the host is made of
several, so each of them gets an overlay of its own. What is written into them
lies in one tree per mount below ``/box/up``, which is what a snapshot takes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from . import gpus, linux
from .root import mount_proc

LAYERS = "/.layers"  # where the zygote's root shows the store
SKELETON = "/.skeleton"  # of that root itself, with nothing mounted on it
OWNED = "/.owned"  # directories of the image that the sandbox's user may write in: a layer that gives them to it
_BOX = "/box"
# What a system has and a bare image of the host has not: path, mode, whether it is the sandbox user's.
_FOLDERS = (
    ("workspace", 0o755, True), ("tmp", 0o1777, False), ("var", 0o755, False), ("var/tmp", 0o1777, False),
    ("root", 0o755, False), ("home", 0o755, True), ("opt", 0o755, True), ("srv", 0o755, True), ("etc", 0o755, False),
    ("run", 0o755, True), ("mnt", 0o755, True),
)  # fmt: skip


@dataclass(slots=True)
class Floor:
    """What was built: (place in the root, descriptor of the directory that takes what is written there)."""

    uppers: list[tuple[str, int]] = field(default_factory=list)
    box: int = -1  # the tmpfs itself: its free space is the sandbox's


def build(plan: dict[str, Any], *, uid: int, root_uid: int, trusted: bool = False) -> Floor:
    """Build the root and pivot into it.

    Args:
        plan: ``layers`` [name in the store, newest first]; ``host``: the image's own mounts lie below them;
            ``tops`` [path]: those of them that may be written over; ``binds`` [path]: those that may not;
            ``covers`` [path]: directories of which only layers show something; ``files`` {path: text} to add;
            ``size`` bytes and ``inodes``; ``gpu``: None, or what it has of GPUs: ``nodes``, ``libraries``,
            ``program``, ``texts``, ``system`` and ``links`` as ``guest/gpus.py`` takes them.
        uid: the sandbox's user.
        root_uid: its root, or the same where this host gives it one identity.
        trusted: this process is root of all of its machine, so overlays may keep their marks where no program reads
            them; before Linux 6.6 a tmpfs takes no others.

    Raises:
        OSError: this host does not allow an overlay here.
    """
    marks = "redirect_dir=nofollow,metacopy=off,index=off" if trusted else "userxattr"
    linux.mount("sandbox", _BOX, "tmpfs", linux.MS_NOSUID, f"size={plan['size']},nr_inodes={plan['inodes']},mode=711")
    for name in ("up", "scratch", "root", "empty"):
        os.mkdir(f"{_BOX}/{name}", 0o755)
    floor = Floor(box=os.open(_BOX, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    layers = [f"{LAYERS}/{name}" for name in plan["layers"]]
    places = ["", *(plan["tops"] if plan["host"] else ()), *(plan["covers"] if plan["host"] else ())]
    for number, place in enumerate(places):
        upper, work = f"{_BOX}/up/{number}", f"{_BOX}/scratch/{number}"
        os.mkdir(upper, 0o755)
        os.mkdir(work, 0o755)
        lower = lower_of(plan, layers, place)
        mine = plan["host"] and place in plan["covers"]
        if place:
            same(upper, lower[0], uid=uid, root_uid=root_uid, mine=mine)
        else:
            lay(upper, lower[0], layers, uid=uid, root_uid=root_uid)
            write(upper, plan["files"], root_uid)
        target = f"{_BOX}/root{place}"
        options = f"{marks},lowerdir={':'.join(lower)},upperdir={upper},workdir={work}"
        linux.mount("sandbox", target, "overlay", linux.MS_NOSUID | linux.MS_NODEV, options)
        floor.uppers.append((place, os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)))
    root = f"{_BOX}/root"
    old = f".old-{os.urandom(8).hex()}"  # a name that no layer has
    gpu = plan.get("gpu")
    for name in ("proc", "dev", old, *(["sys"] if gpu else [])):
        folder(f"{root}/{name}")
    for path in plan["binds"] if plan["host"] else ():
        linux.mount(path, root + path, None, linux.MS_BIND | linux.MS_REC)
    if gpu:
        gpus.devices(f"{root}/dev", gpu["nodes"])
        gpus.proc(f"{root}/proc", gpu["texts"])
        gpus.system(f"{root}/sys", gpu["system"], gpu["links"])
    else:
        linux.mount("/dev", f"{root}/dev", None, linux.MS_BIND | linux.MS_REC)
        mount_proc(f"{root}/proc", hide=4 if trusted else 2)
    linux.pivot_root(root, f"{root}/{old}")
    os.chdir("/")
    if gpu:  # only now: a link of a layer leads nowhere but into this root
        gpus.libraries(f"/{old}", gpu["libraries"], gpu["program"])
    linux.umount(f"/{old}", linux.MNT_DETACH)
    os.rmdir(f"/{old}")
    return floor


def lay(upper: str, below: str, layers: list[str], *, uid: int, root_uid: int) -> None:
    """Make the uppermost directory of a root as the one below it, with the directories that a system has."""
    folders = _folders(layers)
    same(upper, below, uid=uid, root_uid=root_uid)
    for path, mode, owner in folders:
        _parent(upper, layers, path, (uid, root_uid))
        os.mkdir(f"{upper}/{path}")
        os.chmod(f"{upper}/{path}", mode)
        who = uid if owner else root_uid
        os.chown(f"{upper}/{path}", who, who)


def same(upper: str, below: str, *, uid: int, root_uid: int, mine: bool = False) -> None:
    """Give a directory the owner and mode of the one that it is laid over; ``mine``: the sandbox user's in any case."""
    top = os.stat(below)  # the uppermost directory says what the merged one is
    who = uid if mine or top.st_uid == uid else root_uid
    os.chown(upper, who, who)
    os.chmod(upper, top.st_mode & 0o7777)


def folder(path: str) -> None:
    """Make a directory that something is mounted on, in place of whatever a layer has there: a mount would follow a link."""
    if os.path.lexists(path) and not _is_dir(path):
        os.unlink(path)
    os.makedirs(path, exist_ok=True)


def lower_of(plan: dict[str, Any], layers: list[str], place: str) -> list[str]:
    """Directories under one place of the root, newest first."""
    lower = [layer + place for layer in layers if _is_dir(layer + place)]
    if plan["host"] and place not in plan["covers"]:
        lower += [OWNED + place] if _is_dir(OWNED + place) else []
        lower.append(place or SKELETON)
    return lower or [f"{_BOX}/empty"]


def _folders(layers: list[str]) -> list[tuple[str, int, bool]]:
    """Directories to make, but for those that a layer already has, or whose parent is no directory in it."""
    found = []
    for row in _FOLDERS:
        parent = os.path.dirname(row[0])
        holder = _holder(layers, parent) if parent else None
        if holder is not None and not _is_dir(f"{holder}/{parent}"):
            continue
        within = [layer for layer in layers if not parent or _is_dir(f"{layer}/{parent}")]
        if not any(_exists(f"{layer}/{row[0]}") for layer in within):
            found.append(row)
    return found


def _holder(layers: list[str], path: str) -> str | None:
    """The newest layer that has something there."""
    return next((layer for layer in layers if _exists(f"{layer}/{path}")), None)


def _parent(upper: str, layers: list[str], path: str, users: tuple[int, int]) -> None:
    """Make the directory above it, as the layer has it: of what is merged the uppermost says what it is."""
    parent = os.path.dirname(path)
    if not parent or _exists(f"{upper}/{parent}") or (holder := _holder(layers, parent)) is None:
        return
    known = os.stat(f"{holder}/{parent}")
    os.mkdir(f"{upper}/{parent}")
    os.chmod(f"{upper}/{parent}", known.st_mode & 0o7777)
    who = known.st_uid if known.st_uid in users else users[1]
    os.chown(f"{upper}/{parent}", who, who)


def write(upper: str, files: dict[str, str], owner: int) -> None:
    """Write files of a plan, with the directories that they lie in."""
    for path, text in files.items():
        at = upper
        for part in path.strip("/").split("/")[:-1]:
            at = f"{at}/{part}"
            if not _exists(at):
                os.mkdir(at, 0o755)
                os.chown(at, owner, owner)
        with open(upper + path, "w") as file:
            file.write(text)
        os.chown(upper + path, owner, owner)


def _exists(path: str) -> bool:
    return os.path.lexists(path)


def _is_dir(path: str) -> bool:
    """A directory and no link to one: what a layer holds is a program's word, and ``..`` in it leads anywhere."""
    try:
        return os.path.isdir(path) and os.path.realpath(path) == path
    except OSError:
        return False
