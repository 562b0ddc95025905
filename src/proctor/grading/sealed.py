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
from dataclasses import dataclass, replace

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job, Pair, Program
from proctor.grading import judge, pysource
from proctor.grading.grades import CaseGrade
from proctor.guest import protocol

# What tests do with the program itself, not with its answers.
_LOOKS = {
    "inspect": "reads the program's source",
    "ast": "reads the program's source",
    "dis": "reads the program's code",
    "gc": "looks through the interpreter's objects",
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
# What belongs to one process, and the program's is another.
_PLACES = ("settrace", "setprofile", "environ", "putenv", "chdir", "seed", "assertWarns", "assertWarnsRegex", "warns",
           "deprecated_call",            "write_text", "write_bytes", "setrecursionlimit")  # fmt: skip


def unsealable(tests: str, module: str) -> str | None:
    """Why these tests must run beside the program; None: they can be sealed.

    Args:
        tests: Python source.
        module: the name by which they import the program.
    """
    tree = pysource.parse(tests)
    if tree is None:
        return "they cannot be read"
    for node in ast.walk(tree):
        if reason := _reason(node, module):
            return f"line {getattr(node, 'lineno', 0)} {reason}"
    return None


def _reason(node: ast.AST, module: str) -> str | None:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names] + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
        return next((_LOOKS[part] for name in names for part in name.split(".") if part in _LOOKS), None)
    if isinstance(node, ast.AsyncFunctionDef | ast.Await):
        return "runs coroutines"
    if isinstance(node, ast.Name) and node.id == "input" and isinstance(node.ctx, ast.Store):
        return "replaces the program's input"
    if isinstance(node, ast.Name | ast.arg):
        word = node.id if isinstance(node, ast.Name) else node.arg
        return _LOOKS.get(word) if word != "ast" else None
    if isinstance(node, ast.Attribute):
        if node.attr in _FUNCTIONS:
            return _LOOKS[node.attr]
        if node.attr in _CODE or node.attr in _PLACES:
            return f"uses {node.attr}"
        streams = node.attr == "stdin" and isinstance(node.value, ast.Name) and node.value.id == "sys"
        if streams and not isinstance(node.ctx, ast.Load):
            return "replaces the program's input"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
        return _opens(node, module)
    return None


def _opens(node: ast.Call, module: str) -> str | None:
    """Reads the program's own file, or writes one that the program may be meant to read."""
    said = [arg.value for arg in (*node.args, *(word.value for word in node.keywords)) if isinstance(arg, ast.Constant)]
    if said and isinstance(said[0], str) and said[0].endswith(f"{module}.py"):
        return "reads the program's source"
    if any(isinstance(word, str) and set(word) & set("wax+") and set(word) <= set("wax+rbt") for word in said[1:]):
        return "makes files for the program"
    return None


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


def judge_sealed(program: Outcome, tests: Outcome, nonce: str, named: judge.Named) -> tuple[CaseGrade, ...]:
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
        if all(report.tests.values()):
            return judge.failed(next(iter(report.open.values())), max(1, len(named.wanted)))
        report = _closed(report)
    grades = judge.judge_report(report, program, end, named)
    return judge.claimed(grades, report.claim) if report is not None and report.claim else grades


def _closed(report: protocol.TestReport) -> protocol.TestReport:
    """Where a test failed for certain, those left open did not pass: nobody gains by leaving one open."""
    messages = {name: f"left open: {why}" for name, why in report.open.items()}
    return replace(
        report, tests=report.tests | dict.fromkeys(report.open, False), messages={**report.messages, **messages}
    )


def _all(outcome: Outcome, end: judge.Ending, named: judge.Named) -> tuple[CaseGrade, ...]:
    names = named.wanted or ("",)
    return tuple(judge.ended(outcome, end, len(names), name) for name in names)
