"""``proctor score`` around grading and the engine: resuming, bad input, full disks, what is told."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FAKES = [sys.executable, str(Path(__file__).with_name("cli_fakes.py"))]
PROBLEM = {"id": "a", "mode": "stdio", "cases": [{"stdin": "", "expected": "6"}]}
COUNT = 40


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with 1 problem and 40 completions, 4 of them right."""
    (tmp_path / "p.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    rows = [{"problem_id": "a", "completion": f"print({n % 10})\n# number {n}"} for n in range(COUNT)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _command(*more: str, out: str = "out.jsonl") -> list[str]:
    return [*FAKES, "score", "--problems", "p.jsonl", "--completions", "c.jsonl", "--out", out, *more]


def _score(*more: str, out: str = "out.jsonl", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(*more, out=out), capture_output=True, text=True, env=os.environ | env, timeout=60)


def _rows(path: str | Path) -> list[dict[str, Any]]:
    """The lines without what may differ from run to run."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    for row in rows:
        for case in row["cases"]:
            del case["cpu_ms"], case["wall_ms"], case["memory_mib"]
    return rows


def test_one_line_each_in_input_order(box: Path) -> None:
    done = _score()
    assert done.returncode == 0, done.stderr
    rows = _rows("out.jsonl")
    assert [row["index"] for row in rows] == list(range(COUNT))
    assert [row["reward"] for row in rows] == [float(n % 10 == 6) for n in range(COUNT)]
    assert all(set(row) >= {"problem_id", "index", "reward", "verdict", "cases", "program_sha256"} for row in rows)
    assert "mean reward 0.1 over 40 of 40" in done.stdout
    assert re.search(r"accepted\s*│\s*4 │", done.stdout)


def test_run_again_it_says_that_all_is_done(box: Path) -> None:
    _score()
    before = Path("out.jsonl").stat().st_mtime_ns
    done = _score(FAKE_BROKEN=".")
    assert done.returncode == 0
    assert "complete already" in done.stderr
    assert Path("out.jsonl").stat().st_mtime_ns == before


def test_summary_as_json(box: Path) -> None:
    told = json.loads(_score("--json", FAKE_BROKEN="number 7").stdout)
    assert told["verdicts"] == {"accepted": 4, "wrong_answer": 35, "infrastructure_error": 1}
    assert (told["completions"], told["done"], told["no_reward"], told["claimed"], told["cases"]) == (40, 40, 1, 0, 40)
    assert told["infrastructure_errors"] == {"no slot\\x1b]0;owned\\x07": 1}
    assert told["mean_reward"] == pytest.approx(4 / 39)


def test_killed_at_random_moments_it_ends_with_the_same_file(box: Path) -> None:
    assert _score(out="whole.jsonl").returncode == 0
    rng, kills = random.Random(1), 0
    for _ in range(30):
        process = subprocess.Popen(_command(), env=os.environ | {"FAKE_DELAY": "0.05"}, stdout=-3, stderr=-3)
        try:
            process.wait(0.3 + rng.random() / 2 + kills / 20)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            if Path("out.jsonl").exists():  # killed after its work was done
                assert _rows("out.jsonl") == _rows("whole.jsonl")
    assert kills > 1
    assert process.returncode == 0
    assert _rows("out.jsonl") == _rows("whole.jsonl")
    assert sorted(p.name for p in box.glob("out*")) == ["out.jsonl", "out.jsonl.journal"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_it_says_that_what_is_done_is_kept(box: Path, number: signal.Signals, code: int) -> None:
    env = os.environ | {"FAKE_DELAY": "0.1"}
    process = subprocess.Popen(_command(), env=env, stdout=-3, stderr=subprocess.PIPE, text=True)
    _until(lambda: Path("out.jsonl.journal").exists() and len(Path("out.jsonl.journal").read_bytes().splitlines()) > 5)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == code
    found = re.fullmatch(
        r"proctor: interrupted: (\d+) of 40 completions are done and kept; run the same command again to go on\n", said
    )
    assert found, said
    done = _score()
    assert done.returncode == 0
    assert f"going on where an earlier run was: {found[1]} of 40" in done.stderr
    assert len(_rows("out.jsonl")) == COUNT


def test_stopped_while_it_writes_to_a_pipe_it_does_not_promise_to_go_on(box: Path) -> None:
    env = os.environ | {"FAKE_DELAY": "0.1"}
    process = subprocess.Popen(_command(out="-"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert said.endswith("; run the same command again to begin anew\n"), said


def _until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_this_host_failed_on_has_no_score_and_is_tried_again(box: Path) -> None:
    done = _score(FAKE_BROKEN="number 1[0-9]")
    assert done.returncode == 1
    assert "10 completions have no score" in done.stderr
    assert "10 x no slot\\x1b]0;owned\\x07" in done.stderr
    assert {row["reward"] for row in _rows("out.jsonl")[10:20]} == {None}
    done = _score()
    assert done.returncode == 0
    assert "trying again 10 completions" in done.stderr
    assert _score(out="whole.jsonl").returncode == 0
    assert _rows("out.jsonl") == _rows("whole.jsonl")


def test_nothing_scored_is_said_aloud(box: Path) -> None:
    done = _score(FAKE_BROKEN=".")
    assert done.returncode == 1
    assert "NOTHING WAS SCORED" in done.stderr


def test_other_options_or_inputs_are_refused(box: Path) -> None:
    _score()
    done = _score("--reward", "all_or_nothing")
    assert done.returncode == 2
    assert "--reward: 'share' then, 'all_or_nothing' now" in done.stderr
    with open("c.jsonl", "a") as file:
        file.write(json.dumps({"problem_id": "a", "completion": "print(6)"}) + "\n")
    done = _score()
    assert done.returncode == 2
    assert "--completions changed" in done.stderr
    assert _score("--restart").returncode == 0
    assert len(_rows("out.jsonl")) == COUNT + 1


def test_a_journal_that_was_edited_earns_nothing(box: Path) -> None:
    assert _score(out="whole.jsonl").returncode == 0
    process = subprocess.Popen(_command(), env=os.environ | {"FAKE_DELAY": "0.1"}, stdout=-3, stderr=-3)
    journal = Path("out.jsonl.journal")
    _until(lambda: journal.exists() and len(journal.read_bytes().splitlines()) > 5)
    process.kill()
    process.wait()
    text = journal.read_text()
    assert text.count('"wrong_answer"') > 2
    journal.write_text(text.replace('"wrong_answer"', '"acccepted"').replace('"reward": 0.0', '"reward": 1.0'))
    done = _score()
    assert done.returncode == 0, done.stderr
    assert "of out.jsonl.journal damaged or changed: what is there is scored again" in done.stderr
    assert _rows("out.jsonl") == _rows("whole.jsonl")


def test_an_output_beside_an_input_is_refused(box: Path) -> None:
    Path("c.jsonl").rename("x.jsonl.journal")
    before = Path("x.jsonl.journal").read_bytes()
    command = [
        *FAKES,
        "score",
        "--problems",
        "p.jsonl",
        "--completions",
        "x.jsonl.journal",
        "--out",
        "x.jsonl",
        "--restart",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "x.jsonl.journal is an input too" in done.stderr) == (2, True)
    assert Path("x.jsonl.journal").read_bytes() == before


def test_other_workers_and_names_are_the_same_work(box: Path) -> None:
    _score()
    Path("c.jsonl").rename("d.jsonl")
    Path("c.jsonl").symlink_to("d.jsonl")
    assert "complete already" in _score("--workers", "7").stderr


def test_a_policy_of_ones_own_and_its_edit(box: Path) -> None:
    Path("my_rewards.py").write_text("def reward(grade):\n    return 5.0 if grade.accepted else -1.0\n")
    assert _score("--reward", "my_rewards:reward").returncode == 0
    assert [row["reward"] for row in _rows("out.jsonl")[5:8]] == [-1.0, 5.0, -1.0]
    Path("my_rewards.py").write_text("def reward(grade):\n    return 1 / 0\n")
    done = _score("--reward", "my_rewards:reward")
    assert done.returncode == 2
    assert "policy changed" in done.stderr
    done = _score("--reward", "my_rewards:reward", out="other.jsonl")
    assert done.returncode == 2
    assert "raised ZeroDivisionError on problem 'a'" in done.stderr


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        ({"p.jsonl": None}, (), "p.jsonl: no such file or directory"),
        ({"c.jsonl": "/"}, (), "c.jsonl: is a directory; give a file"),
        ({"c.jsonl": '{"problem_id": "a", "completion": ""}\n' * 6 + '{"problem_id"\n'}, (), "c.jsonl:7: not JSON: Expecting ':' delimiter (column 14)"),
        ({"p.jsonl": '{"id":\n'}, (), "p.jsonl:1: not JSON: Expecting value (column 7)"),
        ({"p.jsonl": '\n[\n{"id": 1},\n{"id" 2}]\n'}, (), "p.jsonl:4: not JSON: Expecting ':' delimiter (column 7)"),
        ({"p.jsonl": '{"a": 1}\n'}, (), "p.jsonl:1: field '--format': cannot be told from the keys (a)"),
        ({"c.jsonl": '{"problem_id": "a"}\n'}, (), "c.jsonl:1: field 'completion': missing"),
        ({"c.jsonl": '{"problem_id": "a", "completion": null}\n'}, (), "c.jsonl:1: field 'completion': null: there is no"),
        ({"c.jsonl": '{"problem_id": "a", "completion": "", "language": "rust"}\n',
          "p.jsonl": '{"id": "a", "mode": "function", "entry_point": "f", "cases": [{"expected": 1}]}\n'}, (),
         "c.jsonl:1: field 'language': problem 'a': "),
        ({"c.jsonl": '{"completion": ""}\n'}, (), "c.jsonl:1: field 'problem_id': missing"),
        ({"c.jsonl": '{"problem_id": "z", "completion": ""}\n'}, (), "no problem with id 'z'"),
        ({"c.jsonl": ""}, (), "c.jsonl: the file is empty"),
        ({"p.jsonl": '{"id": "a", "mode": "stdio", "cases": [{"stdin": ""}]}\n'}, (), "p.jsonl:1: field 'cases[0].expected': missing"),
        ({}, ("--problems", "p.jsonl"), "'a' is there already, in p.jsonl:1"),
        ({}, ("--reward", "nope"), "field '--reward': 'nope' is not share"),
        ({}, ("--checker", "nope"), "field '--checker': 'nope' is not one of exact"),
        ({}, ("--extract", "nope"), "field '--extract': 'nope' is not one of last-valid-block"),
        ({}, ("--format", "nope"), "field '--format': 'nope' is not one of auto"),
        ({}, ("--workers", "many"), "Invalid value for '--workers'"),
        ({}, ("--out", ""), "--out is empty"),
        ({}, ("--out", "."), "is a directory"),
        ({}, ("--out", "nowhere/out.jsonl"), "nowhere: no such directory"),
        ({}, ("--out", "c.jsonl", "--restart"), "c.jsonl is an input too"),
        ({"out.jsonl": "mine\n"}, (), "out.jsonl exists and is not a result"),
        ({}, ("--out", "-", "--json"), "would both write to standard output"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(
    box: Path, change: dict[str, str | None], more: tuple[str, ...], said: str
) -> None:
    for name, text in change.items():
        Path(name).unlink(missing_ok=True)
        if text == "/":
            Path(name).mkdir()
        elif text is not None:
            Path(name).write_text(text)
    before = {p.name: p.is_file() and p.read_bytes() for p in box.iterdir()}
    done = _score(*more)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("proctor: error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert {p.name: p.is_file() and p.read_bytes() for p in box.iterdir()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(box: Path) -> None:
    box.chmod(0o555)
    done = _score()
    box.chmod(0o755)
    assert done.returncode == 2
    assert "permission denied" in done.stderr


def test_a_slip_of_a_key_is_said_once(box: Path) -> None:
    rows = [
        json.loads(line) | {"Text": "print(6)", "logprobs": []} for line in Path("c.jsonl").read_text().splitlines()
    ]
    Path("c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = _score()
    assert done.returncode == 0
    assert (
        done.stderr.splitlines()[0] == "proctor: warning: c.jsonl:1: the key 'Text' is not read; did you mean 'text'?"
    )
    assert done.stderr.count("did you mean") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_device(box: Path) -> None:
    done = _score(out="/dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("proctor: error: /dev/full: no space left on the device")
    assert done.stderr.count("\n") == 1


@contextlib.contextmanager
def _small_disk(at: Path, size: str) -> Iterator[None]:
    at.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", at], capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_loses_nothing(box: Path) -> None:
    assert _score(out="whole.jsonl").returncode == 0
    page = 4096
    output = Path("whole.jsonl").stat().st_size // page + 1
    journal = (Path("whole.jsonl").stat().st_size + 3000) // page + 1  # with its header and numbers
    size = 2 * journal
    with _small_disk(box / "disk", f"{size * page}"):
        Path("disk/ballast").write_bytes(b"x" * page * (size - journal // 2))
        done = _score(out="disk/out.jsonl")
        assert done.returncode == 1
        assert re.fullmatch(
            r"proctor: error: disk/out.jsonl.journal: no space left on the device; free some and run the same command again; "
            r"[1-9]\d* of 40 completions are done and kept\n",
            done.stderr,
        )
        Path("disk/ballast").write_bytes(b"x" * page * (size - journal - output // 2))
        # Now the journal fits, but not the output beside it.
        done = _score(out="disk/out.jsonl")
        assert done.returncode == 1
        assert "disk/out.jsonl.tmp: no space left" in done.stderr
        assert "40 of 40 completions are done and kept" in done.stderr
        assert {p.name for p in Path("disk").iterdir()} == {"ballast", "out.jsonl.journal"}
        subprocess.run(["mount", "-o", "remount,size=1m", "disk"], check=True)
        assert _score(out="disk/out.jsonl").returncode == 0
        assert _rows("disk/out.jsonl") == _rows("whole.jsonl")


def test_to_a_pipe_and_to_a_closed_one(box: Path) -> None:
    done = _score(out="-")
    assert done.returncode == 0
    assert [json.loads(line)["index"] for line in done.stdout.splitlines()] == list(range(COUNT))
    with subprocess.Popen(_command(out="-"), env=os.environ | {"FAKE_DELAY": "0.05"}, stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 141


def test_a_line_every_few_seconds_without_a_terminal(box: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "import cli_fakes, proctor.cli.progress as p\np._EVERY_S = 0.1\n"
        "sys.modules['proctor.engine.shared'] = cli_fakes.module_of(cli_fakes.FakeEngine(cli_fakes.printed))\n"
        "from proctor.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), *_command()[2:]]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"FAKE_DELAY": "0.02"})
    assert done.returncode == 0, done.stderr
    assert re.search(r"^proctor: \d+/40 scored, \d+\.\d/s, \d+\.\d s left$", done.stderr, re.MULTILINE)


def test_a_bar_on_a_terminal_and_nothing_unescaped(box: Path) -> None:
    main, side = pty.openpty()
    env = os.environ | {"FAKE_DELAY": "0.05", "FAKE_BROKEN": "number 3", "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(_command(), env=env, stdin=side, stdout=side, stderr=side) as process:
        os.close(side)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end was closed
            while data := os.read(main, 65536):
                shown += data
        os.close(main)
    assert process.returncode == 1
    assert b"/40" in shown
    assert b"/s" in shown
    assert b" left" in shown
    assert b"no slot\\x1b]0;owned\\x07" in shown
    assert b"\x1b]0;" not in shown
    assert b"\x07" not in shown
