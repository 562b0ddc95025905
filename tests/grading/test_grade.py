"""From completion to Grade, against an engine that runs nothing: verdicts, modes, batches, failures of ours."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fake_engine import FakeEngine, calls_of, each, raised, ran, report, returned

from proctor.core.errors import InputError, IsolationUnavailable
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Job
from proctor.grading.api import agrade, ascore, grade, pass_at_k, score
from proctor.grading.grade import MAX_SOURCE, Grader
from proctor.grading.grades import Grade, printable
from proctor.grading.modes import MAX_DEATHS, MAX_IDLE
from proctor.grading.place import AHEAD
from proctor.grading.problem import CheckerProgram, CheckerSpec, Problem, TestCase
from proctor.guest import protocol

Make = Callable[[Callable[[Job], Sequence[Outcome]]], FakeEngine]

SUM = Problem(
    id="sum",
    mode="stdio",
    cases=tuple(TestCase(stdin=b"%d %d\n" % (a, b), expected=b"%d\n" % (a + b)) for a, b in [(3, 4), (10, -2), (1, 1)]),
    time_limit_s=2,
    memory_limit_mib=256,
)
SQUARE = Problem(
    id="square",
    mode="function",
    entry_point="f",
    cases=tuple(TestCase(args=(n,), expected=n * n) for n in range(5)),
    checker=CheckerSpec(kind="value"),
)
TESTED = Problem(
    id="tested",
    mode="unit_tests",
    # What looks into the program runs beside it; sealed tests are in test_sealed.py.
    test_code="import inspect\ndef test_a():\n    assert f(1) == 2\ndef test_b():\n    assert f(2) == 3\n",
)


@pytest.fixture
def make() -> Iterator[Make]:
    engines: list[FakeEngine] = []

    def build(answer: Callable[[Job], Sequence[Outcome]]) -> FakeEngine:
        engines.append(FakeEngine(answer))
        return engines[-1]

    yield build
    for engine in engines:
        engine.close()


def right(case: Case) -> Outcome:
    return ran(b"%d\n" % sum(map(int, case.stdin.split())))


def squares(case: Case) -> Outcome:
    return ran(result=returned(*(args[0] ** 2 for _, args, _ in calls_of(case))))


def one(make: Make, problem: Problem, answer: Callable[[Job], Sequence[Outcome]], **options: Any) -> Grade:
    (found,) = grade(["def f(x): return x"], problem, engine=make(answer), **options)
    return found


# ---------------------------------------------------------------- verdicts


def test_a_right_program(make: Make) -> None:
    found = one(make, SUM, each(right))
    assert found.verdict is Verdict.ACCEPTED
    assert found.reward == 1.0
    assert [case.cpu_ms for case in found.cases] == [10.0, 10.0, 10.0]
    assert found.limits == Limits(cpu_s=2, memory_mib=256)
    assert not found.claimed
    assert found.error is None


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (ran(b"8\n"), Verdict.WRONG_ANSWER),
        (ran(b"7\n", exit_code=3), Verdict.RUNTIME_ERROR),  # right output does not save a crash
        (ran(b"7\n", exit_code=None, signal=6), Verdict.RUNTIME_ERROR),
        (ran(b"7\n", exit_code=None, signal=31), Verdict.RUNTIME_ERROR),  # which it may have sent itself
        (ran(b"7\n", ended_by=EndedBy.CPU), Verdict.TIME_LIMIT),
        (ran(b"7\n", exit_code=None, signal=9, ended_by=EndedBy.WALL), Verdict.TIME_LIMIT),
        (ran(b"7\n", ended_by=EndedBy.MEMORY), Verdict.MEMORY_LIMIT),
        (ran(b"7\n", ended_by=EndedBy.OUTPUT, stdout_truncated=True), Verdict.OUTPUT_LIMIT),
        (ran(b"7\n", stdout_truncated=True), Verdict.OUTPUT_LIMIT),
        (ran(b"", compile_failed=True, exit_code=1, stderr=b"x.cpp:1: error: no\nmore\n"), Verdict.COMPILE_ERROR),
        (ran(b"", exit_code=1, stderr=b"Traceback\nMemoryError\n"), Verdict.RUNTIME_ERROR),
        (Outcome(error="agent died"), Verdict.INFRASTRUCTURE_ERROR),
        (ran(b"7\n", error="agent died"), Verdict.INFRASTRUCTURE_ERROR),
        (ran(b"7\n", ended_by=EndedBy.CANCELLED), Verdict.INFRASTRUCTURE_ERROR),
        (Outcome(ended_by=EndedBy.NOT_RUN), Verdict.TIME_LIMIT),
        (Outcome(stdout=b"7\n"), Verdict.INFRASTRUCTURE_ERROR),
        (ran(b"7\n", stderr=b"noise" * 99), Verdict.ACCEPTED),  # what goes to stderr is no answer
        (ran(b"7\n", left_processes=3), Verdict.ACCEPTED),
    ],
)
def test_the_verdict_of_an_outcome(make: Make, outcome: Outcome, verdict: Verdict) -> None:
    problem = Problem(id="p", mode="stdio", cases=(TestCase(stdin=b"3 4\n", expected=b"7\n"),))
    found = one(make, problem, lambda job: [outcome])
    assert found.verdict is verdict
    assert found.reward == {Verdict.ACCEPTED: 1.0, Verdict.INFRASTRUCTURE_ERROR: None}.get(verdict, 0.0)
    assert (found.error is not None) is (verdict is Verdict.INFRASTRUCTURE_ERROR)
    assert bool(found.cases[0].detail) is (verdict is not Verdict.ACCEPTED)


def test_a_crash_earns_nothing_where_nothing_is_expected(make: Make) -> None:
    problem = Problem(id="p", mode="stdio", cases=(TestCase(stdin=b"", expected=b""),))
    assert one(make, problem, lambda job: [ran(b"", exit_code=1)]).reward == 0.0
    assert one(make, problem, lambda job: [ran(b"")]).reward == 1.0


def test_every_case_counts(make: Make) -> None:
    problem = Problem(
        id="p",
        mode="stdio",
        cases=tuple(TestCase(stdin=b"%d 1\n" % n, expected=b"%d\n" % (n + 1)) for n in range(1, 13)),
    )

    def ten(case: Case) -> Outcome:
        a, b = map(int, case.stdin.split())
        return ran(b"%d\n" % (a + b if a < 11 else 0))

    found = one(make, problem, each(ten))
    assert found.reward == pytest.approx(10 / 12)
    assert found.verdict is Verdict.WRONG_ANSWER
    assert one(make, problem, each(ten), reward="all_or_nothing").reward == 0.0


def test_bytes_go_in_as_they_are(make: Make) -> None:
    data = b"3 4\r\n\xff\x00"
    problem = Problem(id="p", mode="stdio", cases=(TestCase(stdin=data, expected=b"7"),))
    engine = make(lambda job: [ran(b"7")])
    grade(["print(7)"], problem, engine=engine)
    assert [(case.stdin, case.request) for case in engine.jobs[0].cases] == [(data, None)]
    assert engine.jobs[0].program.files == {"solution.py": b"print(7)"}
    assert engine.jobs[0].program.warm


def test_no_expected_value_goes_where_programs_run(make: Make) -> None:
    canary = "CANARY_91d1"
    problems = [
        Problem(id="a", mode="stdio", cases=(TestCase(expected=canary.encode()),)),
        Problem(
            id="b", mode="function", entry_point="f", cases=(TestCase(expected=[canary]), TestCase(expected=canary))
        ),
    ]
    engine = make(each(lambda case: ran(b"wrong", result=returned(1))))
    found = grade(["def f(): 1", "def f(): 1"], problems, engine=engine)
    assert canary in found[0].cases[0].detail
    assert all(canary not in repr(job) for job in engine.jobs)
    assert all(canary.encode() not in (case.request or b"") for job in engine.jobs for case in job.cases)


def test_no_code(make: Make) -> None:
    engine = make(each(right))
    (found,) = grade(["```\n```"], SUM, engine=engine, reward="share+crash_penalty=0.5")
    assert found.verdict is Verdict.NO_CODE
    assert found.reward == -0.5
    assert found.program_sha256 is None
    assert found.cases == ()
    assert engine.jobs == []


def test_limits_are_the_problems_unless_changed(make: Make) -> None:
    assert one(make, SUM, each(right), limits={"cpu_s": 5}).limits == Limits(cpu_s=5, memory_mib=256)
    assert one(make, SUM, each(right), limits=Limits(cpu_s=9)).limits == Limits(cpu_s=9)
    with pytest.raises(InputError, match="unknown limit"):
        one(make, SUM, each(right), limits={"cpu": 5})


def test_checkers_can_be_replaced(make: Make) -> None:
    def near(case: Case) -> Outcome:
        return ran(b"%d.0\n" % sum(map(int, case.stdin.split())))

    assert one(make, SUM, each(near)).reward == 0.0
    assert one(make, SUM, each(near), checker="numbers:abs=1e-6").reward == 1.0
    assert one(make, SUM, each(near), checker=lambda out, want, given: float(out) == float(want)).reward == 1.0
    with pytest.raises(InputError, match="is not one of"):
        one(make, SUM, each(near), checker="nothing")
    with pytest.raises(InputError, match="neither"):
        one(make, SUM, each(near), checker=3)


def test_a_checker_that_fails_is_our_failure(make: Make) -> None:
    def broken(out: bytes, want: bytes, given: bytes) -> bool:
        raise KeyError("lost")

    found = one(make, SUM, each(right), checker=broken)
    assert found.verdict is Verdict.INFRASTRUCTURE_ERROR
    assert found.reward is None
    assert "broken raised KeyError" in str(found.error)


def test_a_special_judge_that_lacks_a_file_is_refused_before_anything_runs(make: Make) -> None:
    program = CheckerProgram(source="int main(){}", language="cpp", needs=("support/testlib.h",))
    judge = CheckerSpec(kind="program", program=program)
    problem = Problem(id="many", mode="stdio", cases=SUM.cases, checker=judge)
    engine = make(each(right))
    with pytest.raises(InputError, match=r"'many'.*support/testlib\.h.*beside the problem file as 'testlib\.h'"):
        grade(["print(1)"] * 2, [SUM, problem], engine=engine)
    assert engine.jobs == []
    assert grade(["print(1)"], problem, engine=engine, checker="tokens")[0].reward == 1.0


# ---------------------------------------------------------------- function mode


def test_calls_go_in_one_process(make: Make) -> None:
    engine = make(each(squares))
    (found,) = grade(["def f(n):\n    return n * n\n"], SQUARE, engine=engine)
    assert found.reward == 1.0
    (job,) = engine.jobs
    (case,) = job.cases
    assert len(calls_of(case)) == 5
    request = protocol.decode_value(case.request or b"")
    assert request["module"] == "solution"
    assert request["file"] == "solution.py"
    assert calls_of(case) == [("f", (n,), {}) for n in range(5)]
    assert found.cases[0].cpu_ms == 2.0  # an even share of the process
    assert found.cases[0].outcome.result == b""


def test_a_call_that_ends_the_process_costs_only_itself(make: Make) -> None:
    def dies_at_2(case: Case) -> Outcome:
        values = []
        for _, (n,), _ in calls_of(case):
            if n == 2:
                return ran(exit_code=None, signal=11, result=returned(*values) + b"\0\0\1")
            values.append(n * n)
        return ran(result=returned(*values))

    engine = make(each(dies_at_2))
    (found,) = grade(["def f(n): ..."], SQUARE, engine=engine)
    ok, crash = Verdict.ACCEPTED, Verdict.RUNTIME_ERROR
    assert [case.verdict for case in found.cases] == [ok, ok, crash, ok, ok]
    assert found.cases[2].detail == "ended by SIGSEGV"
    assert found.reward == 0.8
    assert [len(calls_of(job.cases[0])) for job in engine.jobs] == [5, 2]


def test_leaving_with_status_0_in_a_call_is_no_answer(make: Make) -> None:
    found = one(make, SQUARE, each(lambda case: ran(result=b"")))
    assert {case.verdict for case in found.cases} == {Verdict.RUNTIME_ERROR}
    assert found.reward == 0.0


def test_a_program_that_never_loads_is_not_tried_for_each_call(make: Make) -> None:
    many = Problem(
        id="m", mode="function", entry_point="f", cases=tuple(TestCase(args=(n,), expected=n) for n in range(99))
    )
    engine = make(each(lambda case: ran(exit_code=1, stderr=b"SyntaxError: invalid syntax\n")))
    (found,) = grade(["def f(:"], many, engine=engine)
    assert len(engine.jobs) == MAX_IDLE
    assert len(found.cases) == 99
    assert {case.verdict for case in found.cases} == {Verdict.RUNTIME_ERROR}
    assert "not run" in found.cases[-1].detail

    for end, times in ((ran(ended_by=EndedBy.CPU), 1), (ran(exit_code=None, signal=11), MAX_DEATHS)):
        # One call returns, the next ends the process, and so on.
        engine = make(each(lambda case, end=end: replace(end, result=returned(calls_of(case)[0][1][0]))))
        (found,) = grade(["def f(n): ..."], many, engine=engine)
        assert len(engine.jobs) == times
        assert found.reward == pytest.approx(times / 99)
        assert len(found.cases) == 99


def test_the_time_limit_is_for_all_calls_together(make: Make) -> None:
    engine = make(each(lambda case: ran(ended_by=EndedBy.CPU, result=returned(0, 1))))
    (found,) = grade(["def f(n): ..."], SQUARE, engine=engine)
    ok, late = Verdict.ACCEPTED, Verdict.TIME_LIMIT
    assert [case.verdict for case in found.cases] == [ok, ok, late, late, late]
    assert len(engine.jobs) == 1
    (found,) = grade(
        ["x"], SQUARE, engine=make(each(lambda c: ran(ended_by=EndedBy.CPU, result=returned(0, 1, 4, 9, 16))))
    )
    assert [case.verdict for case in found.cases] == [ok, ok, ok, ok, late]


@pytest.mark.parametrize(("waited", "reward"), [(30.0, 0.8), (0.0, 0.4)])
def test_time_that_was_waited_is_left_for_the_next_process(make: Make, waited: float, reward: float) -> None:
    """The third call ends its process, on a host so busy that this took 30 s of which none counted."""

    def answer(case: Case) -> Outcome:
        first = len(calls_of(case)) == 5
        return ran(
            exit_code=1 if first else 0,
            result=returned(0, 1) if first else returned(9, 16),
            wall_s=31.0,
            waited_s=waited,
        )

    engine = make(each(answer))
    (found,) = grade(["def f(n): ..."], SQUARE, engine=engine, reward="share")
    assert found.reward == reward, found.cases


def test_raising_values_and_liars(make: Make) -> None:
    class Yes:
        def __eq__(self, other: object) -> bool:
            return True

    stream = returned(0, 1.0) + raised("RecursionError", "maximum recursion depth exceeded") + returned(Yes(), "16")
    found = one(make, SQUARE, each(lambda case: ran(result=stream)))
    ok, wrong = Verdict.ACCEPTED, Verdict.WRONG_ANSWER
    assert [case.verdict for case in found.cases] == [ok, ok, Verdict.RUNTIME_ERROR, wrong, wrong]
    assert found.cases[2].detail.startswith("RecursionError: maximum")
    assert "object of class 'Yes'" in found.cases[3].detail


def test_more_records_than_calls_or_junk(make: Make) -> None:
    assert one(make, SQUARE, each(lambda case: ran(result=returned(*range(99))))).reward == 0.4
    assert one(make, SQUARE, each(lambda case: ran(result=b"\0\0\0\2zz" * 5))).reward == 0.0


def test_tolerances_truth_and_types(make: Make) -> None:
    spec = CheckerSpec(kind="value", abs=1e-6, rel=1e-7, only_if_expected_is_float=True)
    cases = (
        TestCase(expected=0.3),
        TestCase(expected=3),
        TestCase(expected=2.0, abs=0.5),
        TestCase(expected=(1, 2), exact_types=True),
        TestCase(expected=(1, 2)),
        TestCase(expected=True, compare="truth"),
    )
    problem = Problem(id="p", mode="function", entry_point="f", cases=cases, checker=spec)
    stream = returned(0.1 + 0.2, 3.0000001, 2.4, [1, 2], [1, 2], object())
    found = one(make, problem, each(lambda case: ran(result=stream)))
    assert [case.verdict == Verdict.ACCEPTED for case in found.cases] == [True, False, True, False, True, True]


def test_methods_and_several_entry_points(make: Make) -> None:
    cases = (TestCase(args=(1,), expected=1), TestCase(kwargs={"n": 2}, expected=2, entry_point="g"))
    problem = Problem(id="p", mode="function", entry_point="Solution.f", cases=cases)
    engine = make(each(lambda case: ran(result=returned(1, 2))))
    assert grade(["class Solution: ..."], problem, engine=engine)[0].reward == 1.0
    assert calls_of(engine.jobs[0].cases[0]) == [("Solution.f", (1,), {}), ("g", (), {"n": 2})]


def test_each_call_gets_its_own_arguments(make: Make) -> None:
    shared = [1, 2, 3]
    problem = Problem(id="p", mode="function", entry_point="f", cases=(TestCase(args=(shared,), expected=6),) * 3)

    def mutating(case: Case) -> Outcome:
        values = []
        for _, (numbers,), _ in calls_of(case):
            values.append(sum(numbers))
            numbers.clear()
        return ran(result=returned(*values))

    assert one(make, problem, each(mutating)).reward == 1.0
    assert shared == [1, 2, 3]


def test_large_results_are_asked_in_parts(make: Make) -> None:
    big = "x" * (4 << 20)
    problem = Problem(id="p", mode="function", entry_point="f", cases=(TestCase(expected=big),) * 3)
    engine = make(each(lambda case: ran(result=returned(*[big] * len(calls_of(case))))))
    assert grade(["def f(): ..."], problem, engine=engine)[0].reward == 1.0
    assert len(engine.jobs) == 3


def test_values_that_no_program_can_give_are_refused(make: Make) -> None:
    problem = Problem(id="odd", mode="function", entry_point="f", cases=(TestCase(expected=object()),))
    with pytest.raises(InputError, match=r"'odd'.*not plain data"):
        one(make, problem, each(squares))
    problem = Problem(id="cpp", mode="function", language="cpp", entry_point="f", cases=(TestCase(expected=1),))
    with pytest.raises(InputError, match="only those in python"):
        one(make, problem, each(squares))


# ---------------------------------------------------------------- unit tests


def test_named_tests(make: Make) -> None:
    found = one(
        make, TESTED, each(lambda case: ran(result=report(case, {"module": True, "test_a": True, "test_b": True})))
    )
    assert found.verdict is Verdict.ACCEPTED
    assert found.claimed
    assert [case.name for case in found.cases] == ["test_a", "test_b"]
    found = one(make, TESTED, each(lambda case: ran(result=report(case, {"test_a": True, "test_b": False}))))
    assert found.verdict is Verdict.WRONG_ANSWER
    assert found.reward == 0.5
    assert found.cases[1].detail == "assert 1 == 2"
    assert [case.shared for case in found.cases] == [2, 2]


def test_the_top_level_of_the_tests_counts_where_it_failed_or_is_all_there_is(make: Make) -> None:
    rows = {"module": False, "test_a": True, "test_b": True}
    found = one(make, TESTED, each(lambda case: ran(result=report(case, rows))))
    assert [case.name for case in found.cases] == ["module", "test_a", "test_b"]
    assert found.reward == 0  # the tests before the line that failed too
    alone = Problem(id="p", mode="unit_tests", test_code="import inspect\nassert f(1) == 2")
    for good, reward in ((True, 1.0), (False, 0.0)):
        found = one(make, alone, each(lambda case, good=good: ran(result=report(case, {"module": good}))))
        assert [case.name for case in found.cases] == ["module"]
        assert found.reward == reward
    # A top level that was read is no share of the reward: nothing passed here.
    found = one(make, TESTED, each(lambda case: ran(result=report(case, {"module": True, "test_a": False}))))
    assert found.reward == 0.0
    found = one(make, TESTED, each(lambda case: ran(result=report(case, {"module": True}))))
    assert found.reward < 1.0
    assert found.verdict is Verdict.WRONG_ANSWER


def test_tests_that_check_nothing_are_refused() -> None:
    for code in ("x = 1", "# to do", "def check(f):\n    assert f(1)\n", "def check(f):\n    pass\ncheck(f)\n"):
        with pytest.raises(InputError, match=r"test_code.*runs no test"):
            Problem(id="p", mode="unit_tests", test_code=code)


@pytest.mark.parametrize(
    ("outcome", "verdict", "reward"),
    [
        (lambda case: ran(b"PASSED test_a\n2 passed\n"), Verdict.WRONG_ANSWER, 0),  # os._exit(0) at import
        (
            lambda case: ran(result=report(case, {"test_a": True, "test_b": True}, finished=False)),
            Verdict.WRONG_ANSWER,
            0,
        ),
        (lambda case: ran(result=report(case, {"test_a": True})), Verdict.WRONG_ANSWER, 0.5),  # test_b is missing
        (lambda case: ran(result=report(case, {})), Verdict.WRONG_ANSWER, 0),
        (
            lambda case: ran(result=report(case, {"test_a": True, "test_b": True}), exit_code=1),
            Verdict.RUNTIME_ERROR,
            0,
        ),
        (lambda case: ran(exit_code=1), Verdict.RUNTIME_ERROR, 0),
        (lambda case: ran(ended_by=EndedBy.CPU), Verdict.TIME_LIMIT, 0),
        (lambda case: Outcome(error="lost"), Verdict.INFRASTRUCTURE_ERROR, None),
    ],
)
def test_what_is_not_reported_did_not_pass(
    make: Make, outcome: Callable[[Case], Outcome], verdict: Verdict, reward: float | None
) -> None:
    found = one(make, TESTED, each(outcome))
    assert found.verdict is verdict
    assert found.reward == reward
    assert found.claimed


def test_skips_are_the_test_sources_to_decide(make: Make) -> None:
    code = (
        "import inspect, unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertTrue(f())\n"
        "    @unittest.skip('slow')\n    def test_b(self): self.assertTrue(f())\n"
    )
    problem = Problem(id="p", mode="unit_tests", test_code=code)

    def skips(case: Case) -> Outcome:  # the harness tells a decorator's skip by itself
        rows = [("T.test_a", True, ""), ("T.test_b", None, "")]
        stream = b"".join(protocol.record(("test", *row)) for row in rows)
        return ran(result=stream + report(case, {"module": True}))

    found = one(make, problem, each(skips))
    assert found.reward == 1.0
    assert [case.name for case in found.cases] == ["T.test_a"]
    own = Problem(id="p", mode="unit_tests", test_code=code.replace("    @unittest.skip('slow')\n", ""))
    assert one(make, own, each(skips)).verdict is Verdict.WRONG_ANSWER


def test_a_report_needs_this_runs_nonce(make: Make) -> None:
    forged = protocol.record(("test", "test_a", True, "")) + protocol.record(("finished", "guess"))
    assert one(make, TESTED, each(lambda case: ran(result=forged))).reward == 0.0
    nonces = []
    engine = make(each(lambda case: nonces.append(case.request) or ran()))
    grade(["a = 1", "a = 2"], TESTED, engine=engine)
    assert len({protocol.decode_value(request)["nonce"] for request in nonces}) == 2


def test_tests_in_a_module_of_their_own(make: Make) -> None:
    problem = Problem(
        id="p",
        mode="unit_tests",
        test_code="import inspect, unittest\nfrom two_fer import f\n"
        "class T(unittest.TestCase):\n    def test_x(self): self.assertIsNone(f())\n",
        module="two_fer.py",
        test_module="two_fer_test.py",
        appended=False,
        extra_files={"data.txt": "x"},
    )
    engine = make(each(lambda case: ran(result=report(case, {"module": True, "T.test_x": True}))))
    (found,) = grade(["def f(): ..."], problem, engine=engine)
    assert found.reward == 1.0
    assert engine.jobs[0].program.files == {"data.txt": b"x", "two_fer.py": b"def f(): ..."}
    request = protocol.decode_value(engine.jobs[0].cases[0].request or b"")
    assert (request["module"], request["test_module"], request["appended"]) == ("two_fer", "two_fer_test", False)


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (ran(), Verdict.ACCEPTED),
        (ran(exit_code=1), Verdict.WRONG_ANSWER),
        (ran(exit_code=None, signal=6), Verdict.WRONG_ANSWER),
        (ran(exit_code=None, signal=11), Verdict.RUNTIME_ERROR),
        (ran(exit_code=1, compile_failed=True), Verdict.COMPILE_ERROR),
    ],
)
def test_tests_in_other_languages_are_an_exit_status(make: Make, outcome: Outcome, verdict: Verdict) -> None:
    problem = Problem(id="p", mode="unit_tests", language="cpp", test_code="int main(){}")
    engine = make(lambda job: [outcome])
    (found,) = grade(["int f(){}"], problem, engine=engine)
    assert found.verdict is verdict
    assert found.claimed
    assert engine.jobs[0].program.files == {"solution.cpp": b"int f(){}\nint main(){}"}


def test_a_failed_assertion_in_javascript_is_an_error(make: Make) -> None:
    problem = Problem(id="p", mode="unit_tests", language="javascript", test_code="console.assert(f() === 1)")
    engine = make(lambda job: [ran()])
    grade(["const f = () => 1"], problem, engine=engine)
    source = engine.jobs[0].program.files["solution.js"].decode()
    assert source.index("const f") < source.index("console.assert = ") < source.index("console.assert(f()")


# ---------------------------------------------------------------- batches


def test_equal_programs_run_once(make: Make) -> None:
    engine = make(each(right))
    found = grade(["print(1)", "print(2)", "print(1)", "```python\nprint(1)```"], SUM, engine=engine)
    assert len(engine.jobs) == 2
    assert [g.index for g in found] == [0, 1, 2, 3]
    assert found[0].program_sha256 == found[2].program_sha256 != found[1].program_sha256
    # The same text for another problem is another program.
    other = Problem(id="other", mode="stdio", cases=SUM.cases[:1])
    grade(["print(9)"] * 2, [SUM, other], engine=engine)
    assert len(engine.jobs) == 4


def test_a_failure_of_ours_is_not_passed_on_to_equal_programs(make: Make) -> None:
    answers = iter([Outcome(error="lost"), ran(b"7\n")])
    problem = Problem(id="p", mode="stdio", cases=(TestCase(expected=b"7\n"),))
    engine = make(lambda job: [next(answers)])
    found = grade(["print(7)", "print(7)"], problem, engine=engine)
    assert [g.reward for g in found] in ([None, None], [None, 1.0])  # together in flight, or one after the other


def test_no_more_than_a_window_is_in_flight(make: Make) -> None:
    engine = make(each(right))
    seen: list[int] = []
    grade([f"print({n})" for n in range(100)], SUM, engine=engine, on_grade=lambda g: seen.append(g.index))
    assert engine.most <= AHEAD * engine.slots
    assert sorted(seen) == list(range(100))


def test_order_does_not_show(make: Make) -> None:
    def by_source(job: Job) -> list[Outcome]:
        wrong = b"bad" in job.program.files["solution.py"]
        return [ran(b"x") if wrong else right(case) for case in job.cases]

    texts = [f"print({n})" + (" # bad" if n % 3 == 0 else "") for n in range(30)]
    forward = score(texts, SUM, engine=make(by_source))
    backward = score(texts[::-1], SUM, engine=make(by_source))
    assert forward == backward[::-1]
    assert forward.count(0.0) == 10


def test_completions_in_every_form(make: Make) -> None:
    from proctor.grading.completions import Completion

    engine = make(each(right))
    chat = [{"role": "user", "content": "print(0)"}, {"role": "assistant", "content": "print(1)"}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "print(2)"}]}]
    rows = [
        "print(3)",
        chat,
        parts,
        {"completion": "print(4)", "problem_id": "sum"},
        {"completion": chat},
        Completion(problem_id="sum", index=7, text="print(5)"),
        {"role": "assistant", "content": "print(6)"},
        [{"role": "assistant", "content": None}],
    ]
    found = grade(rows, SUM, engine=engine)
    assert [g.verdict for g in found] == [Verdict.ACCEPTED] * 7 + [Verdict.NO_CODE]
    sources = {job.program.files["solution.py"] for job in engine.jobs}
    assert sources == {b"print(%d)" % n for n in (1, 2, 3, 4, 5, 6)}
    for bad in (3, b"print(1)", {"x": 1}, [1], {"completion": 3}, {"completion": b"x"}):
        with pytest.raises(InputError, match=r"completions\[0\]"):
            grade([bad], SUM, engine=engine)
    with pytest.raises(InputError, match="give a list"):
        grade("print(1)", SUM, engine=engine)
    assert grade([], SUM, engine=engine) == []


@pytest.mark.parametrize(
    "empty",
    [
        None,
        {"completion": None},
        {"completion": None, "problem_id": "sum"},
        [{"role": "user", "content": "print(7)"}],
        [{"role": "system", "content": "print(7)"}, {"role": "user", "content": "print(7)"}],
        {"completion": [{"role": "user", "content": "print(7)"}]},
        [],
    ],
)
def test_what_is_no_completion_is_never_a_zero(make: Make, empty: Any) -> None:
    engine = make(each(right))
    with pytest.raises(InputError, match=r"^completions\[1\]: .*no completion to judge"):
        grade(["print(1)", empty, "print(2)"], SUM, engine=engine)
    assert engine.jobs == []


@pytest.mark.parametrize("said", ["", [{"role": "assistant", "content": None}], {"completion": ""}])
def test_an_answer_that_says_nothing_is_no_code(make: Make, said: Any) -> None:
    found = grade(["print(1)", said, "print(2)"], SUM, engine=make(each(right)))
    assert [g.verdict for g in found] == [Verdict.ACCEPTED, Verdict.NO_CODE, Verdict.ACCEPTED]
    assert [g.reward for g in found] == [1.0, 0.0, 1.0]


def test_a_source_that_is_far_too_long_costs_only_itself(make: Make) -> None:
    engine = make(each(right))
    long = "#" * MAX_SOURCE
    fence = "`" * 3
    texts = ["print(1)", long + "\n", f"{fence}cpp\n{long}\n{fence}", long, "print(2)"]
    found = grade(texts, SUM, engine=engine)
    verdicts = [Verdict.ACCEPTED, Verdict.NO_CODE, Verdict.NO_CODE, Verdict.ACCEPTED, Verdict.ACCEPTED]
    assert [g.verdict for g in found] == verdicts
    assert [g.reward for g in found] == [1.0, 0.0, 0.0, 1.0, 1.0]
    assert max(len(job.program.files["solution.py"]) for job in engine.jobs) == MAX_SOURCE == 8 << 20


def test_problems_in_every_form(make: Make) -> None:
    engine = make(lambda job: [right(c) if c.request is None else squares(c) for c in job.cases])
    named = [{"problem_id": "square", "completion": "def f(): ..."}, {"problem_id": "sum", "completion": "print(1)"}]
    for problems in ([SUM, SQUARE], {"sum": SUM, "square": SQUARE}, [SQUARE, SUM], (SUM, SQUARE, TESTED)):
        assert [g.problem_id for g in grade(named, problems, engine=engine)] == ["square", "sum"]
    assert [g.problem_id for g in grade(["a", "b"], [SUM, SQUARE], engine=engine)] == ["sum", "square"]
    with pytest.raises(InputError, match="no problem has the id 'lost'"):
        grade([{"problem_id": "lost", "completion": ""}], [SUM], engine=engine)
    with pytest.raises(InputError, match="3 completions and 2 problems"):
        grade(["a", "b", "c"], [SUM, SQUARE], engine=engine)
    with pytest.raises(InputError, match="mapping"):
        grade(["a"], {"sum": SUM}, engine=engine)


def test_a_completion_in_another_language(make: Make) -> None:
    engine = make(each(right))
    row = {"completion": "int main(){}", "language": "cpp", "extra_files": {"x.hpp": "//"}}
    grade([row], SUM, engine=engine)
    assert engine.jobs[0].program.files == {"x.hpp": b"//", "solution.cpp": b"int main(){}"}
    with pytest.raises(InputError, match="'zig' is not one of"):
        grade([{"completion": "", "language": "zig"}], SUM, engine=engine)


def test_an_engine_that_fails_gives_no_score(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    def fails(job: Job) -> list[Outcome]:
        raise OSError("no more processes")

    found = one(make, SUM, fails)
    assert found.verdict is Verdict.INFRASTRUCTURE_ERROR
    assert found.reward is None
    assert len(found.cases) == 3
    assert "OSError: no more processes" in str(found.error)
    assert "none of 1 programs could be scored" in caplog.text  # said aloud, not only in the rows
    assert one(make, SUM, lambda job: [ran()]).reward is None  # too few outcomes

    def gone(job: Job) -> list[Outcome]:
        raise IsolationUnavailable("no namespaces here")

    with pytest.raises(IsolationUnavailable):
        one(make, SUM, gone)


def test_half_a_failure_is_a_failure(make: Make) -> None:
    found = one(make, SUM, lambda job: [ran(b"7"), Outcome(error="lost"), ran(b"2")])
    assert found.reward is None
    assert found.verdict is Verdict.INFRASTRUCTURE_ERROR
    assert found.cases[0].verdict is Verdict.ACCEPTED


def test_a_policy_that_fails_stops_the_batch(make: Make) -> None:
    with pytest.raises(InputError, match=r"<lambda>.*gave nan"):
        one(make, SUM, each(right), reward=lambda grade: float("nan"))


def test_beside_a_running_loop_and_from_threads(make: Make) -> None:
    engine = make(each(right))

    async def notebook() -> list[Grade]:
        return grade(["print(1)"], SUM, engine=engine)

    assert asyncio.run(notebook())[0].reward == 1.0
    got: list[float | None] = []
    threads = [
        threading.Thread(target=lambda n=n: got.extend(score([f"print({n})"], SUM, engine=engine))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [1.0] * 8


def test_the_async_twin(make: Make) -> None:
    def by_source(job: Job) -> list[Outcome]:
        time.sleep(0.001)
        if b"lost" in job.program.files["solution.py"]:
            raise OSError("lost")
        return [right(case) for case in job.cases]

    engine = make(by_source)
    texts = [f"print({n})" for n in range(40)] * 2 + ["lost", "```\n```"]

    async def main() -> list[Grade]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticker = asyncio.create_task(tick())
        found = await agrade(texts, SUM, engine=engine)
        ticker.cancel()
        assert ticks > 3
        assert await ascore(["print(1)"], SUM, engine=engine) == [1.0]
        return found

    found = asyncio.run(main())
    assert [g.index for g in found] == list(range(82))
    assert [g.reward for g in found] == [1.0] * 80 + [None, 0.0]
    assert engine.most <= AHEAD * engine.slots
    assert len(engine.jobs) == 42


def test_a_large_output_leaves_the_loop_free(make: Make) -> None:
    where: list[threading.Thread] = []

    def slow(out: bytes, want: bytes, given: bytes) -> bool:
        where.append(threading.current_thread())
        return True

    engine = make(each(lambda case: ran(b"x" * (1 << 20))))
    (found,) = asyncio.run(agrade(["print(1)"], SUM, engine=engine, checker=slow))
    assert found.reward == 1.0
    assert threading.main_thread() not in where
    assert found.cases[0].outcome.stdout_truncated  # what a grade keeps is bounded
    assert len(found.cases[0].outcome.stdout) == 64 << 10


def test_cancelling_the_twin_cancels_what_runs(make: Make) -> None:
    free = threading.Event()

    def waits(job: Job) -> list[Outcome]:
        free.wait(5)
        return [right(case) for case in job.cases]

    engine = make(waits)

    async def main() -> None:
        task = asyncio.create_task(agrade([f"print({n})" for n in range(50)], SUM, engine=engine))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    free.set()
    assert len(engine.jobs) <= AHEAD * engine.slots


def test_a_grade_as_json(make: Make) -> None:
    nasty = Problem(id="x\x1b[31m\ud800", mode="stdio", cases=(TestCase(stdin=b"", expected="\u202e7".encode()),))
    found = one(make, nasty, lambda job: [ran(b"\x1b[2J\xff", peak_memory_bytes=3 << 20)])
    row = json.loads(json.dumps(found.to_json()))
    assert row == {
        "problem_id": "x\\x1b[31m\\ud800",
        "index": 0,
        "reward": 0.0,
        "verdict": "wrong_answer",
        "claimed": False,
        "cases": [
            {
                "verdict": "wrong_answer",
                "cpu_ms": 10.0,
                "wall_ms": 20.0,
                "memory_mib": 3.0,
                "detail": "token 1: expected '\\\\xe2\\\\x80\\\\xae7', got '\\\\x1b[2J\\\\xff'".replace("\\\\", "\\"),
                "exit_code": 0,
                "stdout_sha256": "40148b910be98653",
            }
        ],
        "program_sha256": found.program_sha256,
        "provenance": found.provenance and found.provenance.to_json(),
    }
    lost = one(make, SUM, lambda job: [Outcome(error="lost \x07")] * 3)
    assert lost.to_json()["error"] == "lost \\x07"
    assert lost.to_json()["reward"] is None
    assert printable("naïve 数 \u202e\n") == "naïve 数 \\u202e\\n"


def test_a_program_that_is_not_unicode(make: Make) -> None:
    engine = make(each(right))
    assert grade(["print('\ud800')"], SUM, engine=engine)[0].reward == 1.0
    assert engine.jobs[0].program.files["solution.py"] == b"print('\xed\xa0\x80')"


def test_pass_at_k() -> None:
    assert pass_at_k(200, 1, 1) == pytest.approx(0.005)
    assert pass_at_k(200, 0, 10) == 0.0
    assert pass_at_k(5, 5, 3) == 1.0
    assert pass_at_k(4, 2, 2) == pytest.approx(1 - 1 / 6)
    assert pass_at_k(10, 8, 5) == 1.0
    for bad in [(0, 0, 1), (2, 3, 1), (2, 1, 3), (2, 1, 0), (2, -1, 1), (2, True, 1), (2.0, 1, 1)]:
        with pytest.raises(InputError):
            pass_at_k(*bad)  # type: ignore[arg-type]


def test_a_grader_is_reusable(make: Make) -> None:
    grader = Grader(reward="all_or_nothing")
    assert grader.plan(SUM) is grader.plan(SUM)
    with pytest.raises(InputError, match="extract"):
        Grader(extract="the-best")


def test_the_public_names_are_all_there() -> None:
    import proctor

    for name in proctor.__all__:
        assert getattr(proctor, name) is not None
    assert proctor.grade is grade
    with pytest.raises(AttributeError):
        _ = proctor.nothing


@pytest.mark.parametrize("options", [{"cache": False}, {"cache": True}, {"repeat": 2}], ids=str)
def test_a_batch_of_equal_programs(make: Make, options: dict[str, Any]) -> None:
    """However many completions in a row are equal to one that is on its way, or done."""
    rows = ["print(1)"] * 200 + ["print(2)"] + ["print(1)"] * 40
    for grading in (grade, lambda *a, **k: asyncio.run(agrade(*a, **k))):
        found = grading(rows, SUM, engine=make(each(right)), **options)
        assert len(found) == len(rows)
        assert {row.verdict for row in found} == {Verdict.ACCEPTED}
    again = grade(["print(1)"] * 2, SUM, engine=make(each(right)), **options)
    assert len(again) == 2
