"""A sandbox in its owner's hands."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from proctor.client.async_files import AsyncFiles
from proctor.client.async_process import AsyncProcess
from proctor.client.door import AsyncDoor
from proctor.client.errors import NotFoundError, RuntimeError, invalid, unsupported
from proctor.client.far import killing
from proctor.client.fields import (
    NEVER_S,
    command_spec,
    renamed,
    rules,
    seconds,
    spellings,
    text,
    whole,
)
from proctor.client.fields import (
    labels as checked_labels,
)
from proctor.client.fields import (
    name as checked_name,
)
from proctor.client.values import CommandResult, Gathered, Record, checked, result, sandbox_record, snapshot_record
from proctor.core.sandbox import CommandOutcome, NetworkRules, SandboxInfo, SnapshotInfo
from proctor.meter.limits import MOST_MICROS

OnText = Callable[[str], Awaitable[object] | object]


class AsyncSnapshot:
    """A sandbox's files, kept: ``snapshot.id`` and ``snapshot["id"]`` are what ``create(snapshot=)`` takes."""

    def __init__(self, door: AsyncDoor, info: SnapshotInfo) -> None:
        self._door, self._info = door, info

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(snapshot_record(self._info), name)

    def __getitem__(self, name: str) -> Any:
        return snapshot_record(self._info)[name]

    def __repr__(self) -> str:
        named = f" {self._info.name!a}" if self._info.name else ""
        return f"<{type(self).__name__} {self._info.id}{named}>"

    @property
    def id(self) -> str:
        """Its id."""
        return self._info.id

    async def delete(self) -> None:
        """Remove it; sandboxes that were made from it go on."""
        await self._door.call(self._door.backend.delete_snapshot(self.id))


class AsyncNetwork:
    """``sandbox.network``: what it may reach; changed while it runs."""

    def __init__(self, door: AsyncDoor, sandbox_id: str) -> None:
        self._door, self._id = door, sandbox_id

    async def get(self) -> Record:
        """``internet``, ``allow`` and ``deny``."""
        found = await self._door.call(self._door.backend.network_get(self._id))
        return Record(internet=found.internet, allow=list(found.allow), deny=list(found.deny))

    async def set(self, network: Mapping[str, Any] | None = None, /, **fields: Any) -> Record:
        """Replace the rules, by a dict or by keywords.

        Args:
            internet: False: nothing can be reached.
            allow: host names, ``*.suffix``, addresses, CIDR networks; empty: everything but private addresses.
            deny: of that, what cannot.
        """
        if network is not None and fields:
            raise TypeError("set() takes a dict or keywords, not both")
        if network is None and not fields:
            raise TypeError("set() takes internet=, and with it allow= and deny=")
        return await self._put(rules(network if network is not None else fields))

    async def on(self) -> Record:
        """Open it for what the rules allow."""
        found = await self._door.call(self._door.backend.network_get(self._id))
        return await self._put(NetworkRules(True, found.allow, found.deny))

    async def off(self) -> Record:
        """Close it; the lists stay for ``on``."""
        found = await self._door.call(self._door.backend.network_get(self._id))
        return await self._put(NetworkRules(False, found.allow, found.deny))

    async def attempts(self) -> list[dict[str, Any]]:
        """What its programs have tried to reach, and whether they could."""
        return await self._door.call(self._door.backend.network_attempts(self._id))

    async def _put(self, wanted: NetworkRules) -> Record:
        await self._door.call(self._door.backend.network_set(self._id, wanted))
        return await self.get()


class AsyncSandbox:
    """A sandbox. ``async with`` deletes it at the end of its block, however that ends (``keep`` stops it instead)."""

    def __init__(self, door: AsyncDoor, info: SandboxInfo, *, keep: bool = False) -> None:
        self._door, self._info, self._keep = door, info, keep
        self.files = AsyncFiles(door, info.id, info.spec.disk_mib)
        self.network = AsyncNetwork(door, info.id)

    # ------------------------------------------------------------ what it is

    @property
    def id(self) -> str:
        """Its id, for ``sandboxes.get``."""
        return self._info.id

    @property
    def state(self) -> str:
        """``running`` or ``stopped``, when it was last looked at."""
        return self._info.state.value

    @property
    def name(self) -> str | None:
        """Its name."""
        return self._info.spec.name

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return dict(self._info.spec.labels)

    @property
    def info(self) -> Record:
        """All of its record, when it was last looked at; ``refresh`` looks again."""
        return sandbox_record(self._info)

    def __getitem__(self, name: str) -> Any:
        return self.info[name]

    def __repr__(self) -> str:
        named = f" {self.name!a}" if self.name else ""
        return f"<{type(self).__name__} {self.id}{named} {self.state}>"

    async def refresh(self) -> AsyncSandbox:
        """Look at it again."""
        self._info = await self._door.call(self._door.backend.get(self.id))
        return self

    # ------------------------------------------------------------ commands

    @spellings
    async def exec(
        self, command: str | Sequence[str], *, cwd: str | None = None, user: str | None = None,
        env: Mapping[str, str] | None = None, stdin: str | bytes | None = None, timeout_ms: float | None = None,
        on_stdout: OnText | None = None, on_stderr: OnText | None = None, check: bool = False,
        idempotency_key: str | None = None,
    ) -> CommandResult:  # fmt: skip
        """Run a command to its end. Being cancelled kills it.

        Args:
            command: text runs under ``bash -c``; a list is a program and its arguments, without a shell.
            cwd: directory, /workspace unless given.
            user: ``sandbox`` or ``root``.
            env: variables beyond the sandbox's own.
            stdin: all of its standard input.
            timeout_ms: milliseconds until it is killed, 60,000 unless given. That is a result, not an error.
            on_stdout, on_stderr: get its output, as text, while it runs; the program waits for them.
            check: raise CommandError unless it exits with 0.
            idempotency_key: the same key gives the same result for 24 hours, and runs nothing again.

        Of each stream the result has 64 KiB, 1 MiB where the time limit is over 60 s, and 64 MiB with a callback.
        """
        streamed = on_stdout is not None or on_stderr is not None
        spec = command_spec(command, cwd=cwd, user=user, env=env, stdin=stdin, timeout_ms=timeout_ms, streamed=streamed)
        if not streamed:
            key = None if idempotency_key is None else text("idempotency_key", idempotency_key)
            outcome, again = await self._door.call(self._door.backend.run_command(self.id, spec, key=key))
            return checked(result(outcome, replayed=again), check)
        if idempotency_key is not None:
            raise unsupported("idempotency_key with a callback", "leave out one of them")
        calls = {"stdout": on_stdout, "stderr": on_stderr}
        gathered, ended = Gathered(), CommandOutcome(exit_code=None)
        async for kind, data, end in self._stream(command, cwd, user, env, stdin, timeout_ms):
            if end is not None:
                ended = end
            for stream, call in ((1, calls["stdout"]), (2, calls["stderr"])):
                said = ""
                if end is not None:
                    said = gathered.rest(stream)
                elif kind == stream:
                    said = gathered.take(stream, data)
                if said and call is not None:
                    await self._door.settle(call(said))
        return checked(result(gathered.outcome(ended)), check)

    async def _stream(
        self, command: object, cwd: object, user: object, env: object, stdin: object, timeout_ms: object
    ) -> AsyncIterator[tuple[int, bytes, CommandOutcome | None]]:
        """Stream and piece, first (0, id); at last (0, nothing, how it ended). Leaving early kills the command."""
        spec = command_spec(command, cwd=cwd, user=user, env=env, stdin=stdin, timeout_ms=timeout_ms, streamed=True)
        backend, done, process = self._door.backend, False, ""

        try:
            process = await self._door.call(
                backend.start_command(self.id, spec, reading=True), killing(backend, self.id)
            )
            yield 0, process.encode(), None
            over = False
            while not over:
                pieces, over = await self._door.call(backend.output(self.id, process))
                for stream, data in pieces:
                    yield stream, data, None
            ended = await self._door.call(backend.wait_command(self.id, process))
            done = True
            yield 0, b"", ended
        finally:
            if process and not done:
                with contextlib.suppress(RuntimeError):
                    await self._door.call(backend.kill(self.id, process, 9))

    @spellings
    async def exec_stream(
        self, command: str | Sequence[str], *, cwd: str | None = None, user: str | None = None,
        env: Mapping[str, str] | None = None, stdin: str | bytes | None = None, timeout_ms: float | None = None,
    ) -> AsyncIterator[Record]:  # fmt: skip
        """Run a command and give what happens: ``start``, then ``stdout`` and ``stderr`` as they come, then ``exit``.

        Each has a ``type``; output has ``data`` (text), ``bytes`` and ``offset``; ``exit`` has ``exitCode``,
        ``state``, ``timedOut`` and ``outOfMemory``. Leaving the loop early kills the command.
        """
        gathered = Gathered()
        async for stream, data, end in self._stream(command, cwd, user, env, stdin, timeout_ms):
            if stream:
                offset = gathered.written[stream]
                said = gathered.take(stream, data)
                yield Record(type=("stdout", "stderr")[stream - 1], data=said, bytes=data, offset=offset)
            elif end is None:
                yield Record(type="start", processId=data.decode())
            else:
                for number, kind in ((1, "stdout"), (2, "stderr")):
                    if rest := gathered.rest(number):
                        yield Record(type=kind, data=rest, bytes=b"", offset=gathered.written[number])
                yield Record(
                    type="exit", exitCode=end.exit_code, state="exited", timedOut=end.timed_out,
                    outOfMemory=end.out_of_memory, durationMs=end.duration_ms,
                )  # fmt: skip

    @spellings
    async def spawn(
        self, command: str | Sequence[str], *, cwd: str | None = None, user: str | None = None,
        env: Mapping[str, str] | None = None, stdin: str | None = None, input: str | bytes | None = None,
        pty: Any = None, timeout_ms: float | None = None,
    ) -> AsyncProcess:  # fmt: skip
        """Start a command and go on. It has no time limit unless one is given, and ends with the sandbox.

        Args:
            stdin: ``"pipe"`` for a standard input that ``process.write`` writes to.
            input: all of its standard input.
        """
        if pty is not None:
            raise unsupported("pty", "use stdin='pipe'")
        if stdin not in (None, "pipe"):
            raise invalid("stdin", stdin, "give 'pipe', or all of it as input=")
        if stdin == "pipe" and input is not None:
            raise TypeError("spawn() got stdin='pipe' and input=; give one")
        spec = command_spec(
            command, cwd=cwd, user=user, env=env, stdin=input, stdin_open=stdin == "pipe", timeout_ms=timeout_ms,
            streamed=True, limit=False,
        )  # fmt: skip
        backend = self._door.backend

        process = await self._door.call(backend.start_command(self.id, spec, reading=False), killing(backend, self.id))
        return AsyncProcess(self._door, self.id, process, list(spec.argv))

    async def processes(self) -> list[Record]:
        """What was spawned or streamed: ``id``, ``command``, ``state`` and ``exitCode``."""
        return [Record(row) for row in await self._door.call(self._door.backend.processes(self.id))]

    async def process(self, process_id: str) -> AsyncProcess:
        """A handle on one of them."""
        for row in await self.processes():
            if row["id"] == process_id:
                return AsyncProcess(self._door, self.id, process_id, row["command"])
        raise NotFoundError(f"there is no process {process_id!a}", code="not_found", status=404)

    # ------------------------------------------------------------ life

    @spellings
    async def stop(self, wait: bool = True) -> AsyncSandbox:
        """End its processes and let go of its files; its record stays. Returns when nothing of it is left."""
        self._info = await self._door.call(self._door.backend.stop(self.id))
        return self

    async def delete(self) -> Record:
        """Stop it and forget its record; nothing happens where that was done before."""
        with contextlib.suppress(NotFoundError):
            await self._door.call(self._door.backend.delete(self.id))
        return Record(id=self.id, state="deleted")

    @spellings
    async def extend(self, seconds: float) -> AsyncSandbox:
        """Let its lease end so many seconds later."""
        self._info = await self._door.call(self._door.backend.extend(self.id, _length(seconds)))
        return self

    async def update(self, **settings: Any) -> AsyncSandbox:
        """Change ``timeout_seconds`` (from now on), ``labels`` or ``max_cost_micros``."""
        given = renamed(settings, ("timeout_seconds", "labels", "max_cost_micros"), "update")
        lease, cost, marks = given.get("timeout_seconds"), given.get("max_cost_micros"), given.get("labels")
        if lease is not None:
            lease = seconds("timeout_seconds", lease, least=0.1)
        if cost is not None:
            cost = whole("max_cost_micros", cost, least=1, most=MOST_MICROS)
        if marks is not None:
            marks = checked_labels(marks)
        self._info = await self._door.call(
            self._door.backend.update(self.id, timeout_seconds=lease, labels=marks, max_cost_micros=cost)
        )
        return self

    @spellings
    async def snapshot(
        self, *, name: str | None = None, labels: Mapping[str, str] | None = None, retention_days: float | None = None,
        mode: str = "disk",
    ) -> AsyncSnapshot:  # fmt: skip
        """Keep its files as they are, as something to create others from. Its processes are not kept.

        Args:
            retention_days: days until it is removed; None keeps it.
            mode: ``disk``; there is no ``memory`` here.
        """
        if mode != "disk":
            raise unsupported(f"mode={mode!a}", "a snapshot here has files, no processes: take 'disk'")
        days = None if retention_days is None else seconds("retention_days", retention_days, most=36_500)
        made = await self._door.call(
            self._door.backend.snapshot(
                self.id, name=None if name is None else checked_name("name", name), labels=checked_labels(labels),
                retention_days=days,
            )
        )  # fmt: skip
        return AsyncSnapshot(self._door, made)

    async def pause(self) -> None:
        """Not supported: raises."""
        raise unsupported("pause", "a sandbox here runs until it is stopped; take a snapshot to go on from later")

    async def wake(self) -> None:
        """Not supported: raises."""
        raise unsupported("wake", "create another from a snapshot")

    async def fork(self, count: int | None = None, **options: Any) -> None:
        """Not supported: raises."""
        raise unsupported("fork", "take a snapshot and create from it as often as needed")

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._door.backend.closed:  # all of them have ended; or this is a fork, and it is the parent's
            return
        try:
            if self._keep:
                await self.stop()
            else:
                await self.delete()
        except NotFoundError:
            pass


def _length(value: object) -> float:
    return seconds("seconds", value, least=0.001, most=NEVER_S)
