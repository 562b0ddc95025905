"""Which tests can be sealed, read from their source.

Tests that look into the program itself, or at what is in one process only,
cannot be. That is never read from what a program does, so that no program can
choose to be judged by tests beside it; and where only running them shows it,
what counts is what the tests' own code tried to send.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection

from proctor.grading import pysource
from proctor.grading.asked import bound

# What tests do with the program itself, not with its answers.
_LOOKS = {
    "inspect": "reads the program's source",
    "ast": "reads the program's source",
    "dis": "reads the program's code",
    "gc": "looks through the interpreter's objects",
    "weakref": "asks which objects are still there",
    "getrefcount": "asks which objects are still there",
    "mock": "replaces names",
    "subprocess": "starts programs",
    "multiprocessing": "starts processes",
    "asyncio": "runs coroutines",
    "threading": "runs threads",
    "concurrent": "runs threads",
    "tempfile": "makes files for the program",
    "tmp_path": "makes files for the program",
    "tmp_path_factory": "makes files for the program",
    "tmpdir": "makes files for the program",
    "warnings": "looks at the program's warnings",
    "tracemalloc": "measures the program's memory",
    "monkeypatch": "replaces names",
    "setattr": "replaces names",
    "settrace": "traces the program",
    "setprofile": "traces the program",
    "getsource": "reads the program's source",
    "exec": "runs source",
    "eval": "runs source",
    "getcontext": "sets how the program computes",
    "setcontext": "sets how the program computes",
    "localcontext": "sets how the program computes",
    "get_type_hints": "evaluates the program's annotations",
    "spec_from_file_location": "loads the program again",
    "reload": "loads the program again",
}
_CODE = (
    "__code__",
    "__globals__",
    "__closure__",
    "__wrapped__",
    "__defaults__",
    "__annotations__",
    "__file__",
    "__dict__",
)
_FUNCTIONS = ("FunctionType", "LambdaType", "MethodType", "BuiltinFunctionType")
_LOOKS |= dict.fromkeys(_FUNCTIONS, "asks whether something is a function")
_NAMESPACES = ("globals", "locals", "vars", "dir")
# Also behind the name of their module.
_BY_MODULE = ("get_type_hints", "getcontext", "setcontext", "localcontext", "spec_from_file_location", "reload",
              "getrefcount")  # fmt: skip
# What belongs to one process, and the program's is another.
_PLACES = ("settrace", "setprofile", "environ", "putenv", "chdir", "seed", "assertWarns", "assertWarnsRegex", "warns",
           "deprecated_call", "write_text", "write_bytes", "setrecursionlimit", "assertLogs", "assertNoLogs")  # fmt: skip
# Modules that do so wherever tests import them; as names they may be anything.
_MODULES = {
    "pickle": "runs what the program packed",
    "shelve": "runs what the program packed",
    "doctest": "runs the program's text",
    "timeit": "runs source",
    "runpy": "runs source",
    "code": "runs source",
    "cProfile": "runs source",
    "profile": "runs source",
    "logging": "looks at the program's log",
    "sqlite3": "makes files for the program",
    "shutil": "makes files for the program",
}
# State of one process, and the program's is another.
_OF_PROCESS = frozenset((
    "os.getcwd", "os.getcwdb", "os.getenv", "os.umask", "sys.getrecursionlimit", "sys.get_int_max_str_digits",
    "sys.set_int_max_str_digits", "random.getstate", "random.setstate", "signal.getsignal", "signal.signal",
    "locale.getlocale", "locale.setlocale",
))  # fmt: skip
_STREAMS = ("sys.stdout", "sys.stderr", "sys.stdin")
# What a context of the program's may change for what is done in it, but only in its own process.
_AROUND = frozenset(("print", "input", "sys", "os", "random", "decimal", "Decimal", "locale", "signal"))
_OPENERS = frozenset(("open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open", "tarfile.open", "zipfile.ZipFile", "ZipFile",
                      "glob.glob", "glob.iglob", "fileinput.input", "linecache.getline"))  # fmt: skip
_CLOCKS = ("time", "perf_counter", "monotonic", "process_time")
# What only the library's own look at, or change, of the files that the program may have written.
_OF_OS = ("mkdir", "makedirs", "remove", "unlink", "rename", "replace", "exists", "isfile", "isdir", "getsize", "listdir",
          "scandir", "walk", "stat", "rmdir", "system", "popen")  # fmt: skip
_OF_PATHS = ("open", "glob", "rglob", "mkdir", "unlink", "exists", "read_text", "read_bytes", "touch", "iterdir", "is_file",
             "is_dir", "stat")  # fmt: skip


def unsealable(tests: str, module: str, files: Collection[str] = ()) -> str | None:
    """Why these tests must run beside the program; None: they can be sealed.

    Args:
        tests: Python source.
        module: the name by which they import the program.
        files: names of the problem's own files, which are beside the tests as well.
    """
    tree = pysource.parse(tests)
    if tree is None:
        return "they cannot be read"
    look = _Look(tree, module, files)
    for node in pysource.nodes(tree):
        if reason := look.reason(node):
            return f"line {getattr(node, 'lineno', 0)} {reason}"
    return None


class _Look:
    """One look through the source of tests."""

    def __init__(self, tree: ast.Module, module: str, files: Collection[str]) -> None:
        self.module, self.files = module, files
        imports = [node for node in pysource.nodes(tree) if isinstance(node, ast.Import)]
        taken = {node.module for node in pysource.nodes(tree) if isinstance(node, ast.ImportFrom)}
        self.is_appended = module not in taken | {alias.name for node in imports for alias in node.names}
        self.libraries = {
            (alias.asname or alias.name).partition(".")[0]
            for node in imports
            for alias in node.names
            if alias.name != module
        }
        self.own = bound(tree, imported=False) | set(dir(builtins)) | _imported(tree, module)
        self.values: dict[str, list[ast.expr]] = {}
        for node in pysource.nodes(tree):
            if isinstance(node, ast.Assign):
                for name in filter(None, map(_dotted, node.targets)):
                    self.values.setdefault(name, []).append(node.value)
        self.given = {node.arg for node in pysource.nodes(tree) if isinstance(node, ast.arg)}
        self.moments = {name for name, values in self.values.items() if any(map(_is_clock, values))}
        self.paths = {name for name, values in self.values.items() if any(_is_path(value, ()) for value in values)}

    def reason(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self._imports(node)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            return "runs coroutines"
        if isinstance(node, ast.Name) and node.id == "input" and isinstance(node.ctx, ast.Store):
            return "replaces the program's input"
        if isinstance(node, ast.Name | ast.arg):
            word = node.id if isinstance(node, ast.Name) else node.arg
            return _LOOKS.get(word) if word != "ast" else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            sides = (node.left, node.right)
            if all(_is_clock(side) or (isinstance(side, ast.Name) and side.id in self.moments) for side in sides):
                return "measures a time, in which a sealed program is asked through a pipe"
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if (
            isinstance(node, ast.Subscript)
            and not isinstance(node.ctx, ast.Load)
            and _dotted(node.value) == "sys.modules"
        ):
            return "loads the program again"
        if isinstance(node, ast.Call) and _dotted(node.func) == "sys.modules.pop":
            return "loads the program again"
        if isinstance(node, ast.Call) and _dotted(node.func) in _OPENERS:
            return self._opens(node)
        if isinstance(node, ast.With) and any(self._is_programs(item.context_expr) for item in node.items):
            names = {part.id for line in node.body for part in ast.walk(line) if isinstance(part, ast.Name)}
            return "does in a context of the program's what that may change for it alone" if names & _AROUND else None
        if isinstance(node, ast.ClassDef) and not node.name.startswith("Test"):
            return self._attributes(node)
        if isinstance(node, ast.Compare):
            looks = any(_dotted(side) in _STREAMS for side in (node.left, *node.comparators))
            return "looks at the process's streams" if looks else None
        if isinstance(node, ast.Call) and not node.args and self.is_appended and _dotted(node.func) in _NAMESPACES:
            return "looks through the names around it, and the program's are among them"
        return None

    def _imports(self, node: ast.Import | ast.ImportFrom) -> str | None:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            if found := [name for name in names if f"{node.module}.{name}" in _OF_PROCESS]:
                return f"uses {node.module}.{found[0]}"
            if node.module in ("os", "os.path") and (found := [name for name in names if name in _OF_OS]):
                return f"uses {node.module}.{found[0]}"
            parts = (node.module or "").split(".")
            known = next((_MODULES[part] for part in parts[:1] if part in _MODULES), None)
        else:
            parts = []
            known = next(
                (_MODULES[name.partition(".")[0]] for name in names if name.partition(".")[0] in _MODULES), None
            )
        parts += [part for name in names for part in name.split(".")]
        return known or next((_LOOKS[part] for part in parts if part in _LOOKS), None)

    def _attribute(self, node: ast.Attribute) -> str | None:
        if node.attr in _FUNCTIONS or node.attr in _BY_MODULE:
            return _LOOKS[node.attr]
        if _dotted(node) in _OF_PROCESS:
            return f"uses {_dotted(node)}"
        if node.attr in _CODE or node.attr in _PLACES:
            return f"uses {node.attr}"
        if node.attr in _OF_OS and _dotted(node.value) in ("os", "os.path"):
            return f"uses {_dotted(node)}"
        if node.attr in _OF_PATHS and _is_path(node.value, self.paths):
            return f"uses a path's {node.attr}"
        if node.attr in ("read_text", "read_bytes") and _dotted(node.value) in self.given:
            return f"uses {node.attr} of what may be any path"
        if isinstance(node.ctx, ast.Load) or not isinstance(node.value, ast.Name):
            return None
        if _dotted(node) == "sys.stdin":
            return "replaces the program's input"
        if node.value.id in self.libraries and _dotted(node) not in ("sys.stdout", "sys.stderr"):
            return f"replaces {_dotted(node)}"
        return None

    def _opens(self, node: ast.Call) -> str | None:
        """Reads the program's own file, or one that it may have written, or writes one that it may be meant to read."""
        given = (*node.args, *(word.value for word in node.keywords))
        said = [arg.value for arg in given if isinstance(arg, ast.Constant)]
        if said and isinstance(said[0], str) and said[0].endswith(f"{self.module}.py"):
            return "reads the program's source"
        if any(isinstance(word, str) and set(word) & set("wax+") and set(word) <= set("wax+rbt") for word in said[1:]):
            return "makes files for the program"
        path = [*node.args, *(word.value for word in node.keywords if word.arg in ("file", "path", "filename"))][:1]
        named = [value for part in path for value in (part, *self.values.get(_dotted(part), ()))]
        texts = [part.value for value in named for part in ast.walk(value) if isinstance(part, ast.Constant)]
        if not any(isinstance(text, str) and text in self.files for text in texts):
            return "reads a file that the program may have written"
        return None

    def _is_programs(self, node: ast.AST) -> bool:
        """A call of what the program defines, as far as its name says that."""
        called = _dotted(node.func) if isinstance(node, ast.Call) else ""
        return bool(called) and (called.partition(".")[0] not in self.own or called.startswith(f"{self.module}."))

    def _attributes(self, node: ast.ClassDef) -> str | None:
        """A class of the tests' own has an attribute that the program made, and may have made a descriptor."""
        if any("TestCase" in ast.unparse(base) for base in node.bases):
            return None
        made = (item.value for item in node.body if isinstance(item, ast.Assign | ast.AnnAssign))
        found = any(map(self._is_programs, filter(None, made)))
        return "has what the program made in a class of its own" if found else None


def _imported(tree: ast.Module, module: str) -> set[str]:
    """Names that imports bind, but for those of the program's."""
    rows = [node for node in pysource.nodes(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    found: set[str] = set()
    for node in rows:
        if not (isinstance(node, ast.ImportFrom) and node.module == module):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return found - {module}


def _dotted(node: ast.AST) -> str:
    """``sys.modules`` and the like; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def _is_clock(node: ast.AST) -> bool:
    """It plainly reads a clock of ``time``."""
    named = _dotted(node.func) if isinstance(node, ast.Call) and not node.args else ""
    return named.removesuffix("_ns").removeprefix("time.") in _CLOCKS


def _is_path(node: ast.AST, known: Collection[str]) -> bool:
    """It is plainly a path of ``pathlib``."""
    if isinstance(node, ast.BinOp):
        return _is_path(node.left, known)
    if isinstance(node, ast.Name):
        return node.id in known
    return isinstance(node, ast.Call) and _dotted(node.func) in ("Path", "pathlib.Path")
