"""Where a keeper is found: a directory of this user's alone, with its socket and its lock, and how one is started.

Everything in the directory is reached through its descriptor, after owner and
mode were looked at, so nothing that another user put in the way is followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from proctor.core.errors import InfrastructureError

SOCKET, LOCK, LOG = "keeper.sock", "keeper.lock", "keeper.log"
_MOST_LOG = 1 << 20
_PEER = struct.Struct("3i")


def default_place() -> Path:
    """``XDG_RUNTIME_DIR/proctor``, or a directory of this user's in /tmp where that is not set."""
    told = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(told) and os.path.isdir(told):
        return Path(told) / "proctor"
    return Path(f"/tmp/proctor.user-{os.geteuid()}")


def log_path() -> Path:
    """``keeper.log`` in ``XDG_STATE_HOME/proctor``, or in ``~/.local/state/proctor``."""
    told = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(told) if os.path.isabs(told) else Path.home() / ".local" / "state"
    except RuntimeError as exc:
        raise InfrastructureError(f"this user has no home directory ({exc}); set XDG_STATE_HOME") from exc
    return base / "proctor" / LOG


@contextlib.contextmanager
def opened(place: Path, *, make: bool) -> Iterator[int]:
    """A descriptor of the directory, for as long as the block takes.

    Raises:
        InfrastructureError: it is a link, another user's, or open to others. FileNotFoundError: there is none.
    """
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise InfrastructureError(
            f"{place}: the keeper's directory cannot be used ({exc.strerror}); set XDG_RUNTIME_DIR"
        ) from exc
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise InfrastructureError(
                f"{place}: it belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}, and must be this "
                "user's alone (mode 700); remove it, or set XDG_RUNTIME_DIR"
            )
        yield fd
    finally:
        os.close(fd)


def address(folder: int) -> str:
    """The socket's address; short, however long the directory's path is."""
    return f"/proc/self/fd/{folder}/{SOCKET}"


def connect(place: Path) -> socket.socket | None:
    """A connection to the keeper; None where there is none.

    Raises:
        InfrastructureError: the directory, or whoever listens in it, is not this user's.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with opened(place, make=False) as folder:
            sock.connect(address(folder))
        if (uid := peer(sock)[1]) != os.geteuid():
            raise InfrastructureError(f"{place}: the keeper that answers there is user {uid}'s")
    except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
        sock.close()
        return None
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def peer(sock: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    pid, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid


def lock(folder: int) -> int | None:
    """Be the one keeper of this directory until the descriptor is closed; None where there is one already."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(LOCK, flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def listen(folder: int) -> socket.socket:
    """Take the place of whatever socket a keeper that was killed has left; for the holder of the lock."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET, dir_fd=folder)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(address(folder))
    except BaseException:
        sock.close()
        raise
    finally:
        os.umask(before)
    sock.listen(128)
    sock.setblocking(False)
    return sock


def start(place: Path, linger_s: float) -> subprocess.Popen[bytes]:
    """Start a keeper that outlives this process; it ends at once where another one is quicker."""
    log = log_path()
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > _MOST_LOG:
            os.replace(log, log.with_suffix(".log.1"))
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InfrastructureError(f"{log}: the keeper's log cannot be written: {exc.strerror}") from exc
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    env = {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "proctor.client.keeper", str(place), str(linger_s)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", env=env, start_new_session=True,
        )  # fmt: skip
    except OSError as exc:
        raise InfrastructureError(f"a keeper cannot be started: {exc}") from exc
    finally:
        os.close(out)
    threading.Thread(target=process.wait, name="proctor-keeper-reaper", daemon=True).start()
    return process


def last_words() -> str:
    """The last line of the log, for an error."""
    try:
        lines = log_path().read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
    except (OSError, InfrastructureError):
        return ""
    return lines[-1][:300] if lines else ""
