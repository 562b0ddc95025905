"""What the tests of faults share: small problems, grading of one program, and a look at the host's processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import proctor
from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.engine.job import Case, Job, Program
from proctor.engine.languages import program
from proctor.engine.shared import SyncEngine
from proctor.grading.grades import Grade
from proctor.grading.problem import Problem, TestCase

PATIENCE = 60.0  # seconds that a busy host may take for what takes milliseconds
ADD = "a,b=map(int,input().split())\nprint(a+b)\n"


def stdio(*cases: tuple[str | bytes, str | bytes], **more: Any) -> Problem:
    """A problem of pairs of input and expected output."""
    rows = tuple(TestCase(stdin=_bytes(given), expected=_bytes(want)) for given, want in cases)
    return Problem(**{"id": "p", "mode": "stdio", "cases": rows, "time_limit_s": 2, "memory_limit_mib": 256, **more})


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


SUM = stdio(("3 4\n", "7\n"), ("10 -2\n", "8\n"))


def graded(engine: SyncEngine, source: str, problem: Problem = SUM, **options: Any) -> Grade:
    """One program as it is, graded on the real engine."""
    (found,) = proctor.grade([source], problem, engine=engine, extract="whole", **options)
    return found


def ran(engine: SyncEngine, made: Program | str, *cases: Case, limits: Limits | None = None) -> list[Outcome]:
    """What cases of a program (Python where it is text) did; none may be the host's fault."""
    made = program(made) if isinstance(made, str) else made
    found = engine.run(Job(made, cases or (Case(),), limits or Limits(cpu_s=5, memory_mib=256)))
    assert [outcome.error for outcome in found] == [None] * len(found)
    return found


def counts_exactly(engine: SyncEngine) -> bool:
    """A case's processes are told from others of this user, so that the limit on them is exact."""
    return bool(engine.features["namespaces"] or engine.features["root"])


def processes_with(word: str) -> list[int]:
    """Living processes of this host whose arguments have ``word`` in them, this one left out."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if word.encode() in words and state not in (b"Z", b"X"):
            found.append(int(name))
    return found


def until(happened: Callable[[], Any]) -> bool:
    """Wait for something to be true, for as long as a busy host may take."""
    end = time.monotonic() + PATIENCE
    while not (found := happened()) and time.monotonic() < end:
        time.sleep(0.01)
    return bool(found)


def sum_in_a_worker(expected: float) -> bool:
    """Grade a right program in the process that calls this; at the top of a module, so that workers can be sent it."""
    from proctor.engine.shared import close_all

    try:
        return proctor.score([ADD], SUM, workers=1) == [expected]
    finally:
        close_all()
