"""Two jobs that talk to each other: each on an agent of its own, started together.

They share two pipes, which the host makes and hands over: bytes go from process
to process without passing here, so that a call from one to the other costs two
switches of a process. A pair takes one slot, since its halves wait for each
other most of the time, and the memory of both.

What one half waits for the other counts as its wall time, but not while either
waits for a busy CPU. Only here is that known of both, so the wall limits of a
pair are kept here; there is no second go for a half that met one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from proctor.core.errors import InfrastructureError, IsolationUnavailable
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.admission import Ticket
from proctor.engine.job import Job, Pair
from proctor.engine.link import Link
from proctor.engine.settling import DECISIVE, killed
from proctor.guest import protocol

_SIGKILL = 9
# Times its wall limit at which a half is ended whatever the load.
# 20,000 calls took 2 s of a quiet host's time and 28 s at a load of 20 on two cores, both halves 2 s of CPU.
_PATIENCE = 8.0
_MOST_WALL_S = 604_800.0
# Where every instruction is emulated: what a page that is read takes, or a process that starts, is not corrected.
_SLOW_WALL_S = 10.0


class Slots(Protocol):
    """What a pair needs of the engine."""

    replaced: int
    features: dict[str, Any]

    @property
    def agent_mib(self) -> int:
        """Memory that an idle slot may take beside its job."""

    @property
    def closed(self) -> str:
        """Why there will be no more jobs; empty while there may be."""

    async def admitted(self, ticket: Ticket) -> None:
        """Wait until a ticket's job may run."""

    def leave(self, ticket: Ticket) -> None:
        """The ticket's job is over."""

    async def lease(self, fresh: bool) -> Link:
        """An agent that waits for a job."""

    def make_room(self) -> None:
        """End idle agents whose memory is needed."""

    def give_back(self, link: Link, ticket: Ticket | None = None) -> None:
        """An agent that has done its job, and perhaps the ticket."""

    def end(self, link: Link) -> asyncio.Task[None]:
        """Begin to end an agent."""


Found = tuple[Outcome, float]  # an outcome, and the CPU seconds of its process tree


async def run_pair(engine: Slots, pair: Pair, owner: object, attempts: int) -> list[Outcome]:
    """The outcomes of both halves, the program's first.

    One whose outcome could hang on the load runs again, with its other half and
    alone on this host, and the second outcomes count. An infrastructure fault
    is in both outcomes (``error``), never raised.
    """
    found = await _settled(engine, pair, owner, attempts, alone=False)
    if isinstance(found, str):
        return _outcomes(found)
    doubts = list(map(_doubtful, found, (pair.program, pair.counterpart)))
    if _is_lost(pair, found) and (_tells_kills(engine.features) or not killed(found[0][0])):
        doubts[0] = False
    if not any(doubts):
        return _outcomes(found)
    found = await _settled(engine, pair, owner, attempts, alone=True)
    if isinstance(found, str):
        return _outcomes(found)
    jobs = pair.program, pair.counterpart
    final = [_in_time(*half, job) for half, job in zip(found, jobs, strict=True)]
    return [replace(outcome, confirmed=outcome.ended_by is not EndedBy.WALL) for outcome in final]


class Clock:
    """How long the halves of a pair have run together, as far as both have said.

    Args:
        limits: wall seconds of each.
    """

    def __init__(self, limits: tuple[float, float]) -> None:
        self._limits = limits
        self._began: dict[int, float] = {}
        self._told = [0.0, 0.0]  # when they last said something
        self._waited = [0.0, 0.0]
        self._over: set[int] = set()

    def hear(self, which: int, now: float, wall: float, waited: float, over: bool = False) -> list[int]:
        """A half says at ``now`` how long it has lasted and waited for a CPU; returns those that are late by now.

        Time in which one of them is not there yet, as while it is compiled, is nobody's. What a frame took to come here
        is not counted either: it is later on a busy host.
        """
        begun = min(self._began.get(which, now), now - wall)
        self._began[which], self._told[which], self._waited[which] = begun, begun + wall, waited
        if over:
            self._over.add(which)
        left = [half for half in (0, 1) if half not in self._over]
        if len(self._began) < 2 or not left:
            return []
        spent = min(self._told[half] for half in left) - max(self._began.values())
        counts = spent - sum(self._waited)
        return [half for half in left if counts > self._limits[half] or spent > _PATIENCE * self._limits[half]]


def _patient(job: Job) -> Limits:
    """Limits for a jail that knows nothing of the other half."""
    return job.limits.with_(wall_s=min(_MOST_WALL_S, 2 * _PATIENCE * job.limits.wall))


def _outcomes(found: list[Found] | str) -> list[Outcome]:
    if isinstance(found, str):
        return [Outcome(error=found)] * 2
    return [outcome for outcome, _ in found]


def _doubtful(half: Found, job: Job) -> bool:
    """A verdict on this half could hang on the load of the host, or on a signal from elsewhere."""
    outcome, cpu_s = half
    if outcome.compile_failed:
        return outcome.ended_by is not None or killed(outcome)
    if outcome.ended_by is None:
        return killed(outcome) or cpu_s > job.limits.cpu_s
    return False


def _is_lost(pair: Pair, found: list[Found]) -> bool:
    """The counterpart has said no, by itself. A program that hears so must not have another go by its own end."""
    program, counterpart = found[0][0], found[1][0]
    return not program.compile_failed and counterpart.ended_by is None and counterpart.exit_code in pair.stop_on


def _tells_kills(features: dict[str, Any]) -> bool:
    """The host's own out-of-memory killer would be known: by the slot's group, or since it ends a whole kernel."""
    return bool(features.get("memory")) or features.get("level") in ("gvisor", "microvm")


def _in_time(outcome: Outcome, cpu_s: float, job: Job) -> Outcome:
    if outcome.ended_by is None and cpu_s > job.limits.cpu_s:
        return replace(outcome, ended_by=EndedBy.CPU, exit_code=None, signal=_SIGKILL)
    return outcome


async def _settled(engine: Slots, pair: Pair, owner: object, attempts: int, *, alone: bool) -> list[Found] | str:
    """Both halves on as many agents as it takes, or what went wrong."""
    faults: list[str] = []
    filled = [0, 0]  # times that a half left its agent without memory
    jobs = pair.program, pair.counterpart
    memory = sum(max(job.limits.memory_mib, job.compile_limits.memory_mib * bool(job.program.compile)) for job in jobs)
    while len(faults) < attempts:
        if engine.closed:
            return engine.closed
        ticket = Ticket(owner, memory + 2 * engine.agent_mib, alone)
        await engine.admitted(ticket)
        links: list[Link] = []
        try:
            for _ in jobs:
                links.append(await engine.lease(fresh=bool(faults)))
            engine.make_room()
            found = await _together(pair, links, 1.0 if alone else DECISIVE)
        except BaseException as exc:
            endings = [engine.end(link) for link in links]
            gone = asyncio.gather(*endings, return_exceptions=True)
            gone.add_done_callback(partial(_leave, engine, ticket))
            if isinstance(exc, IsolationUnavailable):
                return str(exc)
            if not isinstance(exc, InfrastructureError):
                raise
            await asyncio.shield(gone)
            faults.append(str(exc))
            engine.replaced += 1
            for which, link in enumerate(links):
                filled[which] += link.agent.process.returncode == protocol.STATUS_MEMORY
            if 2 in filled:  # once may be chance
                return _too_large(filled.index(2))
        else:
            engine.give_back(links[1])
            engine.give_back(links[0], ticket)
            return found
    return f"after {attempts} attempts: {faults[-1]}"


def _leave(engine: Slots, ticket: Ticket, _: object) -> None:
    engine.leave(ticket)


def _too_large(which: int) -> list[Found]:
    """One half took all memory of its slot, and the agent with it; the other one was cut off."""
    halves = [(Outcome(signal=_SIGKILL, ended_by=EndedBy.CANCELLED), 0.0)] * 2
    halves[which] = Outcome(signal=_SIGKILL, ended_by=EndedBy.MEMORY), 0.0
    return halves


async def _together(pair: Pair, links: list[Link], cpu_factor: float) -> list[Found]:
    """Run both halves at once; InfrastructureError where an agent failed, and then neither counts."""
    loop = asyncio.get_running_loop()
    found: dict[int, Found] = {}
    pipes: list[list[int]] = [[], []]

    clock = Clock(
        tuple(  # type: ignore[arg-type]  # two
            job.limits.wall + _SLOW_WALL_S * (link.agent.pace != 1.0)
            for job, link in zip((pair.program, pair.counterpart), links, strict=True)
        )
    )
    late: set[int] = set()
    held: list[int] = []  # an end of the pipe to the program that outlives it

    async def cancel(which: int) -> None:
        if which not in found:  # else it would come to the agent's next job
            await links[which].cancel_case()

    def beat(which: int, wall: float, waited: float, over: bool = False) -> None:
        for side in clock.hear(which, loop.time(), wall, waited, over):
            if side not in late:
                late.add(side)
                ending.append(asyncio.ensure_future(cancel(side)))

    def over(which: int, outcome: Outcome, cpu_s: float) -> None:
        if which in late and outcome.ended_by is EndedBy.CANCELLED:
            outcome = replace(outcome, ended_by=EndedBy.WALL)
        found[which] = outcome, cpu_s
        beat(which, outcome.wall_s, outcome.waited_s, over=True)
        if which == 0 and held:
            loop.add_reader(held[0], _drop, loop, held[0])
        if which == 1 and _status(outcome) in pair.stop_on and 0 not in found:
            ending.append(asyncio.ensure_future(cancel(0)))

    async def half(which: int, job: Job) -> None:
        failed = await links[which].run(
            job.program, [(0, job.cases[0])], _patient(job), job.compile_limits, cpu_factor=cpu_factor, stop_after=None,
            on_outcome=lambda _, outcome, cpu_s: over(which, outcome, cpu_s), pipes=pipes[which],
            on_beat=partial(beat, which),
        )  # fmt: skip
        if failed is not None:
            over(which, replace(failed, compile_failed=True), failed.cpu_s)

    ending: list[asyncio.Future[None]] = []
    tasks: list[asyncio.Future[None]] = []
    try:
        for source, sink in ((0, 1), (1, 0)):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            pipes[sink].insert(0, reader)
            pipes[source].append(writer)
        if pair.program.cases[0].talk == "stdio":
            # A description of its own, since O_NONBLOCK is not of a descriptor alone.
            held.append(os.open(f"/proc/self/fd/{pipes[0][0]}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        tasks = [asyncio.ensure_future(half(*job)) for job in enumerate((pair.program, pair.counterpart))]
        await asyncio.gather(*tasks)
        await asyncio.gather(*ending)
    finally:
        for task in (*tasks, *ending):
            task.cancel()
        await asyncio.gather(*tasks, *ending, return_exceptions=True)
        for fd in held:
            loop.remove_reader(fd)
        for fd in (*pipes[0], *pipes[1], *held):
            with contextlib.suppress(OSError):
                os.close(fd)
    return [found[0], found[1]]


def _status(outcome: Outcome) -> int:
    """Its exit status, or the number of the signal that ended it, negative."""
    return -(outcome.signal or 0) if outcome.exit_code is None else outcome.exit_code


def _drop(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """Read what is said to a program that has ended.

    Whether the other half finds a broken pipe there would hang on the load.
    """
    with contextlib.suppress(BlockingIOError):
        if not os.read(fd, 1 << 16):
            loop.remove_reader(fd)
