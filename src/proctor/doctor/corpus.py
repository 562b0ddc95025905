"""A campaign: every program of a corpus, graded and judged, with controls around it.

Rows run in blocks of ``BLOCK``. Before, between and after the blocks the
honest controls must score 1 and the wrong ones 0, or the campaign counts for
nothing. After each block the host is looked at; when something is left there,
the block's rows run again one by one, so that it is known whose it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from proctor.core.verdict import Verdict
from proctor.doctor import audit, judging, tasks
from proctor.doctor.canary import Canary
from proctor.doctor.judging import Result, State
from proctor.doctor.manifest import Corpus, Row
from proctor.doctor.rules import Rule, Seen, followed_by_honest, rule_for
from proctor.doctor.trial import Runner
from proctor.engine.languages import LANGUAGES
from proctor.grading.api import grade
from proctor.grading.grades import Grade
from proctor.grading.problem import CheckerSpec, Problem, TestCase

BLOCK = 20
# Prints every canary that it finds in the places where there is one.
_SEARCH = """
import glob, re
for place in glob.glob("/tmp/*") + glob.glob("/dev/shm/*") + glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    try:
        with open(place, errors="replace") as file:
            print(*re.findall("PROBE_CANARY_[A-Z0-9]+", file.read(100000)))
    except OSError:
        pass
"""
MAX_GROWTH_MIB = 256  # what this process may grow by over a block: inputs of 64 MiB and their copies


@dataclass(slots=True)
class Campaign:
    """One run of a corpus.

    Attributes:
        missing: protection -> remedy, of those that do not hold on this host.
        controls: what was wrong with the controls; empty means the campaign counts.
        results: one for each row and round, in the order of the manifest.
    """

    corpus: Corpus
    engine: Runner
    canary: Canary
    missing: dict[str, str] = field(default_factory=dict)
    rounds: int = 1
    core_only: bool = False
    on_result: Callable[[Result], object] | None = None
    controls: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @property
    def contained(self) -> bool:
        """Every row is contained, or hangs on a protection that doctor says is missing here; the controls held."""
        fine = (State.CONTAINED, State.DECLARED, State.SKIPPED)
        return not self.controls and all(result.state in fine for result in self.results)

    def run(self) -> None:
        """All rounds; results come in through ``on_result`` and ``results``."""
        rows = [row for row in self.corpus.rows if row.core or not self.core_only]
        level = self.engine.isolation
        self._honest(
            "unit_tests"
        )  # a sealed run takes two agents: all that there will be shall be there before the audits
        self._hold_controls("before")
        for number in range(1, self.rounds + 1):
            for start in range(0, len(rows), BLOCK):
                self._block(rows[start : start + BLOCK], number)
                self._hold_controls(f"in round {number}, after row {min(start + BLOCK, len(rows))}")
        if self.engine.isolation != level:
            self.controls.append(f"the isolation was {level} at the start and {self.engine.isolation} at the end")

    # ------------------------------------------------------------ controls

    def _hold_controls(self, when: str) -> None:
        """Honest controls score 1, wrong ones 0; and an answer that nobody can know stays unknown."""
        for row in self.corpus.rows:
            if row.control and row.stem.startswith(("honest", "wrong")):
                faults = judging.check(row, self._grade(row), self.canary)
                self.controls += [f"{row.file} {when}: {fault}" for fault in faults]
        if not self.canary.alive():
            self.controls.append(f"the beacon was ended, {when}")
        secret = Problem(
            id="canary",
            mode="stdio",
            cases=(TestCase(stdin=b"", expected=self.canary.text.encode()),),
            checker=CheckerSpec(kind="lines"),
        )
        (found,) = grade(
            [_SEARCH], secret, engine=self.engine, limits=tasks.limits(self.corpus), extract="whole", cache=False
        )
        if found.verdict is Verdict.ACCEPTED or self.canary.leaked(*judging.outputs(found)):
            self.controls.append(f"the expected output was found out, {when}")

    def _honest(self, mode: str) -> bool:
        """The first honest control of a mode is right, on as many slots as there are."""
        row = next((r for r in self.corpus.rows if r.control and r.mode == mode and r.score == 1), None)
        if row is None:
            return True
        problem = tasks.problem(self.corpus, row, self.canary)
        copies = [row.source + f"\n# {number}\n" for number in range(self.engine.slots)]
        found = grade(
            copies, problem, engine=self.engine, limits=tasks.limits(self.corpus), extract="whole", cache=False
        )
        return all(one.verdict is Verdict.ACCEPTED for one in found)

    # ------------------------------------------------------------ rows

    def _block(self, rows: Sequence[Row], number: int) -> None:
        before, resident = audit.quiet(), _resident_mib()
        results = self._together(rows, number)
        left = audit.settled(before, running=True) + [f"changed: {path}" for path in self.canary.changed()]
        if left and len(rows) > 1:
            # Whose is it? One row at a time, each against the host as it was just before it.
            results = []
            for row in rows:
                before = audit.quiet()
                (result,) = self._together([row], number)
                for thing in audit.settled(before, running=True):
                    self._blame(result, f"left on the host: {thing}")
                results.append(result)
            if not any(result.faults for result in results):
                results[-1].notes.append(f"seen on the host after the block, but not again: {'; '.join(left[:3])}")
        elif left:
            self._blame(results[0], f"left on the host: {'; '.join(left[:3])}")
        if (grown := _resident_mib() - resident) > MAX_GROWTH_MIB:
            self.controls.append(
                f"this process grew by {grown} MiB in round {number}, rows {rows[0].file} to {rows[-1].file}"
            )
        for result in results:
            self.results.append(result)
            if self.on_result:
                self.on_result(result)

    def _together(self, rows: Sequence[Row], number: int) -> list[Result]:
        """Rows at once on all slots; those of a pair one after the other, the first before the second."""
        alone = [row for row in rows if row.says("pair") or row.control]
        others = [row for row in rows if row not in alone]
        done: dict[str, Result] = {row.file: self._row(row, number) for row in alone}
        with ThreadPoolExecutor(max_workers=max(1, self.engine.slots)) as pool:
            done |= {result.row.file: result for result in pool.map(lambda row: self._row(row, number), others)}
        return [done[row.file] for row in rows]

    def _row(self, row: Row, number: int) -> Result:
        rule = rule_for(row)
        result = Result(row, number, protections=rule.protections)
        begun = time.monotonic()
        try:
            found = self._grade(row)
        except Skip as skip:
            result.state, result.how = State.SKIPPED, str(skip)
            return result
        result.seconds = time.monotonic() - begun
        self._judge(result, found, rule)
        return result

    def _judge(self, result: Result, found: Grade, rule: Rule) -> None:
        row = result.row
        result.how = judging.describe(found)
        said = b"\n".join(judging.outputs(found))
        if row.says("void_if").startswith("PROBE_REFUSED") and b"PROBE_REFUSED" in said:
            result.state = State.VOID
            result.faults.append("the program refused to work in its workspace")
            return
        if row.extra.get("collect"):
            result.notes.append("files are not collected from a workspace, so that part was not tried")
        early = self.engine.isolation != "jail" and judging.refused(found)
        if early:
            result.notes.append("a call was refused before it came to what the manifest speaks of")
        faults = judging.check(row, found, self.canary, rule.right_anyway, early)
        seen = Seen(
            row,
            found,
            said.decode("utf-8", "replace"),
            self.canary,
            result.seconds,
            regrade=lambda checker: self._grade(row, checker),
            honest=lambda: self._honest(row.mode),
        )
        for check in rule.checks if not early else (followed_by_honest,):
            faults += check(seen)
        try:
            json.dumps(found.to_json(), allow_nan=False).encode()
        except (ValueError, UnicodeError) as error:
            faults.append(f"its record cannot be written down: {error}")
        if row.says("pair").startswith("second"):
            faults += self._everywhere(row)
        for fault in faults:
            self._blame(result, fault)

    def _everywhere(self, row: Row) -> list[str]:
        """The second of a pair again, on every slot: the first ran on one of them."""
        problem = tasks.problem(self.corpus, row, self.canary)
        copies = [row.source + f"\n# {number}\n" for number in range(2 * self.engine.slots)]
        found = grade(
            copies, problem, engine=self.engine, limits=tasks.limits(self.corpus), extract="whole", cache=False
        )
        return [fault for one in found for fault in judging.check(row, one, self.canary)]

    def _blame(self, result: Result, fault: str) -> None:
        """A fault is declared, not contained, where it hangs on a protection that is missing here."""
        if fault not in result.faults:
            result.faults.append(fault)
        gone = [name for name in result.protections if name in self.missing]
        result.state = State.DECLARED if gone else State.NOT_CONTAINED
        if gone:
            note = f"doctor says that this is missing here: {', '.join(gone)}"
            if note not in result.notes:
                result.notes.append(note)

    def _grade(self, row: Row, checker: str | None = None) -> Grade:
        problem, text = tasks.problem(self.corpus, row, self.canary), row.source
        if row.language == "c" and row.mode == "unit_tests":
            (built,) = self.engine.submit(tasks.preload_job(row)).result()
            if not built.ok or not built.stdout.startswith(b"\x7fELF"):
                raise Skip("no C compiler to build the library with")
            problem, text = tasks.with_preload(problem, built.stdout)
        elif row.language in ("c", "cpp") and not _compiler(row.language):
            raise Skip(f"no compiler for {row.language} on this host")
        extract = "last-valid-block" if row.completion else "whole"
        options: dict[str, Any] = {
            "limits": tasks.limits(self.corpus),
            "engine": self.engine,
            "extract": extract,
            "checker": checker,
            "cache": False,
        }
        (found,) = grade([text], problem, **options)
        return found


class Skip(Exception):
    """A row cannot be tried on this host, and why."""


def _compiler(name: str) -> bool:
    return any(row.name == name and row.available() for row in LANGUAGES)


def _resident_mib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
