# Made from async_runtime.py by tools/make_sync.py: change that one.
"""Where sandboxes are made and found."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator, Callable, Mapping
from typing import Any

from proctor.client.sync_sandbox import Sandbox, Snapshot
from proctor.client.backend import Backend
from proctor.client.choice import choose
from proctor.client.door import SyncDoor, Note, Pending
from proctor.client.errors import ConflictError, NotFoundError, RuntimeError, invalid
from proctor.client.far import deleting, making
from proctor.client.fields import isolation as checked_isolation
from proctor.client.fields import labels as checked_labels
from proctor.client.fields import name as checked_name
from proctor.client.fields import renamed, sandbox_spec, seconds, spellings, text, whole
from proctor.client.values import Record

OnWait = Callable[[RuntimeError, float], object]
_NOW = ("wait", "idempotency_key", "keep", "wait_for_capacity", "on_capacity_wait")
_FOREVER_S = 10 * 365 * 86400.0


class Page(builtins.list[Any]):
    """What was found: a list, and its ``data``; all of it, so there is no next page."""

    next_cursor = None
    has_more = False

    @property
    def data(self) -> builtins.list[Any]:
        """The same."""
        return self[:]

    def __iter__(self) -> Iterator[Any]:
        for item in self[:]:
            yield item

    def to_list(self, limit: int = 10_000) -> builtins.list[Any]:
        """At most so many of them."""
        return self.data[:limit]


class Sandboxes:
    """``runtime.sandboxes``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def create(self, **fields: Any) -> Sandbox:
        """Make a sandbox, as soon as there is room for it.

        Args:
            name, labels: to find it by.
            vcpu, memory_mib, disk_mib: what it gets: 1, 1024, 1024 unless given.
            timeout_seconds: seconds until its lease ends (300); ``on_lease_end`` is ``stop``.
            network: ``{"internet": False}`` unless given; with ``allow`` and ``deny``.
            image, snapshot: what it is made from; the host's interpreter unless given.
            env: variables of all of its commands.
            gpu, gpu_model: GPUs that are its own, and the model, or models of which any will do.
            max_cost_micros: millionths of a dollar after which it is stopped.
            isolation: the wall around it: ``jail``, ``gvisor``, ``microvm`` or ``auto``; the runtime's unless given.
            wait_for_capacity: seconds to wait for room; the runtime's unless given; 0 not at all.
            on_capacity_wait: called with the error and the seconds that are left, whenever its place in the queue changes.
            idempotency_key: the same key gives the same sandbox for 24 hours.
            keep: a ``with`` block stops it, and does not delete its record.

        Raises:
            TypeError: a field is not known.
            InvalidRequestError: a value cannot be.
            ConflictError: ``no_capacity`` after that time, ``name_taken``.
        """
        return self._create("create", None, fields)

    def get_or_create(self, name: str, **fields: Any) -> Sandbox:
        """The running sandbox of a name, or a new one, made as by ``create``. A ``with`` block stops one that was there."""
        return self._create("get_or_create", name, fields)

    def _create(self, what: str, name: str | None, fields: dict[str, Any]) -> Sandbox:
        now = {key: value for key, value in fields.items() if _own(key)}
        given = renamed(now, _NOW, what)
        of_sandbox = {key: value for key, value in fields.items() if key not in now}
        if of_sandbox.get("isolation") is None:
            of_sandbox["isolation"] = self._runtime.isolation
        spec = sandbox_spec({**of_sandbox, **({"name": name} if name else {})}, what)
        if name is not None:
            checked_name("name", name)
        key = given.get("idempotency_key")
        key = None if key is None else text("idempotency_key", key)
        wait_s = self._runtime.wait_for_capacity
        if given.get("wait_for_capacity") is not None:
            wait_s = seconds("wait_for_capacity", given["wait_for_capacity"], most=_FOREVER_S)
        door = self._runtime.door()
        on_note = self._noted(given.get("on_capacity_wait"), wait_s)
        if key is not None and name is not None:
            raise TypeError("get_or_create() takes no idempotency_key: the name does the same")
        make = making(door.backend, spec, wait_s=wait_s, key=key, find=name is not None)
        info, new = door.noting(make, on_note, deleting(door.backend))
        return Sandbox(door, info, keep=bool(given.get("keep")) or not new)

    def _noted(self, on_wait: OnWait | None, wait_s: float) -> Note:
        on_queued = self._runtime.on_queued

        def noted(ahead: int) -> None:
            if on_queued is not None:
                on_queued(ahead)
            if on_wait is not None:
                words = f"no room for another sandbox now; {ahead} wait before this one"
                error = ConflictError(words, code="no_capacity", status=409, retryable=True, details={"ahead": ahead})
                on_wait(error, wait_s)

        return noted

    @spellings
    def get(self, sandbox_id: str) -> Sandbox:
        """A handle on a sandbox by its id. A ``with`` block of it stops, and does not delete."""
        door = self._runtime.door()
        info = door.call(door.backend.get(text("sandbox_id", sandbox_id)))
        return Sandbox(door, info, keep=True)

    @spellings
    def delete(self, sandbox_id: str) -> Record:
        """Stop a sandbox and forget its record."""
        door = self._runtime.door()
        door.call(door.backend.delete(text("sandbox_id", sandbox_id)))
        return Record(id=sandbox_id, state="deleted")

    @spellings
    def list(
        self, *, state: str | builtins.list[str] | None = None, include_stopped: bool = False,
        labels: Mapping[str, str] | None = None, name: str | None = None, limit: int | None = None,
    ) -> Page:  # fmt: skip
        """Handles on the sandboxes that fit, oldest first.

        Args:
            state: ``running`` or ``stopped``, or a list of them.
            labels: those that have all of them.
        """
        states = [state] if isinstance(state, str) else builtins.list(state or [])
        for word in states:
            if word not in ("running", "stopped"):
                raise invalid("state", word, "give 'running' or 'stopped'")
        door = self._runtime.door()
        stopped = bool(include_stopped) or "stopped" in states
        rows = door.call(door.backend.find(labels=checked_labels(labels), include_stopped=stopped))
        found = [
            Sandbox(door, info, keep=True)
            for info in rows
            if (not states or info.state.value in states) and (name is None or info.spec.name == name)
        ]
        return Page(found if limit is None else found[: whole("limit", limit, least=1, most=1 << 31)])

    @spellings
    def stop_all(self, *, labels: Mapping[str, str]) -> Record:
        """Stop all running ones that have these labels; gives their ids as ``stopped``."""
        done = Record(stopped=[])
        for box in self.list(labels=_some(labels)):
            box.stop()
            done["stopped"].append(box.id)
        return done

    @spellings
    def delete_all(self, *, labels: Mapping[str, str]) -> Record:
        """Delete all that have these labels, stopped ones included; gives their ids as ``deleted``."""
        done = Record(deleted=[])
        for box in self.list(labels=_some(labels), include_stopped=True):
            box.delete()
            done["deleted"].append(box.id)
        return done


def _own(key: str) -> bool:
    """A keyword of the call, not of the sandbox."""
    try:
        renamed({key: None}, _NOW, "create")
    except TypeError:
        return False
    return True


def _some(labels: Mapping[str, str]) -> dict[str, str]:
    found = checked_labels(labels)
    if not found:
        raise invalid("labels", labels, "name at least one: it would fit all sandboxes")
    return found


class Snapshots:
    """``runtime.snapshots``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def create(self, sandbox_id: str, **fields: Any) -> Snapshot:
        """As ``sandbox.snapshot``."""
        return (self._runtime.sandboxes.get(sandbox_id)).snapshot(**fields)

    @spellings
    def list(self, *, name: str | None = None, limit: int | None = None) -> Page:
        """All of them, or those of a name."""
        door = self._runtime.door()
        rows = door.call(door.backend.snapshots())
        found = [Snapshot(door, row) for row in rows if name is None or row.name == name]
        return Page(found if limit is None else found[: whole("limit", limit, least=1, most=1 << 31)])

    @spellings
    def get(self, snapshot_id: str) -> Snapshot:
        """By its id or name."""
        door = self._runtime.door()
        return Snapshot(door, door.call(door.backend.get_snapshot(text("snapshot_id", snapshot_id))))

    @spellings
    def delete(self, snapshot_id: str) -> None:
        """Remove one; nothing happens where that was done before."""
        door = self._runtime.door()
        with contextlib.suppress(NotFoundError):
            door.call(door.backend.delete_snapshot(text("snapshot_id", snapshot_id)))


class Runtime:
    """Sandboxes, in this process or behind a server: the same calls.

    Args:
        api_key: for a server; sandboxes of this process need none.
        base_url: of a server; None takes PROCTOR_API_URL or RUNTIME_API_URL, and without them this process.
        timeout, max_retries, max_connections: for a server.
        wait_for_capacity: seconds that a create waits for room.
        on_queued: called with the number of creates before one that waits, whenever that changes.
        backend: who holds the sandboxes, in place of all that.
        isolation: the wall around its sandboxes: ``jail``, ``gvisor``, ``microvm`` or ``auto``, which is the jail; unless given what
            PROCTOR_ISOLATION says. A named one is never stepped down from.

    Runtimes of one process share its sandboxes: they are found by id and label from each, and outlive a Runtime.
    They end with their lease, or with the process.
    """

    @spellings
    def __init__(
        self, api_key: str | None = None, base_url: str | None = None, *, timeout: float = 300, max_retries: int = 4,
        max_connections: int = 48, wait_for_capacity: float = 120, on_queued: Callable[[int], object] | None = None,
        backend: Backend | None = None, isolation: str | None = None,
    ) -> None:  # fmt: skip
        self.isolation = checked_isolation(isolation)
        self.wait_for_capacity = seconds("wait_for_capacity", wait_for_capacity, most=_FOREVER_S)
        self.timeout = seconds("timeout", timeout, least=0.001)
        whole("max_retries", max_retries, least=0, most=100)
        whole("max_connections", max_connections, least=1, most=100_000)
        self.on_queued = on_queued
        self._choose = choose(base_url=base_url, backend=backend)
        self._door: SyncDoor | None = None
        self._closed = False
        self.sandboxes = Sandboxes(self)
        self.snapshots = Snapshots(self)

    def door(self) -> SyncDoor:
        """The way to the backend; a new one in a process that was forked."""
        if self._closed:
            raise ConflictError("this runtime was closed", code="closed", hint="make another")
        if self._door is None or self._door.backend.closed:
            self._door = SyncDoor(self._choose())
        return self._door

    def limits(self) -> Record:
        """``sandboxes`` and ``memoryMiB`` with ``limit`` and ``used``; ``daily`` spending, None where there is no limit."""
        door = self.door()
        return Record(door.call(door.backend.limits()))

    def close(self) -> None:
        """This handle is not used any more. Its sandboxes go on until their lease, or the process, ends."""
        self._closed = True

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
