"""The launcher that stands in for a locked-down container takes away what one takes away."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from locked_down import ARCHITECTURES, filter_program

LAUNCHER = Path(__file__).parent / "locked_down.py"
TRIES = """
import ctypes, os, platform, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def errno(result):
    return ctypes.get_errno() if result < 0 else 0
clone = 56 if platform.machine() == "x86_64" else 220
print("unshare user", errno(libc.unshare(0x10000000)))
print("unshare mount", errno(libc.unshare(0x20000)))
print("mount", errno(libc.mount(b"x", b"/mnt", b"tmpfs", 0, None)))
print("new mount api", errno(libc.syscall(430, 0, 0)))
print("setns", errno(libc.setns(-1, 0)))
print("clone3", errno(libc.syscall(435, 0, 0)))
print("clone pid", errno(libc.syscall(clone, 0x20000000 | 17, 0, 0, 0, 0)))
print("subprocess", subprocess.run(["true"]).returncode)
made = 0
for folder, _, _ in os.walk("/sys/fs/cgroup"):
    try:
        os.mkdir(folder + "/escape_mark_group")
        os.rmdir(folder + "/escape_mark_group")
        made += 1
    except OSError:
        pass
print("groups", made)
"""


@pytest.mark.skipif(platform.machine() not in ARCHITECTURES, reason="no filter for this architecture")
def test_a_locked_down_container_has_no_namespaces_mounts_or_groups() -> None:
    done = subprocess.run(
        [sys.executable, str(LAUNCHER), "--", sys.executable, "-c", TRIES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert found == {
        "unshare user": "1",
        "unshare mount": "1",
        "mount": "1",
        "new mount api": "1",
        "setns": "1",
        "clone3": "38",
        "clone pid": "1",
        "subprocess": "0",
        "groups": "0",
    }


def test_without_a_command_it_says_how_it_is_used() -> None:
    done = subprocess.run([sys.executable, str(LAUNCHER)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "COMMAND" in done.stderr


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_filter_is_whole_instructions(machine: str) -> None:
    body = filter_program(machine)
    assert len(body) % 8 == 0
    assert len(body) // 8 < 4096
