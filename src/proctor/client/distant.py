"""The backend of a keeper: sandboxes that outlive the process that made them, over a socket of this host.

It connects when first asked, starting a keeper where there is none, and again
when the keeper has ended in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proctor.client import place as places
from proctor.client.backend import Pieces
from proctor.client.calls import table
from proctor.client.connection import Connection, NotBegun
from proctor.client.errors import ConnectionError
from proctor.client.wire import version
from proctor.core.errors import InfrastructureError
from proctor.core.sandbox import (
    CommandOutcome,
    CommandSpec,
    FileInfo,
    NetworkRules,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SnapshotInfo,
)

LINGER_S = 10.0  # seconds that a keeper stays without a sandbox
_START_S = 120.0
_PIECE = 1 << 20


class DistantBackend:
    """A keeper behind the calls of ``Backend``, on a thread and an event loop of its own.

    Args:
        place: its directory; None is this user's.
        start: start a keeper where there is none; else a call then raises ConnectionError.
        linger_s: seconds that a keeper which this one starts stays without a sandbox.
    """

    def __init__(self, place: str | Path | None = None, *, start: bool = True, linger_s: float = LINGER_S) -> None:
        self.place = Path(place).absolute() if place is not None else places.default_place()
        self._may_start, self._linger_s = start, linger_s
        self._pid, self._closed = os.getpid(), False
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proctor-distant", daemon=True)
        self._thread.start()
        _open.append(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its calls run."""
        return self._loop

    @property
    def closed(self) -> bool:
        """It answers no more, or belongs to the process that was forked."""
        return self._closed or self._pid != os.getpid()

    @property
    def keeper(self) -> int | None:
        """Process number of the keeper that it is connected with."""
        return self._connection.keeper if self._connection and self._connection.broken is None else None

    def close(self) -> None:
        """Let go of the keeper; its sandboxes go on. From any thread but its own."""
        if self.closed:
            return
        self._closed = True
        _open.remove(self)
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        for _ in range(3):
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    def forget(self) -> None:
        """In a forked child: the connection is the parent's."""
        if self._connection is not None:
            self._connection.forget()

    # ------------------------------------------------------------ the way there

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._connection is None or self._connection.broken is not None:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> Connection:
        end, pause = time.monotonic() + _START_S, 0.01
        started: subprocess.Popen[bytes] | None = None
        while True:
            sock = places.connect(self.place)
            if sock is not None:
                with contextlib.suppress(NotBegun):
                    return await Connection.open(sock, version())
            elif not self._may_start:
                raise ConnectionError("no sandboxes are kept on this host", code="closed", hint="create one")
            elif (
                started is None or started.returncode == 0
            ):  # the other one that was quicker is ending, if it is not there
                started = places.start(self.place, self._linger_s)
            elif started.returncode is not None:
                words = places.last_words()
                raise InfrastructureError(f"the keeper does not start: {words or f'status {started.returncode}'}")
            if time.monotonic() > end:
                raise InfrastructureError(f"no keeper came up in {_START_S:.0f} s; see {places.log_path()}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.2)

    async def _ask(
        self, call_name: str, /, *args: Any, on_note: Callable[[int], None] | None = None, **given: Any
    ) -> Any:
        """A call of the table, by its name; ``args`` are the first of its arguments."""
        call = table()[call_name]
        asked = {**dict(zip(call.positional, args, strict=False)), **given}
        while True:
            try:
                return await (await self._connected()).call(call, asked, on_note)
            except NotBegun:
                _still_wanted()

    # ------------------------------------------------------------ sandboxes

    async def create(
        self, spec: SandboxSpec, *, wait_s: float | None, on_wait: Callable[[int], None] | None = None,
        key: str | None = None,
    ) -> SandboxInfo:  # fmt: skip
        """See ``Backend``."""
        made: SandboxInfo = await self._ask("create", spec, wait_s=wait_s, key=key, on_note=on_wait)
        return made

    async def get_or_create(
        self, spec: SandboxSpec, *, wait_s: float | None, on_wait: Callable[[int], None] | None = None
    ) -> tuple[SandboxInfo, bool]:
        """See ``Backend``."""
        made: tuple[SandboxInfo, bool] = await self._ask("get_or_create", spec, wait_s=wait_s, on_note=on_wait)
        return made

    async def get(self, sandbox_id: str) -> SandboxInfo:
        """See ``Backend``."""
        info: SandboxInfo = await self._ask("get", sandbox_id)
        return info

    async def find(self, *, labels: Mapping[str, str], include_stopped: bool) -> list[SandboxInfo]:
        """See ``Backend``."""
        found: list[SandboxInfo] = await self._ask("find", labels=labels, include_stopped=include_stopped)
        return found

    async def stop(self, sandbox_id: str) -> SandboxInfo:
        """See ``Backend``."""
        info: SandboxInfo = await self._ask("stop", sandbox_id)
        return info

    async def delete(self, sandbox_id: str) -> None:
        """See ``Backend``."""
        await self._ask("delete", sandbox_id)

    async def extend(self, sandbox_id: str, seconds: float) -> SandboxInfo:
        """See ``Backend``."""
        info: SandboxInfo = await self._ask("extend", sandbox_id, seconds)
        return info

    async def update(
        self, sandbox_id: str, *, timeout_seconds: float | None, labels: Mapping[str, str] | None,
        max_cost_micros: int | None,
    ) -> SandboxInfo:  # fmt: skip
        """See ``Backend``."""
        info: SandboxInfo = await self._ask(
            "update", sandbox_id, timeout_seconds=timeout_seconds, labels=labels, max_cost_micros=max_cost_micros
        )
        return info

    async def limits(self) -> dict[str, Any]:
        """See ``Backend``."""
        found: dict[str, Any] = await self._ask("limits")
        return found

    # ------------------------------------------------------------ commands

    async def run_command(
        self, sandbox_id: str, spec: CommandSpec, *, key: str | None = None
    ) -> tuple[CommandOutcome, bool]:
        """See ``Backend``."""
        done: tuple[CommandOutcome, bool] = await self._ask("run_command", sandbox_id, spec, key=key)
        return done

    async def start_command(self, sandbox_id: str, spec: CommandSpec, *, reading: bool) -> str:
        """See ``Backend``. With ``reading`` it ends with this connection, since nobody else would read."""
        process: str = await self._ask("start_command", sandbox_id, spec, reading=reading)
        return process

    async def output(self, sandbox_id: str, process_id: str, *, wait: bool = True) -> tuple[Pieces, bool]:
        """See ``Backend``."""
        pieces: tuple[Pieces, bool] = await self._ask("output", sandbox_id, process_id, wait=wait)
        return pieces

    async def wait_command(self, sandbox_id: str, process_id: str) -> CommandOutcome:
        """See ``Backend``."""
        outcome: CommandOutcome = await self._ask("wait_command", sandbox_id, process_id)
        return outcome

    async def kill(self, sandbox_id: str, process_id: str, signal: int) -> None:
        """See ``Backend``."""
        await self._ask("kill", sandbox_id, process_id, signal)

    async def write_stdin(self, sandbox_id: str, process_id: str, data: bytes, *, end: bool = False) -> None:
        """See ``Backend``."""
        for at in range(0, len(data), _PIECE):
            last = end and at + _PIECE >= len(data)
            await self._ask("write_stdin", sandbox_id, process_id, data[at : at + _PIECE], end=last)
            _still_wanted()
        if not data:
            await self._ask("write_stdin", sandbox_id, process_id, b"", end=end)

    async def processes(self, sandbox_id: str) -> list[dict[str, Any]]:
        """See ``Backend``."""
        rows: list[dict[str, Any]] = await self._ask("processes", sandbox_id)
        return rows

    # ------------------------------------------------------------ files

    async def write_file(self, sandbox_id: str, path: str, data: bytes, mode: int | None) -> dict[str, Any]:
        """See ``Backend``. A large one goes in pieces."""
        if len(data) <= _PIECE:
            done: dict[str, Any] = await self._ask("write_file", sandbox_id, path, data, mode)
            return done
        handle = await self.begin_write(sandbox_id, path, mode)
        try:
            for at in range(0, len(data), _PIECE):
                _still_wanted()
                await self.write_piece(sandbox_id, handle, data[at : at + _PIECE])
            _still_wanted()
        except BaseException:
            with contextlib.suppress(SandboxError):
                await asyncio.shield(self.end_write(sandbox_id, handle, keep=False))
            raise
        await self.end_write(sandbox_id, handle, keep=True)
        return {"path": (await self.stat_file(sandbox_id, path, link=False)).path, "size": len(data)}

    async def read_file(self, sandbox_id: str, path: str, most: int) -> bytes:
        """See ``Backend``. A large one comes in pieces."""
        try:
            small: bytes = await self._ask("read_file", sandbox_id, path, min(most, _PIECE))
            return small
        except SandboxError as exc:
            if exc.code != "file_too_large" or most <= _PIECE:
                raise
        handle, _ = await self.begin_read(sandbox_id, path)
        content = bytearray()
        try:
            _still_wanted()
            while piece := await self.read_piece(sandbox_id, handle):
                _still_wanted()
                content += piece
                if len(content) > most:
                    raise SandboxError(
                        f"{path!a} has more than {most} bytes", code="file_too_large", status=413,
                        hint="download it to a file (files.download, max_bytes=)",
                    )  # fmt: skip
        finally:
            with contextlib.suppress(SandboxError):
                await asyncio.shield(self.end_read(sandbox_id, handle))
        return bytes(content)

    async def begin_write(self, sandbox_id: str, path: str, mode: int | None) -> int:
        """See ``Backend``."""
        handle: int = await self._ask("begin_write", sandbox_id, path, mode)
        return handle

    async def write_piece(self, sandbox_id: str, handle: int, data: bytes) -> None:
        """See ``Backend``."""
        await self._ask("write_piece", sandbox_id, handle, data)

    async def end_write(self, sandbox_id: str, handle: int, *, keep: bool) -> None:
        """See ``Backend``."""
        await self._ask("end_write", sandbox_id, handle, keep=keep)

    async def begin_read(self, sandbox_id: str, path: str) -> tuple[int, int]:
        """See ``Backend``."""
        opened: tuple[int, int] = await self._ask("begin_read", sandbox_id, path)
        return opened

    async def read_piece(self, sandbox_id: str, handle: int) -> bytes:
        """See ``Backend``."""
        piece: bytes = await self._ask("read_piece", sandbox_id, handle)
        return piece

    async def end_read(self, sandbox_id: str, handle: int) -> None:
        """See ``Backend``."""
        await self._ask("end_read", sandbox_id, handle)

    async def list_files(
        self, sandbox_id: str, path: str, *, depth: int, glob: str | None, hidden: bool, limit: int | None
    ) -> tuple[list[FileInfo], bool]:
        """See ``Backend``."""
        found: tuple[list[FileInfo], bool] = await self._ask(
            "list_files", sandbox_id, path, depth=depth, glob=glob, hidden=hidden, limit=limit
        )
        return found

    async def stat_file(self, sandbox_id: str, path: str, *, link: bool) -> FileInfo:
        """See ``Backend``."""
        info: FileInfo = await self._ask("stat_file", sandbox_id, path, link=link)
        return info

    async def make_directory(self, sandbox_id: str, path: str) -> None:
        """See ``Backend``."""
        await self._ask("make_directory", sandbox_id, path)

    async def remove_file(self, sandbox_id: str, path: str, *, recursive: bool) -> None:
        """See ``Backend``."""
        await self._ask("remove_file", sandbox_id, path, recursive=recursive)

    async def rename_file(self, sandbox_id: str, path: str, to: str) -> None:
        """See ``Backend``."""
        await self._ask("rename_file", sandbox_id, path, to)

    # ------------------------------------------------------------ network and snapshots

    async def network_get(self, sandbox_id: str) -> NetworkRules:
        """See ``Backend``."""
        rules: NetworkRules = await self._ask("network_get", sandbox_id)
        return rules

    async def network_set(self, sandbox_id: str, rules: NetworkRules) -> None:
        """See ``Backend``."""
        await self._ask("network_set", sandbox_id, rules)

    async def network_attempts(self, sandbox_id: str) -> list[dict[str, Any]]:
        """See ``Backend``."""
        rows: list[dict[str, Any]] = await self._ask("network_attempts", sandbox_id)
        return rows

    async def snapshot(
        self, sandbox_id: str, *, name: str | None, labels: Mapping[str, str], retention_days: float | None
    ) -> SnapshotInfo:
        """See ``Backend``."""
        made: SnapshotInfo = await self._ask(
            "snapshot", sandbox_id, name=name, labels=labels, retention_days=retention_days
        )
        return made

    async def snapshots(self) -> list[SnapshotInfo]:
        """See ``Backend``."""
        found: list[SnapshotInfo] = await self._ask("snapshots")
        return found

    async def get_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """See ``Backend``."""
        info: SnapshotInfo = await self._ask("get_snapshot", snapshot_id)
        return info

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """See ``Backend``."""
        await self._ask("delete_snapshot", snapshot_id)


def _still_wanted() -> None:
    """CancelledError where a cancellation came just when a part of the work had succeeded."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


_open: list[DistantBackend] = []


def _after_fork() -> None:
    for backend in _open:
        backend.forget()


os.register_at_fork(after_in_child=_after_fork)
