"""What a problem's prompt says by itself: what it asks a program for, and what it defines for it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from proctor.grading import pysource
from proctor.grading.problem import Problem

_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Asked:
    """What a problem asks a program for.

    Attributes:
        names: at a module's top level.
        classes: those of them that are classes.
        given: source of what the prompt itself defines: imports, constants, and helpers that have a body.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    given: str


def asked_of(problem: Problem) -> Asked:
    """The entry point, and what the prompt leaves open; where nothing is, all that it has, or the last definition.

    A completion may go on where the prompt stops, so its last body may be missing. A prompt that is whole, and of which
    no part is named as asked for, is code to be mended: all of it is for the program to have.
    """
    entry, dot, _ = (problem.entry_point or "").partition(".")
    names = {entry: bool(dot)} if entry else {}
    if problem.solution_class:
        names.setdefault(problem.solution_class, True)
    prompt = problem.prompt or ""
    last = next((line for line in reversed(prompt.splitlines()) if line.strip()), "")
    indent = last[: len(last) - len(last.lstrip())]
    tries = (prompt, *(f"{prompt}\n{indent}{more}pass\n" for more in ("", "    ", " ", "\t")))
    tree = next((found for text in tries if (found := pysource.parse(text)) is not None), None)
    rows = [node for node in tree.body if isinstance(node, _Definition)] if tree else []
    open_ones = [node for node in rows if node.name in names or _is_open(node)]
    to_mend = not open_ones and not entry and pysource.parse(prompt) is not None
    open_ones = open_ones or (rows if to_mend else rows[-1:])
    parts = _IMPORTS if to_mend and rows else (*_IMPORTS, ast.Assign, ast.AnnAssign, *_DEFINITIONS)
    for node in open_ones:
        names[node.name] = names.get(node.name, False) or isinstance(node, ast.ClassDef)
    kept = [
        ast.unparse(node) for node in (tree.body if tree else ()) if isinstance(node, parts) and node not in open_ones
    ]
    return Asked(tuple(names), tuple(name for name, is_class in names.items() if is_class), "\n".join(kept))


def _is_open(node: _Definition) -> bool:
    """A body is missing: there is a text, ``pass``, ``...`` or ``raise NotImplementedError``; of a class, any of them."""
    inner = [part for part in node.body if isinstance(part, _Definition)] if isinstance(node, ast.ClassDef) else []
    return any(map(_is_open, inner)) or all(
        pysource.says_nothing(part) or (isinstance(part, ast.Raise) and "NotImplemented" in ast.unparse(part))
        for part in node.body
    )
