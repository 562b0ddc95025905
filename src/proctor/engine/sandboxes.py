"""Sandboxes of one process: created, kept within what the host has, found again, and ended when their time is over.

Lives on one event loop. A few rooms are always made ahead, so that a create
only has to open one. Whatever ends first ends a sandbox: its owner, its lease,
its ceiling of cost, its own death, or the end of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.core.errors import InfrastructureError, IsolationUnavailable
from proctor.core.sandbox import (
    CommandOutcome,
    CommandSpec,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    State,
    StopReason,
)
from proctor.engine import capacity
from proctor.engine.lobby import Lobby
from proctor.engine.queue import Queue, Seat
from proctor.engine.room import OnOutput, Room, Running
from proctor.images.sandbox import Ground, host_ground
from proctor.isolation.lobby import LobbyBoundary

SPARE = 2  # rooms made ahead: one more than a caller uses in the time that it takes to make one
OWN_MIB = 16  # a room's own processes, beside the sandbox's bound: 4.1 MiB measured, and page tables
MOST = 100
_KEPT = 10_000  # records of sandboxes that have ended
_INODES = 200_000
_PROCESSES = 1024
_ATTEMPTS = 3


class Sandbox:
    """One sandbox, on the engine's side."""

    def __init__(self, spec: SandboxSpec, seat: Seat) -> None:
        self.id = f"sbx_{secrets.token_hex(10)}"
        self.spec, self.seat = spec, seat
        self.created_at = time.time()
        self.expires_at = self.created_at + spec.timeout_seconds
        self.state, self.reason = State.RUNNING, None
        self.stopped_at: float | None = None
        self.room: Room | None = None
        self.lobby: Lobby | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.ending: asyncio.Task[None] | None = None
        self.cpu_seconds = 0.0

    reason: StopReason | None

    def info(self) -> SandboxInfo:
        """A look at it."""
        if self.state is State.RUNNING:
            self.measure()
        return SandboxInfo(
            id=self.id, state=self.state, spec=self.spec, created_at=self.created_at, expires_at=self.expires_at,
            stopped_at=self.stopped_at, stop_reason=self.reason, cpu_seconds=self.cpu_seconds,
        )  # fmt: skip

    def measure(self) -> None:
        """Bring its CPU seconds up to date, where the host has a meter."""
        if self.room and self.lobby and (group := self.lobby.groups.get(self.room.number)) and group.meter.cpu:
            self.cpu_seconds = max(self.cpu_seconds, group.meter.cpu_ns() / 1e9)

    def kills(self) -> int:
        """Processes of it that the kernel has killed for memory."""
        if self.room and self.lobby and (group := self.lobby.groups.get(self.room.number)):
            return group.meter.oom_kills()
        return 0

    def live(self) -> Room:
        """Its room; SandboxError when it has stopped."""
        if self.state is not State.RUNNING or self.room is None:
            why = f" ({self.reason.value})" if self.reason else ""
            raise SandboxError(f"sandbox {self.id} has stopped{why}", code="sandbox_stopped", status=409)
        return self.room


class Sandboxes:
    """All sandboxes of this process.

    Args:
        most: sandboxes at once.
        memory_mib: what all of them together may be promised; None is 0.8 of what is free now.
        layers: the store's directory of layers.
        spare: rooms made ahead.
    """

    def __init__(
        self, *, most: int = MOST, memory_mib: int | None = None, layers: Path | None = None, spare: int = SPARE,
        ground: Ground | None = None,
    ) -> None:  # fmt: skip
        self.boundary = LobbyBoundary(layers)
        self.ground = ground or host_ground(layers)
        self.queue = Queue(most, memory_mib or int(0.8 * capacity.free_mib()))
        self.spare = min(spare, most)
        self._lobby: Lobby | None = None
        self._starting: asyncio.Lock | None = None
        self._spares: list[Room] = []
        self._making = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._all: OrderedDict[str, Sandbox] = OrderedDict()
        self._names: dict[str, str] = {}
        self._number = 0
        self._closed = False

    @property
    def features(self) -> dict[str, Any]:
        """What the agent said of its walls and meters; empty before the first."""
        return self._lobby.link.features if self._lobby else {}

    async def start(self) -> None:
        """Bring the agent and the first rooms up, so that a host that allows none is known.

        Raises:
            IsolationUnavailable: no sandboxes without namespaces.
        """
        await self._agent()
        self._fill()

    async def close(self) -> None:
        """End all sandboxes and wait until nothing of them is left."""
        self._closed = True
        self.queue.close()
        await asyncio.gather(*(self.stop(box.id, StopReason.CLOSED) for box in self._running()))
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._lobby:
            await self._lobby.close()

    def forget(self) -> None:
        """In a forked child: the sandboxes are the parent's; let go of what keeps them alive."""
        if self._lobby:
            self._lobby.forget()

    def _running(self) -> list[Sandbox]:
        return [box for box in self._all.values() if box.state is State.RUNNING]

    # ------------------------------------------------------------ rooms

    async def _agent(self) -> Lobby:
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            if self._lobby is not None and not self._lobby.closed:
                return self._lobby
            if self._closed:
                raise InfrastructureError("the engine of the sandboxes was closed")
            if self._lobby is not None:
                self._spares.clear()
                self._later(self._lobby.close())
            fault: InfrastructureError | None = None
            for _ in range(_ATTEMPTS):
                self._number += 1
                try:
                    self._lobby = await Lobby.start(self.boundary, self.ground.image, self._number)
                    return self._lobby
                except IsolationUnavailable:
                    raise
                except InfrastructureError as exc:
                    fault = exc
            raise fault or InfrastructureError("no agent came up")

    def _later(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _fill(self) -> None:
        while not self._closed and len(self._spares) + self._making < self.spare:
            self._making += 1
            self._later(self._make())

    async def _make(self) -> None:
        try:
            room = await (await self._agent()).room()
            self._spares.append(room)
        except InfrastructureError:
            pass  # whoever needs one tries himself and is told
        finally:
            self._making -= 1
        if self._closed and self._spares and self._lobby:
            await self._lobby.end(self._spares.pop())

    async def _room(self) -> tuple[Lobby, Room]:
        lobby = await self._agent()
        while self._spares:
            room = self._spares.pop(0)
            if room.broken is None:
                return lobby, room
        return lobby, await lobby.room()

    # ------------------------------------------------------------ life

    async def create(
        self, spec: SandboxSpec, *, wait_s: float | None = None, on_wait: Callable[[int], None] | None = None
    ) -> Sandbox:
        """Make a sandbox, as soon as there is room for it.

        Args:
            wait_s: seconds to wait for room; None waits as long as it takes, 0 not at all.
            on_wait: called with the number of creates before this one, when it has to wait and whenever that changes.

        Raises:
            SandboxError: ``no_capacity`` (409) after ``wait_s``, ``name_taken`` (409).
            InfrastructureError: this host failed.
        """
        if spec.name is not None and spec.name in self._names:
            raise SandboxError(f"a running sandbox is named {spec.name!r}", code="name_taken", status=409,
                               hint="use get_or_create, or another name")  # fmt: skip
        if spec.name is not None:
            self._names[spec.name] = ""
        seat = None
        try:
            seat = await self.queue.seat(spec.memory_mib + OWN_MIB, wait_s, on_wait)
            box = Sandbox(spec, seat)
            await self._open(box)
        except BaseException:
            if spec.name is not None:
                self._names.pop(spec.name, None)
            if seat is not None:
                self.queue.leave(seat)
            raise
        if spec.name is not None:
            self._names[spec.name] = box.id
        self._all[box.id] = box
        self._arm(box)
        return box

    async def _open(self, box: Sandbox) -> None:
        fault: BaseException | None = None
        for _ in range(_ATTEMPTS):
            lobby, room = await self._room()
            group = lobby.groups[room.number]
            group.meter.set_memory(group.meter.usage() + (box.spec.memory_mib << 20))
            group.meter.set_pids(_PROCESSES + 2)
            group.meter.set_cpu(box.spec.vcpu)
            try:
                await room.request("open", **self.plan(box, lobby.link.features))
            except SandboxError as exc:
                fault = exc
                await lobby.end(room)
                continue
            finally:
                self._fill()
            box.room, box.lobby = room, lobby
            room.on_broken = lambda _: self._broken(box)
            return
        raise InfrastructureError(f"a sandbox cannot be opened: {fault}") from fault

    def plan(self, box: Sandbox, features: Mapping[str, Any]) -> dict[str, Any]:
        """The request that makes a room this sandbox."""
        spec = box.spec
        floor = {
            **self.ground.floor, "host": True, "layers": [], "files": {"/etc/resolv.conf": "nameserver 127.0.0.1\n"},
            "size": spec.disk_mib << 20, "inodes": _INODES,
        }  # fmt: skip
        base = self.ground.image.env
        return {
            "floor": floor, "env": dict(spec.env), "base_env": base, "hostname": "sandbox",
            "memory": 0 if features.get("memory") else spec.memory_mib << 20, "processes": _PROCESSES,
            "sites": self.ground.sites, "warm": True,
        }  # fmt: skip

    def _arm(self, box: Sandbox) -> None:
        if box.timer:
            box.timer.cancel()
        loop = asyncio.get_running_loop()
        box.timer = loop.call_later(max(0.0, box.expires_at - time.time()), self._expired, box)

    def _expired(self, box: Sandbox) -> None:
        if box.state is State.RUNNING:
            if time.time() < box.expires_at:
                self._arm(box)  # it was extended, or the clock was set back
            else:
                self._later(self.stop(box.id, StopReason.LEASE))

    def _broken(self, box: Sandbox) -> None:
        if box.state is State.RUNNING and not self._closed:
            self._later(self.stop(box.id, StopReason.FAULT))

    def get(self, sandbox_id: str) -> Sandbox:
        """By its id; SandboxError ``not_found`` (404)."""
        box = self._all.get(sandbox_id)
        if box is None:
            raise SandboxError(f"there is no sandbox {sandbox_id!r}", code="not_found", status=404)
        return box

    def named(self, name: str) -> Sandbox | None:
        """The running one of that name."""
        found = self._names.get(name)
        return self._all.get(found) if found else None

    def list(self, *, labels: Mapping[str, str] | None = None, include_stopped: bool = False) -> Iterable[Sandbox]:
        """Those that have all of ``labels``, oldest first."""
        for box in list(self._all.values()):
            fits = all(box.spec.labels.get(name) == value for name, value in (labels or {}).items())
            if fits and (include_stopped or box.state is State.RUNNING):
                yield box

    async def stop(self, sandbox_id: str, reason: StopReason = StopReason.REQUEST) -> Sandbox:
        """End all of its processes and let go of its files; returns when nothing is left. May be called again."""
        box = self.get(sandbox_id)
        if box.state is State.RUNNING:
            box.measure()
            box.state, box.reason, box.stopped_at = State.STOPPED, reason, time.time()
            if box.timer:
                box.timer.cancel()
            if box.spec.name is not None:
                self._names.pop(box.spec.name, None)
            box.ending = self._later(self._end(box))
        if box.ending:
            await asyncio.shield(box.ending)
        return box

    async def _end(self, box: Sandbox) -> None:
        try:
            if box.lobby and box.room:
                await box.lobby.end(box.room)
        finally:
            self.queue.leave(box.seat)
            while len(self._all) > _KEPT and (old := next(iter(self._all.values()))).state is State.STOPPED:
                del self._all[old.id]

    async def delete(self, sandbox_id: str) -> None:
        """Stop it and forget its record."""
        await self.stop(sandbox_id)
        self._all.pop(sandbox_id, None)

    def extend(self, sandbox_id: str, seconds: float) -> SandboxInfo:
        """Let its lease end ``seconds`` later."""
        box = self.get(sandbox_id)
        box.live()
        box.expires_at += seconds
        self._arm(box)
        return box.info()

    def update(self, sandbox_id: str, *, timeout_seconds: float | None = None, labels: Mapping[str, str] | None = None,
               max_cost_micros: int | None = None) -> SandboxInfo:  # fmt: skip
        """Change what may be changed of a running one; ``timeout_seconds`` counts from now."""
        box = self.get(sandbox_id)
        box.live()
        if timeout_seconds is not None:
            box.expires_at = time.time() + timeout_seconds
            self._arm(box)
        if labels is not None:
            box.spec = replace(box.spec, labels=dict(labels))
        if max_cost_micros is not None:
            box.spec = replace(box.spec, max_cost_micros=max_cost_micros)
        return box.info()

    # ------------------------------------------------------------ use

    async def start_command(self, sandbox_id: str, spec: CommandSpec, on_output: OnOutput | None = None) -> Running:
        """Start a command; its outcome comes from ``finish_command``."""
        box = self.get(sandbox_id)
        room = box.live()
        stdin = "pipe" if spec.stdin_open else "none" if spec.stdin is None else "data"
        header = {
            "argv": list(spec.argv), "cwd": spec.cwd, "user": spec.user, "env": dict(spec.env), "stdin": stdin,
            "timeout": spec.timeout_s, "keep": spec.keep,
        }  # fmt: skip
        return await room.start(header, spec.stdin or b"", on_output)

    async def run_command(
        self, sandbox_id: str, spec: CommandSpec, on_output: OnOutput | None = None
    ) -> CommandOutcome:
        """Run a command to its end; cancelling kills it."""
        box = self.get(sandbox_id)
        before = box.kills()
        running = await self.start_command(sandbox_id, spec, on_output)
        try:
            return self.judged(box, await running.done, before)
        except BaseException:
            if not running.done.done() or running.done.cancelled():
                with contextlib.suppress(SandboxError):
                    await asyncio.shield(self._later(self.kill(sandbox_id, running.number, 9)))
            raise

    @staticmethod
    def judged(box: Sandbox, outcome: CommandOutcome, kills_before: int) -> CommandOutcome:
        """An outcome with what the control group knows of its memory."""
        if outcome.exit_code in (-9, 137) and box.kills() > kills_before:
            return replace(outcome, out_of_memory=True)
        return outcome

    async def kill(self, sandbox_id: str, process: int, signal: int) -> None:
        """Send a signal to a command; SIGKILL ends all that came from it."""
        await self.get(sandbox_id).live().request("kill", c=process, signal=signal)

    async def write_stdin(self, sandbox_id: str, process: int, data: bytes, *, end: bool = False) -> None:
        """More for its standard input."""
        await self.get(sandbox_id).live().request("input", data, c=process, end=end)

    async def files(self, sandbox_id: str, name: str, body: bytes = b"", **header: Any) -> tuple[dict[str, Any], bytes]:
        """A request of ``guest/files.py``."""
        return await self.get(sandbox_id).live().request(f"files.{name}", body, **header)
