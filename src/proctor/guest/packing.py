"""A sandbox's files as a stream: what was written over its layers, in the form that a layer has.

Runs in a process of its own that pid 1 forks while everything else in the
sandbox is stopped, so nothing changes under it. It reads the directories that
the overlay mounts write to, by their descriptors, and follows no link.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator

from . import floor

OPAQUE = "user.overlay.opaque", "trusted.overlay.opaque"  # of the kernel's overlays, and of gVisor's
_COPY = 1 << 20
MOST_BYTES, MOST_DEEP = 4000, 128  # of a path, and its components: of what a snapshot holds, and can be asked for here


class TooLarge(Exception):
    """The files are longer than the disk that they lie on: sparse ones, which a stream would fill with zeros."""


class TooDeep(Exception):
    """A file lies at a path that no snapshot holds."""


def pack(built: floor.Floor, sink: int, most: int) -> None:
    """Write all to ``sink`` as a tar stream (pax): whiteouts are devices 0/0, opaque directories have ``PROCTOR.opaque``.

    Args:
        built: the sandbox's root.
        sink: descriptor to write to; closed at the end.
        most: bytes of all files together.
    """
    total = 0
    with (
        open(sink, "wb", buffering=_COPY) as raw,
        tarfile.open(fileobj=raw, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_COPY) as tar,
    ):
        tar.copybufsize = _COPY  # type: ignore[attr-defined]
        links: dict[int, str] = {}
        for place, upper in built.uppers:
            top = f"/proc/self/fd/{upper}"
            for inside in _walk(top):
                path, name = f"{top}/{inside}", f"{place}/{inside}".lstrip("/")
                if len(os.fsencode(name)) > MOST_BYTES or name.count("/") >= MOST_DEEP:
                    raise TooDeep
                info = os.lstat(path)
                total += info.st_size if stat.S_ISREG(info.st_mode) else 0
                if total > most:
                    raise TooLarge(f"the files are longer than {most} bytes")
                _add(tar, name, path, info, links)
                tar.members.clear()  # type: ignore[attr-defined]  # else all headers stay in memory, which is the sandbox's


def _walk(top: str) -> Iterator[str]:
    """Paths below a directory, each before what lies in it; holds names, not paths, of what is still to come."""
    stack = [("", iter(sorted(os.listdir(top))))]
    while stack:
        folder, names = stack[-1]
        name = next(names, None)
        if name is None:
            stack.pop()
            continue
        inside = f"{folder}/{name}" if folder else name
        yield inside
        if stat.S_ISDIR(os.lstat(f"{top}/{inside}").st_mode):
            stack.append((inside, iter(sorted(os.listdir(f"{top}/{inside}")))))


def _add(tar: tarfile.TarFile, name: str, path: str, info: os.stat_result, links: dict[int, str]) -> None:
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(info.st_mode), info.st_mtime_ns / 1e9
    member.uid, member.gid = info.st_uid, info.st_gid
    kind = info.st_mode
    if stat.S_ISDIR(kind):
        member.type = tarfile.DIRTYPE
        for attribute in OPAQUE:
            try:
                if os.getxattr(path, attribute) == b"y":
                    member.pax_headers = {"PROCTOR.opaque": "1"}
            except OSError:
                continue
    elif stat.S_ISLNK(kind):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISCHR(kind) and info.st_rdev == 0:
        member.type, member.devmajor, member.devminor = tarfile.CHRTYPE, 0, 0
    elif stat.S_ISREG(kind):
        if info.st_nlink > 1 and info.st_ino in links:
            member.type, member.linkname = tarfile.LNKTYPE, links[info.st_ino]
        else:
            if info.st_nlink > 1:
                links[info.st_ino] = name
            member.size = info.st_size
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                return
            with open(fd, "rb", buffering=0) as file:
                tar.addfile(member, file)
            return
    else:
        return  # a pipe or a socket is nothing without its processes
    tar.addfile(member)
