"""What a checker's or an interactor's end says, by the convention that it was written for.

==============  ==========================================================
``testlib``     ``checker input output answer``; 0 accepted; 1, 2, 4 and 8
                wrong; 7 points (``points 0.5 ...`` on standard error);
                3: the judge is at fault
``kattis``      ``validator input answer feedback/ < output``; 42 accepted;
                43 wrong; ``judgemessage.txt`` and ``score.txt`` in feedback
``codeforces``  ``checker.py input answer output``, as open-r1's
                ``generated_checker``: status 0, and all that it prints is 1
                (accepted), 0, or points between
==============  ==========================================================

Whatever else happens to one is a fault of the judge, about the program nothing
is known, and its verdict is ``infrastructure_error``. All that it prints may
quote the program, so it is bounded and escaped.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.grading import judge
from proctor.grading.checkers import excerpt
from proctor.grading.problem import CheckerProgram

# Statuses of our own launchers, which no protocol knows: an exception, one that says that the other side
# has nothing more to say, and any other after the other side had left.
CRASHED, FORSAKEN, BEREFT = 70, 71, 72
FEEDBACK = "feedback"
MESSAGE, SCORE = f"{FEEDBACK}/judgemessage.txt", f"{FEEDBACK}/score.txt"
ACCEPTS = {"testlib": frozenset({0}), "kattis": frozenset({42}), "codeforces": frozenset({0})}
WRONG = {"testlib": frozenset({1, 2, 4, 8}), "kattis": frozenset({43}), "codeforces": frozenset[int]()}
POINTS, JUDGE_FAILED = 7, 3  # testlib's
TOLD = 200  # characters of a judge's words that a detail keeps

_NUMBER = rb"[0-9]{1,15}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?"
_TESTLIB_POINTS = re.compile(rb"points\s+(" + _NUMBER + rb")(?:\s|\Z)")
_ONE_NUMBER = re.compile(_NUMBER)
# Languages in which an exception that nobody caught leaves with a status that testlib takes for a wrong answer.
_CRASH = {
    "java": re.compile(rb"^Exception in thread ", re.MULTILINE),
    "go": re.compile(rb"^(?:panic:|fatal error:|goroutine )", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a judge program says of one case.

    Attributes:
        verdict: accepted, wrong_answer, or infrastructure_error.
        detail: why; printable.
        score: 0 to 1, where it gave points.
        forsaken: it ended because the program had nothing more to say.
        bereft: it crashed after the program had closed its output.
    """

    verdict: Verdict
    detail: str = ""
    score: float | None = None
    forsaken: bool = False
    bereft: bool = False


def arguments(program: CheckerProgram, *, talks: bool = False) -> tuple[str, ...]:
    """Its arguments; ``talks``: it is an interactor. The names are those of ``files_for``."""
    rest = {
        "testlib": ("data/input", "data/output", "data/answer"),
        "kattis": ("data/input", "data/answer", f"{FEEDBACK}/"),
        "codeforces": ("data/input", "data/answer", "data/output"),
    }[program.protocol or ""]
    return (*rest, *program.flags)


def files_for(program: CheckerProgram, given: bytes, answer: bytes, output: bytes | None) -> dict[str, bytes]:
    """The files of one run; an output of None is on standard input, or an interactor's to write."""
    files = {"data/input": given, "data/answer": answer}
    if output is not None and program.protocol != "kattis":
        files["data/output"] = output
    return files | ({f"{FEEDBACK}/.keep": b""} if program.protocol == "kattis" else {})


def collected(program: CheckerProgram) -> tuple[str, ...]:
    """The files to bring back from a run."""
    return (MESSAGE, SCORE) if program.protocol == "kattis" else ()


def ruling(program: CheckerProgram, outcome: Outcome, what: str = "checker") -> Ruling:
    """What the end of one run says; ``what`` it is called in details."""
    if outcome.error is not None:
        return _fault(outcome.error)
    if outcome.compile_failed:
        end = judge.ending(outcome)
        return _fault(f"the {what} does not compile: {end.detail if end else ''}")
    if outcome.ended_by is EndedBy.NOT_RUN:
        return _fault(f"the {what} was not run: it had exceeded its time limit in an earlier case")
    if outcome.ended_by is not None or outcome.exit_code is None:
        end = judge.ending(outcome)
        gone = outcome.ended_by is None and outcome.signal == signal.SIGPIPE
        return _fault(f"the {what} {end.detail if end else 'did not end'}", forsaken=gone)
    code = outcome.exit_code
    if code in (CRASHED, FORSAKEN, BEREFT):
        detail = f"the {what} crashed: {judge.last_words(outcome) or 'without a word'}"
        return _fault(detail, forsaken=code == FORSAKEN, bereft=code == BEREFT)
    if code in WRONG[program.protocol or ""]:
        if (crash := _CRASH.get(program.language)) and crash.search(outcome.stderr):
            return _fault(f"the {what} crashed: {judge.last_words(outcome) or 'without a word'}")
        return Ruling(Verdict.WRONG_ANSWER, _words(program, outcome) or f"the {what} said no")
    if code in ACCEPTS[program.protocol or ""]:
        return _accepted(program, outcome, what)
    if program.protocol == "testlib" and code == POINTS:
        found = _TESTLIB_POINTS.match(outcome.stderr)
        return _points(program, found and found.group(1), outcome, what)
    if program.protocol == "testlib" and code == JUDGE_FAILED:
        return _fault(f"the {what} says that the judge is at fault: {_words(program, outcome)}")
    if code == 120 and program.language == "python":
        return _fault(f"the {what} could not write its last words", forsaken=True)
    return _fault(f"the {what} left with status {code}, which protocol {program.protocol} does not have")


def _accepted(program: CheckerProgram, outcome: Outcome, what: str) -> Ruling:
    if program.protocol == "kattis" and SCORE in outcome.files:
        return _points(program, _number(outcome.files[SCORE]), outcome, what)
    if program.protocol == "codeforces":
        said = outcome.stdout.strip()
        first = said.split(b"\n", 1)[0].strip()
        return _points(program, b"0" if first == b"0" else _number(said), outcome, what, plain=True)
    if program.protocol == "testlib" and outcome.stderr.startswith(b"partially correct ("):
        return _fault(f"the {what} gave a part by its exit status, which may be any; quitp(points) is read")
    return Ruling(Verdict.ACCEPTED)


def _number(text: bytes) -> bytes | None:
    text = text.strip()  # all of it: what follows a number may be the verdict, after blanks of the program's
    return text if len(text) <= 100 and _ONE_NUMBER.fullmatch(text) else None


def _points(program: CheckerProgram, said: bytes | None, outcome: Outcome, what: str, *, plain: bool = False) -> Ruling:
    """A score from points; ``plain``: all and nothing are a mere yes and no."""
    value = None if said is None else float(said)
    if value is None or not 0 <= value <= program.points:
        shown = excerpt(outcome.files.get(SCORE, outcome.stdout if plain else outcome.stderr), 80)
        return _fault(f"the {what} gave no points from 0 to {program.points:g}: '{shown}'")
    score = value / program.points
    words = _words(program, outcome)
    if score >= 1:
        return Ruling(Verdict.ACCEPTED, "", None if plain else 1.0)
    if plain and score == 0:
        return Ruling(Verdict.WRONG_ANSWER, words or f"the {what} said no")
    return Ruling(Verdict.WRONG_ANSWER, f"partial score {score:.6g}" + (f": {words}" if words else ""), score)


def _fault(detail: str, *, forsaken: bool = False, bereft: bool = False) -> Ruling:
    return Ruling(Verdict.INFRASTRUCTURE_ERROR, detail, None, forsaken, bereft)


def _words(program: CheckerProgram, outcome: Outcome) -> str:
    """Why it decided so, in its own words."""
    said = outcome.stderr
    if program.protocol == "kattis":
        said = outcome.files.get(MESSAGE, b"")
    elif program.protocol == "codeforces":
        said = outcome.stdout.strip().partition(b"\n")[2] or outcome.stderr
    return excerpt(b" ".join(said[: 4 * TOLD].split()), TOLD)
