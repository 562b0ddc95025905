"""What sandboxes are made from, and what is kept of them: the store of images and snapshots, for the engine.

The store's calls block on SQLite and on the disk, so they run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.core.errors import InfrastructureError, InputError
from proctor.core.sandbox import SandboxError, SandboxSpec, SnapshotInfo
from proctor.engine.room import ANSWER_S, Room
from proctor.images.leases import Lease
from proctor.images.packages import host_packages
from proctor.images.records import Origin, Record
from proctor.images.rootfs import Rootfs, resolve, rootfs_of
from proctor.images.sandbox import Ground
from proctor.images.store import Store

log = logging.getLogger("proctor")

INODES = 50_000  # an inode is some 0.9 KiB of the sandbox's memory
# Seconds that a root stays leased after its last sandbox: a batch takes the same one again, and a lease is 1.4 ms.
LINGER_S = 10.0
_HEADERS_MIB = 256  # of an archive, beside the files in it
PACK_S = 600.0  # a gigabyte takes some 10 s here
_OWN_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/workspace",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}


@dataclass(eq=False, slots=True)
class Root:
    """What sandboxes lie on, leased as long as one does and a moment longer."""

    rootfs: Rootfs
    lease: Lease | None = None
    users: int = 0
    timer: asyncio.TimerHandle | None = None

    def let_go(self) -> None:
        """End the lease; blocks on the store."""
        if self.timer is not None:
            self.timer.cancel()
        if self.lease is not None:
            with contextlib.suppress(InfrastructureError):  # then it ends with this process
                self.lease.release()
            self.lease = None


@dataclass(slots=True)
class Roots:
    """Images and snapshots of one engine.

    Args:
        ground: the host's own.
        store: None: sandboxes are made from the bare host alone, and nothing is kept.
    """

    ground: Ground
    store: Store | None = None
    let_go: Callable[[str], None] = field(default=lambda digest: None)  # told when nobody lies on a root any more
    _default: Rootfs | None = field(default=None, init=False)
    _lease: Lease | None = field(default=None, init=False)
    _held: dict[str, Root] = field(default_factory=dict, init=False)  # by the id of their record

    async def start(self) -> None:
        """Make the default root, the host's with pip where there is one, and collect what nobody needs."""
        if self.store is not None:
            await asyncio.to_thread(self._prepare, self.store)

    def _prepare(self, store: Store) -> None:
        try:
            store.gc()
            record = host_packages(store, ("pip",))
            self._lease = store.lease(record)
            self._default = rootfs_of(store, record)
        except (InputError, InfrastructureError) as exc:
            log.info("sandboxes have no pip: %s", exc)

    async def take(self, spec: SandboxSpec) -> Root:
        """What a sandbox of this description lies on; to be given back with ``release``.

        Raises:
            SandboxError: ``not_found`` (404).
        """
        if spec.image is None and spec.snapshot is None:
            return Root(self._default or Rootfs())
        store = self._kept()
        root = self._held.get(spec.snapshot or "")
        if root is None or root.rootfs.record is None or root.rootfs.record.has_expired():
            new = await asyncio.to_thread(self._leased, store, spec)
            number = new.rootfs.record.id if new.rootfs.record is not None else ""
            root = self._held.setdefault(number, new)
            if root is not new:  # it was asked for by a name, or twice at once
                await asyncio.to_thread(new.let_go)
        if root.timer is not None:
            root.timer.cancel()
        root.users += 1
        return root

    def is_default(self, root: Rootfs) -> bool:
        """It is what sandboxes lie on that name neither image nor snapshot."""
        return root is self._default or root.record is None

    def release(self, root: Root) -> None:
        """A sandbox does not lie on it any more."""
        root.users -= 1
        if root.lease is not None and not root.users:
            root.timer = asyncio.get_running_loop().call_later(LINGER_S, self._forget, root)

    def _forget(self, root: Root) -> None:
        if root.users:
            return
        if root.rootfs.record is not None and self._held.get(root.rootfs.record.id) is root:
            del self._held[root.rootfs.record.id]
        others = {other.rootfs.digest for other in self._held.values()}
        if root.rootfs.digest not in others:  # two snapshots may have equal content
            self.let_go(root.rootfs.digest)
        root.let_go()

    @staticmethod
    def _leased(store: Store, spec: SandboxSpec) -> Root:
        try:
            found = resolve(store, spec.image, spec.snapshot)
            return Root(found, store.lease(found.record) if found.record else None)
        except InputError as exc:
            raise SandboxError(str(exc), code="not_found", status=404) from exc

    def floor(self, spec: SandboxSpec, root: Rootfs, files: Mapping[str, str], binds: list[str]) -> dict[str, Any]:
        """The plan for ``guest/floor.py``."""
        return {
            **self.base(root),
            "binds": [*self.ground.floor["binds"], *binds],
            "files": dict(files),
            "size": spec.disk_mib << 20,
            "inodes": INODES,
        }

    def base(self, root: Rootfs) -> dict[str, Any]:
        """What of that plan is the same for all sandboxes on ``root``."""
        return {**self.ground.floor, "host": root.host, "layers": [path.name for path in root.layers]}

    def env(self, root: Rootfs) -> dict[str, str]:
        """Environment of the commands of a sandbox on ``root``."""
        return {**(self.ground.image.env if root.host else _OWN_ENV), **root.env}

    async def snapshot(
        self, room: Room, spec: SandboxSpec, root: Rootfs, *, name: str | None, labels: Mapping[str, str],
        retention_days: float | None,
    ) -> SnapshotInfo:  # fmt: skip
        """Keep a sandbox's files.

        Raises:
            SandboxError: they cannot be kept; says why.
        """
        store = self._kept()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours:
            try:
                answer_of = await room.ask("snapshot", give=[theirs], most=(spec.disk_mib << 20) + (1 << 20))
            finally:
                theirs.close()
            sent = asyncio.ensure_future(room.answer(answer_of, PACK_S))
            sent.add_done_callback(lambda task: _end_of(ours, task))
            ours.setblocking(True)
            with io.BufferedReader(_Bounded(ours, (spec.disk_mib + _HEADERS_MIB) << 20), 1 << 20) as source:
                kept = asyncio.to_thread(
                    store.snapshot, source, parent=root.record, name=name, labels=labels, retention_days=retention_days
                )
                record, answer = await asyncio.gather(kept, sent, return_exceptions=True)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(record, InputError):
            raise SandboxError(f"the snapshot was not kept: {record}", code="invalid_snapshot", status=400) from record
        if isinstance(record, BaseException):
            raise record
        return await asyncio.to_thread(store.snapshot_info, record)

    def _kept(self) -> Store:
        if self.store is None:
            raise SandboxError("this engine keeps no snapshots", code="no_store", status=400)
        return self.store

    async def snapshots(self) -> list[SnapshotInfo]:
        """All that are kept, oldest first."""
        store = self._kept()
        return await asyncio.to_thread(lambda: [store.snapshot_info(record) for record in store.list(Origin.SNAPSHOT)])

    async def get_snapshot(self, snapshot: str) -> SnapshotInfo:
        """By its id or name; SandboxError ``not_found`` (404)."""
        store = self._kept()
        return await asyncio.to_thread(lambda: store.snapshot_info(_found(store, snapshot)))

    async def delete_snapshot(self, snapshot: str) -> SnapshotInfo:
        """Remove one; SandboxError ``in_use`` (409) while a sandbox lies on it."""
        store = self._kept()
        for root in [root for root in self._held.values() if not root.users]:
            self._forget(root)

        def remove() -> SnapshotInfo:
            record = _found(store, snapshot)
            info = store.snapshot_info(record)
            try:
                store.remove(record.id, Origin.SNAPSHOT)
            except InputError as exc:
                raise SandboxError(str(exc), code="in_use", status=409) from exc
            store.gc()
            return info

        return await asyncio.to_thread(remove)

    def close(self) -> None:
        """Let go of everything."""
        for root in self._held.values():
            root.let_go()
        self._held.clear()
        if self._lease is not None:
            with contextlib.suppress(InfrastructureError):
                self._lease.release()
            self._lease = None


class _Bounded(io.RawIOBase):
    """A stream of which a room said how long it is at most: what it says is not enough."""

    def __init__(self, sock: socket.socket, most: int) -> None:
        super().__init__()
        self.sock, self.left = sock, most

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See ``io.RawIOBase``; InputError beyond the bound."""
        count = self.sock.recv_into(buffer)
        self.left -= count
        if self.left < 0:
            raise InputError("a sandbox sent more files than it may have")
        return count


def _end_of(sock: socket.socket, task: asyncio.Future[Any]) -> None:
    """Nothing more comes where a room refuses or is gone, nor long after its answer: whoever reads is told."""
    failed = task.cancelled() or task.exception() is not None
    asyncio.get_running_loop().call_later(0 if failed else ANSWER_S, _shut, sock)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _found(store: Store, snapshot: str) -> Record:
    try:
        return store.get(snapshot, Origin.SNAPSHOT)
    except InputError as exc:
        raise SandboxError(str(exc), code="not_found", status=404) from exc
