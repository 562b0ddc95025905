"""Whether how many tests there are, which of them run and which count may hang on the program: read from their source."""

from __future__ import annotations

import builtins
from typing import Any

from .reading import inside, is_main, kind_of, parsed

_FINDERS = ("importlib", "runpy")  # find modules by whatever text


def rows_by_program(source: str, module: str, appended: bool) -> bool:
    """How many rows a parametrization has, or whether a test runs, or counts where it fails, may be for the program to say.

    Args:
        source: of the tests.
        module: the program's.
        appended: names that the source does not bind are the program's.
    """
    tree = parsed(source)
    if tree is None:
        return False
    callers = {"parametrize"} | {
        target.id
        for node in inside(tree)
        if kind_of(node) == "Assign" and getattr(node.value, "attr", "") == "parametrize"
        for target in node.targets
        if kind_of(target) == "Name"
    }
    froms = [node for node in inside(tree) if kind_of(node) == "ImportFrom"]
    starred = any(alias.name == "*" for node in froms for alias in node.names)
    free = unbound(source) if appended or starred else set()
    tainted, fixed = (
        {*free, *_FINDERS, "globals", "locals", "vars", "dir", "eval", "exec", "__import__", "__name__"},
        set(),
    )
    uses = [node.id for node in inside(tree) if kind_of(node) == "Name"]
    for node in inside(tree):
        if kind_of(node) == "ImportFrom":
            tainted |= {alias.asname or alias.name for alias in node.names if _comes_from(node, alias, module)}
        elif kind_of(node) == "Import":
            of_it = [alias for alias in node.names if _is_of(alias.name, module)]
            tainted |= {alias.asname or alias.name.partition(".")[0] for alias in of_it}
    libraries = {
        (alias.asname or alias.name).partition(".")[0]
        for node in inside(tree)
        if kind_of(node) in ("Import", "ImportFrom")
        for alias in node.names
    } - tainted  # no program changes what these names mean
    bodies = [node for node in tree.body if kind_of(node) not in ("FunctionDef", "AsyncFunctionDef", "ClassDef")]
    at_once = {getattr(node.func, "id", "") for node in inside(bodies) if kind_of(node) == "Call"}
    statements = [node for node in tree.body if not is_main(node)]
    for node in statements:  # grows: what stands in a class, and in one in it
        statements += node.body if kind_of(node) == "ClassDef" else []
    before = -1
    while before != len(tainted):  # what is made of something tainted is so too
        before = len(tainted)
        for node in statements:
            parts = [part for part in inside(node) if kind_of(part) == "Name"]
            if _is_of_host(node, module):
                continue
            if not tainted.isdisjoint(part.id for part in parts) or _says(node, module):
                bare = kind_of(node) in ("FunctionDef", "AsyncFunctionDef", "ClassDef")
                tainted |= {node.name, *_changed_in(node)} if bare else {part.id for part in parts}
                if bare and node.name in at_once:
                    tainted |= _passed_in(node)
                tainted -= libraries
            if kind_of(node) == "Assign" and _is_fixed(node.value):
                fixed |= {target.id for target in node.targets if kind_of(target) == "Name"}
    rows: list[Any] = []
    for node in inside(tree):
        if kind_of(node) == "Call":
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            rows += node.args[1:2] if called in callers else node.args[:1] if called == "xfail" else []
            rows += [part.value for part in node.args if called in callers and kind_of(part) == "Starred"]
            rows += node.args if called == "type" and len(node.args) == 3 else []  # a class of whatever tests
            rows += node.args[:1] if called in ("skipif", "skipIf", "skipUnless") else []
            rows += [word.value for word in node.keywords if word.arg == "condition"]
            rows += [word.value for word in node.keywords if word.arg in ("argvalues", "params")]
    plain = [part.id for part in rows if kind_of(part) == "Name"]
    fixed = {name for name in fixed if uses.count(name) == 1 + plain.count(name)}  # nothing else is done with it
    open_ones = [part for part in rows if not _is_fixed(part) and getattr(part, "id", "") not in fixed]
    open_ones += [condition for node in inside(tree) for condition in _conditions_of_tests(node)]
    classes = [node for node in inside(tree) if kind_of(node) == "ClassDef"]
    open_ones += [node for node in [*bodies, *(part for each in classes for part in each.body)] if _makes_names(node)]
    return any(getattr(name, "id", "") in tainted for name in inside(open_ones)) or _says(open_ones, module)


def _is_of_host(node: Any, module: str) -> bool:
    """It names whether there is a library: ``HAS = importlib.util.find_spec("yaml") is not None``."""
    calls = [part for part in inside(node) if kind_of(part) == "Call"]
    names = {part.id for part in inside(getattr(node, "value", None)) if kind_of(part) == "Name"}
    looks = [getattr(call.func, "attr", getattr(call.func, "id", "")) == "find_spec" for call in calls]
    texts = [getattr(part, "value", None) for call in calls for part in call.args]
    plain = all(type(text) is str and not _is_of(text, module) for text in texts)
    return kind_of(node) == "Assign" and bool(calls) and all(looks) and plain and names <= {"importlib", "find_spec"}


def unbound(source: str) -> set[str]:
    """Names that it reads and binds in no scope around; what the interpreter has is among them."""
    import symtable

    top = symtable.symtable(source, "tests", "exec")
    own = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    found, waiting = set(), [top]
    while waiting:
        scope = waiting.pop()
        waiting += scope.get_children()
        read = [symbol for symbol in scope.get_symbols() if symbol.is_referenced()]
        found |= {symbol.get_name() for symbol in read if symbol.is_global() or scope is top}
    return found - own - set(dir(builtins))


def _is_of(name: str, module: str) -> bool:
    """A dotted name that is the program's module, a package around it, or something in it."""
    return f"{name}.".startswith(f"{module}.") or f"{module}.".startswith(f"{name}.")


def _comes_from(node: Any, alias: Any, module: str) -> bool:
    """A name that a ``from ... import`` takes is the program's, or gives what is."""
    return bool(node.level) or _is_of(f"{node.module}.{alias.name}", module) or node.module in _FINDERS


def _says(node: Any, module: str) -> bool:
    """It holds the module's name as a text, ``sys.modules["solution"]``, or imports from it."""
    return any(
        getattr(part, "value", None) == module
        if kind_of(part) == "Constant"
        else any(_comes_from(part, alias, module) for alias in part.names)
        for part in inside(node)
        if kind_of(part) in ("Constant", "ImportFrom")
    )


def _conditions_of_tests(node: Any) -> list[Any]:
    """What it hangs on that tests are defined below this statement, or that this one runs and counts."""
    kind = kind_of(node)
    if kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
        marks = [
            part
            for part in node.decorator_list
            if not any(getattr(name, "attr", getattr(name, "id", "")) == "parametrize" for name in inside(part))
        ]
        bases = [part for part in getattr(node, "bases", []) if kind_of(part) not in ("Name", "Attribute")]
        return marks + bases if node.name.lower().startswith("test") or kind == "ClassDef" else []
    if kind in ("Assign", "AnnAssign") and node.value is not None:
        targets = node.targets if kind == "Assign" else [node.target]
        names = [getattr(target, "id", getattr(target, "attr", "")) for target in targets]
        is_test = any(name.lower().startswith("test") for name in names)
        if is_test and kind_of(node.value) == "Call" and kind_of(node.value.func) == "Call":
            return [node.value.func]  # what a decorator that is not written as one is made with
        either = is_test and kind_of(node.value) in ("IfExp", "BoolOp")
        return [node.value] if either or "pytestmark" in names or "__test__" in names else []
    if kind not in ("If", "Try", "For", "While", "With", "Match"):
        return []
    below = [part for part in inside(node) if kind_of(part) in ("FunctionDef", "AsyncFunctionDef")]
    if not any(str(part.name).startswith("test") for part in below):
        return []
    if kind == "Try":
        return [part for part in node.body if kind_of(part) not in ("FunctionDef", "AsyncFunctionDef", "ClassDef")]
    return [getattr(node, field, None) for field in ("test", "iter", "subject", "items")]


def _makes_names(statement: Any) -> bool:
    """It may define tests without naming them."""
    stored = [node.value for node in inside(statement) if kind_of(node) == "Subscript" and kind_of(node.ctx) == "Store"]
    into = {getattr(getattr(node, "func", None), "id", "") for node in stored}
    named = {getattr(node, "id", "") for node in inside(statement)}
    return bool(into & {"vars", "locals"} or named & {"globals", "setattr"})


def _passed_in(function: Any) -> set[str]:
    """Names that a function hands to what it calls."""
    calls = [node for node in inside(function) if kind_of(node) == "Call"]
    given = [[*node.args, *(word.value for word in node.keywords)] for node in calls]
    return {part.id for part in inside(given) if kind_of(part) == "Name"}


def _changed_in(function: Any) -> set[str]:
    """Names of what a function or class changes: by a method called for what it does, or an assignment into it."""
    found: set[str] = set()
    for node in inside(function):
        if kind_of(node) == "Expr" and kind_of(node.value) == "Call":
            found.add(getattr(getattr(node.value.func, "value", None), "id", ""))
        elif kind_of(node) in ("Assign", "AugAssign"):
            for target in node.targets if kind_of(node) == "Assign" else [node.target]:
                found.add(getattr(getattr(target, "value", None), "id", ""))
        elif kind_of(node) == "Global":
            found.update(node.names)
    return found - {"", "self"}


def _is_fixed(node: Any) -> bool:
    """As many parts as are written down."""
    return kind_of(node) in ("List", "Tuple") and not any(kind_of(part) == "Starred" for part in node.elts)
