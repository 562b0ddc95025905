"""One agent, as the engine sees it: frames out, checked frames in, and an end that leaves nothing.

Whatever comes from a guest is hostile: a frame that is too large, of the wrong
kind, or whose fields do not fit is a ``FrameError``, and the agent is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

from proctor.core.errors import FrameError, InfrastructureError, IsolationUnavailable
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.job import Case, Program
from proctor.guest import protocol
from proctor.images.host import Image
from proctor.isolation import sweep
from proctor.isolation.base import AgentProcess, Boundary

READY_S = 60.0  # an agent is ready in 0.1 s here; a loaded host may take a hundred times that
SILENCE_S = 30.0  # a jail beats each second while a case runs
_STACK = 8 << 20  # what a login shell gives; compiled programs get more
_STACK_COMPILED = 256 << 20


class Link:
    """A live agent. Made by ``start``; one job at a time; ended by ``close``."""

    def __init__(self, agent: AgentProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.agent, self.reader, self.writer = agent, reader, writer
        self.features: dict[str, Any] = {}
        self.preloaded: frozenset[str] = frozenset()
        self.jobs = 0

    @classmethod
    async def start(cls, boundary: Boundary, image: Image, number: int) -> Link:
        """Start an agent and wait until it is ready.

        Raises:
            IsolationUnavailable: this host does not allow the level that was asked for.
            InfrastructureError: it did not come up, with its own words where it had any.
        """
        try:
            agent = boundary.start(image, number)
        except OSError as exc:
            raise InfrastructureError(f"the agent cannot be started: {exc}") from exc
        agent.control.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=agent.control, limit=1 << 20)
        link = cls(agent, reader, writer)
        try:
            kind, header, _ = await link._frame(READY_S)
            if kind == protocol.FAULT:
                error = IsolationUnavailable if header.get("isolation") is True else InfrastructureError
                raise error(f"the agent cannot build its walls: {str(header.get('message'))[:2000]}")
            if kind != protocol.READY or not isinstance(header.get("features"), dict):
                raise FrameError("the agent's first words are not READY")
            link.features = header["features"]
            names = header.get("preloaded")
            link.preloaded = frozenset(names) if isinstance(names, list) and all(isinstance(x, str) for x in names) else frozenset()
        except BaseException:
            await link.close()
            raise
        return link

    async def _frame(self, timeout: float) -> tuple[int, dict[str, Any], bytes]:
        try:
            async with asyncio.timeout(timeout):
                head = await self.reader.readexactly(protocol.HEAD.size)
                kind, header, body = protocol.unpack_head(head)
                text = await self.reader.readexactly(header)
                data = await self.reader.readexactly(body)
            return kind, protocol.unpack_header(text), data
        except TimeoutError as exc:
            raise InfrastructureError(f"the agent was silent for {timeout:.0f} s") from exc
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            raise InfrastructureError("the agent ended in the middle of its work") from exc
        except ValueError as exc:
            raise FrameError(f"the agent sent nonsense: {exc}") from exc

    async def run(
        self, program: Program, cases: list[tuple[int, Case]], limits: Limits, compile_limits: Limits,
        *, cpu_factor: float, on_outcome: Callable[[int, Outcome], None],
    ) -> Outcome | None:  # fmt: skip
        """Run cases in order and report each; returns the compiler's outcome when compiling failed.

        Raises:
            InfrastructureError: this link is of no more use; cases that were reported stand.
        """
        self.jobs += 1
        feeder = asyncio.create_task(self._feed(program, cases, limits, compile_limits, cpu_factor))
        failed: Outcome | None = None
        try:
            expected = [index for index, _ in cases]
            if program.compile:
                expected.insert(0, -1)
            while True:
                kind, header, body = await self._frame(SILENCE_S)
                if kind == protocol.BEAT:
                    continue
                if kind == protocol.FAULT:
                    raise InfrastructureError(f"the jail failed: {str(header.get('message'))[:2000]}")
                if kind == protocol.DONE and not expected:
                    break
                if kind != protocol.OUTCOME or not expected or header.get("case") != expected[0]:
                    raise FrameError(f"the agent sent frame {kind} out of turn")
                index = expected.pop(0)
                bounds = compile_limits if index < 0 else limits
                outcome = read_outcome(header, body, bounds)
                if index >= 0:
                    on_outcome(index, outcome)
                elif not outcome.ok:
                    failed = outcome
                    expected.clear()
            return failed
        finally:
            feeder.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await feeder

    async def _feed(
        self, program: Program, cases: list[tuple[int, Case]], limits: Limits, compile_limits: Limits, cpu_factor: float
    ) -> None:
        warm = program.warm and not any(name.split("/")[0].removesuffix(".py") in self.preloaded for name in program.files)
        job: dict[str, Any] = {
            "files": [[name, len(data)] for name, data in program.files.items()],
            "argv": list(program.argv),
            "warm": warm,
            "limits": _limits(limits, _STACK if program.argv[0].startswith("python") else _STACK_COMPILED),
        }
        if program.compile:
            job["compile"] = {"argv": list(program.compile), "limits": _limits(compile_limits, _STACK_COMPILED)}
        self.writer.write(protocol.pack(protocol.JOB, job, *program.files.values()))
        for index, case in cases:
            header = {
                "case": index,
                "stdin": len(case.stdin),
                "request": case.request is not None,
                "steps": case.steps,
                "cpu_kill": int(limits.cpu_s * cpu_factor * 1e9),
            }
            self.writer.write(protocol.pack(protocol.CASE, header, case.stdin, case.request or b""))
            await self.writer.drain()
        self.writer.write(protocol.pack(protocol.END, {}))
        await self.writer.drain()

    async def close(self) -> None:
        """End the agent and wait until nothing of it is left."""
        self.release()
        process = self.agent.process
        loop = asyncio.get_running_loop()
        try:
            await asyncio.wait_for(loop.run_in_executor(None, process.wait, 15), 20)
        except Exception:  # stopped or stuck: by force, and its leavings by hand
            process.kill()
            await loop.run_in_executor(None, process.wait)
            await asyncio.sleep(0.1)
        if process.returncode:
            await loop.run_in_executor(None, sweep.remove_named, self.agent.name)

    def release(self) -> None:
        """Close the descriptors: the supervisor then ends everything by itself. Never blocks."""
        self.writer.close()
        if self.agent.lifeline >= 0:
            os.close(self.agent.lifeline)
            self.agent.lifeline = -1


def _limits(limits: Limits, stack: int) -> dict[str, int]:
    return {
        "cpu": int(limits.cpu_s * 1e9),
        "wall": int(limits.wall * 1e9),
        "memory": limits.memory_mib << 20,
        "processes": limits.processes,
        "files": limits.open_files,
        "workspace": limits.workspace_mib << 20,
        "inodes": limits.workspace_inodes,
        "output": limits.output_bytes,
        "stdout_keep": limits.output_bytes if limits.stdout_keep is None else limits.stdout_keep,
        "stderr_keep": limits.stderr_keep,
        "stack": stack,
    }


def read_outcome(header: dict[str, Any], body: bytes, limits: Limits) -> Outcome:
    """An OUTCOME frame, every field checked; FrameError when one is not what it must be."""

    def number(name: str, low: int, high: int, none: bool = False) -> Any:
        value = header.get(name)
        if value is None and none:
            return None
        if type(value) is not int or not low <= value <= high:
            raise FrameError(f"outcome's {name} is {value!r:.50}")
        return value

    def sizes(name: str) -> list[int]:
        value = header.get(name)
        if not isinstance(value, list) or len(value) != 3 or any(type(x) is not int or not 0 <= x <= 1 << 62 for x in value):
            raise FrameError(f"outcome's {name} is {value!r:.50}")
        return value

    kept, written = sizes("kept"), sizes("written")
    if sum(kept) != len(body) or kept[0] > limits.output_bytes or any(k > w for k, w in zip(kept, written, strict=True)):
        raise FrameError("outcome's sizes do not fit")
    ended = header.get("ended")
    if ended is not None and ended not in [e.value for e in EndedBy]:
        raise FrameError(f"outcome ended by {ended!r:.50}")
    exit_code, signal = number("exit", 0, 255, True), number("signal", 0, 127, True)
    if (exit_code is None) == (signal is None):
        raise FrameError("outcome has neither or both of exit and signal")
    stdout, stderr, result = body[: kept[0]], body[kept[0] : kept[0] + kept[1]], body[kept[0] + kept[1] :]
    top = 1 << 62
    note = header.get("note")
    if isinstance(note, str):
        stderr += note[:500].encode("utf-8", "replace")
    return Outcome(
        exit_code=exit_code, signal=signal, stdout=stdout, stderr=stderr, result=result,
        stdout_truncated=written[0] > kept[0], stderr_truncated=written[1] > kept[1],
        cpu_s=number("cpu_ns", 0, top) / 1e9, wall_s=number("wall_ns", 0, top) / 1e9,
        peak_memory_bytes=number("peak", 0, top) or None, ended_by=EndedBy(ended) if ended else None,
        left_processes=number("left", 0, 1 << 30),
    )  # fmt: skip
