"""One sign that a reward may not have been earned; ``audit`` looks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One sign that a program shows.

    Attributes:
        signal: its name, one of ``SIGNALS``.
        weight: 0 to 1; mostly that of ``SIGNALS``.
        why: one line of printable text: what it means and the evidence.
        line: line of the program's code, from 1; None where it is no line's.
        excerpt: that line, or the evidence itself; escaped, at most 120 characters.
    """

    signal: str
    weight: float
    why: str
    line: int | None = None
    excerpt: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        row: dict[str, Any] = {"signal": self.signal, "weight": self.weight, "why": self.why}
        if self.line is not None:
            row["line"] = self.line
        if self.excerpt:
            row["excerpt"] = self.excerpt
        return row
