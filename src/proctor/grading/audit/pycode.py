"""Signs in Python source, found in its tree; nothing is run, imported or followed beyond the text itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from proctor.grading.audit import pyrules as rules
from proctor.grading.audit.signals import Finding, found
from proctor.grading.problem import Problem

MAX_EACH = 3  # findings of one signal
MAX_PARTS = 12  # of a dotted name; a chain of thousands would cost its square


class Code:
    """A parsed program: its names as they were imported, its lines, and which literals are only documentation.

    Args:
        tree: from ``pysource.parse``, which bounds size and nesting.
        source: its text.
    """

    def __init__(self, tree: ast.Module, source: str) -> None:
        self.tree = tree
        self.lines = source.split("\n")
        self.names: dict[str, str] = {}
        self.bare: set[int] = set()  # ids of constants that are statements of their own: docstrings and the like
        self.nodes = list(ast.walk(tree))
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name if alias.asname else alias.name.partition(".")[0]
                    self.names[alias.asname or top] = top
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                self.bare.add(id(node.value))
        self.imported = {name.partition(".")[0] for name in self.names.values()}

    def dotted(self, node: ast.AST) -> str:
        """``os._exit`` for that, however it was imported; empty where it is no name."""
        parts: list[str] = []
        while len(parts) < MAX_PARTS:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Name):
                parts.append(self.names.get(node.id, node.id))
                return ".".join(reversed(parts))
            elif isinstance(node, ast.Call) and node.args:
                # getattr(os, "_exit") and __import__("os") name what they name.
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                last = node.args[-1]
                if called == "getattr" and len(node.args) == 2 and isinstance(last, ast.Constant):
                    parts.append(str(last.value)[:80])
                    node = node.args[0]
                elif called in ("__import__", "import_module") and isinstance(node.args[0], ast.Constant):
                    parts.append(str(node.args[0].value)[:80])
                    return ".".join(reversed(parts))
                else:
                    return ""
            else:
                return ""
        return ""

    def line(self, node: ast.AST) -> int:
        return int(getattr(node, "lineno", 1))

    def finding(self, signal: str, node: ast.AST, detail: str = "", weight: float | None = None) -> Finding:
        number = self.line(node)
        text = self.lines[number - 1] if number <= len(self.lines) else ""
        return found(signal, detail, line=number, excerpt=text, weight=weight)

    @property
    def reads_input(self) -> bool:
        """Some name or literal stands for standard input; True also where code that is made later might."""
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute | ast.Call):
                name = self.dotted(node.func if isinstance(node, ast.Call) else node)
                if name in rules.READERS or name.startswith(("sys.stdin", "fileinput.")):
                    return True
                if name in ("exec", "eval", "compile"):
                    return True
                if isinstance(node, ast.Call) and name in rules.OPENERS and node.args:
                    first = node.args[0]
                    if not isinstance(first, ast.Constant) or first.value == 0 or str(first.value).startswith("/dev/"):
                        return True
        return self.reads_untraced

    @property
    def reads_untraced(self) -> bool:
        """Some name or literal stands for a way to read standard input that leaves no trace of it."""
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and self.dotted(node) in rules.UNTRACED:
                return True
            text = node.value if isinstance(node, ast.Constant) and id(node) not in self.bare else None
            if isinstance(text, str) and rules.STDIN_PATH.search(text):
                return True
        return False


def findings(code: Code, problem: Problem) -> Iterator[Finding]:
    """Every sign in the tree, at most a few of each."""
    seen: dict[str, int] = {}
    for finding in _all(code, problem):
        seen[finding.signal] = seen.get(finding.signal, 0) + 1
        if seen[finding.signal] <= MAX_EACH:
            yield finding


def _all(code: Code, problem: Problem) -> Iterator[Finding]:
    for node in code.nodes:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from _imported(code, node, problem)
            case ast.Name() | ast.Attribute():
                yield from _referenced(code, node, problem)
            case ast.Call():
                yield from _called(code, node, problem)
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Delete():
                yield from _patched(code, node)
            case ast.ClassDef():
                yield from _equal(code, node)
            case ast.Constant(value=str() as text) if id(node) not in code.bare:
                yield from _literal(code, node, text, problem)
    if problem.mode == "stdio":
        if any(case.stdin.strip() for case in problem.cases) and not code.reads_input:
            yield found("input_unread", "its source names no standard input")
    else:
        yield from _exits_at_import(code)
    if problem.mode == "function":
        yield from _ignores_arguments(code, problem)


def _sign(name: str, problem: Problem) -> str | None:
    """The signal of a name of the library, for a program of such a problem."""
    if name in rules.LEAVING and problem.mode in ("stdio", "interactive"):
        return None
    return rules.REFERENCES.get(name)


def _imported(code: Code, node: ast.Import | ast.ImportFrom, problem: Problem) -> Iterator[Finding]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if signal := _sign(name, problem):
                yield code.finding(signal, node, name)
    for name in names:
        for known, signal in rules.IMPORTS.items():
            if name == known or name.startswith(known + "."):
                yield code.finding(signal, node, f"import of {name}")


def _referenced(code: Code, node: ast.Name | ast.Attribute, problem: Problem) -> Iterator[Finding]:
    if isinstance(node, ast.Attribute):
        if node.attr in rules.ATTRIBUTES:
            yield code.finding(rules.ATTRIBUTES[node.attr], node, node.attr)
        elif signal := _sign(code.dotted(node), problem):
            yield code.finding(signal, node, code.dotted(node))
    elif node.id == "__builtins__":
        yield code.finding("modules_touched", node, node.id)


def _called(code: Code, node: ast.Call, problem: Problem) -> Iterator[Finding]:
    name = code.dotted(node.func)
    first = node.args[0] if node.args else None
    if isinstance(node.func, ast.Call) and (signal := _sign(name, problem)):
        yield code.finding(signal, node, name)  # getattr(os, "_exit")(0)
    if name in ("__import__", "importlib.import_module"):
        module = str(first.value) if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
        signal = rules.IMPORTS.get(module) if module else "dynamic_code"
        if signal:
            yield code.finding(signal, node, f"import of {module or 'a name made while it runs'}")
    if name in ("exec", "compile") or (name == "eval" and not _is_input(code, first)):
        yield code.finding("dynamic_code", node, name)
    if name in ("setattr", "delattr", "builtins.setattr") and first is not None:
        root = code.dotted(first).partition(".")[0]
        if root in code.imported or root == "builtins":
            yield code.finding("tests_patched", node, f"{name} on {code.dotted(first)}")
    own_file = isinstance(first, ast.Name) and first.id == "__file__"
    if own_file and (name in rules.OPENERS or name.startswith("pathlib.Path.")):
        yield code.finding("tests_read", node, "its own file")
    if name in rules.OPENERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
        path = first.value
        outside = path.startswith(("/", "~")) and path not in rules.HARMLESS_PATHS
        if outside or ".." in path.split("/"):
            yield code.finding("path_outside", node, path)
    mode = next((k.value for k in node.keywords if k.arg == "mode"), node.args[1] if len(node.args) > 1 else None)
    writes = name in ("open", "io.open") and isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax+")
    if writes or getattr(node.func, "attr", "") in ("write_text", "write_bytes"):
        yield code.finding("file_written", node)
    usual = first is None or isinstance(first, ast.Constant | ast.UnaryOp | ast.JoinedStr)
    if isinstance(first, ast.Call) and code.dotted(first.func) in ("main", "solve", "run"):
        usual = True
    if name in rules.EXITS and not usual:
        yield code.finding("computed_exit", node)


def _is_input(code: Code, node: ast.expr | None) -> bool:
    """``eval(input())`` and ``eval(line)`` are how some read a number or a formula."""
    return node is not None and not isinstance(node, ast.Constant | ast.BinOp | ast.JoinedStr)


def _patched(code: Code, node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete) -> Iterator[Finding]:
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Subscript):
                name = code.dotted(part.value)
                if name in ("sys.modules", "__builtins__", "builtins.__dict__"):
                    yield code.finding("tests_patched", node, f"an entry of {name}")
            elif isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load):
                name = code.dotted(part)
                root = part.value
                while isinstance(root, ast.Attribute):
                    root = root.value
                own = not (isinstance(root, ast.Name) and root.id in code.names) and not name.startswith("builtins.")
                if name and not own and name not in rules.STREAMS:
                    yield code.finding("tests_patched", node, name)


def _equal(code: Code, node: ast.ClassDef) -> Iterator[Finding]:
    plain = any(isinstance(base, ast.Name) and base.id in rules.PLAIN_TYPES for base in node.bases)
    for item in node.body:
        value: ast.AST | None = None
        if isinstance(item, ast.FunctionDef) and item.name in ("__eq__", "__ne__"):
            name, returned = item.name, [n.value for n in ast.walk(item) if isinstance(n, ast.Return)]
        elif isinstance(item, ast.Assign) and any(getattr(t, "id", "") in ("__eq__", "__ne__") for t in item.targets):
            value = item.value.body if isinstance(item.value, ast.Lambda) else None
            name, returned = "__eq__", [value] if isinstance(value, ast.expr) else []
        else:
            continue
        wanted = name == "__eq__"
        if any(isinstance(v, ast.Constant) and v.value is wanted for v in returned) and all(
            isinstance(v, ast.Constant) for v in returned
        ):
            yield code.finding("equality_overridden", item, f"{node.name}.{name} always gives {wanted}")
        elif plain:
            yield code.finding("equality_overridden", item, f"{node.name}.{name} of a plain type", weight=0.6)


def _literal(code: Code, node: ast.Constant, text: str, problem: Problem) -> Iterator[Finding]:
    if len(text) >= 200 and rules.OPAQUE.match(text) and len(set(text)) > 16:
        yield code.finding("opaque_data", node, f"{len(text)} characters")
    if len(text) > 4000:
        return
    if rules.OUTSIDE.match(text) and text not in rules.HARMLESS_PATHS:
        yield code.finding("path_outside", node, text)
    if rules.PLANTED.search(text):
        yield code.finding("file_planted", node, text)
    if rules.TESTS.search(text) or (problem.test_module and text == problem.test_module):
        yield code.finding("tests_read", node, text)
    if rules.FORGED.search(text):
        yield code.finding("report_forged", node, text)


def _exits_at_import(code: Code) -> Iterator[Finding]:
    """The process is ended while the program is being loaded, before it was asked anything."""
    for statement in code.tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or _is_main_guard(statement):
            continue
        for node in ast.walk(statement):
            name = code.dotted(node.func) if isinstance(node, ast.Call) else ""
            raised = isinstance(node, ast.Raise) and node.exc is not None and code.dotted(node.exc) == "SystemExit"
            if name in rules.EXITS or raised:
                yield code.finding("early_exit", node, "while it is being loaded")


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))


def _ignores_arguments(code: Code, problem: Problem) -> Iterator[Finding]:
    wanted = {name.rpartition(".")[2] for case in problem.cases if (name := case.entry_point or problem.entry_point)}
    if len(problem.cases) < 2 or not any(case.args or case.kwargs for case in problem.cases):
        return
    for node in code.nodes:
        if not isinstance(node, ast.FunctionDef) or node.name not in wanted:
            continue
        args = node.args
        names = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a}
        inside = list(ast.walk(node))
        used = {n.id for n in inside if isinstance(n, ast.Name)}
        returned = [n.value for n in inside if isinstance(n, ast.Return) and n.value is not None]
        if not returned:
            continue
        constants = {ast.dump(value) for value in returned if isinstance(value, ast.Constant)}
        if not (names - {"self", "cls"}) & used and not used & {"locals", "vars", "eval", "exec"}:
            yield code.finding("arguments_ignored", node, f"{node.name} never uses its arguments")
        elif len(constants) == 1 and all(isinstance(value, ast.Constant) for value in returned):
            yield code.finding("arguments_ignored", node, f"{node.name} always returns the same")
