"""The operators by which objects are compared, and why a test that asks a program's object by one rests on its word.

An object is the program's, and so is what it says of another: ``__eq__`` can
be written that says what tests hope to hear, with a No here and there. So no
account of such answers is kept, and nothing is concluded from it: where a test
was told Yes, a pass is marked.
"""

from __future__ import annotations

from typing import Any

ORDERS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
# What of a class made from tuples is done with the data in it, here, where the class itself has it from ``tuple``.
OF_TUPLES = ("__iter__", "__len__", "__getitem__", "__contains__", "__add__", "__mul__", "__rmul__")


def reason(kind: Any, name: str) -> str:
    """Why a pass is marked: objects of a class, or of what has that name, were compared."""
    named = (kind if isinstance(kind, str) else type.__dict__["__name__"].__get__(kind))[:50]
    return (
        f"the tests compare objects of {named!r} by {ORDERS.get(name, '==')}: what those say is the program's own word"
    )
