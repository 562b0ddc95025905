"""Who gets room for a sandbox: first come, first served, within a number, a sum of memory, and the host's GPUs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from proctor.core.errors import InfrastructureError
from proctor.core.sandbox import SandboxError
from proctor.engine.gpus import Pool
from proctor.isolation.gpus import Gpu, Gpus, Places

_LOOK_S = 0.1  # between looks at GPUs that another process has: it tells nobody when it is done


@dataclass(eq=False, slots=True)
class Seat:
    """Room for one sandbox."""

    memory_mib: int
    given: asyncio.Future[None]
    on_wait: Callable[[int], None] | None = None
    told: int = field(default=-1)
    gpus: int = 0
    models: tuple[str, ...] = ()
    devices: tuple[Gpu, ...] = ()  # once it is given


class Queue:
    """Sandboxes at once, the MiB that all of them may have, and their GPUs; on one event loop.

    Strictly in order: a large one at the head holds up small ones behind it, so that it cannot starve. Only one that
    waits for a GPU alone lets others go before it, if they want none that it waits for.
    """

    def __init__(self, most: int, memory_mib: int, gpus: Pool | None = None) -> None:
        self.most, self.memory_mib = most, memory_mib
        self.gpus = gpus or Pool(Gpus(Places()))
        self._look: asyncio.TimerHandle | None = None
        self.used_mib = 0
        self.taken: set[Seat] = set()
        self.waiting: deque[Seat] = deque()

    async def seat(
        self, memory_mib: int, wait_s: float | None, on_wait: Callable[[int], None] | None = None, *, gpus: int = 0,
        models: tuple[str, ...] = (),
    ) -> Seat:  # fmt: skip
        """A seat, when it is this caller's turn. ``gpus`` of ``models`` there must be: see ``Pool.check``.

        Raises:
            SandboxError: ``no_capacity`` after ``wait_s`` seconds; ``too_large`` where it could never be.
        """
        if memory_mib > self.memory_mib:
            raise SandboxError(
                f"memory_mib: a sandbox of {memory_mib} MiB is more than this host gives to all of them "
                f"({self.memory_mib} MiB)", code="too_large", status=400, hint="ask for less memory",
            )  # fmt: skip
        seat = Seat(memory_mib, asyncio.get_running_loop().create_future(), on_wait, gpus=gpus, models=models)
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
            held, there = len(self.gpus.held), len(self.gpus.found.devices)
            and_gpus = f" and {gpus} GPU" if gpus else ""
            of_gpus = f" and {held} of {there} GPUs; others may be another process's" if gpus else ""
            raise SandboxError(
                f"no room for a sandbox of {memory_mib} MiB{and_gpus} in {wait_s:g} s: {len(self.taken)} of {self.most} "
                f"are there, with {self.used_mib} of {self.memory_mib} MiB{of_gpus}", code="no_capacity", status=409,
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
            self.gpus.give_back(seat.devices)
        elif seat in self.waiting:
            self.waiting.remove(seat)
        self._give()
        self._tell()

    def close(self) -> None:
        """Nobody gets one any more."""
        if self._look is not None:
            self._look.cancel()
        for seat in self.waiting:
            if not seat.given.done():
                seat.given.set_exception(InfrastructureError("the engine of the sandboxes was closed"))

    def _give(self) -> None:
        at, wanted, elsewhere = 0, set[Gpu](), False  # GPUs that somebody before waits for
        while at < len(self.waiting):
            seat = self.waiting[at]
            if seat.given.done():  # cancelled
                del self.waiting[at]
                continue
            devices = self.gpus.take(seat.gpus, seat.models, wanted) if seat.gpus else ()
            if devices is None:
                elsewhere = elsewhere or self.gpus.elsewhere
                wanted.update(self.gpus.fitting(seat.models))
                at += 1
                continue
            if len(self.taken) >= self.most or self.used_mib + seat.memory_mib > self.memory_mib:
                self.gpus.give_back(devices)
                break
            del self.waiting[at]
            seat.devices = devices
            self.taken.add(seat)
            self.used_mib += seat.memory_mib
            seat.given.set_result(None)
        if elsewhere and self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self._give()
        self._tell()

    def _tell(self) -> None:
        for place, seat in enumerate(self.waiting):
            if seat.on_wait and seat.told != place:
                seat.told = place
                seat.on_wait(place)
