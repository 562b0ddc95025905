"""Machines of Firecracker's, against its published API: the program here stands for the real one, the agents are real."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import fc_help
import pytest
from engine_help import gone, job, run
from fc_help import COPY, LIMITS, TEMPLATE, Place

import proctor
from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import CheckerSpec, Problem, TestCase
from proctor.isolation import sweep


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    fc_help.needs_device()
    with pytest.MonkeyPatch.context() as patch:
        made = Place(tmp_path_factory.mktemp("fc"), patch)
        yield made
        made.host.close()


@pytest.fixture(scope="module")
def machines(place: Place) -> Iterator[SyncEngine]:
    engine = SyncEngine(slots=2, isolation="microvm")
    yield engine
    engine.close()


def test_a_case_is_scored_through_it(place: Place, machines: SyncEngine) -> None:
    """The machine is described, started, paused and saved; a copy is loaded, called and goes on; its agent is real."""
    (outcome,) = run(machines, "print(sum(map(int, input().split())))", b"3 4\n", limits=LIMITS)
    assert (outcome.stdout, outcome.error) == (b"7\n", None)
    assert machines.features["firecracker"] == "1.16.1"
    assert machines.features["level"] == "microvm"
    assert [place.methods(number) for number in range(3)] == [[*TEMPLATE[:2], "PUT /actions"], TEMPLATE, COPY]
    config, boot, drive, vsock, entropy, start, pause, create = (body for _, _, body in place.host.requests(1))
    assert config == {"vcpu_count": 1, "mem_size_mib": 1024, "smt": False}
    assert "proctor.vsock=1024" in boot["boot_args"].split()
    assert "rdinit=/init" in boot["boot_args"].split()
    assert set(boot) == {"kernel_image_path", "initrd_path", "boot_args"}
    assert drive == {"drive_id": "root", "path_on_host": "/proc/self/fd/3", "is_root_device": False, "is_read_only": True}  # fmt: skip
    assert (vsock["guest_cid"], entropy, start) == (3, {}, {"action_type": "InstanceStart"})
    assert (pause, create["snapshot_type"]) == ({"state": "Paused"}, "Full")
    load, resume = (body for _, _, body in place.host.requests(2))
    assert load == {
        "snapshot_path": "/proc/self/fd/5", "mem_backend": {"backend_type": "File", "backend_path": "/proc/self/fd/4"},
        "resume_vm": False,
    }  # fmt: skip
    assert resume == {"state": "Resumed"}


SUM: dict[str, Any] = {"mode": "stdio", "cases": (TestCase(stdin=b"3 4\n", expected=b"7\n"),), "time_limit_s": 10}
CALL: dict[str, Any] = {
    "mode": "function", "entry_point": "solve", "checker": CheckerSpec(kind="value"),
    "cases": (TestCase(args=(2,), expected=[2, 4]),), "time_limit_s": 10,
}  # fmt: skip
TABLE: dict[str, tuple[dict[str, Any], str, Verdict]] = {
    "right": (SUM, "print(7)", Verdict.ACCEPTED),
    "wrong": (SUM, "print(0)", Verdict.WRONG_ANSWER),
    "exception": (SUM, "1 / 0", Verdict.RUNTIME_ERROR),
    "flood": (SUM, "while True: print('x' * 100_000)", Verdict.OUTPUT_LIMIT),
    "call": (CALL, "def solve(n): return [n, n * n]", Verdict.ACCEPTED),
    "call, wrong": (CALL, "def solve(n): return [n]", Verdict.WRONG_ANSWER),
}


def test_verdicts_come_through(place: Place, machines: SyncEngine) -> None:
    problems = [Problem(id=name, **known) for name, (known, _, _) in TABLE.items()]
    sources = [source for _, source, _ in TABLE.values()]
    grades = proctor.grade(sources, problems, engine=machines, extract="whole", cache=False)
    found = {name: grade.cases[0].verdict for name, grade in zip(TABLE, grades, strict=True)}
    assert found == {name: due for name, (_, _, due) in TABLE.items()}, [grade.error for grade in grades]


def test_each_copy_is_given_entropy_and_the_time(place: Place, machines: SyncEngine) -> None:
    for future in [machines.submit(job("import time; time.sleep(0.5)", limits=LIMITS)) for _ in range(4)]:
        assert future.result()[0].error is None
    told = [known["woken"].read_text().splitlines() for known in place.host.processes[2:] if known["woken"].exists()]
    first = [[json.loads(row) for row in rows[:2]] for rows in told]
    assert len(first) >= 2
    assert len({entropy["entropy"] for entropy, _ in first}) == len(first)
    assert all(len(bytes.fromhex(entropy["entropy"])) == 64 for entropy, _ in first)
    assert all(abs(clock["time"] / 1e9 - time.time()) < 3600 for _, clock in first)
    assert all(clock["clock"] == time.CLOCK_REALTIME for _, clock in first)


def test_it_is_behind_the_walls_of_a_jail(place: Place, machines: SyncEngine) -> None:
    """What stands for Firecracker looks around as it loads: the walls are those that the real one gets."""
    around = place.host.processes[2]["around"]
    assert "home" not in around["top"]
    assert "root" not in around["top"]
    assert set(around["here"]) <= {"api", "stream"}
    assert around["pid"] == 1
    assert around["uid"] != 0
    assert set(around["capabilities"]) == {"0"}
    assert around["new_privileges"] == "1"
    assert around["links"] == ["lo"]
    assert around["net"] != os.readlink("/proc/self/ns/net")
    assert around["written"] == ["."]
    assert around["console"] == "/dev/null"
    assert around["descriptors"][:6] == [0, 1, 2, 3, 4, 5]


def test_nothing_of_it_stays_in_the_file_system(place: Place, machines: SyncEngine) -> None:
    """Its directory is gone as soon as both sockets are connected, while the machine runs."""
    assert run(machines, "print(1)", limits=LIMITS)[0].error is None
    boxes = f"proctor-{os.getpid()}-*"
    assert not gone(lambda: [path for path in sweep.BOXES.glob(boxes) if (path / "machine").exists()])
