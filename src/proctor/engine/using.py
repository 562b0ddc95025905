"""What is done with a sandbox while it runs: commands, files, and its way out."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from proctor.core.sandbox import CommandOutcome, CommandSpec, NetworkRules, SandboxError, State, StopReason
from proctor.engine.outside import Outside, check
from proctor.engine.room import OnOutput, Running
from proctor.engine.rooms import Rooms
from proctor.engine.sandbox import Sandbox
from proctor.images.sandbox import Ground

LATE_S = 2.0  # that a room may be late with the end of a command
_UNBOUND, _TRIES, _MORE_TRIES = 1024.0, 100, 150


class Use(ABC):
    """The half of ``Sandboxes`` that speaks with rooms."""

    outside: Outside
    ground: Ground
    rooms: Rooms

    @abstractmethod
    def _end_soon(self, box: Sandbox, reason: StopReason) -> None:
        """End it beside the rest."""

    @abstractmethod
    def get(self, sandbox_id: str) -> Sandbox:
        """By its id; SandboxError ``not_found`` (404)."""

    async def start_command(self, sandbox_id: str, spec: CommandSpec, on_output: OnOutput | None = None) -> Running:
        """Start a command; its outcome comes from ``finish_command``."""
        box = self.get(sandbox_id)
        async with box.stillness.use():
            return await self._start(box, spec, on_output)

    async def _start(self, box: Sandbox, spec: CommandSpec, on_output: OnOutput | None) -> Running:
        room = box.live()
        stdin = "pipe" if spec.stdin_open else "none" if spec.stdin is None else "data"
        env = {**(self.outside.env(self.ground.certificates) if box.network.internet else {}), **spec.env}
        header = {
            "argv": list(spec.argv), "cwd": spec.cwd, "user": spec.user, "env": env, "stdin": stdin,
            "timeout": spec.timeout_s, "keep": spec.keep,
        }  # fmt: skip
        loop = asyncio.get_running_loop()

        def asked(running: Running) -> None:
            if spec.timeout_s is not None:
                timer = loop.call_later(spec.timeout_s + LATE_S, lambda: self.rooms.later(self._overdue(box, running)))
                running.done.add_done_callback(lambda _: timer.cancel())

        return await room.start(header, spec.stdin or b"", on_output, asked)

    async def _overdue(self, box: Sandbox, running: Running) -> None:
        """End a command from outside: a storm of processes may leave its room's pid 1 no time to do it.

        All that runs in the sandbox goes with it, since nothing tells from outside whose a process is.
        """
        running.overdue = True
        if group := box.group:
            group.meter.set_cpu(_UNBOUND)
            told_apart = True
            for _ in range(_TRIES):
                if running.done.done():
                    break
                told_apart = group.kill_all_but_init()
                await asyncio.sleep(0.02)
            group.meter.set_cpu(box.spec.vcpu)
            if not told_apart and not running.done.done():  # else what is over its time would run on
                self.rooms.later(self._hopeless(box, running))
        if not running.done.done():
            running.done.set_result(CommandOutcome(exit_code=None, timed_out=True, process_id=str(running.number)))

    async def _hopeless(self, box: Sandbox, running: Running) -> None:
        """End a sandbox whose pid 1 has not come to end a command."""
        for _ in range(_MORE_TRIES):
            if box.state is not State.RUNNING or box.room is None or running.number not in box.room.commands:
                return
            await asyncio.sleep(0.2)
        self._end_soon(box, StopReason.FAULT)

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
        async with box.stillness.use():
            return await box.live().request(f"files.{name}", body, **header)

    # ------------------------------------------------------------ network

    async def set_network(self, sandbox_id: str, rules: NetworkRules) -> None:
        """Change what a sandbox may reach, now; connections made under the old rules are cut.

        Raises:
            SandboxError: ``invalid_network`` (400), or it has stopped.
        """
        check(rules)
        box = self.get(sandbox_id)
        async with box.changing:
            room = box.live()
            if not rules.internet:
                if box.gate is not None:
                    await box.gate.close()
                    await room.unlisten()
                box.gate = None
            elif box.gate is not None:
                await box.gate.set(rules)
            else:
                text = self.outside.files(rules)["/etc/pip.conf"]
                await self.files(sandbox_id, "write", text.encode(), path="/etc/pip.conf")
                gate = await self.outside.open(room, rules, box.attempted)
                if box.state is not State.RUNNING:  # it was stopped meanwhile, and nobody else would close it
                    await gate.close()
                    box.live()
                box.gate = gate
            box.network = rules
            box.spec = replace(box.spec, network=rules)

    def network_attempts(self, sandbox_id: str) -> Sequence[dict[str, Any]]:
        """What its programs tried to reach, oldest first: the latest 1,000, over all changes of its rules."""
        return [asdict(attempt) for attempt in self.get(sandbox_id).attempts]
