"""What grading gives back: a Grade for a completion, a CaseGrade for each of its cases."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.core.verdict import Verdict
from proctor.grading.finding import Finding
from proctor.grading.printing import printable as printable
from proctor.grading.provenance import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseGrade:
    """One case, one call of a function, or one named test.

    Attributes:
        verdict: the Outcome judged.
        detail: why it is not accepted: printable ASCII, a few hundred
            characters. It may quote the expected answer, so it must never
            reach a program.
        name: the test's name in unit tests, else empty.
        outcome: what was observed. Calls and tests of one process share one,
            and with it the process's times and memory; ``result`` is left out.
        shared: how many cases share that Outcome.
        claim: why the verdict is the program's own claim (the tests ran beside it); empty where it is not.
        score: 0 to 1, where a checker program gave points; None: the verdict
            says it all. Only a full score is ``accepted``.
    """

    verdict: Verdict
    detail: str = ""
    name: str = ""
    outcome: Outcome = field(default_factory=Outcome, repr=False)
    shared: int = 1
    claim: str = ""
    score: float | None = None

    @property
    def credit(self) -> float:
        """The share of this case that was earned: ``score``, else 1 where it was accepted."""
        if self.score is not None:
            return self.score
        return 1.0 if self.verdict is Verdict.ACCEPTED else 0.0

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of the process tree; an even share where several cases had one process."""
        return round(self.outcome.cpu_s * 1000 / self.shared, 3)

    @property
    def wall_ms(self) -> float:
        """Milliseconds from start to end; an even share where several cases had one process."""
        return round(self.outcome.wall_s * 1000 / self.shared, 3)

    @property
    def memory_mib(self) -> float | None:
        """Highest memory of the process tree in MiB, None where this host cannot tell."""
        peak = self.outcome.peak_memory_bytes
        return None if peak is None else round(peak / (1 << 20), 2)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; every string is printable ASCII or escaped."""
        row: dict[str, Any] = {
            "verdict": str(self.verdict),
            "cpu_ms": self.cpu_ms,
            "wall_ms": self.wall_ms,
            "memory_mib": self.memory_mib,
        }
        if self.name:
            row["name"] = printable(self.name)
        if self.score is not None:
            row["score"] = self.score
        if self.detail:
            row["detail"] = printable(self.detail)
        out = self.outcome
        told = {
            "exit_code": out.exit_code,
            "signal": out.signal,
            "ended_by": out.ended_by and str(out.ended_by),
            "stdin_read": out.stdin_read,
            "left_processes": out.left_processes or None,
            "stdout_sha256": hashlib.sha256(out.stdout).hexdigest()[:16] if out.stdout else None,
        }
        return row | {key: value for key, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """One completion, graded.

    Attributes:
        problem_id, index: which problem, and the completion's place in the batch.
        reward: a finite number from the reward policy, or None: no score, since
            this host, a judge or a test file failed, or only the program's own
            word could decide. Never 0 for a fault of ours.
        verdict: accepted when every case is, otherwise that of the first case
            that is not; infrastructure_error wins over all.
        cases: in the problem's order; empty for ``no_code``.
        program_sha256: of the program's source as it ran, None for ``no_code``.
        claimed: the tests ran in the program's own process, so the verdict is
            the program's claim; ``claim`` says why they did.
        error: what failed on this host, where something did.
        limits: the bounds that each case had.
        held_out: the problem's held-out cases, in its order: they ran, and
            count neither in the verdict nor in the reward; no policy sees them.
        deterministic: with ``repeat``: all runs gave the same (see
            ``proctor.grading.repeat``); None: it ran once, or this host failed.
        cached: the cases were found in the cache, and no program ran; no
            policy sees that either.
        provenance: all that the cases' verdicts depend on.
        signals: what an audit found, where the reward policy asks for one (``audit_penalty``).
    """

    problem_id: str
    index: int = 0
    reward: float | None = None
    verdict: Verdict
    cases: tuple[CaseGrade, ...] = ()
    program_sha256: str | None = None
    claimed: bool = False
    claim: str = ""
    error: str | None = None
    limits: Limits = field(default_factory=Limits, repr=False)
    held_out: tuple[CaseGrade, ...] = ()
    deterministic: bool | None = None
    cached: bool = False
    provenance: Provenance | None = field(default=None, repr=False)

    @property
    def held_out_share(self) -> float | None:
        """The share of the held-out cases that were accepted, 0 to 1; None: there are none, or this host failed on one."""
        verdicts = [case.verdict for case in self.held_out]
        if not verdicts or not all(verdict.is_score for verdict in verdicts):
            return None
        return verdicts.count(Verdict.ACCEPTED) / len(verdicts)

    signals: tuple[Finding, ...] = ()

    @property
    def accepted(self) -> bool:
        """Every case was accepted."""
        return self.verdict is Verdict.ACCEPTED

    def __iter__(self) -> Iterator[CaseGrade]:
        return iter(self.cases)

    def to_json(self) -> dict[str, Any]:
        """The line of a results file, as plain JSON data."""
        row: dict[str, Any] = {
            "problem_id": printable(self.problem_id),
            "index": self.index,
            "reward": self.reward,
            "verdict": str(self.verdict),
            "claimed": self.claimed,
            "cases": [case.to_json() for case in self.cases],
            "program_sha256": self.program_sha256,
        }
        if self.held_out:
            row["held_out"] = [case.to_json() for case in self.held_out]
        if self.deterministic is not None:
            row["deterministic"] = self.deterministic
        if self.claim:
            row["claim"] = printable(self.claim)
        if self.error:
            row["error"] = printable(self.error)
        if self.provenance is not None:
            row["provenance"] = self.provenance.to_json()
        if self.signals:
            row["signals"] = sorted({finding.signal for finding in self.signals})
        return row


def overall(cases: tuple[CaseGrade, ...]) -> Verdict:
    """The verdict of a whole program; no case at all is an infrastructure error, for nothing was seen."""
    verdicts = [case.verdict for case in cases]
    if not verdicts or Verdict.INFRASTRUCTURE_ERROR in verdicts:
        return Verdict.INFRASTRUCTURE_ERROR
    return next((verdict for verdict in verdicts if verdict is not Verdict.ACCEPTED), Verdict.ACCEPTED)
