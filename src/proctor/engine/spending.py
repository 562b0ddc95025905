"""What sandboxes of this engine cost: told to the ledger, and held against their ceilings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from proctor.core.sandbox import SnapshotInfo, StopReason
from proctor.engine.sandbox import Sandbox
from proctor.meter.database import LedgerError
from proctor.meter.ledger import Ledger
from proctor.meter.prices import Prices
from proctor.meter.usage import Usage

CHECKPOINT_S = 5.0  # what a kill of this process may lose of a sandbox's account
_SOON_S = 0.02  # between two looks at one that is about to reach its ceiling


class Spending:
    """Accounts of the sandboxes of one engine, on its loop.

    Args:
        ledger: None keeps no account; ceilings hold all the same.
        ended: called with a sandbox that has reached its ceiling.
    """

    def __init__(self, ledger: Ledger | None, ended: Callable[[Sandbox], None]) -> None:
        self.ledger, self.ended = ledger, ended
        self.prices = ledger.prices if ledger else Prices()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def begin(self, box: Sandbox) -> None:
        """Open its account.

        Raises:
            SandboxError: ``spending_limit_reached`` (402) or ``budget_exceeded`` (409).
        """
        if self.ledger is not None:
            await asyncio.to_thread(self.ledger.open_sandbox, box.id, box.spec)

    async def set_ceiling(self, box: Sandbox, max_cost_micros: int) -> None:
        """Note another ceiling; raises as ``begin`` where the daily limit does not allow it."""
        if self.ledger is not None:
            await asyncio.to_thread(self.ledger.set_ceiling, box.id, max_cost_micros)

    def watch(self, box: Sandbox) -> None:
        """End it when it reaches its ceiling; to be called again when that was changed."""
        if (timer := self._timers.pop(box.id, None)) is not None:
            timer.cancel()
        if box.spec.max_cost_micros is None:
            return
        usage = self.usage(box)
        if usage.has_reached(box.spec.max_cost_micros, self.prices):
            self.ended(box)
            return
        enforced = box.group is not None and box.group.meter.has_quota
        wait = usage.seconds_until(box.spec.max_cost_micros, self.prices, cpus=box.spec.vcpu if enforced else None)
        if wait < float("inf"):
            loop = asyncio.get_running_loop()
            self._timers[box.id] = loop.call_later(min(max(wait, _SOON_S), 3600), self.watch, box)

    def usage(self, box: Sandbox) -> Usage:
        """What it has used up to now, or in all."""
        box.measure()
        return Usage(box.cpu_seconds, box.wall_seconds, box.spec.vcpu, box.spec.memory_mib, box.spec.gpu)

    async def keep(self, running: Callable[[], Iterable[Sandbox]]) -> None:
        """Tell the ledger every few seconds, until cancelled."""
        while self.ledger is not None:
            await asyncio.sleep(CHECKPOINT_S)
            boxes = list(running())
            for box in boxes:
                await box.ask_usage()
            figures = {box.id: (box.cpu_seconds, box.wall_seconds) for box in boxes}
            if figures:
                await asyncio.to_thread(self.ledger.checkpoints, figures)

    async def end(self, box: Sandbox, reason: StopReason) -> None:
        """Close its account with what it used in all."""
        if (timer := self._timers.pop(box.id, None)) is not None:
            timer.cancel()
        if self.ledger is not None:
            await asyncio.to_thread(self.ledger.close_sandbox, box.id, box.cpu_seconds, box.wall_seconds, reason=reason)

    async def stored(self, snapshot: SnapshotInfo, until: float | None = None) -> None:
        """A snapshot is kept, until its time is over or the moment ``until``."""
        if self.ledger is not None:
            end = snapshot.expires_at if until is None else until
            with contextlib.suppress(LedgerError):  # what is kept is kept, whether its price is known or not
                await asyncio.to_thread(self.ledger.store, snapshot.id, snapshot.size_bytes, snapshot.created_at, end)
