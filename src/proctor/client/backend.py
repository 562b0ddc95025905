"""What the SDK needs of whoever holds the sandboxes: this process's engine, or a server.

All calls run on the backend's own event loop; ``door.py`` carries them there.
They raise ``SandboxError`` for what cannot be met and ``InfrastructureError``
for a failure of the host. Output is pulled, not pushed: a reader that is slow
holds up the program that writes, and callbacks run where the caller lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from proctor.core.sandbox import (
    CommandOutcome,
    CommandSpec,
    FileInfo,
    NetworkRules,
    SandboxInfo,
    SandboxSpec,
    SnapshotInfo,
)

Pieces = list[tuple[int, bytes]]  # 1 stdout or 2 stderr, and bytes, in the order in which they came


class Backend(Protocol):
    """Sandboxes behind a door."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its calls run."""

    @property
    def closed(self) -> bool:
        """It answers no more, or belongs to the process that was forked."""

    # ------------------------------------------------------------ sandboxes

    async def create(
        self, spec: SandboxSpec, *, wait_s: float | None, on_wait: Callable[[int], None] | None = None,
        key: str | None = None,
    ) -> SandboxInfo:  # fmt: skip
        """Make one; ``on_wait`` is called on this loop. The same ``key`` gives the same sandbox for 24 hours."""

    async def get_or_create(
        self, spec: SandboxSpec, *, wait_s: float | None, on_wait: Callable[[int], None] | None = None
    ) -> tuple[SandboxInfo, bool]:
        """The running one of ``spec.name``, or a new one; True where it was made."""

    async def get(self, sandbox_id: str) -> SandboxInfo: ...

    async def find(self, *, labels: Mapping[str, str], include_stopped: bool) -> list[SandboxInfo]: ...

    async def stop(self, sandbox_id: str) -> SandboxInfo: ...

    async def delete(self, sandbox_id: str) -> None: ...

    async def extend(self, sandbox_id: str, seconds: float) -> SandboxInfo: ...

    async def update(
        self, sandbox_id: str, *, timeout_seconds: float | None, labels: Mapping[str, str] | None,
        max_cost_micros: int | None,
    ) -> SandboxInfo: ...  # fmt: skip

    async def limits(self) -> dict[str, Any]: ...

    # ------------------------------------------------------------ commands

    async def run_command(
        self, sandbox_id: str, spec: CommandSpec, *, key: str | None = None
    ) -> tuple[CommandOutcome, bool]:
        """Run to its end; cancelling kills it. True where this is an earlier answer to the same ``key``."""

    async def start_command(self, sandbox_id: str, spec: CommandSpec, *, reading: bool) -> str:
        """Start one whose output is streamed (``keep`` None); gives its id.

        ``reading``: all output waits for its reader. Otherwise that begins with the first ``output``; until then
        only the newest is held.
        """

    async def output(self, sandbox_id: str, process_id: str, *, wait: bool = True) -> tuple[Pieces, bool]:
        """What has come since the last call, at least one piece with ``wait``; True when nothing more will come."""

    async def wait_command(self, sandbox_id: str, process_id: str) -> CommandOutcome:
        """Wait for its end. The outcome has the first MiB of each stream. Cancelling does not end the command."""

    async def kill(self, sandbox_id: str, process_id: str, signal: int) -> None: ...

    async def write_stdin(self, sandbox_id: str, process_id: str, data: bytes, *, end: bool = False) -> None: ...

    async def processes(self, sandbox_id: str) -> list[dict[str, Any]]: ...

    # ------------------------------------------------------------ files

    async def write_file(self, sandbox_id: str, path: str, data: bytes, mode: int | None) -> dict[str, Any]: ...

    async def read_file(self, sandbox_id: str, path: str, most: int) -> bytes:
        """All of a file; ``file_too_large`` where it has more than ``most`` bytes."""

    async def begin_write(self, sandbox_id: str, path: str, mode: int | None) -> int: ...

    async def write_piece(self, sandbox_id: str, handle: int, data: bytes) -> None: ...

    async def end_write(self, sandbox_id: str, handle: int, *, keep: bool) -> None: ...

    async def begin_read(self, sandbox_id: str, path: str) -> tuple[int, int]:
        """Handle and permission bits."""

    async def read_piece(self, sandbox_id: str, handle: int) -> bytes: ...

    async def end_read(self, sandbox_id: str, handle: int) -> None: ...

    async def list_files(
        self, sandbox_id: str, path: str, *, depth: int, glob: str | None, hidden: bool, limit: int | None
    ) -> tuple[list[FileInfo], bool]:
        """What is in a directory; True where there is more."""

    async def stat_file(self, sandbox_id: str, path: str, *, link: bool) -> FileInfo: ...

    async def make_directory(self, sandbox_id: str, path: str) -> None: ...

    async def remove_file(self, sandbox_id: str, path: str, *, recursive: bool) -> None: ...

    async def rename_file(self, sandbox_id: str, path: str, to: str) -> None: ...

    # ------------------------------------------------------------ network and snapshots

    async def network_get(self, sandbox_id: str) -> NetworkRules: ...

    async def network_set(self, sandbox_id: str, rules: NetworkRules) -> None: ...

    async def network_attempts(self, sandbox_id: str) -> list[dict[str, Any]]: ...

    async def snapshot(
        self, sandbox_id: str, *, name: str | None, labels: Mapping[str, str], retention_days: float | None
    ) -> SnapshotInfo: ...

    async def snapshots(self) -> list[SnapshotInfo]: ...

    async def get_snapshot(self, snapshot_id: str) -> SnapshotInfo: ...

    async def delete_snapshot(self, snapshot_id: str) -> None: ...
