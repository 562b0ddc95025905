"""Where images and snapshots are kept: layers as directories, each once, and records of what is made of them.

    records.sqlite   what there is, and which process uses what
    layers/<n>/      one layer, complete and never changed again
    incoming/        what is being written; rubbish once the process that its name tells is gone

A layer is written under ``incoming``, flushed, and moved to ``layers`` within the
transaction that records it. So whatever is recorded is whole, and what a crash
leaves is in no record: the next ``gc`` takes it away. All moving into and out of
``layers`` happens inside a write transaction, of which there is one at a time
among all processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from proctor.core.errors import InfrastructureError, InputError
from proctor.images.catalog import Catalog, next_version, rows
from proctor.images.collect import Collected, collect, expire
from proctor.images.database import Database
from proctor.images.layer import Dialect, Unpacked, unpack
from proctor.images.leases import take
from proctor.images.owners import this_process
from proctor.images.records import (
    MAX_LAYERS,
    Base,
    Layer,
    Origin,
    Record,
    Settings,
    check_labels,
    check_name,
    digest_of,
    retention_seconds,
)  # fmt: skip
from proctor.images.tarstream import Bounds, Seekable, Source, TarReader
from proctor.isolation.identities import LAYER_ROOT, LAYER_USER
from proctor.isolation.sweep import remove_box

_PREFIXES = {Origin.IMAGE: "img", Origin.SNAPSHOT: "snap"}


def default_root() -> Path:
    """Under ``XDG_DATA_HOME``, or ``~/.local/share`` where that is not set."""
    told = os.environ.get("XDG_DATA_HOME", "")
    try:
        base = Path(told) if os.path.isabs(told) else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise InputError(f"this user has no home directory ({error}); set XDG_DATA_HOME to an absolute path") from error
    return base / "proctor" / "images"


class Store(Catalog):
    """Images and snapshots of this user. For many threads and processes at once.

    Args:
        root: its directory, made when it is not there; None is the user's own.

    Attributes:
        layers: the directory to bind where layers are mounted from. A layer is ``layers/<n>``.

    Raises:
        InfrastructureError: the directory cannot be used.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root).absolute() if root is not None else default_root()
        super().__init__(Database(self.root / "records.sqlite"), self.root / "layers")
        self.incoming = self.root / "incoming"
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.root.stat().st_uid != os.geteuid():
                raise InfrastructureError(f"the image store {self.root} belongs to another user; set XDG_DATA_HOME")
            self.root.chmod(0o700)
            # Who is mapped into a sandbox has to pass through a bind of it, and not to list it.
            for place, mode in ((self.layers, 0o711), (self.incoming, 0o700)):
                place.mkdir(mode=mode, exist_ok=True)
                place.chmod(mode)
        except OSError as error:
            raise InfrastructureError(f"the image store {self.root} cannot be used: {error}") from error
        self._fixed_owners = self._who_owns()

    def _who_owns(self) -> bool:
        """Whether files get LAYER_ROOT and LAYER_USER; the same for all layers of a store."""
        fixed = os.geteuid() == 0
        if fixed:  # root of a user namespace cannot
            with self.box() as box:
                try:
                    os.chown(box, LAYER_USER, LAYER_ROOT)
                    os.chown(box, 0, 0)
                except OSError:
                    fixed = False
        told = "fixed" if fixed else "user"
        with self.database.read() as database:
            row = database.execute("SELECT value FROM facts WHERE name = 'owners'").fetchone()
        if row is None:
            with self.database.write() as database:
                database.execute("INSERT OR IGNORE INTO facts VALUES ('owners', ?)", (told,))
                row = database.execute("SELECT value FROM facts WHERE name = 'owners'").fetchone()
        if row[0] != told:
            raise InfrastructureError(
                f"the files in the image store {self.root} were written with {row[0]} owners, and here they would have "
                f"{told} ones; set XDG_DATA_HOME to another directory"
            )
        return fixed

    def close(self) -> None:
        """Let go of the records; leases stay until their process ends."""
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextlib.contextmanager
    def box(self) -> Iterator[Path]:
        """A directory under ``incoming`` for as long as the block takes; rubbish if this process is killed."""
        path = self.incoming / f"{this_process().word()}.{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            remove_box(str(path))

    # ------------------------------------------------------------ layers

    def add_layer(
        self,
        source: Source,
        *,
        dialect: Dialect = Dialect.SNAPSHOT,
        bounds: Bounds | None = None,
        below: Sequence[Layer] | None = None,
        jump: Seekable | None = None,
        check: Callable[[TarReader], None] | None = None,
    ) -> Layer:
        """Store a tar archive's tree; one that is there already is not stored again.

        Args:
            source: the archive, uncompressed; hostile.
            below: the layers under it, newest first (see ``layer.unpack``).
            check: called when all members are written; what it raises, nothing is kept of the layer.

        Returns:
            The layer, kept from collection until ``commit``, ``release`` or the end of this process.

        Raises:
            InputError: the archive is broken, hostile or too large.
            InfrastructureError: it cannot be stored.
        """
        bounds = bounds or Bounds()
        reader = TarReader(source, bounds, whole=dialect is Dialect.SNAPSHOT, jump=jump)
        under = None if below is None else [self.path_of(layer) for layer in below]
        try:
            with self.box() as box:
                tree = box / "tree"
                tree.mkdir(mode=0o700)
                top = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    made = unpack(
                        reader, top, dialect=dialect, bounds=bounds, fixed_owners=self._fixed_owners, below=under
                    )
                    if check is not None:
                        check(reader)
                    _flush(top)
                    return self._keep(tree, top, made)
                finally:
                    os.close(top)
        except OSError as error:
            raise InfrastructureError(f"the layer cannot be stored: {error}") from error

    def _keep(self, tree: Path, top: int, made: Unpacked) -> Layer:
        with self.database.write() as database:
            row = database.execute("SELECT number FROM layers WHERE digest = ?", (made.digest,)).fetchone()
            if row is None:
                row = database.execute(
                    "INSERT INTO layers (digest, bytes, entries) VALUES (?, ?, ?) RETURNING number",
                    (made.digest, made.bytes, made.entries),
                ).fetchone()
                target = self.layers / str(row[0])
                if os.path.lexists(target):  # a crash came between moving and recording
                    os.rename(target, tree.with_name("left"))
                mode = os.fstat(top).st_mode & 0o7777
                os.fchmod(top, 0o700)  # without write permission a directory cannot be moved
                os.rename(tree, target)
                os.fchmod(top, mode)
                _flush_entry(self.layers)
            pin = take(database, layer=row[0])
        return Layer(row[0], made.digest, made.bytes, made.entries, made.dropped, made.hides_all, pin)

    def release(self, layer: Layer) -> None:
        """A layer from ``add_layer`` is not going to be committed."""
        if layer.pin is not None:
            with self.database.write(durable=False) as database:
                database.execute("DELETE FROM leases WHERE number = ?", (layer.pin,))

    # ------------------------------------------------------------ records

    def commit(
        self,
        layers: Sequence[Layer],
        *,
        base: Base,
        origin: Origin = Origin.IMAGE,
        name: str | None = None,
        settings: Settings | None = None,
        labels: Mapping[str, str] | None = None,
        retention_days: float | None = None,
        parent: str | None = None,
    ) -> Record:
        """Record an image or a snapshot of layers, newest first; a named one gets the name's next version.

        An image that equals the newest version of its name is that version.

        Raises:
            InputError: a name, label, number of days or of layers cannot be.
        """
        settings = settings or Settings()
        labels = dict(labels or {})
        check_name(name)
        check_labels(labels)
        seconds = retention_seconds(retention_days)
        if len(layers) > MAX_LAYERS:
            raise InputError(
                f"{len(layers)} layers; {MAX_LAYERS} are the most, build it anew from fewer", field="layers"
            )
        digest = digest_of(base, [layer.digest for layer in layers], settings)
        now = time.time()
        with self.database.write() as database:
            for layer in layers:
                found = database.execute("SELECT digest FROM layers WHERE number = ?", (layer.number,)).fetchone()
                if found is None or found[0] != layer.digest:
                    raise InputError(f"layer {layer.digest} is no longer in the store; add it again", field="layers")
            pins = [(layer.pin,) for layer in layers if layer.pin is not None]
            database.executemany("DELETE FROM leases WHERE number = ?", pins)
            if name is not None and origin is Origin.IMAGE:
                newest = rows(database, "origin = ? AND name = ? ORDER BY version DESC LIMIT 1", (origin, name), now)
                same = [one for one in newest if (one.digest, one.labels, one.expires_at) == (digest, labels, None)]
                if same and seconds is None:
                    return same[0]
            version = None if name is None else next_version(database, origin, name)
            identity = f"{_PREFIXES[origin]}_{secrets.token_hex(10)}"
            expires = None if seconds is None else now + seconds
            database.execute(
                "INSERT INTO images VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    identity, origin, base, name, version, digest, json.dumps(settings.to_json()), json.dumps(labels),
                    now, expires, parent,
                ),
            )  # fmt: skip
            database.executemany(
                "INSERT INTO image_layers VALUES (?, ?, ?)",
                [(identity, position, layer.number) for position, layer in enumerate(layers)],
            )
            (made,) = rows(database, "id = ?", (identity,), now)
            return made

    def snapshot(
        self,
        source: Source,
        *,
        parent: Record | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        retention_days: float | None = None,
        bounds: Bounds | None = None,
    ) -> Record:
        """Store a sandbox's files, as a tar archive of dialect ``snapshot``, on top of what it was made from.

        Args:
            source: what the sandbox's upper directory holds; hostile.
            parent: the image or snapshot that the sandbox was made from, and has leased; None for the bare host.

        Raises:
            InputError, InfrastructureError: as ``add_layer`` and ``commit``.
        """
        check_name(name)
        retention_seconds(retention_days)
        layer = self.add_layer(source, bounds=bounds)
        try:
            return self.commit(
                [layer, *(parent.layers if parent else ())],
                base=parent.base if parent else Base.HOST,
                origin=Origin.SNAPSHOT,
                name=name,
                settings=parent.settings if parent else None,
                labels=labels,
                retention_days=retention_days,
                parent=parent.id if parent else None,
            )
        except BaseException:
            self.release(layer)
            raise

    # ------------------------------------------------------------ collection

    def expire(self, now: float | None = None) -> Sequence[str]:
        """Forget what is past its time and not in use; returns the ids."""
        return expire(self.database, time.time() if now is None else now)

    def gc(self, now: float | None = None) -> Collected:
        """Remove what has expired, what no record and no living process needs, and what crashes left."""
        return collect(self, time.time() if now is None else now)


def _flush(top: int) -> None:
    """All of a file system to the disk: quicker than file by file."""
    if ctypes.CDLL(None, use_errno=True).syncfs(top) != 0:
        raise OSError(ctypes.get_errno(), "syncfs failed")


def _flush_entry(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
