"""Turn plain asserts into cases: ``assert f(1, [2]) == 3`` is a call with data and an expected value.

Cases made of data are judged in the caller's process, so they cannot be
forged; test source run beside the program can. A test source is converted only
when all of it converts.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Collection
from typing import Any

from proctor.grading import pysource
from proctor.grading.problem import TestCase

_HARMLESS = ("__author__", "METADATA")


def cases_of(source: str, names: Collection[str], check: str | None = None) -> tuple[TestCase, ...] | None:
    """The cases that a test source states, or None where some of it is more than that.

    Args:
        source: a list of asserts, or (HumanEval) the function ``check(candidate)``.
        names: functions that may be called; the first is the problem's entry
            point. Empty: any name that is not a builtin.
        check: the function to hand to ``check``.
    """
    tree = pysource.parse(source)
    if tree is None:
        return None
    found: list[TestCase] = []
    entry = next(iter(names), None)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and check:
            argument = [a.arg for a in node.args.args]
            if len(argument) != 1 or node.decorator_list:
                return None
            inner = _asserts(node.body, {argument[0]: check, check: check}, entry)
            if inner is None:
                return None
            found += inner
        elif not _is_idle(node) and not (check and _calls_check(node)):
            inner = _asserts([node], {name: name for name in names} or None, entry)
            if inner is None:
                return None
            found += inner
    return tuple(found) or None


def _is_idle(node: ast.stmt) -> bool:
    """Says nothing about the program: imports, METADATA, a docstring, pass."""
    if isinstance(node, ast.Assign):
        return all(isinstance(t, ast.Name) and t.id in _HARMLESS for t in node.targets)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _calls_check(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="check"))):
            return True
    return False


def _asserts(body: list[ast.stmt], functions: dict[str, str] | None, entry: str | None) -> list[TestCase] | None:
    found = []
    for node in body:
        if _is_idle(node):
            continue
        if not isinstance(node, ast.Assert):
            return None
        if isinstance(node.test, ast.Constant) and node.test.value is True:
            continue
        try:
            case = _case(node.test, functions, entry)
        except pysource.LiteralError:
            case = None
        if case is None:
            return None
        found.append(case)
    return found


def _case(test: ast.expr, functions: dict[str, str] | None, entry: str | None) -> TestCase | None:
    match test:
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[expected]) if _is_call(call, functions):
            return _made(call, functions, entry, expected=pysource.value_of(expected))
        case ast.Compare(left=expected, ops=[ast.Eq()], comparators=[ast.Call() as call]) if _is_call(call, functions):
            return _made(call, functions, entry, expected=pysource.value_of(expected))
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=left, op=ast.Sub(), right=right)], keywords=[]),
            ops=[ast.Lt() | ast.LtE()],
            comparators=[bound],
        ):
            found, other = (left, right) if isinstance(left, ast.Call) and _is_call(left, functions) else (right, left)
            if isinstance(found, ast.Call) and _is_call(found, functions):
                value, abs_ = pysource.value_of(other), pysource.value_of(bound)
                return _made(found, functions, entry, expected=value, abs=abs_, rel=0.0) if _real(value, abs_) else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr="isclose") | ast.Name(id="isclose")):
            return _isclose(test, functions, entry)
        case ast.Call() if _is_call(test, functions):
            return _made(test, functions, entry, expected=True, compare="truth")
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call) if _is_call(call, functions):
            return _made(call, functions, entry, expected=False, compare="truth")
    return None


def _isclose(test: ast.Call, functions: dict[str, str] | None, entry: str | None) -> TestCase | None:
    given = {k.arg: pysource.value_of(k.value) for k in test.keywords}
    if len(test.args) != 2 or not given.keys() <= {"rel_tol", "abs_tol"}:
        return None
    left, right = test.args
    call, other = (left, right) if isinstance(left, ast.Call) and _is_call(left, functions) else (right, left)
    if not isinstance(call, ast.Call) or not _is_call(call, functions):
        return None
    value, rel, abs_ = pysource.value_of(other), given.get("rel_tol", 1e-9), given.get("abs_tol", 0.0)
    return _made(call, functions, entry, expected=value, abs=abs_, rel=rel) if _real(value, rel, abs_) else None


def _real(*values: Any) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values)


def _is_call(call: ast.Call, functions: dict[str, str] | None) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else None
    return name is not None and (name in functions if functions is not None else not hasattr(builtins, name))


def _made(call: ast.Call, functions: dict[str, str] | None, entry: str | None, **fields: Any) -> TestCase:
    assert isinstance(call.func, ast.Name)
    name = functions[call.func.id] if functions is not None else call.func.id
    if any(keyword.arg is None for keyword in call.keywords):
        raise pysource.LiteralError("a ** argument")
    return TestCase(
        args=tuple(pysource.value_of(arg) for arg in call.args),
        kwargs={str(keyword.arg): pysource.value_of(keyword.value) for keyword in call.keywords},
        entry_point=None if name == entry else name,
        exact_types=True,
        **fields,
    )


def first_call(source: str) -> str | None:
    """The function that the first assert with a call of something other than a builtin calls."""
    tree = pysource.parse(source)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and _is_call(part, None):
                    return part.func.id
    return None


def defined(source: str) -> list[str]:
    """Names of the functions and classes that a source defines at its top level, in order."""
    tree = pysource.parse(source)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [node.name for node in tree.body if isinstance(node, kinds)] if tree else []
