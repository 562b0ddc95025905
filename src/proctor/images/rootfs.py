"""From a name to what a sandbox is mounted from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.core.errors import InputError
from proctor.images.records import Base, Origin, Record
from proctor.images.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Rootfs:
    """What a sandbox's root is made of.

    Attributes:
        layers: directories, newest first, for ``lowerdir``; each is ``store.layers/<n>``, never changed, and there
            as long as ``record`` is leased.
        host: the host's own interpreter and libraries (``host_image``) lie under the oldest layer.
        env: variables; beyond those of the host's image where ``host``, else all there are.
        workdir: directory that commands start in; None for ``/workspace``.
        preimport: modules that the warm interpreter imports.
        digest: changes when anything that the layers show does; to be taken together with ``host_image``'s where ``host``.
        record: what to lease; None for the bare host.
    """

    layers: tuple[Path, ...] = ()
    host: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    preimport: tuple[str, ...] = ()
    digest: str = "host"
    record: Record | None = None


def resolve(store: Store, image: str | None = None, snapshot: str | None = None) -> Rootfs:
    """The root of a new sandbox: the bare host's without a name, else an image's or a snapshot's.

    A few look-ups, whatever the size: nothing is copied. Lease it before it is mounted:
    ``store.lease(rootfs.record)``, which fails if it was removed meanwhile.

    Raises:
        InputError: both are given, or there is no such one.
    """
    if image is not None and snapshot is not None:
        raise InputError("image and snapshot are both given; a sandbox is made from one", field="snapshot")
    if image is None and snapshot is None:
        return Rootfs()
    if snapshot is not None:
        return rootfs_of(store, store.get(snapshot, Origin.SNAPSHOT))
    return rootfs_of(store, store.get(image or "", Origin.IMAGE))


def rootfs_of(store: Store, record: Record) -> Rootfs:
    """The root that a record stands for."""
    return Rootfs(
        layers=tuple(store.path_of(layer) for layer in record.layers),
        host=record.base is Base.HOST,
        env=dict(record.settings.env),
        workdir=record.settings.workdir,
        preimport=record.settings.preimport,
        digest=record.digest,
        record=record,
    )
