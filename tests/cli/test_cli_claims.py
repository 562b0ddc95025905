"""Completions without a reward on the command line, with the real engine: claims that are refused, judges that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROCTOR = [sys.executable, "-m", "proctor"]
TESTS = {
    "claimed": "import inspect\nimport solution\ndef test_a():\n    assert 'def f' in inspect.getsource(solution)\n",
    "lacking": "import nump\ndef test_a():\n    assert f() == 1\n",
}
JUDGE = {"kind": "program", "language": "python", "protocol": "kattis", "source": "raise SystemExit(9)\n"}


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows: list[dict[str, Any]] = [{"id": name, "mode": "unit_tests", "test_code": text} for name, text in TESTS.items()]
    rows += [{"id": name, "checker": JUDGE, "cases": [{"stdin": "", "expected": "1"}]} for name in ("judged", "again")]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def score(names: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    rows = [{"problem_id": name, "completion": "def f():\n    return 1\nprint(1)\n"} for name in names]
    Path("c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        *PROCTOR,
        "score",
        "--problems",
        "p.jsonl",
        "--completions",
        "c.jsonl",
        "--out",
        "g.jsonl",
        "--restart",
        *more,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def rewards() -> list[Any]:
    return [json.loads(line)["reward"] for line in Path("g.jsonl").read_text().splitlines()]


def test_a_claim_that_is_refused_has_no_reward_and_is_no_failure(box: Path) -> None:
    done = score(["claimed"])
    assert (done.returncode, rewards()) == (0, [1.0])
    assert "1 verdict is the program's own claim" in done.stdout
    assert "refuse" not in done.stdout
    done = score(["claimed", "claimed"], "--claimed", "refuse")
    assert (done.returncode, rewards(), done.stderr) == (0, [None, None], "")
    assert "2 verdicts are the program's own claim" in done.stdout
    assert "and got no reward, as --claimed refuse asks" in done.stdout


def test_a_test_file_that_lacks_a_package_is_named_with_its_place_and_the_way_out(box: Path) -> None:
    done = score(["lacking"])
    assert (done.returncode, rewards()) == (1, [None])
    assert "which is not in the image (problem 'lacking', p.jsonl:2, completion 0)" in done.stderr
    assert "--package NAME" in done.stderr
    assert "proctor doctor" not in done.stderr


def test_a_judge_that_fails_is_named_with_its_place(box: Path) -> None:
    done = score(["judged", "again", "judged"])
    assert (done.returncode, rewards()) == (1, [None] * 3)
    assert "NOTHING WAS SCORED" in done.stderr
    assert "(problem 'judged', p.jsonl:3, completion 0, and 1 other problem)" in done.stderr
    assert "proctor doctor" not in done.stderr
    assert "--package" not in done.stderr


def test_help_says_what_no_reward_means(box: Path) -> None:
    shown = subprocess.run([*PROCTOR, "score", "--help"], capture_output=True, text=True, check=True).stdout
    assert "0 all scored, or refused as --claimed asks" in shown
    assert "--claimed refuse refuses it" in shown
