"""One sandbox's pid 1, as the engine sees it: requests out, checked answers in.

What comes back is hostile: a frame of the wrong kind or size, an answer that
was not asked for or a field that does not fit ends the sandbox (``FrameError``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.core.errors import FrameError, InfrastructureError
from proctor.core.sandbox import CommandOutcome, SandboxError
from proctor.engine.stream import Stream
from proctor.guest import protocol
from proctor.network.doors import Door, Names

ANSWER_S = 60.0  # a request is answered in milliseconds; a loaded host may take a thousand times that
_READY_S = 60.0
PIECE = 1 << 20  # bytes of a file in one frame
_EVENT = 1 << 16
_ANSWER = 16 << 20  # bytes of a listing at most
_AHEAD = 8 << 20  # bytes of output that its reader has not taken: a room's credit, and what its pipes held at the end
LISTENERS = ("proxy", "http", "https", "dns")  # in the order in which a room hands them over
# What a sandbox may answer in words, as codes of the interface; anything else is ``invalid_request``.
_CODES = {
    "ENOENT": ("not_found", 404), "EEXIST": ("already_exists", 409), "ENOSPC": ("disk_full", 507),
    "EACCES": ("permission_denied", 403), "EPERM": ("permission_denied", 403), "EROFS": ("permission_denied", 403),
    "ENOTDIR": ("not_a_directory", 400), "EISDIR": ("is_a_directory", 400), "ENOTEMPTY": ("not_empty", 409),
    "ELOOP": ("too_many_links", 400), "ENAMETOOLONG": ("invalid_path", 400), "no_such_process": ("process_ended", 409),
    "EAGAIN": ("too_many_processes", 409), "ENOMEM": ("out_of_memory", 507),
    "ESRCH": ("process_ended", 409), "stdin_closed": ("stdin_closed", 409),
}  # fmt: skip

OnOutput = Callable[[int, bytes], Awaitable[None] | None]  # 1 stdout or 2 stderr, and bytes


class RoomLate(InfrastructureError):
    """A room said nothing in the time in which it comes up on the busiest host."""


class Arrived:
    """Output that its reader has not taken yet, in order; neighbours of one stream are joined."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: deque[tuple[int, bytearray]] = deque()
        self._over = False
        self._news = asyncio.Event()

    def put(self, stream: int, data: bytes) -> None:
        """More of a stream; ValueError beyond what a sandbox may send ahead."""
        self.size += len(data)
        if self.size > _AHEAD:
            raise ValueError("more output than was allowed")
        if self._pieces and self._pieces[-1][0] == stream and len(self._pieces[-1][1]) < _EVENT:
            self._pieces[-1][1].extend(data)
        else:
            self._pieces.append((stream, bytearray(data)))
        self._news.set()

    def end(self) -> None:
        """Nothing more comes."""
        self._over = True
        self._news.set()

    async def get(self) -> tuple[int, bytes] | None:
        """The next piece, None at the end."""
        while not self._pieces:
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()
        stream, data = self._pieces.popleft()
        self.size -= len(data)
        return stream, bytes(data)


@dataclass(eq=False, slots=True)
class Running:
    """A command under way in a room."""

    number: int
    keep: int | None
    on_output: OnOutput | None
    done: asyncio.Future[CommandOutcome]
    arrived: Arrived = field(default_factory=lambda: Arrived())
    pump: asyncio.Task[None] | None = None
    overdue: bool = False  # ended from outside, which its room may not know


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was sent."""

    name: str
    come: asyncio.Future[tuple[dict[str, Any], bytes]]


class Room:
    """Requests to one sandbox. ``ready``, ``request``, ``start``; ended by ``close`` or by the sandbox itself."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock, self.number = sock, number
        self.stream = Stream(sock)
        self.broken: BaseException | None = None
        self.gone = asyncio.get_running_loop().create_future()  # set when its last process is dead
        self._next = 0
        self._asked: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self.commands: dict[int, Running] = {}
        self._reader: asyncio.Task[None] | None = None
        self.on_broken: Callable[[BaseException], None] | None = None
        self.doors: int | None = None  # it hands over no sockets that listen, but knocks: the kind of the one for names
        self.why: Callable[[], str] = lambda: ""  # what more is known of its end

    async def ready(self) -> None:
        """Wait until it can be opened.

        Raises:
            InfrastructureError: it did not come up.
        """
        try:
            async with asyncio.timeout(_READY_S):
                kind, header, _ = await self._frame(0)
        except TimeoutError as exc:
            raise RoomLate(f"a sandbox did not come up in {_READY_S:.0f} s") from exc
        except (EOFError, OSError) as exc:
            raise InfrastructureError("a sandbox did not come up") from exc
        if kind == protocol.FAULT:
            raise InfrastructureError(f"a sandbox did not come up: {_words(header.get('message'))}")
        if kind != protocol.READY:
            raise FrameError("a sandbox's first words are not READY")
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _frame(self, most: int) -> tuple[int, dict[str, Any], bytes]:
        kind, header, body = protocol.unpack_head(await self.stream.exactly(protocol.HEAD.size))
        if body > most:
            raise ValueError(f"{body} bytes where at most {most} are due")
        text = await self.stream.exactly(header)
        return kind, protocol.unpack_header(text), await self.stream.exactly(body)

    async def _read(self) -> None:
        try:
            while True:
                most = max([_ANSWER, *(2 * command.keep for command in self.commands.values() if command.keep)])
                self._take(*await self._frame(most))
        except (EOFError, OSError):
            self.fail(InfrastructureError(f"the sandbox ended{self.why()}"))
        except (ValueError, KeyError, TypeError, FrameError) as exc:
            self.fail(FrameError(f"the sandbox sent nonsense: {exc}"))

    def _take(self, kind: int, header: dict[str, Any], body: bytes) -> None:
        if kind == protocol.ANSWER:
            asked = self._asked.pop(_number(header, "n"))
            if not asked.done():
                asked.set_result((header, body))
        elif kind == protocol.EVENT:
            running = self.commands[_number(header, "c")]
            stream = _number(header, "stream")
            if stream not in (1, 2) or not 0 < len(body) <= _EVENT or running.keep is not None:
                raise ValueError("output that nobody asked for")
            running.arrived.put(stream, body)
        elif kind == protocol.ENDED:
            running = self.commands[_number(header, "c")]
            outcome = _outcome(header, body, running)  # where it does not fit, it is among those that are told
            del self.commands[running.number]
            running.arrived.end()
            if running.pump is None:
                _settle(running.done, outcome)
            else:
                running.pump.add_done_callback(lambda _: _settle(running.done, outcome))
        else:
            raise ValueError(f"frame of kind {kind}")

    def fail(self, exc: BaseException) -> None:
        """Nothing more comes from it: whoever waits is told."""
        if self.broken is not None:
            return
        self.broken = exc
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(stopped(exc))
                asked.exception()  # whoever waits sees it; nobody has to
        for running in self.commands.values():
            running.arrived.end()
            if not running.done.done():
                running.done.set_exception(stopped(exc))
                running.done.exception()
        self._asked.clear()
        self.commands.clear()
        if self.on_broken:
            self.on_broken(exc)

    async def request(self, name: str, body: bytes = b"", **header: Any) -> tuple[dict[str, Any], bytes]:
        """Ask and wait for the answer.

        Raises:
            SandboxError: the request cannot be met, or the sandbox has stopped.
        """
        return await self.answer(await self.ask(name, body, **header))

    async def ask(self, name: str, body: bytes = b"", *, give: Sequence[socket.socket] = (), **header: Any) -> Asked:
        """Send a request, with sockets that the room gets; its answer is waited for with ``answer``."""
        if self.broken is not None:
            raise stopped(self.broken)
        number = self._next = self._next + 1
        asked = Asked(name, asyncio.get_running_loop().create_future())
        frame = protocol.pack(protocol.REQUEST, {"n": number, "do": name, **header}, body)
        try:
            protocol.unpack_head(frame[: protocol.HEAD.size])
        except ValueError as exc:  # it would end the sandbox
            raise SandboxError(
                f"arguments and environment have at most {protocol.MAX_HEADER >> 10} KiB, data {protocol.MAX_BODY >> 20} MiB",
                code="request_too_large", status=413, hint="put them into a file",
            ) from exc  # fmt: skip
        self._asked[number] = asked.come
        try:
            await self.stream.send_whole(frame, [sock.fileno() for sock in give])
        except OSError as exc:
            self.fail(InfrastructureError(f"the sandbox ended{self.why()}"))
            raise stopped(exc) from exc
        return asked

    async def answer(self, asked: Asked, answer_s: float = ANSWER_S) -> tuple[dict[str, Any], bytes]:
        """Wait for an answer; a room that gives none for ``answer_s`` seconds is given up."""
        try:
            async with asyncio.timeout(answer_s):
                answer, content = await asked.come
        except TimeoutError as exc:
            self.fail(late := InfrastructureError(f"the sandbox did not answer {asked.name!r} for {answer_s:.0f} s"))
            raise stopped(late) from exc
        if "error" in answer:
            word = _words(answer["error"])
            code, status = _CODES.get(word, (word if word.islower() else "invalid_request", 400))
            raise SandboxError(_words(answer.get("message")), code=code, status=status)
        return answer, content

    async def listen(self) -> Mapping[str, socket.socket | Door | Names]:
        """Sockets that listen inside the sandbox, by the names in ``LISTENERS``; whoever takes them closes them."""
        if self.doors is not None:
            return await self._knocked(self.doors)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours:
            with theirs:
                await self.answer(await self.ask("listen", give=[theirs]))
            ours.setblocking(False)
            _, fds, _, _ = socket.recv_fds(ours, 1, len(LISTENERS), socket.MSG_CMSG_CLOEXEC)
        found = [socket.socket(fileno=fd) for fd in fds]
        if len(found) != len(LISTENERS):
            for sock in found:
                sock.close()
            raise SandboxError("the sandbox did not hand over its sockets", code="no_network", status=500)
        return dict(zip(LISTENERS, found, strict=True))

    async def _knocked(self, names: int) -> Mapping[str, Door | Names]:
        """What stands for such sockets where the sandbox can hand over none."""
        found: dict[str, Door | Names] = {}
        theirs: list[socket.socket] = []
        try:
            for name in LISTENERS:
                ours, other = socket.socketpair(socket.AF_UNIX, names if name == "dns" else socket.SOCK_STREAM)
                theirs.append(other)
                found[name] = Names(ours) if name == "dns" else Door(ours)
            await self.answer(await self.ask("listen", give=theirs))
        except BaseException:
            for door in found.values():
                door.close()
            raise
        finally:
            for sock in theirs:
                sock.close()
        return found

    async def unlisten(self) -> None:
        """Nothing listens inside any more: to be called once what ``listen`` gave is closed."""
        if self.doors is not None and self.broken is None:
            await self.request("unlisten")

    async def start(
        self, header: dict[str, Any], body: bytes, on_output: OnOutput | None, asked: Callable[[Running], None]
    ) -> Running:
        """Start a command; its end is ``Running.done``. ``header`` as in ``guest/room.py``.

        Args:
            asked: called before the room is asked, which may take time where its programs leave it none.
        """
        self._next += 1
        loop = asyncio.get_running_loop()
        running = Running(self._next, header["keep"], on_output, loop.create_future())
        self.commands[running.number] = running
        if running.keep is None:
            running.pump = loop.create_task(self._pump(running))
        asked(running)
        asking = loop.create_task(self.request("start", body, c=running.number, **header))
        try:
            first: list[asyncio.Future[Any]] = [asking, running.done]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the room is on it already: its end will be told, and has to be expected
            running.on_output = None
            asking.add_done_callback(lambda _: loop.create_task(self._unwanted(running, asking)))
            raise
        if not asking.done():  # it was given up meanwhile
            asking.add_done_callback(lambda _: loop.create_task(self._unwanted(running, asking)))
        elif asking.exception() is not None:
            self._not_started(running)
            asking.result()
        return running

    async def _unwanted(self, running: Running, asking: asyncio.Task[Any]) -> None:
        if asking.cancelled() or asking.exception() is not None:
            self._not_started(running)
        elif running.number in self.commands:
            with contextlib.suppress(SandboxError):
                await self.request("kill", c=running.number, signal=9)

    def _not_started(self, running: Running) -> None:
        self.commands.pop(running.number, None)
        running.arrived.end()
        running.done.cancel()

    async def _pump(self, running: Running) -> None:
        """Hand streamed output to its reader at the reader's pace, and tell the room how much was taken."""
        failed = False
        while (piece := await running.arrived.get()) is not None:
            if running.on_output is not None and not failed:
                try:
                    taken = running.on_output(*piece)
                    if taken is not None:
                        await taken
                except Exception as exc:
                    failed = True
                    if not running.done.done():
                        running.done.set_exception(exc)
                        running.done.exception()
            if self.broken is None and running.number in self.commands:
                with contextlib.suppress(SandboxError):
                    await self.request("more", c=running.number, bytes=len(piece[1]))

    def close(self) -> None:
        """End it: the kernel kills all of its processes when its pid 1 sees the end of its socket."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.fail(InfrastructureError("the sandbox was stopped"))
        if self._reader:
            self._reader.cancel()
        self.stream.drop()
        self.sock.close()


def _settle(done: asyncio.Future[CommandOutcome], outcome: CommandOutcome) -> None:
    if not done.done():
        done.set_result(outcome)


def stopped(cause: BaseException) -> SandboxError:
    """What a caller gets whose sandbox is no more."""
    error = SandboxError(f"{cause}", code="sandbox_stopped", status=409, hint="create another")
    error.__cause__ = cause
    return error


def _words(value: Any) -> str:
    return value[:2000].encode("utf-8", "replace").decode() if isinstance(value, str) else "no message"


def _number(header: dict[str, Any], name: str, high: int = 1 << 62) -> int:
    value = header[name]
    if type(value) is not int or not 0 <= value <= high:
        raise ValueError(f"{name} is no number in its range")
    return value


def _outcome(header: dict[str, Any], body: bytes, running: Running) -> CommandOutcome:
    kept, written = header["kept"], header["written"]
    if not isinstance(kept, list) or not isinstance(written, list) or len(kept) != 2 or len(written) != 2:
        raise ValueError("sizes of streams are not two pairs")
    sizes = [_number({"size": size}, "size") for size in kept + written]
    if sizes[0] + sizes[1] != len(body) or max(sizes[:2]) > (running.keep or 0):
        raise ValueError("streams are not as long as said")
    timed_out, killed = running.overdue or header["timed_out"] is True, header["killed"] is True
    code = None if header["exit"] is None else _number(header, "exit", 255)
    if code is None and not timed_out and header["signal"] is not None:
        code = -_number(header, "signal", 64)
    return CommandOutcome(
        exit_code=None if timed_out else code,
        stdout=body[: sizes[0]],
        stderr=body[sizes[0] :],
        stdout_truncated=running.keep is not None and sizes[2] > sizes[0],
        stderr_truncated=running.keep is not None and sizes[3] > sizes[1],
        timed_out=timed_out,
        out_of_memory=killed,
        duration_ms=_number(header, "wall_ns") / 1e6,
        process_id=str(running.number),
    )
