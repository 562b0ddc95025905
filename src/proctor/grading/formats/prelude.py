"""What data sets of functions take for granted: their own testers put imports before every completion.

The testers of APPS, TACO, PRIME and LiveCodeBench do, so ``def f(x: List[int])``
is right there without a line of import. Problems that are read from their rows
have this as their preamble.
"""

from __future__ import annotations

_STARS = (
    "typing", "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "json", "sys", "builtins",
)  # fmt: skip
# builtins comes last of those, so that pow and open stay Python's own; a module's name is the module.
_MODULES = ", ".join(name for name in _STARS if name not in ("typing", "builtins"))
_DEPTH = 50_000
"""LiveCodeBench's recursion limit; APPS' is higher."""


def prelude(entry_point: str) -> str:
    """One line of Python, so that line numbers move by one at most.

    What a program defines itself wins, since it comes later. The function that is
    asked for has to be the program's: a library's of the same name is taken away.
    """
    stars = "; ".join(f"from {name} import *" for name in _STARS)
    name = entry_point.partition(".")[0]
    return f"{stars}; import {_MODULES}; sys.setrecursionlimit({_DEPTH}); globals().pop({name!r}, None)\n"
