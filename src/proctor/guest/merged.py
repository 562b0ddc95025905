"""The root of a sandbox inside gVisor: layers that the host's kernel merges, and gVisor's own overlay on top.

gVisor cannot tell a directory that a layer hides from one that it adds to, since
it may not ask for the attribute that says so. So the layers and the host's
system are merged outside, by the host's kernel, before the container starts:
read-only, in a mount namespace that only its gofer has. What is written goes
into a tmpfs that gVisor keeps, in the same form as in a jail (``floor``), and a
snapshot takes it from there.

Outside the user namespace of the sandbox maps its two identities to those of
layers, so that gVisor sees a layer's files as whose they are.
"""

from __future__ import annotations

import os
from typing import Any

from . import floor, linux, root

LOW = "/.low"  # where the container shows what was merged
_BOX = "/box"
_DEVICES = (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9))
_LINKS = (("/proc/self/fd", "fd"), ("fd/0", "stdin"), ("fd/1", "stdout"), ("fd/2", "stderr"), ("/tmp", "shm"))
_DEV_BYTES = 1 << 16


def places(plan: dict[str, Any]) -> list[str]:
    """Where an overlay of its own lies, the root first: the image of the host is made of several mounts."""
    return ["", *(plan["tops"] if plan["host"] else ()), *(plan["covers"] if plan["host"] else ())]


def outside(plan: dict[str, Any], target: str, *, uid: int, root_uid: int) -> None:
    """Merge the layers of a sandbox below ``target``, read-only; in the mount namespace of its container's host side.

    Args:
        plan: as for ``floor.build``; ``files``, ``binds`` and bounds are for ``inside``.
        target: made here, beside ``/box/empty`` and ``/box/base``.
        uid, root_uid: as there.

    Raises:
        OSError: this host does not allow an overlay here.
    """
    base, empty = f"{_BOX}/base", f"{_BOX}/empty"
    for path in (base, empty, target):
        os.mkdir(path, 0o755)
    layers = [f"{floor.LAYERS}/{name}" for name in plan["layers"]]
    for place in places(plan):
        lower = floor.lower_of(plan, layers, place)
        if not place:
            floor.lay(base, lower[0], layers, uid=uid, root_uid=root_uid)
            lower.insert(0, base)
        stack = ":".join(dict.fromkeys([*lower, empty]))  # without an upper there must be two
        flags = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
        if stack == empty:
            linux.mount(empty, target + place, None, linux.MS_BIND)
        else:
            linux.mount("sandbox", target + place, "overlay", flags, f"userxattr,lowerdir={stack}")


def inside(plan: dict[str, Any], *, uid: int, root_uid: int) -> floor.Floor:
    """Build the root over what was merged and go into it; by the container's pid 1.

    This build of gVisor may have no ``pivot_root``. No program of a sandbox has the capability to leave a changed root.

    Args:
        plan, uid, root_uid: as for ``floor.build``.

    Raises:
        OSError: this build of gVisor cannot.
    """
    files = f",nr_inodes={plan['inodes']}" if root.bound_inodes else ""
    linux.mount("sandbox", _BOX, "tmpfs", linux.MS_NOSUID, f"size={plan['size']},mode=711{files}")
    for name in ("up", "scratch", "root"):
        os.mkdir(f"{_BOX}/{name}", 0o755)
    built = floor.Floor(box=os.open(_BOX, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    top = f"{_BOX}/root"
    for number, place in enumerate(places(plan)):
        upper, work = f"{_BOX}/up/{number}", f"{_BOX}/scratch/{number}"
        os.mkdir(upper, 0o755)
        os.mkdir(work, 0o755)
        mine = plan["host"] and place in plan["covers"]
        floor.same(upper, LOW + place, uid=uid, root_uid=root_uid, mine=mine)
        if not place:
            floor.write(upper, plan["files"], root_uid)
        options = f"lowerdir={LOW}{place},upperdir={upper},workdir={work}"
        linux.mount("sandbox", top + place, "overlay", linux.MS_NOSUID, options)
        built.uppers.append((place, os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)))
    for name in ("proc", "dev"):
        floor.folder(f"{top}/{name}")
    for path in plan["binds"] if plan["host"] else ():
        linux.mount(path, top + path, None, linux.MS_BIND | linux.MS_RDONLY)
    _devices(f"{top}/dev")
    root.mount_proc(f"{top}/proc")
    linux.mount("none", f"{top}/proc/1", "tmpfs", linux.MS_RDONLY, "size=4096,mode=700")  # gVisor shows it to everybody
    os.chroot(top)
    os.chdir("/")
    return built


def _devices(target: str) -> None:
    linux.mount("dev", target, "tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC, f"size={_DEV_BYTES},mode=755")
    for name, minor in _DEVICES:
        os.mknod(f"{target}/{name}", 0o20666, os.makedev(1, minor))
        os.chmod(f"{target}/{name}", 0o666)
    for source, name in _LINKS:
        os.symlink(source, f"{target}/{name}")
