"""One program run several times: the first run counts, the others say whether it is deterministic.

Two runs differ when a case has another verdict, exit status or signal, when it
printed something else, or, where functions are called, when a call gave or
raised something else. Of a case that a limit ended only the verdict counts,
since how far it came is the host's doing; standard error, times and memory
never count, and of a large output only what is kept to be judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from proctor.core.outcome import Outcome
from proctor.grading.grades import CaseGrade


class Runs:
    """What the runs of one program gave, as they come.

    Args:
        count: how often it is to run.
        results: what a harness sent counts too; not where it holds a secret of the run.
    """

    def __init__(self, count: int, *, results: bool) -> None:
        self.first: tuple[CaseGrade, ...] | None = None
        self.same: bool | None = None
        self._left, self._results = count, results
        self._seen: list[object] = []
        self._before: list[object] = []

    def saw(self, outcomes: Sequence[Outcome]) -> None:
        """Outcomes of the run under way."""
        if self._left > 1 or self.first is not None:
            self._seen += [_seen(outcome, self._results) for outcome in outcomes]

    def ended(self, cases: tuple[CaseGrade, ...]) -> bool:
        """A run is over; True: another one is wanted."""
        self._left -= 1
        if self.first is None:
            self.first, again = cases, self._left > 0
        else:
            self.same = self._seen == self._before and _told(cases) == _told(self.first)
            again = self._left > 0 and self.same
        if any(not case.verdict.is_score for case in cases):
            self.same, again = None, False
        self._before, self._seen = self._before or self._seen, []
        return again


def _seen(outcome: Outcome, results: bool) -> object:
    if outcome.ended_by is not None:
        return str(outcome.ended_by)
    digest = hashlib.sha256(outcome.stdout).digest()
    result = hashlib.sha256(outcome.result).digest() if results else b""
    return outcome.exit_code, outcome.signal, digest, outcome.stdout_truncated, result


def _told(cases: Sequence[CaseGrade]) -> list[tuple[str, str]]:
    return [(str(case.verdict), case.name) for case in cases]
