"""The agent that forks sandboxes, as the engine sees it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from proctor.core.errors import FrameError, InfrastructureError
from proctor.core.image import Image
from proctor.engine import reading
from proctor.engine.link import Link
from proctor.engine.room import Room
from proctor.guest import protocol
from proctor.isolation.lobby import LobbyBoundary, RoomGroup

_BY_ITSELF_S = 0.5  # for a sandbox's pid 1 to see that its socket has ended: it takes a millisecond
_CLEAR_S = 10.0  # for the kernel to end what a sandbox has left


class Lobby:
    """A live lobby: ``spawn``, ``ready``, then any number of rooms; ended by ``close``."""

    def __init__(self, boundary: LobbyBoundary, link: Link) -> None:
        self.boundary, self.link = boundary, link
        self.rooms: dict[int, Room] = {}
        self.groups: dict[int, RoomGroup] = {}
        self.closed = False
        self.fault: BaseException | None = None
        self._number = 0
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, boundary: LobbyBoundary, image: Image, number: int) -> Lobby:
        """Start a lobby and wait until it can fork.

        Raises:
            IsolationUnavailable: this host allows no namespaces.
            InfrastructureError: it did not come up.
        """
        link = Link.spawn(boundary, image, number)
        try:
            await link.ready()
        except BaseException:
            await link.close()
            raise
        lobby = cls(boundary, link)
        lobby._reader = asyncio.get_running_loop().create_task(lobby._read())
        return lobby

    async def _read(self) -> None:
        """Take note of rooms whose last process is dead; at the lobby's own end all of them are."""
        stream = self.link.stream
        try:
            while True:
                kind, size, body = protocol.unpack_head(await stream.exactly(protocol.HEAD.size))
                header = protocol.unpack_header(await stream.exactly(size))
                if kind == protocol.FAULT:
                    raise FrameError(reading.text(header.get("message")))
                if kind != protocol.DONE or body:
                    raise FrameError(f"the lobby sent frame {kind}")
                number = header.get("room")
                room = self.rooms.pop(number, None) if type(number) is int else None
                if room is None:
                    raise FrameError("the lobby told of a room that is not there")
                self._gone(room)
        except (EOFError, OSError, ValueError, FrameError) as exc:
            self.closed, self.fault = True, exc
            for room in list(self.rooms.values()):
                self._gone(room)
                room.fail(InfrastructureError(f"the agent of the sandboxes ended: {exc}"))
            self.rooms.clear()

    @staticmethod
    def _gone(room: Room) -> None:
        if not room.gone.done():
            room.gone.set_result(None)

    async def room(self) -> Room:
        """A new room, ready to be opened.

        Raises:
            InfrastructureError: it did not come up.
        """
        if self.closed:
            raise InfrastructureError("the agent of the sandboxes has ended")
        self._number += 1
        number = self._number
        try:
            host, guest = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as exc:
            raise InfrastructureError(f"no socket for a sandbox: {exc.strerror}") from exc
        group = self.boundary.group(self.link.agent, number)
        try:
            room = Room(host, number)
            self.rooms[number], self.groups[number] = room, group
            head = protocol.pack(protocol.JOB, {"room": number, "groups": len(group.doors)})
            await self.link.stream.send_whole(head, [guest.fileno(), *group.doors])
        except OSError as exc:
            self.rooms.pop(number, None)
            host.close()
            await self._clear(number)
            raise InfrastructureError("the agent of the sandboxes has ended") from exc
        finally:
            guest.close()
            group.close_doors()
        try:
            await room.ready()
        except BaseException:
            await self.end(room)
            raise
        return room

    async def end(self, room: Room, last: Callable[[], None] | None = None) -> None:
        """End a room and wait until nothing of it is left; ``last`` is called when all is dead and the meters stand."""
        room.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BY_ITSELF_S):
                await asyncio.shield(room.gone)
        if not room.gone.done():  # its pid 1 does not see its socket's end: it is stopped, or starved
            with contextlib.suppress(OSError):
                await self.link.stream.send_whole(protocol.pack(protocol.CANCEL, {"room": room.number}))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLEAR_S):
                    await asyncio.shield(room.gone)
        if last is not None:
            last()
        await self._clear(room.number)

    async def _clear(self, number: int) -> None:
        # In a thread, and less often as it goes on: beside 50 others that come and go a removal took 3 ms, and up to 106,
        # while which the kernel has all other groups wait.
        group = self.groups.pop(number, None)
        deadline = asyncio.get_running_loop().time() + _CLEAR_S
        pause = 0.002
        while group and not await asyncio.to_thread(group.remove) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.1)

    def forget(self) -> None:
        """In a forked child: close the copies of descriptors that keep the agent and its rooms alive, and say nothing."""
        for room in self.rooms.values():
            room.sock.close()
        self.link.agent.forget()

    async def close(self) -> None:
        """End all rooms and the agent."""
        self.closed = True
        await asyncio.gather(*(self.end(room) for room in list(self.rooms.values())))
        if self._reader:
            self._reader.cancel()
        await self.link.close()
        for number in list(self.groups):
            await self._clear(number)
