"""The engine: slots, each with its agent, and jobs that find their way to them.

One engine serves one process; it lives on one event loop. ``shared`` puts it
on a thread of its own for callers of every other kind.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from proctor.core.errors import InfrastructureError, InputError, IsolationUnavailable
from proctor.core.image import Image
from proctor.core.outcome import Outcome
from proctor.engine import capacity
from proctor.engine.admission import Admission, Ticket
from proctor.engine.job import Job, Pair
from proctor.engine.link import Link
from proctor.engine.pair import run_pair
from proctor.engine.settling import DECISIVE, Settling, Todo
from proctor.guest import protocol
from proctor.images.host import host_image
from proctor.isolation.base import Boundary
from proctor.isolation.choice import boundary_for

ATTEMPTS = 5  # agents that may fail under a case in a row before it is an infrastructure error
CLOSED = "the engine was closed"


class Engine:
    """Runs jobs on this host.

    Args:
        slots: jobs at once; None is one per usable core.
        isolation: ``auto``, ``jail``, ``degraded``, ``gvisor`` or ``microvm``; see ``boundary_for``.
        memory_mib: budget for all jobs together; None is 0.8 of what is free now.
        image: what programs see; None is the host's interpreter, bare.
        reuse: programs that an agent and its wall serve before another takes their place; None: any number. Whatever
            it is, one behind which a program left processes serves no other.

    Raises:
        InputError: ``reuse`` is none of these.
    """

    def __init__(
        self, *, slots: int | None = None, isolation: str = "auto", memory_mib: int | None = None,
        image: Image | None = None, boundary: Boundary | None = None, reuse: int | None = None,
    ) -> None:  # fmt: skip
        if reuse is not None and (type(reuse) is not int or reuse < 1):
            raise InputError(f"{reuse!r} is not a whole number from 1, or None for any number", field="reuse")
        self.reuse = reuse
        self.slots = slots or capacity.cores()
        self.boundary = boundary or boundary_for(isolation)
        self.image = image or host_image()
        self._admission = Admission(self.slots, memory_mib or int(0.8 * capacity.free_mib()))
        self._gates: dict[Ticket, asyncio.Event] = {}
        self._idle: list[Link] = []
        self._coming: list[asyncio.Task[Link]] = []  # agents that take the place of those that have served
        self._links: set[Link] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._runs: set[object] = set()
        self._number = 0
        self._prepared = False
        self._closed = ""  # why there will be no more jobs
        self.features: dict[str, Any] = {}
        self.replaced = 0
        _living.add(self)

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
        if self._links:
            return
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self._idle.append(await self._new_link())
                    break
                except IsolationUnavailable:
                    raise
                except InfrastructureError:
                    if attempt == ATTEMPTS:
                        raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all agents and wait until nothing of them is left; jobs under way end with an error outcome."""
        self._closed = self._closed or CLOSED
        self._idle.clear()
        self._coming.clear()
        for gate in list(self._gates.values()):
            gate.set()
        for link in list(self._links):
            self.end(link)
        while self._endings:
            await asyncio.wait(self._endings)
        self.boundary.close()
        while self._runs:  # each sees that it is over at its next step
            await asyncio.sleep(0.001)

    @property
    def agent_mib(self) -> int:
        """Memory that an idle slot may take beside its job."""
        return self.boundary.agent_mib

    @property
    def closed(self) -> str:
        """Why there will be no more jobs; empty while there may be."""
        return self._closed

    def pids(self) -> list[int]:
        """Supervisors of the agents that live now; from any thread."""
        return [link.agent.process.pid for link in list(self._links)]

    def _forget(self) -> None:
        """In a forked child: the agents are the parent's, and so is the event loop's poll object.

        So nothing is told to an agent and nothing is asked of the loop; only
        the copies of descriptors that keep agents alive are closed.
        """
        self._closed = "this engine belongs to the process that was forked; make another"
        for link in list(self._links):
            link.agent.forget()

    async def _new_link(self) -> Link:
        if not self._prepared and not self._closed:
            try:
                await asyncio.to_thread(self.boundary.prepare, self.image)
            except OSError as exc:
                raise InfrastructureError(f"what agents start from cannot be made: {exc}") from exc
            self._prepared = True
        if self._closed:
            raise InfrastructureError(self._closed)
        self._number += 1
        link = Link.spawn(self.boundary, self.image, self._number)
        self._links.add(link)
        try:
            await link.ready()
        except BaseException:
            self.end(link)
            raise
        self.features = link.features
        return link

    def end(self, link: Link) -> asyncio.Task[None]:
        """Begin to end an agent; the task ends when nothing of it is left."""
        task = asyncio.get_running_loop().create_task(link.close())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        task.add_done_callback(lambda _: self._links.discard(link))
        return task

    async def run(
        self, job: Job | Pair, *, owner: object = None, on_outcome: Callable[[int, Outcome], None] | None = None
    ) -> list[Outcome]:
        """Run every case of a job, or both halves of a pair; the outcomes are in the order of the cases.

        An infrastructure fault is in the outcome (``error``), never raised.
        Cancelling the task ends the program at once.

        Args:
            owner: jobs of one owner queue behind each other, owners take turns.
            on_outcome: called with (index, outcome), in the order of the
                cases, as soon as an outcome is final. What it raises ends the job.
        """
        owner = owner if owner is not None else object()
        if isinstance(job, Pair):
            return await self._pair(job, owner, on_outcome)
        settling = Settling(job, on_outcome)
        self._runs.add(settling)
        try:
            while todo := settling.todo():
                await self._attempt(job, todo, owner, settling)
                settling.settle(todo)
        finally:
            self._runs.discard(settling)
        return settling.result()

    async def _pair(
        self, pair: Pair, owner: object, on_outcome: Callable[[int, Outcome], None] | None
    ) -> list[Outcome]:
        self._runs.add(pair_run := object())
        try:
            outcomes = await run_pair(self, pair, owner, ATTEMPTS)
        finally:
            self._runs.discard(pair_run)
        for index, outcome in enumerate(outcomes if on_outcome else ()):
            on_outcome(index, outcome)  # type: ignore[misc]  # there is one
        return outcomes

    async def _attempt(self, job: Job, todo: Todo, owner: object, settling: Settling) -> None:
        """Give each case an outcome, on as many agents as it takes, up to ATTEMPTS."""
        faults: list[InfrastructureError] = []
        memory = max(job.limits.memory_mib, job.compile_limits.memory_mib if job.program.compile else 0)
        while left := settling.missing(todo.cases):
            if self._closed:
                return settling.fail(left, self._closed)
            if len(faults) == ATTEMPTS:
                return settling.fail(left, f"after {ATTEMPTS} attempts: {faults[-1]}")
            if len(faults) >= 2 and all(isinstance(fault, _Filled) for fault in faults[-2:]):
                settling.filled(left, compiling=faults[-1].args[1])
                faults.clear()
                continue
            before = settling.count()
            ticket = Ticket(owner, memory + self.agent_mib, todo.alone)
            await self.admitted(ticket)
            try:
                await self._on_a_link(job, replace(todo, cases=left), settling, ticket, fresh=bool(faults))
            except IsolationUnavailable as exc:
                return settling.fail(left, str(exc))
            except InfrastructureError as exc:
                if settling.count() > before:
                    faults.clear()  # it got further: the next fault is another case's
                faults.append(exc)
                self.replaced += 1
        return None

    async def _on_a_link(self, job: Job, todo: Todo, settling: Settling, ticket: Ticket, *, fresh: bool) -> None:
        """Lease an agent and run cases on it. The ticket is given back, but not before an agent that failed is gone."""
        try:
            link = await self.lease(fresh)
        except BaseException:
            self.leave(ticket)
            raise
        self.make_room()
        try:
            failed = await link.run(
                job.program, todo.cases, job.limits, job.compile_limits, stop_after=settling.stop_after(todo),
                cpu_factor=1.0 if todo.alone else DECISIVE, on_outcome=settling.add,
            )  # fmt: skip
        except BaseException as exc:
            ending = self.end(link)
            ending.add_done_callback(lambda _: self.leave(ticket))
            if not isinstance(exc, InfrastructureError):
                raise
            await asyncio.shield(ending)
            if link.agent.process.returncode == protocol.STATUS_MEMORY:
                raise _Filled(f"{exc} (the kernel killed for memory in its group)", link.compiling) from exc
            raise
        self.give_back(link, ticket)
        if failed is not None:
            settling.not_compiled(todo.cases, failed)

    async def lease(self, fresh: bool) -> Link:
        """An idle agent that seems well, or a new one. After a fault a new one: idle ones may have been hit by the same."""
        while self._idle:
            link = self._idle.pop()
            if link.usable and not fresh:
                return link
            self.end(link)
            if fresh:
                break
        while self._coming and not fresh:
            task = self._coming.pop(0)
            try:
                link = await asyncio.shield(task)
            except asyncio.CancelledError:
                self._coming.insert(0, task)
                raise
            if link.usable:
                return link
            self.end(link)
        return await self._new_link()

    def make_room(self) -> None:
        """End idle agents whose own memory does not fit beside the jobs that run: the next small jobs get new ones."""
        while self._idle and self._admission.used_mib + len(self._idle) * self.agent_mib > self._admission.memory_mib:
            self.end(self._idle.pop(0))

    def give_back(self, link: Link, ticket: Ticket | None = None) -> None:
        """An agent that has done its job is idle again, and the ticket's slot free; none is kept once it is closed."""
        over = link.suspect or (self.reuse is not None and link.served >= self.reuse)
        if not self._closed and not over:
            self._idle.append(link)
            if ticket:
                self.leave(ticket)
            return
        ending = self.end(link)
        if not self._closed and len(self._idle) + len(self._coming) < self.slots:
            self._coming.append(asyncio.get_running_loop().create_task(self._new_link()))
            self._coming[-1].add_done_callback(_retrieved)
        if ticket:
            ending.add_done_callback(lambda _: self.leave(ticket))

    async def admitted(self, ticket: Ticket) -> None:
        """Wait until a ticket's job may run; give it back with ``leave``."""
        gate = self._gates[ticket] = asyncio.Event()
        self._open(self._admission.add(ticket))
        try:
            await gate.wait()
        except BaseException:
            self.leave(ticket)
            raise
        finally:
            self._gates.pop(ticket, None)

    def leave(self, ticket: Ticket) -> None:
        """The ticket's job is over."""
        self._open(self._admission.remove(ticket))

    def _open(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if gate := self._gates.get(ticket):
                gate.set()


def _retrieved(task: asyncio.Task[Link]) -> None:
    """Take note of its exception: whoever wants this agent is told, and perhaps nobody does."""
    if not task.cancelled():
        task.exception()


class _Filled(InfrastructureError):
    """An agent broke in a group that had no memory left. Once that may be chance, twice it is the program's doing."""

    def __str__(self) -> str:
        return str(self.args[0])


_living: weakref.WeakSet[Engine] = weakref.WeakSet()
_parents: list[Engine] = []  # kept, so that nothing of theirs is finalised in a child


def _after_fork() -> None:
    for engine in list(_living):
        engine._forget()
        _parents.append(engine)
    _living.clear()


os.register_at_fork(after_in_child=_after_fork)
