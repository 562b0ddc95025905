"""Sandboxes behind gVisor or in virtual machines: a container or a machine for each, made ahead like the rooms of a lobby."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.core.errors import InfrastructureError, IsolationUnavailable
from proctor.core.image import Image
from proctor.engine.link import Link
from proctor.engine.lobby import Lobby
from proctor.engine.room import Room
from proctor.engine.rooms import ATTEMPTS, Rooms
from proctor.images.rootfs import Rootfs
from proctor.images.sandbox import Ground
from proctor.isolation import machines
from proctor.isolation.enclosed import EnclosedBoundary, Enclosing
from proctor.isolation.machines import MachineBoundary

ENCLOSED = ("gvisor", "microvm")  # levels whose walls stand around each sandbox


class Container(Lobby):
    """An agent that is one room, behind a wall of its own, as the engine sees it. ``start``; ended by ``end`` of that room, or ``close``."""

    boundary: Enclosing
    only: Room

    @classmethod
    async def start(cls, boundary: Enclosing, image: Image, number: int) -> Container:  # type: ignore[override]
        """Start it and wait until its room can be opened.

        Raises:
            IsolationUnavailable: this host does not allow what it needs.
            InfrastructureError: it did not come up.
        """
        link = Link.spawn(boundary, image, number)
        try:
            await link.ready()
            made = cls(boundary, link)
            made.only = room = Room(link.agent.control, number)
            room.stream = link.stream  # which may have read more than its own first word
            room.doors = boundary.names
            await room.ready()
        except BaseException:
            await link.close()
            raise
        group = boundary.group(link.agent, number)
        made.rooms[number], made.groups[number] = room, group
        room.why = lambda: ": it reached the memory bound around it" if group.met_its_memory() else ""
        return made

    async def room(self) -> Room:
        """The one that it has.

        Raises:
            InfrastructureError: it has ended.
        """
        if self.closed or self.only.broken is not None:
            raise InfrastructureError("what the sandbox was in has ended")
        return self.only

    async def end(self, room: Room, last: Callable[[], None] | None = None) -> None:
        """End it and wait until nothing of it is left; ``last`` is called while the meters stand."""
        self.closed = True
        room.close()
        if last is not None:
            last()
        await self.link.close()
        self.rooms.pop(room.number, None)
        self._gone(room)
        await self._clear(room.number)

    async def close(self) -> None:
        """End it."""
        await self.end(self.only)


class EnclosedRooms(Rooms):
    """Containers, or machines, for one root, on one event loop.

    Args:
        spare: those that are ready before anybody asks.
        turns: for starts, of these and of other roots' together.
    """

    boundary: Enclosing

    def __init__(self, boundary: Enclosing, image: Image, spare: int, turns: asyncio.Semaphore) -> None:
        super().__init__(boundary, image, spare)
        self._turns = turns
        self._alive: set[Container] = set()

    async def agent(self) -> Container:
        """A new one.

        Raises:
            IsolationUnavailable: this host does not allow what it needs.
            InfrastructureError: it does not come up.
        """
        fault = InfrastructureError("nothing for a sandbox to be in came up")
        for _ in range(ATTEMPTS):
            if self.closed:
                raise InfrastructureError("the engine of the sandboxes was closed")
            self._number += 1
            try:
                await asyncio.to_thread(self.boundary.prepare, self.image)
                async with self._turns:
                    made = await Container.start(self.boundary, self.image, self._number)
            except IsolationUnavailable:
                raise
            except OSError as exc:
                raise InfrastructureError(f"what sandboxes are copies of cannot be made: {exc}") from exc
            except InfrastructureError as exc:
                fault = exc
                continue
            self._alive = {one for one in self._alive if not one.closed} | {made}
            return made
        raise fault

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        for one in self._alive:
            one.forget()


class Enclosures:
    """Containers and machines by what their root is: one pool for each, since they have it before they are anybody's.

    Args:
        layers: directory of the store's layers; None for none.
        spare: made ahead of those on the default root; one on any other, as long as a sandbox lies on it.
        most: pools; beyond that one that nobody uses is closed.
    """

    def __init__(self, layers: Path | None, ground: Ground, spare: int, most: int = 4) -> None:
        self.layers, self.ground, self.spare, self.most = layers, ground, spare, most
        self.saved = machines.Saved(ground.image)
        self._pools: OrderedDict[tuple[str, str], EnclosedRooms] = OrderedDict()
        self._making: dict[str, asyncio.Lock] = {level: asyncio.Lock() for level in ENCLOSED}
        # A start takes a core for a second: many at once would each be too late.
        self._turns = asyncio.Semaphore(max(2, len(os.sched_getaffinity(0))))
        self._ending: set[asyncio.Task[None]] = set()

    async def of(self, level: str, root: Rootfs, base: dict[str, Any], *, default: bool) -> EnclosedRooms:
        """The pool for sandboxes on ``root``.

        Args:
            level: one of ``ENCLOSED``.
            base: its part of the plan of ``guest/floor.py``.
            default: it is what sandboxes lie on that name nothing.

        Raises:
            IsolationUnavailable: what the level needs is not there.
            InfrastructureError: this host failed.
        """
        async with self._making[level]:
            found = self._pools.get((level, root.digest))
            if found is None:
                making = asyncio.ensure_future(asyncio.to_thread(self._boundary, level, root, base))
                try:
                    boundary, image = await asyncio.shield(making)
                except OSError as exc:
                    raise InfrastructureError(f"isolation {level!r}: {exc}") from exc
                except asyncio.CancelledError:  # the thread goes on
                    making.add_done_callback(_unwanted)
                    raise
                found = EnclosedRooms(boundary, image, self.spare if default else min(1, self.spare), self._turns)
                self._pools[level, root.digest] = found
                for name in [name for name, pool in self._pools.items() if not pool.used and pool is not found]:
                    if len(self._pools) > self.most:
                        self._end(name)
            self._pools.move_to_end((level, root.digest))
            return found

    def _boundary(self, level: str, root: Rootfs, base: dict[str, Any]) -> tuple[Enclosing, Image]:
        """The wall for sandboxes on a root, and the image of its agent; may take seconds."""
        image = self.ground.image
        if level == "microvm":
            return MachineBoundary(self.saved, [str(path) for path in root.layers]), image
        boundary = EnclosedBoundary(self.layers, base)
        if root.host and root.preimport:
            boundary.extra = {**boundary.extra, "over": [[site, []] for site in self.ground.sites]}
            image = replace(image, preload=[*image.preload, *root.preimport])
        return boundary, image

    def drop(self, digest: str) -> None:
        """End what is nobody's and lies on a root: what that is made of may go away."""
        for name in [name for name in self._pools if name[1] == digest]:
            self._end(name)

    def _end(self, name: tuple[str, str]) -> None:
        task = asyncio.get_running_loop().create_task(self._close(self._pools.pop(name)))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    @staticmethod
    async def _close(pool: EnclosedRooms) -> None:
        await pool.close()
        pool.boundary.close()

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        for pool in self._pools.values():
            pool.closed = True
            pool.forget()

    async def close(self) -> None:
        """End all of them."""
        for name in list(self._pools):
            self._end(name)
        if self._ending:
            await asyncio.wait(self._ending)
        self.saved.close()


def _unwanted(making: asyncio.Future[tuple[Enclosing, Image]]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result()[0].close()
