"""Who gets room for a sandbox: first come, first served, within a number and a sum of memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from proctor.core.errors import InfrastructureError
from proctor.core.sandbox import SandboxError


@dataclass(eq=False, slots=True)
class Seat:
    """Room for one sandbox."""

    memory_mib: int
    given: asyncio.Future[None]
    on_wait: Callable[[int], None] | None = None
    told: int = field(default=-1)


class Queue:
    """Sandboxes at once, and the MiB that all of them may have; on one event loop.

    Strictly in order: a large one at the head holds up small ones behind it, so that it cannot starve.
    """

    def __init__(self, most: int, memory_mib: int) -> None:
        self.most, self.memory_mib = most, memory_mib
        self.used_mib = 0
        self.taken: set[Seat] = set()
        self.waiting: deque[Seat] = deque()

    async def seat(self, memory_mib: int, wait_s: float | None, on_wait: Callable[[int], None] | None = None) -> Seat:
        """A seat, when it is this caller's turn.

        Raises:
            SandboxError: ``no_capacity`` after ``wait_s`` seconds; ``too_large`` where it could never be.
        """
        if memory_mib > self.memory_mib:
            raise SandboxError(
                f"memory_mib: a sandbox of {memory_mib} MiB is more than this host gives to all of them "
                f"({self.memory_mib} MiB)", code="too_large", status=400, hint="ask for less memory",
            )  # fmt: skip
        seat = Seat(memory_mib, asyncio.get_running_loop().create_future(), on_wait)
        self.waiting.append(seat)
        self._give()
        try:
            if not seat.given.done():
                self._tell()
                async with asyncio.timeout(wait_s):
                    await seat.given
            seat.given.result()
        except TimeoutError:
            self.leave(seat)
            raise SandboxError(
                f"no room for a sandbox of {memory_mib} MiB in {wait_s:g} s: {len(self.taken)} of {self.most} are there, "
                f"with {self.used_mib} of {self.memory_mib} MiB", code="no_capacity", status=409,
                hint="wait longer (wait_for_capacity), or stop one",
            ) from None  # fmt: skip
        except BaseException:
            self.leave(seat)
            raise
        return seat

    def leave(self, seat: Seat) -> None:
        """It is not needed any more, whether it was given or not; may be called again."""
        if seat in self.taken:
            self.taken.remove(seat)
            self.used_mib -= seat.memory_mib
        elif seat in self.waiting:
            self.waiting.remove(seat)
        self._give()
        self._tell()

    def close(self) -> None:
        """Nobody gets one any more."""
        for seat in self.waiting:
            if not seat.given.done():
                seat.given.set_exception(InfrastructureError("the engine of the sandboxes was closed"))

    def _give(self) -> None:
        while self.waiting:
            seat = self.waiting[0]
            if len(self.taken) >= self.most or self.used_mib + seat.memory_mib > self.memory_mib:
                return
            self.waiting.popleft()
            if seat.given.done():
                continue  # cancelled
            self.taken.add(seat)
            self.used_mib += seat.memory_mib
            seat.given.set_result(None)

    def _tell(self) -> None:
        for place, seat in enumerate(self.waiting):
            if seat.on_wait and seat.told != place:
                seat.told = place
                seat.on_wait(place)
