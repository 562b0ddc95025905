"""How far a batch is: a bar on a terminal, else a line every few seconds; and the table at its end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from proctor.cli.messages import say
from proctor.cli.render import cell, console, reward_text, verdict_cell
from proctor.cli.units import counted, show_time
from proctor.core.verdict import Verdict

if TYPE_CHECKING:
    from rich.progress import Progress, Task
    from rich.progress_bar import ProgressBar

_EVERY_S = 5.0
_CAUSES = 5


@dataclass
class Tally:
    """Counts over the lines of an output.

    Attributes:
        verdicts: verdict -> completions.
        causes: why there is no score -> completions.
        failing: the same -> the problems that it was on -> the first such completion's number.
        fresh: completions and cases that this very run scored, not an earlier one.
        cached: of these completions, those that did not have to run.
        varying: completions whose program gave something else when it ran again; repeated: all that ran again.
        shares: for each completion with held-out cases, the accepted shares of its ordinary ones and of those, summed.
    """

    total: int
    verdicts: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    failing: dict[str, dict[str, int]] = field(default_factory=dict)
    rewards: int = 0
    reward_sum: float = 0.0
    claims: Counter[str] = field(default_factory=Counter)
    cases: int = 0
    fresh: int = 0
    fresh_cases: int = 0
    cached: int = 0
    repeated: int = 0
    varying: int = 0
    held_out: int = 0
    shares: tuple[float, float] = (0.0, 0.0)
    started: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> int:
        """Completions that have a line."""
        return sum(self.verdicts.values())

    @property
    def unscored(self) -> int:
        """Completions that this host failed on: no score, for no fault of theirs."""
        return self.verdicts[Verdict.INFRASTRUCTURE_ERROR]

    def add(self, grade: Mapping[str, Any], *, fresh: bool = True, cached: bool = False) -> None:
        """Count one line of the output (see ``Grade.to_json``)."""
        self.verdicts[str(grade["verdict"])] += 1
        if grade["verdict"] == Verdict.INFRASTRUCTURE_ERROR:
            cause = str(grade.get("error") or "unknown")
            self.causes[cause] += 1
            self.failing.setdefault(cause, {}).setdefault(str(grade.get("problem_id")), int(grade.get("index", 0)))
        reward = grade.get("reward")
        if reward is not None:
            self.rewards += 1
            self.reward_sum += reward
        if grade.get("claimed"):
            self.claims[str(grade.get("claim") or "the tests ran beside the program")] += 1
        cases = len(grade.get("cases") or ())
        self.cases += cases
        if fresh:
            self.fresh += 1
            self.fresh_cases += cases
            self.cached += cached
        self.repeated += "deterministic" in grade
        self.varying += grade.get("deterministic") is False
        pair = accepted(grade.get("cases")), accepted(grade.get("held_out"))
        if pair[0] is not None and pair[1] is not None:
            self.held_out += 1
            self.shares = self.shares[0] + pair[0], self.shares[1] + pair[1]

    @property
    def held_out_shares(self) -> tuple[float, float] | None:
        """Mean share of cases accepted, of the ordinary ones and of the held-out ones, over completions with both."""
        return (self.shares[0] / self.held_out, self.shares[1] / self.held_out) if self.held_out else None

    @property
    def mean_reward(self) -> float | None:
        """Over the completions that have a reward."""
        return self.reward_sum / self.rewards if self.rewards else None

    def to_json(self, out: str) -> dict[str, Any]:
        """The summary for machines; times in seconds."""
        seconds = time.monotonic() - self.started
        shares = self.held_out_shares
        more: dict[str, Any] = {}
        if self.repeated:
            more["nondeterministic"] = self.varying
        if shares is not None:
            more["held_out"] = {
                "completions": self.held_out,
                "ordinary_share": round(shares[0], 6),
                "held_out_share": round(shares[1], 6),
                "gap": round(shares[0] - shares[1], 6),
            }
        return {
            "out": out,
            "completions": self.total,
            "done": self.done,
            "scored_now": self.fresh,
            "from_cache": self.cached,
            "verdicts": {verdict.value: self.verdicts[verdict] for verdict in Verdict if self.verdicts[verdict]},
            "mean_reward": self.mean_reward,
            "no_reward": self.done - self.rewards,
            "infrastructure_errors": dict(self.causes.most_common()),
            "claimed": self.claims.total(),
            "claims": dict(self.claims.most_common()),
            "cases": self.cases,
            "cases_per_s": round(self.fresh_cases / seconds, 2) if self.fresh_cases else None,
            "seconds": round(seconds, 3),
            **more,
        }


def accepted(cases: Sequence[Mapping[str, Any]] | None) -> float | None:
    """The share of accepted cases in a line's list; None where there are none, or this host failed on one."""
    verdicts = [case["verdict"] for case in cases or ()]
    if not verdicts or Verdict.INFRASTRUCTURE_ERROR in verdicts:
        return None
    return verdicts.count(Verdict.ACCEPTED) / len(verdicts)


def print_summary(tally: Tally, out: str, *, refused: bool = False) -> None:
    """The table at the end, on standard output; ``refused``: verdicts that are the program's claim got no reward."""
    from rich.table import Table

    shown = console()
    table = Table(title="scored" if tally.done == tally.total else "scored so far", title_justify="left")
    table.add_column("verdict")
    table.add_column("completions", justify="right")
    table.add_column("share", justify="right")
    for verdict in Verdict:
        count = tally.verdicts[verdict]
        if count:
            table.add_row(verdict_cell(verdict), str(count), f"{100 * count / max(1, tally.done):.1f} %")
    shown.print(table)
    seconds = time.monotonic() - tally.started
    facts = [
        f"mean reward {reward_text(tally.mean_reward)} over {tally.rewards} of {counted(tally.total, 'completion')}"
    ]
    if tally.claims:
        named = "; ".join(f"{count}: {why}" for why, count in tally.claims.most_common(3))
        facts.append(
            counted(tally.claims.total(), "verdict is", "verdicts are")
            + f" the program's own claim, its tests could not be sealed ({named})"
            + (", and got no reward, as --claimed refuse asks" if refused else "")
        )
    if tally.repeated:
        facts.append(f"{tally.varying} of {counted(tally.repeated, 'program')} that ran again gave something else")
    if (shares := tally.held_out_shares) is not None:
        facts.append(
            f"held-out cases: {100 * shares[1]:.1f} % accepted, against {100 * shares[0]:.1f} % of the ordinary ones, "
            f"a gap of {100 * (shares[0] - shares[1]):.1f} points over {counted(tally.held_out, 'completion')}"
        )
    if tally.fresh:
        facts.append(
            f"{counted(tally.fresh, 'completion')}, {counted(tally.fresh_cases, 'case')} in {show_time(seconds)}: "
            f"{tally.fresh_cases / max(seconds, 1e-9):.1f} cases/s"
        )
    if tally.cached:
        facts.append(f"{tally.cached} of these came from the cache")
    facts.append(f"written to {out}")
    for fact in facts:
        shown.print(cell(fact), soft_wrap=True)


def print_causes(tally: Tally, places: Mapping[str, str] | None = None) -> None:
    """Say aloud, on standard error, that this host or a judge failed, how often, on what and why.

    Args:
        places: where each problem was read, by its id.
    """
    if not tally.unscored:
        return
    if tally.unscored == tally.done:
        said = counted(tally.done, "completion")
        say(f"error: NOTHING WAS SCORED: this host, a judge or a test file failed on every one of {said}")
    else:
        said = counted(tally.unscored, "completion has", "completions have")
        say(f"error: {said} no score (reward null): this host, a judge or a test file failed, not they")
    for cause, count in tally.causes.most_common(_CAUSES):
        say(f"  {count} x {cause} ({_where(tally.failing.get(cause, {}), places or {})})")
    if len(tally.causes) > _CAUSES:
        say(f"  and {len(tally.causes) - _CAUSES} other causes, field `error` of the output has them")
    if any(_OF_TESTS in cause for cause in tally.causes):
        say("  `--package NAME` lets programs and tests import a package that is installed here")
    if not all(_is_of_a_judge(cause) for cause in tally.causes):
        say("`proctor doctor` tries this host")
    say("the same command, run again, tries just these again")


_OF_TESTS = "which is not in the image"


def _is_of_a_judge(cause: str) -> bool:
    """A problem's own checker, interactor or test file is to blame, and nothing of the host."""
    return cause.startswith(("the checker", "the interactor", "the tests", "the test file"))


def _where(problems: Mapping[str, int], places: Mapping[str, str]) -> str:
    """``problem 'a', p.jsonl:3, completion 7, and 2 other problems``."""
    name, index = next(iter(problems.items()), ("unknown", 0))
    place = f", {places[name]}" if places.get(name) else ""
    others = f", and {counted(len(problems) - 1, 'other problem')}" if len(problems) > 1 else ""
    return f"problem {name!r}{place}, completion {index}{others}"


class Meter:
    """Shows on standard error how far the batch is, until its block ends.

    Both ways a thread of its own keeps it fresh, also while nothing is done.
    """

    def __init__(self, tally: Tally, *, terminal: bool) -> None:
        self._tally = tally
        self._bar = _bar(tally) if terminal else None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        else:
            threading.Thread(target=self._lines, name="progress", daemon=True).start()
        return self

    def _lines(self) -> None:
        while not self._ended.wait(_EVERY_S):
            say(progress_line(self._tally, time.monotonic() - self._tally.started))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._bar is not None:
            self._bar.stop()


def progress_line(tally: Tally, seconds: float) -> str:
    """``120/400 scored, 35.2/s, 8 s left``."""
    line = f"{tally.done}/{tally.total} scored"
    if tally.fresh and seconds > 0:
        rate = tally.fresh / seconds
        line += f", {rate:.1f}/s, {show_time((tally.total - tally.done) / rate)} left"
    return line + (f", {tally.unscored} without a score" if tally.unscored else "")


def _bar(tally: Tally) -> Progress:
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class Rest(ProgressColumn):
        """Counts, rate and time left, over this run."""

        def render(self, task: Task) -> Text:
            return Text(progress_line(tally, time.monotonic() - tally.started))

    class Bar(BarColumn):
        """The bar, up to now."""

        def render(self, task: Task) -> ProgressBar:
            task.completed = tally.done
            return super().render(task)

    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), Bar(), Rest()]
    bar = Progress(*columns, console=console(stderr=True), refresh_per_second=5)
    bar.add_task("scoring", total=tally.total)
    return bar
