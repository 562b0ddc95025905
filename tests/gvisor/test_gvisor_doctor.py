"""The doctor inside gVisor, and what it says of that level anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from handed import handed
from proctor.isolation.runsc import Runsc

# Memory is looked at every few milliseconds inside, and held by the host's group with room for gVisor itself: on a busy
# host a fast program gets beyond its limit for a moment. Debian's build has no bound on the number of files.
WEAKER = {"memory", "memory_tree", "inodes"}


def doctor(*arguments: str, **options: Any) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "proctor.cli.main", "doctor", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, **options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def told(report: dict[str, Any]) -> str:
    bad = [row for row in report["attacks"] if row["state"] not in ("contained", "declared", "skipped")]
    return json.dumps({**report, "attacks": bad, "protections": [r for r in report["protections"] if not r["holds"]]})


def test_handed_attacks_are_contained(build: Runsc) -> None:
    folder = handed("attacks")
    code, report = doctor("--isolation", "gvisor", "--attacks", str(folder), "--core-only")
    assert code == 0, told(report)
    assert report["isolation"] == "gvisor"
    missing = {row["protection"] for row in report["protections"] if not row["holds"]}
    assert missing <= WEAKER, told(report)
    assert report["left_on_host"] == [], told(report)
    assert build.platform in report["gvisor"]


def test_the_doctor_says_what_the_level_needs() -> None:
    command = [sys.executable, "-m", "proctor.cli.main", "doctor", "--isolation", "gvisor"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={"PATH": "/nonexistent", "PYTHONPATH": ":".join(sys.path)},
    )
    if "cannot be had" in done.stderr:
        assert "apt-get install runsc" in done.stderr
        assert done.returncode == 1
    else:  # it is found in the usual places, whatever PATH says
        assert "isolation: gvisor" in done.stdout
