"""What an archive's entries are, and the digest of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from proctor.isolation.identities import LAYER_ROOT, LAYER_USER


@dataclass(slots=True)
class Entry:
    """One path of a layer; ``owner`` and ``group`` are 1 for the sandbox's user, 0 for its root; ``content`` is a digest or a target."""

    kind: str
    mode: int = 0o755
    owner: int = 0
    group: int = 0
    mtime_ns: int = 0
    size: int = 0
    content: bytes = b""
    opaque: bool = False


def numbers(entry: Entry) -> tuple[int, int]:
    """Its owner and group on the host, where layers have owners of their own."""
    return (LAYER_USER if entry.owner else LAYER_ROOT), (LAYER_USER if entry.group else LAYER_ROOT)


def digest_of(entries: Mapping[bytes, Entry]) -> str:
    """Every field with its length, so that no two trees read the same."""
    digest = hashlib.sha256(b"proctor-layer-1\n")
    first: dict[int, bytes] = {}
    for path in sorted(entries):
        entry = entries[path]
        kind, content = entry.kind, entry.content
        if kind == "file":
            if id(entry) in first:
                kind, content = "link", first[id(entry)]
            else:
                first[id(entry)] = path
        about = f"{kind} {entry.mode:o} {entry.owner} {entry.group} {int(entry.opaque)} {len(path)} {len(content)}\n"
        digest.update(about.encode() + path + content)
    return f"sha256:{digest.hexdigest()}"
