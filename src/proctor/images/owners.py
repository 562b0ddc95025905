"""Which process something in the store belongs to, and whether it still lives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from proctor.core.process import start_time


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, by what is never reused together.

    Attributes:
        pid: its number. started: clock ticks since boot.
        boot: id of this boot of the host. space: number of the PID namespace that ``pid`` is counted in.
    """

    pid: int
    started: str
    boot: str
    space: str

    def word(self) -> str:
        """As part of a file's name."""
        return f"{self.pid}.{self.started}.{self.boot}.{self.space}"


def this_process() -> Owner:
    """The owner of what is made now."""
    pid = os.getpid()
    return Owner(pid, start_time(pid), _boot(), _space())


def from_word(word: str) -> Owner | None:
    """What ``word`` gave, possibly with more behind it; None for another text."""
    parts = word.split(".")
    if len(parts) < 4 or not parts[0].isascii() or not parts[0].isdigit() or len(parts[0]) > 9:
        return None
    return Owner(int(parts[0]), parts[1], parts[2], parts[3])


def is_alive(owner: Owner) -> bool:
    """It may still run. Of another container's process nothing is known before the next boot, so that it counts as alive."""
    if owner.boot != _boot():
        return False
    if owner.space != _space():
        return True
    try:
        state = Path(f"/proc/{owner.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX" and start_time(owner.pid) == owner.started


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "0"


def _space() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"
