"""``proctor costs`` as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.core.sandbox import SandboxSpec
from proctor.meter.ledger import Ledger

PROCTOR = [sys.executable, "-m", "proctor.cli.main"]


def run(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*PROCTOR, "costs", *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done


def told(*args: str) -> dict[str, Any]:
    return json.loads(run(*args, "--json").stdout)  # type: ignore[no-any-return]


@pytest.fixture
def spent() -> None:
    left = 86400 - time.time() % 86400
    if left < 60:  # no day may end meanwhile
        time.sleep(left + 1)
    with Ledger() as ledger:
        for number in range(5):
            labels = {"run": "a" if number < 3 else "b\x1b[31m"}
            ledger.open_sandbox(f"s{number}", SandboxSpec(memory_mib=2048, labels=labels))
            ledger.close_sandbox(f"s{number}", 2800, 0)


def test_where_nothing_was_spent_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert "$0.000000" in run().stdout
    assert told()["today"]["cost_micros"] == 0
    assert told("--by", "day")["rows"] == []
    assert "0 sandboxes forgotten" in run("prune").stdout
    assert not (tmp_path / "state").exists()


@pytest.mark.usefixtures("spent")
def test_today_the_month_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    table = run().stdout
    assert "this month" in table
    assert "$0.097222" in table
    assert "\x1b" not in table
    assert "run=b\\x1b[31m" in table
    found = told()
    assert (found["this_month"]["cost_micros"], found["today"]["sandboxes"]) == (97_222, 5)
    assert [(each["name"], each["cost_micros"]) for each in found["labels"]] == [
        ("run=a", 58_333),
        ("run=b\x1b[31m", 38_888),
    ]
    assert found["daily"] is None
    monkeypatch.setenv("PROCTOR_LIMITS_DAILY_MICROS", "200000")
    assert told()["daily"] == {"limitMicros": "200000", "usedMicros": "97222", "remainingMicros": "102778"}
    assert "$0.097222 of $0.200000 used" in run().stdout


@pytest.mark.usefixtures("spent")
def test_one_table_with_filters() -> None:
    assert [each["name"] for each in told("--by", "sandbox", "--label", "run=a")["rows"]] == ["s0", "s1", "s2"]
    found = run("--by", "sandbox", "--top", "2")
    assert "the first 2; --top 0 shows all" in found.stderr
    assert "s2" not in found.stdout
    assert told("--by", "day", "--since", "0d")["total"]["cost_micros"] == 97_222
    assert told("--by", "key", "--since", "2999-01-01") == {
        "by": "key",
        "rows": [],
        "total": {
            "name": "total",
            "sandboxes": 0,
            "cpu_seconds": 0.0,
            "gib_seconds": 0.0,
            "gpu_seconds": 0.0,
            "storage_micros": 0,
            "cost_micros": 0,
        },
    }
    assert told("--since", "1d")["since"]["cost_micros"] == 97_222


def test_what_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "write for example 2026-12-01" in run("--since", "yesterday", code=2).stderr
    assert "write for example run=grpo-1" in run("--label", "run", code=2).stderr
    assert "field '--ledger': it is empty" in run("--ledger", "", code=2).stderr
    (tmp_path / "text").write_text("text " * 1000)
    assert "is not a database; move it away" in run("--ledger", str(tmp_path / "text"), code=1).stderr
    monkeypatch.setenv("PROCTOR_LIMITS_DAILY_MICRO", "1")
    assert "did you mean 'daily_micros'" in run(code=2).stderr
