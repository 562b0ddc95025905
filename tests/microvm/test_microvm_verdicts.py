"""Inside a machine every kind of program gets the verdict that it has in a jail."""

from __future__ import annotations

import json
import time
from typing import Any

from engine_help import job

import proctor
from proctor.core.limits import Limits
from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import CheckerSpec, Problem, TestCase

SUM: dict[str, Any] = {
    "mode": "stdio",
    "cases": (TestCase(stdin=b"3 4\n", expected=b"7\n"),),
    "time_limit_s": 0.1,
    "memory_limit_mib": 96,
}
CALL: dict[str, Any] = {
    "mode": "function",
    "entry_point": "solve",
    "cases": (TestCase(args=(2,), expected=[2, 4]), TestCase(args=(3,), expected=[3, 9])),
    "checker": CheckerSpec(kind="value"),
}
UNIT: dict[str, Any] = {
    "mode": "unit_tests",
    "test_code": "import unittest\nclass T(unittest.TestCase):\n"
    "    def test_a(self): self.assertEqual(solve(2), [2, 4])\n"
    "    def test_b(self):\n        with self.assertRaises(ValueError): solve(-1)\n",
}
ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
SQUARE = "def solve(n):\n    if n < 0:\n        raise ValueError(n)\n    return [n, n * n]\n"
TABLE: dict[str, tuple[dict[str, Any], str, list[Verdict]]] = {
    "right": (SUM, ADD, [Verdict.ACCEPTED]),
    "wrong": (SUM, "print(0)", [Verdict.WRONG_ANSWER]),
    "exception": (SUM, "1 / 0", [Verdict.RUNTIME_ERROR]),
    "loop": (SUM, "while True: pass", [Verdict.TIME_LIMIT]),
    "memory": (SUM, "x = []\nwhile True: x.append(bytearray(1 << 20))", [Verdict.MEMORY_LIMIT]),
    "flood": (SUM, "while True: print('x' * 100_000)", [Verdict.OUTPUT_LIMIT]),
    "fork bomb": (
        {**SUM, "time_limit_s": 2}, ADD + "import os\nfor _ in range(200):\n    try:\n        if os.fork() == 0:\n"
        "            import time; time.sleep(1000)\n    except OSError: pass", [Verdict.ACCEPTED],
    ),
    "call": (CALL, SQUARE, [Verdict.ACCEPTED] * 2),
    "call, equal to all": (CALL, "class E:\n    def __eq__(self, other): return True\ndef solve(n): return E()", [Verdict.WRONG_ANSWER] * 2),
    "sealed": (UNIT, SQUARE, [Verdict.ACCEPTED] * 2),
    "sealed, wrong": (UNIT, "def solve(n): return [n, n * n]", [Verdict.ACCEPTED, Verdict.WRONG_ANSWER]),
    "sealed, forged": (UNIT, "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef solve(n): return 5", [Verdict.WRONG_ANSWER] * 2),
}  # fmt: skip


def test_the_verdicts_of_a_jail(machines: SyncEngine) -> None:
    problems = [Problem(id=name, **known) for name, (known, _, _) in TABLE.items()]
    sources = [source for _, source, _ in TABLE.values()]
    grades = proctor.grade(sources, problems, engine=machines, extract="whole", cache=False)
    found = {name: [case.verdict for case in grade.cases] for name, grade in zip(TABLE, grades, strict=True)}
    assert found == {name: due for name, (_, _, due) in TABLE.items()}, [grade.error for grade in grades]
    assert not any(grade.claimed for grade in grades)


LOOK = """
import json, os, socket, time
try:
    socket.create_connection(("1.1.1.1", 53), 1)
    net = "reached"
except OSError as exc:
    net = type(exc).__name__
print(json.dumps({"random": os.urandom(16).hex(), "time": time.time(), "release": os.uname().release, "net": net,
    "links": os.listdir("/sys/class/net") if os.path.isdir("/sys") else [], "dev": sorted(os.listdir("/dev"))}))
time.sleep(1)
"""


def test_machines_differ_in_chance_and_agree_in_time(machines: SyncEngine) -> None:
    """Each is a copy of the same saved one. None has a network, or a device beyond a jail's."""
    before = time.time()
    outcomes = [
        future.result()[0]
        for future in [machines.submit(job(LOOK, limits=Limits(cpu_s=5, wall_s=60))) for _ in range(4)]
    ]
    after = time.time()
    seen = [json.loads(outcome.stdout) for outcome in outcomes]
    assert len({one["random"] for one in seen}) == 4
    assert all(before - 2 <= one["time"] <= after + 2 for one in seen), (before, seen, after)
    assert machines.features["kernel"] == seen[0]["release"]
    assert {one["net"] for one in seen} <= {"OSError", "PermissionError"}
    assert not seen[0]["links"]
    assert set(seen[0]["dev"]) <= {
        "null",
        "zero",
        "full",
        "random",
        "urandom",
        "fd",
        "stdin",
        "stdout",
        "stderr",
        "shm",
    }


def test_a_job_that_no_machine_has_room_for_is_nobodys_fault(machines: SyncEngine) -> None:
    (outcome,) = machines.run(job(ADD, b"1 2\n", limits=Limits(memory_mib=6000)))
    assert outcome.error
    assert "room for jobs of" in outcome.error
    assert "memory_mib" in outcome.error
