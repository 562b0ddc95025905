"""A machine of Firecracker's that is booted once for an image and saved: its disk, its boot, its memory."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from proctor.core.errors import IsolationUnavailable
from proctor.core.image import Image
from proctor.guest import blocks, channels
from proctor.guest import firecracker as api
from proctor.isolation import firecracker, firsttime

_MOST_DISK = 64 << 30  # bytes of an image's content
_SPARE = 2 << 30  # bytes that are left free beside it
_PIECE = 4 << 20
_PAGE = bytes(4096)


def disk(folder: Path, size: int, disks: Path) -> str:
    """Write an image's root, content and all, into a file; its name.

    Firecracker reads files only, no socket that a saved machine could be given again. The name is a digest of the
    index and the table (names, sizes, times and inodes), so that machines with the same root have one file.

    Args:
        folder: has ``index`` and ``table``.
        size: bytes of the whole.
        disks: where such files are kept.

    Raises:
        IsolationUnavailable: there is no room for it.
        OSError: a file of the image has changed meanwhile.
    """
    digest = hashlib.sha256((folder / "index").read_bytes() + (folder / "table").read_bytes()).hexdigest()[:32]
    disks.mkdir(exist_ok=True, mode=0o700)
    path = disks / digest
    with open(disks / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.is_file():
            os.utime(path)
            return digest
        free = shutil.disk_usage(disks).free
        if size > min(_MOST_DISK, free - _SPARE):
            raise IsolationUnavailable(
                f"isolation 'microvm': Firecracker needs a copy of the image's files, {size >> 20} MiB, and {disks} has "
                f"{max(0, free - _SPARE) >> 20} MiB of room for one of at most {_MOST_DISK >> 30} GiB; "
                "free some, set XDG_CACHE_HOME to a larger file system, or take QEMU, which needs no copy"
            )
        fd, made = tempfile.mkstemp(prefix="new-", dir=disks)
        source = blocks.Disk.within(str(folder), size)
        try:
            for at in range(0, size, _PIECE):
                _write(fd, source.read(at, min(_PIECE, size - at)), at)
            os.ftruncate(fd, -(-size // blocks.BLOCK) * blocks.BLOCK)
            os.fchmod(fd, 0o444)  # nothing is in it that others may not read
            os.rename(made, path)
        except BaseException:
            os.unlink(made)
            raise
        finally:
            source.close()
            os.close(fd)
    return digest


def tidy(disks: Path, wanted: set[str], age_s: float) -> None:
    """Remove the files of machines that are gone, and what was left half written."""
    with contextlib.suppress(OSError):
        for path in disks.iterdir():
            if path.name != "lock" and path.name not in wanted and time.time() - path.stat().st_mtime > age_s:
                path.unlink()


def _write(fd: int, data: bytes, at: int) -> None:
    """Pages of zeros become holes."""
    view = memoryview(data)
    start = 0
    while start < len(data):
        if data[start : start + len(_PAGE)] == _PAGE:
            start += len(_PAGE)
            continue
        end = start + len(_PAGE)
        while end < len(data) and data[end : end + len(_PAGE)] != _PAGE:
            end += len(_PAGE)
        end = min(end, len(data))
        while start < end:
            start += os.pwrite(fd, view[start:end], at + start)


def boot(folder: Path, told: dict[str, Any], image: Image, disks: Path) -> float:
    """Boot a machine and save it as its agent has said READY; how much slower it is than this host.

    Raises:
        IsolationUnavailable: it does not come up, and why.
    """
    (folder / "kernel").write_bytes(firecracker.unpacked(told["kernel"]))
    with open(folder / "console", "wb") as console, open(disks / told["disk"], "rb") as root:
        process = firecracker.start(told["firecracker"], folder, console.fileno(), (root.fileno(),))
    alive = firecracker.alive(process)
    kept: list[Any] = []
    try:
        kept.append(control := api.Api(f"{folder}/{api.API}", alive))
        api.boot(control, told | {"kernel": "kernel", "first": "first"})
        stream = _called(f"{folder}/{api.STREAM}", alive)
        kept.append(stream)
        pace = firsttime.begin(stream.fileno(), told, image, process.pid)
        api.save(control, "state", "dense")
    except (OSError, channels.Broken, TimeoutError) as exc:
        words = ""
        with contextlib.suppress(OSError):
            words = "\n".join((folder / "console").read_text("utf-8", "replace").splitlines()[-30:])[-1500:]
        raise IsolationUnavailable(
            f"isolation 'microvm': a machine of {told['firecracker']} does not come up ({exc}); {words.strip()}"
        ) from exc
    finally:
        process.kill()
        process.wait()
        for one in kept:
            one.close()
    _thin(folder / "dense", folder / "memory")
    for name in ("dense", "kernel", api.API, api.STREAM):
        (folder / name).unlink(missing_ok=True)
    return pace


def _called(path: str, alive: Any) -> Any:
    """The stream to pid 1, as soon as it listens."""
    deadline = time.monotonic() + firsttime.BOOT_S
    while True:
        sock = api.connect(path, alive, "the machine's streams")
        try:
            api.call(sock)
        except OSError:
            sock.close()
            alive()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return sock


def _thin(source: Path, target: Path) -> None:
    """A file with holes where the other has pages of zeros: all of a machine's memory was written."""
    size = source.stat().st_size
    with open(source, "rb") as file, open(target, "xb") as out:
        os.fchmod(out.fileno(), 0o600)
        os.ftruncate(out.fileno(), size)
        for at in range(0, size, _PIECE):
            _write(out.fileno(), file.read(_PIECE), at)
