"""Each check of the conformance suite fails where a level does not do what it should; declarations excuse no more than they say."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from proctor.core.outcome import EndedBy, Outcome
from proctor.doctor.canary import Canary
from proctor.doctor.conformance.check import Check, Runs, says, shows
from proctor.doctor.conformance.declared import DECLARED, Declaration, declaration
from proctor.doctor.conformance.suite import CHECKS, Result, Run, State, examine, judged, summary
from proctor.engine.job import Job
from proctor.engine.shared import SyncEngine
from proctor.isolation.base import LEVELS

BY_KEY = {check.key: check for check in CHECKS}


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    with Canary() as planted:
        yield planted


@pytest.fixture(scope="module")
def engine() -> Iterator[SyncEngine]:
    engine = SyncEngine(slots=1)
    yield engine
    engine.close()


def told(results: list[Result]) -> list[tuple[str, str]]:
    return [(result.check.key, result.fault) for result in results if result.state is State.FAIL]


# ---------------------------------------------------------------- it passes


@pytest.mark.environments
def test_what_levels_differ_in_passes_here_or_is_declared(engine: SyncEngine, canary: Canary) -> None:
    some = {one.check for one in DECLARED} | {"fresh", "own_files", "left_child", "daemon", "zombies", "output_exact"}
    results = examine(engine, canary, [check for check in CHECKS if check.key in some])
    assert told(results) == []


@dataclass
class Bare:
    """Runs programs on the host as they are, all in one directory: only ever given harmless ones.

    Attributes:
        fresh: the directory is made anew for each job, and the environment is a small one.
    """

    folder: Path
    fresh: bool
    isolation, replaced = "none", 0

    @property
    def features(self) -> dict[str, Any]:
        return {}

    def submit(self, job: Job, /) -> Future[list[Outcome]]:
        if self.fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        for name, body in job.program.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        future: Future[list[Outcome]] = Future()
        future.set_result([self.one(case.stdin, case.argv or job.program.argv) for case in job.cases])
        return future

    def one(self, stdin: bytes, argv: tuple[str, ...]) -> Outcome:
        command = [sys.executable if word == "python3" else word for word in argv]
        variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"} if self.fresh else dict(os.environ)
        done = subprocess.run(
            command, cwd=self.folder, input=stdin, capture_output=True, timeout=60, check=False, env=variables
        )
        status, killed = (done.returncode, None) if done.returncode >= 0 else (None, -done.returncode)
        return Outcome(exit_code=status, signal=killed, stdout=done.stdout, stderr=done.stderr, cpu_s=0.3, wall_s=0.3)


def test_a_plain_interpreter_passes_the_checks_of_python(canary: Canary, tmp_path: Path) -> None:
    """So it is the interpreter's own behaviour that levels are held against."""
    groups = [check for check in CHECKS if check.group == "python"]
    assert len(groups) >= 18
    assert told(examine(Bare(tmp_path / "case", True), canary, groups)) == []


# ---------------------------------------------------------------- it can fail

# Harmless on the host, and each must say that it is not what a level is.
NO_LEVEL = (
    "workspace_path", "fresh", "own_files", "variables", "environment", "network", "unix_sockets", "host_files", "own_loopback",
    "proc_of_its_own", "hash_seed", "random_state",
)  # fmt: skip


def test_checks_fail_where_nothing_protects(canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    checks = [replace(BY_KEY[key], warm=True) for key in NO_LEVEL]
    results = examine(Bare(tmp_path / "case", False), canary, checks)
    (tmp_path / "case" / "hidden").chmod(0o700)
    assert [result.check.key for result in results if result.state is not State.FAIL] == []
    said = {result.check.key: result.fault for result in results}
    assert said["network"].endswith("reached the host over udp")
    assert said["hash_seed"].startswith("warm, first use and warm, second use differ")


@dataclass
class Weak:
    """An engine that sets other limits than it was told to."""

    engine: SyncEngine
    changes: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def submit(self, job: Job, /) -> Future[list[Outcome]]:
        return self.engine.submit(replace(job, limits=job.limits.with_(**self.changes)))


WRONG_LIMITS: dict[str, dict[str, Any]] = {
    "cpu_within": {"cpu_s": 0.05},
    "cpu_tree": {"cpu_s": 60.0, "wall_s": 0.3},
    "wall_stopped": {"cpu_s": 0.05, "wall_s": 0.05, "output_bytes": 0},
    "memory_tree": {"memory_mib": 1024},
    "memory_within": {"memory_mib": 32},
    "memory_given_back": {"memory_mib": 32},
    "processes_limit": {"processes": 80},
    "processes_exact": {"processes": 13},
    "threads_exact": {"processes": 11},
    "zombies": {"processes": 8},
    "open_files": {"open_files": 200},
    "output": {"output_bytes": 64 << 20},
    "output_exact": {"output_bytes": 100_001},
    "output_kept": {"stdout_keep": 101},
    "workspace": {"workspace_mib": 512, "memory_mib": 1024},
    "inodes": {"workspace_inodes": 4096},
    "files_within": {"workspace_mib": 2},
    "megabyte": {"output_bytes": 1 << 19},
}


@pytest.mark.parametrize("key", WRONG_LIMITS)
def test_a_limit_that_is_another_is_seen(engine: SyncEngine, canary: Canary, key: str) -> None:
    if engine.features["level"] != "jail" or not engine.features["root"]:
        pytest.skip("limits that this level declares as coarse say nothing here")
    (result,) = examine(Weak(engine, WRONG_LIMITS[key]), canary, [replace(BY_KEY[key], warm=True)])
    assert result.state is State.FAIL, result


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.key)
def test_no_check_passes_on_nothing_or_on_nonsense(check: Check) -> None:
    cases = len(check.cases) if check.probe is None else len(check.probe.stages)
    for outcome in (
        Outcome(exit_code=0),
        Outcome(exit_code=0, stdout=b"\xff\n", stderr=b"\xff\n"),
        Outcome(exit_code=1),
        Outcome(signal=9),
        Outcome(signal=9, ended_by=EndedBy.CANCELLED),
    ):
        runs = [Run(way, use, [outcome] * cases, {}, 0) for way, _ in check.ways for use in ("first", "second")]
        result = judged(check, runs, "jail", {"cpu": True, "pids": True, "root": True})
        # Where only the comparison of runs says anything, and they are alike, any text will do.
        if not (check.judge is says and check.runs is Runs.ALIKE and outcome.ok and outcome.stdout):
            assert result.state is State.FAIL, outcome


def test_what_depends_on_the_start_or_use_is_seen(engine: SyncEngine, canary: Canary) -> None:
    frames = Check(
        key="frames", group="python", title="", program="import inspect\nprint(len(inspect.stack()))\n", judge=says
    )
    same = Check(key="same", group="clocks", title="", program="print(1)\n", judge=says, runs=Runs.DIFFERENT)
    clock = Check(key="clock", group="clocks", title="", program="import time\nprint(time.time())\n", judge=says)
    seen = examine(engine, canary, [frames, same, clock])
    assert [result.state for result in seen] == [State.FAIL] * 3
    assert "warm, first use and real interpreter, first use differ: stdout '2" in seen[0].fault
    assert "gave the same" in seen[1].fault
    assert "warm, first use and warm, second use differ" in seen[2].fault


def test_a_program_that_breaks_its_slot_fails_though_another_slot_ran_it(engine: SyncEngine, canary: Canary) -> None:
    class Breaking(Weak):
        def submit(self, job: Job, /) -> Future[list[Outcome]]:
            started = threading.Event()
            before = self.engine.replaced
            future = self.engine.submit(job)
            threading.Timer(0.3, started.set).start()
            started.wait()
            for pid in self.engine.agent_pids():
                os.kill(pid, signal.SIGKILL)
            future.result()
            assert self.engine.replaced > before
            return future

    nap = Check(
        key="nap",
        group="python",
        title="",
        program="import time\ntime.sleep(2)\nprint(1)\n",
        judge=shows("1\n"),
        warm=True,
    )
    (result,) = examine(Breaking(engine, {}), canary, [nap])
    assert result.fault == "the slot broke and was replaced in 2 of 2 runs"


# ---------------------------------------------------------------- declarations


def test_every_declaration_is_of_a_level_and_a_check() -> None:
    for one in DECLARED:
        assert one.level in LEVELS
        assert one.level != "auto"
        assert one.check in BY_KEY
        assert one.why
        assert not one.why.endswith(".")
    assert len({(one.level, one.check) for one in DECLARED}) == len(DECLARED)


def gone(stdout: bytes, **more: Any) -> Result:
    """What a level without abstract names says of the check, or something else."""
    check = BY_KEY["own_abstract_sockets"]
    outcome = Outcome(exit_code=1, stderr=stdout, **more)
    runs = [Run(way, use, [outcome], {}, 0) for way, _ in check.ways for use in ("first use", "second use")]
    return judged(check, runs, "gvisor", {})


def test_a_declaration_excuses_its_own_failure_and_no_other() -> None:
    assert gone(b"OSError: [Errno 22] Invalid argument\n").state is State.DECLARED
    assert gone(b"OSError: [Errno 22] Invalid argument\n").declared
    assert gone(b"Segmentation fault\n").state is State.FAIL
    assert gone(b"", error="the agent said Invalid argument").state is State.FAIL
    assert declaration("own_abstract_sockets", "jail", {}) is None


def test_a_declaration_holds_only_with_the_features_that_it_names() -> None:
    one = declaration("children_told", "jail", {"cpu": False})
    assert isinstance(one, Declaration)
    assert declaration("children_told", "jail", {"cpu": True}) is None
    assert declaration("inodes", "gvisor", {"inodes": True}) is None


def test_a_declared_check_that_passes_is_said() -> None:
    check = BY_KEY["own_loopback"]
    runs = [Run("warm", use, [Outcome(exit_code=0, stdout=b"none\n")], {}, 0) for use in ("first use", "second use")]
    result = judged(check, runs, "gvisor", {})
    assert (result.state, bool(result.declared)) == (State.PASS, True)
    assert summary([result]) == "1 of 1 checks pass; 1 of them although the level declares otherwise"
    assert "declared" in result.to_json()
