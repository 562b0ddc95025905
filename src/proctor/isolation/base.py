"""What an isolation level offers to the engine."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from typing import Protocol

from proctor.images.host import Image

LEVELS = ("auto", "jail", "degraded")  # auto: the strongest of the others that this host allows


@dataclass(slots=True)
class AgentProcess:
    """A started agent: its control stream, and the ways to end it.

    Attributes:
        process: the supervisor.
        control: the host's end of the control stream.
        lifeline: closing it tells the supervisor to end everything.
        name: of its control group and directory, for the sweep.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    lifeline: int
    name: str


class Boundary(Protocol):
    """A wall. ``start`` raises OSError when not even the supervisor comes up."""

    def start(self, image: Image, number: int) -> AgentProcess:
        """Start an agent for slot ``number``; it says READY, or FAULT, on its control stream."""
        ...
