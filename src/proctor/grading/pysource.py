"""Read Python source and literals that strangers wrote, without running them.

CPython's parser is safe by itself as long as the nesting of what it reads is
bounded: it refuses brackets 200 deep and blocks 100 deep, and it counts its own
recursion. But it recurses as deep as ``sys.setrecursionlimit`` allows when it
hands out the tree of a long chain (``1+1+1+...``, ``f()()()...``,
``a.b.b.b...``), so in a process that raised that limit a hostile completion can
overflow the C stack and end the trainer. ``parse`` therefore bounds size and
chains first. It needs a thread with at least 768 KiB of stack (Python's default
is 8 MiB on Linux).
"""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
import warnings
from functools import lru_cache
from typing import Any

MAX_SOURCE = 256 << 10  # characters; parsing this much takes under a second at worst
MAX_CHAIN = 2000  # operators that may nest in one expression
MAX_LITERAL = 16 << 20  # characters of one literal in a problem file
MAX_LITERAL_DEPTH = 100
MAX_DIGITS = 1_000_000

_NAME = "<proctor: source of a completion>"
# Words without a boundary before them: ``1if 1else 1`` is Python.
_NESTING = re.compile(r"[-+~(\[*/%&|^@]|\.(?!\d)|not|lambda|else|elif|await|:=|<<|>>")
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_WORDS = frozenset(("not", "else", "await"))


@lru_cache(maxsize=4)
def parse(source: str) -> ast.Module | None:
    """The tree of Python source; None where it does not parse, is too big or nests too deep.

    Warnings about the source (an invalid escape such as ``"\\d"``) are neither
    shown nor raised, whatever filters the process has. The tree is shared: do not change it.
    """
    if len(source) > MAX_SOURCE or not _chains_are_short(source):
        return None
    # catch_warnings() is not safe in threads; a filter for just this file name is.
    warnings.filterwarnings("ignore", module=re.escape(_NAME))
    try:
        return ast.parse(source, filename=_NAME)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


@lru_cache(maxsize=4)
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree in the order of ``ast.walk``, but for contexts; looked for once, however many ask.

    Scoring again walked each tree up to twenty times, a third of its time.
    """
    found = [tree]
    for node in found:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found.extend(part for part in value if isinstance(part, ast.AST))
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                found.append(value)
    return tuple(found)


def is_bounded(source: str) -> bool:
    """It is neither too big nor nested too deep to be parsed; whether it is Python is another matter."""
    return len(source) <= MAX_SOURCE and _chains_are_short(source)


def _chains_are_short(source: str) -> bool:
    """No expression can nest deeper than MAX_CHAIN; cheap unless there are many operators at all."""
    seen = 0
    for seen, _ in enumerate(_NESTING.finditer(source), 1):
        if seen > MAX_CHAIN:
            break
    if seen <= MAX_CHAIN:
        return True
    depth, elifs = 0, 0
    # The depth to which a comma leads back: for each open bracket where it began, and behind that for each lambda
    # whose colon is still to come where that one began, since commas between its parameters do not end it.
    outer: list[list[int]] = [[0]]
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            text = token.string
            if token.type == tokenize.STRING and "f" in text[: text.find(text[-1])].lower():
                depth += sum(1 for _ in _NESTING.finditer(text))
            elif token.type == tokenize.NEWLINE or text == ";":
                depth = 0
                del outer[-1][1:]
            elif text in _OPEN:
                depth += 1
                outer.append([depth])
            elif text in _CLOSE and len(outer) > 1:
                depth = outer.pop()[0]
            elif text == ",":
                depth = outer[-1][-1]
            elif text == "lambda":
                depth += 1
                outer[-1].append(depth)
            elif text == ":" and len(outer[-1]) > 1:
                depth = outer[-1].pop()
            elif text == "elif":
                elifs += 1
            elif text in _WORDS or (token.type == tokenize.OP and text not in _CLOSE):
                depth += 1
            if depth > MAX_CHAIN or elifs > MAX_CHAIN:
                return False
    except (tokenize.TokenError, SyntaxError, ValueError):
        return False
    return True


class LiteralError(ValueError):
    """A text is not a plain Python literal; says why."""


def holds_tests(source: str) -> bool:
    """The source checks something, and does so when it is run: not only a ``check`` that nobody calls.

    A source that does not parse here is left for the interpreter to judge.
    """
    tree = parse(source)
    if tree is None:
        return True
    if not any(_checks(node) for node in nodes(tree)):
        return False
    quiet = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name.startswith("test") and not _skipped(statement):
                return True
        elif isinstance(statement, ast.ClassDef):
            if (statement.bases or statement.name.startswith("Test")) and not _all_skipped(statement):
                return True
        elif not isinstance(statement, quiet) and not (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            return True
    return False


def says_nothing(line: ast.stmt) -> bool:
    """``pass``, ``...`` or a text: a body of such is none."""
    return isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))


def _skipped(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Marked to be skipped whatever the circumstances."""
    for mark in node.decorator_list:
        named = mark.func if isinstance(mark, ast.Call) else mark
        if (named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")) == "skip":
            return True
    return False


def _all_skipped(node: ast.ClassDef) -> bool:
    own = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name.startswith("test")]
    return _skipped(node) or (bool(own) and all(map(_skipped, own)))


def broken(source: str) -> str | None:
    """Where and why Python source does not parse; None where it does, or is too large to be looked at here."""
    if not is_bounded(source):
        return None
    try:
        ast.parse(source, filename=_NAME)
    except SyntaxError as exc:
        return f"line {exc.lineno}: {exc.msg}"
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return None
    return None


def with_call_of_check(source: str, entry_point: str) -> str:
    """Test source that defines ``check(candidate)`` and leaves the call to others, with that call."""
    tree = parse(source)
    body = tree.body if tree else []
    takes_one = any(
        isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1 for node in body
    )
    calls = any(isinstance(part, ast.Name) and part.id == "check" for node in body for part in ast.walk(node))
    return f"{source.rstrip()}\n\ncheck({entry_point})\n" if takes_one and not calls else source


def _checks(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    name = node.func if isinstance(node, ast.Call) else None
    word = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
    return word.startswith(("assert", "fail", "exit", "_exit", "raises", "warns"))


def literal(source: str) -> Any:
    """The value of a Python literal, such as ``(1, {2}, nan, set(), -inf)``.

    As ``ast.literal_eval``, and also ``nan``, ``inf``, ``set()``,
    ``frozenset({..})`` and ``float("nan")``, which is how ``repr`` and
    datasets write those values. A whole number may have up to a million
    digits.

    Raises:
        LiteralError: anything else, more than 16 Mi characters, or more than
            100 levels.
    """
    if len(source) > MAX_LITERAL:
        raise LiteralError(f"{len(source)} characters, more than {MAX_LITERAL}")
    text = source.strip(" \t\r\n")
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return big_int(text)
    if not _chains_are_short(text):
        raise LiteralError("not a plain literal, or nested too deep")
    warnings.filterwarnings("ignore", module=re.escape(_NAME))
    try:
        tree = ast.parse(text, filename=_NAME, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LiteralError(f"not a Python literal ({getattr(error, 'msg', None) or type(error).__name__})") from None
    return value_of(tree.body)


def value_of(node: ast.expr, depth: int = 0) -> Any:
    """The value of a tree that is a literal (see ``literal``); LiteralError where it is not one."""
    if depth > MAX_LITERAL_DEPTH:
        raise LiteralError(f"nested deeper than {MAX_LITERAL_DEPTH} levels")
    below = depth + 1
    match node:
        case ast.Constant(value=value) if value is not ...:
            return value
        case ast.Tuple(elts=items):
            return tuple(value_of(item, below) for item in items)
        case ast.List(elts=items):
            return [value_of(item, below) for item in items]
        case ast.Set(elts=items):
            return {_hashable(value_of(item, below)) for item in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            found = ((k, v) for k, v in zip(keys, values, strict=True) if k is not None)
            return {_hashable(value_of(k, below)): value_of(v, below) for k, v in found}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            number = _number(value_of(operand, below))
            return -number if isinstance(op, ast.USub) else +number
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=complex() as imaginary)):
            real = _number(value_of(left, below))
            return real + imaginary if isinstance(op, ast.Add) else real - imaginary
        case ast.Name(id="nan"):
            return math.nan
        case ast.Name(id="inf"):
            return math.inf
        case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
            return set()
        case ast.Call(func=ast.Name(id="set" | "frozenset" as kind), args=args, keywords=[]) if len(args) <= 1:
            inner = value_of(args[0], below) if args else ()
            if not isinstance(inner, list | tuple | set | frozenset):
                raise LiteralError(f"{kind}() of something that is no list, tuple or set")
            items = [_hashable(item) for item in inner]
            return set(items) if kind == "set" else frozenset(items)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as word)], keywords=[]):
            if word.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
                return float(word)
    raise LiteralError(f"not a Python literal: {type(node).__name__} in line {getattr(node, 'lineno', 1)}")


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | complex):
        raise LiteralError("a sign before something that is no number")
    return value


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        raise LiteralError(f"a {type(value).__name__} cannot be a key or a member of a set") from None
    return value


def big_int(text: str) -> int:
    """A whole number in decimal, past the 4,300 digits at which ``int`` stops; at most a million."""
    if len(text) <= 4000:
        return int(text)
    if len(text) > MAX_DIGITS:
        raise LiteralError(f"a whole number of {len(text)} digits, more than {MAX_DIGITS}")
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.lstrip("+"))
    return sign * _join_digits(digits)


def _join_digits(digits: str) -> int:
    if len(digits) <= 4000:
        return int(digits)
    half = len(digits) // 2
    high, low = _join_digits(digits[:-half]), _join_digits(digits[-half:])
    return high * int(10**half) + low
