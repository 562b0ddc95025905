"""What there is in the store, by name: looked up, shown, leased, forgotten."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from proctor.core.errors import InputError
from proctor.core.sandbox import SnapshotInfo
from proctor.images.database import Database
from proctor.images.leases import Lease, remove_dead, take, users_of
from proctor.images.records import Base, Layer, Origin, Record, parse_reference, settings_from


class Catalog:
    """The half of a store that reads and forgets records.

    Attributes:
        layers: the directory to bind where layers are mounted from. A layer is ``layers/<n>``.
    """

    def __init__(self, database: Database, layers: Path) -> None:
        self.database, self.layers = database, layers

    def path_of(self, layer: Layer) -> Path:
        """Its directory."""
        return self.layers / str(layer.number)

    def get(self, reference: str, origin: Origin | None = None) -> Record:
        """The record of ``NAME`` (its newest version), ``NAME@v2``, ``NAME@sha256:...`` or an id.

        Raises:
            InputError: there is none, it has expired, or ``origin`` is None and the name is an image's and a snapshot's.
        """
        found = self._find(reference, origin)
        if not found:
            known = ", ".join(sorted({one.name for one in self.list(origin) if one.name})[:20]) or "none"
            raise InputError(
                f"there is no {origin or 'image'} {reference!r}; there are: {known}",
                field=(origin or Origin.IMAGE).value,
            )
        if len({one.origin for one in found}) > 1:
            raise InputError(f"{reference!r} is an image and a snapshot; give the id", field="image")
        return found[0]

    def _find(self, reference: str, origin: Origin | None) -> Sequence[Record]:
        """All that a reference may mean, of each origin the newest first."""
        told = parse_reference(reference)
        with self.database.read() as database:
            if told.id is not None:
                found = rows(database, "id = ?", (told.id,))
            else:
                found = rows(database, "name = ? ORDER BY version DESC", (told.name,))
        return [
            one
            for one in found
            if (origin is None or one.origin == origin)
            and (told.version is None or one.version == told.version)
            and (told.digest is None or one.digest.startswith(told.digest))
        ]

    def list(self, origin: Origin | None = None) -> Sequence[Record]:
        """All that have not expired, the oldest first."""
        with self.database.read() as database:
            found = rows(database, "1 ORDER BY created_at, id")
        return [one for one in found if origin is None or one.origin == origin]

    def inspect(self, reference: str, origin: Origin | None = None) -> dict[str, object]:
        """All that is known of one, as plain data: the record, ``own_bytes`` and ``used_by`` (process numbers)."""
        record = self.get(reference, origin)
        with self.database.write(durable=False) as database:
            remove_dead(database)
            users = users_of(database, record.id)
        paths = [str(self.path_of(layer)) for layer in record.layers]
        return record.to_json() | {"own_bytes": self.own_bytes(record), "used_by": users, "paths": paths}

    def own_bytes(self, record: Record) -> int:
        """Bytes of the layers that no other record has."""
        with self.database.read() as database:
            (count,) = database.execute(
                "SELECT COALESCE(SUM(bytes), 0) FROM layers WHERE number IN (SELECT layer FROM image_layers WHERE image = ?)"
                " AND number NOT IN (SELECT layer FROM image_layers WHERE image <> ?)",
                (record.id, record.id),
            ).fetchone()
        return int(count)

    def snapshot_info(self, record: Record) -> SnapshotInfo:
        """A snapshot as the sandbox's caller sees it."""
        return SnapshotInfo(
            id=record.id,
            name=record.name,
            digest=record.digest,
            size_bytes=self.own_bytes(record),
            created_at=record.created_at,
            expires_at=record.expires_at,
            labels=record.labels,
        )

    def remove(self, reference: str, origin: Origin | None = None, *, every_version: bool = False) -> Sequence[Record]:
        """Forget one, or all versions of a name; their layers go with the next ``gc``.

        Raises:
            InputError: there is none, it is in use, or the name has several versions and not all were asked for.
        """
        first = self.get(reference, origin)
        gone = self._find(reference, first.origin)
        if len(gone) > 1 and not every_version:
            named = ", ".join(one.reference for one in gone[:10])
            raise InputError(
                f"{reference!r} has {len(gone)} versions ({named}); name one, or ask for all", field="image"
            )
        with self.database.write() as database:
            remove_dead(database)
            for one in gone:
                if users := users_of(database, one.id):
                    raise InputError(
                        f"{one.reference} is in use by process {users[0]}; stop its sandboxes", field="image"
                    )
                database.execute("DELETE FROM images WHERE id = ?", (one.id,))
        return gone

    def lease(self, record: Record) -> Lease:
        """Say that this process uses it, until the lease is released or the process ends, however it does.

        Raises:
            InputError: it was removed or has expired.
        """
        with self.database.write(durable=False) as database:
            if not rows(database, "id = ?", (record.id,)):
                raise InputError(f"{record.reference} was removed or has expired", field=record.origin.value)
            return Lease(self.database, take(database, image=record.id))


def rows(
    database: sqlite3.Connection, where: str, values: Sequence[object] = (), now: float | None = None
) -> list[Record]:
    """Records that have not expired. ``where`` is our own text."""
    now = time.time() if now is None else now
    found = database.execute(
        f"SELECT * FROM images WHERE (expires_at IS NULL OR expires_at > ?) AND {where}", (now, *values)
    )
    return [
        Record(
            id=row[0], origin=Origin(row[1]), base=Base(row[2]), name=row[3], version=row[4], digest=row[5],
            layers=_layers_of(database, row[0]), settings=settings_from(row[6]), labels=json.loads(row[7]),
            created_at=row[8], expires_at=row[9], parent=row[10],
        )
        for row in found.fetchall()
    ]  # fmt: skip


def _layers_of(database: sqlite3.Connection, image: str) -> tuple[Layer, ...]:
    rows = database.execute(
        "SELECT number, digest, bytes, entries FROM image_layers JOIN layers ON layer = number WHERE image = ? ORDER BY position",
        (image,),
    )
    return tuple(Layer(*row) for row in rows)


def next_version(database: sqlite3.Connection, origin: Origin, name: str) -> int:
    """Never one that was given before, so that ``NAME@v2`` means one thing for ever."""
    (version,) = database.execute(
        "INSERT INTO versions VALUES (?, ?, 1) ON CONFLICT (origin, name) DO UPDATE SET last = last + 1 RETURNING last",
        (origin, name),
    ).fetchone()
    return int(version)
