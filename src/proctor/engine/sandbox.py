"""One sandbox, on the engine's side: what it is, and what is left of it when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque

from proctor.core.sandbox import SandboxError, SandboxInfo, SandboxSpec, State, StopReason
from proctor.engine.lobby import Lobby
from proctor.engine.queue import Seat
from proctor.engine.room import Room
from proctor.engine.rooms import Rooms
from proctor.engine.roots import Root
from proctor.engine.still import Stillness
from proctor.isolation.lobby import RoomGroup
from proctor.meter.prices import Prices
from proctor.meter.usage import Usage
from proctor.network.attempts import Attempt
from proctor.network.gate import Gate

_USAGE_S = 0.5  # an answer takes a millisecond, and the end of a lease waits for it


class Sandbox:
    """A sandbox. While it runs it has a room, which a lobby keeps."""

    def __init__(self, spec: SandboxSpec, seat: Seat, prices: Prices) -> None:
        self.id = f"sbx_{secrets.token_hex(10)}"
        self.spec, self.seat, self.prices = spec, seat, prices
        self.created_at = time.time()
        self.expires_at = self.created_at + spec.timeout_seconds
        self.began = time.monotonic()
        self.state = State.RUNNING
        self.reason: StopReason | None = None
        self.stopped_at: float | None = None
        self.room: Room | None = None
        self.lobby: Lobby | None = None
        self.pool: Rooms | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.ending: asyncio.Task[None] | None = None
        self.cpu_seconds = 0.0
        self.wall_seconds = 0.0
        self.root: Root | None = None
        self.gate: Gate | None = None
        self.network = spec.network
        self.attempts: deque[Attempt] = deque(maxlen=1000)
        self.changing = asyncio.Lock()  # one change of the network, or the ceiling, at a time
        # Cleared while its files are read for a snapshot: nothing may be changed or started then.
        self.stillness = Stillness()

    def info(self) -> SandboxInfo:
        """A look at it."""
        cost = self.cost()  # which brings its seconds up to date
        return SandboxInfo(
            id=self.id, state=self.state, spec=self.spec, created_at=self.created_at, expires_at=self.expires_at,
            stopped_at=self.stopped_at, stop_reason=self.reason, cpu_seconds=self.cpu_seconds,
            cost_micros=cost,
        )  # fmt: skip

    def attempted(self, attempt: Attempt) -> None:
        """Something tried to reach the network."""
        self.attempts.append(attempt)

    def cost(self) -> int:
        """Millionths of a dollar up to now, or in all."""
        self.measure()
        spec = self.spec
        used = Usage(self.cpu_seconds, self.wall_seconds, spec.vcpu, spec.memory_mib, spec.gpu)
        return used.cost_micros(self.prices)

    @property
    def group(self) -> RoomGroup | None:
        """Its control group."""
        return self.lobby.groups.get(self.room.number) if self.room and self.lobby else None

    def measure(self) -> None:
        """Bring its seconds up to date while it runs; those of its CPUs where the host has a meter."""
        if self.state is State.RUNNING and self.room is not None:
            self.wall_seconds = time.monotonic() - self.began
        if (group := self.group) and group.meter.cpu:
            self.cpu_seconds = max(self.cpu_seconds, group.meter.cpu_ns() / 1e9)

    async def ask_usage(self) -> None:
        """The same; where the host has no meter its pid 1 is asked, which its programs may leave no time to answer."""
        self.measure()
        group = self.group
        if self.room is not None and self.room.broken is None and not (group and group.meter.cpu):
            with contextlib.suppress(SandboxError, TimeoutError):
                async with asyncio.timeout(_USAGE_S):
                    answer, _ = await self.room.request("usage")
                used = answer.get("cpu_ns")
                if type(used) is int and 0 <= used < 1 << 62:
                    self.cpu_seconds = max(self.cpu_seconds, used / 1e9)

    def kills(self) -> int:
        """Processes of it that the kernel has killed for memory."""
        with contextlib.suppress(OSError):  # its group is being removed
            return group.meter.oom_kills() if (group := self.group) else 0
        return 0

    def live(self) -> Room:
        """Its room; SandboxError when it has stopped."""
        if self.state is not State.RUNNING or self.room is None:
            why = f" ({self.reason.value})" if self.reason else ""
            raise SandboxError(f"sandbox {self.id} has stopped{why}", code="sandbox_stopped", status=409)
        return self.room
