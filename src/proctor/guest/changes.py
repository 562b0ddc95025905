"""What a program did to the containers that sealed tests passed to it, done here too."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from . import sealing

Again = Callable[[list[Any]], Callable[[Any], Any]]


def change(old: Any, items: list[Any], again: Again) -> None:
    """Make a container that was passed what the program made of it; parts that are still of a kind stay the same.

    ``again``: of what a container held, makes what finds an object among it.
    """
    if isinstance(old, dict):
        find = again(list(old.values()))
        fresh = {key: merged(old[key], find(value), again) if key in old else find(value) for key, value in items}
        old.clear()
        for key, value in fresh.items():  # one by one: an ordered dict keeps their order, and a Counter does not add
            old[key] = value
    elif isinstance(old, set):
        find = again(list(old))
        old.clear()
        old.update(map(find, items))
    elif isinstance(old, list | collections.deque | bytearray):
        kept = list(old)
        find = again(kept)
        fresh_items = [
            merged(kept[at], find(item), again) if at < len(kept) else find(item) for at, item in enumerate(items)
        ]
        old.clear()
        old.extend(fresh_items)
    else:
        raise ValueError("no container")


def merged(old: Any, new: Any, again: Again) -> Any:
    """``old``, changed to equal ``new``, where both are containers of a kind; else ``new``."""
    if type(old) is type(new) and isinstance(new, sealing.MUTABLE):
        change(old, list(new.items()) if isinstance(new, dict) else list(new), again)
        return old
    return new
