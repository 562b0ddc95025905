"""User numbers for agents: two a slot, that nothing else on the host has while the slot lives.

Only root's agents use them; where there are no namespaces they are what keeps
one slot's programs from another's.
"""

from __future__ import annotations

import os
import threading

from proctor.core.errors import IsolationUnavailable

PER_PROCESS = 512  # the process number keeps the engines of one host apart
# High in the 31-bit range, where no distribution or directory hands identities out.
_BASE, _END = 0x7000_0000, 0x8000_0000
_LEAST = 4 * PER_PROCESS  # that a user namespace must have, beside those of its own users
_USERS = 10_000  # of a container with few identities: its own users' numbers are below, and "nobody" near the end
_NOBODY = 65_534


def usable(*maps: str) -> tuple[int, int]:
    """Where numbers for agents begin and end: as above, or as high as these maps of a user namespace let them.

    Args:
        maps: texts of ``/proc/self/uid_map`` and ``gid_map``: rows of a first number, the host's for it, how many.

    Returns:
        Equal ones where there are too few.
    """
    rows = [[tuple(map(int, row.split())) for row in text.splitlines()] for text in maps]
    if all(any(first <= _BASE - PER_PROCESS and first + count >= _END for first, _, count in one) for one in rows):
        return _BASE, _END
    ranges = [(max(first, _USERS), first + count) for first, _, count in rows[0]]
    for one in rows[1:]:
        ranges = [(max(low, first), min(high, first + count)) for low, high in ranges for first, _, count in one]
    low, high = max(ranges, key=lambda found: found[1] - found[0], default=(0, 0))
    if low < _NOBODY < high <= _NOBODY + 2:
        high = _NOBODY
    return (low + PER_PROCESS, high) if high - low >= _LEAST else (0, 0)


def _own_maps() -> list[str]:
    found = []
    for name in ("uid_map", "gid_map"):
        try:
            with open(f"/proc/self/{name}", encoding="ascii") as file:
                found.append(file.read())
        except OSError:  # a kernel without user namespaces has all numbers
            found.append(f"0 0 {_END * 2 - 1}")
    return found


BASE, END = usable(*_own_maps())

# As root, what sandboxes know as 0 ("root") and 1000 ("sandbox"), and owners of the files in layers. Fixed, since a
# layer is stored once and every engine process of this host maps it; below BASE, so no agent ever has one as its own.
FIXED = BASE - 0x1_0000 if BASE == _BASE else max(0, BASE - PER_PROCESS)
LAYER_ROOT, LAYER_USER = FIXED, FIXED + 1


class Identities:
    """Hands out pairs ``(n, n + 1)``, the lowest free first, from the range that is this process's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[int] = set()
        self._owner = 0

    def take(self) -> int:
        """The first of two numbers.

        Raises:
            OSError: this process has all of its agents.
            IsolationUnavailable: root of this user namespace has no numbers to give.
        """
        if BASE == END:
            raise IsolationUnavailable(
                "root of this container (a user namespace) has too few identities mapped to give each slot its own (see "
                "/proc/self/uid_map); run as an ordinary user of it (`setpriv --reuid 1000 --regid 1000 --clear-groups ...`, or USER "
                "in its image), use isolation 'gvisor', or give it a range of 65,536"
            )
        with self._lock:
            if self._owner != os.getpid():  # a fork: the parent's are the parent's
                self._owner = os.getpid()
                self._taken.clear()
            first = BASE + self._owner % ((END - BASE) // PER_PROCESS) * PER_PROCESS
            for number in range(first, first + PER_PROCESS, 2):
                if number not in self._taken:
                    self._taken.add(number)
                    return number
        raise OSError(11, f"{PER_PROCESS // 2} agents in one process are the most there can be")

    def give_back(self, number: int) -> None:
        """The agent that had it is gone."""
        with self._lock:
            if self._owner == os.getpid():
                self._taken.discard(number)
