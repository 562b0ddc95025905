"""One connection to a keeper: many calls at once, each answered when it is done, or taken back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.client.calls import Call
from proctor.client.errors import ConnectionError
from proctor.client.wire import ANSWER, BUFFER, BYE, CALL, CANCEL, HELLO, NOTE, VERSION, Frame, pack, read_frame
from proctor.core.errors import FrameError, InfrastructureError

_HELLO_S = 60.0


class NotBegun(Exception):
    """The keeper ended before it had looked at the call: another one may be asked."""


@dataclass(eq=False, slots=True)
class _Asked:
    come: asyncio.Future[tuple[dict[str, Any], bytes]]
    on_note: Callable[[int], None] | None


class Connection:
    """Made with ``open``, on one event loop.

    Attributes:
        keeper: its process number.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.broken: BaseException | None = None
        self.keeper = 0
        self._asked: dict[int, _Asked] = {}
        self._next = 0
        self._sending = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, sock: socket.socket, version: str) -> Connection:
        """Greet the keeper.

        Args:
            version: of this Proctor; the keeper must be of the same.

        Raises:
            InfrastructureError: it is of another version, or does not answer. NotBegun: it was just ending.
        """
        made = cls(sock)
        made._reader, made._writer = await asyncio.open_connection(sock=sock, limit=BUFFER)
        try:
            async with asyncio.timeout(_HELLO_S):
                kind, _, header, _ = await read_frame(made._reader)
            if kind == BYE:
                raise EOFError
            if kind != HELLO or type(header.get("pid")) is not int:
                raise FrameError("whoever listens at the keeper's socket is no keeper")
            made.keeper = header["pid"]
            if (header.get("wire"), header.get("version")) != (VERSION, version):
                raise InfrastructureError(
                    f"the keeper of the sandboxes (process {made.keeper}) is of Proctor {ascii(header.get('version'))[:40]}, "
                    f"and this is {version}; end it and its sandboxes with `kill {made.keeper}`, or wait until they have ended"
                )
        except (EOFError, OSError) as exc:
            made.fail(exc)
            raise NotBegun from exc
        except TimeoutError:
            made.fail(EOFError())
            raise InfrastructureError(f"the keeper of the sandboxes did not answer for {_HELLO_S:.0f} s") from None
        except BaseException as exc:
            made.fail(exc)
            raise
        made._reading = asyncio.get_running_loop().create_task(made._read())
        return made

    async def _read(self) -> None:
        try:
            while True:
                self._take(await read_frame(self._reader))
        except (EOFError, OSError) as exc:
            self.fail(exc)
        except (FrameError, ValueError, KeyError, TypeError) as exc:
            self.fail(FrameError(f"the keeper sent nonsense: {exc}"))

    def _take(self, frame: Frame) -> None:
        kind, number, header, body = frame
        asked = self._asked.get(number)
        if kind == BYE:  # it had answered all that it had read: what is left has not begun
            self.fail(NotBegun())
        elif kind == ANSWER and asked is not None:
            del self._asked[number]
            if not asked.come.done():
                asked.come.set_result((header, body))
        elif kind == NOTE:
            if type(header.get("number")) is not int:
                raise ValueError("a note is no number")
            if asked is not None and asked.on_note is not None:
                asked.on_note(header["number"])
        else:
            raise ValueError(f"frame of kind {kind}, for call {number}")

    def fail(self, cause: BaseException) -> None:
        """Nothing more comes: whoever waits is told."""
        if self.broken is not None:
            return
        self.broken = cause
        for asked in self._asked.values():
            if not asked.come.done():
                asked.come.set_exception(NotBegun() if isinstance(cause, NotBegun) else lost(cause))
                asked.come.exception()  # whoever waits sees it; nobody has to
        self._asked.clear()
        if self._reading is not None:
            self._reading.cancel()
        self._writer.close()

    def forget(self) -> None:
        """In a forked child: the connection is the parent's, and ends with it."""
        with contextlib.suppress(OSError):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self._sock.fileno(), inheritable=False)  # the number stays taken, for objects that know it
            os.close(null)

    async def call(self, call: Call, given: Mapping[str, Any], on_note: Callable[[int], None] | None = None) -> Any:
        """Ask, and wait for the answer.

        Cancelling takes the request back and waits for its end; where it had succeeded, its answer is given all the
        same, so that the caller may undo it.

        Raises:
            SandboxError, InputError, InfrastructureError: as the backend raised them. NotBegun.
        """
        if self.broken is not None:
            raise NotBegun
        header, body = call.request(given)
        self._next += 1
        number = self._next
        frame = pack(CALL, number, header, body)
        asked = self._asked[number] = _Asked(asyncio.get_running_loop().create_future(), on_note)
        sending = asyncio.ensure_future(self._send(frame))
        cancelled = False
        while True:
            try:
                await asyncio.shield(sending)
                answer, content = await asyncio.shield(asked.come)
                break
            except asyncio.CancelledError:
                if not cancelled and self.broken is None:
                    cancelled = True
                    await _through(self._send(pack(CANCEL, number, {})))
        if answer.get("cancelled") is True:
            raise asyncio.CancelledError
        return call.answered(answer, content)

    async def _send(self, frame: bytes) -> None:
        async with self._sending:
            try:
                self._writer.write(frame)
                await self._writer.drain()
            except OSError as exc:
                self.fail(exc)

    async def close(self) -> None:
        """End the connection; what was asked over it is taken back."""
        self.fail(EOFError())
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def lost(cause: BaseException) -> Exception:
    """What a caller gets whose keeper is gone."""
    if isinstance(cause, FrameError):
        return cause
    return ConnectionError(
        "the keeper of the sandboxes has ended, and all of them with it", code="closed", hint="create others"
    )


async def _through(work: Any) -> None:
    """Do it to the end, whoever cancels; a task that is cancelled twice stays cancelled once."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
