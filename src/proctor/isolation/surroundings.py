"""What decides which isolation level this process can have, as one word.

Where two processes have the same surroundings, ``auto`` gives both the same
level, so the level need not be tried out again before anything is run.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from proctor.core.runner import RUNNER

_STATUS = ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
_SETTINGS = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/self/attr/current",
)
_NAMESPACES = ("user", "mnt", "pid", "net")


def surroundings() -> str:
    """A digest of the kernel, this boot, this container, this user and its rights."""
    told = [RUNNER, platform.release(), str(os.getuid()), str(os.geteuid())]
    told += [row for row in _text("/proc/self/status").splitlines() if row.split(":")[0] in _STATUS]
    told += map(_text, _SETTINGS)
    for name in _NAMESPACES:
        try:
            told.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            told.append("")
    return hashlib.sha256("\0".join(told).encode("utf-8", "surrogateescape")).hexdigest()


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
