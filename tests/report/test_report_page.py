"""The page without a browser: what it counts, that nothing hostile becomes markup, and how large it may get."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="pip install jinja2 pygments")

from click.testing import CliRunner
from report_help import EVIL, GAMING, SUM, case, hostile, many, sample

from proctor.cli.main import cli
from proctor.engine.shared import close_all
from proctor.report import text
from proctor.report.facts import facts
from proctor.report.page import ROWS, render


class Seen(HTMLParser):
    """What a browser would see: elements, attributes, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and data.strip():
            self.scripts.append(data)


def test_figures() -> None:
    wrong = case("wrong_answer", 5.0)
    samples = [
        sample(0, case(), case(), case(cpu_ms=500.0), model="a", program_sha256="p"),
        sample(1, case(), wrong, wrong, model="a", held_out=[case("wrong_answer")]),
        sample(2, case("infrastructure_error"), model="b", error="no slot"),
        sample(3, code=None, model="b"),
        sample(4, case(), case(), case(), model="b", code=GAMING, claimed=True, program_sha256="p"),
    ]
    known = facts(samples, suspicious=5, slowest=2, examples=1)
    assert (known.accepted, known.scored, len(known.runs)) == (2, 4, 5)
    assert known.verdicts == {"accepted": 2, "wrong_answer": 1, "no_code": 1, "infrastructure_error": 1}
    assert known.mean_reward == pytest.approx((1 + 1 / 3 + 0 + 1) / 4)
    assert known.cpu_s == pytest.approx((506 + 13 + 3 + 3 + 0) / 1000)
    assert known.cpu_per_accepted == pytest.approx(known.cpu_s / 2)
    assert known.pass_at[0] == (1, 0.5)
    assert [(g.name, g.count, g.pass_rate) for g in known.models] == [("a", 2, 0.5), ("b", 3, 0.5)]
    assert [run.number for run in known.flagged] == [4]
    assert [run.number for run in known.slowest] == [0, 1]
    assert known.slowest[0].time_share == pytest.approx(0.25)
    assert (known.claimed, known.claimed_problems) == (1, ["sum"])
    assert (known.repeated, known.held_out, known.gap) == (1, 1, pytest.approx(1 / 3))
    assert known.errors == {"no slot": 1}
    assert [run.verdict for run in known.examples] == ["wrong_answer", "no_code", "infrastructure_error"]


def test_what_is_shown() -> None:
    page = render(
        [sample(0, case(), case(), case(), code=GAMING, claimed=True, deterministic=False)],
        title="g.jsonl",
        about={"proctor": "9.9"},
    )
    for shown in ("g.jsonl", "9.9", "answer table", "claimed", "nondeterministic", "100 %", "Worth a look"):
        assert shown in page


def test_what_did_not_have_to_run_is_told() -> None:
    samples = many(40)
    assert "from the cache" not in render(samples, title="x", about={"from_cache": 0})
    page = render(samples, title="x", about={"from_cache": 10})
    assert "from the cache" in page
    assert "10 did not have to run" in page


def test_calls_of_one_process_count_together() -> None:
    from dataclasses import replace

    calls = replace(SUM, mode="function", entry_point="f")
    (run,) = facts([sample(0, case(), case(), problem=calls)], suspicious=1, slowest=1, examples=1).runs
    assert run.time_share == pytest.approx(0.003)


def test_nothing_hostile_becomes_markup() -> None:
    page = render(
        hostile(),
        title=EVIL,
        about={"proctor": EVIL, "--reward": EVIL, "inputs": {"problems": [EVIL]}, "--package": [EVIL]},
    )
    page.encode("utf-8")  # no lone surrogate
    seen = Seen(page)
    assert seen.tags.count("script") == 2
    assert len(seen.scripts) == 2
    assert "img" not in seen.tags
    assert not [
        a
        for a in seen.attributes
        if a[1].startswith("on") or a[1] in ("src", "style", "srcset", "action", "formaction")
    ]
    assert all(value.startswith("#") for _, name, value in seen.attributes if name == "href")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]", page)
    assert len(page) < 3_000_000


def test_the_policy_allows_the_pages_own_parts_alone() -> None:
    page = render(many(30), title="x")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.replace("&#39;", "'").startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    for tag in ("style", "script"):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy.replace("&#39;", "'").replace("&#43;", "+")
    rest = page.replace("http-equiv", "")
    assert "http" not in rest
    assert "url(" not in rest
    assert "@import" not in rest


def test_the_same_results_give_the_same_page() -> None:
    assert render(many(200), title="x") == render(many(200), title="x")


def test_size_is_bounded() -> None:
    assert len(render(many(5000), title="x")) < 2_500_000
    huge = [sample(n, case(), code="import socket\n" + "x = [1, 2, 3]\n" * 1000) for n in range(60)]
    assert len(render(huge, title="x")) < 3_000_000
    problems = [sample(n, case()) for n in range(3)]
    page = render(problems, title="x")
    assert f"{ROWS:,}" not in page


@pytest.mark.parametrize(
    ("share", "shown"), [(0, "0 %"), (1, "100 %"), (0.004, "0.4 %"), (0.00001, "< 0.1 %"), (0.999, "99.9 %"), (0.99999, "> 99.9 %"), (0.5, "50 %"), (None, "\N{EN DASH}")]
)  # fmt: skip
def test_a_share_never_looks_like_all_or_nothing(share: float | None, shown: str) -> None:
    assert text.percent(share) == shown


def test_text_is_cut_and_escaped() -> None:
    assert text.visible("a\x00\u202e\ud800b") == r"a\x00\u202e\ud800b"
    assert len(text.visible("\x00" * 10_000_000, 50)) == 50
    assert text.visible_lines("a\tb\r\nc\x1b", 100, 10) == ("a    b\nc\\x1b", False)
    assert text.visible_lines("a\n" * 100, 1000, 3) == ("a\na\na", True)


@pytest.fixture
def scored(tmp_path: Path) -> Iterator[Path]:
    """A results file that ``score`` made here."""
    problem = {"id": "sum", "cases": [{"stdin": "3 4\n", "expected": "7\n"}, {"stdin": "10 -2\n", "expected": "8\n"}, {"stdin": "1 1\n", "expected": "2\n"}]}  # fmt: skip
    codes = ["print(sum(map(int, input().split())))", "print(7)", "print('\\x1b[31m</td>' * 9)", "1/0"]
    (tmp_path / "p.jsonl").write_text(json.dumps(problem) + "\n")
    rows = [json.dumps({"problem_id": "sum", "completion": code, "model": "m"}) for code in codes]
    (tmp_path / "c.jsonl").write_text("\n".join(rows) + "\n")
    run(
        0,
        "score",
        "--problems",
        f"{tmp_path}/p.jsonl",
        "--completions",
        f"{tmp_path}/c.jsonl",
        "--out",
        f"{tmp_path}/g.jsonl",
    )
    yield tmp_path
    close_all()


def run(code: int, *args: str) -> Any:
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == code, done.output
    return done


def test_report_on_the_command_line(scored: Path) -> None:
    run(0, "report", f"{scored}/g.jsonl")
    page = (scored / "g.html").read_text()
    assert "g.jsonl" in page
    assert "input unread" in page
    assert run(0, "report", f"{scored}/g.jsonl", "--out", "-").stdout_bytes.decode() == page
    assert sorted(path.name for path in scored.glob("*.html")) == ["g.html"]
    assert not list(scored.glob(".g*"))


def test_report_refuses_in_words(scored: Path) -> None:
    assert "no such file" in run(2, "report", f"{scored}/none.jsonl").output
    assert "input too" in run(2, "report", f"{scored}/g.jsonl", "--out", f"{scored}/g.jsonl").output
    assert "--out" in run(2, "report", f"{scored}/g.jsonl", "--out", f"{scored}/none/x.html").output
    (scored / "empty.jsonl").write_text("")
    args = ("--problems", f"{scored}/p.jsonl", "--completions", f"{scored}/c.jsonl")
    assert "no line yet" in run(2, "report", f"{scored}/empty.jsonl", *args).output
    (scored / "g.jsonl").write_text((scored / "g.jsonl").read_text().replace('"index": 3', '"index": 99'))
    assert "index" in run(2, "report", f"{scored}/g.jsonl").output


def test_report_replaces_no_file_but_a_report(scored: Path) -> None:
    before = {path.name: path.read_bytes() for path in scored.iterdir()}
    for name in ("p.jsonl", "c.jsonl", "g.jsonl", "g.jsonl.journal"):  # none of them is on the command line but g.jsonl
        assert "is an input too" in run(2, "report", f"{scored}/g.jsonl", "--out", f"{scored}/{name}").output
    (scored / "link").symlink_to("p.jsonl")
    assert "is an input too" in run(2, "report", f"{scored}/g.jsonl", "--out", f"{scored}/link").output
    (scored / "link").unlink()
    assert {path.name: path.read_bytes() for path in scored.iterdir()} == before
    thesis = scored / "g.html"  # where the page goes when --out is left out
    thesis.write_text("<!doctype html><title>My thesis</title>")
    for args in ((), ("--out", f"{scored}/g.html")):
        assert "g.html exists and is no report" in run(2, "report", f"{scored}/g.jsonl", *args).output
    assert thesis.read_text().endswith("My thesis</title>")
    thesis.write_text("")
    run(0, "report", f"{scored}/g.jsonl")
    page = thesis.read_text()
    run(0, "report", f"{scored}/g.jsonl")
    assert thesis.read_text() == page
    assert "is a directory" in run(2, "report", f"{scored}/g.jsonl", "--out", f"{scored}").output


def test_the_figures_as_json(scored: Path) -> None:
    told = json.loads(run(0, "report", f"{scored}/g.jsonl", "--json").stdout)
    assert not list(scored.glob("*.html"))
    assert (told["samples"], told["scored"], told["accepted"], told["cases"]) == (4, 4, 1, 12)
    assert told["verdicts"] == {"accepted": 1, "wrong_answer": 2, "runtime_error": 1}
    assert told["mean_reward"] == pytest.approx((1 + 1 / 3) / 4)
    assert told["pass_at"]["1"] == 0.25
    assert told["flagged"] == [1]
    assert sorted(told["slowest"]) == [0, 1, 2, 3]
    assert [(one["name"], one["count"], one["pass_rate"]) for one in told["problems"]] == [("sum", 4, 0.25)]
    assert [one["name"] for one in told["models"]] == ["m"]
    assert told["signals"]["input_unread"] == 3
    assert "leave --out out" in run(2, "report", f"{scored}/g.jsonl", "--json", "--out", "x.html").output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_device_is_named(scored: Path) -> None:
    said = run(1, "report", f"{scored}/g.jsonl", "--out", "/dev/full").output
    assert "error: /dev/full: no space left on the device" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_is_named_and_nothing_is_left(scored: Path) -> None:
    disk = scored / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        said = run(1, "report", f"{scored}/g.jsonl", "--out", f"{disk}/x.html").output
        assert f"error: {disk}/x.html: no space left on the device" in said
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_audit_on_the_command_line(scored: Path) -> None:
    shown = run(0, "audit", f"{scored}/g.jsonl").stdout
    assert "1 of 4 samples worth a look" in shown
    assert "input_unread" in shown
    told = json.loads(run(0, "audit", f"{scored}/g.jsonl", "--json").stdout)
    assert (told["samples"], told["rewarded"], told["flagged"]) == (4, 2, 1)
    assert [(one["index"], one["flagged"]) for one in told["top"]] == [(1, True)]
    everything = json.loads(run(0, "audit", f"{scored}/g.jsonl", "--json", "--all", "--top", "9").stdout)
    assert [one["index"] for one in everything["top"]] == [1, 2, 3]


def test_without_its_libraries_it_says_what_to_install(scored: Path) -> None:
    source = "import sys; sys.modules['jinja2'] = None; from proctor.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", source, "report", f"{scored}/g.jsonl"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "proctor: error: jinja2 is not installed, which reports need: pip install jinja2 pygments (the extra `report`); "
        "--json needs neither\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, "report", f"{scored}/g.jsonl", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["samples"] == 4
