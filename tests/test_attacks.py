"""The doctor and its attacks: run for real, and held against a sandbox that is none."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handed import handed
from proctor.core.errors import InputError
from proctor.core.outcome import Outcome
from proctor.doctor import audit, host_audit, judging, manifest, tasks, trial
from proctor.doctor.canary import Canary, alone
from proctor.doctor.corpus import Campaign
from proctor.doctor.judging import State
from proctor.engine.job import Job

OWN = Path(__file__).parent / "attacks"
# What may be missing without namespaces; everything else must hold wherever Proctor runs at all.
WEAKER = {"identity", "workspace", "inodes", "signals", "processes_limit", "ipc", "leftovers"}


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `proctor doctor --json`, in a process of its own."""
    command = [sys.executable, "-m", "proctor.cli.main", "doctor", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode in (0, 1)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def told(report: dict[str, Any]) -> str:
    """What a person needs to see when a run is not as it should be."""
    bad = [row for row in report.get("attacks", []) if row["state"] not in ("contained", "declared", "skipped")]
    gone = [row for row in report["protections"] if not row["holds"]]
    return json.dumps({**report, "attacks": bad, "protections": gone}, indent=1)


@pytest.mark.environments
def test_each_protection_is_tried_here() -> None:
    code, report = doctor()
    found = {row["protection"]: row["holds"] for row in report["protections"]}
    assert set(found) == {probe.key for probe in trial.PROBES} | {"host_audit"}
    missing = {key for key, holds in found.items() if not holds}
    assert missing <= (set() if report["isolation"] == "jail" else WEAKER), told(report)
    assert code == (1 if missing else 0), told(report)
    assert report["left_on_host"] == [], told(report)
    assert all(row["remedy"] for row in report["protections"] if not row["holds"])


@pytest.mark.environments
def test_own_attacks_are_contained_on_first_and_second_use() -> None:
    code, report = doctor("--attacks", str(OWN), "--rounds", "2")
    assert code == 0, told(report)
    assert len(report["attacks"]) == 2 * len(manifest.load(OWN).rows)
    states = {row["state"] for row in report["attacks"]}
    assert states <= {"contained", "skipped"} | (set() if report["isolation"] == "jail" else {"declared"}), told(report)


@pytest.mark.environments
def test_handed_attacks_are_contained() -> None:
    code, report = doctor("--attacks", str(handed("attacks")), "--core-only")
    assert code == 0, told(report)


# ---------------------------------------------------------------- a sandbox that is none


class Unprotected:
    """Runs what it is given on the host as it is: only ever given programs that are harmless."""

    isolation, slots = "none", 2
    features: dict[str, object] = {}  # noqa: RUF012  # never changed

    def submit(self, job: Job, *, owner: object = None) -> Future[list[Outcome]]:
        future: Future[list[Outcome]] = Future()
        future.set_result([self.one(job, case.stdin) for case in job.cases])
        return future

    def one(self, job: Job, stdin: bytes) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            for name, body in job.program.files.items():
                (Path(folder) / name).write_bytes(body)
            command = [sys.executable if word == "python3" else word for word in job.program.argv]
            # A parent with the trainer's environment, as an agent would be that hides nothing.
            command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
            done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, timeout=60, check=False)
        return Outcome(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr, cpu_s=0.1, wall_s=0.1)


@pytest.fixture
def canary() -> Iterator[Canary]:
    with Canary() as planted:
        yield planted


BITING = [row for row in manifest.load(OWN).rows if row.extra.get("bites")]


def test_attacks_bite_where_nothing_protects(canary: Canary) -> None:
    corpus = manifest.load(OWN)
    rows = tuple(row for row in corpus.rows if row in BITING or (row.control and row.mode == "stdio"))
    campaign = Campaign(replace(corpus, rows=rows), Unprotected(), canary)
    campaign.run()
    states = {result.row.file: result.state for result in campaign.results}
    assert len(BITING) >= 15
    assert [row.file for row in BITING if states[row.file] is not State.NOT_CONTAINED] == []
    assert {state for file, state in states.items() if file.startswith("control")} == {State.CONTAINED}
    assert any("expected output was found out" in fault for fault in campaign.controls)
    assert not campaign.contained


def test_a_missing_protection_is_declared_and_not_counted_as_contained(canary: Canary) -> None:
    corpus = manifest.load(OWN)
    rows = tuple(row for row in corpus.rows if row.file in ("see/read_environment.py", "see/read_host_file.py"))
    campaign = Campaign(replace(corpus, rows=rows), Unprotected(), canary, missing={"environment": "something"})
    campaign.run()
    assert [result.state for result in campaign.results] == [State.NOT_CONTAINED, State.DECLARED]
    assert judging.summary(campaign.results) == "0 of 2 contained, 1 declared as missing on this host"


HARMLESS = ("network", "unix_sockets", "processes", "signals", "host_files", "environment", "identity", "open_files")


def test_doctor_says_missing_where_nothing_protects(canary: Canary) -> None:
    probes = [probe for probe in trial.PROBES if probe.key in HARMLESS]
    found = trial.examine(Unprotected(), canary, audit.snapshot(), probes)
    holding = [one.key for one in found if one.holds]
    assert holding == ["host_audit"], found
    assert all(one.remedy for one in found if not one.holds)


def test_a_probe_that_says_nothing_proves_nothing(canary: Canary) -> None:
    silent = replace(trial.PROBES[0], program="sys.exit(0)")
    (found, _) = trial.examine(Unprotected(), canary, audit.snapshot(), [silent])
    assert not found.holds
    assert not found.tried
    assert "could not be tried" in found.how


# ---------------------------------------------------------------- canary, audit, manifest


def test_canary_is_found_in_every_form(canary: Canary) -> None:
    text = canary.text.encode()
    for form in (b"x" + text + b"y", text[::-1], text.hex().encode()):
        assert canary.leaked(b"nothing", form)
    assert not canary.leaked(b"", text[:-1])


def test_a_changed_victim_is_seen(canary: Canary) -> None:
    assert canary.changed() == []
    Path("/tmp/escape_mark_victim").chmod(0o600)
    assert canary.changed() == ["/tmp/escape_mark_victim"]


def test_a_second_doctor_waits_for_the_first() -> None:
    second = "from proctor.doctor.canary import alone\nwith alone(patience_s=0): print('in')"
    with Canary(), alone(patience_s=0):  # the same process may go on
        done = subprocess.run([sys.executable, "-c", second], capture_output=True, text=True, check=False)
        assert "another doctor examines this host" in done.stderr
    assert subprocess.run([sys.executable, "-c", second], capture_output=True, text=True, check=False).stdout == "in\n"


def test_canary_leaves_nothing() -> None:
    before = audit.snapshot()
    with Canary() as planted:
        assert audit.compare(before, audit.snapshot())
        planted.visits()
    assert audit.settled(before) == []


def test_audit_sees_a_process_and_a_marked_file() -> None:
    before = audit.snapshot()
    mark = Path(tempfile.gettempdir()) / "escape_mark_test_of_the_audit"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mark.touch()
        try:
            left = audit.compare(before, audit.snapshot())
        finally:
            mark.unlink()
            child.communicate(b"\n")
    assert any(line.startswith("process:") for line in left)
    assert f"marked file: {mark}" in left
    assert audit.settled(before) == []


def write(folder: Path, lines: list[str], tasks: str = '{"stdio": {"cases": []}}') -> Path:
    (folder / "manifest.jsonl").write_text("\n".join(lines))
    (folder / "tasks.json").write_text(tasks)
    (folder / "a.py").write_text("")
    return folder


ROW = {
    "file": "a.py",
    "class": "x",
    "what it tries": "",
    manifest.MUST: {"status": ["WRONG_ANSWER"], "score": 0},
    "mode": "stdio",
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mode": "shell"}, "manifest.jsonl:2.*'mode'"),
        ({"lang": "cobol"}, "manifest.jsonl:2.*'lang'"),
        ({"file": "../a.py"}, "manifest.jsonl:2.*outside"),
        ({"file": "b.py"}, "manifest.jsonl:2.*b.py.*cannot be read"),
        ({"class": None}, "manifest.jsonl:2.*'class'"),
        ({manifest.MUST: {"status": "WRONG", "score": 0}}, "manifest.jsonl:2.*'status'"),
        ({manifest.MUST: {"status": [], "score": None}}, "manifest.jsonl:2.*'score'"),
        ({manifest.MUST: {"status": [], "score": 0, "died": "("}}, "manifest.jsonl:2.*'died'"),
        ({"mode": "function"}, "tasks.json.*function"),
    ],
)
def test_a_bad_manifest_is_refused_with_file_line_and_field(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=f"(?s){says}"):
        manifest.load(write(tmp_path, [json.dumps(ROW), json.dumps(ROW | change)]))


def test_a_corpus_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tasks\.json"):
        manifest.load(tmp_path)
    with pytest.raises(InputError, match=r"manifest\.jsonl:1: is not JSON"):
        manifest.load(write(tmp_path, ["{"]))
    with pytest.raises(InputError, match="no row"):
        manifest.load(write(tmp_path, []))


def test_every_own_attack_says_what_it_hangs_on_and_how_it_dies() -> None:
    known = {probe.key for probe in trial.PROBES}
    for row in manifest.load(OWN).rows:
        named = row.extra.get("protection", [])
        assert set(named) <= known, row.file
        assert row.control or row.kind == "forge" or (named and row.must["died"]), row.file


def test_tasks_become_problems_with_their_limits(canary: Canary) -> None:
    corpus = manifest.load(OWN)
    made = {row.mode: tasks.problem(corpus, row, canary) for row in corpus.rows}
    assert [case.expected for case in made["stdio"].cases] == [b"7\n", b"42\n"]
    assert made["function"].cases[0].args == ([3, 4],)
    assert made["unit_tests"].test_code == (
        "def test_small():\n    assert add(3, 4) == 7\n\ndef test_negative():\n    assert add(10, -2) == 8\n"
    )
    limits = tasks.limits(corpus)
    assert (limits.cpu_s, limits.output_bytes, limits.processes) == (1, 1 << 20, 32)


def test_the_corpus_audit_tells_ours_from_others(tmp_path: Path) -> None:
    script = (
        "import sys\nprint('{}' if sys.argv[1] == 'snap' else 'process left 1:5 S /sbin/init\\nwith a line break')\n"
    )
    (tmp_path / "host_audit.py").write_text(script + "sys.exit(sys.argv[1] != 'snap')\n")
    with contextlib.ExitStack() as stack:
        (line,) = host_audit.HostAudit(tmp_path, stack).diff()
        assert line == "process left 1:5 S /sbin/init with a line break"
    me = os.getpid()
    assert host_audit.by_others(line, False)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not host_audit.by_others(f"process left {child.pid}:5 S python", False)
        child.communicate(b"\n")
    for text, busy, others in (
        ("cgroups left 1 ['cpu/system.slice']", False, True),
        (f"cgroups left 1 ['cpu/proctor-{me}-1-1-1-1']", False, False),
        ("cgroups left 1 ['cpu/x/escape_mark']", False, False),
        ("files left in /tmp 1 ['escape_mark_x']", True, False),
        ("mem_available_mib 900 100", False, False),
        ("host_audit.py: mem_available_mib 900 100", True, True),
        ("amount of inodes free in /: 9 before, 1 after", True, True),
        ("sysv_shm left 1 ['5']", True, False),
    ):
        assert host_audit.by_others(text, busy) == others, text
