"""Agents are killed and stopped at random through a batch: every outcome is right, and nothing is left.

    python tests/engine/test_chaos.py 1000 [SEED]

runs a longer batch than the test and prints what happened.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from engine_help import agents_of, descendants, descriptors, gone, job, kill, leavings

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine import link
from proctor.engine.job import Job
from proctor.engine.shared import SyncEngine

LIMITS = Limits(cpu_s=0.5, wall_s=20, memory_mib=96)
Right = Callable[[Outcome], bool]


def _jobs(count: int) -> Iterator[tuple[Job, list[Right]]]:
    """Jobs of many kinds, and for each of their cases what is right."""

    def printed(text: bytes) -> Right:
        return lambda o: (o.exit_code, o.stdout, o.ended_by) == (0, text, None)

    kinds: list[Callable[[int], tuple[Job, list[Right]]]] = [
        lambda i: (job("print(sum(map(int, input().split())))", b"%d 1" % i, b"%d 2" % i, limits=LIMITS), [printed(b"%d\n" % (i + 1)), printed(b"%d\n" % (i + 2))]),
        lambda i: (job(f"import time; time.sleep(0.05); print({i})", b"", b"", b"", limits=LIMITS), [printed(b"%d\n" % i)] * 3),
        lambda i: (job(f"import sys; sys.exit({i % 256})", limits=LIMITS), [lambda o: o.exit_code == i % 256]),
        lambda i: (job("print(1 / 0)", limits=LIMITS), [lambda o: o.exit_code == 1 and b"ZeroDivisionError" in o.stderr]),
        lambda i: (job(f"import os\nif os.fork(): os.wait()\nelse: print({i})", limits=LIMITS), [printed(b"%d\n" % i)]),
        lambda i: (job(f"print('{i}' * 50_000)", limits=LIMITS), [printed(str(i).encode() * 50_000 + b"\n")]),
        lambda i: (job(f"print({i})", limits=LIMITS, warm=False), [printed(b"%d\n" % i)]),
        lambda i: (job("import os; os.kill(os.getpid(), 9)", limits=LIMITS), [lambda o: (o.signal, o.ended_by) == (9, None)]),
        lambda i: (job("while True: pass", limits=LIMITS.with_(cpu_s=0.1)), [lambda o: o.ended_by is EndedBy.CPU]),
        lambda i: (job("import time; time.sleep(1000)", limits=LIMITS.with_(wall_s=0.2)), [lambda o: o.ended_by is EndedBy.WALL]),
        lambda i: (job("x = b'x' * (200 << 20)", limits=LIMITS.with_(cpu_s=5)), [lambda o: o.ended_by is EndedBy.MEMORY]),
        lambda i: (job("import sys\nwhile True: sys.stdout.write('x' * 1000)", limits=LIMITS.with_(output_bytes=10_000, cpu_s=5)), [lambda o: (o.ended_by, o.stdout) == (EndedBy.OUTPUT, b"x" * 10_000)]),
    ]  # fmt: skip
    weights = [20, 8, 5, 5, 5, 5, 3, 2, 2, 2, 1, 2]
    choose = random.Random(0)
    for i in range(count):
        yield choose.choices(kinds, weights)[0](i)


class Chaos:
    """A thread that hits the processes of agents, once for every ``pause`` jobs that are done, on average."""

    def __init__(self, engine: SyncEngine, seed: int, pause: float, cases_until: int) -> None:
        self.engine, self.random, self.pause = engine, random.Random(seed), pause
        self.hits: Counter[str] = Counter()
        self.done = 0
        self.cases_until = cases_until  # jobs that still wait when cases are no longer hit
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Chaos:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def count(self, future: object) -> None:
        self.done += 1

    def _run(self) -> None:
        due = 0.0
        while not self._over.wait(self.random.uniform(0.005, 0.05)):
            # By progress, not by time: a job on a slow host is not hit more often.
            if self.done < due:
                continue
            pids = self.engine.agent_pids()
            if not pids:
                continue
            supervisor = self.random.choice(pids)
            zygotes, jails, cases = agents_of(supervisor)
            if not jails and self.random.random() < 0.9:
                continue  # it is just starting: mostly let it
            spare = self.engine._engine._admission.waiting <= self.cases_until
            targets = {"supervisor": [supervisor], "zygote": zygotes, "jail": jails, "case": [] if spare else cases}
            names = [name for name, pids in targets.items() if pids]
            name = "case" if targets["case"] and self.random.random() < 0.5 else self.random.choice(names)
            # A case that is stopped is a program that sleeps; only agents are hit with that.
            number = signal.SIGKILL if name == "case" or self.random.random() < 0.7 else signal.SIGSTOP
            if kill(self.random.choice(targets[name]), number):
                self.hits[f"{signal.Signals(number).name} {name}"] += 1
                due = self.done + self.random.uniform(0.2, 1.8) * self.pause


def chaos(count: int, seed: int, pause: float) -> tuple[Counter[str], int, list[str]]:
    """Run a batch under fire; the hits, the agents that were replaced, and every outcome that was not right."""
    wrong: list[str] = []
    engine = SyncEngine(slots=2)
    work = list(_jobs(count))
    # A case that was killed runs again behind all that wait: a second hit would count as its own doing.
    fire = Chaos(engine, seed, pause, cases_until=count // 2)
    futures = [engine.submit(job) for job, _ in work]
    for future in futures:
        future.add_done_callback(fire.count)
    with fire:
        for at, (future, (job_, right)) in enumerate(zip(futures, work, strict=True)):
            outcomes = future.result()
            if len(outcomes) != len(job_.cases):
                wrong.append(f"{at}: {len(outcomes)} outcomes")
            for outcome, good in zip(outcomes, right, strict=True):
                if outcome.error or not good(outcome):
                    wrong.append(f"{at} {job_.program.files}: {outcome}"[:1000])
    replaced = engine.replaced
    engine.close()
    return fire.hits, replaced, wrong


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENCE_S", 2.0)


def under_fire(count: int) -> None:
    before = descriptors()
    hits, replaced, wrong = chaos(count, seed=1, pause=6)
    assert not wrong
    assert hits.total() >= count // 15
    assert replaced >= count // 40
    assert descriptors() == before


def test_three_hundred_jobs_under_fire(clean: None) -> None:
    under_fire(300)


@pytest.mark.environments
def test_forty_jobs_under_fire(clean: None) -> None:
    under_fire(40)


if __name__ == "__main__":
    link.SILENCE_S = 3.0
    start, descriptors_before = time.monotonic(), descriptors()
    what, new, bad = chaos(int(sys.argv[1]), seed=int((sys.argv[2:] or ["1"])[0]), pause=6)
    print(
        f"{sys.argv[1]} jobs in {time.monotonic() - start:.0f} s; hits {dict(what)}, {what.total()} in all; {new} agents replaced"
    )
    print(f"not right: {len(bad)}", *bad, sep="\n")
    print("left:", gone(leavings), descendants([os.getpid()]), descriptors() - descriptors_before)
