"""What becomes of the source of sealed tests: what ``is`` means, and what a failed assertion says.

Two stand-ins for one object are that object, though Python has two. Of equal
data that cannot be changed nobody here knows whether the program gave the same
again, so the answer is the one that lets the test pass, and is marked.
"""

from __future__ import annotations

import _ast
from typing import Any

from .reading import inside, kind_of

NAME, NOT = "__is__", "__is_not__"


def identity(tree: Any) -> None:
    """Make each ``a is b`` of a tree a call of ``__is__(a, b)``; where a side is a constant nothing is changed.

    ``a is not b`` is a call of ``__is_not__``.
    """
    for node in list(inside(tree)):
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                value[:] = [_changed(part) for part in value]
            elif hasattr(value, "_fields"):
                setattr(node, field, _changed(value))


def _changed(node: Any) -> Any:
    if kind_of(node) != "Compare" or len(node.ops) != 1 or kind_of(node.ops[0]) not in ("Is", "IsNot"):
        return node
    sides = [node.left, node.comparators[0]]
    if any(kind_of(side) == "Constant" for side in sides):
        return node
    place = {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    name = _ast.Name(id=NOT if kind_of(node.ops[0]) == "IsNot" else NAME, ctx=_ast.Load(), **place)
    return _ast.Call(func=name, args=sides, keywords=[], **place)


def unittest_too(is_same: Any, is_other: Any) -> None:
    """``assertIs`` and ``assertIsNot`` of unittest mean the same."""
    import unittest

    plain, plain_not = unittest.TestCase.assertIs, unittest.TestCase.assertIsNot

    def same(self: Any, first: Any, second: Any, msg: Any = None) -> None:
        plain(self, first, first if is_same(first, second) else second, msg)

    def other(self: Any, first: Any, second: Any, msg: Any = None) -> None:
        plain_not(self, first, object() if is_other(first, second) else first, msg)

    unittest.TestCase.assertIs, unittest.TestCase.assertIsNot = same, other  # type: ignore[assignment,method-assign]
