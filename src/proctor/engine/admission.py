"""Who runs next. Decides only: it does no input or output, and the engine acts on what it returns.

Owners (a batch, a caller) take turns, and within an owner the first come is
served first, so a batch of ten thousand does not hold up one job beside it. A
job waits until a slot and its memory are free. A job that asked to be alone
waits for all others to end, and no new ones start before it has run; then the
others have a few turns before the next of its kind.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import count

TURNS = 4  # jobs a slot between two that run alone, so that programs near their limit cannot hold up all others
_number = count()


@dataclass(eq=False, slots=True)
class Ticket:
    """A wish to run one job.

    Attributes:
        owner: whose turn it takes.
        memory_mib: what it may use; counted against the budget while it runs.
        alone: nothing else may run meanwhile.
    """

    owner: object
    memory_mib: int
    alone: bool = False
    number: int = field(default_factory=lambda: next(_number))


class Turns:
    """Tickets that wait: owners take turns, and within an owner the first come is served first."""

    def __init__(self) -> None:
        self._queues: OrderedDict[object, deque[Ticket]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, ticket: Ticket) -> None:
        """Put it behind its owner's others."""
        self._queues.setdefault(ticket.owner, deque()).append(ticket)

    def remove(self, ticket: Ticket) -> None:
        """It waits no more, if it did."""
        queue = self._queues.get(ticket.owner, deque())
        if ticket in queue:
            queue.remove(ticket)
            if not queue:
                del self._queues[ticket.owner]

    @property
    def next(self) -> Ticket:
        """Whose turn it is."""
        return next(iter(self._queues.values()))[0]

    def take(self) -> Ticket:
        """That one; its owner's others wait for all other owners."""
        owner, queue = next(iter(self._queues.items()))
        ticket = queue.popleft()
        if queue:
            self._queues.move_to_end(owner)
        else:
            del self._queues[owner]
        return ticket


class Admission:
    """Slots and memory of one host.

    Args:
        slots: jobs at once.
        memory_mib: what all running jobs together may be allowed.
    """

    def __init__(self, slots: int, memory_mib: int) -> None:
        self.slots, self.memory_mib = slots, memory_mib
        self._together, self._alone = Turns(), Turns()
        self._running: set[Ticket] = set()
        self._since_alone = slots * TURNS  # tickets admitted since one ran alone

    @property
    def waiting(self) -> int:
        """Tickets that are not yet admitted."""
        return len(self._together) + len(self._alone)

    @property
    def running(self) -> int:
        """Tickets that are admitted and not yet done."""
        return len(self._running)

    @property
    def used_mib(self) -> int:
        """What those that are admitted may use."""
        return sum(running.memory_mib for running in self._running)

    def add(self, ticket: Ticket) -> list[Ticket]:
        """Queue a ticket; returns the tickets that may start now."""
        (self._alone if ticket.alone else self._together).add(ticket)
        return self._admit()

    def remove(self, ticket: Ticket) -> list[Ticket]:
        """Forget a ticket, whether it waits or runs; returns the tickets that may start now."""
        if ticket in self._running:
            self._running.remove(ticket)
        else:
            (self._alone if ticket.alone else self._together).remove(ticket)
        return self._admit()

    def _fits(self, ticket: Ticket) -> bool:
        if not self._running:
            return True  # larger than the budget or not: alone it may try
        return len(self._running) < self.slots and self.used_mib + ticket.memory_mib <= self.memory_mib

    def _admit(self) -> list[Ticket]:
        started: list[Ticket] = []
        if any(ticket.alone for ticket in self._running):
            return started
        if self._alone and (self._since_alone >= self.slots * TURNS or not self._together):
            if not self._running:
                started.append(self._alone.take())
                self._since_alone = 0
                self._running.update(started)
            return started
        while self._together and self._fits(self._together.next):
            ticket = self._together.take()
            self._running.add(ticket)
            self._since_alone += 1
            started.append(ticket)
        return started
