"""The price list, and exact sums of money.

Money is counted in picodollars, millionths of a millionth of a dollar, as
whole numbers. The cost of one sandbox is its exact cost with the part of a
picodollar left off. Costs are added before they are rounded: a sum in micros
(millionths of a dollar) is the sum of picodollars with the part of a micro
left off. So nobody is charged for a part of a micro, and "has cost at least
N micros" is the same before and after rounding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from fractions import Fraction

from proctor.core.settings import Settings, exact

PICOS = 10**6  # of a micro
MICROS = 10**6  # of a dollar
GB = 10**9  # bytes
SECTION = "prices"
_DOLLAR = PICOS * MICROS
_HOUR_US = 3600 * 10**6
_MONTH_US = 30 * 24 * _HOUR_US
_MOST = 1000  # dollars


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars, exactly: text, Decimal, int, float or Fraction become the Fraction that was written.

    Attributes:
        cpu_hour: of one vCPU for an hour.
        memory_hour: of one GiB for an hour.
        storage_month: of one GB (10^9 bytes) for 30 days.
        cpu_floor: share of its vCPUs that a running sandbox is charged at least.
        gpu_second: of one GPU for a second, as long as a sandbox has it.

    Raises:
        InputError: one is no number from 0 to 1000 with at most 12 decimals; from 0 to 1 for ``cpu_floor``.
    """

    cpu_hour: Fraction = Fraction(25, 1000)
    memory_hour: Fraction = Fraction(75, 10000)
    storage_month: Fraction = Fraction(8, 100)
    cpu_floor: Fraction = Fraction(1, 20)
    gpu_second: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = exact(getattr(self, each.name), most=_most(each.name), field=f"{SECTION}.{each.name}")
            object.__setattr__(self, each.name, value)

    @classmethod
    def from_settings(cls, settings: Settings) -> Prices:
        """From the section ``[prices]``; what is not set is as above.

        Raises:
            InputError: a value is unusable or has a name that there is not.
        """
        found = settings.section(SECTION, NAMES)
        return cls(**{name: setting.number(most=_most(name)) for name, setting in found.items()})

    def to_json(self) -> str:
        """One line that says this list, the same for the same list."""
        return json.dumps({name: str(getattr(self, name)) for name in NAMES})

    @classmethod
    def from_json(cls, text: str) -> Prices:
        """What ``to_json`` gave.

        Raises:
            ValueError: it is something else.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or set(found) not in (set(NAMES), set(NAMES) - {_LATER}):
            raise ValueError(f"not a price list: {text[:80]!r}")
        return cls(**{name: Fraction(value) for name, value in found.items()})

    def charged_us(self, cpu_us: int, wall_us: int, vcpu_millionths: int) -> int:
        """Microseconds of CPU time that are charged: those that were measured, at least the floor's share."""
        floor = self.cpu_floor
        return max(cpu_us, wall_us * vcpu_millionths * floor.numerator // (10**6 * floor.denominator))

    def picos(self, cpu_us: int, wall_us: int, vcpu_millionths: int, memory_mib: int, gpus: int = 0) -> int:
        """Cost of a sandbox so far, in whole picodollars.

        Args:
            cpu_us, wall_us: microseconds of CPU time that were measured, and of running.
        """
        floor, cpu, memory = self.cpu_floor, self.cpu_hour, self.memory_hour
        parts = 10**6 * floor.denominator  # of a microsecond, in which the floor is a whole number
        charged = max(cpu_us * parts, wall_us * vcpu_millionths * floor.numerator)
        cpu_over = cpu.denominator * _HOUR_US * parts
        memory_over = memory.denominator * _HOUR_US * 1024
        cpu_cost = charged * cpu.numerator * _DOLLAR
        memory_cost = wall_us * memory_mib * memory.numerator * _DOLLAR
        cost, over = cpu_cost * memory_over + memory_cost * cpu_over, cpu_over * memory_over
        if gpus:
            gpu_over = self.gpu_second.denominator * 10**6
            cost, over = cost * gpu_over + wall_us * gpus * self.gpu_second.numerator * _DOLLAR * over, over * gpu_over
        return cost // over

    def storage_picos(self, size: int, kept_us: int) -> int:
        """Cost of ``size`` bytes that were kept for so many microseconds, in whole picodollars."""
        price = self.storage_month
        return max(0, size * kept_us * price.numerator * _DOLLAR // (price.denominator * GB * _MONTH_US))


NAMES = tuple(each.name for each in fields(Prices))
_LATER = "gpu_second"  # lists that were kept before there was such a price have none, and charge none


def _most(name: str) -> int:
    return 1 if name == "cpu_floor" else _MOST


def dollars(micros: int) -> str:
    """``$7.777777``."""
    sign = "-" if micros < 0 else ""
    return f"{sign}${abs(micros) // MICROS:,}.{abs(micros) % MICROS:06d}"
