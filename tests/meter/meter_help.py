"""What tests of the ledger share: a clock that is set by hand, owners that are gone, exact costs by another way."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from proctor.core.process import this_process
from proctor.core.sandbox import SandboxSpec
from proctor.meter.ledger import Ledger
from proctor.meter.prices import Prices

NOON = 1_790_000_000 // 86400 * 86400 + 43200  # of some day, in seconds since the epoch


class Clock:
    """Seconds since the epoch, and microseconds since boot: each set by the test."""

    def __init__(self, now: float = NOON) -> None:
        self.now, self.since_boot = now, 1000.0

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.since_boot += seconds

    def time(self) -> float:
        return self.now

    def ticks(self) -> int:
        return round(self.since_boot * 1e6)


def gone(number: int = 0) -> str:
    """Name of a process of this boot that runs no more: its number is ours, its start is not."""
    return f"{this_process().rpartition('/')[0]}/{number}"


def ledger(path: Path, clock: Clock | None = None, *, name: str | None = None, **more: object) -> Ledger:
    clock = clock or Clock()
    owner = this_process if name is None else lambda: name
    return Ledger(path, clock=clock.time, ticks=clock.ticks, name=owner, **more)  # type: ignore[arg-type]


def spec(vcpu: float = 1.0, memory_mib: int = 2048, **more: object) -> SandboxSpec:
    return SandboxSpec(vcpu=vcpu, memory_mib=memory_mib, **more)  # type: ignore[arg-type]


def dollars(cpu_s: object, wall_s: object, vcpu: object, memory_mib: int, prices: Prices | None = None) -> Fraction:
    """The definition, in so many words."""
    prices = prices or Prices()
    cpu, wall = Fraction(str(cpu_s)), Fraction(str(wall_s))
    charged = max(cpu, wall * Fraction(str(vcpu)) * prices.cpu_floor)
    return charged / 3600 * prices.cpu_hour + wall / 3600 * Fraction(memory_mib, 1024) * prices.memory_hour


def micros(cost: Fraction) -> int:
    return int(cost * 10**6 // 1)
