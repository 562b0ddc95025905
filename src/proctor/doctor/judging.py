"""Holds what a row of a corpus asks for against what happened."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from proctor.core.verdict import Verdict
from proctor.doctor.canary import Canary
from proctor.doctor.manifest import Row
from proctor.doctor.probe import how_it_ended
from proctor.grading.grades import CaseGrade, Grade
from proctor.grading.policy import all_or_nothing, share

_WORDS: dict[Verdict, frozenset[str]] = {
    Verdict.ACCEPTED: frozenset({"ACCEPTED"}),
    Verdict.WRONG_ANSWER: frozenset({"WRONG_ANSWER"}),
    # No number tells a full disk or a refused fork from any other failed call.
    Verdict.RUNTIME_ERROR: frozenset({"RUNTIME_ERROR", "PROCESS_LIMIT", "DISK_LIMIT"}),
    Verdict.TIME_LIMIT: frozenset({"TIME_LIMIT"}),
    Verdict.MEMORY_LIMIT: frozenset({"MEMORY_LIMIT"}),
    Verdict.OUTPUT_LIMIT: frozenset({"OUTPUT_LIMIT"}),
    Verdict.COMPILE_ERROR: frozenset({"COMPILE_ERROR"}),
    Verdict.NO_CODE: frozenset({"NO_CODE"}),
    Verdict.POLICY_VIOLATION: frozenset({"POLICY_KILL"}),
    Verdict.INFRASTRUCTURE_ERROR: frozenset({"SANDBOX_ERROR"}),
}


class State(StrEnum):
    """What became of a row."""

    CONTAINED = "contained"
    NOT_CONTAINED = "NOT CONTAINED"
    DECLARED = "declared"
    VOID = "void"
    SKIPPED = "skipped"


@dataclass(slots=True)
class Result:
    """One row in one round.

    Attributes:
        how: how it died, in a few words.
        faults: what was not as the row asks; empty when contained.
        notes: what could not be checked, and other remarks.
        protections: keys of doctor's table that the row hangs on.
    """

    row: Row
    round: int
    state: State = State.CONTAINED
    how: str = ""
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    protections: tuple[str, ...] = ()
    seconds: float = 0.0


def words(case: CaseGrade, mode: str) -> frozenset[str]:
    """The manifest's words for one case."""
    found = _WORDS[case.verdict]
    if mode == "unit_tests" and case.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR):
        # A named test that did not report its own pass has failed, however the process ended.
        found |= {"TESTS_FAILED"}
    if case.verdict is Verdict.ACCEPTED and case.outcome.left_processes:
        found |= {"LEFT_PROCESSES"}
    return found


# EPERM, EACCES, ENOSYS, EAFNOSUPPORT
_REFUSED = re.compile(rb"(?:PermissionError: \[Errno (?:1|13)\]|OSError: \[Errno (?:38|97)\])[^\n]*\s*\Z")


def refused(grade: Grade) -> bool:
    """In every case it ended at a call that was refused: where walls are few, the filter refuses more."""
    return bool(grade.cases) and all(
        case.verdict is Verdict.RUNTIME_ERROR and _REFUSED.search(case.outcome.stderr) for case in grade.cases
    )


def describe(grade: Grade) -> str:
    """How it died: verdicts with their ends, each kind once."""
    if not grade.cases:
        return str(grade.verdict)
    seen = Counter(f"{case.verdict}: {how_it_ended(case.outcome)}" for case in grade.cases)
    return "; ".join(f"{text} x{count}" if count > 1 else text for text, count in seen.items())


def outputs(grade: Grade) -> list[bytes]:
    """All that a program said, each stream once."""
    seen: dict[int, bytes] = {}
    for case in grade.cases:
        seen[id(case.outcome)] = case.outcome.stdout + b"\n" + case.outcome.stderr
    return list(seen.values())


def check(row: Row, grade: Grade, canary: Canary, right_anyway: int = 0, stopped_early: bool = False) -> list[str]:
    """Faults of one grading: statuses, score, the patterns that the row gives, the canary.

    Args:
        right_anyway: cases for which the program's answer is legitimately right.
        stopped_early: it was refused a call before it came to what the row
            speaks of, so only the score and the canary are looked at.
    """
    faults = [] if stopped_early else statuses(row, grade.verdict, grade.cases)
    faults += score(row, grade, right_anyway)
    said = b"\n".join(outputs(grade)).decode("utf-8", "replace")
    if (wanted := row.must.get("stdout")) and not stopped_early and not re.search(wanted, said):
        faults.append(f"its output does not show {wanted!r}")
    if (unwanted := row.must.get("stdout_not")) and (found := re.search(unwanted, said)):
        faults.append(f"its output shows {found[0][:60]!r}")
    if (died := row.must.get("died")) and not stopped_early and not re.search(died, describe(grade)):
        faults.append(f"it did not die by {died!r}")
    if canary.leaked(*outputs(grade), *(case.detail.encode("utf-8", "replace") for case in grade.cases)):
        faults.append("the canary came back")
    return faults


def statuses(row: Row, overall: Verdict, cases: Sequence[CaseGrade]) -> list[str]:
    """Every case ended in one of the row's words; cases that are right besides are the score's affair."""
    if not cases:
        return [] if _WORDS[overall] & row.statuses else [f"{overall}"]
    bad = {
        str(case.verdict)
        for case in cases
        if case.verdict is not Verdict.ACCEPTED and not words(case, row.mode) & row.statuses
    }
    if overall is Verdict.ACCEPTED and not words(cases[0], row.mode) & row.statuses:
        bad.add("accepted")
    return [f"{word}, not one of {', '.join(sorted(row.statuses))}" for word in sorted(bad)]


def score(row: Row, grade: Grade, right_anyway: int) -> list[str]:
    """All-or-nothing and graded scores are the row's; a rule in words is somebody else's to check."""
    if grade.reward is None:
        return [f"no score: {grade.error or 'this host failed'}"]
    if isinstance(row.score, str):
        return []
    whole, graded = all_or_nothing(grade), share(grade)
    allowed = right_anyway / max(len(grade.cases), 1) if row.score == 0 else row.score
    faults = [] if whole == row.score else [f"score {whole:g}, not {row.score:g}"]
    if graded > max(allowed, row.score) or (row.score == 1 and graded < 1):
        faults.append(f"graded score {graded:g}, not {max(allowed, row.score):g}")
    return faults


def summary(results: Iterable[Result]) -> str:
    """The last line: a count of what was contained."""
    tally = Counter(result.state for result in results)
    total = sum(count for state, count in tally.items() if state is not State.SKIPPED)
    line = f"{tally[State.CONTAINED]} of {total} contained"
    more = {
        State.DECLARED: "declared as missing on this host",
        State.VOID: "void",
        State.SKIPPED: "skipped",
    }
    return line + "".join(f", {tally[state]} {text}" for state, text in more.items() if tally[state])
