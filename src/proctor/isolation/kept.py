"""What is made once for an image and kept in the cache directory: where, under which lock, and how much of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from proctor.guest import protocol

GUEST = Path(protocol.__file__).parent


def folder(kind: str) -> Path:
    """Directory of one kind of these: under ``XDG_CACHE_HOME``, or ``~/.cache`` where that is not set."""
    told = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(told) if os.path.isabs(told) else Path.home() / ".cache") / "proctor" / kind


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that other processes see."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def guest_files() -> list[list[str]]:
    """Names and content of the guest's modules, for a key: what was saved has them in its memory."""
    return [[path.name, path.read_bytes().hex()] for path in sorted(GUEST.glob("*.py"))]


def cpu() -> str:
    """Of which kind the CPU is, for a key: speeds were measured on it, and what was saved knows its features."""
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    return next((row for row in rows if row.startswith("model name")), "")


def prune(top: Path, most: int, most_bytes: int, stale_s: float) -> list[Path]:
    """Remove what was left half made, and what was used longest ago where it is too much, with room for one more.

    Args:
        top: holds a directory for each, with a file ``told``, and a lock beside it.
        most, most_bytes: how many, and of how many bytes on disk.
        stale_s: seconds after which something half made is nobody's.

    Returns:
        Those that are left.
    """
    now = time.time()
    for left in top.glob("new-*"):
        if now - left.stat().st_mtime > stale_s:
            shutil.rmtree(left, ignore_errors=True)
    kept = sorted((path for path in top.iterdir() if (path / "told").is_file()), key=lambda path: -path.stat().st_mtime)
    total = 0
    for number, path in enumerate(kept):
        total += sum(file.stat().st_blocks * 512 for file in path.iterdir())
        if number + 1 >= most or total > most_bytes // 2:
            shutil.rmtree(path, ignore_errors=True)
            (top / f"{path.name}.lock").unlink(missing_ok=True)
    return [path for path in kept if (path / "told").is_file()]
