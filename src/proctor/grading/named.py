"""Which tests a Python test file has, read from its source: those that must be reported, and those that it may skip."""

from __future__ import annotations

import ast
import builtins
import sys
from dataclasses import dataclass

from proctor.grading import pysource
from proctor.grading.fixtures import unknown_fixture, varies_all

_HOSTS = {"sys", "os", "platform"}  # modules that tell of the host alone
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NO_TESTS = {"object", "ABC", "abc.ABC", "Protocol", "typing.Protocol"}  # bases that make a class no TestCase


@dataclass(frozen=True, slots=True)
class Named:
    """Tests that Python test source plainly defines, by name.

    Attributes:
        wanted: must be reported.
        skipped: the source itself marks them to be skipped, or may; the program has no part in whether it does.
        leaves: they may skip themselves as they run, and so.
        every: all test functions and methods, also those that may be skipped or have parameters.
        fault: why no verdict can be had of this file; "" where one can.
        idle: its top level, and what it does when it is run by itself, asserts and calls nothing.
    """

    wanted: tuple[str, ...] = ()
    skipped: frozenset[str] = frozenset()
    leaves: frozenset[str] = frozenset()
    every: tuple[str, ...] = ()
    fault: str = ""
    idle: bool = False


def named_tests(source: str) -> Named:
    """Test functions and methods of Python test source.

    Only what a reader would be sure of is wanted: nothing under an ``if``,
    nothing decorated or with parameters, no class whose bases are not written
    as TestCase.
    """
    tree = pysource.parse(source)
    if tree is None:
        return Named()
    wanted: list[str] = []
    skipped: set[str] = set()
    leaves: set[str] = set()
    every: list[str] = []
    faults: list[str] = []
    safe, texts, varies = _safe_names(tree), _constants(tree), varies_all(tree)
    hosts = (_HOSTS & safe) | _optional(tree)
    rows = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    called = {row.func.id for row in rows if isinstance(row.func, ast.Name)}  # by the top level, which is a test itself
    local = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    factories = {node.name for node in tree.body if isinstance(node, _Function) and _is_factory(node)}
    gone = {ast.unparse(name) for node in tree.body if isinstance(node, ast.Delete) for name in node.targets}
    functions = [node for node in pysource.nodes(tree) if isinstance(node, _Function) and node.name.startswith("test")]
    # What else skips, a fixture or a helper, may do so for the program's sake.
    own_skips = sum(map(_is_skip, pysource.nodes(tree))) == sum(_safe_skips(node, hosts) for node in functions)

    def look(body: list[ast.stmt], before: str, above: list[ast.expr], sure: bool) -> None:
        above = [*above, *_own_marks(body)]
        for node in body:
            if isinstance(node, ast.ClassDef) and (_is_none(node) or (before == "" and node.name in gone)):
                continue
            if isinstance(node, ast.ClassDef) and (before == "" or node.name.startswith("Test")):
                case = before == "" and not node.decorator_list and _is_test_case(node)
                if not _is_plain_class(node, local):
                    every.extend(f"{before}{node.name}.{name}" for name in _inherited(node, local))
                    look(node.body, f"{before}{node.name}.", [*above, *node.decorator_list], case)
            elif isinstance(node, ast.Assign) and before == "" and _is_made(node.value, factories):
                targets = [name.id for name in node.targets if isinstance(name, ast.Name)]
                every.extend(name for name in targets if name.startswith("test"))
            elif isinstance(node, _Function) and (node.name.startswith("test") or (before and _is_whole(node, body))):
                marks = [*above, *node.decorator_list]
                if before == "" and node.name in called:
                    continue
                if any(word in ast.unparse(mark) for mark in node.decorator_list for word in ("fixture", "property")):
                    continue
                name = before + node.name
                every.append(name)
                if _is_generator(node):
                    faults.append(f"{name} is a generator: nothing in it would be run")
                skipping = [part for mark in marks for part in _skipping(mark, texts)]
                own = own_skips and _safe_skips(node, hosts) > 0
                leaves.update([name] if own else [])
                if skipping:
                    skipped.update([name] if all(_names(part) <= safe for part in skipping) else [])
                elif (
                    not own
                    and not marks
                    and (sure or (before == "" and not varies and node.name.startswith("test_") and _is_plain(node)))
                ):
                    wanted.append(name)

    look(tree.body, "", [], False)
    faults += filter(None, [unknown_fixture(tree)])
    return Named(
        tuple(dict.fromkeys(wanted)),
        frozenset(skipped),
        frozenset(leaves),
        tuple(dict.fromkeys(every)),
        "".join(faults[:1]),
        _is_idle(tree),
    )


def _is_idle(tree: ast.Module) -> bool:
    """Nothing is tested where no test is run by its name."""
    defined = [node for node in tree.body if isinstance(node, ast.ClassDef | _Function)]
    named = any(node.name.startswith(("test", "Test")) for node in defined) or "TestCase" in ast.unparse(tree)
    functions = {node.name for node in pysource.nodes(tree) if isinstance(node, _Function)}

    def is_still(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
            return not any(isinstance(call, ast.Name) and call.id in functions for call in calls)
        return isinstance(node, ast.ClassDef | _Function) or (named and _is_main(node))

    active = [part for node in tree.body if not is_still(node) for part in ast.walk(node)]
    return not any(isinstance(part, ast.Assert | ast.Call | ast.Raise) for part in active)


def _is_main(node: ast.stmt) -> bool:
    """``if __name__ == "__main__"``, which is run where the file has no tests by name."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _is_plain_class(node: ast.ClassDef, local: dict[str, ast.ClassDef], depth: int = 0) -> bool:
    """Neither pytest nor unittest runs it, by its name and bases."""

    def plain(base: str) -> bool:
        return base in _NO_TESTS or (base in local and depth < 20 and _is_plain_class(local[base], local, depth + 1))

    return not (depth == 0 and node.name.startswith("Test")) and all(plain(ast.unparse(base)) for base in node.bases)


def _inherited(node: ast.ClassDef, local: dict[str, ast.ClassDef], depth: int = 0) -> set[str]:
    """Tests that a class has from the classes of the file that it derives from."""
    found: set[str] = set()
    for base in (local[name] for name in map(ast.unparse, node.bases) if name in local and depth < 20):
        own = {part.name for part in base.body if isinstance(part, _Function) and part.name.startswith("test")}
        found |= own | _inherited(base, local, depth + 1)
    return found


def _is_factory(function: _Function) -> bool:
    """It makes functions."""
    return any(isinstance(node, _Function) for part in function.body for node in ast.walk(part))


def _is_made(value: ast.expr, factories: set[str]) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in factories


def _is_none(node: ast.ClassDef) -> bool:
    """A class that says of itself that it is no test, or one of pytest's with a constructor, of which pytest makes none."""
    texts = [ast.unparse(part) for part in node.body if isinstance(part, ast.Assign)]
    made = any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body)
    return "__test__ = False" in texts or (made and node.name.startswith("Test") and not node.bases)


def _constants(tree: ast.Module) -> dict[str, str]:
    """What the top level assigns to names, as text."""
    return {
        target.id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _skipping(mark: ast.expr, texts: dict[str, str]) -> list[ast.expr]:
    """What of a mark may skip, or expect a failure: all of it, or the marks of a parametrization's rows; also by another name."""
    named = [texts.get(name, "") for name in _names(mark)]
    if isinstance(mark, ast.Call) and "parametrize" in ast.unparse(mark.func) and not any(map(_does, named)):
        words = [node for node in ast.walk(mark) if isinstance(node, ast.keyword) and node.arg == "marks"]
        return [part for word in words for part in _skipping(word.value, texts)]
    return [mark] if any(map(_does, (ast.unparse(mark), *named))) else []


def _does(text: str) -> bool:
    return any(word in text for word in ("skip", "xfail", "expectedFailure"))


def _is_skip(node: ast.AST) -> bool:
    """A call that skips the test that runs."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.skip", "skip", "self.skipTest")


def _is_of_host(node: ast.stmt) -> bool:
    """It names whether there is a library: ``HAS = importlib.util.find_spec("yaml") is not None``."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    looks = all(ast.unparse(call.func).rpartition(".")[2] == "find_spec" for call in calls)
    plain = all(isinstance(part, ast.Constant) for call in calls for part in call.args)
    names = _names(node.value) if isinstance(node, ast.Assign) else {""}
    return bool(calls) and looks and plain and names <= {"importlib", "find_spec"}


def _optional(tree: ast.Module) -> set[str]:
    """Names that say whether a library is here: what ``try: import numpy as np`` and its ``except ImportError`` bind."""
    found: list[str] = []
    for node in tree.body:
        if _is_of_host(node):
            found += [
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            ]
        if not isinstance(node, ast.Try) or node.orelse or node.finalbody:
            continue
        rows = [*node.body, *(row for handler in node.handlers for row in handler.body)]
        caught = {ast.unparse(handler.type) if handler.type else "" for handler in node.handlers}
        bound: list[str] = []
        for row in rows:
            if isinstance(row, ast.Import) and all(_is_library(alias.name) for alias in row.names):
                bound += [(alias.asname or alias.name).partition(".")[0] for alias in row.names]
            elif isinstance(row, ast.Assign) and isinstance(row.value, ast.Constant):
                bound += [target.id for target in row.targets if isinstance(target, ast.Name)]
            elif not isinstance(row, ast.Pass):
                break
        else:
            found += bound if caught <= {"ImportError", "ModuleNotFoundError"} else []
    stores = [
        part.id for part in pysource.nodes(tree) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
    ]
    args = {part.arg for part in pysource.nodes(tree) if isinstance(part, ast.arg)}
    return {name for name in found if name not in args and stores.count(name) <= found.count(name)}


def _safe_skips(function: _Function, hosts: set[str]) -> int:
    """How many calls in it skip the test by what no program has a part in: under a condition of the host's, say."""
    found = 0
    for at, node in enumerate(function.body):
        asked = _names(node.test) if isinstance(node, ast.If) else set()
        below = node.body if isinstance(node, ast.If) and asked and asked <= hosts else [node] if at == 0 else []
        found += sum(isinstance(row, ast.Expr) and _is_skip(row.value) for row in below)
    return found


def _is_whole(function: _Function, body: list[ast.stmt]) -> bool:
    """``runTest``, which is the test of a TestCase that has no others."""
    others = any(isinstance(node, _Function) and node.name.startswith("test") for node in body)
    return function.name == "runTest" and not others


def _is_generator(function: ast.AST) -> bool:
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return False


def _own_marks(body: list[ast.stmt]) -> list[ast.expr]:
    """A ``pytestmark`` of a module or class."""
    return [
        node.value
        for node in body
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets)
    ]


def _names(node: ast.AST) -> set[str]:
    """Those in it, and ``.modules`` for a look at what is imported."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {
        f".{part.attr}" for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr == "modules"
    }


def _safe_names(tree: ast.Module) -> set[str]:
    """Names that no program has a part in: built-ins, the libraries' and constants made of such."""
    safe = {name for name in dir(builtins) if name[:2] != "__"} - {"globals", "locals", "vars", "dir", "eval", "exec"}
    for node in pysource.nodes(tree):
        if isinstance(node, ast.Import):
            safe |= {(a.asname or a.name).partition(".")[0] for a in node.names if _is_library(a.name)}
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_library(node.module or ""):
            safe |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            taken = {alias.asname or alias.name for alias in node.names}
            safe -= set(dir(builtins)) if "*" in taken else taken
    uses: dict[str, set[str]] = {}
    for node in pysource.nodes(tree):
        if isinstance(node, ast.Assign):
            names = set() if _is_of_host(node) else _names(node.value)
            for target in node.targets:
                if isinstance(target, ast.Name):
                    uses.setdefault(target.id, set()).update(names)
    for _ in range(3):  # constants made of constants
        safe |= {name for name, of in uses.items() if of <= safe}
    return safe


def _is_library(module: str) -> bool:
    top = module.partition(".")[0]
    return (top in sys.stdlib_module_names and top not in ("importlib", "runpy")) or top in ("pytest", "numpy")


def _is_plain(node: _Function) -> bool:
    args = node.args
    return isinstance(node, ast.FunctionDef) and not (
        node.decorator_list or args.args or args.posonlyargs or args.kwonlyargs
    )


def _is_test_case(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base) in ("TestCase", "unittest.TestCase") for base in node.bases)
