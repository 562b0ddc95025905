"""From a completion to a Grade: which jobs to run, and how their Outcomes add up.

``Grader`` holds what a batch has in common. ``Work`` is one program on its
way: it gives a Job, is told the Outcomes, gives perhaps another Job, and at
last a tuple of CaseGrades. It does no I/O and waits for nothing, so that the
blocking and the asynchronous driver in ``api`` share it.

Function mode sends all calls of a problem in one process, and the problem's
time limit is for all of them together, as it is where a test file makes them.
When that process dies at call k, call k gets the verdict that its end says, and
the calls after it run in a new process. When its time was used up, after
``MAX_DEATHS`` ends, or after ``MAX_IDLE`` in a row without a call that returned
(the program does not even load, say), the calls left are not run: they get the
verdict of the last end, and say so.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job, Pair, Program
from proctor.engine.languages import Language, language
from proctor.engine.languages import program as make_program
from proctor.grading import judge
from proctor.grading.checker_names import from_spec, parse_checker
from proctor.grading.checkers import AnyChecker, Checker, tokens
from proctor.grading.extract import DEFAULT_RULE, Rule, assemble, call_target, extract_code
from proctor.grading.grades import CaseGrade, Grade, overall
from proctor.grading.interactive import interactive
from proctor.grading.pairing import Item
from proctor.grading.policy import AnyPolicy, Policy, as_policy, reward_of
from proctor.grading.problem import Problem, TestCase
from proctor.grading.sealed import Sealing, judge_sealed, unsealable
from proctor.grading.special import Special, special
from proctor.grading.values import Tolerance, parts, plain
from proctor.guest import protocol

__all__ = ["CaseGrade", "Grade", "Grader", "Work"]

SPARE, PADDING = 256 << 10, 8  # output may be this much longer than expected: blanks, more digits
_LEAST_S = 0.02  # of CPU or wall time, below which a process is not worth starting
MAX_SOURCE = 8 << 20  # characters; the longest program among 15,000 completions had 20 thousand
MAX_DEATHS, MAX_IDLE = 8, 3
MAX_RESULTS = 6 << 20  # bytes of expected values asked of one process, well below what may come back
_PLANS = 1024

# console.assert only prints, so a JavaScript test that fails would leave with status 0.
_JS_PRELUDE = """
;console.assert = (ok, ...said) => {
  if (!ok) { process.exitCode = 1; throw new Error("assertion failed: " + said.join(" ")); }
};
"""

Key = tuple[int, str, str | None, frozenset[tuple[str, str | bytes]]]
Steps = Generator[Job | Pair, Sequence[Outcome], "tuple[CaseGrade, ...] | Claim"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What all programs for one problem share.

    Attributes:
        row: the language.
        limits: of each case, or each call.
        checker: for printed text; a program that judges, or talks, where there is one.
        tolerance: for values.
        cases: the problem's, with expected values in plain types.
        rounds: function mode: index of the first call of each process.
        tests: unit tests: what the source names.
        sealing: unit tests: how they run apart from the program; None where they cannot.
        unsealed: why they cannot.
    """

    problem: Problem
    row: Language
    limits: Limits
    checker: AnyChecker | Special
    tolerance: Tolerance
    cases: tuple[TestCase, ...]
    rounds: tuple[int, ...] = (0,)
    tests: judge.Named = field(default_factory=judge.Named)
    sealing: Sealing | None = None
    unsealed: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """Grades that are the program's own claim, and why: the tests ran beside it."""

    cases: tuple[CaseGrade, ...]
    why: str


@dataclass(slots=True)
class Work:
    """One program on its way: ``job`` is what to run next, None when ``cases`` is there.

    Attributes:
        plan: of its problem.
        source: the program's text; None: the completion holds no code.
        key: equal for equal work.
        extra_files: relative path -> content that the completion brings along.
        claim: why ``cases`` are the program's own claim; empty where they are not.
    """

    plan: Plan
    source: str | None
    key: Key
    extra_files: Mapping[str, str | bytes] = field(default_factory=dict)
    job: Job | Pair | None = None
    cases: tuple[CaseGrade, ...] | None = None
    claim: str = ""
    _steps: Steps | None = field(default=None, repr=False)

    def start(self, warm: bool) -> None:
        """Make the first job; InputError where the problem's own data cannot be sent."""
        if self.source is None:
            self.cases = ()
            return
        run = _MODES[self.plan.problem.mode]
        try:
            files = _files(self.plan.problem.extra_files) | _files(self.extra_files)
            self._steps = run(self.plan, self.source, files, warm)
            self.job = next(self._steps)
        except InputError as exc:
            if self._is_to_blame(run, warm):
                self.source, self.cases, self._steps = None, (), None
                return
            raise InputError(
                f"problem {self.plan.problem.id!r}: {exc}", where=self.plan.problem.source or None
            ) from exc

    def _is_to_blame(self, run: Callable[..., Steps], warm: bool) -> bool:
        """The completion's own files or text are what cannot be run: it is no program, and the batch goes on."""
        try:
            next(run(self.plan, "", _files(self.plan.problem.extra_files), warm))
        except InputError:
            return False
        return True

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Judge what the job gave; may take as long as a checker takes on megabytes."""
        assert self._steps is not None
        assert self.job is not None
        count = len(self.job.cases)
        if len(outcomes) != count:
            self.fail(f"the engine gave {len(outcomes)} outcomes for {count} cases")
            return
        try:
            self.job = self._steps.send(outcomes)
        except StopIteration as stop:
            self.job, found = None, stop.value
            self.cases = found.cases if isinstance(found, Claim) else found
            self.claim = found.why if isinstance(found, Claim) else ""

    def fail(self, error: str) -> None:
        """The engine itself failed: nothing is known of any case."""
        self.job, self.cases = None, judge.failed(error, len(self.plan.cases))


class Grader:
    """What the completions of a batch have in common. May be used from many threads.

    Args:
        checker: judges printed text instead of the problem's own checker: a
            Checker, a spec such as ``numbers:abs=1e-6``, or a function
            ``(stdout, expected, stdin) -> bool`` of bytes.
        reward: a policy, its spec, or a function of a Grade.
        limits: fields of ``Limits`` that replace the problem's, or a whole Limits.
        warm: run Python programs in forks of a warm interpreter.
        extract: rule by which code is taken from a completion.
        claimed: ``count`` verdicts that are the program's own claim, or ``refuse`` them a reward (None).
    """

    def __init__(
        self,
        *,
        checker: AnyChecker | str | None = None,
        reward: AnyPolicy | str = "share",
        limits: Limits | Mapping[str, Any] | None = None,
        warm: bool = True,
        extract: str | Rule = DEFAULT_RULE,
        claimed: str = "count",
    ) -> None:
        if claimed not in ("count", "refuse"):
            raise InputError(f"{claimed!r} is neither count nor refuse", field="claimed")
        self.claimed = claimed
        self.checker = parse_checker(checker) if isinstance(checker, str) else checker
        if self.checker is not None and not callable(self.checker):
            raise InputError(f"{checker!r} is neither a checker's name nor a function", field="checker")
        self.policy: Policy = as_policy(reward)
        self.limits = limits
        self.warm, self.extract = warm, extract
        extract_code("", rule=extract) if isinstance(extract, str) else None  # an unknown rule fails now
        if isinstance(limits, Mapping):
            Limits().with_(**limits)
        self._plans: OrderedDict[tuple[int, str], Plan] = OrderedDict()
        self._guard = threading.Lock()

    def plan(self, problem: Problem, name: str | None = None) -> Plan:
        """What all programs for a problem in a language (None: the problem's) share, made once.

        Raises:
            InputError: the problem cannot be graded here: its language has no
                tools, a file of its checker program is missing, or a value is not plain data.
        """
        key = id(problem), name or problem.language  # a kept Plan keeps its Problem, so the id stays its own
        with self._guard:
            if plan := self._plans.get(key):
                self._plans.move_to_end(key)
                return plan
        try:
            plan = self._make_plan(problem, name or problem.language)
        except InputError as exc:
            raise InputError(f"problem {problem.id!r}: {exc}", where=problem.source or None) from exc
        with self._guard:
            self._plans[key] = plan
            while len(self._plans) > _PLANS:
                self._plans.popitem(last=False)
        return plan

    def work(self, item: Item) -> Work:
        """The work that a completion is; its job is not made yet."""
        plan, problem = self.plan(item.problem, item.language), item.problem
        code = extract_code(item.text, plan.row.name, self.extract, prompt=problem.prompt)
        source = None if code is None else assemble(problem, code)
        if source is not None and len(source) > MAX_SOURCE:
            source = None  # no program is that long, and it is the completion's own doing
        key = id(problem), plan.row.name, source, frozenset(item.extra_files.items())
        return Work(plan, source, key, item.extra_files)

    def grade(self, work: Work, index: int) -> Grade:
        """The Grade of work that is done; InputError where the reward policy fails."""
        assert work.cases is not None
        plan, source = work.plan, work.source
        verdict = Verdict.NO_CODE if source is None else overall(work.cases)
        broken = next((c.detail for c in work.cases if not c.verdict.is_score), None)
        grade = Grade(
            problem_id=plan.problem.id,
            index=index,
            verdict=verdict,
            cases=work.cases,
            program_sha256=None if source is None else hashlib.sha256(_bytes(source)).hexdigest(),
            claimed=bool(work.claim),
            claim=work.claim,
            error=broken,
            limits=plan.limits,
        )
        if grade.claimed and self.claimed == "refuse":
            return grade
        return replace(grade, reward=reward_of(self.policy, grade))

    def _make_plan(self, problem: Problem, name: str) -> Plan:
        spec, row = problem.checker, language(name)
        if problem.mode == "function" and row.name != "python":
            raise InputError(f"functions in {row.name} cannot be called, only those in python", field="language")
        if problem.mode == "unit_tests" and row is not language(problem.language):
            raise InputError(f"{row.name!r} is not {problem.language!r}, which its tests are in", field="language")
        limits = Limits(cpu_s=problem.time_limit_s, memory_mib=problem.memory_limit_mib)
        if isinstance(self.limits, Limits):
            limits = self.limits
        elif self.limits:
            limits = limits.with_(**self.limits)
        checker: AnyChecker | Special = tokens()
        cases = problem.cases
        if problem.interactor is not None:
            if self.checker is not None:
                raise InputError("an interactor judges this problem; leave out the checker", field="checker")
            checker = special(problem.interactor, cases, "interactor")
        elif problem.mode == "stdio" and self.checker is not None:
            checker = self.checker
            cases = tuple(replace(case, abs=None, rel=None) for case in cases)  # they are of the problem's own
        elif problem.mode == "stdio":
            checker = special(spec.program, cases) if spec.program is not None else from_spec(spec)
        elif spec.program is not None:
            raise InputError(f"a checker program judges printed text, not mode {problem.mode}", field="checker.kind")
        tolerance = Tolerance(spec.abs or 0.0, spec.rel or 0.0, spec.only_if_expected_is_float)
        plan = Plan(problem, row, limits, checker, tolerance, cases)
        if problem.mode == "function":
            cases = tuple(replace(c, expected=plain(c.expected, "expected")) for c in problem.cases)
            return replace(plan, cases=cases, rounds=_rounds(cases))
        if problem.mode == "unit_tests" and row.name == "python":
            return replace(plan, cases=(), tests=judge.named_tests(problem.test_code or ""), **_sealing(problem))
        return replace(plan, cases=()) if problem.mode == "unit_tests" else plan


def _rounds(cases: Sequence[TestCase]) -> tuple[int, ...]:
    """First call of each process, so that no process has to send back more than a process may."""
    starts, size = [0], 0
    for index, case in enumerate(cases):
        size += len(protocol.encode_value(case.expected))
        if size > MAX_RESULTS and index > starts[-1]:
            starts.append(index)
            size = len(protocol.encode_value(case.expected))
    return tuple(starts)


# ---------------------------------------------------------------- the three modes


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _files(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {name: data if isinstance(data, bytes) else _bytes(data) for name, data in files.items()}


def _module(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> tuple[Program, str]:
    """A Python program that a harness loads as a module, and the name of its file."""
    name = plan.problem.module
    return Program(files | {name: _bytes(source)}, ("python3", name), warm=warm), name


def _stdio(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    program = make_program(source, plan.row.name, warm=warm, files=files)
    outcomes = yield Job(
        program, tuple(Case(stdin=case.stdin, keep=_longest(plan, case)) for case in plan.cases), plan.limits
    )
    if isinstance(plan.checker, Special):
        return (yield from plan.checker.judged(outcomes, plan.cases, warm))
    checker, pairs = plan.checker, zip(outcomes, plan.cases, strict=True)
    return tuple(judge.judge_stdio(outcome, case, checker, _longest(plan, case)) for outcome, case in pairs)


def _longest(plan: Plan, case: TestCase) -> int | None:
    """Bytes of output beyond which none is right, or none can be judged: the trainer's memory is no program's to fill.

    None where the checker is a function, which may accept anything.
    """
    if isinstance(plan.checker, Special):
        return plan.checker.room(case)
    if not isinstance(plan.checker, Checker):
        return None
    return SPARE + PADDING * len(case.expected)


def _left(plan: Plan, outcomes: Sequence[Outcome]) -> Limits | None:
    """What earlier processes have left of the problem's time; None: nothing."""
    cpu = plan.limits.cpu_s - sum(outcome.cpu_s for outcome in outcomes)
    wall = plan.limits.wall - sum(outcome.wall_s for outcome in outcomes)
    return plan.limits.with_(cpu_s=cpu, wall_s=wall) if min(cpu, wall) >= _LEAST_S else None


def _function(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    program, name = _module(plan, source, files, warm)
    cases, total = plan.cases, len(plan.cases)
    targets = {case.entry_point: call_target(plan.problem, case, source) for case in cases}
    calls = [protocol.Call(targets[case.entry_point], case.args, case.kwargs) for case in cases]
    stops = (*plan.rounds[1:], total)
    grades: list[CaseGrade] = []
    deaths = idle = 0
    spent: list[Outcome] = []
    while len(grades) < total:
        first = len(grades)
        last = next(stop for stop in stops if stop > first)
        request = protocol.call_request(source_file=name, module=_module_name(name), calls=calls[first:last])
        limits = _left(plan, spent)
        if limits is None:
            detail = "not run: the calls before it had used up the time"
            grades += [CaseGrade(verdict=Verdict.TIME_LIMIT, detail=detail)] * (total - first)
            break
        (outcome,) = yield Job(program, (Case(request=request),), limits)
        spent.append(outcome)
        nodes = [4 * parts(case.expected) + 1000 for case in cases[first:last]]
        results = protocol.parse_call_results(outcome.result, nodes=nodes)[: last - first]
        died = len(results) < last - first
        end = judge.ending(outcome)
        if end and not end.verdict.is_score:
            return (*grades, *judge.failed(end.detail, total - first))
        kept, shared = judge.trimmed(outcome), len(results) + died
        for result, case in zip(results, cases[first:last], strict=False):
            grades.append(judge.judge_call(result, case, plan.tolerance, kept, shared))
        if not died:
            if end and end.verdict is Verdict.TIME_LIMIT:
                grades[-1] = judge.ended(outcome, end, shared)  # its last call came home too late
            continue
        deaths, idle = deaths + 1, 0 if results else idle + 1
        end = end or judge.Ending(Verdict.RUNTIME_ERROR, "the program left before its call had returned")
        grades.append(judge.ended(outcome, end, shared))
        if deaths >= MAX_DEATHS or idle >= MAX_IDLE or end.verdict is Verdict.TIME_LIMIT:
            rest = replace(end, detail=f"not run, the program had ended early {deaths} times: {end.detail}")
            grades += [CaseGrade(verdict=rest.verdict, detail=rest.detail)] * (total - len(grades))
    return tuple(grades)


def _sealing(problem: Problem) -> dict[str, Any]:
    """How the tests of a Python problem are sealed, or why they cannot be."""
    module = _module_name(problem.module)
    tests = problem.test_code or ""
    if why := unsealable(tests, module):
        return {"unsealed": why}
    name = _module_name(problem.test_module or "tests.py")
    return {"sealing": Sealing(module, name, tests, problem.preamble, problem.appended)}


def _unit_tests(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    problem, tests = plan.problem, plan.problem.test_code or ""
    if plan.row.name != "python":
        prelude = _JS_PRELUDE if plan.row.name == "javascript" else "\n"
        program = make_program(source + prelude + tests, plan.row.name, warm=warm, files=files)
        (outcome,) = yield Job(program, (Case(),), plan.limits)
        return Claim((judge.judge_exit(outcome),), f"tests in {plan.row.name} run in the program's process")
    program, name = _module(plan, source, files, warm)
    nonce, why = secrets.token_hex(16), plan.unsealed
    if plan.sealing is not None:
        outcome, asked = yield plan.sealing.pair(program, name, plan.limits, nonce, _files(problem.extra_files))
        refusal = protocol.parse_refusal(asked.result)
        if refusal is None:
            return judge_sealed(outcome, asked, nonce, plan.tests)
        why = refusal
    request = protocol.test_request(
        source_file=name,
        module=_module_name(name),
        tests=tests,
        test_module=_module_name(problem.test_module or "tests.py"),
        nonce=nonce,
        appended=problem.appended,
    )
    (outcome,) = yield Job(program, (Case(request=request),), plan.limits)
    return Claim(judge.judge_tests(outcome, nonce, plan.tests), why)


def _module_name(file: str) -> str:
    return ".".join(PurePosixPath(file).with_suffix("").parts)


def _interactive(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    assert isinstance(plan.checker, Special)
    return (yield from interactive(plan.checker, plan.row, plan.limits, plan.cases, source, files, warm))


_MODES: dict[str, Callable[..., Steps]] = {
    "stdio": _stdio,
    "function": _function,
    "unit_tests": _unit_tests,
    "interactive": _interactive,
}
