"""What a problem asks a program for, and what a fenced block does about it, by its syntax alone.

The extraction uses it to tell a program from an example of its use.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from proctor.engine.languages import LANGUAGES
from proctor.grading import pysource
from proctor.grading.problem import Problem

Path = tuple[str, ...]

_LANGUAGES = {name: row.name for row in LANGUAGES for name in (row.name, *row.aliases)}
_BUILTINS = frozenset((*dir(builtins), "__file__", "__builtins__", "__annotations__"))
_COMPILED = ("c", "cpp", "java", "go", "rust")  # a program in them has a function of the name main
# Words without which no Python program prints: what it prints with, or what may hide that.
_OPENING = ("open", "fdopen", "read", "FileIO", "readline")  # with the number of the standard input
_PRINTING = frozenset(("print", "pprint", "write", "writelines", "stdout", "exec", "eval", "system", "run", "Popen"))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a block must have to be the program.

    Attributes:
        names: what it must define: for each, the paths that serve (``f``, or
            ``Solution.f`` for a method).
        prints: it is run for what it prints.
        reads: each case has an input.
        word: other languages than Python: a word that it has.
    """

    names: tuple[tuple[Path, ...], ...] = ()
    prints: bool = False
    reads: bool = False
    word: str | None = None


NOTHING = Asked()


def asked_of(problem: Problem, language: str) -> Asked:
    """What a problem asks of a program in a language, by any of its names."""
    language = _LANGUAGES.get(language.lower(), language)
    if problem.mode in ("stdio", "interactive"):
        reads = problem.mode == "stdio" and all(case.stdin and case.stdin.strip() for case in problem.cases)
        return Asked(prints=True, reads=reads, word="main" if language in _COMPILED else None)
    if language != "python":
        return NOTHING
    if problem.mode == "function":
        names = dict.fromkeys(case.entry_point or problem.entry_point or "" for case in problem.cases)
    elif problem.entry_point:
        names = {problem.entry_point: None}
    else:
        names = dict.fromkeys(_names_in_tests(problem.test_code or "", problem.preamble, problem.module))
    return Asked(tuple(_serving(name, problem.solution_class) for name in names if name))


def _serving(name: str, solution_class: str | None) -> tuple[Path, ...]:
    path = tuple(name.split("."))
    return (path, (solution_class, *path)) if solution_class and len(path) == 1 else (path,)


@lru_cache(maxsize=1024)
def _names_in_tests(tests: str, preamble: str, module: str) -> tuple[str, ...]:
    """What tests take from the program: what they import from it, or else what they use and do not define."""
    tree, name = pysource.parse(tests), module.removesuffix(".py").replace("/", ".")
    if tree is None:
        return ()
    found = [
        alias.name
        for node in pysource.nodes(tree)
        if isinstance(node, ast.ImportFrom) and node.module == name
        for alias in node.names
        if alias.name != "*"
    ]
    short = {
        alias.asname or alias.name
        for node in pysource.nodes(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == name
    }
    found += [
        node.attr
        for node in pysource.nodes(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in short
    ]
    if found:
        return tuple(dict.fromkeys(found))
    given = pysource.parse(preamble)
    return tuple(sorted(free(tree) - (bound(given) if given else frozenset())))


# ---------------------------------------------------------------- what a source has


def defines(tree: ast.Module, path: Path, *, imported: bool = True, whole: bool = False) -> bool:
    """It binds ``f``, or ``Solution.method``, at its top level (if, try and with looked into).

    ``whole``: a function that does nothing, as one that only shows how it is called, does not count.
    """
    return _defines(tree.body, path, imported, whole)


def _defines(body: list[ast.stmt], path: Path, imported: bool, whole: bool) -> bool:
    kinds = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom) if imported else (ast.Assign, ast.AnnAssign)
    for node in _statements(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == path[0]:
            if len(path) == 1 and not (whole and _is_stub(node)):
                return True
            inner = path[1:]
            if inner and isinstance(node, ast.ClassDef) and (node.bases or _defines(node.body, inner, True, whole)):
                return True
        elif isinstance(node, kinds) and path[0] in _targets(node):
            return True
    return False


def _is_stub(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and all(map(pysource.says_nothing, node.body))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body and of the blocks in it that share its namespace."""
    waiting = list(reversed(body))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            inner = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            inner += [stmt for handler in getattr(node, "handlers", []) for stmt in handler.body]
            waiting += reversed(inner)


def _targets(node: ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def acts(tree: ast.Module) -> bool:
    """Some statement is more than a bare value, an import or an assertion.

    The tree of ``7`` or of ``Result: 7`` is only shown output, and one of
    assertions is a test of a program that stands elsewhere.
    """
    for node in tree.body:
        if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.Pass):
            continue
        if isinstance(node, ast.AnnAssign) and node.value is None:
            continue
        if not isinstance(node, ast.Expr) or any(isinstance(part, ast.Call | ast.Await) for part in ast.walk(node)):
            return True
    return False


def prints(tree: ast.Module) -> bool:
    """It may print something when it is run: it runs more than definitions, and has a word to print with."""
    quiet = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assert)
    if all(isinstance(node, quiet) for node in tree.body):
        return False
    for node in pysource.nodes(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return True
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        word = node.name.rpartition(".")[2] if isinstance(node, ast.alias) else word
        if word in _PRINTING:
            return True
    return False


def reads(tree: ast.Module) -> bool:
    """It reads standard input, as programs do and examples of their use do not."""
    for node in pysource.nodes(tree):
        if isinstance(node, ast.Name) and node.id in ("input", "stdin") and isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "stdin" and isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.Call) and _is_stdin(node.args):
            if getattr(node.func, "id", getattr(node.func, "attr", "")) in _OPENING:
                return True
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return True  # it may
        elif isinstance(node, ast.alias) and node.name == "fileinput":
            return True
    return False


def _is_stdin(args: list[ast.expr]) -> bool:
    return bool(args) and isinstance(args[0], ast.Constant) and args[0].value in (0, "/dev/stdin")


def bound(tree: ast.Module, *, imported: bool = True) -> frozenset[str]:
    """Every name that a source binds in any of its scopes."""
    found: set[str] = set()
    for node in pysource.nodes(tree):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            if imported:
                found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.MatchMapping):
            found.add(node.rest or "")
        elif isinstance(name := getattr(node, "name", None), str):  # definitions, handlers, patterns, type parameters
            found.add(name)
    return frozenset(found)


def free(tree: ast.Module) -> frozenset[str]:
    """Names that a source uses, binds in none of its scopes, and Python does not have; none where it imports a star."""
    own = bound(tree)
    if "*" in own:
        return frozenset()
    used = {node.id for node in pysource.nodes(tree) if isinstance(node, ast.Name)}
    return frozenset(used - own - _BUILTINS)
