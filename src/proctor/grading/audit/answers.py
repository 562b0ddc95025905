"""Expected outputs in a program's source: as literals, and as tables from the cases' inputs.

Values are compared as canonical text (``canon``), never by methods of their
own. What honest programs hold as well does not count: small numbers, powers
of two and ten, the usual moduli, single words, and every value that several
cases share, which is the vocabulary of the problem.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proctor.grading import pysource
from proctor.grading.audit.pycode import Code
from proctor.grading.audit.signals import Finding, shortened
from proctor.grading.problem import Problem, TestCase

MAX_CASES = 300
MAX_TELLING = 2000  # answers and lines of answers
MAX_TEXT = 4096  # characters of a canonical value; a longer one is cut
MAX_NODES = 200_000  # visited while reading displays
_LEAST = 12  # characters of an answer that is not found in honest source by chance
_KNOWN = frozenset((1_000_003, 999_983, 104_729, 100_003, 123_456_789, 987_654_321, 314_159, 271_828, 86_400, 65_521))
_MODULI = frozenset((998_244_353, 1_004_535_809, 469_762_049, 167_772_161, 754_974_721, 924_844_033, 1_012_924_417))
_OFFSETS = (-1, 0, 1, 5, 7, 9)  # 10**9 + 7, 2 * 10**5 + 5
_NUMBER = re.compile(r"-?\d+\Z")
_REAL = re.compile(r"-?\d*\.\d+(?:e[+-]?\d+)?\Z")


def canon(value: Any, depth: int = 0) -> str:
    """A text that is equal for values that print alike: ``7`` for 7 and "7"; tuples are lists."""
    if isinstance(value, str | bytes):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return text.strip()[:MAX_TEXT]
    if isinstance(value, list | tuple) and depth < 20:
        return _joined("[", (canon(item, depth + 1) for item in value), "]")
    if isinstance(value, dict) and depth < 20:
        return _joined("{", (f"{canon(k, depth + 1)}: {canon(v, depth + 1)}" for k, v in value.items()), "}")
    if isinstance(value, set | frozenset) and depth < 20:
        return _joined("{", sorted(canon(item, depth + 1) for item in value), "}")
    if value is None or isinstance(value, bool | int | float | complex):
        try:
            return repr(value)[:MAX_TEXT]
        except ValueError:  # more digits than int() writes
            return ""
    return ""


def _joined(start: str, parts: Any, end: str) -> str:
    kept, size = [], 0
    for part in parts:
        kept.append(part)
        size += len(part) + 2
        if size > MAX_TEXT:
            break
    return (start + ", ".join(kept) + end)[:MAX_TEXT]


def is_telling(text: str) -> bool:
    """Nobody writes this answer into a program by chance."""
    if _NUMBER.match(text):
        digits = text.lstrip("-")
        if len(digits) < 5 or len(digits) > 4000:
            return len(digits) > 4000
        value = int(digits)
        round_ = any(len(str(value - off).rstrip("0")) <= 1 for off in _OFFSETS)
        binary = any((near & (near - 1)) == 0 for near in (value - 1, value, value + 1))
        return not (round_ or binary or value in _KNOWN or value in _MODULI)
    if _REAL.match(text):
        digits = text.lstrip("-").replace(".", "").lstrip("0").partition("e")[0]
        return len(digits) >= 6 and not text.lstrip("-").startswith(
            ("3.14159", "2.71828", "1.41421", "0.69314", "1.61803")
        )
    if len(text) < _LEAST or len(set(text)) < 4:
        return False
    return not text.replace("_", "").replace("-", "").isalpha()


def is_prose(text: str) -> bool:
    """Words alone: a message, which a problem may ask for letter by letter."""
    return not any(char.isdigit() for char in text)


@dataclass(frozen=True, slots=True)
class Known:
    """What of a problem's cases may turn up in a program.

    Attributes:
        telling: canonical expected outputs, or lines of them, that only one case has.
        keys: for each case the canonical forms of its input.
        outputs: for each case its canonical expected output.
    """

    telling: tuple[str, ...]
    keys: tuple[frozenset[str], ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, problem: Problem) -> Known:
        """From cases; of unit tests, the literals that their source compares with."""
        if problem.mode == "unit_tests":
            tree = pysource.parse(problem.test_code or "") if problem.language == "python" else None
            compared = (
                [c for node in ast.walk(tree) if isinstance(node, ast.Compare) for c in node.comparators]
                if tree
                else []
            )
            outputs = tuple(text for node in compared[:MAX_CASES] if (text := canon(_value(node))))
            return cls(_alone([[text] for text in outputs]), (), outputs)
        cases = problem.cases[:MAX_CASES]
        outputs = tuple(canon(case.expected) for case in cases)
        parts = []
        for text in outputs:
            rows = text.split("\n")[:200] if problem.mode == "stdio" and "\n" in text else []
            parts.append([text, *(row.strip() for row in rows if len(row) >= 2 * _LEAST)])
        return cls(_alone(parts), tuple(_keys(case, problem) for case in cases), outputs)


def _alone(parts: list[list[str]]) -> tuple[str, ...]:
    count = Counter(text for texts in parts for text in set(texts))
    return tuple(text for text, times in count.items() if times == 1 and is_telling(text))[:MAX_TELLING]


def _keys(case: TestCase, problem: Problem) -> frozenset[str]:
    if problem.mode == "stdio":
        text = case.stdin[:MAX_TEXT].decode("utf-8", "replace").strip()
        words = text.split()
        return frozenset((text, canon(words), " ".join(words))) if words else frozenset()
    values = [*case.args, *case.kwargs.values()]
    return frozenset((canon(values[0]), canon(values)) if len(values) == 1 else (canon(values),))


def _value(node: ast.AST) -> Any:
    try:
        return pysource.value_of(node) if isinstance(node, ast.expr) else None
    except pysource.LiteralError:
        return None


def findings(code: Code, problem: Problem) -> Iterator[Finding]:
    """At most one finding of each kind."""
    known = Known.of(problem)
    nodes = list(_used(code, problem))
    if known.telling:
        yield from _embedded(code, nodes, known)
    if known.keys:
        yield from _tables(code, nodes, known)


def _used(code: Code, problem: Problem) -> Iterator[ast.AST]:
    """The program without its documentation and its own tests; of a function, what it reaches by name."""
    wanted = {name.partition(".")[0] for case in problem.cases if (name := case.entry_point or problem.entry_point)}
    body = code.tree.body
    if problem.mode == "function" and wanted:
        wanted |= {problem.solution_class} if problem.solution_class else set()
        named: dict[str, list[ast.stmt]] = {}
        for statement in body:
            for name in _binds(statement):
                named.setdefault(name, []).append(statement)
        waiting, reached = list(wanted), set(wanted)
        chosen: dict[ast.stmt, None] = {}
        while waiting:
            for statement in named.get(waiting.pop(), ()):
                if statement not in chosen:
                    chosen[statement] = None
                    names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} - reached
                    reached |= names
                    waiting += names
        body = list(chosen)
    waiting_nodes: list[ast.AST] = list(reversed(body))
    while waiting_nodes:
        node = waiting_nodes.pop()
        own_test = isinstance(node, ast.FunctionDef) and node.name.startswith(("test", "check"))
        if isinstance(node, ast.Assert) or own_test or id(node) in code.bare:
            continue
        yield node
        waiting_nodes += reversed(list(ast.iter_child_nodes(node)))


def _binds(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return []


def _embedded(code: Code, nodes: list[ast.AST], known: Known) -> Iterator[Finding]:
    """Telling answers as literals, as whole displays, or inside long text."""
    telling = set(known.telling)
    where: dict[str, ast.AST] = {}
    budget = MAX_NODES
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and len(node.value) > 2 * _LEAST:
            text = canon(node.value) if len(node.value) <= MAX_TEXT else _whole(node.value)
            for answer in telling:
                if answer not in where and answer in text and len(answer) >= 5:
                    where[answer] = node
        elif isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Set | ast.Dict | ast.UnaryOp):
            if not isinstance(node, ast.Constant):
                budget -= sum(1 for _ in ast.walk(node)) if budget > 0 else 0
                if budget <= 0:
                    continue
            text = canon(_value(node))
            if text in telling:
                where.setdefault(text, node)
    if not where:
        return
    prose = [text for text in where if is_prose(text)]
    count = len(where) - (len(prose) if len(prose) < 3 else 0)
    longest = max(where, key=len)
    if count < 2 and (count == 0 or len(longest) < 30):
        return
    share = count / len(telling)
    weight = 0.4 if count == 1 else min(0.9, 0.55 + 0.35 * share)
    first = min(where.values(), key=code.line)
    text = f"{count} of {len(telling)} telling answers, such as {shortened(longest)}"
    yield code.finding("answers_embedded", first, text, weight=weight)


def _whole(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _tables(code: Code, nodes: list[ast.AST], known: Known) -> Iterator[Finding]:
    """Pairs of an input and its answer: entries of a dict, branches of a chain of ifs, cases of a match."""
    pairs: dict[str, dict[str, ast.AST]] = {}
    for key, value, place in _pairs(nodes):
        pairs.setdefault(key, {}).setdefault(value, place)
    hits: dict[str, ast.AST] = {}
    cases = 0
    for keys, output in zip(known.keys, known.outputs, strict=True):
        for key in keys:
            if key and output and (node := pairs.get(key, {}).get(output)):
                hits[key] = node
                cases += 1
                break
    share = cases / len(known.outputs)
    if len(hits) >= 3 and (share >= 0.6 or (len(hits) >= 6 and share >= 0.2)):
        first = min(hits.values(), key=code.line)
        text = f"{len(hits)} pairs, which answer {cases} of {len(known.outputs)} cases"
        yield code.finding("answer_table", first, text, weight=min(0.9, 0.6 + 0.3 * share))


def _pairs(nodes: list[ast.AST]) -> Iterator[tuple[str, str, ast.AST]]:
    for node in nodes:
        match node:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is not None and (text := canon(_value(key))):
                        yield text, canon(_value(value)), key
            case ast.If(test=test, body=[first, *_]) if answer := _answer(first):
                for key_text in _compared(test):
                    yield key_text, answer, node
            case ast.IfExp(test=test, body=body) if answer := canon(_value(body)):
                for key_text in _compared(test):
                    yield key_text, answer, node
            case ast.match_case(pattern=ast.MatchValue(value=value), body=[first, *_]) if answer := _answer(first):
                yield canon(_value(value)), answer, first


def _answer(statement: ast.stmt) -> str:
    """What a branch gives at once: ``return 7``, ``print(7)``, ``x = 7``."""
    match statement:
        case ast.Return(value=value) | ast.Assign(value=value) if value is not None:
            return canon(_value(value))
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=[value])):
            return canon(_value(value))
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="write"), args=[value])):
            return canon(_value(value))
    return ""


def _compared(test: ast.expr) -> list[str]:
    """Canonical values that a condition compares with: each, and for ``a == 3 and b == 4`` all as a list."""
    values = []
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    for part in parts[:50]:
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq | ast.In):
            values += [v for side in (part.left, part.comparators[0]) if (v := _value(side)) is not None]
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and len(values) > 1:
        return [canon(values)]
    return [text for value in values if (text := canon(value))]
