"""docs/conformance.md is that of this suite and of these declarations."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.core.errors import InputError
from proctor.doctor.conformance.declared import DECLARED
from proctor.doctor.conformance.page import HEAD, render
from proctor.doctor.conformance.suite import CHECKS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "conformance.md"


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| `")
    ]


def test_the_page_lists_the_checks_and_what_is_declared() -> None:
    text = PAGE.read_text()
    assert text.startswith(HEAD)
    found = rows(text)
    assert [(row[0], row[1]) for row in found] == [(f"`{check.key}`", check.title) for check in CHECKS]
    titles = next(line for line in text.splitlines() if line.startswith("| check |"))
    columns = [cell.strip() for cell in titles.strip("|").split(" | ")][2:]
    assert {"jail", "degraded", "gvisor"} <= set(columns)
    reasons = dict(re.findall(r"^(\d+)\. (.*)\.$", text, re.M))
    seen = set()
    for row in found:
        for column, cell in zip(columns, row[2:], strict=True):
            assert re.fullmatch(r"pass|(?:pass|declared) \(\d+\)", cell), (row[0], column, cell)
            if number := re.search(r"\d+", cell):
                level = column.partition(",")[0]
                whys = [one.why for one in DECLARED if (one.level, f"`{one.check}`") == (level, row[0])]
                assert [why for why in whys if reasons[number[0]].endswith(f": {why}")], (row[0], column)
                seen.add((level, row[0].strip("`")))
    assert seen == {(one.level, one.check) for one in DECLARED}
    said = [reason.partition(": ")[2] for reason in reasons.values()]
    assert said == list(dict.fromkeys(one.why for one in DECLARED))


def result(level: str = "jail", **states: str) -> dict[str, Any]:
    checks = [{"check": check.key, "state": states.get(check.key, "pass")} for check in CHECKS]
    return {"isolation": level, "as_root": True, "checks": checks}


def test_a_result_that_says_nothing_about_this_suite_is_refused() -> None:
    assert "| `main` |" in render([result()])
    with pytest.raises(InputError, match=r"zombies FAIL in 'jail'; mend or declare"):
        render([result(zombies="FAIL")])
    with pytest.raises(InputError, match=r"two results for 'jail'"):
        render([result(), result()])
    old = result()
    old["checks"].pop()
    with pytest.raises(InputError, match=r"of another suite"):
        render([old])
    stale = result("gvisor")
    stale["checks"][0]["declared"] = "a reason that is no longer given"
    with pytest.raises(InputError, match=r"has changed"):
        render([stale])


def test_the_tool_says_what_is_wrong_and_leaves_the_page(tmp_path: Path) -> None:
    before = PAGE.read_text()
    (tmp_path / "bad.json").write_text(json.dumps(result(main="FAIL")))
    for names in ([], [str(tmp_path / "none.json")], [str(tmp_path / "bad.json")]):
        command = [sys.executable, str(ROOT / "tools" / "make_conformance.py"), *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "RESULT.json" in done.stderr or "error: " in done.stderr
    assert PAGE.read_text() == before
