"""Work for threads, while the interpreter runs and at its very end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.thread import ThreadPoolExecutor
from typing import Any


class LastExecutor(ThreadPoolExecutor):
    """Does the work itself where its threads take no more.

    An interpreter that ends stops them before anything is closed at exit; but an engine that is closed then still has
    accounts and leases to settle.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ``ThreadPoolExecutor``."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            done: Future[Any] = Future()
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as exc:
                done.set_exception(exc)
            return done
