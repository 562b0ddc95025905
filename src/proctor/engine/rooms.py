"""The agent that forks sandboxes, replaced when it ends, and a few rooms that are made ahead."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.core.errors import InfrastructureError, IsolationUnavailable
from proctor.core.image import Image
from proctor.engine.lobby import Lobby, Stuck
from proctor.engine.room import Room
from proctor.images.rootfs import Rootfs
from proctor.images.sandbox import POINT, Ground
from proctor.isolation.lobby import LobbyBoundary, RoomBoundary

ATTEMPTS = 3  # agents that may fail to come up in a row


class Rooms:
    """Rooms of one image, on one event loop.

    Args:
        spare: rooms that are ready before anybody asks.
    """

    def __init__(self, boundary: RoomBoundary, image: Image, spare: int) -> None:
        self.boundary, self.image, self.spare = boundary, image, spare
        self.lobby: Lobby | None = None
        self._retired: set[Lobby] = set()
        self.closed = False
        self._spares: list[tuple[Lobby, Room]] = []
        self._making = 0
        self._makers: set[asyncio.Task[Any]] = set()
        self._number = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting: asyncio.Lock = asyncio.Lock()
        self.used = 0  # sandboxes that live in rooms of these

    @property
    def ready(self) -> int:
        """Spare rooms that are there now."""
        return len(self._spares)

    async def agent(self) -> Lobby:
        """The agent, started when there is none.

        Raises:
            IsolationUnavailable: there are no sandboxes without namespaces.
            InfrastructureError: it does not come up.
        """
        async with self._starting:
            if self.lobby is not None and not self.lobby.closed and not self.lobby.retired:
                return self.lobby
            if self.closed:
                raise InfrastructureError("the engine of the sandboxes was closed")
            if self.lobby is not None and not self.lobby.retired:
                self.later(self.lobby.close())
            fault = InfrastructureError("no agent came up")
            for _ in range(ATTEMPTS):
                self._number += 1
                try:
                    self.lobby = await Lobby.start(self.boundary, self.image, self._number)
                    return self.lobby
                except IsolationUnavailable:
                    raise
                except InfrastructureError as exc:
                    fault = exc
            raise fault

    async def take(self) -> tuple[Lobby, Room]:
        """A room that is nobody's yet: one that was made ahead, or a new one."""
        while self._spares:
            lobby, room = self._spares.pop(0)
            if room.broken is None:
                return lobby, room
            self.later(lobby.end(room))
        try:
            return await self._new()
        except Stuck:  # which says nothing of the next lobby
            return await self._new()

    async def _new(self) -> tuple[Lobby, Room]:
        lobby = await self.agent()
        try:
            return lobby, await lobby.room()
        except Stuck:
            self._retire(lobby)
            raise

    def _retire(self, lobby: Lobby) -> None:
        """Let a lobby be that makes no rooms, until those that it has made have ended: they need it for nothing."""
        if lobby.retired:
            return
        lobby.retire()
        self._retired.add(lobby)
        for other, room in self._spares:
            if other is lobby:
                self.later(lobby.end(room))
        self._spares = [(other, room) for other, room in self._spares if other is not lobby]
        self.later(lobby.outlive()).add_done_callback(lambda _: self._retired.discard(lobby))

    def fill(self) -> None:
        """Begin to make what is missing of the spare rooms."""
        while not self.closed and len(self._spares) + self._making < self.spare:
            self._making += 1
            making = self.later(self._make())
            self._makers.add(making)
            making.add_done_callback(self._makers.discard)

    async def _make(self) -> None:
        try:
            lobby, room = await self._new()
        except InfrastructureError:
            return  # whoever needs one tries himself and is told
        finally:
            self._making -= 1
        if self.closed:
            await lobby.end(room)
        else:
            self._spares.append((lobby, room))

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside the rest; ``close`` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        for lobby in {*self._retired, *([self.lobby] if self.lobby else [])}:
            lobby.forget()

    async def close(self) -> None:
        """End everything and wait until nothing is left."""
        self.closed = True
        while self._spares:
            lobby, room = self._spares.pop()
            self.later(lobby.end(room))
        for lobby in self._retired:
            lobby.leave()
        for making in self._makers:
            making.cancel()
        if self.lobby:
            self.lobby.retire()  # whoever still waits for a room of it is told
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self.lobby:
            await self.lobby.close()


class Pools:
    """Rooms by what their agent has imported: one pool for all plain images, and one for each that names modules.

    Args:
        most: pools of images that name modules; beyond that one that nobody uses is closed.
    """

    def __init__(self, layers: Path | None, ground: Ground, spare: int, most: int = 4) -> None:
        self.layers, self.ground, self.spare, self.most = layers, ground, spare, most
        self.plain = Rooms(LobbyBoundary(layers), ground.image, spare)
        self._named: OrderedDict[str, Rooms] = OrderedDict()

    def of(self, root: Rootfs) -> Rooms:
        """The pool for sandboxes on ``root``."""
        if not root.preimport or not root.host:
            return self.plain
        found = self._named.get(root.digest)
        if found is None:
            boundary = LobbyBoundary(self.layers)
            places = [(site, [f"{POINT}/{path.name}{site}" for path in root.layers]) for site in self.ground.sites]
            shown = [
                [
                    site,
                    [folder for folder, path in zip(folders, root.layers, strict=True) if (path / site[1:]).is_dir()],
                ]
                for site, folders in places
            ]
            boundary.extra = {**boundary.extra, "over": [row for row in shown if row[1]]}
            image = replace(self.ground.image, preload=[*self.ground.image.preload, *root.preimport])
            found = self._named[root.digest] = Rooms(boundary, image, self.spare)
            self._trim()
        self._named.move_to_end(root.digest)
        return found

    def _trim(self) -> None:
        for digest, rooms in list(self._named.items()):
            if len(self._named) > self.most and not rooms.used and digest != next(reversed(self._named)):
                del self._named[digest]
                self.plain.later(rooms.close())

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        for rooms in (self.plain, *self._named.values()):
            rooms.closed = True
            rooms.forget()

    async def close(self) -> None:
        """End all of them."""
        await asyncio.gather(*(rooms.close() for rooms in self._named.values()))
        await self.plain.close()
