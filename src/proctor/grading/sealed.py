"""Unit tests in one jail, the program in another: the two halves, and what their run says.

The program's process holds no test, no expected value and no frame of a test.
It answers calls; what the tests make of the answers is decided where it has no
say. So the verdict is no claim of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job, Pair, Program
from proctor.grading import judge
from proctor.grading.grades import CaseGrade
from proctor.grading.named import Named
from proctor.guest import protocol


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
