"""How much a key may spend in a UTC day, and the refusals."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from proctor.core.errors import InputError
from proctor.core.sandbox import SandboxError
from proctor.core.settings import Settings
from proctor.meter.prices import dollars

LOCAL = "local"  # the key of whoever uses this process without a server
SECTION = "limits"
MOST_MICROS = 10**15


@dataclass(frozen=True, slots=True)
class DailyLimit:
    """Of one key, as things stand.

    Attributes:
        limit_micros: that may be spent in a day; None: any sum.
        used_micros: of this day, with what runs counted up to now.
        reserved_micros: that running sandboxes may still cost until they reach their own ceilings.
        resets_at: when the next day begins, as ``2026-12-01T00:00:00Z``.
    """

    key: str
    limit_micros: int | None
    used_micros: int
    reserved_micros: int
    resets_at: str

    @property
    def remaining_micros(self) -> int | None:
        """The highest ceiling that a new sandbox may have now; None: any."""
        if self.limit_micros is None:
            return None
        return max(0, self.limit_micros - self.used_micros - self.reserved_micros)

    def to_wire(self) -> dict[str, str | None]:
        """``limitMicros``, ``usedMicros``, ``remainingMicros``, as text; None where there is no limit."""
        told = {
            "limitMicros": self.limit_micros,
            "usedMicros": self.used_micros,
            "remainingMicros": self.remaining_micros,
        }
        return {name: None if value is None else str(value) for name, value in told.items()}

    def admit(self, max_cost_micros: int | None = None) -> None:
        """See that a sandbox with such a ceiling may be made.

        Raises:
            SandboxError: ``spending_limit_reached`` (402) or ``budget_exceeded`` (409).
        """
        remaining = self.remaining_micros
        if remaining is None:
            return
        self._not_spent()
        if max_cost_micros is not None and max_cost_micros > remaining:
            raise self._beyond(max_cost_micros, remaining)

    def admit_raised(self, max_cost_micros: int) -> None:
        """See that a running sandbox may have such a ceiling, for which ``reserved_micros`` is as if it had it.

        Raises:
            SandboxError: as for ``admit``.
        """
        if self.limit_micros is None:
            return
        self._not_spent()
        over = self.used_micros + self.reserved_micros - self.limit_micros
        if over > 0:
            raise self._beyond(max_cost_micros, max(0, max_cost_micros - over))

    def _not_spent(self) -> None:
        if self.limit_micros is not None and self.used_micros >= self.limit_micros:
            raise SandboxError(
                f"the key {self.key!r:.80} has spent {dollars(self.used_micros)} today (UTC), and its daily limit is "
                f"{dollars(self.limit_micros)}",
                code="spending_limit_reached",
                status=402,
                hint=f"it can spend again from {self.resets_at}; a higher limit is daily_micros in the settings, section [limits]",
            )

    def _beyond(self, asked: int, most: int) -> SandboxError:
        return SandboxError(
            f"max_cost_micros is {asked}, and the key {self.key!r:.80} can give it {most} of its daily limit of "
            f"{self.limit_micros}: {self.used_micros} are spent, and the rest is set aside for what runs",
            code="budget_exceeded",
            status=409,
            hint=f"give {most} or less, wait until others have ended, or until {self.resets_at}",
        )


def daily_micros(settings: Settings) -> int | None:
    """``daily_micros`` of the section ``[limits]``: for each key that has no other; None where it is not set.

    Raises:
        InputError: it is unusable, or the section holds another name.
    """
    found = settings.section(SECTION, ("daily_micros",)).get("daily_micros")
    return None if found is None else found.whole(most=MOST_MICROS)


def whole_micros(value: int | None, field: str) -> int | None:
    """The same value.

    Raises:
        InputError: it is neither None nor a whole number from 0 to 10^15.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_MICROS:
        raise InputError(
            f"{value!r:.60} is not a whole number from 0 to {MOST_MICROS}; a dollar is 1000000", field=field
        )
    return value


def text(value: str, field: str, *, least: int = 1) -> str:
    """The same text: an id, a key, a name or a value of a label.

    Raises:
        InputError: not a text of 1 (``least``) to 256 characters, or with such as no file can hold.
    """
    if isinstance(value, str) and least <= len(value) <= 256 and "\0" not in value:
        with contextlib.suppress(UnicodeEncodeError):
            value.encode()
            return value
    raise InputError(f"{value!r:.80} is not a text of {least} to 256 characters without NUL or surrogates", field=field)
