"""The host's side of a sandbox behind gVisor: one container of its own, started behind the walls of a jail.

Theory of operation. The supervisor does what it does for a jail, up to the
point where the zygote would begin: namespaces, a user namespace that knows the
two identities of sandboxes, the root of the image with the store of layers. There
``runsc`` takes the zygote's place, as pid 1 of a PID namespace, so that gofer,
sandbox and everything else die with it. What it needs on a file system lies in
a tmpfs of that mount namespace and is gone with it as well.

    engine --(control: frames)-----------------> | room (pid 1) --> commands
       \\--(lifeline)--> supervisor --> runsc -->   gofer | sandbox

Inside, pid 1 imports what programs import, says READY, and is a room: there is
one in a container. Layers are known before it starts (``merged``), what else a
sandbox is comes over the control stream.
"""

from __future__ import annotations

import os
import select
import signal
from typing import Any

from . import agent, bundle, cgroups, linux, merged, stream
from .host import Host

_BUNDLE = "/box/bundle"
_TARGET = "/box/low"
_SIZE = "size=64m,mode=711"  # skeletons: directories, and the bundle


def launch(config: dict[str, Any], group: cgroups.Group, folder: str, host: Host) -> tuple[int, str]:
    """Start the container; its pid, or ``(-1, why not)`` as in ``agent.start``.

    Args:
        config: of the agent, with ``runsc`` and ``floor``: the plan of ``merged.outside``.
    """
    try:
        program = os.open(config["runsc"]["path"], os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        return -1, f"E{exc}"
    try:
        return agent.start(config, "jail", group, folder, host, lambda go: become(config, program, go))
    finally:
        os.close(program)


def become(config: dict[str, Any], program: int, go: int) -> None:
    """Replace this process, behind its walls, by ``runsc``; OSError where that fails."""
    if config.get("host_identity"):
        raise OSError(1, "user namespaces are forbidden here, and a container's files need identities of their own")
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    linux.mount("container", "/box", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, _SIZE)
    uid = 0 if config["alone"] else agent.CASE_UID
    merged.outside(config["floor"], _TARGET, uid=uid, root_uid=0)
    plan = config["root"]
    shown = [inside for _, inside in plan["binds"] if not inside.startswith("/.")]
    bundle.write(
        _BUNDLE,
        {
            **config,
            "root": {
                **plan,
                "binds": [*([path, path] for path in shown), [_TARGET, merged.LOW]],
                "dirs": [path for path in plan["dirs"] if not path.startswith("/.")],
                "covers": {},
            },
        },
        guest=bundle.GUEST,
        capabilities=("SYS_CHROOT", "NET_BIND_SERVICE", "MKNOD"),
    )
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([go], [], [], 0)[0]:
        os._exit(stream.FAILED)  # the supervisor was gone before the kernel knew to tell
    os.dup2(config["control"], 0)
    os.dup2(2, 1)
    command = bundle.command(config["runsc"], _BUNDLE, config["name"])
    os.execve(program, command, {"PATH": "/usr/bin:/bin"})
