"""What a program did to the containers that sealed tests passed to it, done here too."""

from __future__ import annotations

import collections
from typing import Any

from . import sealing


def change(old: Any, items: list[Any]) -> None:
    """Make a container that was passed what the program made of it; parts that are still of a kind stay the same."""
    if isinstance(old, dict):
        fresh = {key: merged(old[key], value) if key in old else value for key, value in items}
        dict.clear(old)
        dict.update(old, fresh)
    elif isinstance(old, set):
        old.clear()
        old.update(items)
    elif isinstance(old, list | collections.deque | bytearray):
        kept = list(old)
        fresh_items = [merged(kept[at], item) if at < len(kept) else item for at, item in enumerate(items)]
        old.clear()
        old.extend(fresh_items)
    else:
        raise ValueError("no container")


def merged(old: Any, new: Any) -> Any:
    """``old``, changed to equal ``new``, where both are containers of a kind; else ``new``."""
    if type(old) is type(new) and isinstance(new, sealing.MUTABLE):
        change(old, list(new.items()) if isinstance(new, dict) else list(new))
        return old
    return new
