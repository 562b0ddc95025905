"""Tar archives for tests, written by the standard library, or by hand where it would refuse to."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.images.layer import Dialect, Unpacked, unpack
from proctor.images.tarstream import Bounds, TarReader

KINDS = {
    "file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE, "link": tarfile.LNKTYPE,
    "char": tarfile.CHRTYPE, "block": tarfile.BLKTYPE, "fifo": tarfile.FIFOTYPE,
}  # fmt: skip
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def member(name: str, data: bytes = b"", kind: str = "file", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A member; ``fields`` are those of TarInfo, ``to`` is a link's target."""
    info = tarfile.TarInfo(name)
    info.type, info.size = KINDS[kind], len(data)
    info.mode = 0o755 if kind == "dir" else 0o644
    info.linkname = fields.pop("to", "")
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as out:
        for info, data in members:
            out.addfile(info, io.BytesIO(data))
    return file.getvalue()


def files(**content: bytes) -> bytes:
    return tar(*(member(name, data) for name, data in content.items()))


def header(name: bytes = b"x", size: int = 0, flag: bytes = b"0", **fields: bytes) -> bytes:
    """One block, with the right checksum whatever stands in it."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136], block[136:148], block[156:157] = b"%011o\0" % size, b"%011o\0" % 0, flag
    block[257:265] = b"ustar\x0000"
    for key, (start, end) in {"size_field": (124, 136), "linkname": (157, 257), "prefix": (345, 500)}.items():
        value = fields.get(key, b"")
        if value:
            block[start:end] = value.ljust(end - start, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def pax(body: bytes, flag: bytes = b"x") -> bytes:
    return header(b"pax", len(body), flag) + padded(body)


def record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    while len(b"%d" % length) + len(key) + len(value) + 3 != length:
        length = len(b"%d" % length) + len(key) + len(value) + 3
    return b"%d %s=%s\n" % (length, key, value)


END = bytes(1024)


def extract(
    data: bytes | Any, target: Path, dialect: Dialect = Dialect.SNAPSHOT, *, bounds: Bounds | None = None, **more: Any
) -> Unpacked:
    """Unpack into ``target``, as this user."""
    target.mkdir(exist_ok=True)
    bounds = bounds or Bounds()
    top = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    try:
        reader = TarReader(source, bounds, whole=dialect is Dialect.SNAPSHOT)
        return unpack(reader, top, dialect=dialect, bounds=bounds, fixed_owners=False, **more)
    finally:
        os.close(top)


def tree(top: Path) -> dict[str, Any]:
    """All that is in a directory: path -> what it is. Follows nothing."""
    found: dict[str, Any] = {}
    for folder, names, leaves in os.walk(os.fsencode(top)):
        for name in names + leaves:
            path = os.path.join(folder, name)
            shown = os.fsdecode(os.path.relpath(path, os.fsencode(top)))
            info = os.lstat(path)
            if stat.S_ISLNK(info.st_mode):
                found[shown] = ("symlink", os.fsdecode(os.readlink(path)))
            elif stat.S_ISDIR(info.st_mode):
                found[shown] = ("dir", stat.S_IMODE(info.st_mode))
                with contextlib.suppress(OSError):
                    if os.getxattr(path, "user.overlay.opaque") == b"y":
                        found[shown] += ("opaque",)
            elif stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    found[shown] = ("file", stat.S_IMODE(info.st_mode), file.read())
            else:
                found[shown] = ("whiteout",) if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0 else ("other",)
    return found


@contextlib.contextmanager
def untouched(top: Path) -> Iterator[None]:
    """Nothing outside changes: neither what is there nor its attributes."""

    def look() -> list[Any]:
        return [(path, os.lstat(path)[:4], os.lstat(path).st_mtime_ns) for path in sorted(map(str, top.rglob("*")))]

    before = tree(top), look()
    yield
    assert (tree(top), look()) == before


# ---------------------------------------------------------------- image archives


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def config(layers: list[bytes], **more: Any) -> bytes:
    told = {"Env": ["PATH=/bin:/usr/bin", "GREETING=a=b"], "WorkingDir": "/srv", "Cmd": ["sh"], "User": "app"}
    ids = [f"sha256:{sha(one)}" for one in layers]
    about = {"os": "linux", "architecture": MACHINE, "config": told, "rootfs": {"type": "layers", "diff_ids": ids}}
    return json.dumps(about | more).encode()


def docker_save(layers: list[bytes], packed: list[bytes] | None = None, **more: Any) -> dict[str, bytes]:
    """Members of what ``docker save`` writes."""
    about = config(layers, **more)
    found = {f"{sha(about)}.json": about}
    names = [f"{number:064x}/layer.tar" for number in range(len(layers))]
    found |= dict(zip(names, packed or layers, strict=True))
    manifest = [{"Config": f"{sha(about)}.json", "RepoTags": ["example:1"], "Layers": names}]
    return found | {"manifest.json": json.dumps(manifest).encode()}


def oci_layout(
    layers: list[bytes], packed: list[bytes] | None = None, platforms: Mapping[str, bytes] | None = None, **more: Any
) -> dict[str, bytes]:
    """Members of an OCI layout with one image. ``platforms``: further manifests by architecture."""
    found: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        found[f"blobs/sha256/{sha(data)}"] = data
        return {"mediaType": kind, "digest": f"sha256:{sha(data)}", "size": len(data)}

    about = blob(config(layers, **more), "application/vnd.oci.image.config.v1+json")
    listed = [blob(one, "application/vnd.oci.image.layer.v1.tar") for one in packed or layers]
    manifest = blob(json.dumps({"schemaVersion": 2, "config": about, "layers": listed}).encode(), "manifest")
    manifests = [manifest | {"platform": {"os": "linux", "architecture": MACHINE}}]
    for machine, data in (platforms or {}).items():
        manifests.append(blob(data, "manifest") | {"platform": {"os": "linux", "architecture": machine}})
    inner = blob(json.dumps({"schemaVersion": 2, "manifests": manifests}).encode(), "index")
    note = {"annotations": {"org.opencontainers.image.ref.name": "example:1"}}
    found["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [inner | note]}).encode()
    return found


def archive(members: Mapping[str, bytes]) -> bytes:
    return tar(*(member(name, data) for name, data in members.items()))
