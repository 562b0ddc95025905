"""What modules do in every forked child, held back: the forks of jails need none of it.

``random`` reseeds itself and ``threading`` looks for lost threads: 100 copied
pages a fork. Imported before those modules; in a case's process ``release``
hands their hooks to the interpreter, for the forks that the program makes.
"""

from __future__ import annotations

import os
from typing import Any

_register = os.register_at_fork
_held: list[dict[str, Any]] = []


def _hold(**hooks: Any) -> None:
    _held.append(hooks)


os.register_at_fork = _hold  # type: ignore[assignment]


def release() -> None:
    """Register all that was held back, and hold back no more."""
    os.register_at_fork = _register
    for hooks in _held:
        _register(**hooks)
