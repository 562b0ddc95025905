"""What modules do in every forked child, held back: the forks of jails need none of it.

``random`` reseeds itself and ``threading`` looks for lost threads: 100 copied
pages a fork. In a case's process ``release`` hands their hooks to the
interpreter, for the forks that the program makes.
"""

from __future__ import annotations

import os
from typing import Any

_register = os.register_at_fork
_held: list[dict[str, Any]] = []


def hold() -> None:
    """From now on keep hooks that are registered; called before their modules are imported."""
    os.register_at_fork = lambda **hooks: _held.append(hooks)


def release() -> None:
    """Register all that was held back, and hold back no more."""
    os.register_at_fork = _register
    for hooks in _held:
        _register(**hooks)
