"""One agent, as the engine sees it: frames out, checked frames in, and an end that leaves nothing.

Whatever comes from a guest is hostile: a frame that is too large, of the wrong
kind, or whose fields do not fit is a ``FrameError``, and the agent is ended.
``reading`` holds the checks.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.core.errors import FrameError, InfrastructureError, IsolationUnavailable
from proctor.core.image import Image
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine import reading
from proctor.engine.job import Case, Program
from proctor.engine.stream import Stream
from proctor.guest import protocol
from proctor.isolation.base import AgentProcess, Boundary

READY_S = 60.0  # an agent is ready in 0.1 s here; a loaded host may take a hundred times that
SILENCE_S = 30.0  # a jail beats each second while a case runs
# The jail itself ends a case at ten times its wall limit, whatever the load; one that only says so is ended here.
WALL_FACTOR, GRACE_S = 10, 60.0
END_S = 15.0  # for an agent to end by itself once it is told to
_LEFT_S = 10.0  # for the kernel to end what an agent that was killed has left
_STACK = 8 << 20  # what a login shell gives; compiled programs get more
_STACK_COMPILED = 256 << 20

_COMPILER = Case()
OnBeat = Callable[[float, float], None]  # seconds that the case has lasted, and those of them that it waited for a CPU
OnOutcome = Callable[[int, Outcome, float], None]  # index, outcome, CPU seconds of its busiest step


class Link:
    """A live agent: ``spawn``, ``ready``, then one job at a time; ended by ``close``."""

    def __init__(self, boundary: Boundary, agent: AgentProcess) -> None:
        self.boundary, self.agent = boundary, agent
        self.stream = Stream(agent.control)
        self.features: dict[str, Any] = {}
        self.preloaded: frozenset[str] = frozenset()
        self.compiling = False
        self.served = 0  # jobs that it has done
        self.suspect = False  # something was seen that a program should not be able to leave behind
        self._over: asyncio.Event | None = None

    @classmethod
    def spawn(cls, boundary: Boundary, image: Image, number: int) -> Link:
        """Start an agent's process; InfrastructureError when not even that is possible."""
        try:
            return cls(boundary, boundary.start(image, number))
        except OSError as exc:
            raise InfrastructureError(f"the agent cannot be started: {exc}") from exc

    async def ready(self) -> None:
        """Wait until it takes jobs.

        Raises:
            IsolationUnavailable: this host does not allow the level that was asked for.
            InfrastructureError: it did not come up, with its own words where it had any.
        """
        try:
            await self._come_up()
        except Exception:
            self.agent.failed = True
            raise

    async def _come_up(self) -> None:
        kind, header, _ = await self._frame(READY_S, 0)
        if kind == protocol.FAULT:
            error = IsolationUnavailable if header.get("isolation") is True else InfrastructureError
            raise error(f"the agent cannot build its walls: {reading.text(header.get('message'))}")
        if kind != protocol.READY or not isinstance(header.get("features"), dict):
            raise FrameError("the agent's first words are not READY")
        self.features = header["features"]
        names = header.get("preloaded")
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            self.preloaded = frozenset(names)

    @property
    def usable(self) -> bool:
        """Nothing is known against giving it a job."""
        if self._over is not None or self.agent.process.poll() is not None or not self.stream.quiet():
            return False
        return self.agent.around is None or not self.agent.around.worn()

    async def _frame(self, timeout: float, most: int, late: str | None = None) -> tuple[int, dict[str, Any], bytes]:
        """The next frame, its body at most ``most`` bytes, within ``timeout`` seconds; ``late`` says what that was for."""
        try:
            async with asyncio.timeout(timeout):
                kind, header, body = protocol.unpack_head(await self.stream.exactly(protocol.HEAD.size))
                if body > most:
                    raise ValueError(f"{body} bytes where at most {most} are due")
                text = await self.stream.exactly(header)
                data = await self.stream.exactly(body)
            return kind, protocol.unpack_header(text), data
        except TimeoutError as exc:
            raise InfrastructureError(late or f"the agent was silent for {timeout:.0f} s") from exc
        except (EOFError, OSError) as exc:
            raise InfrastructureError(f"the agent ended in the middle of its work{self._last_words()}") from exc
        except ValueError as exc:
            raise FrameError(f"the agent sent nonsense: {exc}") from exc

    def _last_words(self) -> str:
        """The end of what the agent wrote on stderr, for a human."""
        words = self.agent.last_words(2000)
        return f": {words}" if words else ""

    async def run(
        self, program: Program, cases: list[tuple[int, Case]], limits: Limits, compile_limits: Limits,
        *, cpu_factor: float, stop_after: int | None, on_outcome: OnOutcome, pipes: list[int] | None = None,
        on_beat: OnBeat | None = None,
    ) -> Outcome | None:  # fmt: skip
        """Run cases in order and report each; returns the compiler's outcome when compiling failed.

        Args:
            cpu_factor: times the CPU limit at which a case is ended.
            stop_after: time limits after which the rest is not run; None runs all.
            pipes: two descriptors for the one case that talks, to read from and to write to. Once they are sent
                they are closed here and taken from the list.
            on_beat: called each second or so while a case runs, the compiler's not.

        Raises:
            InfrastructureError: this link is of no more use; cases that were reported stand.
        """
        clock = asyncio.get_running_loop().time
        expected = [(index, limits, case) for index, case in cases]
        keeps = {index: case.keep for index, case in cases if case.keep is not None}
        if program.compile:
            expected.insert(0, (-1, compile_limits, _COMPILER))
        self.compiling, failed = bool(program.compile), None
        if self.agent.around is not None:
            both = limits, *([compile_limits] if program.compile else [])
            self.agent.around.bound(
                max(one.memory_mib for one in both),
                max(one.workspace_mib for one in both),
                max(one.processes for one in both),
            )
        silence = SILENCE_S * self.agent.pace
        late, token = 0, secrets.randbits(62)
        told: dict[str, Any] = {"token": token} if stop_after is None else {"token": token, "stop_after": stop_after}
        feeder = asyncio.create_task(self._feed(program, cases, limits, compile_limits, cpu_factor, told, pipes))
        feeder.add_done_callback(_retrieved)
        try:
            while True:
                allowed = (WALL_FACTOR * expected[0][1].wall * expected[0][2].steps if expected else 0.0) + GRACE_S
                allowed *= self.agent.pace
                most = reading.most(*expected[0][1:]) if expected else 0
                deadline, kind = clock() + allowed, protocol.BEAT
                while kind == protocol.BEAT:
                    left = deadline - clock()
                    late_word = (
                        f"the agent beats, but has not come to an end in {allowed:.0f} s" if left < silence else None
                    )
                    kind, header, body = await self._frame(min(silence, left), most, late_word)
                    if kind == protocol.BEAT and body:
                        raise FrameError("the agent sent a beat with a body")
                    if kind == protocol.BEAT and on_beat and expected and expected[0][0] >= 0:
                        on_beat(*reading.beat(header))
                if kind == protocol.FAULT:
                    raise InfrastructureError(f"the jail failed: {reading.text(header.get('message'))}")
                if kind == protocol.DONE and not expected:
                    await feeder
                    self.served += 1
                    return failed
                if kind != protocol.OUTCOME or not expected:
                    raise FrameError(f"the agent sent frame {kind} out of turn")
                index, bounds, case = expected.pop(0)
                outcome, busiest = reading.outcome(header, body, token, index, bounds, case)
                if outcome.ended_by is EndedBy.NOT_RUN and (stop_after is None or late < stop_after or index < 0):
                    raise FrameError("the agent left out a case")
                late += outcome.ended_by in (EndedBy.CPU, EndedBy.WALL) and index >= 0
                self.compiling = False
                self.suspect = self.suspect or outcome.left_processes > 0
                if len(outcome.stdout) > keeps.get(index, len(outcome.stdout)):
                    outcome = replace(outcome, stdout=outcome.stdout[: keeps[index]], stdout_truncated=True)
                if index >= 0:
                    if pipes is not None:
                        await self.stream.send(protocol.pack(protocol.END, {}))
                    on_outcome(index, outcome, busiest)
                elif not outcome.ok:
                    failed = outcome
                    expected.clear()
                    if pipes is not None:
                        await feeder
                        await self.stream.send(protocol.pack(protocol.END, {}))
        except OSError as exc:  # of the feeder, when all else was already there
            raise InfrastructureError("the agent ended in the middle of its work") from exc
        finally:
            feeder.cancel()

    async def _feed(
        self, program: Program, cases: list[tuple[int, Case]], limits: Limits, compile_limits: Limits, cpu_factor: float,
        told: dict[str, Any], pipes: list[int] | None,
    ) -> None:  # fmt: skip
        warm = program.warm and not any(
            name.split("/")[0].removesuffix(".py") in self.preloaded for name in program.files
        )
        job: dict[str, Any] = told | {
            "files": [[name, len(data)] for name, data in program.files.items()],
            "argv": list(program.argv),
            "warm": warm,
            "limits": _limits(limits, _STACK if program.argv[0].startswith("python") else _STACK_COMPILED),
        }
        if program.compile:
            job["compile"] = {"argv": list(program.compile), "limits": _limits(compile_limits, _STACK_COMPILED)}
        await self.stream.send(protocol.pack(protocol.JOB, job, *program.files.values()))
        for index, case in cases:
            header: dict[str, Any] = {
                "case": index,
                "stdin": len(case.stdin),
                "request": case.request is not None,
                "steps": case.steps,
                "cpu_kill": int(limits.cpu_s * cpu_factor * 1e9),
            }
            if case.files:
                header["files"] = [[name, len(data)] for name, data in case.files.items()]
            if case.argv:
                header["argv"] = list(case.argv)
            if case.collect:
                header |= {"collect": list(case.collect), "collect_bytes": case.collect_bytes}
            if case.talk:
                header["talk"] = case.talk
            blobs = case.stdin, *case.files.values(), case.request or b""
            await self.stream.send(protocol.pack(protocol.CASE, header, *blobs))
            if case.talk and pipes:
                await self.stream.send_pipes(pipes)
                while pipes:
                    os.close(pipes.pop())
        if pipes is None:  # else CANCEL may have to come before it
            await self.stream.send(protocol.pack(protocol.END, {}))

    async def cancel_case(self) -> None:
        """End the case that runs now; its outcome says so."""
        await self.stream.send(protocol.pack(protocol.CANCEL, {}))

    async def close(self) -> None:
        """End the agent and wait until nothing of it is left; may be called again."""
        if self._over is not None:
            await self._over.wait()
            return
        self._over = asyncio.Event()
        try:
            self.agent.release()
            clock, process = asyncio.get_running_loop().time, self.agent.process
            deadline, pause = clock() + END_S, 0.001
            # Looked at now and then, not waited for in a thread: at the interpreter's end there are no new threads.
            while process.poll() is None:
                if clock() > deadline or is_stopped(process.pid):
                    process.kill()  # by force, and its leavings by hand
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.05)
            deadline = clock() + _LEFT_S
            while not self.boundary.ended(self.agent) and clock() < deadline:
                await asyncio.sleep(0.02)
        finally:
            self.stream.drop()
            self.agent.forget()
            self._over.set()


def _retrieved(task: asyncio.Task[None]) -> None:
    """Take note of a task's exception, which nobody else may ask for."""
    if not task.cancelled():
        task.exception()


def is_stopped(pid: int) -> bool:
    """Someone has sent the process SIGSTOP."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


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
