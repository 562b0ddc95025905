"""The default wall: namespaces, or where a container forbids them Landlock and filters alone."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
from pathlib import Path

from proctor.core.errors import InputError
from proctor.images.host import Image
from proctor.isolation import sweep
from proctor.isolation.base import LEVELS, AgentProcess

_MAIN = Path(__file__).resolve().parent.parent / "guest" / "main.py"
UID_BASE = 1_879_048_192  # high in the 32-bit range, where no distribution or directory hands identities out


class JailBoundary:
    """Starts agents on this host's kernel.

    Args:
        isolation: ``auto``, ``jail`` or ``degraded``; a named one is never stepped down from.
        cgroup: use control groups where this user may.
    """

    def __init__(self, isolation: str = "auto", *, cgroup: bool = True) -> None:
        if isolation not in LEVELS:
            raise InputError(f"{isolation!r} is not one of {', '.join(LEVELS)}", field="isolation")
        self.levels = ["jail", "degraded"] if isolation == "auto" else [isolation]
        self.cgroup = cgroup
        self.token = secrets.token_hex(4)
        sweep.sweep()

    def start(self, image: Image, number: int) -> AgentProcess:
        """Start one agent; see ``Boundary``."""
        name = f"{sweep.owner_prefix()}{self.token}-{number}-{secrets.token_hex(3)}"
        host, guest = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        lifeline_read, lifeline = os.pipe2(os.O_CLOEXEC)
        config = {
            "control": guest.fileno(),
            "lifeline": lifeline_read,
            "parent": os.getpid(),
            "name": name,
            "box": str(sweep.BOXES / name),
            "levels": self.levels,
            "cgroup": self.cgroup,
            "root": image.plan,
            "readable": image.readable,
            "env": image.env,
            "preload": image.preload,
            "public_python": image.public_python,
            # Two identities a slot; the process number keeps the engines of one host apart.
            "uid": UID_BASE + (os.getpid() % 100_000) * 512 + (number % 256) * 2,
        }
        try:
            process = subprocess.Popen(
                [image.python, str(_MAIN), json.dumps(config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(guest.fileno(), lifeline_read),
                env=image.env,
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal is the engine's to handle
            )
        except OSError:
            host.close()
            os.close(lifeline)
            raise
        finally:
            guest.close()
            os.close(lifeline_read)
        return AgentProcess(process, host, lifeline, name)
