"""Fixtures that several tests share, as pytest's scopes do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Scope:
    """Fixtures that several tests share: those of one class, or of the module."""

    def __init__(self) -> None:
        self.made: dict[str, tuple[Any, Any]] = {}  # value, and the param that it was made with
        self.ends: list[tuple[str, Callable[[], Any]]] = []

    def close(self, name: str | None = None) -> None:
        """Finish them, the last first; ``name``: only that one and what was made after it."""
        while self.ends and (name is None or name in self.made):
            of, end = self.ends.pop()
            self.made.pop(of, None)
            end()
        if name is None:
            self.made.clear()


def nothing() -> None:
    """The end of a fixture that has none."""
