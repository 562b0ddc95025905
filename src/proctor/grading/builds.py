"""Judge programs are compiled once in a process, whatever number of programs they judge.

A ``Build`` is a Job that only compiles. While one is on its way, whoever needs
the same one waits for it. What it gave is kept by its content.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from proctor.core.outcome import Outcome
from proctor.engine.job import Case, Job, Program
from proctor.grading import judge

MAX_KEPT = 128 << 20  # bytes of compiled programs
MAX_BINARY = 32 << 20

_guard = threading.RLock()
_kept: OrderedDict[str, bytes | str] = OrderedDict()
_running: dict[tuple[int, str], Future[list[Outcome]]] = {}


@dataclass(frozen=True, slots=True)
class Build(Job):
    """A job that compiles a program and brings back one file of it; ``key``: equal for equal ones."""

    key: str = ""


def compiling(program: Program) -> Job:
    """A job that compiles a program whose command is ``./NAME``, and brings back that file."""
    name = program.argv[0].removeprefix("./")
    built = Program(program.files, program.argv[:1], compile=program.compile)
    return Job(built, (Case(argv=("true",), collect=(name,), collect_bytes=MAX_BINARY),))


def binary(program: Program, outcome: Outcome) -> bytes | None:
    """What that job gave; None: it gave nothing."""
    return outcome.files.get(program.argv[0].removeprefix("./")) if outcome.ok else None


def once(program: Program) -> Generator[Job, Sequence[Outcome], Program | str]:
    """A judge's program, compiled already where that can be kept; a text says why there is none."""
    if program.compile is None or not program.argv[0].startswith("./"):
        return program
    job, key = compiling(program), _key(program)
    found = _look(key)
    for _ in range(2):  # the one that was waited for may have been ended with its engine
        if found is not None:
            break
        (outcome,) = yield Build(job.program, job.cases, job.limits, key=key)
        failure = outcome.error or ""
        found = None if failure else _result(program, outcome)
        if found is not None and (isinstance(found, bytes) or _is_its_own(outcome)):
            _keep(key, found)
    if found is None:
        return failure
    if isinstance(found, str):
        return found
    return Program({program.argv[0].removeprefix("./"): found}, program.argv)


def submit(engine: Any, job: Any, owner: object) -> Future[list[Outcome]]:
    """Give a job to an engine; a Build that is on its way there is waited for."""
    if not isinstance(job, Build):
        future: Future[list[Outcome]] = engine.submit(job, owner=owner)
        return future
    place, child = (id(engine), job.key), Future[list[Outcome]]()
    with _guard:
        parent = _running.get(place)
        if parent is None:
            parent = _running[place] = engine.submit(job, owner=owner)
            parent.add_done_callback(lambda done: _over(place, done))
    parent.add_done_callback(lambda done: _pass_on(done, child))
    return child


def _over(place: tuple[int, str], done: Future[list[Outcome]]) -> None:
    with _guard:
        if _running.get(place) is done:
            del _running[place]


def _pass_on(done: Future[list[Outcome]], child: Future[list[Outcome]]) -> None:
    if not child.set_running_or_notify_cancel():
        return  # whoever waited has given up
    if done.cancelled():
        child.set_result([Outcome(error="the compilation of the checker was cancelled")])
    elif (exc := done.exception()) is not None:
        child.set_exception(exc)
    else:
        child.set_result(done.result())


def _result(program: Program, outcome: Outcome) -> bytes | str:
    if (found := binary(program, outcome)) is not None:
        return found
    end = judge.ending(outcome)
    return f"it does not compile: {end.detail}" if end else "its compiler left no program of at most 32 MiB"


def _is_its_own(outcome: Outcome) -> bool:
    """The compiler refused the source: it will do so again."""
    return outcome.compile_failed and outcome.ended_by is None and outcome.signal is None


def _key(program: Program) -> str:
    digest = hashlib.sha256(repr((program.argv[0], program.compile)).encode())
    for name, data in sorted(program.files.items()):
        digest.update(f"{len(name)} {len(data)} {name}".encode("utf-8", "surrogatepass"))
        digest.update(data)
    return digest.hexdigest()


def _look(key: str) -> bytes | str | None:
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
        return _kept.get(key)


def _keep(key: str, found: bytes | str) -> None:
    with _guard:
        _kept[key] = found
        while sum(map(len, _kept.values())) > MAX_KEPT:
            _kept.popitem(last=False)


def forget() -> None:
    """Drop all that is kept."""
    with _guard:
        _kept.clear()


def _after_fork() -> None:
    global _guard
    _guard = threading.RLock()  # a thread that is not here any more may have held it
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)
