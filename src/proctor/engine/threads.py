"""Blocking calls beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def beside(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Run a call that blocks in a thread, or at once when the interpreter is ending and there are no new threads."""
    try:
        work = asyncio.to_thread(call, *args, **options)
        return await work
    except RuntimeError as exc:
        if "after" not in str(exc) or "shutdown" not in str(exc):
            raise
        return call(*args, **options)
