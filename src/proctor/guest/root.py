"""The root that programs see: a small tmpfs with the image bound on it, read-only.

Built once per slot, in a mount namespace of its own, before any program. What
is not named in the plan is not there: no home, no /etc but a synthetic one, no
device but the harmless few.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from . import linux

DEVICES = ("null", "zero", "full", "random", "urandom")
_MOST_OWNED = 10_000  # directories; the root has room for them
_SIZE = {False: "mode=755,size=4m,nr_inodes=4096", True: "mode=755,size=64m,nr_inodes=65536"}
bound_inodes = True  # False in a gVisor that cannot
_POINTS = ("/mnt", "/media", "/srv", "/opt", "/tmp")


def build(plan: dict[str, Any], *, own_proc: bool) -> None:
    """Build the root and pivot into it; the caller has its own mount namespace.

    Args:
        plan: ``binds`` [[host path, path inside]], ``links`` [[target, path]],
            ``files`` {path: text}, ``dirs`` [path], ``covers`` {path: entries}:
            directories of a bind that are hidden but for the entries
            [[host path, name]]; ``devices`` beyond the usual, if any;
            ``hidden`` [[host path, path inside, whether it is a device]]: what no skeleton shows, if anything;
            ``skeleton``: where to lay out files, links and mount points once more, if
            anywhere; then ``owned``: directories that are made, with all below them but for ``owned_but``, below
            ``owned_at`` for ``owner``.
        own_proc: mount a proc of this PID namespace (real root); otherwise the
            host's is bound, and covered as soon as the zygote has its own.
    """
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    plan["covers"] = {
        folder: [(os.open(source, os.O_PATH | os.O_CLOEXEC), name) for source, name in entries]
        for folder, entries in plan["covers"].items()
    }
    sources = [(os.open(source, os.O_PATH | os.O_CLOEXEC), inside) for source, inside in plan["binds"]]
    writable = [(os.open(source, os.O_PATH | os.O_CLOEXEC), inside) for source, inside in plan.get("writable", ())]
    devices = [
        (os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC), f"/dev/{name}")
        for name in (*DEVICES, *plan.get("devices", ()))
    ]
    hidden = [(fd, inside, node) for path, inside, node in plan.get("hidden", ()) if (fd := _handle(path)) >= 0]
    proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
    fds = f"/proc/{os.getpid()}/fd" if os.path.isdir(f"/proc/{os.getpid()}/fd") else "/proc/self/fd"
    top = next(point for point in _POINTS if os.path.isdir(point))
    linux.mount("proctor", top, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, _SIZE[bool(plan.get("skeleton"))])
    for path in ("proc", "dev", "etc", "tmp", "workspace", "box", ".old", *plan["dirs"]):
        os.makedirs(f"{top}/{path.lstrip('/')}", exist_ok=True)
    furnish(top, plan)
    if skeleton := plan.get("skeleton"):
        # The same without anything mounted on it: the kernel lays no overlay over what it would uncover.
        os.makedirs(f"{top}{skeleton}")
        furnish(top + skeleton, plan)
        for fd, inside in sources:
            point(f"{top}{skeleton}{inside}", stat.S_ISDIR(os.stat(fd).st_mode))
        for path in _directories(plan["owned"], plan["owned_but"]):
            os.makedirs(f"{top}{plan['owned_at']}{path}")
            os.chown(f"{top}{plan['owned_at']}{path}", plan["owner"], plan["owner"])
    for fd, inside in sources:
        _bind(f"{fds}/{fd}", top + inside, stat.S_ISDIR(os.stat(fd).st_mode))
        linux.mount_readonly(top + inside)
    for fd, inside in writable:
        _bind(f"{fds}/{fd}", top + inside, True)
    for folder, entries in plan["covers"].items():
        _cover(top, folder, entries, fds)
    for fd, inside in devices:
        _bind(f"{fds}/{fd}", top + inside, False)
    for fd, inside, is_node in hidden:
        _bind(f"{fds}/{fd}", top + inside, stat.S_ISDIR(os.stat(fd).st_mode))
        if not is_node:
            linux.mount_readonly(top + inside)
    if own_proc:
        linux.mount("proc", f"{top}/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    else:
        linux.mount(f"{fds}/{proc}", f"{top}/proc", None, linux.MS_BIND | linux.MS_REC)
    for fd in [fd for fd, *_ in (*sources, *writable, *devices, *hidden)] + [proc]:
        os.close(fd)
    linux.pivot_root(top, f"{top}/.old")
    os.chdir("/")
    linux.umount("/.old", linux.MNT_DETACH)
    os.rmdir("/.old")
    linux.mount(
        "none", "/", None, linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
    )


def _handle(path: str) -> int:
    """A descriptor that stands for a file; -1 where it is gone: whoever asks for it later is told."""
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def _directories(tops: list[str], but: list[str]) -> list[str]:
    """Directories of the host at and below ``tops``, parents first, without those in ``but``."""
    found: list[str] = []
    for top in tops:
        for folder, inside, _ in os.walk(top):
            if len(found) >= _MOST_OWNED:
                return found
            inside[:] = sorted(
                name for name in inside if f"{folder}/{name}" not in but and not os.path.islink(f"{folder}/{name}")
            )
            found.append(folder)
    return found


def furnish(top: str, plan: dict[str, Any]) -> None:
    """Write a plan's files and links below ``top``."""
    for path, text in plan["files"].items():
        os.makedirs(os.path.dirname(f"{top}{path}"), exist_ok=True)
        with open(f"{top}{path}", "w") as file:
            file.write(text)
    for target, path in plan["links"]:
        os.makedirs(os.path.dirname(f"{top}{path}"), exist_ok=True)
        os.symlink(target, f"{top}{path}")


def _cover(top: str, folder: str, entries: list[tuple[int, str]], fds: str) -> None:
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("none", top + folder, "tmpfs", flags, "mode=755,size=1m,nr_inodes=4096")
    for fd, name in entries:
        inside = f"{top}{folder}/{name}"
        _bind(f"{fds}/{fd}", inside, stat.S_ISDIR(os.stat(fd).st_mode))
        linux.mount_readonly(inside)
        os.close(fd)
    linux.mount("none", top + folder, None, flags | linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY)


def point(target: str, is_dir: bool) -> None:
    """Make what something can be mounted on."""
    if is_dir:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _bind(source: str, target: str, is_dir: bool) -> None:
    point(target, is_dir)
    linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)


def mount_proc(point: str = "/proc", *, hide: int = 2) -> bool:
    """A proc of this PID namespace, with processes only; False where the kernel refuses it.

    Then an empty file system covers /proc, so that no other view shows through.

    Args:
        hide: ``hidepid``; 2 hides nothing from the group of the host's root, 4 all that nobody here may trace.
    """
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    for options in (f"subset=pid,hidepid={hide}", f"hidepid={hide}", None):
        try:
            linux.mount("proc", point, "proc", flags, options)
        except OSError:
            continue
        return True
    linux.mount("none", point, "tmpfs", flags | linux.MS_RDONLY, "size=4k,nr_inodes=2")
    return False


def traces(paths: list[str]) -> list[object]:
    """What no program can change a workspace without changing, given ``linux.exact_times``.

    Its free space, and of each directory and file (which it does not own) all that is known of it; nothing where
    one of them is gone or out of reach.
    """
    room = os.statvfs(paths[0])
    seen: list[object] = [room.f_bfree, room.f_ffree]
    for path in paths:
        try:
            info = os.lstat(path)
        except OSError:
            return []
        seen += [info.st_ino, info.st_mode, info.st_nlink, info.st_uid, info.st_gid, info.st_size]
        seen += [info.st_ctime_ns, info.st_mtime_ns, info.st_atime_ns]
    return seen


def fresh_workspace(size: int, inodes: int, uid: int, first: bool) -> None:
    """A new, empty /workspace and /tmp that share one bounded tmpfs; 0.03 ms.

    The old one, if any, goes with everything in it: nothing is walked, so no
    tree that a program built can slow this down or lead it astray.
    """
    if not first:
        linux.umount("/workspace", linux.MNT_DETACH)
        linux.umount("/tmp", linux.MNT_DETACH)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOATIME  # what one case reads, the next cannot see
    files = f",nr_inodes={inodes + 4}" if bound_inodes else ""
    linux.mount("workspace", "/box", "tmpfs", flags, f"size={size},mode=711{files}")
    for name, point, mode in (("w", "/workspace", 0o755), ("t", "/tmp", 0o1777)):
        os.mkdir(f"/box/{name}")
        os.chmod(f"/box/{name}", mode)
        os.chown(f"/box/{name}", uid, uid)
        linux.mount(f"/box/{name}", point, None, linux.MS_BIND)
    linux.umount("/box", linux.MNT_DETACH)


def leave() -> None:
    """Take a jail's mounts away: in a gVisor without mount namespaces of one's own they would stay for the next."""
    os.chdir("/")
    for place in ("/workspace", "/tmp", "/proc"):
        try:
            linux.umount(place, linux.MNT_DETACH)
        except OSError:
            pass  # it never ran a case
