"""When an outcome is final. Decides only: what is to be run again, and how, is up to the engine.

A verdict must not hang on the load of the host, or on whoever else sends
signals there. So an outcome that could is run a second time, alone where time
is in doubt, and the second one counts. All that are known to be in such doubt
run again together, since a job's program is compiled each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from signal import SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGXCPU

from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.job import Case, Job

# CPU time of the same program differs by up to 1.83 between a quiet and a
# contended core (0.6 to 1.1 of nominal was measured), so a program that has
# used twice its limit is over it on any host, and one between is run again alone.
DECISIVE = 2.0
SLEEPER = 0.1  # CPU per wall time: below it, wall time is a program's own doing
NOT_RUN = Outcome(signal=9, ended_by=EndedBy.NOT_RUN)
_SIGKILL = 9
_SENT = frozenset(
    (SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM, SIGXCPU)
)  # what people, services and kernels end others with
_LATE = (EndedBy.CPU, EndedBy.WALL)


@dataclass(frozen=True, slots=True)
class Todo:
    """What to run next.

    Attributes:
        cases: with their indices.
        alone: while nothing else runs, and to be ended at the limit itself.
        again: it is the second time, whose outcome is final.
    """

    cases: list[tuple[int, Case]]
    alone: bool = False
    again: bool = False


class Settling:
    """The outcomes of one job, first as they come and then final, in the order of the cases."""

    def __init__(self, job: Job, tell: Callable[[int, Outcome], None] | None = None) -> None:
        self.job, self._tell = job, tell
        self._cases = list(enumerate(job.cases))
        self._found: dict[int, tuple[Outcome, float]] = {}
        self._final: list[Outcome] = []
        self._late = 0
        self._asked: frozenset[int] = frozenset()  # cases that run again
        self._settled: set[int] = set()  # cases whose second outcome leaves no question
        self._killed: set[int] = set()  # cases that ran again because a signal had killed them
        self._timed: set[int] = set()  # cases that ran again because their time was in doubt
        self._recompiled = False

    # ------------------------------------------------------------ what comes in

    def add(self, index: int, outcome: Outcome, busiest: float) -> None:
        """An outcome, and the CPU seconds of its busiest step."""
        self._found[index] = outcome, busiest
        self._advance()

    def fail(self, cases: list[tuple[int, Case]], message: str) -> None:
        """The infrastructure's own fault in these cases."""
        for index, _ in cases:
            self.add(index, Outcome(error=message), 0.0)

    def not_compiled(self, cases: list[tuple[int, Case]], outcome: Outcome) -> None:
        """The compiler's outcome is that of each case."""
        for index, _ in cases:
            self.add(index, replace(outcome, compile_failed=True), 0.0)

    def filled(self, cases: list[tuple[int, Case]], *, compiling: bool) -> None:
        """The first of these cases, or their compiler, took all memory of its slot and the agent with it."""
        outcome = Outcome(signal=_SIGKILL, ended_by=EndedBy.MEMORY)
        if compiling:
            self.not_compiled(cases, outcome)
        else:
            self.add(cases[0][0], outcome, 0.0)

    def count(self) -> int:
        """Outcomes so far, final or not."""
        return len(self._found)

    def missing(self, cases: list[tuple[int, Case]]) -> list[tuple[int, Case]]:
        """Those that have no outcome yet."""
        return [(index, case) for index, case in cases if index not in self._found]

    def stop_after(self, todo: Todo) -> int | None:
        """Time limits after which an agent that goes on now shall leave the rest; None where it shall not."""
        if todo.again or self.job.stop_after is None:
            return None
        late = sum(outcome.ended_by in _LATE for outcome, _ in self._found.values())
        return max(1, self.job.stop_after - late)

    # ------------------------------------------------------------ what goes out

    def todo(self) -> Todo | None:
        """What to run next; None when every outcome is final."""
        at = len(self._final)
        if at == len(self._cases):
            return None
        if at not in self._found:
            return Todo(self.missing(self._cases))
        outcome, _ = self._found[at]
        if outcome.ended_by is EndedBy.NOT_RUN:  # a time limit before it was not confirmed
            self._found = {i: found for i, found in self._found.items() if found[0].ended_by is not EndedBy.NOT_RUN}
            return Todo(self.missing(self._cases))
        if outcome.compile_failed:
            self._recompiled = True
            self._found = {i: found for i, found in self._found.items() if i < at or i in self._settled}
            return Todo(self.missing(self._cases), alone=outcome.ended_by is not None)
        by_kill, alone = self._way(at)
        alike = [i for i in sorted(self._found) if i >= at and self._again(i) == (by_kill, alone)]
        if not by_kill and self.job.stop_after is not None:
            del alike[self.job.stop_after - self._late :]
        (self._killed if by_kill else self._timed).update(alike)
        for index in alike:
            del self._found[index]
        self._asked = frozenset(alike)
        return Todo([self._cases[index] for index in alike], alone=alone, again=True)

    def settle(self, todo: Todo) -> None:
        """Make final what ``todo`` gave, unless that raises a new question."""
        if not todo.again:
            return
        self._asked = frozenset()
        for index, case in todo.cases:
            outcome, busiest = self._found[index]
            if self._unsure(index) and (killed(outcome) or index not in self._timed):
                continue
            if index in self._timed and not outcome.error and outcome.ended_by is None and self._over(index, busiest):
                outcome = replace(outcome, ended_by=EndedBy.CPU, exit_code=None, signal=_SIGKILL)
            if not outcome.error and not starved(outcome, self.job.limits.wall * case.steps):
                outcome = replace(outcome, confirmed=True)
            self._found[index] = outcome, busiest
            self._settled.add(index)
        self._advance()

    def result(self) -> list[Outcome]:
        """All outcomes, final."""
        return self._final

    # ------------------------------------------------------------ rules

    def _advance(self) -> None:
        """Move on over outcomes that nothing is to be asked about."""
        stop = self.job.stop_after
        while (at := len(self._final)) < len(self._cases) and at in self._found and at not in self._asked:
            if stop is not None and self._late >= stop:
                self._push(NOT_RUN)  # whether or not it ran by chance
            elif self._open(at) or self._found[at][0].ended_by is EndedBy.NOT_RUN:
                return
            else:
                self._push(self._found[at][0])

    def _push(self, outcome: Outcome) -> None:
        index = len(self._final)
        self._final.append(outcome)
        self._late += outcome.ended_by in _LATE
        if self._tell:
            self._tell(index, outcome)

    def _open(self, index: int) -> bool:
        """An outcome that is there is still in doubt."""
        return index not in self._settled and self._unsure(index)

    def _again(self, index: int) -> tuple[bool, bool] | None:
        """How it runs again; None where it does not, or with its compiler."""
        return self._way(index) if self._open(index) and not self._found[index][0].compile_failed else None

    def _way(self, index: int) -> tuple[bool, bool]:
        """How a case in doubt runs again: for who killed it, and not yet for its time; and alone."""
        by_kill = killed(self._found[index][0]) and index not in self._killed
        return by_kill, not by_kill or index in self._timed

    def _over(self, index: int, busiest: float) -> bool:
        """CPU time of a case that ended by itself is over the limit. Steps are told apart too coarsely for that."""
        return self.job.cases[index].steps == 1 and busiest > self.job.limits.cpu_s

    def _unsure(self, index: int) -> bool:
        """A verdict on this outcome could hang on the load, or on a signal from elsewhere."""
        outcome, busiest = self._found[index]
        if outcome.error:
            return False
        if outcome.compile_failed:
            late, gone = outcome.ended_by in _LATE, killed(outcome) or b"Killed signal" in outcome.stderr
            return not self._recompiled and (late or gone)
        if outcome.ended_by is EndedBy.CPU and outcome.steady and index not in self._timed:
            return True  # a slow program and not a stuck call: what counts is how far it comes within the limit, alone
        if outcome.ended_by is EndedBy.WALL:
            return max(outcome.cpu_s, outcome.waited_s) > SLEEPER * outcome.wall_s
        over = outcome.ended_by is None and busiest > self.job.limits.cpu_s
        if killed(outcome):
            return index not in self._killed or (over and index not in self._timed)
        return over


def starved(outcome: Outcome, wall_s: float) -> bool:
    """Ended by the clock though it was within its wall limit but for waiting for a CPU."""
    return outcome.ended_by is EndedBy.WALL and outcome.wall_s - outcome.waited_s < wall_s


def killed(outcome: Outcome) -> bool:
    """Killed, and not by us: by itself, or by something on the host."""
    return outcome.ended_by is None and outcome.signal in _SENT
