"""Faults of other graders that said of a program what was not so, or fell over what it wrote."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from fault_help import ADD, PATIENCE, SUM, graded, processes_with, ran, stdio, until

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job, Program
from proctor.engine.shared import SyncEngine


@pytest.mark.parametrize("warm", [True, False])
def test_abort_is_abort_and_ends_the_program(engine: SyncEngine, warm: bool) -> None:
    """F32: as pid 1 of its namespace a program does not die by its own signal, or shows another one."""
    for act in ("os.kill(os.getpid(), signal.SIGABRT)", "os.abort()", "signal.raise_signal(signal.SIGABRT)"):
        found = graded(engine, f"import os, signal\n{act}\nprint(7)\n", stdio(("3 4\n", "7\n")), warm=warm)
        outcome = found.cases[0].outcome
        assert found.verdict is Verdict.RUNTIME_ERROR
        assert (outcome.signal, outcome.exit_code, outcome.stdout) == (signal.SIGABRT, None, b""), act


def test_more_memory_than_allowed_is_said_to_be_that(engine: SyncEngine) -> None:
    """F33: a program over the memory limit was reported as signalled, with 256 KiB used."""
    source = "x = bytearray(b'x') * (700 << 20)\nprint(len(x))\n"
    found = graded(engine, source, stdio(("3 4\n", "7\n"), memory_limit_mib=128))
    assert found.verdict is Verdict.MEMORY_LIMIT
    assert found.cases[0].outcome.ended_by is EndedBy.MEMORY
    assert found.cases[0].memory_mib is None or not engine.features["memory"] or found.cases[0].memory_mib > 100


def test_a_program_that_dies_before_it_reads_its_input(engine: SyncEngine) -> None:
    """F35: writing to a pipe that nobody read was an error of the sandbox, and hid the program's own."""
    problem = stdio(*((b"%d" % n + b"x" * 300_000, "7\n") for n in range(32)))
    found = graded(engine, "import nothing_like_this\n", problem)
    assert len(found.cases) == 32
    for case in found.cases:
        assert case.verdict is Verdict.RUNTIME_ERROR
        assert b"ModuleNotFoundError: No module named 'nothing_like_this'" in case.outcome.stderr
        assert "nothing_like_this" in case.detail
        assert case.outcome.error is None


def test_an_agent_that_is_killed_again_and_again_is_no_zero() -> None:
    """F37: a verifier that was killed before it had a verdict was a reward of 0."""
    engine = SyncEngine(slots=1)
    over = threading.Event()

    def shoot() -> None:
        while not over.wait(0.02):
            for pid in engine.agent_pids():
                with contextlib.suppress(OSError):  # it may be gone already
                    os.kill(pid, signal.SIGKILL)

    try:
        assert graded(engine, ADD).reward == 1.0
        thread = threading.Thread(target=shoot)
        thread.start()
        try:
            found = graded(engine, f"import time\ntime.sleep(0.5)\n{ADD}")
        finally:
            over.set()
            thread.join()
        assert (found.verdict, found.reward) == (Verdict.INFRASTRUCTURE_ERROR, None)
        assert found.error
        assert graded(engine, ADD).reward == 1.0
    finally:
        engine.close()


def test_an_agent_that_is_killed_once_does_not_show() -> None:
    """F37: one death of ours costs no program its reward."""
    source = f"import time\ntime.sleep(1)\n{ADD}".encode()
    program = Program({"solution.py": source}, ("python3", "solution.py", "4321.037"))
    engine = SyncEngine(slots=1)
    try:
        future = engine.submit(Job(program, (Case(b"3 4\n"),), Limits(cpu_s=2)))
        assert until(lambda: processes_with("4321.037"))
        for pid in engine.agent_pids():
            os.kill(pid, signal.SIGKILL)
        (outcome,) = future.result(PATIENCE)
        assert (outcome.error, outcome.stdout) == (None, b"7\n")
    finally:
        engine.close()


@pytest.mark.parametrize("how", ["one write", "many writes"])
def test_the_output_limit_does_not_depend_on_the_writes(engine: SyncEngine, how: str) -> None:
    """F39: one write of 5000 bytes passed a limit of 1024, many small ones did not."""
    source = """
import os
data = bytes(range(256)) * 20
if input() == "one write":
    os.write(1, data[:5000])
else:
    for i in range(5000):
        os.write(1, data[i:i + 1])
"""
    problem = stdio((f"{how}\n", "7\n"))
    found = graded(engine, source, problem, limits={"output_bytes": 1024})
    assert found.verdict is Verdict.OUTPUT_LIMIT
    (outcome,) = ran(engine, source, Case(f"{how}\n".encode()), limits=Limits(output_bytes=1024))
    assert outcome.ended_by is EndedBy.OUTPUT
    assert outcome.stdout == (bytes(range(256)) * 4)[:1024]
    exact = graded(engine, "print('x' * 1023)\n", stdio(("", "x" * 1023)), limits={"output_bytes": 1024})
    assert exact.verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("warm", [True, False])
def test_what_was_written_before_a_time_limit_is_there(engine: SyncEngine, warm: bool) -> None:
    """F40: one path kept it and another lost it."""
    for waits, limits in (("time.sleep(60)", {"wall_s": 0.5}), ("while True: pass", {"cpu_s": 0.2, "wall_s": 20})):
        source = f"import os, time\nos.write(1, b'early\\n')\nos.write(2, b'so far\\n')\n{waits}\n"
        found = graded(engine, source, stdio(("", "early\n")), limits=limits, warm=warm)
        assert (found.verdict, found.reward) == (Verdict.TIME_LIMIT, 0.0)
        assert found.cases[0].outcome.stdout == b"early\n"
        assert found.cases[0].outcome.stderr == b"so far\n"


LENGTHS = (1, 2, 3, 4, 5, 6, 7, 63, 64, 65, 127, 128, 129, 130, 599, 600, 601, 700)


def test_text_cut_within_a_character(engine: SyncEngine) -> None:
    """F43: a preview of the output was cut within a character, and could not be read back."""
    quotes = "\u2019" * 200
    source = "import sys\nsys.stdout.write('\\u2019' * 200 + '\\n')\nsys.stderr.write('\\u2019' * 200)\n"
    for length in LENGTHS:
        found = graded(engine, source, stdio(("", quotes)), limits={"stderr_keep": length})
        assert found.verdict is Verdict.ACCEPTED, length
        assert found.cases[0].outcome.stderr == quotes.encode()[:length]
        json.loads(json.dumps(found.to_json()))
        wrong = graded(engine, source, stdio(("", "x" * (length - 1) + quotes)), limits={"stderr_keep": length})
        assert wrong.verdict is (Verdict.WRONG_ANSWER if length > 1 else Verdict.ACCEPTED)
        json.dumps(wrong.to_json()).encode("ascii")
        crashed = graded(engine, f"raise ValueError('x' * {length} + '\\u2019' * 200)\n", SUM)
        json.dumps(crashed.to_json()).encode("ascii")
        (outcome,) = ran(engine, source, limits=Limits(stdout_keep=length))
        assert outcome.stdout == (quotes.encode() + b"\n")[:length]


def test_the_command_line_cuts_within_a_character() -> None:
    """F43: what ``proctor run`` passes on is bytes, and its report is text that can be read."""
    program = ["python3", "-c", "print('\\u2019' * 200)"]
    for length in (1, 2, 100):
        command = [sys.executable, "-m", "proctor", "run", "--keep", str(length), "--json", "--", *program]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["exit_code"] == 0


def test_a_script_whose_first_line_ends_in_a_carriage_return(engine: SyncEngine) -> None:
    """F65: the interpreter that such a line names does not exist; the failed start then skipped the tidying up."""
    script = Program({"run.sh": b"#!/bin/bash\r\necho 7\r\n"}, ("./run.sh",))
    plain = Program({"run.sh": b"#!/bin/bash\necho 7\n"}, ("./run.sh",))
    source = b"import os\nprint(os.listdir(), os.listdir(os.environ.get('TMPDIR', '/tmp')))\n"
    look = Program({"look.py": source}, ("python3", "look.py"))
    for _ in range(2):
        for outcome in ran(engine, script, Case(b"3 4\n"), Case(b"3 4\n")):
            assert outcome.exit_code not in (0, None)
            assert (outcome.stdout, outcome.ended_by) == (b"", None)
        (after,) = ran(engine, look)
        assert after.stdout == b"['look.py'] []\n"
        (control,) = ran(engine, plain)
        assert control.stdout == b"7\n"
    assert graded(engine, ADD).reward == 1.0
