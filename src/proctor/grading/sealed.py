"""Unit tests in one jail, the program in another: which tests can be sealed, and what their run says.

The program's process holds no test, no expected value and no frame of a test.
It answers calls; what the tests make of the answers is decided where it has no
say. So the verdict is no claim of its own.

Tests that look into the program itself cannot be sealed. Whether they do is
read from their source, never from what a program does, so that no program can
choose to be judged by tests beside it; and where only running them shows it,
what counts is what the tests' own code tried to send.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, replace

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job, Pair, Program
from proctor.grading import judge, pysource
from proctor.grading.grades import CaseGrade
from proctor.grading.named import Named
from proctor.guest import protocol

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
# What only the library's own look at, or change, of the files that the program may have written.
_OF_OS = ("mkdir", "makedirs", "remove", "unlink", "rename", "replace", "exists", "isfile", "isdir", "getsize", "listdir",
          "scandir", "walk", "stat", "rmdir", "system", "popen")  # fmt: skip
_OF_PATHS = ("mkdir", "unlink", "exists", "read_text", "read_bytes", "touch", "iterdir", "is_file", "is_dir", "stat")


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
        self.paths = {
            target.id
            for node in pysource.nodes(tree)
            if isinstance(node, ast.Assign) and _is_path(node.value, ())
            for target in node.targets
            if isinstance(target, ast.Name)
        }

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
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            return self._opens(node)
        if isinstance(node, ast.Call) and not node.args and self.is_appended and _dotted(node.func) in _NAMESPACES:
            return "looks through the names around it, and the program's are among them"
        return None

    def _imports(self, node: ast.Import | ast.ImportFrom) -> str | None:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
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
        if node.attr in _CODE or node.attr in _PLACES:
            return f"uses {node.attr}"
        if node.attr in _OF_OS and _dotted(node.value) in ("os", "os.path"):
            return f"uses {_dotted(node)}"
        if node.attr in _OF_PATHS and _is_path(node.value, self.paths):
            return f"uses a path's {node.attr}"
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
        if node.args and isinstance(node.args[0], ast.Constant) and said[0] not in self.files:
            return "reads a file that the program may have written"
        return None


def _dotted(node: ast.AST) -> str:
    """``sys.modules`` and the like; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def _is_path(node: ast.AST, known: Collection[str]) -> bool:
    """It is plainly a path of ``pathlib``."""
    if isinstance(node, ast.BinOp):
        return _is_path(node.left, known)
    if isinstance(node, ast.Name):
        return node.id in known
    return isinstance(node, ast.Call) and _dotted(node.func) in ("Path", "pathlib.Path")


@dataclass(frozen=True, slots=True)
class Sealing:
    """How the tests of a problem are run against any program.

    Attributes:
        module, test_module: names of the program's module and the tests'.
        tests, preamble: source.
        appended: the tests name what the program defines without importing it.
        entry: names that the problem asks the program for.
        classes: those of them that it says to be classes.
    """

    module: str
    test_module: str
    tests: str
    preamble: str
    appended: bool
    entry: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def pair(self, program: Program, name: str, limits: Limits, nonce: str, files: dict[str, bytes]) -> Pair:
        """The program's half and the tests'.

        The program's wall time goes on while it waits for the tests, so it is
        the limit of both, and the tests' is longer.
        """
        asks = protocol.sealed_request(
            module=self.module, tests=self.tests, test_module=self.test_module, test_file=f"{self.test_module}.py",
            nonce=nonce, appended=self.appended, preamble=self.preamble, entry=self.entry,
            classes=self.classes,
        )  # fmt: skip
        serves = protocol.serve_request(source_file=name, module=self.module)
        side = Program(files, ("python3", f"{self.test_module}.py"), warm=True)
        patient = limits.with_(wall_s=limits.wall + limits.cpu_s)
        return Pair(
            Job(program, (Case(request=serves, talk="request"),), patient),
            Job(side, (Case(request=asks, talk="request"),), limits.with_(wall_s=limits.wall + limits.cpu_s + 5)),
        )


def judge_sealed(program: Outcome, tests: Outcome, nonce: str, named: Named) -> tuple[CaseGrade, ...]:
    """The named tests of one sealed run.

    A program that ends early, or goes over a limit, fails them all, as it does
    where they run beside it. Of the tests' own side only a limit counts: it is
    spent on what the program sent, or made them do.
    """
    for outcome in (program, tests):
        if outcome.error is not None:
            return judge.failed(outcome.error, max(1, len(named.wanted)))
    report = protocol.parse_test_report(tests.result, nonce)
    own, end = judge.ending(program), judge.ending(tests)
    if (
        own is None
        and end is not None
        and tests.ended_by in (EndedBy.CPU, EndedBy.WALL, EndedBy.MEMORY, EndedBy.OUTPUT)
    ):
        return _all(program, replace(end, detail=f"in the tests, with what the program gave them: {end.detail}"), named)
    if own is not None:
        return _all(program, own, named)
    if report is not None and report.lacks:
        return judge.failed(report.lacks, max(1, len(named.wanted)))
    if report is not None and report.undecided:  # the tests were not run to their end
        return judge.failed(report.undecided, max(1, len(named.wanted)))
    if report is not None and report.broken:
        return _all(program, judge.Ending(Verdict.WRONG_ANSWER, report.broken), named)
    if report is not None and report.open:
        if all(report.tests.values()) and not judge.made_skip(report, named):
            return judge.failed(next(iter(report.open.values())), max(1, len(named.wanted)))
        report = _closed(report)
    grades = judge.judge_report(report, program, end, named)
    why = _claim(report, named) if report is not None else ""
    return judge.claimed(grades, why) if why else grades


def _claim(report: protocol.TestReport, named: Named) -> str:
    """Why what passed is partly the program's word; a test that is written and did not run may have gone by its doing."""
    ran = {name.partition("[")[0] for name in (*report.tests, *report.skipped, *report.left, *report.open)}
    whole = report.tests.get(judge.TOP_LEVEL) is not False
    lost = [name for name in named.every if whole and name not in ran]
    return report.claim or (f"{lost[0]} is among the tests and did not run" if lost else "")


def _closed(report: protocol.TestReport) -> protocol.TestReport:
    """Where a test failed for certain, those left open did not pass: nobody gains by leaving one open."""
    messages = {name: f"left open: {why}" for name, why in report.open.items()}
    return replace(
        report, tests=report.tests | dict.fromkeys(report.open, False), messages={**report.messages, **messages}
    )


def _all(outcome: Outcome, end: judge.Ending, named: Named) -> tuple[CaseGrade, ...]:
    names = named.wanted or ("",)
    return tuple(judge.ended(outcome, end, len(names), name) for name in names)
