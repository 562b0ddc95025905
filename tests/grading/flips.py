"""The same verdicts on any host: many completions, scored under five conditions.

    python tests/grading/flips.py COMPLETIONS.jsonl PROBLEMS.jsonl [MORE PAIRS ...] [--most N]

Idle on two slots; shuffled on one; shuffled beside eight busy loops; shuffled
with real interpreters; as at first. Prints each completion whose verdicts
differ, and whether it differs from itself when it runs four times alone: then
it is the program that is not deterministic. So it is where a case used its time
limit to within a twentieth: how long it takes varies by more than that.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from proctor.engine.shared import SyncEngine
from proctor.grading.api import grade
from proctor.grading.formats import load_problems
from proctor.grading.problem import Problem

CONDITIONS = (
    ("idle, two slots", 2, 0, True, False),
    ("one slot, shuffled", 1, 0, True, True),
    ("eight busy loops beside it, shuffled", 2, 8, True, True),
    ("real interpreter, shuffled", 2, 0, False, True),
    ("idle again", 2, 0, True, False),
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Scored:
    """What must not differ, and beside it why each case has its verdict, to be read when something does."""

    reward: float | None
    verdicts: tuple[str, ...]
    details: tuple[str, ...] = field(compare=False)
    at_limit: bool = field(compare=False)


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Load of other programs on this host."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def verdicts(rows: list[Row], problems: dict[str, Problem], slots: int, loops: int, warm: bool) -> list[Scored]:
    """Reward and the verdict of each case, in the order of the rows."""
    engine = SyncEngine(slots=slots)
    try:
        with busy(loops):
            grades = grade(rows, problems, engine=engine, warm=warm, cache=False)
    finally:
        engine.close()
    return [
        Scored(
            found.reward,
            tuple(str(case.verdict) for case in found.cases),
            tuple(case.detail for case in found.cases),
            any(0.95 <= case.outcome.cpu_s / found.limits.cpu_s <= 1.05 for case in found.cases),
        )
        for found in grades
    ]


def compare(rows: list[Row], problems: dict[str, Problem]) -> list[tuple[int, str, Scored, Scored]]:
    """Completions whose verdicts are not the same under all conditions."""
    first: list[Scored] = []
    found = []
    for name, slots, loops, warm, shuffled in CONDITIONS:
        order = list(range(len(rows)))
        if shuffled:
            random.Random(name).shuffle(order)
        start = time.monotonic()
        got = dict(zip(order, verdicts([rows[i] for i in order], problems, slots, loops, warm), strict=True))
        cases = sum(len(row.verdicts) for row in got.values())
        print(f"{name}: {len(rows)} completions, {cases} verdicts, {time.monotonic() - start:.0f} s", flush=True)
        first = first or [got[i] for i in range(len(rows))]
        found += [(i, name, first[i], got[i]) for i in range(len(rows)) if got[i] != first[i]]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", help="completions and problems, in turn")
    parser.add_argument("--most", type=int, default=10**9, help="completions of each file, chosen at random")
    options = parser.parse_args()
    problems: dict[str, Problem] = {}
    rows: list[Row] = []
    for completions, source in zip(options.files[::2], options.files[1::2], strict=True):
        problems |= {problem.id: problem for problem in load_problems(source)}
        with open(completions, encoding="utf-8") as file:
            more = [json.loads(line) for line in file]
        random.Random(0).shuffle(more)
        keys = ("problem_id", "completion", "language")
        rows += [{key: row[key] for key in keys if key in row} for row in more[: options.most]]
    flips = compare(rows, problems)
    own = 0
    for index, name, before, after in flips:
        alone = verdicts([rows[index]] * 4, problems, 1, 0, True)
        at_limit = before.at_limit and after.at_limit
        own += len(set(alone)) > 1 or at_limit
        said = f"alone: {len(set(alone))} kinds" + (", at its time limit" if at_limit else "")
        print(f"{rows[index]['problem_id']} ({name}): {before} then {after}; {said}")
    print(f"{len(flips)} flips, {own} of them of programs that are not deterministic themselves")
    return int(len(flips) > own)


if __name__ == "__main__":
    sys.exit(main())
