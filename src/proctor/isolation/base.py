"""What an isolation level offers to the engine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass
from typing import Protocol

from proctor.core.image import Image

LEVELS = ("auto", "jail", "degraded", "gvisor", "microvm")  # auto: jail, or degraded where this host allows no more


class Around(Protocol):
    """Bounds on the host around all of an agent."""

    def bound(self, memory_mib: int, workspace_mib: int, processes: int) -> None:
        """Set what the next job may use; InfrastructureError where it can never have that."""

    def worn(self) -> bool:
        """The agent is well, but shall not be given another job."""

    def close(self) -> None:
        """Let go of it."""


@dataclass(slots=True)
class AgentProcess:
    """A started agent: its control stream, and the ways to end it.

    Attributes:
        process: the supervisor.
        control: the host's end of the control stream.
        lifeline: a byte on it, or its end, tells the supervisor to end everything.
        log: what the agent itself wrote on stderr: a memory file, empty unless it broke.
        name: of its control group and directory, for the sweep.
        identity: the first of its two user numbers on the host, where it has any of its own.
        around: bounds that the host sets around it, where it does not set its own.
        pace: times that a program's CPU seconds may take longer there than on this host.
        failed: it did not come up.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    lifeline: socket.socket
    log: int
    name: str
    identity: int
    around: Around | None = None
    pace: float = 1.0
    failed: bool = False

    def last_words(self, most: int) -> str:
        """The end of what it wrote on stderr: at most that many bytes."""
        if self.log < 0:
            return ""
        size = os.fstat(self.log).st_size
        return os.pread(self.log, most, max(0, size - most)).decode("utf-8", "replace").strip()

    def release(self) -> None:
        """Tell the supervisor to end everything, and end the control stream. Never blocks; may be called again.

        Said, not only closed: a forked child of this process may hold the same descriptors.
        """
        with contextlib.suppress(OSError):
            self.lifeline.send(b"q", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Close this process's descriptors and say nothing: in a forked child they are copies of its parent's."""
        self.control.close()
        self.lifeline.close()
        if self.log >= 0:
            os.close(self.log)
            self.log = -1
        if self.around is not None:
            self.around.close()
            self.around = None


class Boundary(Protocol):
    """A wall. ``start`` raises OSError when not even the supervisor comes up.

    Attributes:
        agent_mib: memory that an idle slot may take beside its job.
    """

    agent_mib: int

    def prepare(self, image: Image) -> None:
        """Make, once for an image, what agents start from; may take seconds, and is called in a thread.

        Raises:
            IsolationUnavailable: what the level needs is not there.
            OSError: the cache directory cannot be written.
        """
        ...

    def start(self, image: Image, number: int) -> AgentProcess:
        """Start an agent for slot ``number``; it says READY, or FAULT, on its control stream."""
        ...

    def close(self) -> None:
        """Let go of what agents are made from; another start gets it again."""
        ...

    def ended(self, agent: AgentProcess) -> bool:
        """Remove what an agent whose supervisor is dead has left; True when there is nothing (more)."""
        ...
