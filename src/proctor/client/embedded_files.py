"""Commands and files of the embedded backend. What a sandbox answers is checked before anyone believes it."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

from proctor.client.backend import Pieces
from proctor.client.once import Once
from proctor.client.output import Output
from proctor.core.errors import FrameError
from proctor.core.sandbox import CommandOutcome, CommandSpec, FileInfo, SandboxError, State
from proctor.engine.room import PIECE, Running
from proctor.engine.sandboxes import Sandboxes
from proctor.guest import protocol

_KINDS = ("file", "directory", "symlink", "other")
_MOST_PATH = 1 << 16
_KEPT = 256  # processes of a sandbox that have ended and whose outcome may still be asked for


@dataclass(eq=False, slots=True)
class _Process:
    running: Running
    output: Output
    argv: tuple[str, ...]
    kills: int


class EmbeddedFiles(ABC):
    """The half of ``EmbeddedBackend`` that works inside a sandbox."""

    _once: Once

    def __init__(self) -> None:
        self._engine: Sandboxes | None = None
        self._processes: dict[str, OrderedDict[str, _Process]] = {}

    @property
    @abstractmethod
    def engine(self) -> Sandboxes:
        """The engine."""

    # ------------------------------------------------------------ commands

    async def run_command(
        self, sandbox_id: str, spec: CommandSpec, *, key: str | None = None
    ) -> tuple[CommandOutcome, bool]:
        """See ``Backend``."""

        def run() -> Coroutine[Any, Any, CommandOutcome]:
            return self.engine.run_command(sandbox_id, spec)

        return await self._once.run(key and f"exec:{sandbox_id}:{key}", spec, run)

    async def start_command(self, sandbox_id: str, spec: CommandSpec, *, reading: bool) -> str:
        """See ``Backend``."""
        output = Output(reading=reading)
        kills = self.engine.get(sandbox_id).kills()
        running = await self.engine.start_command(sandbox_id, replace(spec, keep=None), output.take)
        running.done.add_done_callback(lambda _: output.end())
        process_id = str(running.number)
        own = self._processes.setdefault(sandbox_id, OrderedDict())
        own[process_id] = _Process(running, output, spec.argv, kills)
        for old in [name for name, process in own.items() if process.output.ended][:-_KEPT]:
            del own[old]
        return process_id

    def _process(self, sandbox_id: str, process_id: str) -> _Process:
        try:
            return self._processes[sandbox_id][process_id]
        except KeyError:
            self.engine.get(sandbox_id).live()
            raise SandboxError(
                f"there is no process {process_id!a} in sandbox {sandbox_id}", code="not_found", status=404
            ) from None

    async def output(self, sandbox_id: str, process_id: str, *, wait: bool = True) -> tuple[Pieces, bool]:
        """See ``Backend``."""
        return await self._process(sandbox_id, process_id).output.pull(wait)

    async def wait_command(self, sandbox_id: str, process_id: str) -> CommandOutcome:
        """See ``Backend``."""
        process = self._process(sandbox_id, process_id)
        outcome = await asyncio.shield(process.running.done)
        box = self.engine.get(sandbox_id)
        output = process.output
        return self.engine.judged(
            box,
            replace(
                outcome, stdout=bytes(output.kept[1]), stderr=bytes(output.kept[2]),
                stdout_truncated=output.written[1] > len(output.kept[1]),
                stderr_truncated=output.written[2] > len(output.kept[2]),
            ),
            process.kills,
        )  # fmt: skip

    async def kill(self, sandbox_id: str, process_id: str, signal: int) -> None:
        """See ``Backend``."""
        process = self._process(sandbox_id, process_id)
        if signal == 9:
            process.output.drop()
        if not process.running.done.done():
            try:
                await self.engine.kill(sandbox_id, process.running.number, signal)
            except SandboxError as exc:
                if exc.code != "process_ended":
                    raise

    async def write_stdin(self, sandbox_id: str, process_id: str, data: bytes, *, end: bool = False) -> None:
        """See ``Backend``."""
        number = self._process(sandbox_id, process_id).running.number
        for start in range(0, len(data), PIECE):
            last = end and start + PIECE >= len(data)
            await self.engine.write_stdin(sandbox_id, number, data[start : start + PIECE], end=last)
        if not data:
            await self.engine.write_stdin(sandbox_id, number, b"", end=end)

    async def processes(self, sandbox_id: str) -> list[dict[str, Any]]:
        """See ``Backend``."""
        self.engine.get(sandbox_id)
        rows = []
        for process_id, process in self._processes.get(sandbox_id, {}).items():
            done = process.running.done
            ended = done.done() and not done.cancelled() and done.exception() is None
            rows.append({
                "id": process_id, "command": list(process.argv), "state": "exited" if done.done() else "running",
                "exitCode": done.result().exit_code if ended else None,
            })  # fmt: skip
        return rows

    def _let_go(self, sandbox_id: str) -> None:
        for process in self._processes.pop(sandbox_id, {}).values():
            process.output.end()

    def _prune(self) -> None:
        """Forget the processes of sandboxes that ended by themselves."""
        for sandbox_id in list(self._processes):
            try:
                live = self.engine.get(sandbox_id).state is State.RUNNING
            except SandboxError:
                live = False
            if not live and len(self._processes) > _KEPT:
                self._let_go(sandbox_id)

    # ------------------------------------------------------------ files

    async def _files(self, sandbox_id: str, name: str, body: bytes = b"", **header: Any) -> dict[str, Any]:
        return (await self.engine.files(sandbox_id, name, body, **header))[0]

    async def _open(self, sandbox_id: str, name: str, end: str, **header: Any) -> dict[str, Any]:
        """An answer with a handle; whoever is cancelled meanwhile leaves none open."""
        asking = asyncio.ensure_future(self._files(sandbox_id, name, **header))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxError):
                await self._files(sandbox_id, end, handle=_count((await asking).get("handle")))
            raise

    async def write_file(self, sandbox_id: str, path: str, data: bytes, mode: int | None) -> dict[str, Any]:
        """See ``Backend``."""
        if len(data) <= PIECE:
            answer = await self._files(sandbox_id, "write", data, path=path, mode=mode)
            return {"path": _text(answer.get("path")), "size": len(data)}
        answer = await self._open(sandbox_id, "create", "abort", path=path, mode=mode)
        handle = _count(answer.get("handle"))
        try:
            for start in range(0, len(data), PIECE):
                await self.write_piece(sandbox_id, handle, data[start : start + PIECE])
        except BaseException:
            with contextlib.suppress(SandboxError):
                await asyncio.shield(self.end_write(sandbox_id, handle, keep=False))
            raise
        await self.end_write(sandbox_id, handle, keep=True)
        return {"path": _text(answer.get("path")), "size": len(data)}

    async def read_file(self, sandbox_id: str, path: str, most: int) -> bytes:
        """See ``Backend``."""
        opened = await self._open(sandbox_id, "open", "close", path=path)
        handle = _count(opened.get("handle"))
        content = bytearray()
        try:
            while piece := await self.read_piece(sandbox_id, handle):
                content += piece
                if len(content) > most or _count(opened.get("size")) > most:
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
        return _count((await self._open(sandbox_id, "create", "abort", path=path, mode=mode)).get("handle"))

    async def write_piece(self, sandbox_id: str, handle: int, data: bytes) -> None:
        """See ``Backend``."""
        await self._files(sandbox_id, "push", data, handle=handle)

    async def end_write(self, sandbox_id: str, handle: int, *, keep: bool) -> None:
        """See ``Backend``."""
        await self._files(sandbox_id, "close" if keep else "abort", handle=handle)

    async def begin_read(self, sandbox_id: str, path: str) -> tuple[int, int]:
        """See ``Backend``."""
        answer = await self._open(sandbox_id, "open", "close", path=path)
        return _count(answer.get("handle")), _count(answer.get("mode"))

    async def read_piece(self, sandbox_id: str, handle: int) -> bytes:
        """See ``Backend``."""
        return (await self.engine.files(sandbox_id, "pull", handle=handle))[1]

    async def end_read(self, sandbox_id: str, handle: int) -> None:
        """See ``Backend``."""
        await self._files(sandbox_id, "close", handle=handle)

    async def list_files(
        self, sandbox_id: str, path: str, *, depth: int, glob: str | None, hidden: bool, limit: int | None
    ) -> tuple[list[FileInfo], bool]:
        """See ``Backend``."""
        answer, body = await self.engine.files(
            sandbox_id, "list", path=path, depth=depth, glob=glob, hidden=hidden, limit=limit
        )
        try:
            rows = protocol.unpack_rows(body)
        except ValueError as exc:
            raise FrameError("a sandbox listed no list") from exc
        return [_file(row) for row in rows], answer.get("more") is True

    async def stat_file(self, sandbox_id: str, path: str, *, link: bool) -> FileInfo:
        """See ``Backend``."""
        return _file((await self._files(sandbox_id, "stat", path=path, link=link)).get("info"))

    async def make_directory(self, sandbox_id: str, path: str) -> None:
        """See ``Backend``."""
        await self._files(sandbox_id, "mkdir", path=path)

    async def remove_file(self, sandbox_id: str, path: str, *, recursive: bool) -> None:
        """See ``Backend``."""
        await self._files(sandbox_id, "remove", path=path, recursive=recursive)

    async def rename_file(self, sandbox_id: str, path: str, to: str) -> None:
        """See ``Backend``."""
        await self._files(sandbox_id, "rename", path=path, to=to)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise FrameError("a sandbox answered with no number where one is due")
    return value


def _text(value: Any) -> str:
    """A path, or a link's target."""
    if type(value) is not str or len(value) > _MOST_PATH:
        raise FrameError("a sandbox answered with no text where text is due")
    return value


def _file(row: Any) -> FileInfo:
    """A row of a listing, checked."""
    if not isinstance(row, dict) or row.get("kind") not in _KINDS:
        raise FrameError("a sandbox described no file")
    modified = row.get("mtime_ns")
    if type(modified) is not int or abs(modified) >= 1 << 80:
        raise FrameError("a sandbox described no file")
    return FileInfo(
        path=_text(row.get("path")), kind=row["kind"], size=_count(row.get("size")), mode=_count(row.get("mode")),
        modified_at=modified / 1e9, target=_text(row["target"]) if "target" in row else None,
    )  # fmt: skip
