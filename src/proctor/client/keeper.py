"""Keeps sandboxes for a user's commands: a process in the background that holds one engine and answers over a socket.

There is one keeper in a directory (``place.py``): it holds the lock, then takes
the socket. It ends some seconds after its last sandbox, and on SIGTERM; all its
sandboxes end with it, however it ends. What a client had begun and can no
longer finish, because its connection is gone, is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.client import place as places
from proctor.client.calls import NOTED, Call, table, told
from proctor.client.wire import ANSWER, BUFFER, BYE, CALL, CANCEL, HELLO, NOTE, VERSION, pack, read_frame, version
from proctor.core.errors import FrameError, ProctorError

if TYPE_CHECKING:  # an engine takes a moment to load, and whoever comes second needs none
    from proctor.client.embedded import EmbeddedBackend

MOST_CALLS = 65_536  # of one connection at once
_LOOK_S = 0.25
_READ_S = 5.0  # in which a client takes its last answers

Undo = Callable[[], Awaitable[object]]


class Client:
    """One connection."""

    def __init__(self, keeper: Keeper, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keeper, self._reader, self._writer = keeper, reader, writer
        self.calls: dict[int, asyncio.Task[bytes]] = {}
        self._answers: dict[int, asyncio.Task[None]] = {}
        self._held: dict[tuple[Any, ...], Undo] = {}
        self._sending = asyncio.Lock()
        self._gone = False

    async def serve(self) -> None:
        """Answer until it goes."""
        loop = asyncio.get_running_loop()
        try:
            await self._send(pack(HELLO, 0, {"wire": VERSION, "version": self._keeper.version, "pid": os.getpid()}))
            while not self._keeper.ending:
                kind, number, header, body = await read_frame(self._reader)
                if kind == CANCEL:
                    if (task := self.calls.get(number)) is not None:
                        task.cancel()
                    continue
                if kind != CALL or number in self.calls or len(self.calls) >= MOST_CALLS:
                    raise FrameError(f"frame of kind {kind}, for call {number}")
                name = str(header.get("do"))
                self.calls[number] = loop.create_task(self._do(number, table().get(name), header, body))
                self._answers[number] = loop.create_task(self._answer(number, name, self.calls[number]))
        except (EOFError, OSError, FrameError):
            pass
        finally:
            await self._end()

    async def _answer(self, number: int, name: str, work: asyncio.Task[bytes]) -> None:
        """Send what came of a call; never cancelled, so that each has its answer."""
        await asyncio.wait([work])
        if work.cancelled():
            frame = pack(ANSWER, number, {"cancelled": True})
        elif (exc := work.exception()) is not None:
            if not isinstance(exc, ProctorError):
                print(f"{name[:60]!a} failed: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
            frame = pack(ANSWER, number, {"error": told(exc)})
        else:
            frame = work.result()
        with contextlib.suppress(OSError):
            await self._send(frame)
        del self.calls[number], self._answers[number]

    async def _do(self, number: int, call: Call | None, header: dict[str, Any], body: bytes) -> bytes:
        """Make the call; its answer. What has to be undone where that reaches nobody is noted."""
        if call is None:
            raise FrameError("there is no such call")
        given = call.given(header, body)
        options = dict(given)
        if call.notes:
            loop = asyncio.get_running_loop()

            def note(count: int) -> None:
                self._keeper.later(loop.create_task(self._send(pack(NOTE, number, {"number": count}))))

            options[NOTED] = note
        answer = await getattr(self._keeper.backend, call.name)(**options)
        undo = self._note(call.name, given, answer)
        if self._gone and undo is not None:
            await undo()
        return pack(ANSWER, number, *call.response(answer))

    def _note(self, name: str, given: dict[str, Any], answer: Any) -> Undo | None:
        backend, box = self._keeper.backend, str(given.get("sandbox_id"))
        undo: Undo | None = None
        if name == "create":
            return lambda: backend.delete(answer.id)
        if name == "get_or_create":
            return (lambda: backend.delete(answer[0].id)) if answer[1] else None
        if name == "start_command":
            undo = lambda: backend.kill(box, answer, 9)  # noqa: E731
            if given["reading"]:  # nobody else reads, and it would wait for a reader for ever
                self._held["process", box, answer] = undo
        elif name == "begin_write":
            self._held["write", box, answer] = undo = lambda: backend.end_write(box, answer, keep=False)
        elif name == "begin_read":
            self._held["read", box, answer[0]] = undo = lambda: backend.end_read(box, answer[0])
        elif name == "wait_command":
            self._held.pop(("process", box, given["process_id"]), None)
        elif name in ("end_write", "end_read"):
            self._held.pop((name.removeprefix("end_"), box, given["handle"]), None)
        return undo

    def abort(self) -> None:
        """Let go of a client that does not read."""
        self._writer.transport.abort()

    async def _send(self, frame: bytes) -> None:
        async with self._sending:
            self._writer.write(frame)
            await self._writer.drain()

    async def _end(self) -> None:
        """Take back what it had asked for and can no longer learn of."""
        self._gone = not self._keeper.ending
        for task in self.calls.values():
            task.cancel()
        await asyncio.gather(*self._answers.values())
        if not self._gone:  # it has an answer to all that was begun
            with contextlib.suppress(OSError):
                await self._send(pack(BYE, 0, {}))
        for undo in list(self._held.values()):
            with contextlib.suppress(ProctorError):
                await undo()
        self._held.clear()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Keeper:
    """Serves one backend, on the backend's own loop.

    Args:
        linger_s: seconds that it stays without a sandbox and without a call.
    """

    def __init__(self, backend: EmbeddedBackend, version: str, linger_s: float) -> None:
        self.backend, self.version, self._linger_s = backend, version, linger_s
        self.ending = False
        self._clients: dict[Client, asyncio.Task[None]] = {}
        self._notes: set[asyncio.Task[None]] = set()
        self._stop: asyncio.Event = asyncio.Event()

    def later(self, task: asyncio.Task[None]) -> None:
        """A note on its way; nobody minds where it does not arrive."""
        self._notes.add(task)

        def done(_: asyncio.Task[None]) -> None:
            self._notes.discard(task)
            if not task.cancelled():
                task.exception()

        task.add_done_callback(done)

    def stop(self) -> None:
        """End soon; on the backend's loop."""
        self._stop.set()

    async def serve(self, sock: socket.socket, gone: Callable[[], None]) -> None:
        """Answer until nobody needs it any more, or ``stop``. ``gone`` takes its socket away first."""
        accepting = asyncio.get_running_loop().create_task(self._accept(sock))
        try:
            await self._until_idle()
        finally:
            gone()
            self.ending = True
            accepting.cancel()
            for task in self._clients.values():
                task.cancel()
            if waiting := list(self._clients.values()):
                await asyncio.wait(waiting, timeout=_READ_S)
            for client in self._clients:
                client.abort()
            await asyncio.gather(*self._clients.values(), return_exceptions=True)

    async def _accept(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                made, _ = await loop.sock_accept(sock)
                if places.peer(made)[1] != os.geteuid():
                    made.close()
                    continue
                client = Client(self, *await asyncio.open_connection(sock=made, limit=BUFFER))
            except OSError as exc:  # too many descriptors: others will be closed
                print(f"a connection was not taken: {exc}", file=sys.stderr, flush=True)
                await asyncio.sleep(_LOOK_S)
                continue
            task = loop.create_task(client.serve())
            self._clients[client] = task
            task.add_done_callback(lambda _, client=client: self._clients.pop(client))  # type: ignore[misc]

    async def _until_idle(self) -> None:
        idle_since = time.monotonic()
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._stop.wait()
            busy = any(client.calls for client in self._clients) or await self.backend.find(
                labels={}, include_stopped=False
            )
            if busy:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= self._linger_s:
                return


def main(place: Path, linger_s: float) -> int:
    """Be the keeper of a directory; returns at once where there is one."""
    with places.opened(place, make=True) as folder:
        held = places.lock(folder)
        if held is None:
            return 0
        sock = places.listen(folder)
        from proctor.client.embedded import EmbeddedBackend

        def gone() -> None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(places.SOCKET, dir_fd=folder)
            sock.close()

        backend = EmbeddedBackend()
        keeper = Keeper(backend, version(), linger_s)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: backend.loop.call_soon_threadsafe(keeper.stop))
        try:
            asyncio.run_coroutine_threadsafe(keeper.serve(sock, gone), backend.loop).result()
        finally:
            backend.close()
        os.close(held)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
    except ProctorError as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(1)
