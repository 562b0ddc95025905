"""Batches with a cache, on the real engine: what need not run, what must, and that both come to the same."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, each, ran
from hypothesis import given
from hypothesis import strategies as st

import proctor
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Job
from proctor.engine.languages import language
from proctor.engine.shared import SyncEngine, shared_engine
from proctor.grading import place
from proctor.grading.api import agrade, grade
from proctor.grading.cache import Cache, default_path
from proctor.grading.grades import CaseGrade, Grade
from proctor.grading.place import Place
from proctor.grading.problem import CheckerSpec, Problem, TestCase
from proctor.grading.stored import lasting, pack, unpack

ADD = "a,b=map(int,input().split())\nprint(a+b)\n"
SUM = Problem(
    id="sum",
    mode="stdio",
    cases=(
        TestCase(stdin=b"3 4\n", expected=b"7\n"),
        TestCase(stdin=b"10 -2\n", expected=b"8\n"),
        TestCase(stdin=b"1 1\n", expected=b"2\n", held_out=True),
    ),
    time_limit_s=0.5,
    memory_limit_mib=64,  # which a program fills long before its time is over
)
DOUBLE = Problem(
    id="double",
    mode="function",
    entry_point="f",
    cases=(TestCase(args=(2,), expected=4), TestCase(args=([1],), expected=[1, 1])),
    checker=CheckerSpec(kind="value"),
    time_limit_s=1,
)
TESTS = Problem(id="tests", mode="unit_tests", test_code="def test_a():\n    assert f(1) == 2\n", time_limit_s=1)
PROGRAMS: list[tuple[str, Problem]] = [
    (ADD, SUM),
    ("print(7)", SUM),
    ("print('x' * 200_000)", SUM),
    ("import sys\nsys.stderr.write('\\x1b[31m\\udc80' * 9)\nsys.exit(3)", SUM),
    ("print(7\n", SUM),
    ("import os\nos.kill(os.getpid(), 11)", SUM),
    ("x = bytearray(b'x') * (200 << 20)", SUM),
    ("while True: pass", SUM),
    ("def f(x): return x * 2", DOUBLE),
    ("def f(x): return [x, x]", DOUBLE),
    ("def f(x):\n  if x == 2: exit()\n  return x * 2", DOUBLE),
    ("def f(x): return x + 1", TESTS),
    ("def f(x): return x", TESTS),
]


@pytest.fixture(scope="module")
def engine() -> SyncEngine:
    return shared_engine()


def graded(engine: Any, rows: Sequence[tuple[str, Problem]] = PROGRAMS, **options: Any) -> list[Grade]:
    told = {"extract": "whole", "engine": engine, **options}
    return grade([text for text, _ in rows], [problem for _, problem in rows], **told)


class Counting:
    """An engine, and the jobs that it was given."""

    def __init__(self, engine: Any, image: str | None = "image", isolation: str | None = "jail") -> None:
        self._engine, self.jobs = engine, list[Job]()
        self.slots = engine.slots
        self.image_digest = getattr(engine, "image_digest", image)
        self.isolation = getattr(engine, "isolation", isolation)

    def submit(self, job: Job, *, owner: object = None) -> Any:
        self.jobs.append(job)
        return self._engine.submit(job, owner=owner)


def fake(answer: Callable[[Job], Sequence[Outcome]]) -> Counting:
    return Counting(FakeEngine(answer))


# ---------------------------------------------------------------- the same as fresh


def test_a_cached_grade_is_the_fresh_one_field_by_field(engine: SyncEngine) -> None:
    fresh = graded(engine)
    counting = Counting(engine)
    again = graded(counting)
    assert [one.cached for one in fresh] == [False] * len(PROGRAMS)
    assert [one.cached for one in again] == [True] * len(PROGRAMS)
    assert counting.jobs == []
    for one, other in zip(fresh, again, strict=True):
        for f in fields(Grade):
            if f.name != "cached":
                assert getattr(one, f.name) == getattr(other, f.name), f.name
        assert one.to_json() == other.to_json()
        assert one.provenance is not None
        assert one.provenance.isolation == engine.isolation
        assert one.provenance.image == engine.image_digest
    with Cache() as cache:
        assert cache.stats().hits == len(PROGRAMS)


def test_a_compiled_program(engine: SyncEngine) -> None:
    if not language("c").available():
        pytest.skip("no C compiler")
    source = '#include <stdio.h>\nint main(){int a,b;scanf("%d%d",&a,&b);printf("%d\\n",a+b);}\n'
    rows = [(source, replace(SUM, language="c")), ("int main(){", replace(SUM, language="c"))]
    fresh, again = graded(engine, rows), graded(engine, rows)
    assert [one.verdict for one in fresh] == [Verdict.ACCEPTED, Verdict.COMPILE_ERROR]
    assert all(one.cached for one in again)
    assert [one.to_json() for one in fresh] == [one.to_json() for one in again]


def test_the_asynchronous_twin_shares_the_cache(engine: SyncEngine) -> None:
    fresh = graded(engine)
    counting = Counting(engine)
    rows = PROGRAMS * 2
    again = asyncio.run(
        agrade([text for text, _ in rows], [problem for _, problem in rows], extract="whole", engine=counting)
    )
    assert counting.jobs == []
    assert [one.to_json()["cases"] for one in again] == [one.to_json()["cases"] for one in fresh * 2]
    assert [one.index for one in again] == list(range(len(rows)))


def test_the_reward_is_computed_anew(engine: SyncEngine) -> None:
    counting = Counting(engine)
    rows = [("print(7)", SUM)]
    assert [one.reward for one in graded(engine, rows)] == [0.5]
    assert [one.reward for one in graded(counting, rows, reward="all_or_nothing")] == [0.0]
    seen: list[bytes] = []

    def policy(found: Grade) -> float:
        seen.append(found.cases[0].outcome.stdout)
        return len(found.cases[0].outcome.stdout)

    assert [one.reward for one in graded(counting, rows, reward=policy)] == [2.0]
    assert seen == [b"7\n"]
    assert counting.jobs == []


def test_everything_that_counts_makes_it_run_again(engine: SyncEngine) -> None:
    counting = Counting(engine)
    rows = [(ADD, SUM)]
    changes: list[dict[str, Any]] = [
        {},
        {"checker": "exact"},
        {"limits": {"cpu_s": 0.75}},
        {"warm": False},
        {"cache": False},
    ]
    for number, options in enumerate(changes, 1):
        graded(counting, rows, **options)
        assert len(counting.jobs) == number, options
    for options in changes[:-1]:
        assert all(one.cached for one in graded(counting, rows, **options))
    counting.isolation = "degraded"
    assert not graded(counting, rows)[0].cached
    counting.image_digest = "other"
    assert not graded(counting, rows)[0].cached


def test_no_engine_is_started_when_all_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ([ADD, "print(7)"], [SUM, SUM])
    fresh = proctor.grade(*rows, extract="whole")
    monkeypatch.setattr("proctor.engine.shared.shared_engine", lambda **options: pytest.fail("it was started"))
    again = proctor.grade(*rows, extract="whole")
    assert all(one.cached for one in again)
    assert [one.to_json() for one in again] == [one.to_json() for one in fresh]
    assert proctor.score(*rows, extract="whole") == [one.reward for one in fresh]


def test_a_level_that_is_not_the_one_foreseen_is_not_believed(engine: SyncEngine) -> None:
    """The level that was noted is of an earlier engine; the engine itself has the last word."""
    with Cache() as cache:
        cache.remember(f"isolation {place.surroundings()}", "degraded")
        here = Place()
        here.foresee(cache)
        assert (here.started, here.isolation) == (False, "degraded")
        here.engine()
        assert here.isolation == engine.isolation
        assert here.confirm(cache) is (engine.isolation == "degraded")
        assert cache.recall(f"isolation {place.surroundings()}") == engine.isolation


def test_an_entry_that_decodes_to_something_else_runs_again(engine: SyncEngine) -> None:
    from proctor.grading import cache as store

    rows = [(ADD, SUM), ("print(7)", SUM)]
    graded(engine, rows)
    with sqlite3.connect(default_path()) as database:
        for number, (key,) in enumerate(database.execute("SELECT key FROM entries").fetchall()):
            value = [b"nonsense", pack([CaseGrade(verdict=Verdict.ACCEPTED)])][number]
            assert value is not None
            told = (value, store._checksum(key, value), key)
            database.execute("UPDATE entries SET value = ?, checksum = ? WHERE key = ?", told)
    database.close()
    found = graded(engine, rows)
    assert [(one.cached, one.reward) for one in found] == [(False, 1.0), (False, 0.5)]


def test_a_broken_file_is_said_and_scoring_goes_on(engine: SyncEngine, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "c.sqlite").write_bytes(b"nonsense" * 1000)
    found = graded(engine, [(ADD, SUM)], cache=tmp_path / "c.sqlite")
    assert [(one.cached, one.reward) for one in found] == [(False, 1.0)]
    assert "cannot be used" in caplog.text
    assert (tmp_path / "c.sqlite").read_bytes() == b"nonsense" * 1000


@pytest.mark.parametrize("bad", ["", None, 7, b"path"])
def test_a_cache_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(proctor.InputError, match="cache"):
        grade([], SUM, cache=bad)


# ---------------------------------------------------------------- what is never kept

LATE = {"exit_code": None, "signal": 9, "cpu_s": 0.7}
NEVER: dict[str, Callable[[Job], Sequence[Outcome]]] = {
    "a fault of this host": each(lambda case: Outcome(error="lost")),
    "a fault in one case": lambda job: [ran(b"7"), Outcome(error="lost"), ran(b"2")],
    "a fault in a held-out case": lambda job: [ran(b"7"), ran(b"8"), Outcome(error="lost")],
    "a time limit that was not confirmed": each(lambda case: ran(**LATE, ended_by=EndedBy.CPU)),
    "a wall limit that was not confirmed": each(lambda case: ran(**LATE, ended_by=EndedBy.WALL)),
    "one of two": lambda job: [
        ran(**LATE, ended_by=EndedBy.CPU, confirmed=True),
        ran(**LATE, ended_by=EndedBy.CPU),
        ran(b"2"),
    ],
    "not run, and nothing says why": each(lambda case: Outcome(signal=9, ended_by=EndedBy.NOT_RUN)),
    "cancelled": each(lambda case: Outcome(ended_by=EndedBy.CANCELLED)),
    "killed by nobody knows whom": each(lambda case: ran(exit_code=None, signal=9)),
    "a compiler that was killed": each(lambda case: ran(exit_code=None, signal=9, compile_failed=True)),
    "a compiler that was late": each(lambda case: ran(**LATE, ended_by=EndedBy.CPU, compile_failed=True)),
}


@pytest.mark.parametrize("what", NEVER)
def test_what_could_be_otherwise_next_time_is_not_kept(what: str) -> None:
    engine = fake(NEVER[what])
    first = graded(engine, [("print(1)", SUM)])
    jobs = len(engine.jobs)
    assert graded(engine, [("print(1)", SUM)])[0].cached is False
    assert len(engine.jobs) == 2 * jobs > 0
    with Cache() as cache:
        assert cache.stats().entries == 0
    assert first[0].cached is False


SURE: dict[str, Callable[[Job], Sequence[Outcome]]] = {
    "confirmed, then not run": lambda job: [
        ran(**LATE, ended_by=EndedBy.CPU, confirmed=True),
        Outcome(signal=9, ended_by=EndedBy.NOT_RUN),
        Outcome(signal=9, ended_by=EndedBy.NOT_RUN),
    ],
    "over twice its limit, which no host would change": each(
        lambda case: ran(exit_code=None, signal=9, cpu_s=1.01, ended_by=EndedBy.CPU)
    ),
    "a wall limit that was confirmed": each(lambda case: ran(**LATE, ended_by=EndedBy.WALL, confirmed=True)),
    "memory": each(lambda case: ran(exit_code=None, signal=9, ended_by=EndedBy.MEMORY)),
    "killed again": each(lambda case: ran(exit_code=None, signal=9, confirmed=True)),
}


@pytest.mark.parametrize("what", SURE)
def test_what_is_sure_is_kept(what: str) -> None:
    engine = fake(SURE[what])
    first = graded(engine, [("print(1)", SUM)])
    assert graded(engine, [("print(1)", SUM)]) == [replace(first[0], cached=True)]


def test_calls_that_were_not_run_for_want_of_time_are_not_kept() -> None:
    """The calls before had crashed, and how much time they used is never the same twice."""
    cases = (
        CaseGrade(verdict=Verdict.RUNTIME_ERROR, outcome=ran(exit_code=1)),
        CaseGrade(verdict=Verdict.TIME_LIMIT, detail="not run: the calls before it had used up the time"),
    )
    assert not lasting(cases, Limits())
    sure = replace(cases[0], outcome=ran(**LATE, ended_by=EndedBy.CPU, confirmed=True))
    assert lasting((sure, cases[1]), Limits())
    assert not lasting((), Limits())


def test_a_callers_own_checker_is_asked_every_time(engine: SyncEngine) -> None:
    counting = Counting(engine)
    answers = iter([True, True, True, False, False, False])
    first, second = (
        graded(counting, [(ADD, SUM)], checker=lambda out, want, given: next(answers))[0] for _ in range(2)
    )
    assert (first.reward, second.reward) == (1.0, 0.0)
    assert len(counting.jobs) == 2
    assert first.provenance is not None
    assert first.provenance.checker is None


def test_an_engine_that_does_not_name_its_image_has_no_cache() -> None:
    engine = FakeEngine(each(lambda case: ran(b"7")))
    graded(engine, [("print(1)", SUM)])
    assert not graded(engine, [("print(1)", SUM)])[0].cached
    assert len(engine.jobs) == 2


def test_arguments_that_cannot_be_sent_are_named_as_ever(engine: SyncEngine) -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    problem = replace(DOUBLE, cases=(TestCase(args=(deep,), expected=4),))
    told = []
    for kept in (True, False):
        with pytest.raises(ValueError, match="nested too deeply") as caught:
            graded(engine, [("def f(x): return x * 2", problem)], cache=kept)
        told.append(repr(caught.value))
    assert told[0] == told[1]


def test_held_out_calls_that_were_not_run_for_want_of_time_are_not_kept() -> None:
    """A sure time limit among the calls that count says nothing of those that are held out."""
    held = TestCase(args=(3,), expected=6, held_out=True)
    problem = replace(DOUBLE, cases=(DOUBLE.cases[0], held, held))
    late = ran(**LATE, ended_by=EndedBy.CPU, confirmed=True)
    crash = ran(exit_code=1, cpu_s=0.99)
    for outcomes, kept in (([late, crash], False), ([late, late], True)):
        answers = iter(outcomes * 2)
        engine = fake(lambda job, answers=answers: [next(answers)])
        rows = [(f"def f(x): return {kept}", problem)]
        first = graded(engine, rows)
        assert [str(case.verdict) for case in first[0].held_out][-1] == "time_limit"
        assert graded(engine, rows)[0].cached is kept


def test_outputs_that_are_too_large_are_not_kept() -> None:
    many = replace(SUM, cases=tuple(TestCase(stdin=b"%d" % n, expected=b"x") for n in range(300)))
    import random

    noise = [random.Random(n).randbytes(64 << 10) for n in range(300)]
    engine = fake(lambda job: [ran(data) for data in noise[: len(job.cases)]])
    graded(engine, [("print(1)", many)])
    assert not graded(engine, [("print(1)", many)])[0].cached


# ---------------------------------------------------------------- grades as bytes

OUTCOMES = st.builds(
    Outcome,
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    stdout=st.binary(max_size=20),
    stderr=st.binary(max_size=20),
    stdout_truncated=st.booleans(),
    stderr_truncated=st.booleans(),
    cpu_s=st.floats(0, 1e6),
    wall_s=st.floats(0, 1e6),
    peak_memory_bytes=st.none() | st.integers(0, 1 << 50),
    ended_by=st.none() | st.sampled_from(EndedBy),
    steady=st.booleans(),
    left_processes=st.integers(0, 99),
    compile_failed=st.booleans(),
    confirmed=st.booleans(),
)
CASES = st.builds(
    CaseGrade,
    verdict=st.sampled_from([verdict for verdict in Verdict if verdict.is_score]),
    detail=st.text(max_size=20),
    name=st.text(max_size=20),
    outcome=OUTCOMES,
    shared=st.integers(1, 99),
)


@given(st.lists(CASES, max_size=5))
def test_grades_come_back_as_they_were(cases: list[CaseGrade]) -> None:
    data = pack(cases)
    assert data is not None
    assert unpack(data) == tuple(cases)


@given(st.lists(CASES, min_size=1, max_size=2), st.binary(max_size=40), st.integers(0, 1 << 30))
def test_other_bytes_are_refused(cases: list[CaseGrade], noise: bytes, at: int) -> None:
    data = pack(cases) or b""
    for bad in (noise, data[: at % len(data)], b""):
        with pytest.raises(ValueError, match="no grades"):
            unpack(bad)


# ---------------------------------------------------------------- repeat

VARIES = {
    "another output": ("import os\nprint(os.urandom(8).hex())", SUM),
    "right by chance": ("import time\nprint(7 if time.time_ns() // 100 % 2 else 8)\nprint(time.time_ns())", SUM),
    "another status": ("import os\nos._exit(os.urandom(1)[0] % 200)", SUM),
    "another value": ("import os\ndef f(x): return os.urandom(8)", DOUBLE),
}


@pytest.mark.parametrize("what", VARIES)
def test_a_program_that_differs_from_run_to_run_is_flagged(engine: SyncEngine, what: str) -> None:
    counting = Counting(engine)
    (found,) = graded(counting, [VARIES[what]], repeat=4)
    assert found.deterministic is False
    assert found.to_json()["deterministic"] is False
    assert 2 <= len(counting.jobs) <= 4


def test_programs_that_do_not_differ(engine: SyncEngine) -> None:
    counting = Counting(engine)
    rows = [*PROGRAMS, ("import random\nprint(random.random(), hash('x'))", SUM), ("", SUM)]
    once = graded(engine, rows)
    jobs = len(graded(counting, rows, cache=False)) and len(counting.jobs)
    twice = graded(counting, rows, repeat=2)
    assert len(counting.jobs) == 3 * jobs
    assert [one.deterministic for one in twice] == [True] * (len(rows) - 1) + [None]
    assert [one.deterministic for one in once] == [None] * len(rows)
    assert [one.verdict for one in twice] == [one.verdict for one in once]
    assert "deterministic" not in once[0].to_json()


def test_the_first_run_counts() -> None:
    answers = iter([b"7", b"8", b"2", b"7", b"wrong", b"2"])
    engine = fake(lambda job: [ran(next(answers)) for _ in job.cases])
    (found,) = graded(engine, [("print(1)", SUM)], repeat=2)
    assert (found.reward, found.deterministic, found.cached) == (1.0, False, False)
    with Cache() as cache:
        assert cache.stats().entries == 0


@pytest.mark.parametrize("broken", [1, 2])
def test_a_fault_of_this_host_says_nothing_of_determinism(broken: int) -> None:
    count = 0

    def answer(job: Job) -> list[Outcome]:
        nonlocal count
        count += 1
        if count == broken:
            raise RuntimeError("the engine broke")
        return [ran(data) for data in (b"7", b"8", b"2")]

    (found,) = graded(fake(answer), [("print(1)", SUM)], repeat=3)
    assert found.deterministic is None
    assert found.reward == (None if broken == 1 else 1.0)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "2", 1001])
def test_repeat_is_a_count(bad: Any) -> None:
    with pytest.raises(proctor.InputError, match="repeat"):
        grade([], SUM, repeat=bad)


# ---------------------------------------------------------------- held-out cases


def test_held_out_cases_are_reported_and_count_for_nothing(engine: SyncEngine) -> None:
    known = "print({'3 4': 7, '10 -2': 8}.get(input()))"  # the shown answers by heart
    found = graded(engine, [(known, SUM), (ADD, SUM), ("print(2)", SUM)])
    assert [one.reward for one in found] == [1.0, 1.0, 0.0]
    assert [one.verdict for one in found][:2] == [Verdict.ACCEPTED] * 2
    assert [one.held_out_share for one in found] == [0.0, 1.0, 1.0]
    assert [len(one.cases) for one in found] == [2, 2, 2]
    assert [row["verdict"] for row in found[0].to_json()["held_out"]] == ["wrong_answer"]
    assert [one.reward for one in graded(engine, [(known, SUM)], reward="all_or_nothing+crash_penalty=1")] == [1.0]
    shown: list[Any] = []
    for _ in range(2):
        graded(engine, [(known, SUM)], reward=lambda one: shown.append((one.held_out, one.cached)) or 1.0)
    assert shown == [((), False)] * 2  # not even a policy of the caller's own sees them, or the cache
    crash = "print({'3 4': 7, '10 -2': 8}[input()])"
    assert [one.reward for one in graded(engine, [(crash, SUM)], reward="share+crash_penalty=0.5")] == [1.0]


def test_held_out_calls_have_time_and_processes_of_their_own(engine: SyncEngine) -> None:
    """Wherever they stand, no call that counts pays for one that does not."""
    held = [TestCase(args=(n,), expected=n * 2, held_out=True) for n in (-1, 0)]
    problem = replace(DOUBLE, cases=(held[0], *DOUBLE.cases, held[1]))
    rows = [
        ("def f(x):\n  while x == -1: pass\n  return x * 2", problem),
        ("import os\ndef f(x):\n  if x == 0: os._exit(0)\n  return x * 2", problem),
        ("n = 0\ndef f(x):\n  global n\n  n += 1\n  return x * 2 if n <= 2 else None", problem),
    ]
    found = graded(engine, rows, limits={"cpu_s": 0.5})
    assert [one.reward for one in found] == [1.0, 1.0, 1.0]
    assert [[str(case.verdict) for case in one.held_out] for one in found] == [
        ["time_limit", "time_limit"],
        ["accepted", "runtime_error"],
        ["accepted", "accepted"],
    ]


def test_held_out_cases_that_never_end_do_not_keep_others_from_running(engine: SyncEngine) -> None:
    held = [TestCase(stdin=b"0 %d\n" % n, expected=b"0\n", held_out=True) for n in range(4)]
    problem = replace(SUM, cases=(*held, *SUM.cases[:2]), time_limit_s=0.1)
    (found,) = graded(engine, [("a,b=map(int,input().split())\nwhile a == 0: pass\nprint(a+b)", problem)])
    assert (found.reward, found.held_out_share) == (1.0, 0.0)


def test_a_fault_of_this_host_in_a_held_out_case_costs_no_reward() -> None:
    (found,) = graded(fake(NEVER["a fault in a held-out case"]), [("print(1)", SUM)])
    assert (found.reward, found.verdict, found.held_out_share) == (1.0, Verdict.ACCEPTED, None)
    assert found.error is None


def test_a_problem_whose_cases_are_all_held_out_is_refused(tmp_path: Path) -> None:
    case = {"stdin": "", "expected": "1", "held_out": True}
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": "a", "cases": [case]}) + "\n")
    with pytest.raises(proctor.InputError, match=r"p\.jsonl:1: field 'cases': every case is held out"):
        proctor.load_problems(path)
    path.write_text(json.dumps({"id": "a", "cases": [case, {**case, "held_out": "yes"}]}) + "\n")
    with pytest.raises(proctor.InputError, match=r"cases\[1\].held_out"):
        proctor.load_problems(path)
    path.write_text(json.dumps({"id": "a", "cases": [case, {**case, "held_out": None}]}) + "\n")
    assert [c.held_out for c in proctor.load_problems(path)[0].cases] == [True, False]
