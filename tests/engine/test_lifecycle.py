"""Nothing survives: not a job's end, not the engine's, not the trainer's, however it comes; and one engine serves all."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from engine_help import (
    PATIENCE,
    SMALL,
    agents_of,
    descendants,
    descriptors,
    finished,
    gone,
    job,
    kill,
    leavings,
    left,
    one,
    resident_mib,
    run,
    trainer,
    until,
)  # fmt: skip

from proctor.core.errors import InfrastructureError
from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.engine import engine as engine_module
from proctor.engine.engine import Engine
from proctor.engine.job import Job
from proctor.engine.shared import SyncEngine, shared_engine
from proctor.images.host import host_image
from proctor.isolation import sweep
from proctor.isolation.identities import Identities
from proctor.isolation.jail import JailBoundary

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(1000)\n"
LONG = Limits(cpu_s=5, wall_s=600, memory_mib=128)
ADD = "print(sum(map(int, input().split())))"


def working(supervisor: int) -> bool:
    """A case runs below this supervisor."""
    return bool(agents_of(supervisor)[2])


# ---------------------------------------------------------------- the trainer's end

BATCH = """
import os
taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]  # what agents open themselves has lower numbers then
engine = SyncEngine(slots=2)
futures = [engine.submit(job({sleep!r}, limits=Limits(wall_s=600, memory_mib=128))) for _ in range(6)]
until(lambda: all(agents_of(pid)[2] for pid in engine.agent_pids()) and len(engine.agent_pids()) == 2)
{then}
print(*engine.agent_pids(), flush=True)
sys.stdin.readline()
"""
FORKS = """
import ctypes
children = [os.fork()]
if not children[0]:
    time.sleep(1000)
children.append(ctypes.PyDLL(None).fork())  # a fork that Python does not hear of
if not children[1]:
    ctypes.PyDLL(None).pause()
print(*children, flush=True)
"""


@pytest.mark.environments
@pytest.mark.parametrize("stopped", [False, True], ids=["", "stopped"])
@pytest.mark.parametrize("forked", [False, True], ids=["", "forked"])
def test_a_trainer_is_killed(forked: bool, stopped: bool) -> None:
    """With SIGKILL, in the middle of a batch; forked children hold its descriptors; its supervisors were stopped before."""
    with trainer(BATCH.format(sleep=SLEEP, then=FORKS if forked else "")) as process:
        assert process.stdout
        children = [int(word) for word in process.stdout.readline().split()] if forked else []
        supervisors = [int(word) for word in process.stdout.readline().split()]
        try:
            assert len(supervisors) == 2
            assert len(descendants(supervisors)) == 6  # zygote, jail and case each
            for supervisor in supervisors if stopped else []:
                kill(supervisor, signal.SIGSTOP)
            process.kill()
            process.wait()
            mine = tuple(f"process {child} " for child in children)
            left = gone(lambda: [line for line in leavings(process.pid) if not line.startswith(mine)], patience=20)
            assert not left
            assert all(Path(f"/proc/{child}").exists() for child in children)
        finally:
            for child in children:
                kill(child)


@pytest.mark.environments
def test_an_interpreter_that_ends_without_close() -> None:
    assert finished("print(shared_engine(slots=2).run(job('print(1)'))[0].stdout)").strip() == "b'1\\n'"
    assert finished("engine = SyncEngine(slots=2)\nprint(engine.run(job('print(1)'))[0].stdout)").strip() == "b'1\\n'"


def test_an_interpreter_that_ends_while_jobs_run() -> None:
    script = (
        f"engine = shared_engine(slots=2)\nfutures = [engine.submit(job({SLEEP!r})) for _ in range(6)]\ntime.sleep(0.5)"
    )
    start = time.monotonic()
    finished(script)
    assert time.monotonic() - start < PATIENCE


@pytest.mark.parametrize(
    "end", ["os._exit(0)", "sys.exit(0)", "threading.Thread(target=shared_engine().close).start()"]
)
def test_other_ends(end: str) -> None:
    finished(f"import threading\nengine = shared_engine(slots=2)\nengine.run(job('print(1)'))\n{end}")


def test_ctrl_c() -> None:
    """It reaches the trainer; the program that it waited for ends, and so does everything else."""
    script = f"""
    engine = shared_engine(slots=2)
    print("up", flush=True)
    try:
        engine.run(job({SLEEP!r}, limits=Limits(wall_s=600, memory_mib=128)))
    except KeyboardInterrupt:
        print("interrupted", not gone(lambda: [pid for pid in engine.agent_pids() if agents_of(pid)[2]]), engine.run(job("print(1)"))[0].stdout, flush=True)
    """
    with trainer(script, start_new_session=True) as process:
        assert process.stdout
        process.stdout.readline()
        assert until(lambda: any(agents_of(pid)[2] for pid in descendants([process.pid])))
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (out, err) == ("interrupted True b'1\\n'\n", "")
    assert not gone(lambda: leavings(process.pid))


def test_a_trainer_that_lets_sigpipe_kill() -> None:
    """An agent's death must not become the trainer's."""
    finished(
        f"""
        import signal
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        engine = SyncEngine(slots=1)
        future = engine.submit(job({ADD!r}, *[b"1 2" + b" 3" * 200_000] * 20))
        for _ in range(2):
            (pid,) = until(lambda: [pid for pid in engine.agent_pids() if agents_of(pid)[2]])
            kill(pid)
            until(lambda: pid not in engine.agent_pids())
        assert all(outcome.error is None for outcome in future.result())
        assert engine.replaced == 2
        engine.close()
        """
    )


# ---------------------------------------------------------------- the engine's end


def test_close_while_jobs_run_and_wait(clean: None) -> None:
    engine = SyncEngine(slots=2)
    futures = [engine.submit(job(SLEEP, limits=LONG)) for _ in range(10)]
    assert until(lambda: all(map(working, engine.agent_pids())) and len(engine.agent_pids()) == 2)
    start = time.monotonic()
    engine.close()
    assert time.monotonic() - start < 20
    for future in futures:
        assert [outcome.error for outcome in future.result(timeout=1)] == ["the engine was closed"]
    with pytest.raises(InfrastructureError, match="closed"):
        engine.submit(job("print(1)"))
    engine.close()  # again: nothing to do


def test_close_while_an_agent_is_being_started(clean: None) -> None:
    """It comes up after the others were ended, and must go as well."""
    engine = SyncEngine(slots=8)
    futures = [engine.submit(job("print(1)")) for _ in range(8)]
    engine.close()
    assert all(future.result(timeout=1)[0].error in (None, "the engine was closed") for future in futures)


def test_two_threads_close(clean: None) -> None:
    engine = SyncEngine(slots=1)
    threads = [threading.Thread(target=engine.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_shared_engines_are_one_until_closed(clean: None) -> None:
    first = shared_engine(slots=1)
    try:
        assert shared_engine(slots=1) is first
        first.close()
        second = shared_engine(slots=1)
        assert second is not first
        assert one(second, "print(1)").stdout == b"1\n"
    finally:
        shared_engine(slots=1).close()


def test_a_loop_of_ones_own_and_no_close(clean: None) -> None:
    """The loop ends under the engine: agents go all the same."""

    async def main() -> list[Outcome]:
        engine = Engine(slots=2)
        return await engine.run(job("print(1)"))

    with pytest.warns(ResourceWarning):
        assert asyncio.run(main())[0].stdout == b"1\n"
        import gc

        gc.collect()
    # The lifeline was closed with the engine.
    assert not gone(lambda: [line for line in left() if "process" not in line or " Z " not in line])


# ---------------------------------------------------------------- one engine for all


def test_many_threads(engine: SyncEngine) -> None:
    def work(thread: int) -> bool:
        return all(one(engine, ADD, b"%d %d" % (thread, i)).stdout == b"%d\n" % (thread + i) for i in range(20))

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(32)))


def test_gather(clean: None) -> None:
    async def main() -> list[list[Outcome]]:
        async with Engine(slots=2) as engine:
            return await asyncio.gather(*(engine.run(job(ADD, b"%d 1" % i)) for i in range(200)))

    found = asyncio.run(main())
    assert [outcomes[0].stdout for outcomes in found] == [b"%d\n" % (i + 1) for i in range(200)]


def test_from_a_running_loop(engine: SyncEngine) -> None:
    """As in a notebook: the loop goes on while programs run, and may wait for them."""

    async def main() -> tuple[list[Outcome], int]:
        turns = 0
        future = asyncio.wrap_future(engine.submit(job("import time; time.sleep(0.3); print(1)")))
        while not future.done():
            turns += 1
            await asyncio.sleep(0.01)
        return await future, turns

    outcomes, turns = asyncio.run(main())
    assert outcomes[0].stdout == b"1\n"
    assert turns > 5


def test_two_engines_at_once(engine: SyncEngine, clean: None) -> None:
    """A second one's start sweeps: never what is alive; and no two agents have an identity in common."""
    futures = [engine.submit(job("import time; time.sleep(0.5); print(1)")) for _ in range(2)]
    other = SyncEngine(slots=2)
    futures += [other.submit(job("import os; print(1)")) for _ in range(4)]
    assert [future.result()[0].stdout for future in futures] == [b"1\n"] * 6
    identities = [link.agent.identity for e in (engine, other) for link in e._engine._links]
    assert len(set(identities)) == len(identities)
    other.close()
    assert one(engine, "print(2)").stdout == b"2\n"


def test_after_a_fork() -> None:
    """The child has an engine of its own, the parent's goes on; neither ends the other's agents."""
    out = finished(
        f"""
        import os
        engine = shared_engine(slots=2)
        held = SyncEngine(slots=1)
        assert engine.run(job({ADD!r}, b"1 1"))[0].stdout == b"2\\n"
        pids = engine.agent_pids()
        running = engine.submit(job("import time; time.sleep(1); print(5)"))
        child = os.fork()
        if child == 0:
            try:
                held.run(job("print(1)"))
            except Exception as exc:
                print(type(exc).__name__, flush=True)
            assert engine.closed and held.closed and held.agent_pids() == []
            held.close()
            own = shared_engine(slots=2)
            assert own is not engine
            print(own.run(job({ADD!r}, b"2 2"))[0].stdout, flush=True)
            mine = leavings()
            own.close()
            assert mine and not gone(lambda: leavings())
            os._exit(0)
        again = [engine.run(job({ADD!r}, b"%d 3" % i))[0].stdout for i in range(20)]
        assert again == [b"%d\\n" % (i + 3) for i in range(20)], again
        assert os.waitpid(child, 0)[1] == 0
        assert running.result()[0].stdout == b"5\\n"
        assert set(pids) <= set(engine.agent_pids()) and engine.replaced == 0
        print(held.run(job("print(7)"))[0].stdout)
        """
    )
    assert out.splitlines() == ["InfrastructureError", "b'4\\n'", "b'7\\n'"]


def test_a_child_that_lives_on_does_not_keep_agents() -> None:
    finished(
        """
        import os, signal
        engine = shared_engine(slots=2)
        engine.run(job("print(1)"))
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        start = time.monotonic()
        engine.close()
        took = time.monotonic() - start
        left = leavings()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert took < 10 and not left, (took, left)
        """
    )


def test_in_worker_processes() -> None:
    finished(
        f"""
        import multiprocessing
        engine = shared_engine(slots=1)
        engine.run(job("print(1)"))
        def work(i):
            return shared_engine(slots=1).run(job({ADD!r}, b"%d 1" % i))[0].stdout
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(work, range(8)) == [b"%d\\n" % (i + 1) for i in range(8)]
            pool.close()
            pool.join()
        assert engine.run(job("print(1)"))[0].stdout == b"1\\n"
        """
    )


# ---------------------------------------------------------------- slots


def test_cancelling_ends_the_program_at_once(clean: None) -> None:
    engine = SyncEngine(slots=1)
    future = engine.submit(job(SLEEP, limits=LONG))
    waiting = [engine.submit(job(ADD, b"1 2")) for _ in range(3)]
    assert until(lambda: any(map(working, engine.agent_pids())))
    (supervisor,) = engine.agent_pids()
    program = agents_of(supervisor)[2][0]
    assert waiting[1].cancel()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert not gone(lambda: [pid for pid in [program] if Path(f"/proc/{pid}").exists()], patience=10)
    assert [waiting[i].result(PATIENCE)[0].stdout for i in (0, 2)] == [b"3\n"] * 2
    assert engine._engine._admission.running == engine._engine._admission.waiting == 0
    engine.close()


def test_cancelling_all_that_waits(clean: None) -> None:
    engine = SyncEngine(slots=1)
    first = engine.submit(job(SLEEP, limits=LONG))
    futures = [engine.submit(job("print(1)")) for _ in range(200)]
    for future in futures:
        future.cancel()
    first.cancel()
    assert one(engine, "print(2)").stdout == b"2\n"
    engine.close()


class Watching:
    """Looks at the agents all the time: how many cases are there at once?"""

    def __init__(self, engine: SyncEngine) -> None:
        self.engine, self.most, self.looks, self._over = engine, 0, 0, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._over.is_set():
            for pid in self.engine.agent_pids():
                assert pid
            cases = [agents_of(pid)[2] for pid in self.engine.agent_pids()]
            self.most = max(self.most, sum(map(bool, cases)))
            self.looks += 1
            time.sleep(0.005)

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def test_slots_are_never_exceeded(clean: None) -> None:
    """With cancelled and failing jobs among them, whose agents are replaced."""
    engine = SyncEngine(slots=2)
    with Watching(engine) as watching:
        futures: list[Future[list[Outcome]]] = []
        for i in range(50):
            futures.append(engine.submit(job("import time; time.sleep(0.05); print(1)", limits=LONG)))
            if i % 10 == 5:
                time.sleep(0.1)
                futures[-1].cancel()
            if i % 10 == 8:
                for pid in engine.agent_pids()[:1]:
                    kill(pid)
        done = [future.result(PATIENCE)[0] for future in futures if not future.cancelled()]
    assert all((outcome.stdout, outcome.error) == (b"1\n", None) for outcome in done)
    assert watching.looks > 20
    assert 1 <= watching.most <= 2
    engine.close()


def test_many_slots(clean: None) -> None:
    engine = SyncEngine(slots=16)
    futures = [engine.submit(job("import time; time.sleep(0.5); print(1)", limits=LONG)) for _ in range(48)]
    assert all(future.result(2 * PATIENCE)[0].stdout == b"1\n" for future in futures)
    assert len(engine.agent_pids()) == 16
    assert engine.replaced == 0  # each came up the first time
    engine.close()


def test_a_jail_rests_while_its_next_cases_wait(clean: None) -> None:
    """They lie in its control stream, and that is no reason to look at them all the time."""
    engine = SyncEngine(slots=1)
    future = engine.submit(job("import time; time.sleep(0.5)", *[b""] * 3, limits=LONG))
    (supervisor,) = engine.agent_pids()
    (jail,) = until(lambda: agents_of(supervisor)[1])
    ticks = 0
    while not future.done():
        fields = (
            Path(f"/proc/{jail}/stat").read_text().rpartition(")")[2].split() if Path(f"/proc/{jail}").exists() else []
        )
        ticks = sum(map(int, fields[11:13])) if fields else ticks
        time.sleep(0.05)
    assert ticks / os.sysconf("SC_CLK_TCK") < 0.4
    engine.close()


def test_more_memory_than_there_is_waits_for_the_others_and_runs(clean: None) -> None:
    engine = SyncEngine(slots=4, memory_mib=400)
    large = replace(SMALL, memory_mib=5000)
    with Watching(engine) as watching:
        futures = [engine.submit(job("import time; time.sleep(0.2); print(1)", limits=large)) for _ in range(3)]
        futures += [engine.submit(job("import time; time.sleep(0.1); print(1)")) for _ in range(6)]
        assert all(future.result(PATIENCE)[0].stdout == b"1\n" for future in futures)
    assert watching.most <= 2  # two of 160 MiB each fit
    engine.close()


@pytest.mark.parametrize("broken", ["/no/such/python", "/bin/false", "/etc/passwd"])
def test_an_interpreter_that_does_not_start(broken: str, clean: None) -> None:
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match="agent"):
        SyncEngine(slots=1, image=replace(host_image(), python=broken))
    assert time.monotonic() - start < 30


def test_an_interpreter_that_says_why(tmp_path: Path, clean: None) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho the library libpython is missing >&2\nexit 127\n")
    broken.chmod(0o755)
    with pytest.raises(InfrastructureError, match="libpython is missing"):
        SyncEngine(slots=1, image=replace(host_image(), python=str(broken)))


def test_what_on_outcome_raises_ends_the_job_only(engine: SyncEngine) -> None:
    def tell(index: int, outcome: Outcome) -> None:
        if index == 1:
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        engine.run(job(ADD, b"1", b"2", b"3"), on_outcome=tell)
    seen: list[int] = []
    outcomes = engine.run(job(ADD, *[b"1"] * 10), on_outcome=lambda index, outcome: seen.append(index))
    assert seen == list(range(10))
    assert len(outcomes) == 10


def test_a_job_without_cases(engine: SyncEngine) -> None:
    assert engine.run(Job(job("").program, ())) == []


def test_a_job_of_hundreds_of_cases(engine: SyncEngine) -> None:
    found = run(engine, ADD, *[b"%d 1" % i for i in range(200)])
    assert [outcome.stdout for outcome in found] == [b"%d\n" % (i + 1) for i in range(200)]


def test_attempts_are_bounded_when_agents_no_longer_start(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SyncEngine(slots=1)
    monkeypatch.setattr(engine._engine, "image", replace(host_image(), python="/no/such/python"))
    for pid in engine.agent_pids():
        kill(pid)
    (outcome,) = engine.run(job("print(1)"))
    assert (outcome.error or "").startswith(f"after {engine_module.ATTEMPTS} attempts")
    engine.close()


# ---------------------------------------------------------------- flat


def figures() -> dict[str, float]:
    return {
        "descriptors": descriptors().total(),
        "children": len(descendants([os.getpid()])),
        "threads": threading.active_count(),
        "memory": resident_mib(),
        "left": len([line for line in left() if not line.startswith("process")]),
    }


def flatness(programs: int, slots: int = 2) -> tuple[dict[str, float], dict[str, float]]:
    """Figures after a fifth of the programs, and after all: right, wrong, crashing, forking, chatty and slow ones."""
    sources = [
        ADD, "print(1)", "1 / 0", "import sys; sys.exit(3)", "print('x' * 100_000)", "import os; os.abort()",
        "import os\nfor _ in range(5): os.fork()\n", "open('f', 'w').write('x' * 10_000)\nopen('/tmp/g', 'w')", "def f(", "import threading\nfor _ in range(5): threading.Thread(target=print).start()",
    ]  # fmt: skip
    engine = SyncEngine(slots=slots)
    looks = []
    for i in range(0, programs, 50):
        futures = [engine.submit(job(sources[(i + k) % len(sources)], b"1 2", b"3 4", limits=SMALL)) for k in range(50)]
        assert all(outcome.error is None for future in futures for outcome in future.result())
        looks.append(figures())
    engine.close()
    return looks[len(looks) // 5], looks[-1]


def test_five_hundred_programs_leave_everything_flat(clean: None) -> None:
    before = descriptors()
    first, last = flatness(500)
    for name in ("descriptors", "children", "threads", "left"):
        assert last[name] <= first[name], name
    assert last["memory"] < first["memory"] + 20
    assert descriptors() == before


# ---------------------------------------------------------------- what is left by others


@pytest.fixture
def boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sweep, "BOXES", tmp_path)
    yield tmp_path
    os.chmod(tmp_path, 0o700)


def dead() -> int:
    """The number of a process that is no more."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_sweeping_takes_the_dead_only(boxes: Path) -> None:
    pid, here = dead(), sweep.owner_prefix().split("-")[3]
    stale = [
        f"proctor-{pid}-123-{here}-abcd-1-ef",
        f"proctor-{os.getpid()}-1-{here}-abcd-1-ef",
    ]  # the number was used again
    others = [
        sweep.owner_prefix() + "abcd-1-ef", f"proctor-{pid}-123-4026531000-abcd-1-ef", "proctor-demo", f"proctor-{pid}", f"proctor-{pid}-1-2-3", f"proctor-x-1-{here}-a-1-e",
        f"other-{pid}-123-{here}-abcd-1-ef",
    ]  # fmt: skip
    for name in stale + others:
        (boxes / name / "workspace").mkdir(parents=True)
        (boxes / name / "workspace" / "file").write_text("x")
    (boxes / "elsewhere").mkdir()
    link = boxes / f"proctor-{pid}-9-{here}-abcd-1-ef"
    link.symlink_to(boxes / "elsewhere")
    sweep.sweep()
    assert {path.name for path in boxes.iterdir()} == {*others, "elsewhere", link.name}


def test_sweeping_is_not_led_astray(boxes: Path) -> None:
    """Deeper than any path may be long, closed to its owner, and with links to what is not ours."""
    top = boxes / f"proctor-{dead()}-123-{sweep.owner_prefix().split('-')[3]}-abcd-1-ef"
    top.mkdir()
    kept = boxes / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (top / "link").symlink_to(kept)
    (top / "closed").mkdir()
    (top / "closed" / "inner").mkdir()
    (top / "closed").chmod(0)
    here = os.open(top, os.O_RDONLY)
    try:
        for _ in range(1200):
            os.mkdir("deep", dir_fd=here)
            inner = os.open("deep", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
    finally:
        os.close(here)
    sweep.sweep()
    assert [path.name for path in boxes.iterdir()] == ["kept"]
    assert (kept / "file").read_text() == "x"


def test_identities_are_apart() -> None:
    identities = Identities()
    taken = [identities.take() for _ in range(256)]
    assert len({number + k for number in taken for k in (0, 1)}) == 512
    assert all(0x7000_0000 <= number < 0x7FFF_FFFF for number in taken)
    with pytest.raises(OSError, match="agents"):
        identities.take()
    identities.give_back(taken[7])
    assert identities.take() == taken[7]


def test_the_boundary_leaves_nothing_when_it_cannot_start(clean: None) -> None:
    before = descriptors()
    boundary = JailBoundary()
    taken = set(boundary.identities._taken)
    for _ in range(3):
        with pytest.raises(OSError, match="No such file"):
            boundary.start(replace(host_image(), python="/no/such/python"), 1)
    assert descriptors() == before
    assert boundary.identities._taken == taken


if __name__ == "__main__":  # the long run: python tests/engine/test_lifecycle.py 5000
    start, at_first = time.monotonic(), descriptors()
    for when, look in zip(("after a fifth", "after all"), flatness(int(sys.argv[1])), strict=True):
        print(when, look)
    print(
        f"{time.monotonic() - start:.0f} s; left: {gone(leavings)} {descendants([os.getpid()])} {descriptors() - at_first}"
    )


def test_a_process_that_cannot_be_looked_at_is_not_taken_for_gone() -> None:
    """What bears its name would be killed, though it runs."""
    script = """
    import os, resource, subprocess
    from proctor.isolation import sweep
    mine = sweep.owner_prefix() + "0a0b0c0d-1-0a0b0c"
    other = subprocess.Popen(["true"])
    other.wait()
    gone = mine.replace(f"-{os.getpid()}-", f"-{other.pid}-")
    print(sweep.is_stale(mine), sweep.is_stale(gone))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    said = sweep.is_stale(mine), sweep.is_stale(gone)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(*said)
    """
    assert finished(script) == "False True\nFalse True\n"
