"""User numbers for agents: two a slot, that nothing else on the host has while the slot lives.

Only root's agents use them; where there are no namespaces they are what keeps
one slot's programs from another's.
"""

from __future__ import annotations

import os
import threading

# High in the 31-bit range, where no distribution or directory hands identities out.
BASE, END = 0x7000_0000, 0x8000_0000
PER_PROCESS = 512  # the process number keeps the engines of one host apart

# As root, what sandboxes know as 0 ("root") and 1000 ("sandbox"), and owners of the files in layers. Fixed, since a
# layer is stored once and every engine process of this host maps it; below BASE, so no agent ever has one as its own.
FIXED = 0x6FFF_0000
LAYER_ROOT, LAYER_USER = FIXED, FIXED + 1


class Identities:
    """Hands out pairs ``(n, n + 1)``, the lowest free first, from the range that is this process's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[int] = set()
        self._owner = 0

    def take(self) -> int:
        """The first of two numbers; OSError when this process has all of its agents."""
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
