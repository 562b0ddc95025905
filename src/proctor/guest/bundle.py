"""The host's side of an agent inside gVisor: the bundle that ``runsc`` starts, and its start.

Theory of operation. Everything inside the wall is one container, whose pid 1 is
the zygote: what the supervisor does for other agents, the end of pid 1 does
here. So the supervisor, which stays outside, has ``runsc`` for a child instead
of a zygote, in the slot's control group: its sandbox (the user-space kernel
with every program in it) and its gofer (which opens files for it) are bounded
and found by that group, and die with it.

    engine --(control: frames)----------------------> | zygote (pid 1) --> jail --> case
       \\--(lifeline)--> supervisor --> runsc --> gofer | sandbox

The control stream is the container's standard input, which every build of
``runsc`` passes on. Descriptors that the host sends over it arrive inside.

The root is the image's plan: a skeleton of directories, files and links in the
slot's own directory, and binds that only the gofer's mount namespace ever sees.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from typing import Any

from . import cgroups, linux, root, stream

PROBE = "a-container-that-works"
GUEST = "/.guest"  # where the walls around a container show this directory
TOLD = "/.proctor"  # the guest's modules and its settings, covered before any program
# What pid 1 does: mounts, identities, killing. A case has none of them.
_CAPABILITIES = "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP SYS_ADMIN SYS_RESOURCE SYS_NICE".split()
_READ_ONLY = ["rbind", "ro", "nosuid", "nodev"]
_FILES = 65_536
_INSIDE = (
    "env",
    "preload",
    "meters",
    "runsc",
    "lobby",
    "over",
    "alone",
    "pause",
)  # of the settings, what the zygote needs
_OWN = ("/dev", "/proc", "/sys")  # gVisor makes these


def launch(config: dict[str, Any], group: cgroups.Group) -> tuple[int, str]:
    """Write the bundle and start ``runsc``; its pid, or ``(-1, why not)`` as in ``agent.start``."""
    try:
        write(config["box"], config)
    except OSError as exc:
        return -1, f"E{exc}"
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(stream.FAILED)
            group.join()
            if os.geteuid() == 0:
                # Whatever this build mounts, the host's mount table stays as it is.
                linux.unshare(linux.NEWNS)
                linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
            os.dup2(config["control"], 0)
            os.dup2(2, 1)
            os.close(config["control"])
            os.close(config["lifeline"])
            os.execve(
                config["runsc"]["path"],
                command(config["runsc"], config["box"], config["name"], config.get("restore")),
                config["env"],
            )
        except BaseException as exc:
            os.write(2, f"{type(exc).__name__}: {exc}".encode()[:500])
        finally:
            os._exit(stream.FAILED)
    return pid, ""


def command(runsc: dict[str, Any], box: str, name: str, saved: str | None = None) -> list[str]:
    """The command line of a container whose bundle lies in ``box``; it goes on from what lies in ``saved``, if given."""
    do = ["run"] if saved is None else ["restore", "--image-path", saved]
    return [runsc["path"], *runsc["flags"], "--root", f"{box}/state", *do, "--bundle", box, name]


def write(box: str, config: dict[str, Any], *, guest: str | None = None, capabilities: tuple[str, ...] = ()) -> None:
    """Make the directory of a slot: the bundle's ``config.json``, the root's skeleton, what covers directories.

    Args:
        box: the directory, made here.
        config: ``root`` as for ``root.build``, ``env``, and what the zygote is told.
        guest: where this directory is to be seen from here, if not at its own place.
        capabilities: of pid 1 beyond the usual.
    """
    plan, top = config["root"], f"{box}/rootfs"
    os.mkdir(box, 0o711)
    for path in ("proc", "dev", "sys", "etc", "tmp", "workspace", "box", TOLD + "/guest", *plan["dirs"]):
        os.makedirs(f"{top}/{path.lstrip('/')}", exist_ok=True)
    root.furnish(top, plan | {"links": [row for row in plan["links"] if not row[1].startswith(_OWN)]})
    with open(f"{top}{TOLD}/settings", "w") as file:
        json.dump({"inside": True, **{name: config.get(name) for name in _INSIDE}}, file)
    binds = [*plan["binds"], [guest or os.path.dirname(os.path.abspath(__file__)), f"{TOLD}/guest"]]
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    for source, inside in binds:
        root.point(top + inside, os.path.isdir(source))
        mounts.append(_bind(source, inside))
    for number, (folder, entries) in enumerate(plan["covers"].items()):
        os.makedirs(f"{box}/covers/{number}")
        mounts.append(_bind(f"{box}/covers/{number}", folder))
        for source, name in entries:
            root.point(f"{box}/covers/{number}/{name}", stat.S_ISDIR(os.stat(source).st_mode))
            mounts.append(_bind(source, f"{folder}/{name}"))
    command = [sys.executable, "-S", "main.py", f"{TOLD}/settings"]
    _configure(box, command, f"{TOLD}/guest", config["env"], mounts, [*_CAPABILITIES, *capabilities])


def write_probe(box: str) -> None:
    """A bundle that only says ``PROBE``, by the host's own interpreter and libraries."""
    os.mkdir(box, 0o711)
    os.makedirs(f"{box}/rootfs/proc")
    tops = dict.fromkeys(("/usr", "/bin", "/lib", "/lib64", os.path.realpath(sys.base_prefix)))
    mounts = []
    for path in [path for path in tops if os.path.isdir(path)]:
        os.makedirs(f"{box}/rootfs{path}", exist_ok=True)
        mounts.append(_bind(os.path.realpath(path), path))
    _configure(
        box, [os.path.realpath(sys.executable), "-S", "-c", f"print({PROBE!r})"], "/", {"PATH": "/usr/bin"}, mounts,
        _CAPABILITIES,
    )  # fmt: skip


def _configure(
    box: str, args: list[str], cwd: str, env: dict[str, str], mounts: list[dict[str, Any]], names: list[str]
) -> None:
    capabilities = [f"CAP_{name}" for name in names]
    container = {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "env": [f"{name}={value}" for name, value in env.items()],
            "cwd": cwd,
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": _FILES, "soft": _FILES}],
        },
        "root": {"path": f"{box}/rootfs", "readonly": True},
        "hostname": "proctor",
        "mounts": mounts,
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }
    with open(f"{box}/config.json", "w") as file:
        json.dump(container, file)


def _bind(source: str, inside: str) -> dict[str, Any]:
    return {"destination": inside, "type": "bind", "source": source, "options": _READ_ONLY}
