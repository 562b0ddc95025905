"""The engine: slots, each with its agent, and jobs that find their way to them.

One engine serves one process; it lives on one event loop. ``shared`` puts it
on a thread of its own for callers of every other kind.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.core.errors import InfrastructureError, IsolationUnavailable
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.admission import Admission, Ticket
from proctor.engine.job import Case, Job
from proctor.engine.link import Link
from proctor.images.host import Image, host_image
from proctor.isolation.base import Boundary
from proctor.isolation.jail import JailBoundary

ATTEMPTS = 3  # agents that may fail under a case before it is an infrastructure error
# CPU time of the same program differs by up to 1.83 between a quiet and a
# contended core (0.6 to 1.1 of nominal was measured), so a program that has
# used twice its limit is over it on any host, and one between is run again alone.
DECISIVE = 2.0
_AGENT_MIB = 32  # what an idle slot may take beside its job
_SIGKILL = 9


class Engine:
    """Runs jobs on this host.

    Args:
        slots: jobs at once; None is one per usable core.
        isolation: ``auto``, ``jail`` or ``degraded``.
        memory_mib: budget for all jobs together; None is 0.8 of what is free now.
        image: what programs see; None is the host's interpreter, bare.
    """

    def __init__(
        self, *, slots: int | None = None, isolation: str = "auto", memory_mib: int | None = None,
        image: Image | None = None, boundary: Boundary | None = None,
    ) -> None:  # fmt: skip
        self.slots = slots or len(os.sched_getaffinity(0))
        self.boundary = boundary or JailBoundary(isolation)
        self.image = image or host_image()
        self._admission = Admission(self.slots, memory_mib or int(0.8 * _free_mib()))
        self._gates: dict[Ticket, asyncio.Event] = {}
        self._idle: list[Link] = []
        self._links: set[Link] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._number = 0
        self.features: dict[str, Any] = {}
        self.replaced = 0

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the first agent, so that a host that allows none is known before any job.

        Raises:
            IsolationUnavailable: the level that was asked for cannot be had here.
        """
        self._idle.append(await self._new_link())

    async def close(self) -> None:
        """End all agents and wait until nothing of them is left."""
        links, self._links = list(self._links), set()
        self._idle.clear()
        await asyncio.gather(*(link.close() for link in links), *self._endings, return_exceptions=True)

    def release(self) -> None:
        """Let go of all agents without waiting, from any thread; they end by themselves."""
        for link in list(self._links):
            link.agent.control.close()
            if link.agent.lifeline >= 0:
                os.close(link.agent.lifeline)
                link.agent.lifeline = -1

    async def _new_link(self) -> Link:
        self._number += 1
        link = await Link.start(self.boundary, self.image, self._number)
        self._links.add(link)
        self.features = link.features
        return link

    def _end(self, link: Link) -> None:
        self._links.discard(link)
        task = asyncio.create_task(link.close())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def run(
        self, job: Job, *, owner: object = None, on_outcome: Callable[[int, Outcome], None] | None = None
    ) -> list[Outcome]:
        """Run every case of a job; the outcomes are in the order of the cases.

        An infrastructure fault is in the outcome (``error``), never raised.
        Cancelling the task ends the program at once.

        Args:
            owner: jobs of one owner queue behind each other, owners take turns.
            on_outcome: called with (index, outcome) as soon as a case's outcome is final.
        """
        outcomes: dict[int, Outcome] = {}
        owner = owner if owner is not None else object()
        everything = list(enumerate(job.cases))
        await self._attempt(job, everything, owner, outcomes, alone=False)
        doubtful = [(i, case) for i, case in everything if _doubtful(outcomes[i], job.limits, case)]
        if on_outcome:
            for i, _ in everything:
                if i not in dict(doubtful):
                    on_outcome(i, outcomes[i])
        for i, case in doubtful:
            again: dict[int, Outcome] = {}
            await self._attempt(job, [(i, case)], owner, again, alone=outcomes[i].signal != _SIGKILL or bool(outcomes[i].ended_by))
            outcomes[i] = _settle(again[i], job.limits, case)
            if on_outcome:
                on_outcome(i, outcomes[i])
        return [outcomes[i] for i, _ in everything]

    async def _attempt(
        self, job: Job, cases: list[tuple[int, Case]], owner: object, outcomes: dict[int, Outcome], *, alone: bool
    ) -> None:
        """Fill ``outcomes`` for ``cases``, on as many agents as it takes, up to ATTEMPTS."""
        faults: list[str] = []
        while (left := [(i, case) for i, case in cases if i not in outcomes]) and len(faults) < ATTEMPTS:
            before = len(outcomes)
            memory = max(job.limits.memory_mib, job.compile_limits.memory_mib if job.program.compile else 0)
            ticket = Ticket(owner, memory + _AGENT_MIB, alone)
            await self._admitted(ticket)
            try:
                await self._on_a_link(job, left, outcomes, alone)
            except IsolationUnavailable as exc:
                faults += [str(exc)] * ATTEMPTS
            except InfrastructureError as exc:
                if len(outcomes) > before:
                    faults.clear()  # it got further: the next fault is another case's
                faults.append(str(exc))
                self.replaced += 1
            finally:
                self._open(self._admission.remove(ticket))
        for i, _ in left:
            outcomes.setdefault(i, Outcome(error=f"after {len(faults)} attempts: {faults[-1]}" if faults else "cancelled"))

    async def _on_a_link(self, job: Job, cases: list[tuple[int, Case]], outcomes: dict[int, Outcome], alone: bool) -> None:
        link = self._idle.pop() if self._idle else await self._new_link()
        healthy = False
        try:
            failed = await link.run(
                job.program, cases, job.limits, job.compile_limits,
                cpu_factor=1.0 if alone else DECISIVE, on_outcome=lambda i, outcome: outcomes.__setitem__(i, outcome),
            )  # fmt: skip
            if failed is not None:
                outcomes.update((i, replace(failed, compile_failed=True)) for i, _ in cases)
            healthy = True
        finally:
            if healthy:
                self._idle.append(link)
            else:
                self._end(link)

    async def _admitted(self, ticket: Ticket) -> None:
        gate = self._gates[ticket] = asyncio.Event()
        self._open(self._admission.add(ticket))
        try:
            await gate.wait()
        except BaseException:
            self._open(self._admission.remove(ticket))
            raise
        finally:
            self._gates.pop(ticket, None)

    def _open(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if gate := self._gates.get(ticket):
                gate.set()


def _doubtful(outcome: Outcome, limits: Limits, case: Case) -> bool:
    """A verdict on this outcome could hang on the load, so the case is run again, alone."""
    if outcome.error or outcome.compile_failed:
        return False
    if outcome.ended_by is EndedBy.WALL:
        return outcome.cpu_s > 0.1 * outcome.wall_s  # a sleeper's wall time is its own doing
    if outcome.ended_by is None and case.steps == 1 and outcome.cpu_s > limits.cpu_s:
        return True
    # Killed, and not by us: by itself, or by something on the host.
    return outcome.ended_by is None and outcome.signal == _SIGKILL


def _settle(outcome: Outcome, limits: Limits, case: Case) -> Outcome:
    """The second outcome, final: over the CPU limit alone is over it."""
    if outcome.error:
        return outcome
    if outcome.ended_by is None and case.steps == 1 and outcome.cpu_s > limits.cpu_s:
        return replace(outcome, ended_by=EndedBy.CPU, confirmed=True)
    return replace(outcome, confirmed=True)


def _free_mib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) >> 10
    return 1024
