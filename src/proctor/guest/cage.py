"""The zygote as pid 1 of a gVisor container: what is different there, found by trying it.

gVisor is a kernel of its own, so the jail inside it is the usual one, with its
limits, identity, filter and PID namespace. What a build lacks is left out,
and told in the features: Landlock, process descriptors, securebits, a bound on
the number of files, sometimes mount namespaces of one's own (then each jail
takes its mounts away again), and the way back into a PID namespace (then a
process between stays behind).

There are no control groups inside. gVisor's CPU clocks count ticks in which a
task was on a CPU or waited for one, and its resident sizes count shared pages
for everybody who has them. So both are held against what the host's group of
the container says, through descriptors that the host sends: that is never less
than the truth.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Any

# All now: behind the cover they cannot be seen.
from . import agent, cgroups, jail, linux, lobby, merged, protocol, root, stream, zygote  # noqa: F401
from .bundle import TOLD

_DEVICES = ("ptmx", "tty", "fuse", "net/tun", "net")  # what no program of a jail has


def main(config: dict[str, Any], folder: str) -> zygote.Script:
    """Be the zygote; returns only in a case's process, with its script."""
    os.environ.clear()  # this kernel hands variables over in no order
    os.environ.update(config["env"])
    config["control"] = os.dup(0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    group = cgroups.Group([])
    try:
        root.bound_inodes = inodes_bounded()
        tidy()
        config |= {
            "uid": 0,
            "box": "",
            "root": {"covers": {}},
            "unset": unsettable(),
            "uncounted": uncounted(),
        }
        config["over"] = [[place, [merged.LOW + place]] for place, _ in config["over"] or ()]
        if config["pause"]:
            with zygote.packages(config["over"]):
                zygote.preload(config["preload"], True)
            config["warm"] = True  # the preload is done
            stream.write_all(config["control"], protocol.pack(protocol.PAUSED, {}))
        fds = stream.take_fds(config["control"], len(config["meters"])) if config["meters"] or config["pause"] else []
        group.surround(dict(zip(config["meters"], fds, strict=True)))
        config["features"] = {"inodes": root.bound_inodes, "outside": group.surrounded, "runsc": config["runsc"]}
        return agent.serve(config, "gvisor", group, folder, -1, -1)
    except BaseException as exc:
        stream.write_all(
            config["control"], protocol.pack(protocol.FAULT, {"message": f"{type(exc).__name__}: {exc}"[:2000]})
        )
        os._exit(stream.FAILED)


def unsettable() -> list[int]:
    """Resource limits of a case that this build refuses to set. Those are of things that it does not have."""
    found = []
    for which in (resource.RLIMIT_MSGQUEUE, resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE, resource.RLIMIT_SIGPENDING):
        try:
            resource.setrlimit(which, resource.getrlimit(which))
        except (OSError, ValueError):
            found.append(int(which))
    return found


def uncounted() -> int:
    """1 where a process that took another identity does not count towards that identity's processes, else 0."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(agent.CASE_UID, agent.CASE_UID, agent.CASE_UID)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            if other := os.fork():
                os.waitpid(other, 0)  # else it would count from now on
                os._exit(1)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def tidy() -> None:
    """Take away what a jail has not: the guest's files, /sys, terminals; /dev/shm is /tmp, which a case leaves empty."""
    linux.mount("none", TOLD, "tmpfs", linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV, "size=4096,mode=711")
    for place in ("/sys", "/dev/pts"):
        try:
            linux.umount(place, linux.MNT_DETACH)
        except OSError:
            pass  # this build mounts none there
    for name in _DEVICES:
        remove(f"/dev/{name}")
    remove("/dev/shm")
    os.symlink("/tmp", "/dev/shm")


def remove(path: str) -> None:
    """A file, or an empty directory, if it is there."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            try:
                linux.umount(path, linux.MNT_DETACH)
            except OSError:
                pass  # nothing mounted on it
            os.rmdir(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass


def inodes_bounded() -> bool:
    """This build's tmpfs knows how many files it may hold."""
    try:
        linux.mount("none", "/box", "tmpfs", 0, "nr_inodes=4")
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
        return False
    linux.umount("/box", linux.MNT_DETACH)
    return True
