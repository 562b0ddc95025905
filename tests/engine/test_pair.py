"""Two programs that talk through pipes, each in its jail; and what a case may bring and leave."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from engine_help import descriptors, job, kill, until

from guessing import GUESS
from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.job import Case, Job, Pair, Program
from proctor.engine.pair import Clock
from proctor.engine.shared import SyncEngine

QUICK = Limits(cpu_s=1, wall_s=3)

JUDGE = """
import sys
secret, count = 389, 0
for line in sys.stdin:
    count += 1
    guess = int(line)
    if guess == secret:
        print("right", flush=True)
        sys.exit(42 if count <= 10 else 43)
    print("less" if guess > secret else "more", flush=True)
sys.exit(43)
"""


def half(source: str, warm: bool = True, limits: Limits = QUICK) -> Job:
    program = Program({"talk.py": source.encode()}, ("python3", "talk.py"), warm=warm)
    return Job(program, (Case(talk="stdio"),), limits)


def talk(
    engine: SyncEngine, program: str, counterpart: str = JUDGE, warm: bool = True, **options: object
) -> list[Outcome]:
    return engine.run(Pair(half(program, warm), half(counterpart, warm), **options))


@pytest.mark.environments
@pytest.mark.parametrize("warm", [True, False])
def test_two_programs_talk(engine: SyncEngine, warm: bool) -> None:
    for _ in range(2):
        program, judge = talk(engine, GUESS, warm=warm)
        assert (program.exit_code, judge.exit_code) == (0, 42), (program, judge)
        assert not program.stdout


def test_the_end_of_one_is_seen_by_the_other(engine: SyncEngine) -> None:
    program, judge = talk(engine, "print(500, flush=True); input()")
    assert (program.exit_code, judge.exit_code) == (0, 43)
    program, judge = talk(engine, "print(len(input()))", "pass")
    assert (program.exit_code, judge.exit_code) == (1, 0)
    assert b"EOFError" in program.stderr


def test_what_is_said_to_one_that_has_ended_is_no_broken_pipe(engine: SyncEngine) -> None:
    says = "import sys, time\ninput()\ntime.sleep(0.3)\nfor _ in range(99): print('x' * 9999, flush=True)\nsys.exit(42)"
    for warm in (True, False):
        program, judge = talk(engine, "print(1)", says, warm=warm)
        assert (program.exit_code, judge.exit_code) == (0, 42), judge


def test_a_counterpart_may_end_the_program(engine: SyncEngine) -> None:
    program, judge = talk(engine, "while True: pass", "import sys; sys.exit(43)", stop_on=frozenset({43}))
    assert (program.ended_by, judge.exit_code) == (EndedBy.CANCELLED, 43)
    dies = "import os; os.kill(os.getpid(), 11)"
    program, judge = talk(engine, "while True: pass", dies, stop_on=frozenset({-11}))
    assert (program.ended_by, judge.signal) == (EndedBy.CANCELLED, 11)
    program, judge = talk(engine, "while True: pass", "import sys; sys.exit(43)")
    assert (program.ended_by, judge.exit_code) == (EndedBy.CPU, 43)


def test_a_program_may_be_ended_before_it_is_there(engine: SyncEngine) -> None:
    """As while it is compiled: that its case had no time to begin is no fault of ours."""
    program = Program({"build.sh": b"sleep 1"}, ("true",), compile=("bash", "build.sh"))
    late = Job(program, (Case(talk="stdio"),), QUICK)
    first, judge = engine.run(Pair(late, half("import sys; sys.exit(43)"), stop_on=frozenset({43})))
    assert (first.error, first.ended_by, judge.exit_code) == (None, EndedBy.CANCELLED, 43)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "while time.process_time() < 1.2: pass"])
def test_one_that_has_lost_is_not_played_again(engine: SyncEngine, end: str) -> None:
    """Else it could guess twice: by a kill that may be the host's, or by time that may be its load."""
    loses = f"import os, time\nprint(1, flush=True)\ninput()\n{end}"
    judge = "import os, sys\ninput(); print('no', flush=True); sys.stdin.read(); os._exit(43)"
    patient = Limits(cpu_s=1, wall_s=60)
    first, second = engine.run(Pair(half(loses, limits=patient), half(judge, limits=patient), stop_on=frozenset({43})))
    assert second.exit_code == 43
    assert not first.confirmed or not (engine.features["memory"] or engine.isolation in ("gvisor", "microvm"))


def test_both_wait_for_each_other(engine: SyncEngine) -> None:
    slow = half("input()", limits=Limits(cpu_s=1, wall_s=20))
    program, judge = engine.run(Pair(half("input()"), slow))
    assert program.ended_by is EndedBy.WALL
    assert judge.exit_code == 1  # its input ended


def test_a_half_that_met_its_wall_limit_is_not_played_again(engine: SyncEngine) -> None:
    """Who sleeps instead of losing would have a second game, and eight limits' time, for a little work before."""
    sleeps = "import time\nprint(1, flush=True)\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\ntime.sleep(60)"
    judge = half(
        "import sys\nprint(input(), file=sys.stderr)\nsys.exit(43 if input() else 42)",
        limits=Limits(cpu_s=5, wall_s=30),
    )
    start = time.monotonic()
    first, second = engine.run(Pair(half(sleeps, limits=Limits(cpu_s=1, wall_s=1)), judge))
    assert (first.ended_by, first.confirmed, second.stderr[:2]) == (EndedBy.WALL, False, b"1\n")
    assert 1 < first.wall_s - first.waited_s < 1.8
    polls = half("import time\nwhile True: time.sleep(0.0005)", limits=Limits(cpu_s=5, wall_s=1))
    assert engine.run(Pair(polls, judge))[0].ended_by is EndedBy.WALL
    assert time.monotonic() - start < 15


def test_what_a_half_waits_for_one_that_waits_for_a_cpu_is_not_its_wall_time(engine: SyncEngine) -> None:
    """Each computes in its turn, so that the other one rests; beside eight that compute all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    turn = "import time\nfor _ in range(6):\n    input()\n    end = time.process_time() + 0.1\n    while time.process_time() < end: pass\n    {}print(1, flush=True)"
    limits = Limits(cpu_s=2, wall_s=2.5)
    try:
        starts = half("print(1, flush=True)\n" + turn.format("if _ < 5: "), limits=limits)
        first, second = engine.run(Pair(starts, half(turn.format(""), limits=limits)))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert [(one.exit_code, one.ended_by, one.confirmed) for one in (first, second)] == [(0, None, False)] * 2


def test_the_clock_of_a_pair() -> None:
    """It counts what both have told of, from when both were there, less what either waited for a CPU."""
    clock = Clock((10, 20))
    assert clock.hear(1, 100, 50, 0) == []  # the other one is not there yet
    assert clock.hear(0, 100, 1, 0) == []
    assert clock.hear(0, 111.5, 12, 0) == []  # of the other one nothing is known since
    assert clock.hear(1, 112, 62, 3) == []
    assert clock.hear(0, 114, 15, 1) == []
    assert clock.hear(1, 115, 65, 3) == [0]
    assert clock.hear(0, 115, 15, 1, over=True) == []
    assert clock.hear(1, 125, 75, 4) == [1]
    busy = Clock((10, 20))
    assert (
        busy.hear(0, 100, 0, 0) + busy.hear(1, 100, 0, 0) + busy.hear(0, 179, 79, 79) + busy.hear(1, 179, 79, 0) == []
    )
    assert busy.hear(0, 181, 81, 81) + busy.hear(1, 181, 81, 0) == [0]


def test_a_flood_is_not_held_here(engine: SyncEngine) -> None:
    program, judge = talk(engine, "while True: print('x' * 65536)", "import time; time.sleep(0.5)")
    assert program.exit_code == 120  # as in any shell: a pipe that nobody reads any more
    assert judge.exit_code == 0


def test_a_compiled_half(engine: SyncEngine) -> None:
    source = b'#include <cstdio>\nint main() { int n; scanf("%d", &n); printf("%d\\n", 2 * n); fflush(stdout); }'
    program = Program({"a.cpp": source}, ("./a.out",), compile=("g++", "a.cpp", "-o", "a.out"))
    asks = half("import sys\nprint(21, flush=True)\nsys.exit(42 if input() == '42' else 43)", limits=Limits(cpu_s=9))
    done = engine.run(Pair(Job(program, (Case(talk="stdio"),), Limits(cpu_s=9)), asks))
    assert [outcome.exit_code for outcome in done] == [0, 42]
    broken = Program({"a.cpp": b"int main("}, ("./a.out",), compile=("g++", "a.cpp", "-o", "a.out"))
    first, second = engine.run(Pair(Job(broken, (Case(talk="stdio"),), Limits(cpu_s=9)), asks))
    assert first.compile_failed
    assert second.exit_code == 1


@pytest.mark.environments
def test_many_pairs_leave_nothing(clean: None) -> None:
    engine = SyncEngine(slots=2)
    engine.run(Pair(half(GUESS), half(JUDGE)))
    before = descriptors()
    futures = [engine.submit(Pair(half(GUESS), half(JUDGE))) for _ in range(20)]
    assert all([o.exit_code for o in future.result()] == [0, 42] for future in futures)
    assert descriptors() - before == {} or len(engine.agent_pids()) > 2  # a slot has up to two agents
    assert len(engine.agent_pids()) <= 4
    engine.close()


def test_cancelled_and_closed(clean: None) -> None:
    engine = SyncEngine(slots=1)
    sleeps = half("import time; time.sleep(100)", limits=Limits(cpu_s=1, wall_s=200))
    future = engine.submit(Pair(sleeps, sleeps))
    other = engine.submit(job("print(1)"))
    future.cancel()
    assert other.result(60)[0].stdout == b"1\n"
    future = engine.submit(Pair(sleeps, sleeps))
    engine.close()
    assert all(outcome.error for outcome in future.result(60))


def test_an_agent_that_dies_is_replaced(clean: None) -> None:
    engine = SyncEngine(slots=1)
    slow = "import time\ntime.sleep(1)\n"
    future = engine.submit(Pair(half(slow + GUESS, limits=Limits(cpu_s=5)), half(JUDGE, limits=Limits(cpu_s=5))))
    until(lambda: len(engine.agent_pids()) == 2)
    kill(engine.agent_pids()[0])
    assert [outcome.exit_code for outcome in future.result(60)] == [0, 42]
    assert engine.replaced == 1
    engine.close()


def test_halves_are_checked() -> None:
    with pytest.raises(InputError, match="counterpart"):
        Pair(half("pass"), job("pass"))


# ---------------------------------------------------------------- what a case brings and leaves


@pytest.mark.environments
def test_files_and_a_command_for_one_case(engine: SyncEngine) -> None:
    program = Program({"show.py": b"import sys; print(open(sys.argv[1]).read())"}, ("python3", "show.py", "none"))
    first = Case(files={"in.txt": b"one", "deep/in.txt": b"1"}, argv=("python3", "show.py", "in.txt"))
    second = Case(argv=("python3", "show.py", "in.txt"))
    third = Case(files={"in.txt": b"three"}, argv=("python3", "show.py", "in.txt"))
    outcomes = engine.run(Job(program, (first, second, third, Case()), Limits(cpu_s=5)))
    assert [outcome.stdout for outcome in outcomes] == [b"one\n", b"", b"three\n", b""]
    assert b"FileNotFoundError" in outcomes[1].stderr


@pytest.mark.environments
def test_files_that_are_brought_back(engine: SyncEngine) -> None:
    source = b"""
import os
open("good.txt", "w").write("42")
os.mkdir("out")
open("out/deep", "w").write("deep")
open("not asked for", "w").write("x")
os.symlink("/etc/passwd", "link")
os.link("not asked for", "second name")
"""
    names = ("good.txt", "out/deep", "link", "second name", "missing")
    program = Program({"a.py": source}, ("python3", "a.py"), warm=True)
    for outcome in engine.run(Job(program, (Case(collect=names),) * 2, Limits(cpu_s=5))):
        assert outcome.exit_code == 0, outcome.stderr
        assert outcome.files == {"good.txt": b"42", "out/deep": b"deep"}
    small = Case(collect=names, collect_bytes=3)
    (outcome,) = engine.run(Job(program, (small,), Limits(cpu_s=5)))
    assert outcome.files == {}


def test_names_of_a_case_are_checked() -> None:
    for bad in ("../x", "/etc/x", "", "a//b"):
        with pytest.raises(InputError):
            Case(files={bad: b""})
        with pytest.raises(InputError):
            Case(collect=(bad,))
    with pytest.raises(InputError, match="workspace"):
        Job(Program({}, ("true",)), (Case(files={"a": b"x" * (3 << 20)}),), Limits(workspace_mib=2))
