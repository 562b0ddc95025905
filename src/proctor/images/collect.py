"""Takes away what nobody needs, and nothing else.

First the records go, in a transaction; then the directories that no record
names are moved out, in another, so that a crash in between leaves only what
the next collection finds. Trees are removed last, outside of any transaction.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from proctor.images.database import Database
from proctor.images.leases import remove_dead
from proctor.images.owners import from_word, is_alive, this_process
from proctor.isolation.sweep import remove_box


class Place(Protocol):
    """The parts of a store that are needed here."""

    layers: Path
    incoming: Path
    database: Database


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed.

    Attributes:
        expired: ids of images and snapshots past their time.
        layers: how many. bytes: of their files.
        leftovers: directories that crashes had left.
    """

    expired: tuple[str, ...]
    layers: int
    bytes: int
    leftovers: int


def expire(records: Database, now: float) -> list[str]:
    """Forget what is past its time and in nobody's use."""
    with records.write() as database:
        remove_dead(database)
        rows = database.execute(
            "DELETE FROM images WHERE expires_at <= ? AND id NOT IN (SELECT image FROM leases WHERE image IS NOT NULL)"
            " RETURNING id",
            (now,),
        ).fetchall()
    return [identity for (identity,) in rows]


def collect(place: Place, now: float) -> Collected:
    """See ``Store.gc``."""
    expired = expire(place.database, now)
    with place.database.write() as database:
        remove_dead(database)
        rows = database.execute(
            "DELETE FROM layers WHERE number NOT IN (SELECT layer FROM image_layers)"
            " AND number NOT IN (SELECT layer FROM leases WHERE layer IS NOT NULL) RETURNING bytes"
        ).fetchall()
    trash, unrecorded = place.incoming / f"{this_process().word()}.{secrets.token_hex(8)}", 0
    trash.mkdir(mode=0o700)
    try:
        with place.database.write() as database:
            kept = {str(number) for (number,) in database.execute("SELECT number FROM layers")}
            for name in os.listdir(place.layers):
                if name not in kept:
                    _move(place.layers / name, trash / name)
                    unrecorded += 1
    finally:
        remove_box(str(trash))
    leftovers = max(0, unrecorded - len(rows))
    for name in os.listdir(place.incoming):
        owner = from_word(name)
        if owner is not None and not is_alive(owner):
            leftovers += remove_box(str(place.incoming / name))
    return Collected(tuple(expired), len(rows), sum(size for (size,) in rows), leftovers)


def _move(source: Path, target: Path) -> None:
    """A directory without write permission cannot be moved, but its owner can change that."""
    with contextlib.suppress(OSError):
        if not source.is_symlink() and source.is_dir():
            source.chmod(0o700)
    os.rename(source, target)
