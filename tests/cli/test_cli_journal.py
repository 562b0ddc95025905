"""The journal: whatever moment a run is killed at, the next one goes on and ends with the same file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.cli.journal import Journal
from proctor.cli.records import record
from proctor.cli.score import describe
from proctor.cli.work import Options, Work
from proctor.core.errors import InputError
from proctor.core.runner import RUNNER

ABOUT = {"problems": ["aa"], "--reward": "share"}


def _line(number: int, verdict: str = "accepted") -> str:
    return json.dumps({"index": number, "verdict": verdict, "text": "é\u2028"}, ensure_ascii=True)


def _expected(total: int) -> bytes:
    return "".join(_line(n) + "\n" for n in range(total)).encode()


def _fill(out: Path, numbers: list[int], total: int, **kwargs: Any) -> None:
    journal = Journal(out, ABOUT, total, **kwargs)
    for number in numbers:
        journal.add(number, _line(number))
    if len(journal) == total:
        journal.finish()
    journal.close()


def test_output_is_in_input_order_and_appears_only_when_complete(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    _fill(out, [2, 0], 4)
    assert not out.exists()
    _fill(out, [3, 1], 4)
    assert out.read_bytes() == _expected(4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.journal"]


def test_complete_output_is_known(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    _fill(out, [0, 1], 2)
    journal = Journal(out, ABOUT, 2)
    assert journal.finished
    assert 1 in journal
    assert [g["index"] for g in journal.grades()] == [0, 1]
    journal.close()


@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_cut_at_any_byte_it_goes_on(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("cut") / "out.jsonl"
    order = data.draw(st.permutations(range(6)))
    _fill(out, list(order)[:5], 6)
    journal_file = Path(f"{out}.journal")
    whole = journal_file.read_bytes()
    journal_file.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    journal = Journal(out, ABOUT, 6)
    missing = [n for n in range(6) if n not in journal]
    assert set(missing) >= {order[5]}
    for number in missing:
        journal.add(number, _line(number))
    journal.finish()
    journal.close()
    assert out.read_bytes() == _expected(6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"accepted"', b'"acccepted"'),
        (b"1\t", b"0\t"),  # another's line
        (b'"index": 1', b'"index": 9'),
        (b"\t{", b"\t {"),
        (b"\t", b" "),
    ],
)
def test_a_line_that_was_changed_is_done_again(tmp_path: Path, old: bytes, new: bytes) -> None:
    out = tmp_path / "out.jsonl"
    _fill(out, [2, 1, 0], 4)
    path = Path(f"{out}.journal")
    lines = path.read_bytes().splitlines(keepends=True)
    assert old in lines[2]
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(old, new, 1), lines[3]]))
    journal = Journal(out, ABOUT, 4)
    assert (journal.damaged, [n in journal for n in range(4)]) == (1, [True, False, True, False])
    for number in (1, 3):
        journal.add(number, _line(number))
    journal.finish()
    journal.close()
    assert out.read_bytes() == _expected(4)


def test_a_number_that_no_completion_has_is_passed_over(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    _fill(out, [0, 1], 3)
    with Path(f"{out}.journal").open("ab") as file:
        file.write(record(7, b"{}") + b"9" * 5000 + b"\t0\t{}\n")
    journal = Journal(out, ABOUT, 3)
    assert (journal.damaged, len(journal)) == (2, 2)
    journal.close()


def test_other_inputs_are_refused_and_restart_begins_anew(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    _fill(out, [0], 2)
    with pytest.raises(InputError, match=r"--reward: 'share' then, 'all' now.*--restart"):
        Journal(out, {**ABOUT, "--reward": "all"}, 2)
    with pytest.raises(InputError, match="problems changed"):
        Journal(out, {**ABOUT, "problems": ["bb"]}, 2)
    journal = Journal(out, {**ABOUT, "--reward": "all"}, 2, restart=True)
    assert len(journal) == 0
    journal.close()


def test_what_another_proctor_began_is_other_work() -> None:
    """Also one of the same version that gives other verdicts: the lines of two would stand in one file."""
    assert describe([], [], Work({}, [], Options()))["proctor"] == RUNNER


def test_a_file_that_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious\n")
    with pytest.raises(InputError, match="--restart to replace it"):
        Journal(out, ABOUT, 1)
    assert out.read_text() == "precious\n"
    assert not Path(f"{out}.journal").exists()
    _fill(out, [0], 1, restart=True)
    assert out.read_bytes() == _expected(1)


def test_a_changed_output_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    _fill(out, [0], 1)
    out.write_text("edited\n")
    with pytest.raises(InputError, match="was changed since"):
        Journal(out, ABOUT, 1)


def test_a_lost_output_is_scored_again(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    _fill(out, [0], 1)
    out.unlink()
    journal = Journal(out, ABOUT, 1)
    assert not journal.finished
    assert len(journal) == 0
    journal.close()


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    Path(f"{out}.journal").write_text("something else\n")
    with pytest.raises(InputError, match="not a journal"):
        Journal(out, ABOUT, 1)


@pytest.mark.parametrize("finish", [True, False])
def test_void_lines_are_done_again(tmp_path: Path, finish: bool) -> None:
    out = tmp_path / "out.jsonl"
    journal = Journal(out, ABOUT, 3)
    for number in (2, 0, 1) if finish else (2, 0):
        journal.add(number, _line(number, "infrastructure_error" if number == 2 else "accepted"))
    if finish:
        journal.finish()
    journal.close()
    journal = Journal(out, ABOUT, 3)
    assert journal.forget(lambda g: g["verdict"] == "infrastructure_error") == 1
    assert 2 not in journal
    for number in [n for n in range(3) if n not in journal]:
        journal.add(number, _line(number))
    journal.finish()
    journal.close()
    assert out.read_bytes() == _expected(3)


def test_two_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.cli.journal._LOCK_WAIT_S", 0.1)
    out = tmp_path / "out.jsonl"
    first = Journal(out, ABOUT, 2)
    with pytest.raises(InputError, match="another proctor is writing"):
        Journal(out, ABOUT, 2)
    first.close()
    Journal(out, ABOUT, 2).close()


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.jsonl"
    journal = Journal(out, ABOUT, 2)
    journal.add(0, _line(0))
    real = os.pwrite

    def half(fd: int, data: bytes, offset: int) -> int:
        if len(data) > 8:
            return real(fd, data[:8], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(OSError, match="No space") as caught:
        journal.add(1, _line(1))
    assert caught.value.filename == str(journal.path)
    monkeypatch.setattr(os, "pwrite", real)
    journal.close()
    journal = Journal(out, ABOUT, 2)
    assert 0 in journal
    assert 1 not in journal
    journal.close()


def test_a_start_that_failed_leaves_no_journal(tmp_path: Path) -> None:
    out = tmp_path / "g.jsonl"
    _fill(out, [], 2)
    assert list(tmp_path.iterdir()) == []
    _fill(out, [0], 2)
    for _ in range(2):  # what is done is kept, however often nothing is added
        journal = Journal(out, ABOUT, 2)
        assert len(journal) == 1
        journal.close()
    with pytest.raises(InputError, match="other inputs"):
        Journal(out, {**ABOUT, "--reward": "x"}, 2)
    assert Path(f"{out}.journal").exists()
