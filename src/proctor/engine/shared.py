"""One engine for a whole process, on a thread of its own: for asyncio, threads and notebooks alike.

A fork does not inherit it: the child gets a new one when it first asks. When
the process ends, however it ends, its agents end.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from proctor.core.outcome import Outcome
from proctor.engine.engine import Engine
from proctor.engine.job import Job


class SyncEngine:
    """An Engine behind ordinary calls; every method may be used from any thread.

    Args:
        options: as for ``Engine``.

    Raises:
        IsolationUnavailable: the isolation that was asked for cannot be had here.
    """

    def __init__(self, **options: Any) -> None:
        self._engine = Engine(**options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proctor-engine", daemon=True)
        self._thread.start()
        self.closed = False
        try:
            self._call(self._engine.start())
        except BaseException:
            self.close()
            raise

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    @property
    def slots(self) -> int:
        """Jobs that run at once."""
        return self._engine.slots

    @property
    def isolation(self) -> str:
        """The level that is really in force."""
        return str(self._engine.features.get("level", ""))

    @property
    def features(self) -> dict[str, Any]:
        """What the newest agent said of its walls and meters."""
        return dict(self._engine.features)

    @property
    def replaced(self) -> int:
        """Agents that failed and were replaced."""
        return self._engine.replaced

    @property
    def image_digest(self) -> str:
        """What programs see, as one word."""
        return self._engine.image.digest

    def submit(
        self, job: Job, *, owner: object = None, on_outcome: Callable[[int, Outcome], None] | None = None
    ) -> Future[list[Outcome]]:
        """Queue a job; cancelling the future ends the program.

        ``on_outcome`` is called on the engine's thread: it must be quick.
        """
        return asyncio.run_coroutine_threadsafe(self._engine.run(job, owner=owner, on_outcome=on_outcome), self._loop)

    def run(self, job: Job, **options: Any) -> list[Outcome]:
        """Run a job and wait for it."""
        return self.submit(job, **options).result()

    def agent_pids(self) -> list[int]:
        """Supervisors of the agents that live now."""
        return [link.agent.process.pid for link in list(self._engine._links)]

    def close(self) -> None:
        """End all agents, wait until nothing of them is left, and stop the thread."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._engine.close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if not self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def abandon(self) -> None:
        """In a forked child: close the descriptors that are the parent's."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._engine.release()


_engines: dict[tuple[Any, ...], SyncEngine] = {}
_lock = threading.Lock()


def shared_engine(
    slots: int | None = None, isolation: str = "auto", packages: tuple[str, ...] = (), memory_mib: int | None = None
) -> SyncEngine:
    """This process's engine for these settings, made when first asked for.

    Args:
        slots: jobs at once; None is one per usable core.
        isolation: ``auto``, ``jail`` or ``degraded``.
        packages: named site-packages that programs may import.
        memory_mib: budget for all jobs together.
    """
    from proctor.images.host import host_image

    key = (slots, isolation, tuple(packages), memory_mib)
    with _lock:
        engine = _engines.get(key)
        if engine is None or engine.closed:
            image = host_image(tuple(packages))
            engine = _engines[key] = SyncEngine(slots=slots, isolation=isolation, memory_mib=memory_mib, image=image)
        return engine


def close_all() -> None:
    """Close every shared engine; called at exit as well."""
    with _lock:
        engines = list(_engines.values())
        _engines.clear()
    for engine in engines:
        engine.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for engine in _engines.values():
        engine.abandon()
    _engines.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_all)
