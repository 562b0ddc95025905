"""Sandboxes of one process: created, kept within what the host has, found again, and ended when their time is over.

Lives on one event loop. A few rooms are always made ahead, so that a create
only has to open one. Whatever ends first ends a sandbox: its owner, its lease,
its ceiling of cost, its own death, or the end of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.core.errors import InfrastructureError
from proctor.core.sandbox import CommandOutcome, CommandSpec, SandboxError, SandboxInfo, SandboxSpec, State, StopReason
from proctor.engine import capacity
from proctor.engine.queue import Queue
from proctor.engine.room import OnOutput, Running
from proctor.engine.rooms import ATTEMPTS, Rooms
from proctor.engine.sandbox import Sandbox
from proctor.images.sandbox import Ground, host_ground
from proctor.isolation.lobby import LobbyBoundary

SPARE = 2  # rooms made ahead: one more than a caller uses in the time that it takes to make one
OWN_MIB = 16  # a room's own processes, beside the sandbox's bound: 4.1 MiB measured, and page tables
MOST = 100
_KEPT = 10_000  # records of sandboxes that have ended
_INODES = 200_000
_PROCESSES = 1024


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
        self.ground = ground or host_ground(layers)
        self.queue = Queue(most, memory_mib or int(0.8 * capacity.free_mib()))
        self.rooms = Rooms(LobbyBoundary(layers), self.ground.image, min(spare, most))
        self._all: OrderedDict[str, Sandbox] = OrderedDict()
        self._names: dict[str, str] = {}

    @property
    def features(self) -> dict[str, Any]:
        """What the agent said of its walls and meters; empty before the first."""
        return self.rooms.lobby.link.features if self.rooms.lobby else {}

    async def start(self) -> None:
        """Bring the agent and the first rooms up, so that a host that allows none is known.

        Raises:
            IsolationUnavailable: there are no sandboxes without namespaces.
        """
        await self.rooms.agent()
        self.rooms.fill()

    async def close(self) -> None:
        """End all sandboxes and wait until nothing of them is left."""
        self.rooms.closed = True
        self.queue.close()
        await asyncio.gather(*(self.stop(box.id, StopReason.CLOSED) for box in self._running()))
        await self.rooms.close()

    def _running(self) -> list[Sandbox]:
        return [box for box in self._all.values() if box.state is State.RUNNING]

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
        for _ in range(ATTEMPTS):
            lobby, room = await self.rooms.take()
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
                self.rooms.fill()
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
                self.rooms.later(self.stop(box.id, StopReason.LEASE))

    def _broken(self, box: Sandbox) -> None:
        if box.state is State.RUNNING and not self.rooms.closed:
            self.rooms.later(self.stop(box.id, StopReason.FAULT))

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
            box.ending = self.rooms.later(self._end(box))
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
        await box.free.wait()
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
                    await asyncio.shield(self.rooms.later(self.kill(sandbox_id, running.number, 9)))
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
        box = self.get(sandbox_id)
        await box.free.wait()
        return await box.live().request(f"files.{name}", body, **header)
