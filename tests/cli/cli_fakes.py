"""A stand-in for the engine: it runs nothing, and answers what a test tells it to.

As a program, ``python cli_fakes.py VERB ...`` is ``proctor`` with such an engine:
a program that says ``print(6)`` outputs 6, after ``FAKE_DELAY`` seconds;
``FAKE_BROKEN`` is a pattern of programs on which the engine fails.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import types
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from proctor.core.outcome import Outcome
from proctor.engine.job import Job

Answer = Callable[[Job], list[Outcome]]


class FakeEngine:
    """Holds every job that it was given."""

    isolation = "fake"

    def __init__(self, answer: Answer, slots: int = 2) -> None:
        self.answer, self.slots, self.jobs = answer, slots, list[Job]()
        self._pool = ThreadPoolExecutor(slots)
        self._guard = threading.Lock()

    def run(self, job: Job) -> list[Outcome]:
        """What the test said, for each job."""
        with self._guard:
            self.jobs.append(job)
        return self.answer(job)

    def submit(self, job: Job, *, owner: object = None) -> Future[list[Outcome]]:
        """The same, later."""
        return self._pool.submit(self.run, job)


def printed(job: Job) -> list[Outcome]:
    """Outcomes of a program that is ``print(NUMBER)``, and of one that the engine fails on."""
    time.sleep(float(os.environ.get("FAKE_DELAY", "0")))
    source = b"\n".join(job.program.files.values()).decode()
    broken = os.environ.get("FAKE_BROKEN")
    if broken and re.search(broken, source):
        return [Outcome(error="no slot\x1b]0;owned\x07") for _ in job.cases]
    found = re.search(r"print\((.*)\)", source)
    return [
        Outcome(exit_code=0, stdout=(found[1] if found else "").encode(), cpu_s=0.01, wall_s=0.01) for _ in job.cases
    ]


def module_of(engine: FakeEngine) -> types.ModuleType:
    """A module that gives this engine out."""
    module = types.ModuleType("proctor.engine.shared")
    module.shared_engine = lambda **settings: engine  # type: ignore[attr-defined]
    module.close_all = lambda: None  # type: ignore[attr-defined]
    return module


def fake_engine(patch: pytest.MonkeyPatch, answer: Answer) -> FakeEngine:
    """Put a fake in the place of ``proctor.engine.shared`` for one test."""
    engine = FakeEngine(answer)
    patch.setitem(sys.modules, "proctor.engine.shared", module_of(engine))
    return engine


if __name__ == "__main__":
    sys.modules["proctor.engine.shared"] = module_of(FakeEngine(printed))
    from proctor.cli.main import main

    main()
