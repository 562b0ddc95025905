"""What a stack of layers shows at a path, as an overlay mount of them would. Never follows a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

OPAQUE = "user.overlay.opaque"
_ENTER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def look_up(layers: Sequence[Path], path: tuple[bytes, ...]) -> os.stat_result | None:
    """What is at a path; None where there is nothing. ``layers`` are newest first."""
    for layer in layers:
        found, final = _look_in(layer, path)
        if found is not None or final:
            return found
    return None


def _look_in(layer: Path, path: tuple[bytes, ...]) -> tuple[os.stat_result | None, bool]:
    """What one layer has, and whether the ones below do not matter."""
    here, opaque = os.open(layer, _ENTER), False
    try:
        found = os.stat(here)
        for part in path:
            if not stat.S_ISDIR(found.st_mode):
                return None, True
            opaque = opaque or (os.stat(layer).st_ino != found.st_ino and is_opaque(here))
            try:
                found = os.stat(part, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                return None, opaque
            if is_whiteout(found):
                return None, True
            if stat.S_ISDIR(found.st_mode):
                inner = os.open(part, _ENTER, dir_fd=here)
                os.close(here)
                here = inner
        return found, True
    finally:
        os.close(here)


def is_whiteout(found: os.stat_result) -> bool:
    """A character device 0/0."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(fd: int) -> bool:
    """Nothing below shows through this directory."""
    try:
        return os.getxattr(f"/proc/self/fd/{fd}", OPAQUE) == b"y"
    except OSError:
        return False
