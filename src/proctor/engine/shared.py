"""One engine for a whole process, on a thread of its own: for asyncio, threads and notebooks alike.

A fork does not inherit it: the child gets a new one when it first asks. When
the process ends, however it ends, its agents end.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from proctor.core.errors import InfrastructureError
from proctor.core.outcome import Outcome
from proctor.engine.engine import Engine
from proctor.engine.job import Job, Pair

log = logging.getLogger("proctor")


class SyncEngine:
    """An Engine behind ordinary calls; every method may be used from any thread.

    Args:
        options: as for ``Engine``.

    Raises:
        IsolationUnavailable: the isolation that was asked for cannot be had here.
    """

    def __init__(self, **options: Any) -> None:
        self._engine = Engine(**options)
        self._pid = os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proctor-engine", daemon=True)
        self._thread.start()
        _open.add(self)
        try:
            asyncio.run_coroutine_threadsafe(self._engine.start(), self._loop).result()
            if reasons := self.features.get("stepped_down"):
                log.warning("isolation is %s, not jail: %s", self.isolation, "; ".join(map(str, reasons)))
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """It takes no more jobs: it was closed, or this is a fork of the process that has it."""
        return self._closed or self._pid != os.getpid()

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
        self, job: Job | Pair, *, owner: object = None, on_outcome: Callable[[int, Outcome], None] | None = None
    ) -> Future[list[Outcome]]:
        """Queue a job; cancelling the future ends the program.

        ``on_outcome`` is called on the engine's thread: it must be quick, and
        it must not call this engine and wait.

        Raises:
            InfrastructureError: the engine is closed, or another process's.
        """
        if self._pid != os.getpid():
            raise InfrastructureError("the engine belongs to the process that was forked; make another")
        with self._closing:
            if self._closed:
                raise InfrastructureError("the engine is closed")
            return asyncio.run_coroutine_threadsafe(
                self._engine.run(job, owner=owner, on_outcome=on_outcome), self._loop
            )

    def run(self, job: Job | Pair, **options: Any) -> list[Outcome]:
        """Run a job and wait for it; an exception meanwhile (Ctrl-C) ends the program."""
        future = self.submit(job, **options)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def agent_pids(self) -> list[int]:
        """Supervisors of the agents that live now."""
        return [] if self.closed else self._engine.pids()

    def close(self) -> None:
        """End all agents, wait until nothing of them is left, and stop the thread.

        Jobs that wait or run end with an error in their outcomes.
        """
        if self._pid != os.getpid():
            return
        with self._closing:
            first, self._closed = not self._closed, True
        if not first:
            self._thread.join(_CLOSE_S)  # another thread closes it: come back when that is done
            return
        try:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._engine.close(), self._loop).result(_CLOSE_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_S)
            if not self._thread.is_alive():
                self._finish()
            _open.discard(self)

    def _finish(self) -> None:
        """Close the loop, now that no thread runs it, with nothing left in it that waits for ever."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        # Transports of agents that ended close in their own good time: one more turn.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


_engines: dict[tuple[Any, ...], SyncEngine] = {}
_lock = threading.Lock()
_open: set[SyncEngine] = set()  # to be closed at exit
_parents: list[SyncEngine] = []
_CLOSE_S = 60.0


def shared_engine(
    slots: int | None = None, isolation: str = "auto", packages: tuple[str, ...] = (), memory_mib: int | None = None,
    reuse: int | None = None,
) -> SyncEngine:  # fmt: skip
    """This process's engine for these settings, made when first asked for.

    Args:
        slots: jobs at once; None is one per usable core.
        isolation: ``auto``, ``jail``, ``degraded``, ``gvisor`` or ``microvm``.
        packages: named site-packages that programs may import.
        memory_mib: budget for all jobs together.
        reuse: programs that one wall serves; see ``Engine``.
    """
    from proctor.images.host import host_image

    key = (slots, isolation, tuple(packages), memory_mib, reuse)
    with _lock:
        engine = _engines.get(key)
        if engine is None or engine.closed:
            image = host_image(tuple(packages))
            engine = _engines[key] = SyncEngine(
                slots=slots, isolation=isolation, memory_mib=memory_mib, image=image, reuse=reuse
            )
        return engine


def close_all() -> None:
    """Close every engine of this process; called at exit as well."""
    with _lock:
        _engines.clear()
    for engine in list(_open):
        engine.close()


def _after_fork() -> None:
    """In a child: forget the parent's engines, without finalising them. ``Engine`` lets go of their agents."""
    global _lock
    _lock = threading.Lock()
    _parents.extend(_open)
    _open.clear()
    _engines.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_all)
