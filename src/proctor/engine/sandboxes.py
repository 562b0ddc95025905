"""Sandboxes of one process: created, kept within what the host has, found again, and ended when their time is over.

Lives on one event loop. A few rooms are always made ahead, so that a create
only has to open one. Whatever ends first ends a sandbox: its owner, its lease,
its ceiling of cost, its own death, or the end of this process.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proctor.core.errors import InfrastructureError, IsolationUnavailable
from proctor.core.sandbox import (
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SnapshotInfo,
    State,
    StopReason,
)
from proctor.engine import capacity
from proctor.engine.enclosed import ENCLOSED, Enclosures
from proctor.engine.gpus import Pool, environment
from proctor.engine.lobby import Lobby
from proctor.engine.outside import Outside, check
from proctor.engine.queue import Queue
from proctor.engine.rooms import ATTEMPTS, Pools, Rooms
from proctor.engine.roots import Roots
from proctor.engine.sandbox import Sandbox
from proctor.engine.spending import Spending
from proctor.engine.using import Use
from proctor.images.rootfs import Rootfs
from proctor.images.sandbox import host_ground
from proctor.images.store import Store
from proctor.isolation import machines
from proctor.isolation.gpus import Gpus, find
from proctor.meter.ledger import Ledger

WALLS = ("auto", "jail", *ENCLOSED)  # isolation levels of sandboxes; auto is the jail
SPARE = 2  # rooms made ahead: one more than a caller uses in the time that it takes to make one
# Beside the sandbox's bound, its room's own processes (4.1 MiB measured, and page tables), or all of what it is in.
OWN_MIB = {"gvisor": 112, "microvm": 192}
_OWN_MIB = 16
MOST = 100
_KEPT = 10_000  # records of sandboxes that have ended
_LATEST = 253_370_764_800.0  # the year 9999


class Sandboxes(Use):
    """All sandboxes of this process.

    Args:
        most: sandboxes at once.
        memory_mib: what all of them together may be promised; None is 0.8 of what is free now.
        store: of images and snapshots; None keeps none.
        ledger: account of what they cost; None keeps none.
        spare: rooms made ahead.
        gpus: what of this host's is given to sandboxes; None is all that is found now.
    """

    def __init__(
        self, *, most: int = MOST, memory_mib: int | None = None, store: Store | None = None,
        ledger: Ledger | None = None, spare: int = SPARE, outside: Outside | None = None, gpus: Gpus | None = None,
    ) -> None:  # fmt: skip
        self.outside = outside or Outside()
        self.gpus = Pool(gpus or find())
        self.ground = host_ground(store.layers if store else None, self.outside.binds, self.gpus.hidden())
        self.roots = Roots(self.ground, store)
        self.queue = Queue(most, memory_mib or int(0.8 * capacity.free_mib()), self.gpus)
        self.pools = Pools(store.layers if store else None, self.ground, min(spare, most))
        self.rooms = self.pools.plain
        self.enclosures = Enclosures(store.layers if store else None, self.ground, min(spare, most))
        self.roots.let_go = self.enclosures.drop
        self.spending = Spending(ledger, lambda box: self._end_soon(box, StopReason.COST))
        self._all: OrderedDict[str, Sandbox] = OrderedDict()
        self._names: dict[str, str] = {}
        self._account: asyncio.Task[None] | None = None

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
        await self.roots.start()
        self._account = asyncio.get_running_loop().create_task(self.spending.keep(self._running))

    async def close(self) -> None:
        """End all sandboxes and wait until nothing of them is left."""
        self.rooms.closed = True
        self.queue.close()
        await asyncio.gather(*(self.stop(box.id, StopReason.CLOSED) for box in self._running()))
        await asyncio.gather(self.pools.close(), self.enclosures.close())
        if self._account:
            self._account.cancel()
        self.roots.close()

    def forget(self) -> None:
        """In a forked child: the sandboxes are the parent's; let go of what keeps them alive."""
        self.pools.forget()
        self.enclosures.forget()
        self.gpus.forget()
        for box in self._running():
            if box.gate is not None:
                box.gate.forget()

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
            SandboxError: ``no_capacity`` (409) after ``wait_s``, ``name_taken`` (409), ``no_gpu``, ``too_large`` (400).
            IsolationUnavailable: this host does not have the isolation that it names.
            InfrastructureError: this host failed.
        """
        if spec.name is not None and spec.name in self._names:
            raise SandboxError(f"a running sandbox is named {spec.name!r}", code="name_taken", status=409,
                               hint="use get_or_create, or another name")  # fmt: skip
        if spec.name is not None:
            self._names[spec.name] = ""
        seat = root = None
        try:
            check(spec.network)
            capacity.check_vcpu(spec.vcpu)
            if spec.isolation not in WALLS:
                raise IsolationUnavailable(
                    f"isolation {spec.isolation!r} is not there for sandboxes; they are behind {' or '.join(WALLS[1:])}"
                )
            level = spec.isolation if spec.isolation in ENCLOSED else str(self.features.get("level", "jail"))
            self.gpus.check(spec, level)
            if level == "microvm":
                machines.check(spec)
            root = await self.roots.take(spec)
            bound = spec.bound_mib + OWN_MIB.get(level, _OWN_MIB)
            seat = await self.queue.seat(bound, wait_s, on_wait, gpus=spec.gpu, models=spec.gpu_models)
            box = Sandbox(spec, seat, self.spending.prices)
            box.root = root
            await self.spending.begin(box)
            try:
                await self._open(box)
            except BaseException:
                await self.spending.end(box, StopReason.FAULT)
                raise
        except BaseException:
            if spec.name is not None:
                self._names.pop(spec.name, None)
            if seat is not None:
                self.queue.leave(seat)
            if root is not None:
                self.roots.release(root)
            raise
        if spec.name is not None:
            self._names[spec.name] = box.id
        self._all[box.id] = box
        self._arm(box)
        self.spending.watch(box)
        return box

    async def _open(self, box: Sandbox) -> None:
        root, level = box.root.rootfs if box.root else Rootfs(), box.spec.isolation
        rooms: Rooms = await self._enclosure(level, root) if level in ENCLOSED else self.pools.of(root)
        rooms.used += 1
        try:
            await self._open_in(box, rooms)
        except BaseException:
            rooms.used -= 1
            raise

    async def _open_in(self, box: Sandbox, rooms: Rooms) -> None:
        fault: BaseException | None = None
        for _ in range(ATTEMPTS):
            lobby, room = await rooms.take()
            try:
                lobby.groups[room.number].bound(box.spec.bound_mib, lobby.boundary.processes, box.spec.vcpu)
                await room.request("open", **self.plan(box, lobby))
                if box.spec.network.internet:
                    box.gate = await self.outside.open(room, box.spec.network, box.attempted)
            except SandboxError as exc:
                fault = exc
                await lobby.end(room)
                if exc.status == 413:
                    raise
                continue
            except BaseException:
                self.rooms.later(lobby.end(room))
                raise
            finally:
                rooms.fill()
            box.room, box.lobby, box.pool = room, lobby, rooms
            room.on_broken = lambda _: self._end_soon(box, StopReason.FAULT)
            return
        raise InfrastructureError(f"a sandbox cannot be opened: {fault}") from fault

    async def _enclosure(self, level: str, root: Rootfs) -> Rooms:
        return await self.enclosures.of(level, root, self.roots.base(root), default=self.roots.is_default(root))

    def plan(self, box: Sandbox, lobby: Lobby) -> dict[str, Any]:
        """The request that makes a room of ``lobby`` this sandbox."""
        features = lobby.link.features
        spec, root, gpus = box.spec, box.root.rootfs if box.root else Rootfs(), box.seat.devices
        rules = spec.network
        env = self.roots.env(root)
        binds = self.outside.binds if rules.internet else []
        return {
            "floor": {
                **self.roots.floor(spec, root, self.outside.files(rules), binds), "gpu": self.gpus.plan(gpus),
            },
            "base_env": env, "env": environment(env, spec.env, gpus), "hostname": "sandbox",
            "workdir": root.workdir or "/workspace",
            "memory": 0 if features.get("memory") else spec.bound_mib << 20, "processes": lobby.boundary.processes,
            "bound": spec.bound_mib << 20,
            "sites": self.ground.sites, "warm": root.host, "host": root.host, "preimport": bool(root.preimport) and spec.isolation != "microvm",
            "watched": self.ground.watched, "bounded": bool(features.get("pids")),
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
                self._end_soon(box, StopReason.LEASE)

    def _end_soon(self, box: Sandbox, reason: StopReason) -> None:
        if box.state is State.RUNNING and not self.rooms.closed:
            self.rooms.later(self.stop(box.id, reason))

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
            await box.ask_usage()
        if box.state is State.RUNNING:
            box.state, box.reason, box.stopped_at = State.STOPPED, reason, time.time()
            if box.timer:
                box.timer.cancel()
            if box.spec.name is not None:
                self._names.pop(box.spec.name, None)
            box.ending = self.rooms.later(self._end(box, reason))
        if box.ending:
            await asyncio.shield(box.ending)
        return box

    async def _end(self, box: Sandbox, reason: StopReason) -> None:
        try:
            if box.gate is not None:
                await box.gate.close()
            if box.lobby and box.room:
                box.room.fail(InfrastructureError(f"the sandbox has stopped ({reason.value})"))
                await box.lobby.end(box.room, box.measure)
            await self.spending.end(box, reason)
        finally:
            self._leave(box)
            if box.pool:
                box.pool.used -= 1
            if box.root:
                self.roots.release(box.root)
            while len(self._all) > _KEPT and (old := next(iter(self._all.values()))).state is State.STOPPED:
                del self._all[old.id]

    def _leave(self, box: Sandbox) -> None:
        """Give its place to others; GPUs only once all that could use them is dead."""
        if box.seat.devices and box.room is not None and not box.room.gone.done():
            box.room.gone.add_done_callback(lambda _: self.queue.leave(box.seat))
        else:
            self.queue.leave(box.seat)

    async def delete(self, sandbox_id: str) -> None:
        """Stop it and forget its record."""
        await self.stop(sandbox_id)
        self._all.pop(sandbox_id, None)

    def extend(self, sandbox_id: str, seconds: float) -> SandboxInfo:
        """Let its lease end ``seconds`` later; SandboxError ``invalid_request`` (400) where no calendar reaches so far."""
        box = self.get(sandbox_id)
        box.live()
        if box.expires_at + seconds > _LATEST:
            raise SandboxError(f"seconds: {seconds!r} cannot be", code="invalid_request", status=400, hint=(
                f"give at most {max(0, int(_LATEST - box.expires_at))}, so that its lease ends before the year 9999"
            ))  # fmt: skip
        box.expires_at += seconds
        self._arm(box)
        return box.info()

    async def update(
        self, sandbox_id: str, *, timeout_seconds: float | None = None, labels: Mapping[str, str] | None = None,
        max_cost_micros: int | None = None,
    ) -> SandboxInfo:  # fmt: skip
        """Change what may be changed of a running one; ``timeout_seconds`` counts from now.

        Raises:
            SandboxError: it has stopped; or as for ``create``, where the daily limit does not allow that cost. Then
                nothing is changed.
        """
        box = self.get(sandbox_id)
        box.live()
        if max_cost_micros is not None:
            async with box.changing:
                await self.spending.set_ceiling(box, max_cost_micros)
                box.spec = replace(box.spec, max_cost_micros=max_cost_micros)
                box.live()
            self.spending.watch(box)
        if timeout_seconds is not None:
            box.expires_at = time.time() + timeout_seconds
            self._arm(box)
        if labels is not None:
            box.spec = replace(box.spec, labels=dict(labels))
        return box.info()

    # ------------------------------------------------------------ kept files

    async def snapshot(
        self, sandbox_id: str, *, name: str | None = None, labels: Mapping[str, str] | None = None,
        retention_days: float | None = None,
    ) -> SnapshotInfo:  # fmt: skip
        """Keep a sandbox's files; its processes stand still meanwhile and go on afterwards.

        Raises:
            SandboxError: it has stopped, or the files cannot be kept.
        """
        box = self.get(sandbox_id)
        async with box.stillness.hold():
            room, root = box.live(), box.root.rootfs if box.root else Rootfs()
            made = await self.roots.snapshot(
                room, box.spec, root, name=name, labels=labels or {}, retention_days=retention_days
            )
        await self.spending.stored(made)
        return made

    async def snapshots(self) -> Sequence[SnapshotInfo]:
        """All that are kept, oldest first."""
        return await self.roots.snapshots()

    async def get_snapshot(self, snapshot: str) -> SnapshotInfo:
        """By its id or name; SandboxError ``not_found`` (404)."""
        return await self.roots.get_snapshot(snapshot)

    async def delete_snapshot(self, snapshot: str) -> None:
        """Remove one; SandboxError ``in_use`` (409) while a sandbox lies on it."""
        await self.spending.stored(await self.roots.delete_snapshot(snapshot), until=time.time())
