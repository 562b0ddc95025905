"""A results file read back with what it was made from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.cli.records import record
from proctor.cli.results import load_results
from proctor.core.errors import InputError

PROBLEM = {"id": "double", "cases": [{"stdin": "2\n", "expected": "4\n"}]}
ROW = {"problem_id": "double", "completion": "print(2 * int(input()))"}


@pytest.fixture
def scored(tmp_path: Path) -> Iterator[Path]:
    from click.testing import CliRunner

    from proctor.cli.main import cli
    from proctor.engine.shared import close_all

    (tmp_path / "p.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (tmp_path / "c.jsonl").write_text((json.dumps(ROW) + "\n") * 2)
    args = ["score", "--problems", f"{tmp_path}/p.jsonl", "--completions", f"{tmp_path}/c.jsonl"]
    done = CliRunner().invoke(cli, [*args, "--out", f"{tmp_path}/out.jsonl", "--extract", "whole"])
    assert done.exit_code == 0, done.output
    yield tmp_path
    close_all()  # the engine of this process would be taken for one that engine tests left


def test_lines_options_and_work_come_back(scored: Path) -> None:
    results = load_results(f"{scored}/out.jsonl")
    assert [line["verdict"] for line in results.lines] == ["accepted"] * 2
    assert results.options().extract == "whole"
    work = results.work()
    assert [item.problem_id for item in work.completions] == ["double"] * 2


def test_inputs_that_moved_are_given_by_hand(scored: Path) -> None:
    (scored / "p.jsonl").rename(scored / "q.jsonl")
    results = load_results(f"{scored}/out.jsonl")
    with pytest.raises(InputError, match="--problems"):
        results.work()
    assert len(results.work(problems=[f"{scored}/q.jsonl"])) == 2


def test_inputs_that_changed_are_refused(scored: Path) -> None:
    with (scored / "c.jsonl").open("a") as file:
        file.write(json.dumps(ROW) + "\n")
    with pytest.raises(InputError, match="not what"):
        load_results(f"{scored}/out.jsonl").work()


def test_a_journal_alone_is_read(scored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, journal = scored / "out.jsonl", scored / "out.jsonl.journal"
    first, second = out.read_text().splitlines()
    header = json.loads(journal.read_text())
    out.unlink()
    whole = record(1, second.encode()) + record(0, first.encode())
    journal.write_bytes(f"{json.dumps(header)}\n".encode() + whole)
    assert [line["index"] for line in load_results(str(out)).lines] == [0, 1]
    capsys.readouterr()
    journal.write_bytes(f"{json.dumps(header)}\n".encode() + whole.replace(b'"accepted"', b'"wrong_answer"', 1))
    assert [line["index"] for line in load_results(str(out)).lines] == [0]
    assert "1 of 2 lines of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("verdict", "acccepted"), ("verdict", None), ("verdict", ["accepted"]), ("index", -1), ("index", True), ("index", "0"),
        ("reward", "1.0"), ("reward", True), ("problem_id", 3), ("cases", {}), ("cases", [{"verdict": "fine"}]), ("cases", ["x"]),
    ],
)  # fmt: skip
def test_what_score_cannot_have_written_is_refused(tmp_path: Path, key: str, value: object) -> None:
    row = {"problem_id": "p", "index": 0, "reward": 1.0, "verdict": "accepted", "cases": [{"verdict": "accepted"}]}
    path = tmp_path / "g.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {key: value}) + "\n")
    with pytest.raises(InputError, match=rf"g\.jsonl:2: field '{key}': .* is none that proctor score writes"):
        load_results(str(path))


def test_a_file_that_cannot_be_read_is_bad_input(scored: Path) -> None:
    from click.testing import CliRunner

    from proctor.cli.main import cli

    no_memory = Path("/proc/self/mem")  # it can be opened, and not be read, also by root
    for verb in (["audit"], ["report"], ["replay", "--all"]):
        for name, said in (
            (str(scored), "is a directory"),
            (".", "is a directory"),
            ("/", "is a directory"),
            ("/dev/null", "not a regular file"),
            (str(no_memory), "/proc"),
        ):
            if Path(name).exists():
                done = CliRunner().invoke(cli, [*verb, name])
                assert done.exit_code == 2, (verb, name, done.output)
                assert said in done.output


def test_results_without_their_journal_say_what_is_missing(scored: Path) -> None:
    (scored / "out.jsonl.journal").rename(scored / "elsewhere")
    with pytest.raises(
        InputError, match=r"out\.jsonl\.journal, which is not beside it; put it there, or give --problems"
    ):
        load_results(f"{scored}/out.jsonl").work()


@pytest.mark.parametrize(("text", "said"), [("{", ":1"), ('{"problem_id": "x"}\n', "index")])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(InputError, match=said):
        load_results(f"{tmp_path}/r.jsonl")
    with pytest.raises(InputError, match="no such file"):
        load_results(f"{tmp_path}/none.jsonl")


def test_results_that_were_changed_are_said_to_be(scored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = scored / "out.jsonl"
    load_results(str(out))
    assert "changed" not in capsys.readouterr().err
    out.write_text(out.read_text().replace("1.0", "0.5"))
    load_results(str(out))
    assert "was changed" in capsys.readouterr().err


def test_a_judge_that_was_changed_is_another_input(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from proctor.cli.main import cli
    from proctor.engine.shared import close_all

    judge = tmp_path / "judge.py"
    judge.write_text("import sys\nsys.exit(42)\n")
    problem = PROBLEM | {
        "checker": {"kind": "program", "language": "python", "protocol": "kattis", "source_file": "judge.py"}
    }
    (tmp_path / "p.jsonl").write_text(json.dumps(problem) + "\n")
    (tmp_path / "c.jsonl").write_text(json.dumps(ROW) + "\n")
    args = ["score", "--problems", f"{tmp_path}/p.jsonl", "--completions", f"{tmp_path}/c.jsonl"]
    args += ["--out", f"{tmp_path}/out.jsonl"]
    assert CliRunner().invoke(cli, args).exit_code == 0
    assert load_results(f"{tmp_path}/out.jsonl").work()
    judge.write_text("import sys\nsys.exit(43)\n")
    again = CliRunner().invoke(cli, args)
    assert again.exit_code == 2
    assert "judges" in again.output
    with pytest.raises(InputError, match="checker or interactor"):
        load_results(f"{tmp_path}/out.jsonl").work()
    close_all()
