"""Turn Outcomes into CaseGrades. Nothing here runs anything of a program's.

How a process ended comes before what it wrote: an output that is right does
not save a program that crashed, met a limit or left with a status other
than 0.
"""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass, replace

from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.grading.checkers import AnyChecker, Checker, CheckerError, check, excerpt
from proctor.grading.grades import CaseGrade
from proctor.grading.named import Named
from proctor.grading.problem import TestCase
from proctor.grading.values import Tolerance, same_truth, same_value
from proctor.guest.protocol import CallResult, TestReport, parse_lacks, parse_test_report

KEPT = 64 << 10  # bytes of each stream that stay in a grade once it was judged
TOP_LEVEL = "module"  # the harness's name for what the test source does at its top level

_LIMITS = {
    EndedBy.CPU: (Verdict.TIME_LIMIT, "used more CPU time than allowed"),
    EndedBy.WALL: (Verdict.TIME_LIMIT, "took longer than allowed"),
    EndedBy.MEMORY: (Verdict.MEMORY_LIMIT, "used more memory than allowed"),
    EndedBy.OUTPUT: (Verdict.OUTPUT_LIMIT, "wrote more than allowed"),
    EndedBy.NOT_RUN: (Verdict.TIME_LIMIT, "not run: the program had already exceeded its time limit too often"),
    EndedBy.CANCELLED: (Verdict.INFRASTRUCTURE_ERROR, "cancelled"),
}
_ERROR_LINE = re.compile(rb"(?:Exception in thread .*|Uncaught )?[\w.]{0,80}(?:Error|Exception)\b")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended, where that alone decides."""

    verdict: Verdict
    detail: str


def ending(outcome: Outcome) -> Ending | None:
    """What the way it ended says about it; None: it left with status 0, so look at its answer."""
    if outcome.error is not None:
        return Ending(Verdict.INFRASTRUCTURE_ERROR, outcome.error)
    if outcome.compile_failed:
        return Ending(Verdict.COMPILE_ERROR, last_words(outcome) or "the compiler failed")
    if outcome.ended_by is not None:
        return Ending(*_LIMITS[outcome.ended_by])
    if outcome.signal is not None:
        return Ending(Verdict.RUNTIME_ERROR, f"ended by {signal_name(outcome.signal)}")
    if outcome.exit_code is None:
        return Ending(Verdict.INFRASTRUCTURE_ERROR, "the outcome tells neither status nor signal")
    if outcome.exit_code != 0:
        said = last_words(outcome)
        return Ending(Verdict.RUNTIME_ERROR, f"exit status {outcome.exit_code}" + (f": {said}" if said else ""))
    return None


def signal_name(number: int) -> str:
    """Such as ``SIGSEGV``; numbers without a name stay numbers."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(outcome: Outcome) -> str:
    """The last line of standard error, escaped; for a compiler the first that names an error."""
    text = outcome.stderr[-4096:]
    if outcome.compile_failed:
        text = next((row[:4096] for row in outcome.stderr[:65536].splitlines() if b"error" in row), text)
    last = _last_line(text)
    if b"rror" not in last:  # node, java and others say more after the error itself
        last = next((_last_line(row) for row in text.splitlines()[::-1] if _ERROR_LINE.match(row)), last)
    return excerpt(last.strip().replace(b"\xe2\x80\x98", b"'").replace(b"\xe2\x80\x99", b"'"), 160)  # compilers' quotes


def _last_line(text: bytes) -> bytes:
    """The end of the last line that is not empty, in one look however long the line is."""
    end = text.rstrip(b"\r\n")[-400:]
    return end[max(end.rfind(b"\n"), end.rfind(b"\r")) + 1 :]


def trimmed(outcome: Outcome) -> Outcome:
    """The Outcome as a grade keeps it: no result stream, and of a large output the start."""
    if len(outcome.stdout) > KEPT:
        outcome = replace(outcome, stdout=outcome.stdout[:KEPT], stdout_truncated=True)
    if len(outcome.stderr) > KEPT:
        outcome = replace(outcome, stderr=outcome.stderr[:KEPT], stderr_truncated=True)
    return replace(outcome, result=b"") if outcome.result else outcome


def ended(outcome: Outcome, end: Ending, shared: int = 1, name: str = "") -> CaseGrade:
    """The grade of a case that is decided by how its process ended."""
    return CaseGrade(verdict=end.verdict, detail=end.detail, name=name, outcome=trimmed(outcome), shared=shared)


def failed(error: str, count: int) -> tuple[CaseGrade, ...]:
    """Grades of cases about which nothing is known."""
    outcome = Outcome(error=error)
    return (CaseGrade(verdict=Verdict.INFRASTRUCTURE_ERROR, detail=error, outcome=outcome),) * max(count, 1)


def judge_stdio(outcome: Outcome, case: TestCase, checker: AnyChecker, most: int | None = None) -> CaseGrade:
    """One input: its process's end, then its output by the checker.

    ``most``: bytes of output beyond which none is right, and none was held on to.
    """
    if grade := without_checker(outcome, most):
        return grade
    if isinstance(checker, Checker) and (case.abs is not None or case.rel is not None):
        checker = checker.within(case.abs, case.rel)
    try:
        result = check(checker, outcome.stdout, case.expected, case.stdin)
    except CheckerError as exc:
        outcome = replace(outcome, error=str(exc))
        return ended(outcome, Ending(Verdict.INFRASTRUCTURE_ERROR, str(exc)))
    verdict = Verdict.ACCEPTED if result.ok else Verdict.WRONG_ANSWER
    return CaseGrade(verdict=verdict, detail=result.detail, outcome=trimmed(outcome))


def without_checker(outcome: Outcome, most: int | None = None) -> CaseGrade | None:
    """The grade of a case that no checker has to see; None: its output decides. ``most``: see ``judge_stdio``."""
    if end := ending(outcome):
        return ended(outcome, end)
    if outcome.stdout_truncated and most is not None and len(outcome.stdout) >= most:
        return ended(outcome, Ending(Verdict.WRONG_ANSWER, "wrote far more than a right answer has"))
    if outcome.stdout_truncated:
        # What was cut off might be wrong; a prefix must never pass.
        return ended(outcome, Ending(Verdict.OUTPUT_LIMIT, "wrote more than is kept to be judged"))
    return None


def judge_call(result: CallResult, case: TestCase, tolerance: Tolerance, outcome: Outcome, shared: int) -> CaseGrade:
    """One call that came back: what it raised, or its value against the expected one."""
    if result.error is not None:
        message = excerpt(f"{result.error}: {result.message}".encode("utf-8", "surrogatepass"), 200)
        return CaseGrade(verdict=Verdict.RUNTIME_ERROR, detail=message, outcome=outcome, shared=shared)
    if case.compare == "truth":
        found = same_truth(result.value, bool(case.expected))
    else:
        if case.abs is not None or case.rel is not None:
            tolerance = Tolerance(case.abs or 0.0, case.rel or 0.0)
        found = same_value(result.value, case.expected, tolerance=tolerance, exact_types=case.exact_types)
    verdict = Verdict.ACCEPTED if found.ok else Verdict.WRONG_ANSWER
    return CaseGrade(verdict=verdict, detail=found.detail, outcome=outcome, shared=shared)


def judge_tests(outcome: Outcome, nonce: str, named: Named) -> tuple[CaseGrade, ...]:
    """The named tests of one run; what was not reported did not pass.

    Args:
        outcome: of the harness's process.
        nonce: what the end of the report must repeat.
        named: tests that the source defines. One that the source itself skips
            is no case; one that a program makes skip failed.
    """
    end = ending(outcome)
    if end and not end.verdict.is_score:
        return (ended(outcome, end),)
    if lacks := parse_lacks(outcome.result):
        return failed(lacks, len(named.wanted))
    return judge_report(parse_test_report(outcome.result, nonce), outcome, end, named)


def judge_report(
    report: TestReport | None, outcome: Outcome, end: Ending | None, named: Named
) -> tuple[CaseGrade, ...]:
    """Each named test of a report; ``end``: how the reporting process ended, where that was not well."""
    if report is None:
        names = named.wanted or ("",)
        end = end or Ending(Verdict.WRONG_ANSWER, "the program left before its tests had ended")
        return tuple(ended(outcome, end, len(names), name) for name in names)
    messages = report.messages | dict.fromkeys(
        made_skip(report, named), "skipped, or expected to fail, for the program's sake"
    )
    tests = report.tests | dict.fromkeys(made_skip(report, named), False)
    if tests.get(TOP_LEVEL) is False and named.every:
        tests = dict.fromkeys(tests, False)  # as a runner has it, which then finds no tests at all
        messages = messages | {name: "the test file was not read to its end" for name in tests if name != TOP_LEVEL}
    if (len(tests) > 1 or named.every) and tests.get(TOP_LEVEL):
        del tests[TOP_LEVEL]  # that the source could be read is no test where it has tests with names
        if not tests and not named.wanted:
            return failed("the test file skipped all of its tests here", 1)
    if tests == {TOP_LEVEL: True} and named.idle:
        return failed("no test of the file ran, and its top level tests nothing", 1)
    expected = named.wanted
    if report.tests.get(TOP_LEVEL) is False:  # tests that come after the line that failed would have run
        ran = {name.partition("[")[0] for name in (*report.tests, *report.skipped, *report.left)}
        expected = tuple(name for name in named.every if name not in ran)
    missing = [name for name in expected if name not in tests]
    total = len(tests) + len(missing)
    kept = trimmed(outcome)
    grades = []
    for name, passed in tests.items():
        if passed and end is None:
            grades.append(CaseGrade(verdict=Verdict.ACCEPTED, name=name, outcome=kept, shared=total))
        elif passed and end is not None:
            grades.append(ended(outcome, end, total, name))
        else:
            detail = excerpt(messages.get(name, "").encode("utf-8", "surrogatepass"), 200)
            grades.append(CaseGrade(verdict=Verdict.WRONG_ANSWER, detail=detail, name=name, outcome=kept, shared=total))
    grades += [ended(outcome, Ending(Verdict.WRONG_ANSWER, "the test did not run"), total, name) for name in missing]
    return tuple(grades) or (ended(outcome, end or Ending(Verdict.WRONG_ANSWER, "no test ran")),)


def made_skip(report: TestReport, named: Named) -> list[str]:
    """Tests that were skipped, or failed as expected, although the source alone does not say so: they failed."""
    both = ((report.skipped, named.skipped), (report.left, named.leaves))
    return sorted(name for found, may in both for name in found if name.partition("[")[0] not in may)


def claimed(cases: tuple[CaseGrade, ...], why: str) -> tuple[CaseGrade, ...]:
    """Grades that are the program's own claim."""
    return tuple(replace(case, claim=why) for case in cases)


def judge_exit(outcome: Outcome) -> CaseGrade:
    """A test program in another language: status 0 passed; another status, or abort(), is a test that failed."""
    end = ending(outcome)
    if end is None:
        return CaseGrade(verdict=Verdict.ACCEPTED, outcome=trimmed(outcome))
    if end.verdict is Verdict.RUNTIME_ERROR and outcome.signal in (None, signals.SIGABRT):
        end = Ending(Verdict.WRONG_ANSWER, f"the tests failed: {end.detail}")
    return ended(outcome, end)
