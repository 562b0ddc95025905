"""The cache, repeat and held-out cases on the command line, with the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROCTOR = [sys.executable, "-m", "proctor.cli.main"]
CASES = [
    {"stdin": "2\n", "expected": "4\n"},
    {"stdin": "3\n", "expected": "6\n"},
    {"stdin": "4\n", "expected": "8\n", "held_out": True},
]
PROGRAMS = [
    "print(2 * int(input()))",
    "print({'2': 4, '3': 6}.get(input()))",
    "raise SystemExit(3)",
    "import os\nprint(os.urandom(9))",
]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "p.jsonl").write_text(json.dumps({"id": "double", "cases": CASES}) + "\n")
    rows = [{"problem_id": "double", "completion": text} for text in PROGRAMS]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*PROCTOR, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done


def score(out: str, *more: str, code: int = 0) -> dict[str, Any]:
    files = ("--problems", "p.jsonl", "--completions", "c.jsonl", "--out", out)
    return json.loads(run("score", *files, "--json", *more, code=code).stdout)  # type: ignore[no-any-return]


def cached(*more: str) -> dict[str, Any]:
    return json.loads(run("cache", "--json", *more).stdout)  # type: ignore[no-any-return]


def test_scored_again_the_lines_are_the_same_and_nothing_runs(box: Path) -> None:
    assert cached()["entries"] == 0
    first = score("a.jsonl")
    assert (first["from_cache"], cached()["entries"], cached()["hits"]) == (0, 4, 0)
    second = score("b.jsonl")
    assert (second["from_cache"], second["verdicts"], cached()["hits"]) == (4, first["verdicts"], 4)
    assert (box / "a.jsonl").read_bytes() == (box / "b.jsonl").read_bytes()
    assert score("n.jsonl", "--no-cache")["from_cache"] == 0
    assert score("d.jsonl", "--cache", "own.sqlite")["from_cache"] == 0
    assert score("e.jsonl", "--cache", "own.sqlite", "--reward", "all_or_nothing")["from_cache"] == 4
    assert cached("--cache", "own.sqlite")["entries"] == 4
    assert cached()["hits"] == 4
    files = ("--problems", "p.jsonl", "--completions", "c.jsonl")
    assert "4 of these came from the cache" in run("score", *files, "--out", "f.jsonl").stdout


def test_show_and_clear(box: Path) -> None:
    score("a.jsonl")
    score("b.jsonl")
    assert "4 programs" in run("cache").stdout
    assert "4 hits" in run("cache").stdout
    assert "4 programs forgotten" in run("cache", "clear").stdout
    assert cached()["entries"] == cached()["hits"] == 0
    assert score("n.jsonl")["from_cache"] == 0
    thesis = box / "thesis.txt"
    thesis.write_text("chapter one\n" * 500)
    assert "remove it yourself" in run("cache", "clear", "--cache", "thesis.txt", code=2).stderr
    assert "cannot be used" in run("cache", "--cache", "thesis.txt", code=1).stderr
    assert thesis.read_text() == "chapter one\n" * 500


def test_what_cannot_be_looked_at_is_not_said_to_be_empty(box: Path) -> None:
    (box / "file").write_text("x")
    secret = box / "secret"
    secret.mkdir()
    (secret / "own.sqlite").write_text("")
    places = ["x" * 300]  # a name that is too long: nobody can tell
    if os.geteuid() != 0:
        secret.chmod(0)
        places.append("secret/own.sqlite")
    for place in places:
        assert "cannot be used" in run("cache", "--cache", place, code=1).stderr
        assert json.loads(run("cache", "--cache", place, "--json", code=1).stdout)["trouble"]
        assert "error" in run("cache", "clear", "--cache", place, code=2).stderr
    secret.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_file_in_a_folder_of_another_user_is_not_said_to_be_empty(box: Path) -> None:
    code = (
        "import os, sys\nfrom click.testing import CliRunner\nfrom proctor.cli.main import cli\nimport proctor.cli.cache\n"
        "import proctor.grading.cache, proctor.cli.render, rich.console, rich.text\nos.setuid(65534)\n"
        "done = CliRunner().invoke(cli, ['cache', '--cache', sys.argv[1]])\nprint(done.exit_code, done.output)"
    )
    (box / "secret").mkdir(mode=0o700)
    (box / "secret" / "own.sqlite").write_text("")
    done = subprocess.run([sys.executable, "-c", code, f"{box}/secret/own.sqlite"], capture_output=True, text=True)
    assert done.stdout.startswith("1 "), done.stdout + done.stderr
    assert "cannot be used: PermissionError" in done.stdout


def test_no_folder_is_made_for_a_name_that_was_given(box: Path) -> None:
    files = ("--problems", "p.jsonl", "--completions", "c.jsonl", "--out", "a.jsonl")
    for args in (("score", *files), ("cache",), ("cache", "clear")):
        for place in ("none/x.sqlite", "p.jsonl/x.sqlite"):
            assert "is no folder" in run(*args, "--cache", place, code=2).stderr
    source = "import proctor; print(proctor.score(['print(1)'], {'id': 'p', 'cases': [{'expected': '1'}]}, cache='none/x.sqlite'))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout == "[1.0]\n"
    assert "there is no folder none" in done.stderr
    assert not (box / "none").exists()


def test_a_file_that_cannot_be_used_is_said_and_scoring_goes_on(box: Path) -> None:
    (box / "broken.sqlite").write_bytes(b"nonsense" * 1000)
    files = ("--problems", "p.jsonl", "--completions", "c.jsonl")
    done = run("score", *files, "--out", "a.jsonl", "--cache", "broken.sqlite")
    assert "warning: the cache broken.sqlite could not be used" in done.stderr
    assert len((box / "a.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--no-cache", "--cache", "x"), "say different things"),
        (("--cache-size", "1"), "field '--cache-size': 1 bytes are too few; give 64 KiB or more"),
        (("--cache", ""), "field '--cache': it is empty"),
        (("--cache-size", "much"), "is not a size"),
        (("--repeat", "0"), "not in the range"),
    ],
)
def test_bad_options(box: Path, args: tuple[str, ...], said: str) -> None:
    files = ("--problems", "p.jsonl", "--completions", "c.jsonl")
    assert said in run("score", *files, "--out", "a.jsonl", *args, code=2).stderr


def test_the_gap_of_held_out_cases_is_said(box: Path) -> None:
    told = score("a.jsonl")
    assert told["held_out"] == {
        "completions": 4,
        "ordinary_share": 0.5,
        "held_out_share": 0.25,
        "gap": 0.25,
    }
    rows = [json.loads(line) for line in (box / "a.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0, 0.0]
    assert [[case["verdict"] for case in row["held_out"]] for row in rows[:2]] == [["accepted"], ["wrong_answer"]]
    files = ("--problems", "p.jsonl", "--completions", "c.jsonl")
    done = run("score", *files, "--out", "b.jsonl")
    assert "held-out cases: 25.0 % accepted, against 50.0 % of the ordinary ones, a gap of 25.0 points" in done.stdout


@pytest.mark.parametrize("option", [("--check-determinism",), ("--repeat", "3")])
def test_programs_that_differ_are_counted(box: Path, option: tuple[str, ...]) -> None:
    assert "nondeterministic" not in score("a.jsonl")
    told = score("b.jsonl", *option)
    assert (told["nondeterministic"], told["from_cache"]) == (1, 0)
    rows = [json.loads(line) for line in (box / "b.jsonl").read_text().splitlines()]
    assert [row["deterministic"] for row in rows] == [True, True, True, False]
    files = ("--problems", "p.jsonl", "--completions", "c.jsonl")
    assert "1 of 4 programs that ran again gave something else" in run("score", *files, "--out", "c", *option).stdout


def test_each_line_says_what_is_needed_to_run_it_again(box: Path) -> None:
    score("a.jsonl")
    rows = [json.loads(line) for line in (box / "a.jsonl").read_text().splitlines()]
    told = [row["provenance"] for row in rows]
    names = {"program", "cases", "checker", "language", "limits", "warm", "image", "isolation", "runner"}
    assert all(set(one) == names and None not in one.values() for one in told)
    assert len({one["program"] for one in told}) == len(PROGRAMS)
    assert len({one["cases"] for one in told}) == 1
    assert all(len(json.dumps(one)) < 400 for one in told)
