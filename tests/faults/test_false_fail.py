"""Faults of other graders that paid nothing for programs that were right."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_help import ADD, PATIENCE, SUM, graded, stdio

import proctor
from proctor.core.limits import Limits
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job
from proctor.engine.languages import program
from proctor.engine.shared import SyncEngine

OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


def test_fewer_digits_than_the_expected_number_has(engine: SyncEngine) -> None:
    """F14: numbers were compared exactly, as Decimals."""
    third = [{"stdin": "3\n", "expected": "0.333333333333\n"}]
    (near,) = proctor.problems_from_rows([{"id": "n", "cases": third, "checker": {"kind": "numbers", "abs": 1e-6}}])
    (plain,) = proctor.problems_from_rows([{"id": "p", "cases": third}])
    source = "n = int(input())\nprint(f'{1/n:.6f}')\n"
    assert graded(engine, source, near).verdict is OK
    assert graded(engine, source, plain).verdict is WRONG
    assert graded(engine, source, plain, checker="exact").verdict is WRONG
    assert graded(engine, "print('0.3334')\n", near).verdict is WRONG


def test_bytes_written_to_the_buffer_of_stdout(engine: SyncEngine) -> None:
    """F15: stdout was a StringIO, which has no buffer."""
    source = "import sys\na, b = map(int, sys.stdin.readline().split())\nsys.stdout.buffer.write(b'%d\\n' % (a + b))\n"
    assert graded(engine, source).reward == 1.0


def test_a_number_of_more_digits_than_python_reads(engine: SyncEngine) -> None:
    """F16: 4300 digits are Python's guard, and the grader itself ran into it."""
    source = "import sys\nsys.set_int_max_str_digits(0)\nprint(10**int(input()) + 1)\n"
    right, other = "1" + "0" * 4999 + "1\n", "1" + "0" * 4999 + "2\n"
    assert sys.get_int_max_str_digits() == 4300
    for checker in ("tokens", "lines", "exact", "numbers:abs=0.1,rel=0"):
        assert graded(engine, source, stdio(("5000\n", right)), checker=checker).verdict is OK, checker
        assert graded(engine, source, stdio(("5000\n", other)), checker=checker).verdict is WRONG, checker


def test_bytes_read_from_the_buffer_of_stdin(engine: SyncEngine) -> None:
    """F17: stdin was a StringIO, which has no buffer."""
    assert graded(engine, "import sys\na, b = map(int, sys.stdin.buffer.read().split())\nprint(a + b)\n").reward == 1.0


def test_lines_read_from_the_buffer_of_stdin(engine: SyncEngine) -> None:
    """F18: a stand-in for stdin gave its first line again and again."""
    source = "import sys\nr = sys.stdin.buffer.readline\na = int(r())\nb = int(r())\nprint(a + b, r())\n"
    assert graded(engine, source, stdio(("3\n4\n", "7 b''\n"))).reward == 1.0
    assert graded(engine, source, stdio(("3\n4\n", "7 b''\n")), warm=False).reward == 1.0


def test_one_of_several_right_answers(engine: SyncEngine) -> None:
    """F19: only the one answer that the data set happened to have was accepted.

    Here the caller's own function judges; checker programs of problem files
    have tests of their own.
    """

    def any_digit_but_the_sum(out: bytes, want: bytes, given: bytes) -> bool:
        text = out.strip()
        return len(text) == 1 and text.isdigit() and int(text) != sum(map(int, given.split()))

    source = "a, b = map(int, input().split())\nprint(9 if a + b < 9 else 0)\n"
    problem = stdio(("3 4\n", "1\n"))
    assert graded(engine, source, problem).verdict is WRONG
    assert graded(engine, source, problem, checker=any_digit_but_the_sum).verdict is OK
    assert graded(engine, ADD, problem, checker=any_digit_but_the_sum).verdict is WRONG


def test_more_output_than_a_pipe_holds(engine: SyncEngine) -> None:
    """F23: the end of the program was waited for before its output was read."""
    want = "".join(f"{n * n}\n" for n in range(90_000))
    assert len(want) > 10 * 65536
    source = "n = int(input())\nprint('\\n'.join(str(i * i) for i in range(n)))\n"
    assert graded(engine, source, stdio(("90000\n", want)), checker="exact").verdict is OK
    assert graded(engine, source, stdio(("90000\n", want + "0\n"))).verdict is WRONG


def test_more_on_stderr_than_a_pipe_holds(engine: SyncEngine) -> None:
    """F24: a full pipe of standard error blocked the program, and what it wrote was lost."""
    found = graded(engine, f"import sys\nsys.stderr.write('e' * 300000)\n{ADD}")
    assert found.reward == 1.0
    for case in found.cases:
        assert case.outcome.stderr == b"e" * Limits().stderr_keep
        assert case.outcome.stderr_truncated


def test_a_million_bytes_in_one_write(engine: SyncEngine) -> None:
    """F25: beyond the pipe and the stream's buffer nothing could be written, and the run ended as a time limit."""
    for size in (100_000, 1_000_000, 1_048_577):
        source = f"import sys\nsys.stdout.write('x' * {size} + '\\n')\n"
        for warm in (True, False):
            assert graded(engine, source, stdio(("", b"x" * size)), warm=warm).verdict is OK, (size, warm)


@pytest.fixture(scope="module")
def wide() -> Iterator[SyncEngine]:
    """More jobs at once than this host has cores."""
    engine = SyncEngine(slots=6)
    yield engine
    engine.close()


@pytest.mark.parametrize("warm", [True, False])
def test_calls_that_programs_make_now_and_then_are_allowed(wide: SyncEngine, warm: bool) -> None:
    """F26: one honest run in a thousand died by SIGSYS, of calls that a list of allowed ones lacked.

    Fewer runs here; tests/guest/test_seccomp.py and test_differential.py hold the list itself.
    """
    source = """
import threading, subprocess, tempfile, time, os, random, multiprocessing, select, shutil
t = threading.Thread(target=time.sleep, args=(0.001,)); t.start(); t.join()
with tempfile.TemporaryFile() as x: x.write(os.urandom(9))
with tempfile.TemporaryDirectory() as d: shutil.copyfile("solution.py", d + "/copy")
a, b = map(int, input().split())
random.seed(); os.sched_yield(); select.select([], [], [], 0.001)
if a == 3: subprocess.run(["true"], check=True)
print(a + b)
"""
    count = 64 if warm else 8
    rewards = proctor.score([f"{source}# {n}\n" for n in range(count)], SUM, engine=wide, extract="whole", warm=warm)
    assert rewards == [1.0] * count


WORKERS = """
import multiprocessing, sys, warnings
sys.path.insert(0, {here!r})
from fault_help import sum_in_a_worker
if __name__ == "__main__":
    assert sum_in_a_worker(1.0)  # so that there is something that a fork may inherit
    for how in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(how).Pool(2) as pool:
            print(how, pool.map(sum_in_a_worker, [1.0, 1.0]))
"""


def test_graded_in_worker_processes_of_each_kind(tmp_path: Path) -> None:
    """F27: the grader could not be sent to a spawned worker, and every program scored 0.

    That a batch in which nothing could be scored is no batch of zeros: see
    ``test_a_batch_that_this_host_could_not_run``.
    """
    (tmp_path / "main.py").write_text(WORKERS.format(here=str(Path(__file__).parent)))
    command = [sys.executable, "-W", "ignore", str(tmp_path / "main.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.stdout.splitlines() == [f"{how} [True, True]" for how in ("fork", "spawn", "forkserver")], done.stderr


def test_many_right_programs_at_once(wide: SyncEngine) -> None:
    """F28: right programs ran out of a limit of 3 s while they waited for one another."""
    limits = Limits(cpu_s=1, wall_s=3, memory_mib=128)
    jobs = [Job(program(f"{ADD}# {n}\n"), (Case(b"3 4\n"),), limits) for n in range(64)]
    futures = [wide.submit(job) for job in jobs]
    outcomes = [outcome for future in futures for outcome in future.result(4 * PATIENCE)]
    assert [(outcome.error, outcome.stdout) for outcome in outcomes] == [(None, b"7\n")] * 64


def test_a_batch_that_this_host_could_not_run(caplog: pytest.LogCaptureFixture) -> None:
    """F29: the harness gave None for every program, and every reward became 0.

    Here each reward is None, its cause is named, and the log says that nothing
    could be scored; ``proctor score`` ends with an error
    (tests/cli/test_cli_score.py::test_nothing_scored_is_said_aloud).
    """
    broken = SyncEngine(slots=1)
    right = graded(broken, ADD)
    broken.close()
    assert right.reward == 1.0
    with caplog.at_level("ERROR", logger="proctor"):
        found = proctor.grade([ADD, "print(7)\n", "1/0\n"], SUM, engine=broken, extract="whole", cache=False)
    assert [grade.reward for grade in found] == [None] * 3
    assert {grade.verdict for grade in found} == {Verdict.INFRASTRUCTURE_ERROR}
    assert all(grade.error and "closed" in grade.error for grade in found)
    assert "none of 3 programs could be scored" in caplog.text


def test_a_program_in_javascript(engine: SyncEngine) -> None:
    """F30: the language got lost on the way, and an error of the grader's own became 'no reward'."""
    if not shutil.which("node", path="/usr/bin:/bin:/usr/local/bin"):
        pytest.skip("no node here")
    source = "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number); console.log(a + b)\n"
    problem = stdio(("3 4\n", "7\n"), ("10 -2\n", "8\n"), language="javascript", memory_limit_mib=1024)
    assert graded(engine, source, problem).reward == 1.0
    named = [{"completion": source, "language": "js"}]
    assert proctor.score(named, stdio(("3 4\n", "7\n"), memory_limit_mib=1024), engine=engine) == [1.0]


def test_a_language_that_nobody_knows(engine: SyncEngine) -> None:
    """F30: an unknown language is an error of the caller's, never a reward."""
    with pytest.raises(proctor.InputError, match=r"'klingon' is not one of .*python"):
        graded(engine, ADD, stdio(("3 4\n", "7\n"), language="klingon"))
    with pytest.raises(proctor.InputError, match="klingon"):
        proctor.problems_from_rows([{"id": "x", "language": "klingon", "cases": [{"stdin": "", "expected": ""}]}])


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize(
    "end",
    [
        "sys.stdout.write('\\n'.join(out))",
        "print(*out, end='')",
        "sys.stdout = open(1, 'w', closefd=False); sys.stdout.write(out[0])",
        "import os; os.write(1, out[0].encode()); os._exit(0)",
        "sys.stdout.write(out[0]); sys.exit()",
        "open('/dev/stdout', 'w').write(out[0])",
    ],
)
def test_output_without_a_newline_or_a_flush(engine: SyncEngine, end: str, warm: bool) -> None:
    """F31: some right programs gave no output in the sandbox, though they do on a terminal."""
    source = f"import sys\ninput = sys.stdin.readline\nout = []\na, b = map(int, input().split())\nout.append(str(a + b))\n{end}\n"
    found = graded(engine, source, warm=warm)
    assert found.reward == 1.0, found
