"""The audit script that a corpus may bring along: run before and after, its findings told apart.

It looks at the whole host, so on one that is not quiet it also finds what
other programs made meanwhile. That is shown, and held against nobody.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from proctor.core.errors import InputError
from proctor.doctor import audit

# How a finding begins; a command with line breaks in it goes on over several lines.
_START = re.compile(r"[\w ]+ left |files left in |kernel keys |open files |disk |agent |\w+_mib ")


class HostAudit:
    """The corpus' own ``host_audit.py``, when it has one: a snapshot at the start, a list of differences later."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.script = folder / "host_audit.py"
        self.before: Path | None = None
        if self.script.is_file():
            self.before = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="host-audit-"))) / "before.json"
            self.before.write_text("{}")  # the folder is there in both looks
            self.before.write_text(self._call("snap").stdout)

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", str(self.script), *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired as error:
            raise InputError("did not end within 120 s", where=str(self.script)) from error

    def diff(self) -> list[str]:
        """Findings, one a line; empty when there are none, or when the corpus has no such script."""
        if self.before is None:
            return []
        done = self._call("diff", str(self.before), "--slack-mib", "512", "--slack-fds", "1024")
        found: list[str] = []
        for line in (done.stdout + done.stderr).splitlines():
            if found and not _START.match(line):
                found[-1] += f" {line}"
            else:
                found.append(line)
        return found if done.returncode else []


# Findings that are sums over the whole host.
_AMOUNT = re.compile(r"amount of |open files |disk |kernel keys |\w+_mib ")


def by_others(line: str, busy: bool) -> bool:
    """A finding that cannot be ours, or on a busy host one that need not be.

    Our engine is closed by then, so nothing of ours descends from this
    process; what it left would be an orphan, a group or a folder that says
    whose it was, or a file of a jail's identity.
    """
    line = line.removeprefix("host_audit.py: ")
    if audit.MARK in line:
        return False
    if _AMOUNT.match(line):
        return busy
    if line.startswith("cgroups left"):
        return str(os.getpid()) not in re.findall(r"proctor-(\d+)-", line)
    if line.startswith("process left"):
        pid = line.split()[2].partition(":")[0]
        return pid.isdigit() and not audit.is_ours(int(pid))
    if listed := re.match(r"files left in (\S+) \d+ \[(.*)\]", line):
        return not any(_ours(Path(listed[1], name)) for name in re.findall(r"'([^']*)'", listed[2]))
    return False


def _ours(path: Path) -> bool:
    if path.name.startswith(f"proctor-{os.getpid()}-"):
        return True
    try:
        owner = path.lstat().st_uid
    except OSError:
        return False
    # Programs of an ordinary user's jail are that user outside; those of root's are somebody of their own.
    return audit.is_identity(owner) or (owner == os.geteuid() != 0 and not path.name.startswith("proctor-"))
