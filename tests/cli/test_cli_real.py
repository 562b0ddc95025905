"""The command line on the real engine: what a user types, end to end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.cli.demo import load_rows, result_json
from proctor.core.verdict import Verdict
from proctor.grading.grades import Grade

PROCTOR = [sys.executable, "-m", "proctor.cli.main"]


def _run(*args: str, stdin: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PROCTOR, "run", *args], input=stdin, capture_output=True, cwd=cwd, timeout=120)


def _python(code: str, *options: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return _run(*options, "--", "python3", "-c", code, stdin=stdin)


def test_bytes_and_exit_code_pass_through() -> None:
    data = bytes(range(256)) * 100
    code = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.stderr.buffer.write(b'\\xff\\x00'); sys.exit(7)"
    done = _python(code, stdin=data)
    assert (done.returncode, done.stdout, done.stderr) == (7, data, b"\xff\x00")


def test_a_shell_and_a_signal() -> None:
    done = _run("--", "sh", "-c", "echo hello; kill -SEGV $$")
    assert (done.returncode, done.stdout) == (139, b"hello\n")


@pytest.mark.parametrize("warm", [True, False])
def test_a_file_comes_along(tmp_path: Path, warm: bool) -> None:
    (tmp_path / "solution.py").write_text("import sys\nprint(sys.argv, open('data.txt').read())\nsys.exit(3)\n")
    (tmp_path / "data.txt").write_text("data")
    more = () if warm else ("--real-interpreter",)
    done = _run(*more, "--file", "data.txt", "--", "python3", "solution.py", "x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, b"['solution.py', 'x'] data\n")


@pytest.mark.parametrize(
    ("code", "options", "status", "said"),
    [
        ("while True: pass", ("--cpu", "0.3"), 124, b"CPU time limit of 0.3 s"),
        ("import time; time.sleep(60)", ("--wall", "500ms"), 124, b"wall time limit of 0.5 s"),
        ("x = bytearray(b'x') * (1 << 30)", ("--memory", "64M"), None, b""),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)", ("--output", "1M"), None, b"output limit of 1 MiB"),
    ],
)
def test_limits(code: str, options: tuple[str, ...], status: int | None, said: bytes) -> None:
    done = _python(code, *options)
    assert said in done.stderr
    if status is None:
        assert done.returncode != 0
    else:
        assert done.returncode == status


def test_truncation_is_told() -> None:
    done = _python("print('x' * 100_000, end='')")
    assert done.returncode == 0
    assert done.stdout == b"x" * 65536
    assert done.stderr == b"proctor: stdout was cut after 64 KiB; --keep SIZE passes on more\n"
    assert len(_python("print('x' * 100_000, end='')", "--keep", "1M").stdout) == 100_000


def test_a_command_that_is_not_there() -> None:
    done = _run("--", "no-such-command")
    assert done.returncode in (126, 127)
    assert done.stderr.count(b"\n") == 1


def test_json() -> None:
    done = _python("import sys; sys.stdout.write('\\x1b[31m'); sys.exit(2)", "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert (told["exit_code"], told["stdout"], told["ended_by"], told["error"]) == (2, "\x1b[31m", None, None)
    assert told["wall_ms"] > 0


def test_nothing_reaches_a_terminal_unescaped() -> None:
    main, side = pty.openpty()
    code = "import sys; print('\\x1b]0;owned\\x07'); print('\\x1b[2J', file=sys.stderr)"
    command = [*PROCTOR, "run", "--", "python3", "-c", code]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side) as process:
        os.close(side)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end was closed
            while data := os.read(main, 65536):
                shown += data
        os.close(main)
    assert process.returncode == 0
    assert shown.splitlines() == [b"\\x1b]0;owned\\x07", b"\\x1b[2J"]


def test_a_closed_pipe() -> None:
    command = [*PROCTOR, "run", "--", "python3", "-c", "print('x' * 60000)"]
    with subprocess.Popen(command, stdin=-3, stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


def test_interrupted_it_ends_at_once_and_leaves_nothing() -> None:
    command = [*PROCTOR, "run", "--wall", "60", "--", "python3", "-c", "import time; time.sleep(55)"]
    with subprocess.Popen(command, stdin=-3, stdout=-1, stderr=-1) as process:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        assert process.wait(30) == 130
        assert time.monotonic() - start < 5
        assert process.stderr is not None
        assert process.stderr.read().strip() == b"proctor: error: interrupted"


def test_demo_gives_every_expected_verdict() -> None:
    done = subprocess.run([*PROCTOR, "demo", "--json"], capture_output=True, text=True, timeout=170)
    told = json.loads(done.stdout)
    wrong = [(r["program"], r["verdict"], r["expected"]) for r in told["results"] if r["verdict"] != r["expected"]]
    assert wrong == []
    assert done.returncode == 0
    assert len(told["results"]) >= 20
    assert told["ratio"] > 0


def test_a_fork_bomb_of_the_demo_may_be_out_of_time_before_it_is_out_of_processes() -> None:
    (bomb,) = [row for row in load_rows() if row["model"] == "fork bomb"]
    for verdict in Verdict:
        grade = Grade(problem_id="demo/sum", index=0, verdict=verdict, reward=0.0)
        fine = verdict in (Verdict.RUNTIME_ERROR, Verdict.TIME_LIMIT)
        assert (result_json(bomb, grade)["expected"] == verdict) is fine, verdict


def test_demo_as_a_table() -> None:
    done = subprocess.run([*PROCTOR, "demo"], capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fork bomb" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert "unsandboxed subprocess.run" in last
    assert "ratio" in last


def test_score_killed_and_resumed(tmp_path: Path) -> None:
    problem = {"id": "a", "mode": "stdio", "cases": [{"stdin": "2\n", "expected": "4\n"}], "time_limit_s": 5}
    (tmp_path / "p.jsonl").write_text(json.dumps(problem))
    rows = [
        {"problem_id": "a", "completion": f"import time\nn = int(input())\ntime.sleep(0.05)\nprint(n + {k % 3})"}
        for k in range(40)
    ]
    rows = [row | {"completion": row["completion"] + f"\n# {k}"} for k, row in enumerate(rows)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [*PROCTOR, "score", "--problems", "p.jsonl", "--completions", "c.jsonl", "--out", "o.jsonl"]
    for turn in range(30):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=-3, stderr=-3)
        try:
            process.wait(1 + turn / 4)  # longer each time, for a busy machine
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.returncode == 0
    rewards = [json.loads(line)["reward"] for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert rewards == [float(k % 3 == 2) for k in range(40)]


def test_streams_that_were_closed_from_the_start() -> None:
    command = " ".join(PROCTOR)
    done = subprocess.run(["sh", "-c", f"{command} run -- cat <&- >&-"], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
