"""What a problem is, once it was read: plain frozen data, whatever file it came from.

Expected values live here, in the caller's process, and are never sent to
where programs run; only to a checker program, in a jail of its own.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.grading import pysource

Mode = Literal["stdio", "function", "unit_tests", "interactive"]
Compare = Literal["equal", "truth"]
CheckerKind = Literal["exact", "lines", "tokens", "numbers", "unordered_lines", "unordered_tokens", "value", "program"]

MODES: tuple[Mode, ...] = ("stdio", "function", "unit_tests", "interactive")
Convention = Literal["testlib", "kattis", "codeforces"]
CONVENTIONS: tuple[Convention, ...] = ("testlib", "kattis", "codeforces")
CHECKER_KINDS: tuple[CheckerKind, ...] = (
    "exact",
    "lines",
    "tokens",
    "numbers",
    "unordered_lines",
    "unordered_tokens",
    "value",
    "program",
)
_TESTLIB = re.compile(r'^\s*#\s*include\s*"testlib\.h"', re.MULTILINE)
DEFAULT_TIME_LIMIT_S = 10.0
DEFAULT_MEMORY_LIMIT_MIB = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerProgram:
    """A program that judges another: a checker (special judge), or an interactor.

    Attributes:
        source: its text, in ``language``.
        protocol: how it is called and what its exit status means: ``testlib``
            (the default), ``kattis`` or ``codeforces``; words after the name
            and a colon are dropped. See ``proctor.grading.protocols``.
        flags: arguments after those of the protocol.
        extra_files: name -> content of files that lie beside it.
        needs: files that it includes. What ``extra_files`` lacks of them is
            asked for before anything is graded.
        limits: of each of its runs; None: the default ones. The files that it
            is given come on top of its memory and workspace.
        points: what it calls a full score, where it gives points.
    """

    source: str
    language: str = "python"
    protocol: str | None = None
    flags: tuple[str, ...] = ()
    extra_files: Mapping[str, str | bytes] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    limits: Limits | None = None
    points: float = 1.0

    def __post_init__(self) -> None:
        name = (self.protocol or CONVENTIONS[0]).partition(":")[0].strip().lower()
        if name not in CONVENTIONS:
            raise InputError(f"{name!r} is not one of {', '.join(CONVENTIONS)}", field="protocol")
        object.__setattr__(self, "protocol", name)
        check_number(self.points, "points", 1e-9, 1e9)

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of ``needs``, and of the headers known to be in no system, that ``extra_files`` lacks."""
        there = {name.rpartition("/")[2] for name in self.extra_files}
        needs = dict.fromkeys(self.needs)
        if self.language in ("cpp", "c") and _TESTLIB.search(self.source) and not any("testlib.h" in n for n in needs):
            needs["testlib.h"] = None
        return tuple(name for name in needs if name.rpartition("/")[2] not in there)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerSpec:
    """How an answer is compared with the expected one.

    Attributes:
        kind: ``exact``, ``lines``, ``tokens``, ``numbers``,
            ``unordered_lines``, ``unordered_tokens`` for printed text; ``value`` for function
            results; ``program`` for a special judge.
        abs, rel: tolerances of numbers; None: none. A case's own win.
        case_sensitive: False: letters compare without their case.
        only_if_expected_is_float: compare for equality first, and use the
            tolerance only where the expected value is a float or a list or
            tuple of floats (evalplus' rule).
        program: the special judge of kind ``program``.
    """

    kind: CheckerKind = "tokens"
    abs: float | None = None
    rel: float | None = None
    case_sensitive: bool = True
    only_if_expected_is_float: bool = False
    program: CheckerProgram | None = None

    def __post_init__(self) -> None:
        if self.kind not in CHECKER_KINDS:
            raise InputError(f"{self.kind!r} is not one of {', '.join(CHECKER_KINDS)}", field="checker.kind")
        for name, value in (("abs", self.abs), ("rel", self.rel)):
            check_tolerance(value, f"checker.{name}")
        if (self.kind == "program") != (self.program is not None):
            raise InputError("kind 'program' and a program's source go together", field="checker.program")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """One input with the answer that is expected for it.

    Attributes:
        stdin: for mode ``stdio``: the bytes on standard input, as they are; for
            ``interactive``: what the interactor is given, and the program is not.
        args, kwargs: for mode ``function``: the call's arguments.
        expected: bytes for ``stdio`` and ``interactive``; any plain value for ``function``.
        entry_point: the function to call, where it is not the problem's.
        abs, rel: tolerances that replace the checker's; None: the checker's.
        exact_types: a list is not a tuple. False where the format has only
            JSON for results, which has no tuples (APPS, LiveCodeBench).
        compare: ``equal``: the result equals ``expected``; ``truth``: its
            truth value is ``expected`` (a bool), as in ``assert f(x)``.
        held_out: it runs and is reported, and counts in no verdict or reward.
    """

    __test__: ClassVar[bool] = False

    stdin: bytes = b""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = b""
    entry_point: str | None = None
    abs: float | None = None
    rel: float | None = None
    exact_types: bool = False
    compare: Compare = "equal"
    held_out: bool = False


CaseSpec = TestCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One task: how a program is run, and what is expected of it.

    Attributes:
        id: unique within a file.
        mode: ``stdio`` (text in, text out), ``function`` (calls by data) or
            ``unit_tests`` (test source run with the program).
        language: canonical name of the language of solutions.
        cases: at least one; none for ``unit_tests``.
        entry_point: ``f``, ``Solution.method`` or ``mod.f``.
        solution_class: a method of this class serves as ``entry_point`` too,
            where a program defines no such function (LeetCode style).
        test_code: source of the tests, for ``unit_tests``.
        checker: how answers compare.
        interactor: for ``interactive``: the program that talks to the solution.
        preamble: source put before every solution; the problem's own.
        prompt: source that a completion which is only a function's body
            continues; None where there is none.
        time_limit_s: CPU seconds a case. memory_limit_mib: MiB a case.
        module: file name of the solution.
        test_module: file name of the tests, where they are a module of
            their own.
        appended: the tests run in the solution's own namespace.
        extra_files: relative path -> content beside the solution.
        reference_solution: a right answer, if the file has one.
        reference_files: relative path -> content that the reference needs.
        impossible: no right answer exists (a canary): whatever is rewarded
            here was not earned.
        source: file and line where it was read.
        notes: warnings about the data, such as duplicate cases.
        metadata: whatever else the row holds, untouched.
    """

    id: str
    mode: Mode
    language: str = "python"
    cases: tuple[TestCase, ...] = ()
    entry_point: str | None = None
    solution_class: str | None = None
    test_code: str | None = None
    checker: CheckerSpec = field(default_factory=CheckerSpec)
    interactor: CheckerProgram | None = None
    preamble: str = ""
    prompt: str | None = None
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    memory_limit_mib: int = DEFAULT_MEMORY_LIMIT_MIB
    module: str = "solution.py"
    test_module: str | None = None
    appended: bool = True
    extra_files: Mapping[str, str | bytes] = field(default_factory=dict)
    reference_solution: str | None = None
    reference_files: Mapping[str, str | bytes] = field(default_factory=dict)
    impossible: bool = False
    source: str = ""
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InputError(f"{self.id!r} is not a non-empty string", field="id")
        if self.mode not in MODES:
            raise InputError(f"{self.mode!r} is not one of {', '.join(MODES)}", field="mode")
        check_number(self.time_limit_s, "time_limit_s", 0.01, 86_400)
        check_number(self.memory_limit_mib, "memory_limit_mib", 16, 1 << 20)
        if self.language == "python" and not self.module.endswith(".py"):
            raise InputError(
                f"{self.module!r} is not the name of a Python file; write {self.module}.py", field="module"
            )
        if (self.mode == "interactive") != (self.interactor is not None):
            raise InputError("mode interactive and an interactor go together", field="interactor")
        if self.mode == "unit_tests":
            if not self.test_code:
                raise InputError("mode unit_tests needs the tests' source", field="test_code")
            if self.language == "python":
                if wrong := pysource.broken(self.test_code):
                    raise InputError(f"it is not Python: {wrong}", field="test_code")
                if not pysource.holds_tests(self.test_code):
                    raise InputError("it runs no test: any program would pass", field="test_code")
            return
        if not self.cases:
            raise InputError(f"mode {self.mode} needs at least one case", field="cases")
        if all(case.held_out for case in self.cases):
            raise InputError("every case is held out, so nothing would count; leave one that is not", field="cases")
        for position, case in enumerate(self.cases):
            if self.mode == "function" and not (case.entry_point or self.entry_point):
                raise InputError("mode function needs the name of the function to call", field="entry_point")
            if self.mode == "function":
                name = case.entry_point or self.entry_point or ""
                if not all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split(".")):
                    raise InputError(f"{name!r} is no name of a function, such as f or Solution.f", field="entry_point")
                continue
            if not (isinstance(case.stdin, bytes) and isinstance(case.expected, bytes)):
                raise InputError(f"stdin and expected are bytes in mode {self.mode}", field=f"cases[{position}]")


def check_number(value: object, name: str, low: float, high: float) -> None:
    """Raise InputError unless value is a finite int or float (no bool) from low to high."""
    bad = isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high
    if bad:
        raise InputError(f"{value!r} is not a number from {low} to {high}", field=name)


def check_tolerance(value: object, name: str) -> None:
    """Raise InputError unless value is None or a finite number that is not negative."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InputError(f"{value!r} is not a finite number of at least 0", field=name)
