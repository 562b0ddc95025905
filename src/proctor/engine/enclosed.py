"""Sandboxes behind gVisor: a container for each, made ahead like the rooms of a lobby."""

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
from proctor.isolation.enclosed import EnclosedBoundary


class Container(Lobby):
    """An agent that is one room, as the engine sees it. ``start``; ended by ``end`` of that room, or ``close``."""

    boundary: EnclosedBoundary
    only: Room

    @classmethod
    async def start(cls, boundary: EnclosedBoundary, image: Image, number: int) -> Container:  # type: ignore[override]
        """Start a container and wait until its room can be opened.

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
            room.doors = True
            await room.ready()
        except BaseException:
            await link.close()
            raise
        group = boundary.group(link.agent, number)
        made.rooms[number], made.groups[number] = room, group
        room.why = lambda: ": it reached the memory bound of its container" if group.met_its_memory() else ""
        return made

    async def room(self) -> Room:
        """The one that it has.

        Raises:
            InfrastructureError: it has ended.
        """
        if self.closed or self.only.broken is not None:
            raise InfrastructureError("the container of the sandbox has ended")
        return self.only

    async def end(self, room: Room, last: Callable[[], None] | None = None) -> None:
        """End the container and wait until nothing of it is left; ``last`` is called while the meters stand."""
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
    """Containers for one root, on one event loop.

    Args:
        spare: containers that are ready before anybody asks.
        turns: for starts, of these and of other roots' together.
    """

    boundary: EnclosedBoundary

    def __init__(self, boundary: EnclosedBoundary, image: Image, spare: int, turns: asyncio.Semaphore) -> None:
        super().__init__(boundary, image, spare)
        self._turns = turns
        self._alive: set[Container] = set()

    async def agent(self) -> Container:
        """A new container.

        Raises:
            IsolationUnavailable: this host does not allow what it needs.
            InfrastructureError: it does not come up.
        """
        fault = InfrastructureError("no container came up")
        for _ in range(ATTEMPTS):
            if self.closed:
                raise InfrastructureError("the engine of the sandboxes was closed")
            self._number += 1
            try:
                async with self._turns:
                    made = await Container.start(self.boundary, self.image, self._number)
            except IsolationUnavailable:
                raise
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
    """Containers by what their root is: one pool for each, since a container has its root before it is anybody's.

    Args:
        layers: directory of the store's layers; None for none.
        spare: containers made ahead of those on the default root; one on any other, as long as a sandbox lies on it.
        most: pools; beyond that one that nobody uses is closed.
    """

    def __init__(self, layers: Path | None, ground: Ground, spare: int, most: int = 4) -> None:
        self.layers, self.ground, self.spare, self.most = layers, ground, spare, most
        self._pools: OrderedDict[str, EnclosedRooms] = OrderedDict()
        self._making: asyncio.Lock = asyncio.Lock()
        # A start takes a core for a second: many at once would each be too late.
        self._turns = asyncio.Semaphore(max(2, len(os.sched_getaffinity(0))))
        self._ending: set[asyncio.Task[None]] = set()

    async def of(self, root: Rootfs, base: dict[str, Any], *, default: bool) -> EnclosedRooms:
        """The pool for sandboxes on ``root``.

        Args:
            base: its part of the plan of ``guest/floor.py``.
            default: it is what sandboxes lie on that name nothing.

        Raises:
            IsolationUnavailable: no ``runsc`` works here.
        """
        async with self._making:
            found = self._pools.get(root.digest)
            if found is None:
                boundary = await asyncio.to_thread(EnclosedBoundary, self.layers, base)
                image = self.ground.image
                if root.host and root.preimport:
                    boundary.extra = {**boundary.extra, "over": [[site, []] for site in self.ground.sites]}
                    image = replace(image, preload=[*image.preload, *root.preimport])
                found = EnclosedRooms(boundary, image, self.spare if default else min(1, self.spare), self._turns)
                self._pools[root.digest] = found
                for digest in [name for name, pool in self._pools.items() if not pool.used and pool is not found]:
                    if len(self._pools) > self.most:
                        self.drop(digest)
            self._pools.move_to_end(root.digest)
            return found

    def drop(self, digest: str) -> None:
        """End the containers of a root that are nobody's: what it is made of may go away."""
        pool = self._pools.pop(digest, None)
        if pool is not None:
            task = asyncio.get_running_loop().create_task(pool.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        for pool in self._pools.values():
            pool.closed = True
            pool.forget()

    async def close(self) -> None:
        """End all of them."""
        for digest in list(self._pools):
            self.drop(digest)
        if self._ending:
            await asyncio.wait(self._ending)
