"""`proctor doctor --conformance` on this host."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from proctor.doctor.conformance.check import Check, shows
from proctor.doctor.conformance.command import conform
from proctor.doctor.conformance.suite import CHECKS


def test_every_check_passes_here_or_is_declared() -> None:
    command = [sys.executable, "-m", "proctor.cli.main", "doctor", "--conformance", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert [row["check"] for row in report["checks"]] == [check.key for check in CHECKS]
    assert [row for row in report["checks"] if row["state"] == "FAIL"] == [], report["summary"]
    assert report["left_on_host"] == []
    assert done.returncode == 0
    if report["isolation"] == "jail" and report["features"]["root"]:
        assert {row["state"] for row in report["checks"]} == {"pass"}


def test_a_failing_check_makes_the_exit_status_1_and_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = Check(
        key="hostile",
        group="python",
        title="t",
        program="print('\\x1b[31m\\u202e[bold]')\n",
        judge=shows("no\n"),
        warm=True,
    )
    fine = Check(key="fine", group="python", title="t", program="print(1)\n", judge=shows("1\n"), warm=True)
    assert conform("auto", False, [hostile, fine]) == 1
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "x1b[31m" in text
    assert text.splitlines()[-1] == "1 of 2 checks pass; 1 FAIL: hostile"
    assert conform("auto", True, [fine]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == "1 of 1 checks pass"


@pytest.mark.parametrize("more", [["--attacks", "."], ["--rounds", "2"], ["--core-only"]])
def test_options_that_do_not_go_together_are_refused(more: list[str]) -> None:
    command = [sys.executable, "-m", "proctor.cli.main", "doctor", "--conformance", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert f"leave out {more[0]}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_level_that_is_none_is_refused() -> None:
    command = [sys.executable, "-m", "proctor.cli.main", "doctor", "--conformance", "--isolation", "moat"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "'moat'" in done.stderr
    assert "gvisor" in done.stderr
