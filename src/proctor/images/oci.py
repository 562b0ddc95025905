"""Imports an image from an OCI layout or a ``docker save`` file.

Every digest that the archive gives is checked: those of blobs, and of each
layer after it was unpacked. Nothing is recorded before all of it fits.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from proctor.core.errors import InfrastructureError, InputError
from proctor.images.archive import Archive, Checked, is_hex, open_archive, unpacked
from proctor.images.layer import Dialect
from proctor.images.records import MAX_LAYERS, Base, Layer, Record, Settings, check_name, retention_seconds
from proctor.images.store import Store
from proctor.images.tarstream import Bounds, TarReader, refuse

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_NAMES = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
_NESTED, _MOST_MANIFESTS = 4, 10_000
_MOST_BYTES = 128 << 20  # of manifests and configurations, which are some KiB each; 4 MiB take 0.07 s


@dataclass(frozen=True, slots=True)
class Imported:
    """A record, and what was left out of the archive (see ``layer.Unpacked.dropped``)."""

    record: Record
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Found:
    """An image of an archive: its configuration, and (member, digest of the packed bytes or None) of each layer."""

    config: Mapping[str, Any]
    layers: Sequence[tuple[str, str | None]]


def import_archive(
    store: Store,
    source: Path | BinaryIO,
    *,
    name: str | None = None,
    reference: str | None = None,
    preimport: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    retention_days: float | None = None,
    bounds: Bounds | None = None,
    told: Callable[[int], None] | None = None,
) -> Imported:
    """Store the image of an archive, as a file or a stream.

    Args:
        reference: which one, where the archive has several.
        told: called with bytes as they are read.

    Raises:
        InputError: broken, hostile, too large, of another platform, or not clear which.
        InfrastructureError: it cannot be stored.
        OSError: the file cannot be read.
    """
    check_name(name)
    retention_seconds(retention_days)
    kept: list[Layer] = []  # newest first
    dropped: dict[str, int] = {}
    with store.box() as box, open_archive(source, box, told) as archive:
        found = _find(archive, reference)
        settings = _settings(found.config, preimport)
        unpacked_digests = _diff_ids(found)
        try:
            for (member, digest), diff_id in zip(found.layers, unpacked_digests, strict=True):
                layer = _add(store, archive, member, digest, diff_id, kept, bounds)
                while layer.hides_all and kept:
                    store.release(kept.pop())
                kept.insert(0, layer)
                for what, count in layer.dropped.items():
                    dropped[what] = dropped.get(what, 0) + count
            record = store.commit(
                kept, base=Base.OCI, name=name, settings=settings, labels=labels, retention_days=retention_days
            )
        except BaseException:
            for layer in kept:
                store.release(layer)
            if kept:
                with contextlib.suppress(InfrastructureError, OSError):  # the next collection takes them
                    store.gc()
            raise
    return Imported(record, dropped)


def _add(
    store: Store,
    archive: Archive,
    member: str,
    digest: str | None,
    diff_id: str,
    below: list[Layer],
    bounds: Bounds | None,
) -> Layer:
    packed = archive.raw(member, digest)
    plain = Checked(unpacked(packed, archive.size(member)), diff_id, member)

    def check(reader: TarReader) -> None:
        reader.drain()
        plain.check()
        packed.check()

    return store.add_layer(plain, dialect=Dialect.OCI, bounds=bounds, below=list(below), check=check)


# ---------------------------------------------------------------- which image


def _find(archive: Archive, reference: str | None) -> _Found:
    if "index.json" in archive:
        return _from_layout(archive, reference)
    if "manifest.json" in archive:
        return _from_docker(archive, reference)
    raise InputError("this is neither an OCI layout (it has no index.json) nor a docker save file (no manifest.json)")


def _from_layout(archive: Archive, reference: str | None) -> _Found:
    found: dict[str, tuple[Mapping[str, Any], str]] = {}  # digest -> manifest, name
    others: set[str] = set()
    _walk(archive, archive.json("index.json"), "", _NESTED, found, others, _Looked())
    if reference is not None:
        named = {digest: one for digest, one in found.items() if reference in (one[1], digest)}
        found = named or {d: one for d, one in found.items() if one[1].endswith((f"/{reference}", f":{reference}"))}
    here = f"linux/{_machine()}"
    if not found:
        have = f"; it has {_shown(others)}" if others else ""
        which = f" named {reference!r}" if reference is not None else ""
        raise InputError(f"the archive has no image{which} for {here}{have}", field="reference" if reference else None)
    if len(found) > 1:
        names = _shown(name or digest for digest, (_, name) in found.items())
        raise InputError(f"the archive has {len(found)} images ({names}); say which", field="reference")
    ((manifest, _),) = found.values()
    config = _descriptor(manifest.get("config"))
    layers = [_descriptor(one) for one in _list(manifest, "layers")]
    return _Found(
        _object(archive.json(archive.blob(*config), config[0]), "the configuration"),
        [(archive.blob(*one), one[0]) for one in layers],
    )


class _Looked:
    """What was read of an archive's indexes: one in itself, many times over, is small and never ends."""

    def __init__(self) -> None:
        self.manifests = self.size = 0

    def at(self, size: int) -> None:
        """One more, of so many bytes."""
        self.manifests += 1
        self.size += size
        if self.manifests > _MOST_MANIFESTS or self.size > _MOST_BYTES:
            raise refuse("the archive's indexes name too many manifests")


def _shown(names: Iterable[str]) -> str:
    """Some of an archive's names, which are hostile, for a message."""
    return ", ".join(ascii(name[:80])[1:-1] for name in sorted(names)[:10])


def _walk(
    archive: Archive,
    index: Any,
    outer: str,
    depth: int,
    found: dict[str, tuple[Mapping[str, Any], str]],
    others: set[str],
    looked: _Looked,
) -> None:
    """Collect the manifests of an index, and of those in it, that are for this machine."""
    manifests = _list(_object(index, "an index"), "manifests")
    if not depth or len(manifests) > 1000 or len(found) > 1000:
        raise refuse("the archive's indexes are nested too deep or are too long")
    for one in manifests:
        digest, size = _descriptor(one)
        looked.at(size)
        notes = one.get("annotations")
        notes = notes if isinstance(notes, dict) else {}
        if "vnd.docker.reference.type" in notes:
            continue  # what was said about an image, not one
        name = next((notes[key] for key in _NAMES[::-1] if isinstance(notes.get(key), str)), outer)
        place = one.get("platform")
        if isinstance(place, dict) and not _fits(place, others):
            continue
        inner = _object(archive.json(archive.blob(digest, size), digest), "a manifest")
        if "manifests" in inner:
            _walk(archive, inner, name, depth - 1, found, others, looked)
            continue
        if not isinstance(place, dict):
            config = _descriptor(inner.get("config"))
            looked.at(config[1])
            if not _fits(_object(archive.json(archive.blob(*config), config[0]), "the configuration"), others):
                continue
        found[digest] = (inner, name)


def _from_docker(archive: Archive, reference: str | None) -> _Found:
    manifest = archive.json("manifest.json")
    if not isinstance(manifest, list) or not 0 < len(manifest) <= 1000:
        raise refuse("manifest.json is not a list of images")
    images = [_object(one, "manifest.json") for one in manifest]
    if reference is not None:
        images = [one for one in images if reference in _tags(one)]
    if len(images) != 1:
        names = _shown(tag for one in images for tag in _tags(one)) or "none with a name"
        raise InputError(f"the archive has {len(manifest)} images ({names}); say which", field="reference")
    name = _string(images[0].get("Config"), "Config")
    stem = name.removeprefix("blobs/sha256/").removesuffix(".json")
    config = _object(archive.json(name, f"sha256:{stem}" if is_hex(stem) else None), "the configuration")
    others: set[str] = set()
    if not _fits(config, others):
        raise InputError(f"the archive has no image for linux/{_machine()}; it has {_shown(others)}")
    members = [_string(one, "Layers") for one in _list(images[0], "Layers")]
    blobs = [member.removeprefix("blobs/sha256/") for member in members]
    return _Found(
        config,
        [
            (member, f"sha256:{blob}" if blob != member and is_hex(blob) else None)
            for member, blob in zip(members, blobs, strict=True)
        ],
    )


def _tags(image: Any) -> list[str]:
    tags = image.get("RepoTags") if isinstance(image, dict) else None
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def _machine() -> str:
    return _MACHINES.get(platform.machine(), platform.machine())


def _fits(place: Mapping[str, Any], others: set[str]) -> bool:
    system, machine = str(place.get("os", "linux"))[:40], str(place.get("architecture", ""))[:40]
    if (system, machine) == ("linux", _machine()):
        return True
    if "unknown" not in (system, machine):
        others.add(f"{system}/{machine}")
    return False


# ---------------------------------------------------------------- its configuration


def _diff_ids(found: _Found) -> list[str]:
    fs = _object(found.config.get("rootfs"), "rootfs")
    digests = [_string(one, "diff_ids") for one in _list(fs, "diff_ids")]
    if len(digests) != len(found.layers):
        raise refuse(f"the configuration knows {len(digests)} layers, and the manifest {len(found.layers)}")
    if len(digests) > MAX_LAYERS:
        raise InputError(f"the image has {len(digests)} layers; {MAX_LAYERS} are the most, build it with fewer")
    if not all(one.startswith("sha256:") and is_hex(one[7:]) for one in digests):
        raise refuse("a diff_id is not a sha256 digest")
    return digests


def _settings(config: Mapping[str, Any], preimport: Sequence[str]) -> Settings:
    told = config.get("config")
    told = _object(told, "config") if told is not None else {}
    env = {}
    for entry in _list(told, "Env"):
        name, equals, value = _string(entry, "Env").partition("=")
        if not equals:
            raise refuse(f"{name[:80]!r} in Env has no value")
        env[name] = value
    directory, user = told.get("WorkingDir") or None, told.get("User") or None
    return Settings(
        env=env,
        workdir=None if directory is None else _string(directory, "WorkingDir"),
        user=None if user is None else _string(user, "User"),
        entrypoint=tuple(_string(one, "Entrypoint") for one in _list(told, "Entrypoint")),
        command=tuple(_string(one, "Cmd") for one in _list(told, "Cmd")),
        preimport=tuple(preimport),
    )


def _descriptor(value: Any) -> tuple[str, int]:
    told = _object(value, "a descriptor")
    size = told.get("size")
    if type(size) is not int or size < 0:
        raise refuse("a descriptor has no size")
    return _string(told.get("digest"), "digest"), size


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise refuse(f"{what} is not an object")
    return value


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or len(found) > 10_000:
        raise refuse(f"{key} is not a list")
    return found


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value) > 200_000:
        raise refuse(f"{what} is not a text")
    return value
