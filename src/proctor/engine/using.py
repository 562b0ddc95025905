"""What is done with a sandbox while it runs: commands and files."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

from proctor.core.sandbox import CommandOutcome, CommandSpec, SandboxError
from proctor.engine.outside import Outside
from proctor.engine.room import OnOutput, Running
from proctor.engine.rooms import Rooms
from proctor.engine.sandbox import Sandbox
from proctor.images.sandbox import Ground


class Use:
    """The half of ``Sandboxes`` that speaks with rooms."""

    outside: Outside
    ground: Ground
    rooms: Rooms

    def get(self, sandbox_id: str) -> Sandbox:
        """By its id; SandboxError ``not_found`` (404)."""
        raise NotImplementedError

    async def start_command(self, sandbox_id: str, spec: CommandSpec, on_output: OnOutput | None = None) -> Running:
        """Start a command; its outcome comes from ``finish_command``."""
        box = self.get(sandbox_id)
        await box.free.wait()
        room = box.live()
        stdin = "pipe" if spec.stdin_open else "none" if spec.stdin is None else "data"
        env = {**(self.outside.env(self.ground.certificates) if box.network.internet else {}), **spec.env}
        header = {
            "argv": list(spec.argv), "cwd": spec.cwd, "user": spec.user, "env": env, "stdin": stdin,
            "timeout": spec.timeout_s, "keep": spec.keep,
        }  # fmt: skip
        return await room.start(header, spec.stdin or b"", on_output)

    async def run_command(
        self, sandbox_id: str, spec: CommandSpec, on_output: OnOutput | None = None
    ) -> CommandOutcome:
        """Run a command to its end; cancelling kills it."""
        box = self.get(sandbox_id)
        before = box.kills()
        running = await self.start_command(sandbox_id, spec, on_output)
        try:
            return self.judged(box, await running.done, before)
        except BaseException:
            if not running.done.done() or running.done.cancelled():
                with contextlib.suppress(SandboxError):
                    await asyncio.shield(self.rooms.later(self.kill(sandbox_id, running.number, 9)))
            raise

    @staticmethod
    def judged(box: Sandbox, outcome: CommandOutcome, kills_before: int) -> CommandOutcome:
        """An outcome with what the control group knows of its memory."""
        if outcome.exit_code in (-9, 137) and box.kills() > kills_before:
            return replace(outcome, out_of_memory=True)
        return outcome

    async def kill(self, sandbox_id: str, process: int, signal: int) -> None:
        """Send a signal to a command; SIGKILL ends all that came from it."""
        await self.get(sandbox_id).live().request("kill", c=process, signal=signal)

    async def write_stdin(self, sandbox_id: str, process: int, data: bytes, *, end: bool = False) -> None:
        """More for its standard input."""
        await self.get(sandbox_id).live().request("input", data, c=process, end=end)

    async def files(self, sandbox_id: str, name: str, body: bytes = b"", **header: Any) -> tuple[dict[str, Any], bytes]:
        """A request of ``guest/files.py``."""
        box = self.get(sandbox_id)
        await box.free.wait()
        return await box.live().request(f"files.{name}", body, **header)
