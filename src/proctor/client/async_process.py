"""A command that runs while its owner goes on."""

from __future__ import annotations

import signal as signals
from collections.abc import AsyncIterator

from proctor.client.door import AsyncDoor, within
from proctor.client.errors import ConflictError, NotFoundError, invalid
from proctor.client.fields import octets, seconds, spellings
from proctor.client.values import CommandResult, Gathered, Record, checked, result
from proctor.core.sandbox import CommandOutcome

_STREAMS = {1: "stdout", 2: "stderr"}


def number_of(signal: str | int) -> int:
    """A signal's number, by its number or name."""
    try:
        if isinstance(signal, str):
            name = signal.upper()
            return int(signals.Signals[name if name.startswith("SIG") else f"SIG{name}"])
        return int(signals.Signals(signal))
    except (KeyError, ValueError, TypeError):
        raise invalid("signal", signal, "give a name such as 'SIGTERM', or its number") from None


class AsyncProcess:
    """A handle on a command, from ``sandbox.spawn``. It goes on when the handle is dropped, and ends with the sandbox."""

    def __init__(self, door: AsyncDoor, sandbox_id: str, process_id: str, command: list[str]) -> None:
        self._door, self._sandbox = door, sandbox_id
        self.id, self.command = process_id, command
        self._outcome: CommandOutcome | None = None
        self._gathered = Gathered()
        self._readers, self._begun, self._over = 0, False, False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._sandbox}>"

    @property
    def exit_code(self) -> int | None:
        """Of its end, once that was seen by ``wait`` or ``refresh``."""
        return self._outcome.exit_code if self._outcome else None

    @property
    def state(self) -> str:
        """``running``, or ``exited`` once that was seen by ``wait`` or ``refresh``."""
        return "exited" if self._outcome else "running"

    async def refresh(self) -> Record:
        """Look whether it has ended."""
        for row in await self._door.call(self._door.backend.processes(self._sandbox)):
            if row["id"] == self.id:
                if row["state"] == "exited":
                    await self._end()
                return Record(row)
        raise NotFoundError(f"there is no process {self.id} any more", code="not_found", status=404)

    async def _end(self, within_s: float | None = None) -> CommandOutcome:
        if self._outcome is None:
            ended = self._door.backend.wait_command(self._sandbox, self.id)
            self._outcome = await self._door.call(within(ended, within_s))
        return self._outcome

    async def output(self) -> AsyncIterator[Record]:
        """Its output as it comes: ``type`` (``stdout`` or ``stderr``), ``data`` (text), ``bytes`` and ``offset``.

        A reader that is slow makes the program wait. Before the first reader the program never waits, and only the
        newest MiB is held.
        """
        self._readers += 1
        try:
            while not self._over:
                pieces, over = await self._door.call(self._door.backend.output(self._sandbox, self.id))
                self._begun = True
                for stream, data in pieces:
                    at = self._gathered.written[stream]
                    text = self._gathered.take(stream, data)
                    yield Record(type=_STREAMS[stream], data=text, bytes=data, offset=at)
                self._over = self._over or over
            for stream in (1, 2):
                if rest := self._gathered.rest(stream):
                    yield Record(type=_STREAMS[stream], data=rest, bytes=b"", offset=self._gathered.written[stream])
        finally:
            self._readers -= 1

    @spellings
    async def wait(self, *, check: bool = False, timeout_ms: float | None = None) -> CommandResult:
        """Wait for its end. The result has what ``output`` has given, or the first MiB of each stream without a reader.

        Args:
            check: raise CommandError unless it exits with 0.
            timeout_ms: raise TimeoutError after so long; the command goes on, as it does when this is cancelled.
        """
        if self._begun and not self._readers and timeout_ms is None:
            async for _ in self.output():  # whoever read has gone, and nobody else lets it go on
                pass
        limit = None if timeout_ms is None else seconds("timeout_ms", timeout_ms) / 1000
        outcome = await self._end(limit)
        return checked(result(self._gathered.outcome(outcome) if self._over else outcome), check)

    @spellings
    async def write(self, data: str | bytes, eof: bool = False) -> None:
        """More for its standard input, where it was spawned with ``stdin="pipe"``; ``eof`` closes it after that."""
        await self._door.call(self._door.backend.write_stdin(self._sandbox, self.id, octets("data", data), end=eof))

    async def close_stdin(self) -> None:
        """Its standard input ends."""
        try:
            await self.write(b"", eof=True)
        except ConflictError as exc:
            if exc.code not in ("stdin_closed", "process_ended"):
                raise

    @spellings
    async def kill(self, signal: str | int = "SIGTERM") -> None:
        """Send a signal to it and its group; SIGKILL ends all that came from it. Nothing happens where it has ended."""
        await self._door.call(self._door.backend.kill(self._sandbox, self.id, number_of(signal)))
