"""Sandboxes: from create to the first output of Python, commands in use, and creates from a large snapshot."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.contest import Times, contest, once
from proctor.core.sandbox import CommandSpec, SandboxSpec
from proctor.engine.sandbox import Sandbox
from proctor.engine.sandboxes import Sandboxes
from proctor.images.store import Store

# Published for a hosted product on 24 September 2026: create to the first command of Python, a command in use.
PUBLISHED_CREATE, PUBLISHED_EXEC = 0.351, 0.105
_SPEC = SandboxSpec(memory_mib=256, disk_mib=64)
_PROGRAM = b"print(6 * 7)\n"


class Boxes:
    """An engine of sandboxes and its loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(prefix="bench-")
        self.engine = self.run(self._start(Store(Path(self.folder.name))))
        self.box = self.run(self.engine.create(_SPEC))
        self.run(self.engine.files(self.box.id, "write", _PROGRAM, path="solution.py"))

    @staticmethod
    async def _start(store: Store) -> Sandboxes:
        engine = Sandboxes(store=store)
        await engine.start()
        return engine

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Wait for a coroutine of the engine."""
        return self.loop.run_until_complete(work)

    async def python(self, box: Sandbox, *argv: str) -> None:
        """A program's output, checked."""
        out = await self.engine.run_command(box.id, CommandSpec(argv=("python3", *argv)))
        if out.stdout != b"42\n":
            raise RuntimeError(f"the program gave {out}")

    async def life(self, spec: SandboxSpec, kept: list[Sandbox]) -> None:
        """A sandbox, a program in it, its output."""
        box = await self.engine.create(spec)
        kept.append(box)
        await self.engine.files(box.id, "write", _PROGRAM, path="solution.py")
        await self.python(box, "solution.py")

    def create(self, spec: SandboxSpec = _SPEC) -> list[float]:
        """Seconds from create to output; the end of the sandbox, and the spare ones made anew, are not in it."""
        kept: list[Sandbox] = []
        start = time.perf_counter()
        self.run(self.life(spec, kept))
        seconds = time.perf_counter() - start
        self.run(self.engine.delete(kept[0].id))
        self.run(self._refilled())
        return [seconds]

    async def _refilled(self) -> None:
        while self.engine.rooms.ready < self.engine.rooms.spare:
            await asyncio.sleep(0.001)

    def large(self) -> str:
        """Id of a snapshot with 500 MB in 2,000 files, as a large library has them."""
        box = self.run(self.engine.create(SandboxSpec(memory_mib=1200, disk_mib=700)))
        fill = "mkdir /opt/lib; cd /opt/lib; for i in $(seq 2000); do head -c 250000 /dev/urandom > $i.py; done"
        out = self.run(self.engine.run_command(box.id, CommandSpec(argv=("bash", "-c", fill), timeout_s=120)))
        if out.exit_code:
            raise RuntimeError(f"the snapshot's files were not written: {out}")
        made = self.run(self.engine.snapshot(box.id))
        self.run(self.engine.delete(box.id))
        return str(made.id)

    def close(self) -> None:
        """End all."""
        self.run(self.engine.close())
        self.loop.close()
        self.folder.cleanup()


def measure(seconds: float) -> dict[str, Times]:
    """Times of a create, a warm and a real command, and an unsandboxed process beside them."""
    boxes = Boxes()
    try:
        snapshot = replace(_SPEC, snapshot=boxes.large())
        return contest(
            {
                "create": boxes.create,
                "snapshot": lambda: boxes.create(snapshot),
                "warm": lambda: once(lambda: boxes.run(boxes.python(boxes.box, "solution.py"))),
                "real": lambda: once(lambda: boxes.run(boxes.python(boxes.box, "-c", "print(6 * 7)"))),
                "subprocess": lambda: once(
                    lambda: subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, check=True)
                ),
            },
            seconds,
        )
    finally:
        boxes.close()
