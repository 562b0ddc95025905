"""``is`` in sealed tests: two stand-ins for one object are that object, though Python has two."""

from __future__ import annotations

import _ast
from typing import Any

from .reading import inside, kind_of

NAME = "__is__"


def identity(tree: Any) -> None:
    """Make each ``a is b`` of a tree a call of ``__is__(a, b)``; where a side is a constant nothing is changed."""
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
    name = _ast.Name(id=NAME, ctx=_ast.Load(), **place)
    call = _ast.Call(func=name, args=sides, keywords=[], **place)
    return _ast.UnaryOp(op=_ast.Not(), operand=call, **place) if kind_of(node.ops[0]) == "IsNot" else call


def unittest_too(is_same: Any) -> None:
    """``assertIs`` and ``assertIsNot`` of unittest mean the same."""
    import unittest

    plain, plain_not = unittest.TestCase.assertIs, unittest.TestCase.assertIsNot

    def same(self: Any, first: Any, second: Any, msg: Any = None) -> None:
        plain(self, first, first if is_same(first, second) else second, msg)

    def other(self: Any, first: Any, second: Any, msg: Any = None) -> None:
        plain_not(self, first, first if is_same(first, second) else second, msg)

    unittest.TestCase.assertIs, unittest.TestCase.assertIsNot = same, other  # type: ignore[assignment,method-assign]
