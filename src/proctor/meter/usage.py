"""What one sandbox used, what that costs, and when it can have cost a given sum at the soonest."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction

from proctor.core.errors import InputError
from proctor.meter.prices import PICOS, Prices

MOST_SECONDS = 10**9
MOST_VCPU = 4096
MOST_MIB = 1 << 30
MOST_GPUS = 4096
_US = 10**6


def microseconds(seconds: float, field: str, most: int = MOST_SECONDS) -> int:
    """Whole microseconds, the nearest.

    Raises:
        InputError: not a number from 0 to 10^9 (``most``).
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= most:
        raise InputError(f"{seconds!r:.60} is not a number of seconds from 0 to {most}", field=field)
    return round(seconds * _US)


def millionths(vcpu: float) -> int:
    """Whole millionths of a vCPU.

    Raises:
        InputError: not a number from 0 to 4096.
    """
    if isinstance(vcpu, bool) or not isinstance(vcpu, int | float) or not 0 <= vcpu <= MOST_VCPU:
        raise InputError(f"{vcpu!r:.60} is not a number of vCPUs from 0 to {MOST_VCPU}", field="vcpu")
    return round(vcpu * 10**6)


def mebibytes(memory: int) -> int:
    """The same number.

    Raises:
        InputError: not a whole number from 0 to 2^30.
    """
    if isinstance(memory, bool) or not isinstance(memory, int) or not 0 <= memory <= MOST_MIB:
        raise InputError(f"{memory!r:.60} is not a whole number of MiB from 0 to {MOST_MIB}", field="memory_mib")
    return memory


def whole_gpus(gpus: int) -> int:
    """The same number.

    Raises:
        InputError: not a whole number from 0 to 4096.
    """
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 <= gpus <= MOST_GPUS:
        raise InputError(f"{gpus!r:.60} is not a whole number of GPUs from 0 to {MOST_GPUS}", field="gpu")
    return gpus


@dataclass(frozen=True, slots=True)
class Usage:
    """From the start of a sandbox until now, or until its end.

    Attributes:
        cpu_seconds: CPU time of all its processes, measured.
        wall_seconds: how long it has run, by a clock that nobody sets.
        vcpu: as in its ``SandboxSpec``. memory_mib: likewise. gpus: its ``gpu``.

    Raises:
        InputError: one is no number, below 0, or beyond 10^9 s, 4096 vCPUs, 2^30 MiB or 4096 GPUs.
    """

    cpu_seconds: float
    wall_seconds: float
    vcpu: float
    memory_mib: int
    gpus: int = 0

    def __post_init__(self) -> None:
        self._whole()

    def _whole(self) -> tuple[int, int, int, int, int]:
        return (
            microseconds(self.cpu_seconds, "cpu_seconds"),
            microseconds(self.wall_seconds, "wall_seconds"),
            millionths(self.vcpu),
            mebibytes(self.memory_mib),
            whole_gpus(self.gpus),
        )

    def charged_cpu_seconds(self, prices: Prices) -> float:
        """What was measured, or the floor's share of its vCPUs where that is more."""
        cpu, wall, vcpu, *_ = self._whole()
        return prices.charged_us(cpu, wall, vcpu) / _US

    @property
    def gib_seconds(self) -> float:
        """Memory that was set aside, in GiB, times seconds."""
        return self.wall_seconds * self.memory_mib / 1024

    @property
    def gpu_seconds(self) -> float:
        """GPUs that it had, times seconds."""
        return self.wall_seconds * self.gpus

    def picos(self, prices: Prices) -> int:
        """Cost in whole picodollars."""
        return prices.picos(*self._whole())

    def cost_micros(self, prices: Prices) -> int:
        """Cost in whole micros: the part of one is left off."""
        return self.picos(prices) // PICOS

    def has_reached(self, ceiling_micros: int, prices: Prices) -> bool:
        """It has cost that much or more; exact."""
        return self.cost_micros(prices) >= ceiling_micros

    def seconds_until(self, ceiling_micros: int, prices: Prices, *, cpus: float | None = None) -> float:
        """Seconds until the soonest moment at which it can have cost that much: 0.0 if it has, inf if it never can.

        Check ``has_reached`` then, with figures of then, and ask again if it has not; before then there is nothing
        to check. What is asked again comes nearer by a share of what is left, so wait for a small time at least.

        Args:
            cpus: CPUs that it can use at once; None for all of the host's. Give ``vcpu`` only where that is enforced.
        """
        if self.has_reached(ceiling_micros, prices):
            return 0.0
        cpu, wall, vcpu, memory, gpus = self._whole()
        rate = Fraction(millionths(cpus) if cpus is not None else (os.cpu_count() or 1) * 10**6, 10**6)
        cpu_us = prices.cpu_hour / (3600 * _US)  # dollars of a microsecond
        # What it has, whether it uses it or not.
        kept_us = prices.memory_hour * memory / (1024 * 3600 * _US) + prices.gpu_second * gpus / _US
        floor = prices.cpu_floor * vcpu / 10**6
        ceiling = Fraction(ceiling_micros, 10**6)
        soonest: Fraction | None = None
        # It is charged for what it uses, or for the floor if that is more: whichever gets there first.
        for used, each in ((Fraction(cpu), rate), (floor * wall, floor)):
            gain = each * cpu_us + kept_us
            if gain:
                left = (ceiling - used * cpu_us - wall * kept_us) / gain
                soonest = left if soonest is None else min(soonest, left)
        return math.inf if soonest is None else max(1, math.ceil(soonest)) / _US
