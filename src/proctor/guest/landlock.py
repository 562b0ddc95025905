"""Landlock rulesets: what of the file system a case may open, and whom it may signal.

Under a private root this is a second wall; in a locked-down container it is
the wall. Stat, chmod, utime and UDP pass it: ``seccomp`` refuses those.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from . import linux

_EXECUTE, _WRITE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = _EXECUTE | _READ_FILE | _READ_DIR
READ_FILE = _READ_FILE
DEVICE = _READ_FILE | _WRITE
CONTROL = DEVICE | _IOCTL_DEV  # a device that is more than read and written
WRITE = (1 << 13) - 1 | _REFER | _TRUNCATE
_FILE_ONLY = _EXECUTE | _WRITE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def abi() -> int:
    """Version of Landlock in this kernel; 0 when there is none."""
    try:
        return linux.landlock_create(None, 1)
    except OSError:
        return 0


def handled(version: int) -> int:
    """Access rights that this version can hold back."""
    rights = (1 << 13) - 1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if version >= since:
            rights |= right
    return rights


def ruleset(version: int, rules: Iterable[tuple[str, int]], *, network: bool) -> int:
    """A ruleset's descriptor: nothing but ``rules`` (path, access); paths that do not exist are left out.

    With ``network`` TCP bind and connect are refused too (version 4), and from
    version 6 signals and abstract sockets stay inside the domain.
    """
    rights = handled(version)
    attributes = struct.pack("=Q", rights)
    if version >= 4:
        attributes += struct.pack("=Q", 3 if network else 0)
    if version >= 6:
        attributes += struct.pack("=Q", 3)
    fd = linux.landlock_create(attributes)
    for path, access in rules:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            is_dir = os.stat(place).st_mode & 0o170000 == 0o040000
            linux.landlock_add_path(fd, access & rights & (~0 if is_dir else _FILE_ONLY), place)
        finally:
            os.close(place)
    return fd
