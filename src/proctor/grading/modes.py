"""What is run for a program, by its problem's mode: it prints, its functions return, or unit tests use it.

Function mode sends all calls of a problem in one process, and the problem's
time limit is for all of them together, as it is where a test file makes them.
When that process dies at call k, call k gets the verdict that its end says, and
the calls after it run in a new process. When its time was used up, after
``MAX_DEATHS`` ends, or after ``MAX_IDLE`` in a row without a call that returned
(the program does not even load, say), the calls left are not run: they get the
verdict of the last end, and say so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job, Pair, Program
from proctor.engine.languages import program as make_program
from proctor.grading import judge
from proctor.grading.checkers import Checker
from proctor.grading.extract import call_target
from proctor.grading.grades import CaseGrade
from proctor.grading.interactive import interactive
from proctor.grading.plan import Plan
from proctor.grading.problem import Problem, TestCase
from proctor.grading.prompts import asked_of
from proctor.grading.sealable import unsealable
from proctor.grading.sealed import Sealing, judge_sealed
from proctor.grading.special import Special
from proctor.grading.values import parts
from proctor.guest import protocol

SPARE, PADDING = 256 << 10, 8  # output may be this much longer than expected: blanks, more digits
_LEAST_S = 0.02  # of CPU or wall time, below which a process is not worth starting
MAX_DEATHS, MAX_IDLE = 8, 3
MAX_RESULTS = 6 << 20  # bytes of expected values asked of one process, well below what may come back

# console.assert only prints, so a JavaScript test that fails would leave with status 0.
_JS_PRELUDE = """
;console.assert = (ok, ...said) => {
  if (!ok) { process.exitCode = 1; throw new Error("assertion failed: " + said.join(" ")); }
};
"""

Steps = Generator[Job | Pair, Sequence[Outcome], tuple[CaseGrade, ...]]


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def as_files(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {name: data if isinstance(data, bytes) else as_bytes(data) for name, data in files.items()}


def as_module(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> tuple[Program, str]:
    """A Python program that a harness loads as a module, and the name of its file."""
    name = plan.problem.module
    return Program(files | {name: as_bytes(source)}, ("python3", name), warm=warm), name


def stdio(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    program = make_program(source, plan.row.name, warm=warm, files=files, memory_mib=plan.limits.memory_mib)
    outcomes = yield Job(
        program, tuple(Case(stdin=case.stdin, keep=_longest(plan, case)) for case in plan.cases), plan.limits
    )
    if isinstance(plan.checker, Special):
        return (yield from plan.checker.judged(outcomes, plan.cases, warm))
    checker, pairs = plan.checker, zip(outcomes, plan.cases, strict=True)
    return tuple(judge.judge_stdio(outcome, case, checker, _longest(plan, case)) for outcome, case in pairs)


def talk(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    """The program and an interactor, case by case."""
    assert isinstance(plan.checker, Special)
    return (yield from interactive(plan.checker, plan.row, plan.limits, plan.cases, source, files, warm))


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
    wall = plan.limits.wall - sum(outcome.wall_s - outcome.waited_s for outcome in outcomes)
    return plan.limits.with_(cpu_s=cpu, wall_s=wall) if min(cpu, wall) >= _LEAST_S else None


def function(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    """The calls that count, and then those that are held out, with time and processes of their own."""
    count = len(plan.cases) - plan.held_out
    grades = yield from _calls(replace(plan, cases=plan.cases[:count]), source, files, warm)
    if plan.held_out:
        held_out = plan.cases[count:]
        more = yield from _calls(replace(plan, cases=held_out, rounds=rounds_of(held_out)), source, files, warm)
        grades = *grades, *more
    return grades


def _calls(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    program, name = as_module(plan, source, files, warm)
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
        request = protocol.call_request(source_file=name, module=module_name(name), calls=calls[first:last])
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


def module_name(file: str) -> str:
    return ".".join(PurePosixPath(file).with_suffix("").parts)


def rounds_of(cases: Sequence[TestCase]) -> tuple[int, ...]:
    """First call of each process, so that no process has to send back more than a process may."""
    starts, size = [0], 0
    for index, case in enumerate(cases):
        size += len(protocol.encode_value(case.expected))
        if size > MAX_RESULTS and index > starts[-1]:
            starts.append(index)
            size = len(protocol.encode_value(case.expected))
    return tuple(starts)


def sealing_of(problem: Problem) -> dict[str, Any]:
    """How the tests of a Python problem are sealed, or why they cannot be."""
    module, tests = module_name(problem.module), problem.test_code or ""
    if why := unsealable(tests, module, tuple(problem.extra_files)):
        return {"unsealed": why}
    name = module_name(problem.test_module or "tests.py")
    asked = asked_of(problem)
    # What the prompt defines whole is the problem's, also where a completion brings it again.
    given = "\n".join(filter(None, (problem.preamble, asked.given)))
    return {"sealing": Sealing(module, name, tests, given, problem.appended, asked.names, asked.classes)}


def unit_tests(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    """Sealed where that can be; else beside the program, whose claim the grades are then."""
    grades = yield from _unit_tests(plan, source, files, warm)
    return judge.failed(plan.tests.fault, len(grades)) if plan.tests.fault else grades


def _unit_tests(plan: Plan, source: str, files: dict[str, bytes], warm: bool) -> Steps:
    problem, tests = plan.problem, plan.problem.test_code or ""
    if plan.row.name != "python":
        prelude = _JS_PRELUDE if plan.row.name == "javascript" else "\n"
        # The tests' class is Main, and a program that brings a main of its own is not run instead.
        whole, memory = source + prelude + tests, plan.limits.memory_mib
        program = make_program(whole, plan.row.name, warm=warm, files=files, own_class=False, memory_mib=memory)
        (outcome,) = yield Job(program, (Case(),), plan.limits)
        return judge.claimed((judge.judge_exit(outcome),), f"tests in {plan.row.name} run in the program's process")
    program, name = as_module(plan, source, files, warm)
    nonce, why = secrets.token_hex(16), plan.unsealed
    if plan.sealing is not None:
        outcome, asked = yield plan.sealing.pair(program, name, plan.limits, nonce, as_files(problem.extra_files))
        refusal = protocol.parse_refusal(asked.result)
        if refusal is None:
            return judge_sealed(outcome, asked, nonce, plan.tests)
        why = refusal
    request = protocol.test_request(
        source_file=name,
        module=module_name(name),
        tests=tests,
        test_module=module_name(problem.test_module or "tests.py"),
        nonce=nonce,
        appended=problem.appended,
    )
    (outcome,) = yield Job(program, (Case(request=request),), plan.limits)
    return judge.claimed(judge.judge_tests(outcome, nonce, plan.tests), why)


MODES: dict[str, Callable[..., Steps]] = {
    "stdio": stdio,
    "function": function,
    "unit_tests": unit_tests,
    "interactive": talk,
}
