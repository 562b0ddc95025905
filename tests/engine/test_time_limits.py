"""Time limits on a busy host: a right program never flips, a loop never gets away, a sleeper sleeps no longer."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from engine_help import job, one

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy
from proctor.engine.shared import SyncEngine

BUSY = "import time\nend = time.monotonic() + 90\nwhile time.monotonic() < end: pass"
WORK = "import time\nwhile time.process_time() < {}: pass\nprint('done')"


@pytest.fixture(scope="module")
def busy() -> Iterator[None]:
    """Eight processes that want a CPU each, ended after the tests, or by themselves."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(8)]
    time.sleep(0.2)
    yield
    assert all(process.poll() is None for process in processes)  # it was as busy as it should be
    for process in processes:
        process.kill()
        process.wait()


def test_a_third_of_the_limit_never_flips(engine: SyncEngine, busy: None) -> None:
    futures = [engine.submit(job(WORK.format(0.3), limits=Limits(cpu_s=1.0, memory_mib=128))) for _ in range(5)]
    for future in futures:
        (outcome,) = future.result()
        assert (outcome.error, outcome.ended_by, outcome.stdout) == (None, None, b"done\n")


def test_the_wait_for_a_cpu_is_not_the_programs(engine: SyncEngine, busy: None) -> None:
    """Its wall limit is the CPU time that it needs and little more; on this host it takes several times that."""
    limits = Limits(cpu_s=5, wall_s=0.6, memory_mib=128)
    for future in [engine.submit(job(WORK.format(0.3), limits=limits)) for _ in range(3)]:
        (outcome,) = future.result()
        assert (outcome.error, outcome.ended_by, outcome.stdout) == (None, None, b"done\n")


ELSEWHERE = {
    "thread": """
import threading, time
def work():
    while time.process_time() < 0.4: pass
    print("done")
thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    "child": """
import subprocess, sys
work = "import time\\nwhile time.process_time() < 0.4: pass\\nprint('done', flush=True)"
subprocess.run([sys.executable, "-c", work])
""",
    "many children": """
import os, time
for _ in range(10):
    if os.fork() == 0:
        start = time.process_time()
        while time.process_time() < start + 0.04: pass
        os._exit(0)
    os.wait()
print("done")
""",
    "turns": """
import os, time
down, up = os.pipe(), os.pipe()
child = os.fork() == 0
source, sink = (down[0], up[1]) if child else (up[0], down[1])
for turn in range(10):
    if child or turn:
        os.read(source, 1)
    end = time.process_time() + 0.02
    while time.process_time() < end: pass
    os.write(sink, b"x")
if not child:
    os.wait()
    print("done")
""",
}


@pytest.mark.parametrize("where", ELSEWHERE)
def test_nor_is_that_of_a_thread_or_a_child(engine: SyncEngine, busy: None, where: str) -> None:
    """Work may be done by any thread of any process, by one after the other, or by two in turn."""
    limits = Limits(cpu_s=5, wall_s=0.8, memory_mib=128)
    for future in [engine.submit(job(ELSEWHERE[where], limits=limits)) for _ in range(3)]:
        (outcome,) = future.result()
        assert (outcome.error, outcome.ended_by, outcome.stdout) == (None, None, b"done\n")
        assert outcome.wall_s - outcome.waited_s < 0.8


def test_loops_are_ended(engine: SyncEngine, busy: None) -> None:
    for future in [engine.submit(job("while True: pass", limits=Limits(cpu_s=0.2, memory_mib=128))) for _ in range(3)]:
        (outcome,) = future.result()
        assert (outcome.error, outcome.ended_by) == (None, EndedBy.CPU)


@pytest.mark.parametrize("factor", [1.3, 1.7])
def test_over_the_limit_is_over_it_on_any_host(engine: SyncEngine, busy: None, factor: float) -> None:
    """Too little to be ended for at once; it runs again alone, and counts then."""
    (outcome,) = engine.run(job(WORK.format(factor * 0.3), limits=Limits(cpu_s=0.3, memory_mib=128)))
    assert (outcome.error, outcome.ended_by, outcome.confirmed) == (None, EndedBy.CPU, True)


def test_sleepers_are_ended_on_time(engine: SyncEngine, busy: None) -> None:
    for source in ("import time; time.sleep(1000)", "import threading; threading.Event().wait()"):
        outcome = one(engine, source, limits=Limits(cpu_s=5, wall_s=1.0, memory_mib=128))
        assert outcome.ended_by is EndedBy.WALL
        assert 1.0 <= outcome.wall_s < 5


@pytest.mark.parametrize("low", ["os.nice(19)", "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"])
def test_who_chose_to_be_behind_all_others_does_not_wait_for_a_cpu(engine: SyncEngine, busy: None, low: str) -> None:
    outcome = one(engine, f"import os\n{low}\nwhile True: pass", limits=Limits(cpu_s=5, wall_s=1.0, memory_mib=128))
    assert outcome.ended_by is EndedBy.WALL
    assert 1.0 <= outcome.wall_s < 5
    assert outcome.waited_s < 0.2
