"""Sandboxes for tests: an engine on a loop of its own, and short ways to use it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from proctor.core.sandbox import CommandOutcome, CommandSpec, SandboxSpec
from proctor.engine.sandbox import Sandbox
from proctor.engine.sandboxes import Sandboxes

T = TypeVar("T")
SMALL: dict[str, Any] = {"memory_mib": 128, "disk_mib": 32}


class Boxes:
    """An engine and its loop; ``run`` waits for one of its coroutines."""

    def __init__(self, *, isolation: str = "auto", **options: Any) -> None:
        self.isolation = isolation
        self.loop = asyncio.new_event_loop()
        self.engine = self.run(self._make(options))

    @staticmethod
    async def _make(options: dict[str, Any]) -> Sandboxes:
        engine = Sandboxes(**options)
        await engine.start()
        return engine

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def new(self, **fields: Any) -> Sandbox:
        return self.run(self.engine.create(SandboxSpec(**{**SMALL, "isolation": self.isolation, **fields})))

    def sh(self, box: Sandbox, text: str, **options: Any) -> CommandOutcome:
        """A shell's command."""
        return self.command(box, "bash", "-c", text, **options)

    def command(self, box: Sandbox, *argv: str, **options: Any) -> CommandOutcome:
        return self.run(self.engine.run_command(box.id, CommandSpec(argv=argv, **options)))

    def python(self, box: Sandbox, source: str, *argv: str, name: str = "program.py", **options: Any) -> CommandOutcome:
        """A program from a file, in the warm interpreter where that is the same."""
        self.file(box, "write", source.encode(), path=name)
        return self.command(box, "python3", name, *argv, **options)

    def file(self, box: Sandbox, name: str, body: bytes = b"", **header: Any) -> tuple[dict[str, Any], bytes]:
        return self.run(self.engine.files(box.id, name, body, **header))

    def read(self, box: Sandbox, path: str) -> bytes:
        handle = self.file(box, "open", path=path)[0]["handle"]
        parts = []
        while part := self.file(box, "pull", handle=handle)[1]:
            parts.append(part)
        self.file(box, "close", handle=handle)
        return b"".join(parts)

    def close(self) -> None:
        self.run(self.engine.close())
        self.loop.close()
