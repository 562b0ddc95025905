"""``proctor replay`` on the real engine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.replay import differences

PROCTOR = [sys.executable, "-m", "proctor.cli.main"]
PROBLEM = {
    "id": "double",
    "time_limit_s": 0.3,
    "cases": [
        {"stdin": "2\n", "expected": "4\n"},
        {"stdin": "3\n", "expected": "6\n"},
        {"stdin": "4\n", "expected": "8\n", "held_out": True},
    ],
}
PROGRAMS = [
    "print(2 * int(input()))",
    "print(4)",
    "while True: pass",
    "raise SystemExit(3)",
]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROCTOR, *args], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs and results, scored once."""
    box = tmp_path_factory.mktemp("made")
    (box / "p.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    rows = [{"problem_id": "double", "completion": text} for text in PROGRAMS]
    (box / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("score", "--problems", f"{box}/p.jsonl", "--completions", f"{box}/c.jsonl", "--out", f"{box}/r.jsonl")
    assert done.returncode == 0, done.stderr
    return box


@pytest.fixture
def scored(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a copy of the results; their inputs are elsewhere."""
    for name in ("r.jsonl", "r.jsonl.journal"):
        shutil.copy(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_equal_is_said_to_be(scored: Path) -> None:
    done = run("replay", "r.jsonl", "--index", "0", "--index", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in sorted(done.stdout.splitlines())] == ["0 double", "2 double"]
    assert done.stdout.count("equal") == 2
    told = json.loads(run("replay", "r.jsonl", "--all", "--json").stdout)
    assert (told["replayed"], told["equal"]) == (4, 4)
    assert [row["verdict"] for row in told["completions"]] == [row["verdict"] for row in lines(scored / "r.jsonl")]
    assert [row["index"] for row in told["completions"]] == [0, 1, 2, 3]


def test_it_runs_and_asks_no_cache(made: Path, scored: Path) -> None:
    """What the cache holds is made wrong: nobody may notice."""
    from proctor.core.verdict import Verdict
    from proctor.grading import cache as store
    from proctor.grading.grades import CaseGrade
    from proctor.grading.stored import pack

    wrong = pack([CaseGrade(verdict=Verdict.RUNTIME_ERROR)] * 3)
    assert wrong is not None
    files = ("--problems", f"{made}/p.jsonl", "--completions", f"{made}/c.jsonl")
    run("score", *files, "--out", "first.jsonl")
    with store.Cache() as cache, cache._transaction() as database:
        assert database is not None
        for (key,) in database.execute("SELECT key FROM entries").fetchall():
            told = (wrong, store._checksum(key, wrong), key)
            database.execute("UPDATE entries SET value = ?, checksum = ? WHERE key = ?", told)
    done = run("score", *files, "--out", "s.jsonl")
    assert {row["verdict"] for row in lines(scored / "s.jsonl")} == {"runtime_error"}, done.stderr
    assert run("replay", "r.jsonl", "--all").returncode == 0
    assert run("replay", "s.jsonl", "--index", "0").returncode == 1


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("verdict", lambda row: row.update(verdict="accepted")),
        ("case 1", lambda row: row["cases"][1].update(verdict="accepted")),
        ("held-out case 0", lambda row: row["held_out"][0].update(verdict="accepted")),
        ("number of cases", lambda row: row["cases"].pop()),
        ("number of held-out cases", lambda row: row.pop("held_out")),
        ("reward", lambda row: row.update(reward=0.25)),
        ("reward", lambda row: row.update(reward=None)),
        ("problem_id", lambda row: row.update(problem_id="other")),
        ("provenance.image", lambda row: row["provenance"].update(image="host-other")),
        ("provenance.limits", lambda row: row["provenance"]["limits"].update(cpu_s=9)),
        ("provenance.program", lambda row: row["provenance"].update(program="0" * 32)),
    ],
)
def test_what_differs_is_named(made: Path, what: str, how: Callable[[dict[str, Any]], None]) -> None:
    before, now = lines(made / "r.jsonl")[1], lines(made / "r.jsonl")[1]
    assert differences(before, now) == []
    how(before)
    assert [row["what"] for row in differences(before, now)] == [what]


def test_a_line_that_was_changed(scored: Path) -> None:
    rows = lines(scored / "r.jsonl")
    rows[1]["reward"] = 1.0
    rows[1]["cases"][1]["verdict"] = "time_limit"
    (scored / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("replay", "r.jsonl", "--index", "0", "--index", "1", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert [row["equal"] for row in told["completions"]] == [True, False]
    assert [row["what"] for row in told["completions"][1]["differences"]] == ["case 1", "reward"]
    shown = run("replay", "r.jsonl", "--index", "1")
    assert shown.returncode == 1
    assert "  case 1: time_limit before, wrong_answer now" in shown.stdout
    assert "1 of 1 differ" in shown.stderr
    rows[1]["cases"][1]["verdict"] = "\x1b[2J"  # no word that score writes
    (scored / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    refused = run("replay", "r.jsonl", "--index", "1")
    assert refused.returncode == 2
    assert "r.jsonl:2: field 'cases'" in refused.stderr
    assert "\x1b" not in refused.stderr


def test_a_program_that_gives_something_else_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cases = [{"stdin": f"{n}\n", "expected": "1\n"} for n in range(60)]  # alike by chance once in 2 ** 60
    (tmp_path / "p.jsonl").write_text(json.dumps({"id": "coin", "cases": cases}) + "\n")
    row = {"problem_id": "coin", "completion": "import os\nprint(os.urandom(1)[0] % 2)"}
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    run("score", "--problems", "p.jsonl", "--completions", "c.jsonl", "--out", "r.jsonl")
    done = run("replay", "r.jsonl", "--index", "0", "--json")
    assert done.returncode == 1
    (told,) = json.loads(done.stdout)["completions"]
    assert any(row["what"].startswith("case ") for row in told["differences"])
    assert not any(row["what"].startswith("provenance") for row in told["differences"])


def test_by_verdict(scored: Path) -> None:
    told = json.loads(run("replay", "r.jsonl", "--verdict", "time_limit", "--json").stdout)
    assert [row["index"] for row in told["completions"]] == [2]


def test_inputs_that_moved(made: Path, scored: Path) -> None:
    header = (scored / "r.jsonl.journal").read_text()
    (scored / "r.jsonl.journal").write_text(header.replace(f"{made}/p.jsonl", "/gone/p.jsonl"))
    done = run("replay", "r.jsonl", "--index", "0")
    assert done.returncode == 2
    assert "give --problems" in done.stderr
    assert run("replay", "r.jsonl", "--index", "0", "--problems", f"{made}/p.jsonl").returncode == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("r.jsonl",), "say which completions"),
        (("r.jsonl", "--index", "4"), "4 is not in r.jsonl"),
        (("r.jsonl", "--verdict", "memory_limit"), "no completion with verdict memory_limit"),
        (("none.jsonl", "--all"), "no such file"),
    ],
)
def test_bad_input(scored: Path, args: tuple[str, ...], said: str) -> None:
    done = run("replay", *args)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_reward_that_follows_the_cpu_time_may_move_by_that_much() -> None:
    row = {"problem_id": "a", "verdict": "accepted", "cases": [], "reward": 0.9, "provenance": {}}
    other = {**row, "reward": 0.85}
    assert differences(row, other, 0.1) == []
    assert [found["what"] for found in differences(row, other)] == ["reward"]
    assert [found["what"] for found in differences(row, {**row, "reward": 0.7}, 0.1)] == ["reward"]


def test_lines_without_a_provenance_are_compared_without() -> None:
    row = {"problem_id": "a", "verdict": "accepted", "cases": [], "reward": 1.0}
    assert differences(row, {**row, "provenance": {"program": "x"}}) == []


def test_a_fault_of_this_host_is_not_equal() -> None:
    row = {"problem_id": "a", "verdict": "infrastructure_error", "cases": [], "reward": None, "error": "lost"}
    assert [found["what"] for found in differences(row, {**row, "provenance": {}})] == ["could not be run"]
