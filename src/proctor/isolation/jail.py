"""The default wall: namespaces, or where a container forbids them Landlock and filters alone."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
from pathlib import Path
from typing import Any

from proctor.core.errors import InputError
from proctor.core.image import Image
from proctor.guest import protocol
from proctor.isolation import sweep
from proctor.isolation.base import LEVELS, AgentProcess
from proctor.isolation.identities import Identities

_MAIN = Path(__file__).resolve().parent.parent / "guest" / "main.py"


class JailBoundary:
    """Starts agents on this host's kernel.

    Args:
        isolation: ``auto``, ``jail`` or ``degraded`` (``gvisor`` and ``microvm`` through boundaries of their own); a named one is never stepped down from.
        cgroup: use control groups where this user may.
    """

    agent_mib = 32
    identities = Identities()  # of this process, whatever number of boundaries it has

    def __init__(self, isolation: str = "auto", *, cgroup: bool = True) -> None:
        if isolation not in LEVELS:
            raise InputError(f"{isolation!r} is not one of {', '.join(LEVELS)}", field="isolation")
        self.levels = ["jail", "degraded"] if isolation == "auto" else [isolation]
        self.cgroup = cgroup
        self.extra: dict[str, Any] = {}
        self.token = secrets.token_hex(4)
        sweep.sweep()

    def prepare(self, image: Image) -> None:
        """Nothing to make; see ``Boundary``."""

    def start(self, image: Image, number: int) -> AgentProcess:
        """Start one agent; see ``Boundary``."""
        return self.spawn(image, self.name(number), {})

    def name(self, number: int) -> str:
        """A new agent's name."""
        return f"{sweep.owner_prefix()}{self.token}-{number}-{secrets.token_hex(3)}"

    def spawn(self, image: Image, name: str, more: dict[str, Any], fds: tuple[int, ...] = ()) -> AgentProcess:
        """Start one agent under a name, with ``more`` settings; it inherits ``fds``."""
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            identity = self.take()
            ours.callback(self.give_back, identity)
            host, guest = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ours.callback(host.close)
            theirs.callback(guest.close)
            lifeline, watched = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ours.callback(lifeline.close)
            theirs.callback(watched.close)
            log = os.memfd_create("agent-log", os.MFD_CLOEXEC)
            ours.callback(os.close, log)
            config = (
                {
                    "control": guest.fileno(),
                    "lifeline": watched.fileno(),
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
                    "uid": identity,
                    "lobby": False,
                }
                | self.extra
                | more
            )
            process = subprocess.Popen(
                [image.python, "-S", str(_MAIN), json.dumps(config)],  # the zygote runs site, inside the image
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=(guest.fileno(), watched.fileno(), *fds),
                env=image.env,
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal is the engine's to handle
            )
            ours.pop_all()
        return AgentProcess(process, host, lifeline, log, name, identity)

    def ended(self, agent: AgentProcess) -> bool:
        """See ``Boundary``. A supervisor that left by itself with one of its statuses has cleaned up."""
        if agent.process.returncode not in (0, protocol.STATUS_MEMORY) and not sweep.remove_named(
            agent.name, agent.identity
        ):
            return False
        self.give_back(agent.identity)
        return True

    def close(self) -> None:
        """Nothing to let go of; see ``Boundary``."""

    def take(self) -> int:
        """The identities of a new agent."""
        return self.identities.take()

    def give_back(self, identity: int) -> None:
        """The agent that had them is gone."""
        self.identities.give_back(identity)
