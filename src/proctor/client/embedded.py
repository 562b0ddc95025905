"""The backend in this process: one engine of sandboxes, on a thread and an event loop of its own.

All runtimes of a process share one. A fork does not inherit it: the child gets
a new one when it first asks. When the process ends, however it ends, so do the
sandboxes.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from proctor.client.embedded_files import EmbeddedFiles
from proctor.client.last import LastExecutor
from proctor.client.once import Once
from proctor.core.errors import InfrastructureError
from proctor.core.sandbox import NetworkRules, SandboxError, SandboxInfo, SandboxSpec, SnapshotInfo
from proctor.engine.sandboxes import Sandboxes
from proctor.images.store import Store
from proctor.meter.ledger import Ledger

_CLOSE_S = 60.0
_RETRY_S = 0.02


class EmbeddedBackend(EmbeddedFiles):
    """An engine of sandboxes behind the calls of ``Backend``.

    Args:
        options: as for ``Sandboxes``; the user's own store and ledger unless others are given.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._pid = os.getpid()
        self._closed = False
        self._closing = threading.Lock()
        self._once = Once()
        self._starting: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(LastExecutor(thread_name_prefix="proctor-sandboxes"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="proctor-sandboxes", daemon=True)
        self._thread.start()
        _open.add(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its calls run."""
        return self._loop

    @property
    def closed(self) -> bool:
        """It answers no more, or belongs to the process that was forked."""
        return self._closed or self._pid != os.getpid()

    @property
    def engine(self) -> Sandboxes:
        """The engine, made when first needed."""
        if self._engine is None:
            own: dict[str, Any] = {}
            if "store" not in self._options:
                own["store"] = Store()
            if "ledger" not in self._options:
                own["ledger"] = Ledger.from_settings()
            self._engine = Sandboxes(**own, **self._options)
        return self._engine

    async def _ready(self) -> Sandboxes:
        """The engine, started."""
        if self._starting is None:
            self._starting = self._loop.create_task(self.engine.start())
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            if self._starting is not None and self._starting.done():
                self._starting = None  # the next caller tries again
            raise
        return self.engine

    def close(self) -> None:
        """End all sandboxes and wait until nothing of them is left; may be called again, from any thread but its own."""
        if self._pid != os.getpid():
            return
        with self._closing:
            first, self._closed = not self._closed, True
        if not first:
            self._thread.join(_CLOSE_S)
            return
        try:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_CLOSE_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_S)
            if not self._thread.is_alive():
                self._finish()
            _open.discard(self)

    async def _end(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    def _finish(self) -> None:
        """Close the loop, now that no thread runs it; whoever still waits for an answer is told."""
        for _ in range(3):
            self._loop.run_until_complete(asyncio.sleep(0))
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def forget(self) -> None:
        """In a forked child: let go of the descriptors that keep the parent's sandboxes alive."""
        if self._engine is not None:
            self._engine.forget()

    # ------------------------------------------------------------ sandboxes

    async def create(
        self, spec: SandboxSpec, *, wait_s: float | None, on_wait: Callable[[int], None] | None = None,
        key: str | None = None,
    ) -> SandboxInfo:  # fmt: skip
        """See ``Backend``."""

        async def make() -> SandboxInfo:
            return (await (await self._ready()).create(spec, wait_s=wait_s, on_wait=on_wait)).info()

        info, again = await self._once.run(key and f"create:{key}", spec, make)
        self._prune()
        if again:
            info = await self.get(info.id)
        made: SandboxInfo = info
        return made

    async def get_or_create(
        self, spec: SandboxSpec, *, wait_s: float | None, on_wait: Callable[[int], None] | None = None
    ) -> tuple[SandboxInfo, bool]:
        """See ``Backend``."""
        assert spec.name is not None
        deadline = None if wait_s is None else self._loop.time() + wait_s
        while True:
            if (found := self.engine.named(spec.name)) is not None:
                return found.info(), False
            try:
                return await self.create(spec, wait_s=wait_s, on_wait=on_wait), True
            except SandboxError as exc:  # another caller makes the one of that name
                if exc.code != "name_taken" or (deadline is not None and self._loop.time() >= deadline):
                    raise
            await asyncio.sleep(_RETRY_S)

    async def get(self, sandbox_id: str) -> SandboxInfo:
        """See ``Backend``."""
        return self.engine.get(sandbox_id).info()

    async def find(self, *, labels: Mapping[str, str], include_stopped: bool) -> list[SandboxInfo]:
        """See ``Backend``."""
        return [box.info() for box in self.engine.list(labels=labels, include_stopped=include_stopped)]

    async def stop(self, sandbox_id: str) -> SandboxInfo:
        """See ``Backend``."""
        info = (await self.engine.stop(sandbox_id)).info()
        self._let_go(sandbox_id)
        return info

    async def delete(self, sandbox_id: str) -> None:
        """See ``Backend``."""
        await self.engine.delete(sandbox_id)
        self._let_go(sandbox_id)

    async def extend(self, sandbox_id: str, seconds: float) -> SandboxInfo:
        """See ``Backend``."""
        return self.engine.extend(sandbox_id, seconds)

    async def update(
        self, sandbox_id: str, *, timeout_seconds: float | None, labels: Mapping[str, str] | None,
        max_cost_micros: int | None,
    ) -> SandboxInfo:  # fmt: skip
        """See ``Backend``."""
        return await self.engine.update(
            sandbox_id, timeout_seconds=timeout_seconds, labels=labels, max_cost_micros=max_cost_micros
        )

    async def limits(self) -> dict[str, Any]:
        """See ``Backend``."""
        seats = self.engine.queue
        return {
            "sandboxes": {"limit": seats.most, "used": len(seats.taken), "waiting": len(seats.waiting)},
            "memoryMiB": {"limit": seats.memory_mib, "used": seats.used_mib},
            "gpus": {"limit": len(seats.gpus.found.devices), "used": len(seats.gpus.held)},
            "daily": await asyncio.to_thread(self._daily),
        }

    def _daily(self) -> dict[str, str | None] | None:
        ledger = self.engine.spending.ledger
        return None if ledger is None else ledger.limit().to_wire()

    # ------------------------------------------------------------ network and snapshots

    async def network_get(self, sandbox_id: str) -> NetworkRules:
        """See ``Backend``."""
        return self.engine.get(sandbox_id).network

    async def network_set(self, sandbox_id: str, rules: NetworkRules) -> None:
        """See ``Backend``."""
        await self.engine.set_network(sandbox_id, rules)

    async def network_attempts(self, sandbox_id: str) -> list[dict[str, Any]]:
        """See ``Backend``."""
        return list(self.engine.network_attempts(sandbox_id))

    async def snapshot(
        self, sandbox_id: str, *, name: str | None, labels: Mapping[str, str], retention_days: float | None
    ) -> SnapshotInfo:
        """See ``Backend``."""
        return await self.engine.snapshot(sandbox_id, name=name, labels=labels, retention_days=retention_days)

    async def snapshots(self) -> list[SnapshotInfo]:
        """See ``Backend``."""
        return list(await self.engine.snapshots())

    async def get_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """See ``Backend``."""
        return await self.engine.get_snapshot(snapshot_id)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """See ``Backend``."""
        await self.engine.delete_snapshot(snapshot_id)


_lock = threading.Lock()
_open: set[EmbeddedBackend] = set()  # to be closed at exit
_parents: list[EmbeddedBackend] = []  # kept, so that nothing of theirs is finalised in a child
_shared: EmbeddedBackend | None = None


def shared_backend() -> EmbeddedBackend:
    """This process's own, made when first asked for."""
    global _shared
    with _lock:
        if _shared is None or _shared.closed:
            _shared = EmbeddedBackend()
        return _shared


def close_all() -> None:
    """Close every one of this process; called at exit as well."""
    for backend in list(_open):
        backend.close()


def _after_fork() -> None:
    global _lock, _shared
    _lock = threading.Lock()
    for backend in _open:
        with contextlib.suppress(InfrastructureError, OSError):
            backend.forget()
    _parents.extend(_open)
    _open.clear()
    _shared = None


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_all)
