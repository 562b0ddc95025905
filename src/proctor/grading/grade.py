"""From a completion to a Grade: which jobs to run, and how their Outcomes add up.

``Grader`` holds what a batch has in common. ``Work`` is one program on its
way: it gives a Job, is told the Outcomes, gives perhaps another Job, and at
last a tuple of CaseGrades. It does no I/O and waits for nothing, so that the
blocking and the asynchronous driver in ``api`` share it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Job, Pair
from proctor.engine.languages import language
from proctor.grading import judge
from proctor.grading.asked import Asked, asked_of
from proctor.grading.audit import signs
from proctor.grading.checker_names import from_spec, parse_checker
from proctor.grading.checkers import AnyChecker, tokens
from proctor.grading.extract import DEFAULT_RULE, Rule, assemble, extract_code
from proctor.grading.grades import CaseGrade, Grade, overall
from proctor.grading.identity import Content, content_of, program_digest
from proctor.grading.modes import (
    MODES,
    Steps,
    as_bytes,
    as_files,
    function,
    rounds_of,
    sealing_of,
)
from proctor.grading.named import named_tests
from proctor.grading.pairing import Item
from proctor.grading.plan import Plan
from proctor.grading.policy import AnyPolicy, Policy, as_policy, reward_of
from proctor.grading.problem import Problem
from proctor.grading.provenance import Provenance
from proctor.grading.repeat import Runs
from proctor.grading.special import Special, special
from proctor.grading.values import Tolerance, plain

__all__ = ["CaseGrade", "Grade", "Grader", "Work"]

MAX_SOURCE = 8 << 20  # characters; the longest program among 15,000 completions had 20 thousand
MAX_REPEAT = 1000
_PLANS = 1024

CLAIMED = ("count", "refuse")
Key = tuple[int, str, str | None, frozenset[tuple[str, str | bytes]]]


@dataclass(slots=True)
class Work:
    """One program on its way: ``job`` is what to run next, None when ``cases`` is there.

    Attributes:
        plan: of its problem.
        source: the program's text; None: the completion holds no code.
        key: equal for equal work.
        extra_files: relative path -> content that the completion brings along.
        repeat: runs in all; the first one counts.
        deterministic: all runs gave the same; None: it ran once, or this host failed.
        cached: the cases were known before, and nothing ran.
        provenance: of the cases, once they are there.
    """

    plan: Plan
    source: str | None
    key: Key
    extra_files: Mapping[str, str | bytes] = field(default_factory=dict)
    job: Job | Pair | None = None
    cases: tuple[CaseGrade, ...] | None = None
    repeat: int = 1
    deterministic: bool | None = None
    cached: bool = False
    provenance: Provenance | None = None
    _steps: Steps | None = field(default=None, repr=False)
    _again: Callable[[], Steps] | None = field(default=None, repr=False)
    _runs: Runs | None = field(default=None, repr=False)

    def start(self, warm: bool) -> None:
        """Make the first job; InputError where the problem's own data cannot be sent."""
        if self.source is None:
            self.cases = ()
            return
        run = MODES[self.plan.problem.mode]
        try:
            files = as_files(self.plan.problem.extra_files) | as_files(self.extra_files)
            self._again = partial(run, self.plan, self.source, files, warm)
            self._runs = Runs(self.repeat, results=run is function)
            self._steps = self._again()
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
            next(run(self.plan, "", as_files(self.plan.problem.extra_files), warm))
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
        assert self._runs is not None
        self._runs.saw(outcomes)
        try:
            self.job = self._steps.send(outcomes)
        except StopIteration as stop:
            if self._runs.ended(stop.value) and self._again is not None:
                self._steps = self._again()
                self.job = next(self._steps)
            else:
                self.job, self.cases, self.deterministic = None, self._runs.first, self._runs.same

    def fail(self, error: str) -> None:
        """The engine itself failed: nothing is known of any case, but for those of an earlier run."""
        first = self._runs.first if self._runs is not None else None
        self.job, self.deterministic = None, None
        self.cases = first if first is not None else judge.failed(error, len(self.plan.cases))


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
        repeat: how often each program runs.
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
        repeat: int = 1,
        claimed: str = "count",
    ) -> None:
        if claimed not in CLAIMED:
            raise InputError(f"{claimed!r} is not one of {', '.join(CLAIMED)}", field="claimed")
        self.claimed = claimed
        if isinstance(repeat, bool) or not isinstance(repeat, int) or not 1 <= repeat <= MAX_REPEAT:
            raise InputError(f"{repeat!r} is not a whole number from 1 to {MAX_REPEAT}", field="repeat")
        self.repeat = repeat
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
        self._contents: dict[tuple[int, str], tuple[Problem, Content]] = {}
        self._asked: dict[tuple[int, str], tuple[Problem, Asked]] = {}
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

    def plan_for(self, problem: Problem, name: str, where: str) -> Plan:
        """``plan`` for a completion at ``where``, which is to blame for a language that only it names.

        Raises:
            InputError: as ``plan``.
        """
        try:
            return self.plan(problem, name)
        except InputError as error:
            if name == problem.language:
                raise
            self.plan(problem)  # where that fails too, the problem is to blame
            told = error.__cause__.message if isinstance(error.__cause__, InputError) else error.message
            raise InputError(f"problem {problem.id!r}: {told}", where=where, field="language") from error

    def work(self, item: Item) -> Work:
        """The work that a completion is; its job is not made yet."""
        plan, problem = self.plan(item.problem, item.language), item.problem
        name = plan.row.name
        if (id(problem), name) not in self._asked:
            self._asked[id(problem), name] = problem, asked_of(problem, name)
        asked = self._asked[id(problem), name][1]
        code = extract_code(item.text, name, self.extract, prompt=problem.prompt, asked=asked)
        source = None if code is None else assemble(problem, code)
        if source is not None and len(source) > MAX_SOURCE:
            source = None  # no program is that long, and it is the completion's own doing
        key = id(problem), plan.row.name, source, frozenset(item.extra_files.items())
        return Work(plan, source, key, item.extra_files, repeat=self.repeat)

    def provenance(self, work: Work) -> Provenance:
        """What a program's grades depend on, as far as it is known without a place to run it."""
        plan = work.plan
        key = id(plan.problem), plan.row.name
        if key not in self._contents:
            self._contents[key] = plan.problem, content_of(plan)
        content = self._contents[key][1]
        program = None if work.source is None else program_digest(as_bytes(work.source), work.extra_files)
        return Provenance(
            program=program,
            cases=content.cases,
            checker=content.checker,
            language=plan.row.name,
            limits=plan.limits,
            warm=self.warm and plan.row.warm,
        )

    def grade(self, work: Work, index: int) -> Grade:
        """The Grade of work that is done; InputError where the reward policy fails."""
        assert work.cases is not None
        plan, source = work.plan, work.source
        count = max(0, len(work.cases) - plan.held_out)
        cases, held_out = work.cases[:count], work.cases[count:]
        verdict = Verdict.NO_CODE if source is None else overall(cases)
        broken = next((c.detail for c in cases if not c.verdict.is_score), None)
        claim = next((c.claim for c in cases if c.claim), "")
        grade = Grade(
            problem_id=plan.problem.id,
            index=index,
            verdict=verdict,
            cases=cases,
            program_sha256=None if source is None else hashlib.sha256(as_bytes(source)).hexdigest(),
            claimed=bool(claim),
            claim=claim,
            error=broken,
            limits=plan.limits,
            deterministic=work.deterministic,
            provenance=work.provenance,
        )
        if self.policy.audited and source is not None:
            grade = replace(grade, signals=signs(grade, source, plan.problem, plan.row.name))
        # A policy is shown neither: held-out cases do not count, and no reward may hang on what a cache holds.
        reward = None if claim and self.claimed == "refuse" else reward_of(self.policy, grade)
        return replace(grade, reward=reward, held_out=held_out, cached=work.cached)

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
        cases = tuple(sorted(cases, key=lambda case: case.held_out))  # what counts runs first
        held_out = sum(case.held_out for case in cases)
        plan = Plan(problem, row, limits, checker, tolerance, cases, held_out=held_out)
        if problem.mode == "function":
            cases = tuple(replace(c, expected=plain(c.expected, "expected")) for c in cases)
            return replace(plan, cases=cases, rounds=rounds_of(cases[: len(cases) - held_out]))
        if problem.mode == "unit_tests" and row.name == "python":
            tests = problem.test_code or ""
            return replace(plan, cases=(), held_out=0, tests=named_tests(tests), **sealing_of(problem))
        return replace(plan, cases=(), held_out=0) if problem.mode == "unit_tests" else plan
