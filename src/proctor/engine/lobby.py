"""The agent that forks sandboxes, as the engine sees it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from proctor.core.errors import FrameError, InfrastructureError
from proctor.core.image import Image
from proctor.engine import reading
from proctor.engine.link import Link, is_stopped
from proctor.engine.room import Room, RoomLate
from proctor.guest import protocol
from proctor.isolation.lobby import RoomBoundary, RoomGroup

_BY_ITSELF_S = 0.5  # for a sandbox's pid 1 to see that its socket has ended: it takes a millisecond
_CLEAR_S = 10.0  # for the kernel to end what a sandbox has left
_LOOK_S, _LOOKS = (
    1.0,
    3,
)  # a lobby that makes a room is looked at this often; stopped so many times in a row, it makes none


class Stuck(InfrastructureError):
    """The lobby makes no rooms: it is stopped, or hangs. What lives in those that it has made goes on."""


class Lobby:
    """A live lobby: ``spawn``, ``ready``, then any number of rooms; ended by ``close``."""

    def __init__(self, boundary: RoomBoundary, link: Link) -> None:
        self.boundary, self.link = boundary, link
        self.rooms: dict[int, Room] = {}
        self.groups: dict[int, RoomGroup] = {}
        self.closed = False
        self.fault: BaseException | None = None
        self.retired = False  # it makes no more rooms, and is closed after the last that it has
        self._living: set[int] = set()  # numbers of rooms that are somebody's
        self._left = asyncio.Event()  # it is retired, and has none of them
        self._number = 0
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, boundary: RoomBoundary, image: Image, number: int) -> Lobby:
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
            Stuck: this lobby makes none.
            InfrastructureError: it did not come up.
        """
        if self.closed:
            raise InfrastructureError("the agent of the sandboxes has ended")
        if self.retired:
            raise Stuck("the agent of the sandboxes makes none any more")
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
            await self._come(room)
        except Stuck:  # what there is of it goes with the lobby
            room.close()
            raise
        except BaseException:
            await self.end(room)
            raise
        self._living.add(number)
        return room

    async def _come(self, room: Room) -> None:
        """Wait until it is ready, as long as there is hope.

        A host may be too busy for a room for any length of time, but does not stop a process.
        """
        coming = asyncio.ensure_future(room.ready())
        looks = 0
        try:
            while not coming.done() and looks < _LOOKS and not self.retired:
                await asyncio.wait([coming], timeout=_LOOK_S)
                looks = looks + 1 if self.is_stopped() else 0
            if coming.done() and not isinstance(coming.exception(), RoomLate):
                coming.result()
                return
            raise Stuck("the agent of the sandboxes makes no room for one: it is stopped, or hangs")
        finally:
            coming.cancel()

    def is_stopped(self) -> bool:
        """Someone has stopped its process; False where that cannot be seen."""
        pid = self.link.agent.process.pid
        with contextlib.suppress(OSError):
            return any(is_stopped(int(word)) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return False

    def retire(self) -> None:
        """It is to make no more rooms. Whoever waits for one is told."""
        self.retired = True
        if not self._living:
            self._left.set()

    def leave(self) -> None:
        """Wait for no room of a retired lobby any more."""
        self._left.set()

    async def outlive(self) -> None:
        """Wait until a retired lobby has no more rooms, and close it."""
        await self._left.wait()
        await self.close()

    async def end(self, room: Room, last: Callable[[], None] | None = None) -> None:
        """End a room and wait until nothing of it is left; ``last`` is called when all is dead and the meters stand."""
        room.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BY_ITSELF_S):
                await asyncio.shield(room.gone)
        if not room.gone.done() and (self.retired or self.is_stopped()):
            await self._end_alone(room)
        if not room.gone.done():  # its pid 1 does not see its socket's end: it is stopped, or starved
            with contextlib.suppress(OSError):
                await self.link.stream.send_whole(protocol.pack(protocol.CANCEL, {"room": room.number}))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLEAR_S):
                    await asyncio.shield(room.gone)
        if last is not None:
            last()
        await self._clear(room.number)
        self._living.discard(room.number)
        if self.retired and not self._living:
            self._left.set()

    async def _end_alone(self, room: Room) -> None:
        """Kill what is in a room whose lobby is no help; where it has a control group, that tells when all is dead."""
        group = self.groups.get(room.number)
        deadline = asyncio.get_running_loop().time() + _CLEAR_S
        while group and group.paths and not room.gone.done() and asyncio.get_running_loop().time() < deadline:
            if not group.kill():
                self._gone(room)
            await asyncio.sleep(0.02)

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
        for room in self.rooms.values():
            self._gone(room)
        for number in list(self.groups):
            await self._clear(number)
