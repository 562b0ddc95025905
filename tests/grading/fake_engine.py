"""An engine that runs nothing: a function of the test's own answers each job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from proctor.core.outcome import Outcome
from proctor.engine.job import Case, Job
from proctor.guest import protocol


class FakeEngine:
    """``answer(job)`` gives the Outcomes; ``jobs`` and ``most`` tell what came, and how much at once."""

    def __init__(self, answer: Callable[[Job], Sequence[Outcome]], slots: int = 2) -> None:
        self.answer, self.slots = answer, slots
        self.jobs: list[Job] = []
        self.now = self.most = 0
        self._guard = threading.Lock()
        self._pool = ThreadPoolExecutor(slots)

    def submit(self, job: Job, *, owner: object = None) -> Future[list[Outcome]]:
        with self._guard:
            self.jobs.append(job)
            self.now += 1
            self.most = max(self.most, self.now)
        return self._pool.submit(self._run, job)

    def _run(self, job: Job) -> list[Outcome]:
        try:
            return list(self.answer(job))
        finally:
            with self._guard:
                self.now -= 1

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def ran(stdout: bytes = b"", **more: Any) -> Outcome:
    """A case that left with status 0."""
    return Outcome(**{"exit_code": 0, "stdout": stdout, "cpu_s": 0.01, "wall_s": 0.02, **more})


def each(answer: Callable[[Case], Outcome]) -> Callable[[Job], Sequence[Outcome]]:
    """An engine's answer from a case's."""
    return lambda job: [answer(case) for case in job.cases]


def calls_of(case: Case) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """The calls that a request asks for."""
    assert case.request is not None
    return protocol.decode_value(case.request)["calls"]  # type: ignore[no-any-return]


def returned(*values: Any) -> bytes:
    """A result stream of calls that gave these values."""
    return b"".join(protocol.record(("value", value)) for value in values)


def raised(name: str, message: str = "") -> bytes:
    """A result stream of a call that raised."""
    return protocol.record(("raised", name, message))


def report(case: Case, tests: dict[str, bool], finished: bool = True) -> bytes:
    """A result stream of a test run."""
    assert case.request is not None
    nonce = protocol.decode_value(case.request)["nonce"]
    rows = [protocol.record(("test", name, good, "" if good else "assert 1 == 2")) for name, good in tests.items()]
    return b"".join(rows) + (protocol.record(("finished", nonce)) if finished else b"")
