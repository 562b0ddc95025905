"""Faults of other graders by which a program stopped the queue, passed a limit, or left something behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_help import ADD, SUM, counts_exactly, graded, processes_with, ran, stdio, until

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job, Program
from proctor.engine.languages import language
from proctor.engine.shared import SyncEngine

SEVEN = stdio(("3 4\n", "7\n"))


def test_endless_newlines_do_not_stop_the_queue(engine: SyncEngine) -> None:
    """F46: they stopped the host that judged, and all that waited behind."""
    for source in ("while True: print()\n", "import os\nwhile True: os.write(1, b'\\n')\n"):
        found = graded(engine, source, SEVEN, limits={"output_bytes": 1 << 20, "cpu_s": 1})
        assert found.verdict in (Verdict.OUTPUT_LIMIT, Verdict.TIME_LIMIT)
        assert graded(engine, ADD).reward == 1.0


def test_a_grandchild_that_holds_the_output_open(engine: SyncEngine) -> None:
    """F49: the call came back only when the last holder of the pipe had ended."""
    source = """
import os, subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "4321.049"])
    os._exit(0)
os.wait()
print(7)
"""
    found = graded(engine, source, SEVEN, limits={"wall_s": 50})
    assert found.verdict is Verdict.ACCEPTED
    assert found.cases[0].outcome.left_processes == 1
    assert found.cases[0].outcome.wall_s < 40
    assert until(lambda: not processes_with("4321.049"))


def test_workers_that_start_workers(engine: SyncEngine) -> None:
    """F51: a program without a main guard was imported again by each worker that it started, for ever.

    As its own interpreter has it: the worker refuses to start another one.
    """
    source = """
import multiprocessing as mp
mp.set_start_method("spawn", force=True)
p = mp.Process(target=print)
p.start()
p.join()
raise SystemExit(p.exitcode)
"""
    found = graded(engine, source, SEVEN, limits={"wall_s": 30, "cpu_s": 10})
    assert found.verdict is Verdict.RUNTIME_ERROR
    assert b"bootstrapping phase" in found.cases[0].outcome.stderr


def test_a_program_that_starts_itself(engine: SyncEngine) -> None:
    """F51: without end, as far as it can: the limits on processes, CPU and wall time end it."""
    source = (
        "import subprocess, sys\nsubprocess.run([sys.executable, 'solution.py', '4321.051'], check=True)\nprint(7)\n"
    )
    limits = {"processes": 8, "cpu_s": 3, "wall_s": 20}
    found = graded(engine, source, SEVEN, limits=limits)
    assert found.verdict in (Verdict.RUNTIME_ERROR, Verdict.TIME_LIMIT, Verdict.MEMORY_LIMIT)
    assert until(lambda: not processes_with("4321.051"))
    assert graded(engine, ADD).reward == 1.0


@pytest.mark.environments
def test_start_up_files_that_a_program_wrote(engine: SyncEngine) -> None:
    """F52: the grader's next shell read them."""
    source = """
import os
names = [".bashrc", ".profile", ".bash_profile", ".pythonrc", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg"]
for place in (os.environ["HOME"], ".", os.environ.get("TMPDIR", "/tmp")):
    for name in names:
        path = os.path.join(place, name)
        if os.path.exists(path) and open(path).read() != f"sleep 60 # {os.getpid()}":
            print("from another run")
        open(path, "w").write(f"sleep 60 # {os.getpid()}")
print(7)
"""
    for warm in (True, False):
        found = graded(engine, source, warm=warm, limits={"wall_s": 40})
        assert [case.verdict for case in found.cases] == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER]
        assert all(case.outcome.wall_s < 30 for case in found.cases)
    login = Program({"a.py": source.encode()}, ("bash", "-lic", "python3 a.py"))
    for outcome in ran(engine, login, *[Case()] * 2, limits=Limits(cpu_s=5, wall_s=40)):
        assert (outcome.stdout, outcome.ended_by) == (b"7\n", None)


def test_cpu_time_of_the_first_case_is_not_the_seconds(engine: SyncEngine) -> None:
    """F54: what the first run had used counted against the second."""
    source = f"import time\nt = time.process_time()\nwhile time.process_time() - t < 0.4: pass\n{ADD}"
    found = graded(engine, source, stdio(*[("3 4\n", "7\n")] * 3), limits={"cpu_s": 0.7, "wall_s": 30})
    assert found.reward == 1.0
    assert all(case.outcome.cpu_s < 0.7 for case in found.cases)


def test_the_memory_limit_holds_from_the_first_run_on() -> None:
    """F55: it was ignored in the first run of a box."""
    fresh = SyncEngine(slots=1)
    try:
        found = graded(fresh, "x = bytearray(b'x') * (200 << 20)\nprint(7)\n", SUM, limits={"memory_mib": 64})
        assert {case.verdict for case in found.cases} == {Verdict.MEMORY_LIMIT}
    finally:
        fresh.close()


def test_the_cpu_limit_ends_the_program(engine: SyncEngine) -> None:
    """F56: in a container it only said something, and the loop went on.

    ``proctor doctor`` tries every limit on the host at hand
    (tests/test_attacks.py::test_each_protection_is_tried_here).
    """
    program = Program({"a.py": b"while True: pass\n"}, ("python3", "a.py", "4321.056"))
    (outcome,) = ran(engine, program, limits=Limits(cpu_s=0.3, wall_s=30))
    assert outcome.ended_by is EndedBy.CPU
    assert until(lambda: not processes_with("4321.056"))


def test_compiling_happens_in_the_jail_and_leaves_nothing(engine: SyncEngine, tmp_path: Path) -> None:
    """F59: compilers ran as the judge itself; code that ran while compiling left a daemon and a file."""
    marks = [Path("/tmp/proctor-test-f59"), tmp_path / "mark"]
    tmp_path.chmod(0o777)
    script = f"""
(setsid sleep 4321.059 &)
touch {marks[0]} {marks[1]} left 2>/dev/null
echo $((40 + 2)) > made
(exec 3<>/dev/tcp/127.0.0.1/80) 2>/dev/null && echo reached >> made
ls /home /root >> made 2>/dev/null
exit 0
"""
    program = Program(
        {"build.sh": script.encode(), "run.sh": b"cat made; ls /tmp 2>/dev/null; exit 0"},
        ("bash", "run.sh"),
        ("bash", "build.sh"),
    )
    for outcome in ran(engine, program, *[Case()] * 2):
        assert outcome.exit_code == 0
        assert outcome.stdout.splitlines()[0] == b"42"
        assert b"reached" not in outcome.stdout
        assert marks[0].name.encode() not in outcome.stdout
    assert not any(mark.exists() for mark in marks)
    assert until(lambda: not processes_with("4321.059"))


@pytest.mark.parametrize("act", ["while :; do :; done", "sleep 4321.0592"])
def test_compiling_has_limits(engine: SyncEngine, act: str) -> None:
    """F59: what runs while compiling is bounded as what runs afterwards is."""
    program = Program({"build.sh": act.encode()}, ("true",), ("bash", "build.sh"))
    limits = Limits(cpu_s=0.3, wall_s=1)
    (outcome,) = engine.run(Job(program, (Case(),), compile_limits=limits))
    assert (outcome.error, outcome.compile_failed) == (None, True)
    assert outcome.ended_by in (EndedBy.CPU, EndedBy.WALL)
    assert until(lambda: not processes_with("4321.0592"))


def test_what_compiling_leaves_must_fit_where_the_program_runs(engine: SyncEngine) -> None:
    """A compiler has more room than a program: a large array in the source must not buy a fault of ours."""
    for size, fits in ((7 << 20, True), (9 << 20, False)):
        build = f"head -c {size} /dev/zero > left".encode()
        program = Program({"build.sh": build}, ("stat", "-c", "%s", "left"), ("bash", "build.sh"))
        (outcome,) = ran(engine, program, limits=Limits(workspace_mib=8))
        assert (outcome.error, outcome.compile_failed) == (None, not fits)
        assert outcome.stdout == (f"{size}\n".encode() if fits else b"")
        assert (b"8 MiB" in outcome.stderr) is not fits


def test_a_header_of_the_host_cannot_be_compiled_in(engine: SyncEngine, tmp_path: Path) -> None:
    """F59: a compiler reads files, so it sees what programs see and no more."""
    from proctor.core.errors import InputError

    try:
        language("cpp")
    except InputError:
        pytest.skip("no C++ here")
    secret = tmp_path / "secret.h"
    secret.write_text('#define SECRET "CANARY_f59"\n')
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    source = f'#include "{secret}"\n#include <cstdio>\nint main() {{ puts(SECRET); }}\n'
    found = graded(engine, source, stdio(("", "CANARY_f59"), language="cpp", memory_limit_mib=512))
    assert found.verdict is Verdict.COMPILE_ERROR


def test_a_hundred_dead_children(engine: SyncEngine) -> None:
    """F61: zombies that nobody had waited for kept the host from going on."""
    source = "import os\nfor i in range(150):\n    if os.fork() == 0: os._exit(0)\n"
    wide = graded(engine, source, SEVEN, limits={"processes": 300})
    assert wide.verdict is Verdict.WRONG_ANSWER
    assert graded(engine, ADD).reward == 1.0
    narrow = graded(engine, source, SEVEN, limits={"processes": 32})
    if counts_exactly(engine):
        assert narrow.verdict is Verdict.RUNTIME_ERROR
        assert b"BlockingIOError" in narrow.cases[0].outcome.stderr
    assert narrow.reward == 0.0
    assert graded(engine, ADD).reward == 1.0


def test_a_chain_of_shells_stops_at_the_limit(engine: SyncEngine) -> None:
    """F62: shells that start shells used up the kernel's memory, for no limit on processes held."""
    chain = b'f() { echo $1 >&2; [ $1 -gt 0 ] && bash -c "$(declare -f f); f $(( $1 - 1 )); true"; }; f 180\n'
    program = Program({"a.sh": chain}, ("bash", "a.sh", "4321.062"))
    (outcome,) = ran(engine, program, limits=Limits(cpu_s=5, wall_s=2, processes=24))
    depth = 180 - min(int(line) for line in outcome.stderr.split() if line.isdigit())
    if counts_exactly(engine):
        assert 5 < depth < 24
        assert b"fork" in outcome.stderr or outcome.ended_by is EndedBy.WALL  # a shell waits and tries again
        assert not outcome.ok
    assert until(lambda: not processes_with("4321.062"))
    assert graded(engine, ADD).reward == 1.0
