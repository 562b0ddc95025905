"""Special judges: checker programs, each in a jail of its own, after the program that it judges has ended.

The program's jail never sees the checker or an expected answer; the checker's
sees the input, the answer and what the program printed, and nothing else of
the program. All outputs of one program go to one job of the checker, a case
each.

A checker that crashes, exceeds its limits or leaves with a status that its
protocol does not have says nothing about the program: ``infrastructure_error``.
It is not run again for that, beyond what the engine does for every case whose
outcome could hang on the load: the same files would have the same end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.core.errors import InputError
from proctor.core.limits import MIB, Limits
from proctor.core.outcome import Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import MAX_FILES_BYTES, Case, Job, Program
from proctor.engine.languages import Language, language
from proctor.grading import builds, judge, protocols
from proctor.grading.grades import CaseGrade
from proctor.grading.problem import CheckerProgram, TestCase
from proctor.grading.protocols import Ruling

LIMITS = Limits(cpu_s=10, memory_mib=512)  # of a checker that names none
LEAST_ROOM = 16 * MIB  # bytes of output that a checker can at least be given
_SPARE_MIB = 16  # for what it writes itself
_MARGIN = 64 << 10

# An exception that nobody caught leaves Python and node with status 1, which is testlib's "wrong answer".
_PYTHON_LAUNCHER = b"""\
import sys


def launch():
    import os
    import select

    def crashed(kind, value, trace, report=sys.__excepthook__, leave=os._exit, poll=select.poll):
        status = 70
        try:
            report(kind, value, trace)
            sys.stderr.flush()
            if issubclass(kind, (EOFError, BrokenPipeError)):
                status = 71
            else:
                stdin = poll()
                stdin.register(0, 0)
                if any(seen & select.POLLHUP for _, seen in stdin.poll(0)):
                    status = 72
        finally:
            leave(status)

    sys.excepthook = crashed
    del sys.argv[0]
    with open(sys.argv[0], "rb") as file:
        return compile(file.read(), sys.argv[0], "exec", dont_inherit=True)


__file__ = sys.argv[1]
exec(launch())
"""
_NODE_LAUNCHER = b"""\
process.on("uncaughtException", (error) => {
  try { console.error((error && error.stack) || error); } finally { process.exit(70); }
});
"""
_LAUNCHERS = {"python": ("launch.py", _PYTHON_LAUNCHER), "javascript": ("launch.js", _NODE_LAUNCHER)}
Building = Generator[Job, Sequence[Outcome], "Program | str"]
Judging = Generator[Job, Sequence[Outcome], tuple[CaseGrade, ...]]


@dataclass(frozen=True, slots=True)
class Special:
    """A judge program that can be run on this host; made by ``special``.

    Attributes:
        program: its source and protocol.
        row: its language.
        what: what it is called: checker, or interactor.
    """

    program: CheckerProgram
    row: Language
    what: str = "checker"

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of all that its rulings depend on beside the host."""
        judge_ = self.program
        words = [
            self.what, judge_.source, judge_.protocol, judge_.flags, self.row.name, self.row.run, self.row.compile,
            self.limits, judge_.points,
        ]  # fmt: skip
        digest = hashlib.sha256(repr(words).encode("utf-8", "surrogatepass"))
        for name, data in sorted(_files(judge_.extra_files).items()):
            digest.update(f"{len(name)} {len(data)} {name}".encode("utf-8", "surrogatepass"))
            digest.update(data)
        return digest.hexdigest()

    @property
    def limits(self) -> Limits:
        """Of one run, without the room for its files."""
        return self.program.limits or LIMITS

    def room(self, case: TestCase) -> int:
        """Bytes of output that fit into one run beside the case's input and answer."""
        return MAX_FILES_BYTES - _MARGIN - len(case.stdin) - len(case.expected)

    def ready(self, warm: bool) -> Building:
        """Its Program, compiled if need be; a text says why there is none."""
        return (yield from builds.once(self.written(warm)))

    def written(self, warm: bool) -> Program:
        """Its Program, not compiled yet."""
        source = self.program.source.encode("utf-8", "surrogatepass")
        files = _files(self.program.extra_files) | {self.row.source: source}
        run = self.row.command(self.limits.memory_mib)
        if self.row.name in _LAUNCHERS:
            name, text = _LAUNCHERS[self.row.name]
            files[name] = text
            run = (run[0], name, *run[1:]) if self.row.name == "python" else (run[0], "-r", f"./{name}", *run[1:])
        argv = (*run, *protocols.arguments(self.program))
        return Program(files, argv, self.row.compile, warm and self.row.warm)

    def fitting(self, program: Program, cases: Sequence[Case]) -> Limits:
        """The limits of its runs, with room for the files of the largest on top."""
        held = sum(map(len, program.files.values()))
        files = max(sum(map(len, case.files.values())) + 4096 * len(case.files) for case in cases)
        mib = (held + files) // MIB + 1
        wide = max(self.limits.workspace_mib, mib + _SPARE_MIB)
        return self.limits.with_(memory_mib=self.limits.memory_mib + mib, workspace_mib=wide)

    def judged(self, outcomes: Sequence[Outcome], cases: Sequence[TestCase], warm: bool) -> Judging:
        """The grades of a program's outcomes: how it ended comes first, then what the checker says."""
        grades = {at: judge.without_checker(outcome) for at, outcome in enumerate(outcomes)}
        asked = [at for at, grade in grades.items() if grade is None]
        if asked:
            rulings = yield from self._rulings([(outcomes[at], cases[at]) for at in asked], warm)
            for at, said in zip(asked, rulings, strict=True):
                grades[at] = graded(outcomes[at], said)
        return tuple(grade for grade in grades.values() if grade is not None)

    def _rulings(
        self, pairs: Sequence[tuple[Outcome, TestCase]], warm: bool
    ) -> Generator[Job, Sequence[Outcome], list[Ruling]]:
        program = yield from self.ready(warm)
        if isinstance(program, str):
            return [Ruling(Verdict.INFRASTRUCTURE_ERROR, f"the {self.what}: {program}")] * len(pairs)
        kattis = self.program.protocol == "kattis"
        runs = tuple(
            Case(
                stdin=outcome.stdout if kattis else b"",
                files=protocols.files_for(self.program, case.stdin, case.expected, outcome.stdout),
                collect=protocols.collected(self.program),
            )
            for outcome, case in pairs
        )
        # Once it hangs nothing is known of the program, so one time limit is enough.
        found = yield Job(program, runs, self.fitting(program, runs), stop_after=1)
        return [protocols.ruling(self.program, outcome, self.what) for outcome in found]


def graded(outcome: Outcome, said: Ruling) -> CaseGrade:
    """A case as a judge program ruled; the outcome stays the program's own."""
    if not said.verdict.is_score:
        outcome = replace(outcome, error=said.detail)
    return CaseGrade(verdict=said.verdict, detail=said.detail, outcome=judge.trimmed(outcome), score=said.score)


def special(program: CheckerProgram, cases: Sequence[TestCase], what: str = "checker") -> Special:
    """A judge program made ready for a problem's cases.

    Raises:
        InputError: its language has no tools here or cannot say that it
            crashed, a file that it needs is missing, names collide, or a
            case is too large for it.
    """
    row = language(program.language)
    if missing := program.missing:
        name = missing[0].rpartition("/")[2]
        raise InputError(
            f"the {what} needs {missing[0]!r}, which is not here: put that file beside the problem file as {name!r}, "
            f"or its text into {what}.extra_files[{name!r}]",
            field=f"{what}.needs",
        )
    if row.name == "bash" and program.protocol == "testlib":
        raise InputError(
            "in bash any command that fails gives status 1, which testlib takes for a wrong answer; use kattis",
            field=f"{what}.protocol",
        )
    taken = {row.source, "data", protocols.FEEDBACK, *_launcher(row)}
    if row.run[0].startswith("./"):
        taken.add(row.run[0].removeprefix("./"))
    for name in program.extra_files:
        if name.partition("/")[0] in taken:
            raise InputError(f"{name!r} is a name that is taken; rename that file", field=f"{what}.extra_files")
    found = Special(program, row, what)
    found.written(False)  # names and sizes that cannot be are told now
    for at, case in enumerate(cases):
        if found.room(case) < LEAST_ROOM:
            raise InputError(
                f"its input and answer have {len(case.stdin) + len(case.expected)} bytes, more than the "
                f"{MAX_FILES_BYTES - _MARGIN - LEAST_ROOM} that a {what} program can be given",
                field=f"cases[{at}]",
            )
    return found


def _launcher(row: Language) -> tuple[str, ...]:
    return _LAUNCHERS[row.name][:1] if row.name in _LAUNCHERS else ()


def _files(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {
        name: data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass") for name, data in files.items()
    }
