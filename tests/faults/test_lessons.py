"""What published data and the users of other graders teach: each lesson names the test that holds it.

Most tests stand elsewhere, beside what they are about; those that had no
place are below.
"""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from fault_help import ADD, SUM, graded, processes_with, ran, stdio, until
from lessons import OF_DATA, OF_USERS

import proctor
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job, Pair
from proctor.engine.languages import program
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import Problem
from proctor.images.host import host_image

OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("lesson", [*OF_DATA, *OF_USERS])
def test_each_lesson_is_held_by_a_test_that_exists(lesson: str) -> None:
    for named in {**OF_DATA, **OF_USERS}[lesson]:
        file, _, function = named.partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(), re.M), named


def called(cases: list[dict[str, Any]], **more: Any) -> Problem:
    (problem,) = proctor.problems_from_rows([{"id": "p", "entry_point": "f", "cases": cases, **more}])
    return problem


# ---------------------------------------------------------------- data


def test_a_verdict_hangs_on_the_preamble_of_its_problem(engine: SyncEngine) -> None:
    source = "def f(x: List[float]) -> float:\n    return floor(x[0]) + len(re.findall('a', 'aa'))\n"
    cases = [{"args": [[3.5]], "expected": 5}]
    with_one = called(cases, preamble="from math import *\nimport re\nfrom typing import List\n")
    assert graded(engine, source, with_one).reward == 1.0
    without = graded(engine, source, called(cases))
    assert (without.verdict, without.reward) == (CRASH, 0.0)
    assert "NameError" in without.cases[0].detail or b"NameError" in without.cases[0].outcome.stderr


def test_an_empty_output_may_be_expected_and_a_missing_one_not(engine: SyncEngine) -> None:
    (silent,) = proctor.problems_from_rows([{"id": "s", "cases": [{"stdin": "3\n", "expected": ""}]}])
    assert graded(engine, "input()\n", silent).verdict is OK
    assert graded(engine, "print()\n", silent).verdict is OK
    assert graded(engine, "print(input())\n", silent).verdict is WRONG
    assert graded(engine, "raise ValueError\n", silent).verdict is CRASH
    assert graded(engine, "import os\nos.kill(os.getpid(), 9)\n", silent).verdict is CRASH
    for cases in ([{"stdin": "3\n"}], [{"stdin": "3\n", "expected": None}]):
        with pytest.raises(proctor.InputError, match=r"expected.*missing"):
            proctor.problems_from_rows([{"id": "s", "cases": cases}])


@pytest.mark.parametrize(
    ("result", "expected", "verdict"),
    [
        ("2.0", "2", OK),
        ("1", "True", OK),
        ("False", "0", OK),
        ("collections.Counter('aab')", "{'a': 2, 'b': 1}", OK),
        ("collections.OrderedDict([('b', 1), ('a', 2)])", "{'a': 2, 'b': 1}", OK),
        ("{3, 1, 2}", "{1, 2, 3}", OK),
        ("frozenset({1})", "{1}", OK),
        ("'2'", "2", WRONG),
        ("2.0000001", "2", WRONG),
        ("None", "0", WRONG),
        ("collections.Counter('aabc')", "{'a': 2, 'b': 1}", WRONG),
        ("[1, 2]", "{1, 2}", WRONG),
    ],
)
def test_values_are_equal_beyond_their_types(engine: SyncEngine, result: str, expected: str, verdict: Verdict) -> None:
    source = f"import collections\ndef f():\n    return {result}\n"
    assert graded(engine, source, called([{"args": [], "expected_py": expected}])).verdict is verdict


def test_a_tuple_where_json_has_a_list(engine: SyncEngine) -> None:
    """A format that has only JSON for results cannot mean a list when it says one; ours can."""
    row = {"id": "p", "input_output": {"inputs": [[3]], "outputs": [[[0, 1, 2]]], "fn_name": "f"}}
    (plain,) = proctor.problems_from_rows([row], format="apps")
    strict = called([{"args": [3], "expected": [0, 1, 2]}])
    for text, loose in (("tuple(range(n))", OK), ("(i for i in range(n))", OK), ("list(range(n))", OK)):
        source = f"def f(n):\n    return {text}\n"
        assert graded(engine, source, plain).verdict is loose, text
        assert graded(engine, source, strict).verdict is (WRONG if text.startswith("tuple") else OK), text


def test_close_only_where_floats_are_expected(engine: SyncEngine) -> None:
    rule = {"kind": "float", "abs": 1e-6, "rel": 1e-7, "only_if_expected_is_float": True}
    near = "def f(x):\n    return x\n"
    cases = [
        {"args": [1.0000001], "expected": 1.0},
        {"args": [[0.5, 1.0000001]], "expected": [0.5, 1.0]},
        {"args": [1.0000001], "expected": 1},
        {"args": [1.001], "expected": 1.0},
    ]
    found = graded(engine, near, called(cases, checker=rule))
    assert [case.verdict for case in found.cases] == [OK, OK, WRONG, WRONG]


def test_cases_that_contradict_each_other_are_told(engine: SyncEngine) -> None:
    cases = [{"stdin": "1\n", "expected": "2\n"}, {"stdin": "1\n", "expected": "3\n"}]
    (problem,) = proctor.problems_from_rows([{"id": "w", "cases": cases}])
    assert problem.notes == (
        "1 pair(s) of cases with one input and different expected values: 0 and 1",
    )  # and yet both count, as they are written
    assert graded(engine, "print(int(input()) + 1)\n", problem).reward == 0.5


def test_a_body_alone_runs_behind_its_prompt(engine: SyncEngine) -> None:
    prompt = 'def f(n: int) -> int:\n    """One more."""\n'
    problem = called([{"args": [1], "expected": 2}], prompt=prompt)
    for text in ("    return n + 1\n", f"{prompt}    return n + 1\n", f"```python\n{prompt}    return n + 1\n```"):
        assert proctor.score([text], problem, engine=engine) == [1.0], text
    assert proctor.score(["    return n\n"], problem, engine=engine) == [0.0]


# ---------------------------------------------------------------- users


class Counting:
    """The real engine, and a count of the cases that it is given."""

    def __init__(self, engine: SyncEngine) -> None:
        self.engine, self.cases = engine, 0

    @property
    def slots(self) -> int:
        return self.engine.slots

    def submit(self, job: Job | Pair, *, owner: object = None) -> Future[list[Outcome]]:
        self.cases += len(job.cases)
        return self.engine.submit(job, owner=owner)


def test_a_wrong_program_runs_no_case_twice(engine: SyncEngine) -> None:
    for source in ("print(0)\n", "1/0\n", ADD):
        counting = Counting(engine)
        proctor.grade([source], SUM, engine=counting, extract="whole")
        assert counting.cases == len(SUM.cases)
    counting = Counting(engine)
    function = called([{"args": [n], "expected": n} for n in range(5)])
    proctor.grade(["def f(n):\n    return 0\n"], function, engine=counting, extract="whole")
    assert counting.cases == 1


def test_address_space_is_not_memory(engine: SyncEngine) -> None:
    """Libraries reserve far more than they use, the more so the more cores the host has."""
    source = "import mmap\nx = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | 0x4000)\nx[5] = 1\nprint(7)\n"
    if not engine.features["memory"]:
        pytest.skip("without a control group the address space is what bounds memory here")
    assert graded(engine, source, stdio(("", "7\n")), limits={"memory_mib": 64}).reward == 1.0


def test_numpy_under_a_limit_of_memory() -> None:
    pytest.importorskip("numpy")
    source = "import numpy as np\nprint(int((np.ones((200, 200)) @ np.ones(200)).sum()))\n"
    problem = stdio(("", "40000\n"), memory_limit_mib=256, time_limit_s=10)
    try:
        engine = SyncEngine(slots=1, image=host_image(("numpy",)))
    except proctor.IsolationUnavailable as error:
        pytest.skip(f"packages cannot be shown to programs here: {error}")
    try:
        found = graded(engine, source, problem)
        assert found.reward == 1.0, found
    finally:
        engine.close()


@pytest.mark.parametrize("warm", [True, False])
def test_a_line_and_then_the_rest_as_bytes(engine: SyncEngine, warm: bool) -> None:
    """What the interpreter has not read ahead is there, and nothing comes twice."""
    rest = b"".join(b"%d\n" % n for n in range(100_000))
    source = """
import sys
n = int(input())
more = sys.stdin.buffer.read()
print(n, len(more), more[-6:])
"""
    (outcome,) = ran(engine, program(source, warm=warm), Case(b"5\n" + rest))
    count, size, tail = outcome.stdout.split()
    assert (count, tail) == (b"5", repr(rest[-6:]).encode())
    assert 0 < int(size) <= len(rest)
    source = "import sys\nn = int(sys.stdin.buffer.readline())\nmore = sys.stdin.read()\nprint(n, len(more))\n"
    (outcome,) = ran(engine, program(source, warm=warm), Case(b"5\n" + rest))
    assert outcome.stdout == b"5 %d\n" % len(rest)


def test_recursion_costs_only_the_test_that_recurses(engine: SyncEngine) -> None:
    """And in calls, which are cases each, also where it takes the process with it."""
    source = "def f(n):\n    return f(n) + 1 if n == 2 else n\n"
    deep = f"import sys\nsys.setrecursionlimit(10**9)\n{source}"
    tests = "\n".join(f"def test_{n}():\n    assert f({n}) == {n}" for n in (1, 2, 3))
    limits = {"memory_limit_mib": 128, "time_limit_s": 5}
    tested = Problem(id="p", mode="unit_tests", test_code=tests, **limits)
    verdicts = {case.name: case.verdict for case in graded(engine, source, tested).cases}
    assert verdicts == {"test_1": OK, "test_2": WRONG, "test_3": OK}
    calls = called([{"args": [n], "expected": n} for n in (1, 2, 3)], **limits)
    for text in (source, deep):
        first, middle, last = (case.verdict for case in graded(engine, text, calls).cases)
        assert (first, last) == (OK, OK), text
        assert middle in (CRASH, Verdict.MEMORY_LIMIT)


def test_threads_past_the_cpu_limit(engine: SyncEngine) -> None:
    """Threads that really run side by side, and while the main one waits."""
    source = """
import hashlib, threading
def burn():
    while True: hashlib.sha256(bytes(1 << 20)).digest()
threads = [threading.Thread(target=burn) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    (outcome,) = ran(engine, source, limits=Limits(cpu_s=0.3, wall_s=30))
    assert outcome.ended_by is EndedBy.CPU
    assert outcome.cpu_s < 10


def test_a_daemon_does_not_outlive_a_time_limit(engine: SyncEngine) -> None:
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "4321.017"])
    os._exit(0)
while True: pass
"""
    (outcome,) = ran(engine, source, limits=Limits(cpu_s=0.3, wall_s=30))
    assert outcome.ended_by is EndedBy.CPU
    assert until(lambda: not processes_with("4321.017"))


def test_a_prefix_of_the_right_output_is_wrong(engine: SyncEngine) -> None:
    problem = stdio(("", "1\n2\n3\n"))
    for printed in ("1\\n2", "1\\n2\\n", "1\\n2\\n3\\n4", "", "1\\n2\\n\\n"):
        for checker in ("tokens", "lines", "exact", "numbers", "unordered_tokens", "unordered_lines"):
            assert graded(engine, f"print('{printed}')\n", problem, checker=checker).verdict is WRONG, printed


def test_a_programs_top_level_is_a_modules(engine: SyncEngine) -> None:
    source = """
total = 0
def add(n):
    global total
    total += n
class Kept:
    here = total
add(4)
counts = [total for _ in range(2)]
exec("total += 3")
print(total, counts, __name__, Kept.here, globals() is locals())
"""
    assert graded(engine, source, stdio(("", "7 [4, 4] __main__ 0 True\n")), checker="exact").reward == 1.0
    called_twice = called([{"args": [4], "expected": 4}, {"args": [3], "expected": 7}])
    assert graded(
        engine, "total = 0\ndef f(n):\n    global total\n    total += n\n    return total\n", called_twice
    ).reward
