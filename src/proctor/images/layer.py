"""Unpacks a hostile tar archive into a fresh directory, as one layer of an overlay mount.

Theory of operation. Nothing is ever opened by a path of the archive: each
directory on the way is opened by its name within the one above, never through
a link, and only if this archive made it. Files are created, never opened; a
further name is given only to a file that this archive made. Set-user-id bits,
devices, pipes and attributes are dropped and counted. Directories keep mode
700 until all is written, then get their own from the bottom to the top.

What removes something of the layers below becomes what an overlay mount made
with ``userxattr`` in a user namespace understands: a character device 0/0 hides
a name, the attribute ``user.overlay.opaque`` all that a directory had.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from proctor.core.errors import InfrastructureError, InputError
from proctor.images.entries import Entry, digest_of, numbers
from proctor.images.lower import OPAQUE, look_up
from proctor.images.tarstream import Bounds, Member, TarReader, components, refuse, show
from proctor.isolation.identities import LAYER_USER

SANDBOX = 1000  # the number inside a sandbox; every other one becomes 0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_FREE = 256 << 20  # bytes that must stay free on the disk
_LOOK_EVERY = 64 << 20
_PREFIX, _OPAQUE_NAME, _META = b".wh.", b".wh..wh..opq", b".wh..wh."


class Dialect(StrEnum):
    """How an archive says that something below is gone.

    ``snapshot``: a char device 0/0 for a name, the pax record ``PROCTOR.opaque=1`` of a directory for all that it had.
    ``oci``: files named ``.wh.NAME`` and ``.wh..wh..opq``.
    """

    SNAPSHOT = "snapshot"
    OCI = "oci"


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was written.

    Attributes:
        digest: ``sha256:...`` over path, kind, mode, owner and content of all entries; times do not count.
        bytes: of all files. entries: files, directories, links and whiteouts.
        dropped: what was left out or changed -> how often.
        hides_all: nothing of the layers below shows through.
    """

    digest: str
    bytes: int
    entries: int
    dropped: Mapping[str, int]
    hides_all: bool


def unpack(
    reader: TarReader,
    top: int,
    *,
    dialect: Dialect,
    bounds: Bounds,
    fixed_owners: bool,
    below: Sequence[Path] | None = None,
) -> Unpacked:
    """Write an archive into an empty directory.

    Args:
        top: descriptor of the directory.
        fixed_owners: give files to LAYER_ROOT and LAYER_USER; else all stay this user's.
        below: the layers underneath, newest first; None when not known. A whiteout
            of what is not there is left out, and a directory that the archive does
            not hold but needs has the attributes that it has there.

    Raises:
        InputError: the archive is broken, hostile or too large.
        InfrastructureError: this host cannot store it.
    """
    unpacker = _Unpacker(top, reader, dialect, bounds, fixed_owners, below)
    try:
        return unpacker.run()
    finally:
        unpacker.close()


class _Unpacker:
    def __init__(
        self,
        top: int,
        reader: TarReader,
        dialect: Dialect,
        bounds: Bounds,
        fixed_owners: bool,
        below: Sequence[Path] | None,
    ) -> None:
        self._top, self._reader, self._dialect, self._bounds = top, reader, dialect, bounds
        self._fixed, self._below = fixed_owners, below
        self._gone: set[bytes] = set()
        self._named = self._looked = 0  # bytes of names; directories below that were looked into
        self._entries: dict[bytes, Entry] = {b"": self._implied(())}
        self._stack: list[tuple[bytes, int]] = []  # the directory that was entered last, and those above it
        self._dropped: Counter[str] = Counter()
        self._unlooked = 0  # bytes written since the disk was looked at

    def close(self) -> None:
        while self._stack:
            os.close(self._stack.pop()[1])

    def run(self) -> Unpacked:
        for member in self._reader:
            self._take(member)
            if len(self._entries) + len(self._gone) > self._bounds.members:
                raise refuse(f"the archive has more than {self._bounds.members} entries")
        self._hide()
        hides_all = self._entries[b""].opaque
        if hides_all and self._dialect is Dialect.SNAPSHOT:
            raise refuse("the top of a snapshot hides all that is below")
        self._finish_directories()
        files = {id(entry): entry.size for entry in self._entries.values() if entry.kind == "file"}
        digest = digest_of(self._entries)
        return Unpacked(digest, sum(files.values()), len(self._entries) - 1, dict(self._dropped), hides_all)

    # ------------------------------------------------------------ members

    def _take(self, member: Member) -> None:
        path = member.path
        if member.absolute and self._dialect is Dialect.SNAPSHOT:
            raise refuse(f"{show(b'/'.join(path))} has an absolute name")
        if self._dialect is Dialect.OCI and any(part.startswith(_PREFIX) for part in path):
            self._take_marker(path)
            return
        joined = b"/".join(path)
        if member.kind == "char" and member.device == (0, 0) and self._dialect is Dialect.SNAPSHOT:
            self._hides(joined)
            return
        if member.kind in ("char", "block", "fifo"):
            self._dropped["fifos" if member.kind == "fifo" else "devices"] += 1
            if self._below is not None:
                self._hides(joined)
            return
        if member.kind == "directory":
            self._directory(path, joined, member)
            return
        parent = self._enter(path[:-1])
        self._replace(parent, path, joined)
        if member.kind == "file":
            self._record(joined, self._file(parent, path[-1], member))
        elif member.kind == "symlink":
            self._record(joined, self._symlink(parent, path[-1], member), len(member.target))
        else:
            self._record(joined, self._link(parent, path, member))

    def _record(self, joined: bytes, entry: Entry, more: int = 0) -> None:
        self._name(len(joined) + more)
        self._entries[joined] = entry

    def _hides(self, joined: bytes) -> None:
        self._name(len(joined))
        self._gone.add(joined)

    def _name(self, size: int) -> None:
        self._named += size
        if self._named > self._bounds.name_bytes:
            raise refuse(f"the archive's names are longer than {self._bounds.name_bytes} bytes together")

    def _take_marker(self, path: tuple[bytes, ...]) -> None:
        name = path[-1]
        if any(part.startswith(_PREFIX) for part in path[:-1]):
            if path[0].startswith(_META):
                return  # the inside of a directory that an old storage driver kept for itself
            raise refuse(f"{show(b'/'.join(path))} lies in a whiteout")
        if name == _OPAQUE_NAME:
            if path[:-1]:
                self._enter(path[:-1])
            self._entries[b"/".join(path[:-1])].opaque = True
        elif not name.startswith(_META):
            hidden = name.removeprefix(_PREFIX)
            if hidden in (b"", b".", b".."):
                raise refuse(f"{show(b'/'.join(path))} is a whiteout of nothing")
            self._hides(b"/".join((*path[:-1], hidden)))

    def _directory(self, path: tuple[bytes, ...], joined: bytes, member: Member) -> None:
        known = self._entries.get(joined)
        if known is None:
            self._make_directory(self._enter(path[:-1]), path[-1])
        elif known.kind != "directory":
            raise refuse(f"{show(joined)} is there twice, as a {known.kind} and as a directory")
        made = self._about("directory", member)
        made.opaque = member.pax.get(b"PROCTOR.opaque") == b"1" if self._dialect is Dialect.SNAPSHOT else False
        made.opaque = made.opaque or (known is not None and known.opaque)
        self._record(joined, made)

    def _replace(self, parent: int, path: tuple[bytes, ...], joined: bytes) -> None:
        known = self._entries.get(joined)
        if known is None:
            return
        if known.kind == "directory":
            raise refuse(f"{show(joined)} is there twice, as a directory and as something else")
        os.unlink(path[-1], dir_fd=parent)
        del self._entries[joined]
        self._dropped["duplicates"] += 1

    def _file(self, parent: int, name: bytes, member: Member) -> Entry:
        made = self._about("file", member)
        made.size = member.size
        self._look_at_disk(4096)
        fd = os.open(name, _NEW, 0o600, dir_fd=parent)
        try:
            digest = hashlib.sha256()
            while data := self._reader.read():
                digest.update(data)
                self._look_at_disk(len(data))
                while data:
                    data = data[os.write(fd, data) :]
            made.content = digest.digest()
            if self._fixed:
                os.fchown(fd, *numbers(made))
            os.fchmod(fd, made.mode)
            os.utime(fd, ns=(made.mtime_ns, made.mtime_ns))
        finally:
            os.close(fd)
        return made

    def _symlink(self, parent: int, name: bytes, member: Member) -> Entry:
        made = self._about("symlink", member)
        made.mode, made.content = 0o777, member.target
        self._look_at_disk(4096)
        os.symlink(member.target, name, dir_fd=parent)
        if self._fixed:
            os.chown(name, *numbers(made), dir_fd=parent, follow_symlinks=False)
        os.utime(name, ns=(made.mtime_ns, made.mtime_ns), dir_fd=parent, follow_symlinks=False)
        return made

    def _link(self, parent: int, path: tuple[bytes, ...], member: Member) -> Entry:
        target = components(member.target, self._bounds, "the target of a hard link")
        known = self._entries.get(b"/".join(target))
        if known is None or known.kind != "file":
            what = "no file of this archive" if known is None else f"a {known.kind}"
            raise refuse(f"{show(b'/'.join(path))} is a hard link to {show(member.target)}, {what}")
        here = os.dup(parent)
        try:
            there = self._enter(target[:-1])
            os.link(target[-1], path[-1], src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.EMLINK:
                raise InputError(f"{show(member.target)} has more hard links than this file system can hold") from error
            raise
        finally:
            os.close(here)
        return known

    def _about(self, kind: str, member: Member) -> Entry:
        """Its attributes, as far as they are taken; the rest is counted."""
        if member.mode & 0o6000:
            self._dropped["setuid and setgid bits"] += 1
        if member.uid not in (0, SANDBOX) or member.gid not in (0, SANDBOX):
            self._dropped["other owners"] += 1
        for key in member.pax:
            if key.startswith((b"SCHILY.xattr.", b"LIBARCHIVE.xattr.", b"SCHILY.acl.")):
                self._dropped["capabilities" if key.endswith(b".security.capability") else "attributes"] += 1
        return Entry(
            kind, member.mode & 0o1777, int(member.uid == SANDBOX), int(member.gid == SANDBOX), member.mtime_ns
        )

    # ------------------------------------------------------------ directories

    def _enter(self, path: tuple[bytes, ...]) -> int:
        """Descriptor of a directory of this archive, made if need be; good until the next call."""
        keep = 0
        while keep < min(len(path), len(self._stack)) and self._stack[keep][0] == path[keep]:
            keep += 1
        while len(self._stack) > keep:
            os.close(self._stack.pop()[1])
        here = self._stack[-1][1] if self._stack else self._top
        for at in range(keep, len(path)):
            joined = b"/".join(path[: at + 1])
            known = self._entries.get(joined)
            if known is None:
                self._make_directory(here, path[at])
                self._record(joined, self._implied(path[: at + 1]))
            elif known.kind != "directory":
                raise refuse(f"{show(b'/'.join(path))} is to be a directory, but {show(joined)} is a {known.kind}")
            try:
                here = os.open(path[at], _DIRECTORY, dir_fd=here)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                    raise InfrastructureError(
                        f"{show(joined)} was changed by somebody while it was unpacked"
                    ) from error
                raise
            self._stack.append((path[at], here))
        return here

    def _make_directory(self, parent: int, name: bytes) -> None:
        self._look_at_disk(4096)
        os.mkdir(name, 0o700, dir_fd=parent)

    def _implied(self, path: tuple[bytes, ...]) -> Entry:
        found = self._find_below(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return Entry("directory")
        owner, group = int(found.st_uid == LAYER_USER), int(found.st_gid == LAYER_USER)
        return Entry("directory", found.st_mode & 0o1777, owner, group, found.st_mtime_ns)

    def _find_below(self, path: tuple[bytes, ...]) -> os.stat_result | None:
        if not self._below:
            return None
        self._looked += len(self._below) * (len(path) + 1)
        if self._looked > self._bounds.lookups:
            raise refuse(
                f"it takes more than {self._bounds.lookups} looks into the layers below to see what the archive's "
                "whiteouts and directories change; build the image with fewer layers"
            )
        return look_up(self._below, path)

    def _hide(self) -> None:
        """Make the whiteouts, once it is known what this archive itself has."""
        for joined in sorted(self._gone):
            path = tuple(joined.split(b"/"))
            known = self._entries.get(joined)
            if known is not None:  # its own entry takes the place of what was below
                known.opaque = known.opaque or known.kind == "directory"
                continue
            over = [self._entries.get(b"/".join(path[:depth])) for depth in range(len(path))]
            if any(entry is not None and entry.opaque for entry in over):
                continue
            if self._below is not None and self._find_below(path) is None:
                continue
            parent = self._enter(path[:-1])
            self._look_at_disk(4096)
            try:
                os.mknod(path[-1], stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
            except PermissionError as error:
                raise InfrastructureError(
                    f"this kernel makes no whiteouts (Linux 5.8 or newer does): {error}"
                ) from error
            self._entries[joined] = Entry("whiteout", 0)

    def _finish_directories(self) -> None:
        """Give directories their own attributes, what lies in them first."""
        folders = (joined for joined, entry in self._entries.items() if entry.kind == "directory")
        for joined in sorted(folders, reverse=True):
            made = self._entries[joined]
            fd = self._enter(tuple(joined.split(b"/"))) if joined else self._top
            if made.opaque and joined:
                try:
                    os.setxattr(fd, OPAQUE, b"y")
                except OSError as error:
                    raise InfrastructureError(
                        f"the file system of the image store keeps no user attributes ({error}); "
                        "set XDG_DATA_HOME to a directory on ext4, xfs or btrfs"
                    ) from error
            if self._fixed:
                os.fchown(fd, *numbers(made))
            os.fchmod(fd, made.mode)
            os.utime(fd, ns=(made.mtime_ns, made.mtime_ns))

    def _look_at_disk(self, size: int) -> None:
        self._unlooked += size
        if self._unlooked >= _LOOK_EVERY:
            self._unlooked = 0
            room = os.fstatvfs(self._top)
            if room.f_bavail * room.f_frsize < _KEPT_FREE or (room.f_files and room.f_favail < 1000):
                raise InfrastructureError(
                    "the disk of the image store is nearly full; free some, or `proctor image gc`"
                )
