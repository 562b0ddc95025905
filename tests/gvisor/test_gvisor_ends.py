"""Inside gVisor: whatever is killed, jobs come out right and nothing is left on the host."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from engine_help import PATIENCE, descendants, descriptors, gone, job, kill, leavings, trainer, under_fire, until

from proctor.core.errors import IsolationUnavailable
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy
from proctor.engine.shared import SyncEngine
from proctor.grading.place import Place
from proctor.isolation import runsc
from proctor.isolation.runsc import Runsc

pytestmark = pytest.mark.environments


def parts(supervisor: int) -> dict[str, list[int]]:
    """Processes of a slot on the host, by what they are."""
    found: dict[str, list[int]] = {"supervisor": [supervisor]}
    for pid in descendants([supervisor]):
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].rsplit(b"/", 1)[-1].decode()
        except OSError:
            continue
        found.setdefault(name or "task", []).append(pid)
    return found


def test_random_kills(build: Runsc, nothing_left: None) -> None:
    """Supervisors, runsc, gofers, sandboxes and the processes that stand for programs are hit; every outcome is right."""
    before = descriptors()
    engine = SyncEngine(slots=2, isolation="gvisor")

    def one_of_a_kind(choose: random.Random, supervisor: int) -> int:
        found = parts(supervisor)
        return choose.choice(found[choose.choice(sorted(found))])

    limits = Limits(cpu_s=5, memory_mib=96)
    works = [job(f"import time; time.sleep(0.3); print({i})", b"", b"", limits=limits) for i in range(30)]
    assert under_fire(engine, works, (0.3, 1.0), one_of_a_kind) >= 5
    assert engine.replaced >= 3
    assert descriptors() == before


@pytest.mark.parametrize("name", ["runsc", "runsc-gofer", "runsc-sandbox"])
def test_each_part_is_replaced(build: Runsc, nothing_left: None, name: str) -> None:
    engine = SyncEngine(slots=1, isolation="gvisor")
    (supervisor,) = engine.agent_pids()
    victims = parts(supervisor)[name]
    future = engine.submit(job("import time; time.sleep(1); print(7)"))
    for pid in victims:
        kill(pid)
    (outcome,) = future.result()
    assert (outcome.stdout, outcome.error) == (b"7\n", None)
    engine.close()


BATCH = """
engine = SyncEngine(slots=2, isolation="gvisor")
futures = [engine.submit(job("import time; time.sleep(1000)", limits=Limits(wall_s=600, memory_mib=128))) for _ in range(4)]
until(lambda: len(engine.agent_pids()) == 2)
time.sleep(1)
print(*engine.agent_pids(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("supervisors", [False, True], ids=["", "with its supervisors"])
def test_a_trainer_is_killed(build: Runsc, supervisors: bool) -> None:
    """Also all supervisors with it: then what is left without a guard is removed by the next engine."""
    with trainer(BATCH) as process:
        assert process.stdout
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2, process.stderr and process.stderr.read()
        assert all("runsc-sandbox" in parts(pid) for pid in pids)
        os.kill(process.pid, signal.SIGSTOP)
        for pid in pids if supervisors else []:
            kill(pid)
        process.kill()
        process.wait()
    if supervisors:
        assert not gone(lambda: [line for line in leavings(process.pid) if line.startswith("process")], patience=20)

    def left() -> list[str]:
        if supervisors:  # a group whose last process is still dying is for the engine after
            SyncEngine(slots=1).close()
        return leavings(process.pid)

    assert not gone(left, patience=20)


def test_the_host_sets_the_limits_too(build: Runsc, nothing_left: None) -> None:
    """A group around the container bounds memory and tasks for whatever runs in it, whoever asks inside."""
    engine = SyncEngine(slots=1, isolation="gvisor")
    try:
        if "memory" not in engine.features["outside"]:
            pytest.skip("no control group tells here what is used")
        (link,) = engine._engine._links
        around = link.agent.around
        engine.run(job("print(1)", limits=Limits(memory_mib=64, workspace_mib=16, processes=8)))
        groups = [path for path in leavings() if link.agent.name in path and path.startswith("/sys/fs/cgroup")]
        bounds = [
            int(text)
            for group in groups
            for name in ("memory.limit_in_bytes", "memory.max")
            if os.path.exists(f"{group}/{name}") and (text := Path(group, name).read_text().strip()).isdigit()
        ]
        assert around is not None
        assert bounds
        assert all(bound < 1 << 30 for bound in bounds)
        members = {int(word) for group in groups for word in Path(group, "cgroup.procs").read_text().split()}
        assert members >= set(parts(link.agent.process.pid)["runsc-sandbox"])
        outcome = engine.run(
            job("x = []\nwhile True: x.append(bytearray(16 << 20))", limits=Limits(memory_mib=64, processes=8))
        )[0]
        assert outcome.ended_by is EndedBy.MEMORY
    finally:
        engine.close()


def test_a_guest_that_never_ends_is_ended_by_the_host(build: Runsc, nothing_left: None) -> None:
    """A sandbox that is stopped says nothing more: it is replaced."""
    engine = SyncEngine(slots=1, isolation="gvisor")
    from proctor.engine import link

    kept, link.SILENCE_S = link.SILENCE_S, 2.0
    try:
        (supervisor,) = engine.agent_pids()
        future = engine.submit(job("import time; time.sleep(1); print(7)"))
        until(lambda: "runsc-sandbox" in parts(supervisor), PATIENCE)
        for pid in parts(supervisor)["runsc-sandbox"]:
            os.kill(pid, signal.SIGSTOP)
        (outcome,) = future.result()
        assert (outcome.stdout, outcome.error) == (b"7\n", None)
        assert engine.replaced == 1
    finally:
        link.SILENCE_S = kept
        engine.close()


# ---------------------------------------------------------------- where there is none


def test_no_runsc_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(runsc, "_FOLDERS", (str(tmp_path / "other"),))
    for start in (lambda: SyncEngine(slots=1, isolation="gvisor"), lambda: Place(isolation="gvisor").engine()):
        with pytest.raises(IsolationUnavailable) as caught:
            start()
        assert all(word in str(caught.value) for word in (str(tmp_path), "other", "apt-get install runsc"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exit 3", "not offered"),
        ('case "$*" in flags) echo "-platform string: which platform to use: ptrace";; *) echo broken-here; exit 1;; esac', "broken-here"),
    ],
)  # fmt: skip
def test_a_runsc_that_does_not_work_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nothing_left: None, body: str, words: str
) -> None:
    fake = tmp_path / "runsc"
    fake.write_text(f"#!/bin/sh\n{body}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(IsolationUnavailable, match=words):
        SyncEngine(slots=1, isolation="gvisor")


def test_auto_never_chooses_it(jailed: SyncEngine) -> None:
    assert jailed.isolation in ("jail", "degraded")
