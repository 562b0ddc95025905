"""What is stored of an image or snapshot, and how one is named."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proctor.core.errors import InputError

MAX_LAYERS = 128  # an overlay mount takes more, but its options have to fit in a page
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_VARIABLE = re.compile(r"[^=\0]+")


class Origin(StrEnum):
    """Where a record came from. Names and versions are each origin's own."""

    IMAGE = "image"
    SNAPSHOT = "snapshot"


class Base(StrEnum):
    """What lies under the oldest layer: the host's own interpreter and libraries, or (``oci``) nothing."""

    HOST = "host"
    OCI = "oci"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How commands start in it, where they do not say.

    Attributes:
        env: beyond the base's own. workdir: directory; None for the usual one.
        user, entrypoint, command: as an OCI image had them; Proctor keeps them and uses none by itself.
        preimport: modules that its warm interpreter imports.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    preimport: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, value in self.env.items():
            if not _VARIABLE.fullmatch(key) or "\0" in value or len(key) + len(value) > 100_000:
                raise InputError(f"{key[:80]!r} is no variable that a program can have", field="env")
        if len(self.env) > 1000:
            raise InputError(f"{len(self.env)} variables; 1000 are the most", field="env")
        if self.workdir is not None and (not self.workdir.startswith("/") or "\0" in self.workdir):
            raise InputError(f"{self.workdir[:80]!r} does not begin with /", field="workdir")
        for module in self.preimport:
            if not _MODULE.fullmatch(module) or len(module) > 200:
                raise InputError(f"{module[:80]!r} is not the name of a module", field="preimport")

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "env": dict(self.env),
            "workdir": self.workdir,
            "user": self.user,
            "entrypoint": list(self.entrypoint),
            "command": list(self.command),
            "preimport": list(self.preimport),
        }


def settings_from(text: str) -> Settings:
    """What ``to_json`` gave, as stored."""
    told = json.loads(text)
    lists = {name: tuple(told[name]) for name in ("entrypoint", "command", "preimport")}
    return Settings(env=told["env"], workdir=told["workdir"], user=told["user"], **lists)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the store.

    Attributes:
        number: names its directory. digest: ``sha256:...`` of its content.
        bytes: of its files. entries: files, directories, links and whiteouts.
        dropped: what was left out of it when it was added (see ``layer.Unpacked``); only in ``add_layer``'s answer.
        hides_all: it hides all layers below; only in ``add_layer``'s answer.
        pin: keeps it from being collected until it is committed or released.
    """

    number: int
    digest: str
    bytes: int
    entries: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    hides_all: bool = False
    pin: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An image or a snapshot. Times are seconds since the epoch; ``layers`` are newest first."""

    id: str
    origin: Origin
    base: Base
    name: str | None
    version: int | None
    digest: str
    layers: tuple[Layer, ...]
    settings: Settings
    labels: Mapping[str, str]
    created_at: float
    expires_at: float | None
    parent: str | None

    @property
    def bytes(self) -> int:
        """Of all its layers, also those that others share."""
        return sum(layer.bytes for layer in self.layers)

    def has_expired(self) -> bool:
        """Its time is over."""
        return self.expires_at is not None and time.time() >= self.expires_at

    @property
    def reference(self) -> str:
        """``name@v3``, or the id where there is no name."""
        return f"{self.name}@v{self.version}" if self.name else self.id

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "id": self.id,
            "origin": self.origin.value,
            "base": self.base.value,
            "name": self.name,
            "version": None if self.version is None else f"v{self.version}",
            "digest": self.digest,
            "bytes": self.bytes,
            "layers": [{"digest": one.digest, "bytes": one.bytes, "entries": one.entries} for one in self.layers],
            **self.settings.to_json(),
            "labels": dict(self.labels),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "parent": self.parent,
        }


def digest_of(base: Base, layers: Sequence[str], settings: Settings) -> str:
    """Of all that programs can see of an image, but for what the host itself has."""
    about = json.dumps([1, base.value, list(layers), settings.to_json()], sort_keys=True)
    return f"sha256:{hashlib.sha256(about.encode('utf-8', 'surrogatepass')).hexdigest()}"


def check_name(name: str | None) -> None:
    """Raises InputError where nothing can have that name."""
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
        raise InputError(
            f"{str(name)[:80]!r} is no name; use up to 64 letters, digits, '.', '_' and '-', a letter or digit first",
            field="name",
        )
    if name is not None and re.match(r"(img|snap)_", name):
        raise InputError(f"{name!r} begins like an id; choose another", field="name")


def check_labels(labels: Mapping[str, str]) -> None:
    """Raises InputError where they are too many, too long or no text."""
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str) or not 0 < len(key) <= 128 or len(value) > 4096:
            raise InputError(
                f"{str(key)[:80]!r} is no label; names have 1 to 128 characters, values up to 4096", field="labels"
            )
    if len(labels) > 100:
        raise InputError(f"{len(labels)} labels; 100 are the most", field="labels")


def retention_seconds(days: float | None) -> float | None:
    """Seconds of a number of days; None is for ever."""
    if days is None:
        return None
    if isinstance(days, bool) or not isinstance(days, int | float) or not math.isfinite(days) or not 0 < days <= 36500:
        raise InputError(
            f"{days!r} is no number of days above 0 and up to 36500; leave it out to keep it", field="retention_days"
        )
    return days * 86400.0


@dataclass(frozen=True, slots=True)
class Reference:
    """``NAME``, ``NAME@v2``, ``NAME@sha256:...`` or an id, taken apart."""

    name: str | None = None
    version: int | None = None
    digest: str | None = None
    id: str | None = None


def parse_reference(text: str) -> Reference:
    """Raises InputError where it is none."""
    if not isinstance(text, str):
        raise InputError(f"{text!r} is no name or id", field="image")
    if re.fullmatch(r"(img|snap)_[0-9a-z]{1,40}", text):
        return Reference(id=text)
    name, at, rest = text.partition("@")
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{text[:120]!r} is no name or id; write NAME, NAME@v2, NAME@sha256:... or an id", field="image"
        )
    if not at:
        return Reference(name=name)
    if re.fullmatch(r"v[1-9][0-9]{0,8}", rest):
        return Reference(name=name, version=int(rest[1:]))
    if re.fullmatch(r"sha256:[0-9a-f]{8,64}", rest):
        return Reference(name=name, digest=rest)
    raise InputError(
        f"{rest[:80]!r} is no version; write {name}@v2, or {name}@sha256: and 8 or more digits of it", field="image"
    )
