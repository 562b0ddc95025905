"""Runs every check in one slot, warm and in a real interpreter, on first and second use, and says what each came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from proctor.core.outcome import Outcome
from proctor.doctor import trial
from proctor.doctor.canary import Canary
from proctor.doctor.conformance.check import Check, Runs, form
from proctor.doctor.conformance.declared import declaration, excuses
from proctor.doctor.conformance.endings import ENDINGS
from proctor.doctor.conformance.files import FILES
from proctor.doctor.conformance.limits import LIMITED
from proctor.doctor.conformance.python import PYTHON
from proctor.doctor.conformance.streams import STREAMS
from proctor.doctor.conformance.surroundings import SURROUNDINGS
from proctor.doctor.text import printable
from proctor.engine.job import Job

CHECKS: tuple[Check, ...] = PYTHON + LIMITED + STREAMS + FILES + ENDINGS + SURROUNDINGS
USES = ("first use", "second use")


class Runner(Protocol):
    """What the suite needs of an engine of one slot; ``proctor.engine.shared.SyncEngine`` has it."""

    @property
    def isolation(self) -> str:
        """The level that is really in force."""

    @property
    def features(self) -> dict[str, Any]:
        """What the agent says of its walls and meters."""

    @property
    def replaced(self) -> int:
        """Agents that failed and were replaced."""

    def submit(self, job: Job, /) -> Future[list[Outcome]]:
        """Queue a job."""


class State(StrEnum):
    """What a check came to."""

    PASS = "pass"
    DECLARED = "declared"  # it does not pass, and the level says so
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a check.

    Attributes:
        fault: what is not as it should be, in words; empty where all is.
        declared: why the level does not do it, also where it passes here all the same; empty: nothing is declared.
        host: this host failed, so nothing is known.
    """

    check: Check
    fault: str
    declared: str = ""
    host: bool = False
    excused: bool = False

    @property
    def state(self) -> State:
        """The result in one word."""
        if not self.fault:
            return State.PASS
        return State.DECLARED if self.excused and not self.host else State.FAIL

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        row = {"check": self.check.key, "group": self.check.group, "title": self.check.title, "state": str(self.state)}
        row |= {"shown": self.fault} if self.fault else {}
        return row | ({"declared": self.declared} if self.declared else {})


@dataclass(slots=True)
class Run:
    """One run of a check: how it was started, which use of the slot it was, and what came of it."""

    way: str
    use: str
    outcomes: list[Outcome]
    visited: dict[str, int]
    replaced: int  # agents that broke under it


Progress = Callable[[Check], None]


def examine(
    engine: Runner, canary: Canary, checks: Sequence[Check] = CHECKS, on_check: Progress | None = None
) -> list[Result]:
    """Every check on an engine of one slot; the results are in the order of the checks.

    Args:
        on_check: called with each check when it begins.
    """
    level, known = engine.isolation, trial.facts(canary, engine.isolation)
    runs: dict[str, list[Run]] = {check.key: [] for check in checks}
    lasting = [check for check in checks if check.lasting]

    def use(check: Check, uses: Sequence[str]) -> None:
        for way, warm in check.ways:
            for one in uses:
                runs[check.key].append(_run(engine, canary, check, known, way, warm, one))

    for check in lasting:
        use(check, USES[:1])
    for check in checks:
        if on_check is not None:
            on_check(check)
        if not check.lasting:
            use(check, USES)
    for check in lasting:
        use(check, USES[1:])
    features = engine.features
    return [judged(check, runs[check.key], level, features) for check in checks]


def _run(
    engine: Runner, canary: Canary, check: Check, known: dict[str, Any], way: str, warm: bool, use: str
) -> Run:  # fmt: skip
    visits = check.probe.visits if check.probe is not None else ()
    before = canary.visits() if visits else {}
    replaced = engine.replaced
    outcomes = engine.submit(check.job(known, warm)).result()
    after = canary.visits() if visits else {}
    visited = {kind: after[kind] - before[kind] for kind in visits if after[kind] > before[kind]}
    return Run(way, use, outcomes, visited, engine.replaced - replaced)


def judged(check: Check, runs: Sequence[Run], level: str, features: Mapping[str, Any]) -> Result:
    """One result from all runs of a check."""
    host = [outcome.error for run in runs for outcome in run.outcomes if outcome.error is not None]
    fault = f"this host failed: {printable(host[0], 200)}" if host else _fault(check, runs)
    said = declaration(check.key, level, features)
    if said is None:
        return Result(check, fault, host=bool(host))
    return Result(check, fault, said.why, bool(host), excuses(said, fault))


def _fault(check: Check, runs: Sequence[Run]) -> str:
    """What is not as it should be, first in a run of its own, then over them all."""
    found = [(run, fault) for run in runs if (fault := _alone(check, run))]
    if found:
        ways = sorted({run.way for run, _ in found})
        uses = sorted({run.use for run, _ in found})
        where = [
            ", ".join(words) for words, all_of in ((ways, len(check.ways)), (uses, len(USES))) if len(words) < all_of
        ]
        return found[0][1] + (f" ({'; '.join(where)})" if where else "")
    if (broken := sum(run.replaced > 0 for run in runs)) > 1:  # once may be this host's doing
        return f"the slot broke and was replaced in {broken} of {len(runs)} runs"
    if check.runs is Runs.FREE:
        return ""
    for at, run in enumerate(runs):
        for other in runs[:at]:
            same = form(run.outcomes) == form(other.outcomes)
            if check.runs is Runs.ALIKE and not same:
                return f"{other.way}, {other.use} and {run.way}, {run.use} differ: {_difference(other, run)}"
            if check.runs is Runs.DIFFERENT and run.outcomes[0].stdout == other.outcomes[0].stdout:
                return f"{other.way}, {other.use} and {run.way}, {run.use} gave the same"
    return ""


def _alone(check: Check, run: Run) -> str:
    reached = [f"{count} reached the host over {kind}" for kind, count in run.visited.items()]
    return "; ".join([fault for fault in (check.judge(run.outcomes),) if fault] + reached)


def _difference(one: Run, other: Run) -> str:
    """The first place in which two runs differ, with what is around it in both."""
    for left, right in zip(one.outcomes, other.outcomes, strict=True):
        for name in ("stdout", "stderr"):
            a, b = getattr(left, name), getattr(right, name)
            if a != b:
                at = next(
                    (i for i, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), min(len(a), len(b))
                )
                start = max(0, at - 20)
                return f"{name} '{printable(a[start : at + 40])}' and '{printable(b[start : at + 40])}'"
    return "status, streams that were cut, or what was left"


def summary(results: Sequence[Result]) -> str:
    """The counts in one line."""
    counts = {state: [result for result in results if result.state is state] for state in State}
    told = [f"{len(counts[State.PASS])} of {len(results)} checks pass"]
    if spared := [result for result in counts[State.PASS] if result.declared]:
        told.append(f"{len(spared)} of them although the level declares otherwise")
    if counts[State.DECLARED]:
        told.append(f"{len(counts[State.DECLARED])} declared as not done at this level")
    if failed := counts[State.FAIL]:
        told.append(f"{len(failed)} FAIL: {', '.join(result.check.key for result in failed)}")
    return "; ".join(told)
