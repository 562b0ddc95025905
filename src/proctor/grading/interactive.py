"""Interactive problems: the program and an interactor talk through two pipes, each in a jail of its own.

One Pair a case, in order. The interactor's verdict decides:

* What it calls wrong is a wrong answer, and ends the program at once, however
  the program would have ended: which of the two is seen first may hang on the load.
* A program that exceeds a limit of its own has that verdict.
* What it accepts counts only where the program then ends well. That nobody
  reads its last words any more is no fault of the program.
* An interactor that crashes or exceeds a limit is our fault, unless it ended
  because the program had: an end of input that it did not look for, a broken
  pipe, or any crash after a program that had crashed itself.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from dataclasses import replace

from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import STOP_AFTER, Case, Job, Pair, Program
from proctor.engine.languages import Language
from proctor.engine.languages import program as make_program
from proctor.grading import builds, judge, protocols
from proctor.grading.grades import CaseGrade
from proctor.grading.problem import TestCase
from proctor.grading.protocols import Ruling
from proctor.grading.special import Special, graded

_OVER = (EndedBy.CPU, EndedBy.WALL, EndedBy.MEMORY, EndedBy.OUTPUT)
_MINE = (EndedBy.CPU, EndedBy.MEMORY, EndedBy.OUTPUT)
_ENDS = frozenset(range(-64, 256))  # a program does not go on without its interactor: what it would do is not its fault
IDLE, BUSY = 0.1, 0.5  # CPU per wall time
Talking = Generator["Job | Pair", Sequence[Outcome], tuple[CaseGrade, ...]]


def interactive(
    interactor: Special, row: Language, limits: Limits, cases: Sequence[TestCase],
    source: str, files: dict[str, bytes], warm: bool,
) -> Talking:  # fmt: skip
    """The grades of a program against an interactor, case by case."""
    program = make_program(source, row.name, warm=warm, files=files, memory_mib=limits.memory_mib)
    half = Job(program, (Case(talk="stdio"),), limits)
    if program.compile is not None and program.argv[0].startswith("./"):
        (outcome,) = yield builds.compiling(program)
        if outcome.compile_failed or outcome.error is not None:
            end = judge.ending(outcome) or judge.Ending(Verdict.COMPILE_ERROR, "the compiler failed")
            return (judge.ended(outcome, end),) * len(cases)
        if (found := builds.binary(program, outcome)) is not None:
            built = Program({**program.files, program.argv[0].removeprefix("./"): found}, program.argv)
            try:
                half = replace(half, program=built)
            except InputError as exc:
                end = judge.Ending(Verdict.COMPILE_ERROR, f"what was compiled is too large: {exc}")
                return (judge.ended(outcome, end),) * len(cases)
    other = yield from interactor.ready(warm)
    if isinstance(other, str):
        return judge.failed(f"the interactor: {other}", len(cases))
    grades: list[CaseGrade] = []
    late = 0
    for case in cases:
        if late >= STOP_AFTER:
            detail = "not run: the program had already exceeded its time limit too often"
            grades.append(CaseGrade(verdict=Verdict.TIME_LIMIT, detail=detail))
            continue
        outcome, told = yield _pair(interactor, half, other, case)
        grade = judge_talk(outcome, told, protocols.ruling(interactor.program, told, "interactor"))
        late += grade.verdict is Verdict.TIME_LIMIT
        grades.append(grade)
    return tuple(grades)


def _pair(interactor: Special, half: Job, other: Program, case: TestCase) -> Pair:
    files = protocols.files_for(interactor.program, case.stdin, case.expected, None)
    talk = Case(files=files, collect=protocols.collected(interactor.program), talk="stdio")
    patient = interactor.fitting(other, [talk]).with_(wall_s=2 * half.limits.wall + 10)
    name = interactor.program.protocol or ""
    going_on = protocols.ACCEPTS[name] | ({protocols.POINTS} if name == "testlib" else set())
    return Pair(half, Job(other, (talk,), patient), stop_on=_ENDS - going_on)


def judge_talk(program: Outcome, interactor: Outcome, said: Ruling) -> CaseGrade:
    """The grade of one case; ``said``: what the interactor's end says."""
    if program.error is not None:
        return judge.failed(program.error, 1)[0]
    end = None if program.ended_by is EndedBy.CANCELLED else judge.ending(program)
    if program.compile_failed and end is not None:
        return judge.ended(program, end)
    if end is not None and program.ended_by in _OVER:
        return _over(program, interactor, end)
    if said.verdict is Verdict.WRONG_ANSWER and said.score is None:
        return graded(_stopped(program), said)
    if said.verdict is Verdict.INFRASTRUCTURE_ERROR:
        if end is not None and (said.forsaken or said.bereft):
            return judge.ended(program, end)
        if said.forsaken:
            detail = "the program had no more to say, or to hear, before the interactor was done"
            return graded(_stopped(program), Ruling(Verdict.WRONG_ANSWER, detail))
        return graded(program, said)
    if end is None:
        return graded(program, said)
    if _unheard(program):  # another time it might have been faster than the interactor's end
        return graded(replace(program, exit_code=0, signal=None), said)
    return judge.ended(program, end)


def _over(program: Outcome, interactor: Outcome, end: judge.Ending) -> CaseGrade:
    """A program that met a limit of its own."""
    if program.ended_by is EndedBy.WALL:
        if interactor.ended_by in _MINE or interactor.cpu_s > BUSY * program.wall_s:
            detail = f"the interactor computed for {interactor.cpu_s:.1f} s while the program waited for it"
            return graded(program, Ruling(Verdict.INFRASTRUCTURE_ERROR, detail))
        if program.cpu_s < IDLE * program.wall_s:
            end = replace(end, detail=f"{end.detail}: idle, it and the interactor waited for each other")
    return judge.ended(program, end)


def _stopped(program: Outcome) -> Outcome:
    """As one that the interactor ended: whether it had left by itself just before hangs on the load."""
    return replace(program, exit_code=None, signal=None, ended_by=EndedBy.CANCELLED)


def _unheard(program: Outcome) -> bool:
    """It died of writing what nobody reads any more."""
    if program.signal is not None:
        return program.signal == signal.SIGPIPE
    rows = program.stderr[-4096:].strip().splitlines()
    return program.exit_code == 120 or bool(rows and rows[-1].startswith(b"BrokenPipeError"))
