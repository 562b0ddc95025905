"""The host's ``runsc``: where it is, what its build knows, and which platform works here, found by trying it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from proctor.core.errors import IsolationUnavailable
from proctor.guest import bundle
from proctor.isolation import sweep

INSTALL = "apt-get install runsc"
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin", "/bin", "/opt/gvisor")
# The order in which they are tried. KVM comes last: inside a virtual machine it may hang where it is offered.
_PLATFORMS = ("systrap", "ptrace", "kvm")
_PROBE_S = 20.0
# Wanted where a build knows them; the rest of the command line every build knows.
_OPTIONS = {
    "overlay2": "none",  # nothing is written in the root
    "file-access-mounts": "exclusive",  # what is bound does not change while an agent lives
    "watchdog-action": "panic",  # a sandbox that hangs is replaced
}


@dataclass(frozen=True, slots=True)
class Runsc:
    """A binary that works here.

    Attributes:
        path: the binary.
        version: as it calls itself.
        platform: how it catches system calls.
        flags: options before the subcommand.
        boxed: further ones for sandboxes.
    """

    path: str
    version: str
    platform: str
    flags: tuple[str, ...]
    boxed: tuple[str, ...] = ()


def locate() -> str | None:
    """Path of ``runsc``; None where there is none."""
    return shutil.which("runsc") or shutil.which("runsc", path=os.pathsep.join(_FOLDERS))


def find() -> Runsc:
    """The binary of this host, with a platform that was tried.

    Raises:
        IsolationUnavailable: there is none, or it does not work here; names what was looked for and what to do.
    """
    path = locate()
    if path is None:
        looked = ", ".join(dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *_FOLDERS]))
        raise IsolationUnavailable(
            f"isolation 'gvisor' needs gVisor's `runsc`, and there is none in {looked}; install it: {INSTALL}"
        )
    return _tried(path, os.stat(path).st_mtime_ns, os.geteuid())


def state() -> str:
    """Whether the level can be had here, in words: with what, or what to do."""
    try:
        found = find()
    except IsolationUnavailable as exc:
        return str(exc).removeprefix("isolation 'gvisor': ").removeprefix("isolation 'gvisor' ")
    return f"can be had: {found.path} {found.version}, platform {found.platform}"


@cache
def _tried(path: str, stamp: int, user: int) -> Runsc:
    del stamp  # a part of the key: another file at the same place is tried anew
    version, known = _run([path, "--version"]).splitlines(), _run([path, "flags"])
    base = ["--network=none", "--ignore-cgroups", *([] if user == 0 else ["--rootless"])]
    base += [f"--{name}={value}" for name, value in _OPTIONS.items() if f"-{name} " in known]
    told = next((line for line in known.splitlines() if "platform to use" in line), "")
    failures = []
    for platform in _PLATFORMS:
        if platform not in told or (platform == "kvm" and not os.access("/dev/kvm", os.R_OK | os.W_OK)):
            failures.append(f"{platform}: not offered")
            continue
        flags = (f"--platform={platform}", *base)
        reason = _fails(path, flags)
        if reason is None:
            # Whose a file is, only the gofer sees right: it alone lives in the user namespace of sandboxes.
            boxed = ("--directfs=false",) if "-directfs " in known or "-directfs\n" in known else ()
            name = version[0].removeprefix("runsc version ") if version else "unknown"
            return Runsc(path, name, platform, flags, boxed)
        failures.append(f"{platform}: {reason}")
    raise IsolationUnavailable(f"isolation 'gvisor': {path} starts no container here ({'; '.join(failures)})")


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.SubprocessError) as exc:
        raise IsolationUnavailable(f"isolation 'gvisor': {command[0]} does not run: {exc}") from exc
    return done.stdout + done.stderr


def _fails(path: str, flags: tuple[str, ...]) -> str | None:
    """Why a container that only says a word does not; None when it does."""
    with tempfile.TemporaryDirectory(prefix="runsc-probe-") as folder:
        box = f"{folder}/box"
        bundle.write_probe(box)
        command = bundle.command({"path": path, "flags": flags}, box, os.path.basename(folder))
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as exc:
            return str(exc)
        try:
            said = process.communicate(timeout=_PROBE_S)[0]
        except subprocess.TimeoutExpired:
            return f"nothing came of it in {_PROBE_S:.0f} s"
        finally:
            _end(process, box)
            sweep.remove_box(box)
    words = said.decode("utf-8", "replace").strip()
    return None if bundle.PROBE in words else words[-300:] or f"status {process.returncode}"


def _end(process: subprocess.Popen[bytes], box: str) -> None:
    """Kill a container that was only a try: its processes have the directory's name in their arguments."""
    word = os.fsencode(box)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if word in Path(f"/proc/{entry}/cmdline").read_bytes():
                    os.kill(int(entry), signal.SIGKILL)
    process.kill()
    process.communicate()
