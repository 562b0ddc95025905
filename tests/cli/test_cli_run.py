"""``proctor run`` around the engine: what goes in, what comes out, which exit code."""

from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from cli_fakes import FakeEngine, fake_engine
from click.testing import CliRunner, Result

from proctor.cli.main import cli
from proctor.cli.run import exit_code, outcome_json, pass_on
from proctor.core.outcome import EndedBy, Outcome


def _run(
    patch: pytest.MonkeyPatch, outcome: Outcome, *args: str, stdin: bytes | None = None
) -> tuple[Result, FakeEngine]:
    engine = fake_engine(patch, lambda job: [outcome])
    return CliRunner().invoke(cli, ["run", *args], input=stdin), engine


def test_streams_and_exit_code_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome(exit_code=7, stdout=b"out\xff\x1b\n", stderr=b"err\x00")
    result, engine = _run(monkeypatch, outcome, "--", "sh", "-c", "--x", stdin=b"\xff\r\n\0in")
    assert result.exit_code == 7
    assert result.stdout_bytes == b"out\xff\x1b\n"
    assert result.stderr_bytes == b"err\x00"
    job = engine.jobs[0]
    assert job.program.argv == ("sh", "-c", "--x")
    assert job.cases[0].stdin == b"\xff\r\n\0in"
    assert not job.program.warm


def test_limits_reach_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    args = "--cpu 500ms --wall 1m --memory 1G --processes 3 --open-files 20 --workspace 2 --workspace-files 99"
    result, engine = _run(monkeypatch, Outcome(exit_code=0), *args.split(), "--output", "1M", "--keep", "2K", "true")
    assert result.exit_code == 0
    limits = engine.jobs[0].limits
    assert (limits.cpu_s, limits.wall, limits.memory_mib, limits.processes, limits.open_files) == (0.5, 60, 1024, 3, 20)
    assert (limits.workspace_mib, limits.workspace_inodes) == (2, 99)
    assert (limits.output_bytes, limits.stdout_keep, limits.stderr_keep) == (1 << 20, 2048, 2048)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(exit_code=0), 0),
        (Outcome(signal=11), 139),
        (Outcome(signal=9, ended_by=EndedBy.CPU), 124),
        (Outcome(signal=9, ended_by=EndedBy.WALL), 124),
        (Outcome(signal=9, ended_by=EndedBy.MEMORY), 137),
        (Outcome(exit_code=0, ended_by=EndedBy.OUTPUT), 137),
        (Outcome(error="the agent is gone"), 125),
    ],
)
def test_exit_code(outcome: Outcome, code: int) -> None:
    assert exit_code(outcome) == code


def test_our_own_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = _run(monkeypatch, Outcome(error="the agent\x1b is gone"), "true")
    assert result.exit_code == 125
    assert result.stderr == "proctor: error: this host failed: the agent\\x1b is gone\n"


def test_notes_on_limits_and_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome(signal=9, ended_by=EndedBy.CPU, stdout=b"x", stdout_truncated=True)
    result, _ = _run(monkeypatch, outcome, "--cpu", "2", "true")
    assert result.exit_code == 124
    assert result.stderr.splitlines() == [
        "proctor: the CPU time limit of 2 s ended the program",
        "proctor: stdout was cut after 64 KiB; --keep SIZE passes on more",
    ]


def test_files_named_in_the_command_come_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("solution.py").write_bytes(b"print(1)")
    Path("data").mkdir()
    Path("data/in.txt").write_bytes(b"1")
    Path("other.py").write_bytes(b"2")
    (tmp_path.parent / "outside.py").write_bytes(b"3")
    outside = str(tmp_path.parent / "outside.py")
    result, engine = _run(
        monkeypatch, Outcome(exit_code=0), "--file", outside, "--file", "other.py=lib/o.py",
        "python3", "./solution.py", "data/in.txt", "data", "../outside.py", "/etc/passwd",
    )  # fmt: skip
    assert result.exit_code == 0
    program = engine.jobs[0].program
    assert program.files == {"solution.py": b"print(1)", "data/in.txt": b"1", "outside.py": b"3", "lib/o.py": b"2"}


@pytest.mark.parametrize(("extra", "warm"), [((), True), (("--real-interpreter",), False)])
def test_python_runs_warm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: tuple[str, ...], warm: bool) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_bytes(b"")
    _, engine = _run(monkeypatch, Outcome(exit_code=0), *extra, "--", "python3", "s.py", "arg")
    assert engine.jobs[0].program.warm is warm


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["missing"], "no such file"),
        (["."], "is a directory"),
        (["a=x", "b=x"], "two files would be 'x'"),
        (["a=../x"], "plain relative"),
    ],
)
def test_bad_files_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").touch()
    Path("b").touch()
    result, engine = _run(monkeypatch, Outcome(exit_code=0), *(f"--file={f}" for f in files), "true")
    assert result.exit_code == 125
    assert said in result.stderr
    assert not engine.jobs


def test_too_much_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.cli.run.MAX_STDIN", 10)
    result, engine = _run(monkeypatch, Outcome(exit_code=0), "true", stdin=b"x" * 11)
    assert result.exit_code == 125
    assert "standard input" in result.stderr
    assert not engine.jobs


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome(exit_code=3, stdout="é\x1b\x7f".encode(), stderr=b"\xff", cpu_s=0.25, peak_memory_bytes=3 << 20)
    result, _ = _run(monkeypatch, outcome, "--json", "true")
    assert result.exit_code == 3
    assert result.stdout.isascii()
    assert "\x7f" not in result.stdout
    told: dict[str, Any] = json.loads(result.stdout)
    assert told["stdout"] == "é\x1b\x7f"
    assert (told["stdout_encoding"], told["stderr_encoding"]) == ("utf-8", "base64")
    assert base64.b64decode(told["stderr"]) == b"\xff"
    assert (told["exit_code"], told["cpu_ms"], told["memory_mib"], told["ended_by"]) == (3, 250, 3, None)


def test_json_text_cut_within_a_character_stays_text() -> None:
    told = outcome_json(Outcome(exit_code=0, stdout="aé".encode()[:-1], stdout_truncated=True))
    assert (told["stdout"], told["stdout_encoding"]) == ("a", "utf-8")


def test_a_terminal_gets_escaped_text() -> None:
    stream = io.BytesIO()
    pass_on(b"a\x1b[2J\xff\r\n", stream, terminal=True)
    assert stream.getvalue() == b"a\\x1b[2J\\xff\\x0d\n"


def test_through_a_pty(monkeypatch: pytest.MonkeyPatch) -> None:
    main, side = os.openpty()
    with open(side, "wb", buffering=0) as stream:
        assert stream.isatty()
        pass_on(b"\x1b]52;c;eA==\x07", stream, stream.isatty())
        assert os.read(main, 100) == b"\\x1b]52;c;eA==\\x07"
    os.close(main)
