"""A secret, planted wherever a way out of the jail would find it, that must never come back.

Planted in the environment of this process (so before any engine starts), in
files of /tmp and /dev/shm, and by ``beacon`` on a command line, in a System V
segment, an abstract socket's name and a loopback banner. The victims are host
files that an attack may try to change.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
import socket
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from proctor.core.errors import InfrastructureError

NAME = "PROBE_CANARY"
LOCK = "\0proctor-doctor"
PREFIX = "escape_mark_canary"
TMP, SHM = Path("/tmp"), Path("/dev/shm")
VICTIM, VICTIM_FOLDER = TMP / "escape_mark_victim", TMP / "escape_mark_victim_dir"
WATCHED = (Path("/etc/passwd"), Path("/etc/shadow"), Path("/etc/hostname"), Path("/etc/hosts"))


def fingerprint(path: Path) -> str:
    """Content, owner and mode of a file or folder in one word; what cannot be read is left out of it."""
    try:
        seen = path.lstat()
    except OSError as error:
        return type(error).__name__
    content = b""
    with contextlib.suppress(OSError):
        content = path.read_bytes() if path.is_file() else repr(sorted(path.iterdir())).encode()
    return f"{hashlib.sha256(content).hexdigest()[:16]} {seen.st_uid}:{seen.st_gid} {seen.st_mode:o} {seen.st_nlink}"


log = logging.getLogger("proctor")


_held: list[socket.socket] = []


@contextlib.contextmanager
def alone(patience_s: float = 1800.0) -> Iterator[None]:
    """Waits until no other doctor of any user examines this host: their bait would look like each other's spoils.

    The lock is an abstract name that belongs to nobody and goes with its
    process, which may take it again while it has it.

    Raises:
        InfrastructureError: the other one is still there after ``patience_s`` seconds.
    """
    lock = None if _held else _lock(time.monotonic() + patience_s)
    if lock is None:
        yield
        return
    _held.append(lock)
    try:
        yield
    finally:
        _held.remove(lock)
        lock.close()


def _lock(end: float) -> socket.socket:
    told = False
    while True:
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(LOCK)
            return lock
        except OSError as error:
            lock.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise InfrastructureError(f"another doctor examines this host: {error.strerror}") from error
        if not told:
            log.warning("another doctor examines this host; waiting for it")
            told = True
        time.sleep(0.2)


class Canary:
    """The planted secret; a context manager that takes all of it away again.

    One at a time on a host: a second waits for the first to end.

    Attributes:
        text: the secret.
        pid, tcp, udp: the beacon's process and loopback ports.
        shm: its System V segment's number, None where there are no such things.
        files: planted host files.
    """

    def __init__(self) -> None:
        alphabet = string.ascii_uppercase + string.digits
        self.text = f"{NAME}_" + "".join(secrets.choice(alphabet) for _ in range(16))
        self.files: list[Path] = []
        self.pid = self.tcp = self.udp = 0
        self.shm: int | None = None
        self._beacon: subprocess.Popen[str] | None = None
        self._before: dict[Path, str] = {}
        self._environment: str | None = None
        self._alone: contextlib.AbstractContextManager[None] | None = None
        self._forms = (
            self.text.encode(),
            self.text.encode().hex().encode(),
            base64.b64encode(self.text.encode()).rstrip(b"="),
            self.text[::-1].encode(),
        )

    def __enter__(self) -> Canary:
        self._alone = alone()
        self._alone.__enter__()
        self._environment = os.environ.get(NAME)
        os.environ[NAME] = self.text
        try:
            self._plant()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _plant(self) -> None:
        for path, mode in (
            (TMP / f"{PREFIX}_0644", 0o644),
            (TMP / f"{PREFIX}_0600", 0o600),
            (SHM / f"{PREFIX}_0644", 0o644),
            (VICTIM, 0o644),
        ):
            if path.parent.is_dir() and os.access(path.parent, os.W_OK):
                self._write(path, mode)
        if not VICTIM_FOLDER.exists():
            VICTIM_FOLDER.mkdir(mode=0o755)
            self.files.append(VICTIM_FOLDER)
            self._write(VICTIM_FOLDER / "file", 0o644)
        self._before = {path: fingerprint(path) for path in (*self.files, *WATCHED)}
        script = Path(__file__).with_name("beacon.py")
        self._beacon = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), self.text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            start_new_session=True,  # Ctrl-C is this process' affair
        )
        ready = self._line()
        self.pid, self.tcp, self.udp = int(ready["pid"]), int(ready["tcp"]), int(ready["udp"])
        self.shm = ready["shm"]
        self._check_bait()

    def _write(self, path: Path, mode: int) -> None:
        try:
            path.unlink(missing_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
                file.write(f"{self.text} {path.name}\n")
            path.chmod(mode)
        except OSError as error:
            raise InfrastructureError(f"cannot plant {path}: {error.strerror}; remove it first") from error
        self.files.append(path)

    def _line(self) -> dict[str, Any]:
        assert self._beacon is not None
        assert self._beacon.stdout is not None
        line = self._beacon.stdout.readline()
        if not line:
            raise InfrastructureError("the beacon process on this host ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _check_bait(self) -> None:
        """From the host everything can be reached: else "nobody reached it" would say nothing."""
        with socket.create_connection(("127.0.0.1", self.tcp), timeout=5) as peer:
            banner = peer.recv(200)
        if self.text.encode() not in banner or self.visits()["tcp"] != 1:
            raise InfrastructureError("the beacon's loopback port does not answer from the host itself")

    def visits(self) -> dict[str, int]:
        """How often the beacon was reached so far, by kind: tcp, udp, unix, signals; the check's own is in tcp."""
        assert self._beacon is not None
        assert self._beacon.stdin is not None
        try:
            self._beacon.stdin.write("?\n")
            self._beacon.stdin.flush()
        except OSError as error:
            raise InfrastructureError("the beacon process on this host ended") from error
        return {name: int(count) for name, count in self._line().items()}

    def alive(self) -> bool:
        """The beacon still runs: no attack ended it."""
        return self._beacon is not None and self._beacon.poll() is None

    def leaked(self, *texts: bytes) -> bool:
        """The secret is in one of these, as it is or as hex, base64 or backwards."""
        return any(form in text for text in texts for form in self._forms)

    def changed(self) -> list[str]:
        """Host files whose content, owner or mode is no longer what it was."""
        return [str(path) for path, was in self._before.items() if fingerprint(path) != was]

    def close(self) -> None:
        """Takes everything away; may be called twice."""
        if self._beacon is not None:
            for pipe in (self._beacon.stdin, self._beacon.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            try:
                self._beacon.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._beacon.kill()
                self._beacon.wait()
            self._beacon = None
        for path in self.files:
            with contextlib.suppress(OSError):
                # A folder of ours holds one file; rmtree follows no links.
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.files = []
        if self._alone is not None:
            self._alone.__exit__(None, None, None)
            self._alone = None
        if self._environment is None:
            os.environ.pop(NAME, None)
        else:
            os.environ[NAME] = self._environment
