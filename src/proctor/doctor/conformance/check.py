"""One thing that every level does alike: a small program, and how the outcomes of its cases are read.

A judge says in words what is not as it should be, and nothing where all is.
What a program prints is data: it is compared as bytes and shown escaped.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from proctor.core.limits import MIB, Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.doctor import trial
from proctor.doctor.probe import Probe, how_it_ended
from proctor.doctor.text import printable
from proctor.engine.job import Case, Job, Program

LIMITS = Limits(
    cpu_s=5.0,
    wall_s=30.0,
    memory_mib=128,
    processes=24,
    open_files=64,
    workspace_mib=8,
    workspace_inodes=256,
    output_bytes=4 * MIB,
)
SOURCE = "solution.py"
_WIDTH = 90  # of what a program printed, in a line about it

Judge = Callable[[Sequence[Outcome]], str]


class Runs(StrEnum):
    """How the outcomes of one program compare over its starts (warm, real interpreter) and uses (first, second)."""

    ALIKE = "alike"
    FREE = "free"  # clocks and the like are in them
    DIFFERENT = "different"  # no two have the same stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One row of the suite.

    Attributes:
        key: its name, the same for ever.
        group: of GROUPS.
        title: what is so, in words.
        judge: reads the outcomes of one run, one for each case.
        program: Python source.
        cases: its inputs.
        files: relative path -> content, beside the program.
        limits: bounds of each case.
        runs: how its runs compare.
        warm: False: a real interpreter alone, True: a warm one alone, None: both.
        lasting: its second use comes after all other checks, so that the slot's first job is held against its last.
        probe: the attack of ``proctor doctor`` that this is; program, cases and judge are then its.
    """

    key: str
    group: str
    title: str
    judge: Judge
    program: str = ""
    cases: tuple[Case, ...] = (Case(),)
    files: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = LIMITS
    runs: Runs = Runs.ALIKE
    warm: bool | None = None
    lasting: bool = False
    probe: Probe | None = None

    def job(self, known: dict[str, Any], warm: bool) -> Job:
        """What the engine is given; ``known`` is what a probe is told about the host."""
        if self.probe is not None:
            return trial.job(self.probe, known, warm)
        files = {**self.files, SOURCE: textwrap.dedent(self.program).encode()}
        return Job(Program(files, ("python3", SOURCE), warm=warm), self.cases, limits=self.limits, stop_after=None)

    @property
    def ways(self) -> tuple[tuple[str, bool], ...]:
        """The starts that it is run with: their names, and whether they are warm."""
        return tuple(way for way in trial.WAYS if self.warm in (None, way[1]))


def of_probe(key: str, group: str, limits: Limits | None = None) -> Check:
    """The check that is a protection's probe, with limits of its own where they are given."""
    (probe,) = (probe for probe in trial.PROBES if probe.key == key)
    probe = replace(probe, limits=limits or probe.limits)

    def judge(outcomes: Sequence[Outcome]) -> str:
        shown = probe.judge(outcomes)
        return "" if shown.holds else printable(shown.how, 200)

    return Check(key=key, group=group, title=probe.title, judge=judge, runs=Runs.FREE, probe=probe)


def words(*values: str, text: bytes = b"") -> tuple[Case, ...]:
    """A case for each value, which is the program's argument."""
    return tuple(Case(stdin=text, argv=("python3", SOURCE, value)) for value in values)


# ---------------------------------------------------------------- judges


def shows(
    *stdout: str | bytes, exit_code: int | Sequence[int] = 0, signals: Sequence[int] = (), stderr: str | None = ""
) -> Judge:
    """Each case ends by itself in its own way and prints exactly this.

    Args:
        stdout: of each case, or one for them all.
        exit_code: of each case, or one for them all.
        signals: the signal that ends each case, instead of an exit code.
        stderr: a pattern that is found in it; empty: it is, None: whatever it is.
    """

    def judge(outcomes: Sequence[Outcome]) -> str:
        for at, outcome in enumerate(outcomes):
            text = stdout[at if len(stdout) > 1 else 0]
            code = exit_code if isinstance(exit_code, int) else exit_code[at]
            wanted = (None, signals[at]) if signals else (code, None)
            which = f"case {at + 1}: " if len(outcomes) > 1 else ""
            if (
                outcome.error is not None
                or outcome.ended_by is not None
                or (outcome.exit_code, outcome.signal) != wanted
            ):
                due = f"signal {signals[at]}" if signals else f"exit status {code}"
                return f"{which}{how_it_ended(outcome)}, not {due}"
            expected = text if isinstance(text, bytes) else text.encode()
            if outcome.stdout != expected or outcome.stdout_truncated:
                return f"{which}stdout is {_quoted(outcome.stdout)}, not {_quoted(expected)}"
            if stderr is not None and not _fits(outcome.stderr, stderr):
                return f"{which}stderr is {_quoted(outcome.stderr[-_WIDTH:])}"
        return "" if outcomes else "nothing was run"

    return judge


def says(outcomes: Sequence[Outcome]) -> str:
    """Every case ends well and prints something; what it is shows in how the runs compare."""
    for outcome in outcomes:
        if not outcome.ok or not outcome.stdout:
            return f"{how_it_ended(outcome)}, stdout is {_quoted(outcome.stdout)}"
    return "" if outcomes else "nothing was run"


def ends(by: EndedBy, stdout: bytes | None = b"") -> Judge:
    """A limit ends each case, and what it had written is kept; None: whatever it is."""

    def judge(outcomes: Sequence[Outcome]) -> str:
        for outcome in outcomes:
            if outcome.error is not None or outcome.ended_by is not by:
                return f"{how_it_ended(outcome)}, not by the {by.value.replace('_', ' ')} limit"
            if stdout is not None and outcome.stdout != stdout:
                return f"stdout is {_quoted(outcome.stdout)}, not {_quoted(stdout)}"
        return "" if outcomes else "nothing was run"

    return judge


def both(*judges: Judge) -> Judge:
    """All of them; the first that finds something is told."""
    return lambda outcomes: next((found for judge in judges if (found := judge(outcomes))), "")


def each(what: Callable[[Outcome], object], *expected: object) -> Judge:
    """A property of each case's outcome is as expected, one value for each or one for all."""

    def judge(outcomes: Sequence[Outcome]) -> str:
        for at, outcome in enumerate(outcomes):
            due, seen = expected[at if len(expected) > 1 else 0], what(outcome)
            if seen != due:
                return f"{printable(str(seen), _WIDTH)} instead of {printable(str(due), _WIDTH)}"
        return ""

    return judge


def between(what: str, of: Callable[[Outcome], float | None], low: float, high: float) -> Judge:
    """A figure of each outcome lies between two bounds; where a host cannot tell it, nothing is asked."""

    def judge(outcomes: Sequence[Outcome]) -> str:
        for outcome in outcomes:
            seen = of(outcome)
            if seen is not None and not low <= seen <= high:
                return f"{what} {seen:.3g} is not between {low:g} and {high:g}"
        return ""

    return judge


def form(outcomes: Sequence[Outcome]) -> tuple[Any, ...]:
    """What two runs of a program are compared by: all but clocks and meters."""
    return tuple(
        (
            outcome.exit_code,
            outcome.signal,
            outcome.ended_by,
            outcome.stdout,
            outcome.stderr,
            outcome.stdout_truncated,
            outcome.stderr_truncated,
            outcome.left_processes,
            outcome.stdin_read,
            tuple(sorted(outcome.files.items())),
        )
        for outcome in outcomes
    )


def _fits(data: bytes, pattern: str) -> bool:
    text = data.decode("utf-8", "backslashreplace")
    return re.search(pattern, text, re.DOTALL) is not None if pattern else not data


def _quoted(data: bytes) -> str:
    more = f" ({len(data)} bytes)" if len(data) > _WIDTH else ""
    return f"'{printable(data[:_WIDTH])}'{more}"
