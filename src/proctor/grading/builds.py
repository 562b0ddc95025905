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
from functools import partial
from typing import Any

from proctor.core.outcome import Outcome
from proctor.engine.job import Case, Job, Program
from proctor.grading import judge

MAX_KEPT = 128 << 20  # bytes of compiled programs
MAX_BINARY = 32 << 20

_guard = threading.RLock()
_kept: OrderedDict[str, Outcome] = OrderedDict()
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
    job, failure = compiling(program), ""
    for _ in range(2):  # the one that was waited for may have been ended with its engine
        (outcome,) = yield Build(job.program, job.cases, job.limits, key=_key(program))
        if (found := binary(program, outcome)) is not None:
            return Program({program.argv[0].removeprefix("./"): found}, program.argv)
        if outcome.error is None:
            end = judge.ending(outcome)
            return f"it does not compile: {end.detail}" if end else "its compiler left no program of at most 32 MiB"
        failure = outcome.error
    return failure


def submit(engine: Any, job: Any, owner: object) -> Future[list[Outcome]]:
    """Give a job to an engine; a Build that was made before is here, and one that is on its way there is waited for."""
    if not isinstance(job, Build):
        future: Future[list[Outcome]] = engine.submit(job, owner=owner)
        return future
    place, child = (id(engine), job.key), Future[list[Outcome]]()
    with _guard:
        if (known := _kept.get(job.key)) is not None:
            _kept.move_to_end(job.key)
            child.set_result([known])
            return child
        shared = _running.get(place)
        first = shared is None
        if shared is None:
            shared = _running[place] = Future()
    shared.add_done_callback(lambda done: _pass_on(done, child))
    if first:  # out of the guard, for an engine has locks of its own
        try:
            running = engine.submit(job, owner=owner)
        except BaseException as exc:
            _over(place)
            shared.set_exception(exc)
            raise
        running.add_done_callback(partial(_settle, place, shared))
    return child


def _settle(place: tuple[int, str], shared: Future[list[Outcome]], done: Future[list[Outcome]]) -> None:
    _over(place, done)
    _pass_on(done, shared)


def _over(place: tuple[int, str], done: Future[list[Outcome]] | None = None) -> None:
    """Nobody needs to wait any more; what is final is kept before that shows."""
    with _guard:
        if done is not None and not done.cancelled() and done.exception() is None:
            for outcome in filter(_is_final, done.result()[:1]):
                _kept[place[1]] = outcome
            while sum(map(_size, _kept.values())) > MAX_KEPT:
                _kept.popitem(last=False)
        _running.pop(place, None)


def _pass_on(done: Future[list[Outcome]], child: Future[list[Outcome]]) -> None:
    if not child.set_running_or_notify_cancel():
        return  # whoever waited has given up
    if done.cancelled():
        child.set_result([Outcome(error="the compilation of the checker was cancelled")])
    elif (exc := done.exception()) is not None:
        child.set_exception(exc)
    else:
        child.set_result(done.result())


def _is_final(outcome: Outcome) -> bool:
    """It is compiled, or the compiler refused the source: another run would say the same."""
    if outcome.compile_failed:
        return outcome.ended_by is None and outcome.signal is None
    return outcome.ok


def _size(outcome: Outcome) -> int:
    return len(outcome.stdout) + len(outcome.stderr) + sum(map(len, outcome.files.values()))


def _key(program: Program) -> str:
    digest = hashlib.sha256(repr((program.argv[0], program.compile)).encode())
    for name, data in sorted(program.files.items()):
        digest.update(f"{len(name)} {len(data)} {name}".encode("utf-8", "surrogatepass"))
        digest.update(data)
    return digest.hexdigest()


def forget() -> None:
    """Drop all that is kept."""
    with _guard:
        _kept.clear()


def _after_fork() -> None:
    global _guard
    _guard = threading.RLock()  # a thread that is not here any more may have held it
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)
