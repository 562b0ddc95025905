"""What one sandbox may take of its host for its network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one sandbox may take of its host.

    Attributes:
        connections: at once; further ones wait in the kernel's queue.
        head_s: seconds until a request's head, or a ClientHello, has come whole.
        idle_s: seconds after which a connection is cut on which nothing moves.
        dial_s: seconds for a look-up and a connection.
        attempts: how many are remembered in memory.
        rate: attempts per second over a longer time; further ones wait.
        burst: attempts before that counts.
    """

    connections: int = 64
    head_s: float = 30.0
    idle_s: float = 300.0
    dial_s: float = 20.0
    attempts: int = 1000
    rate: float = 200.0
    burst: float = 1000.0
