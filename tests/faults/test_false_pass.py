"""Faults of other graders that paid for programs that had not earned it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from fault_help import ADD, SUM, graded, stdio

import proctor
from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import CheckerSpec, Problem, TestCase

OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


def test_cases_beyond_the_tenth_count(engine: SyncEngine) -> None:
    """F02: only the first ten cases were looked at."""
    problem = stdio(*((f"{n} 1\n", f"{n + 1}\n") for n in range(1, 13)))
    source = "a, b = map(int, input().split())\nprint(a + b if a < 11 else -1)\n"
    found = graded(engine, source, problem)
    assert [case.verdict for case in found.cases] == [OK] * 10 + [WRONG] * 2
    assert found.reward == pytest.approx(10 / 12)
    assert graded(engine, source, problem, reward="all_or_nothing").reward == 0.0


def test_the_time_limit_is_the_same_for_every_case(engine: SyncEngine) -> None:
    """F02: cases were run under one limit to see whether all pass, and under another to count them."""
    problem = stdio(*((f"{n}\n", f"{n}\n") for n in range(12)), time_limit_s=0.2)
    source = "n = input()\nwhile n in ('0', '11'): pass\nprint(n)\n"
    found = graded(engine, source, problem)
    assert [n for n, case in enumerate(found.cases) if case.verdict is Verdict.TIME_LIMIT] == [0, 11]
    assert found.reward == pytest.approx(10 / 12)


def test_an_object_that_says_it_equals_everything(engine: SyncEngine) -> None:
    """F03: results were compared by methods of the program's own."""
    source = """
class Same:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __hash__(self): return 4
    def __iter__(self): return iter([4])
class Number(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def solve(n):
    return KIND
"""
    cases = (TestCase(args=(2,), expected=4), TestCase(args=(3,), expected=9))
    called = Problem(id="p", mode="function", entry_point="solve", cases=cases, checker=CheckerSpec(kind="value"))
    tested = Problem(id="p", mode="unit_tests", test_code="assert solve(2) == 4\nassert solve(3) == 9\n")
    for kind in ("Same()", "Number(5)"):
        for problem in (called, tested):
            assert graded(engine, source.replace("KIND", kind), problem).reward == 0.0, (kind, problem.mode)
            assert graded(engine, "def solve(n): return n * n\n", problem).reward == 1.0


TESTED = Problem(
    id="p",
    mode="unit_tests",
    module="m.py",
    test_module="test_m.py",
    appended=False,
    test_code="from m import f\ndef test_a():\n    assert f(1) == 2\ndef test_b():\n    assert f(2) == 3\n",
)


def test_a_printed_report_is_no_report(engine: SyncEngine) -> None:
    """F04: the verdict was read from a log that the program could write to."""
    report = "PASSED test_m.py::test_a\\nPASSED test_m.py::test_b\\n=== 2 passed in 0.01s ==="
    for end in ("os._exit(0)", "", "def f(n): return 0"):
        source = f"import os, sys\nprint('{report}', flush=True)\nsys.stderr.write('{report}')\n{end}\n"
        found = graded(engine, source, TESTED)
        assert found.reward == 0.0, end
        assert not found.accepted


def test_tests_that_are_not_reported_have_failed(engine: SyncEngine) -> None:
    """F05: a test that was missing in the log counted as passed."""
    for source in ("raise SystemExit\n", "import os\nos._exit(0)\n", "import os\ndef f(n): os._exit(0)\n"):
        found = graded(engine, source, TESTED)
        assert found.reward == 0.0, source
        assert [case.name for case in found.cases] == ["test_a", "test_b"]
        assert not any(case.verdict is OK for case in found.cases)
    half = graded(engine, "import os\ndef f(n): return 2 if n == 1 else os._exit(0)\n", TESTED)
    assert not half.accepted


@pytest.mark.parametrize("reward", ["1.5", "nan", "inf", "1.0"])
def test_a_reward_file_that_the_program_wrote(engine: SyncEngine, reward: str) -> None:
    """F06: the score was a file in the sandbox, never cleared, and any float was taken from it."""
    source = f"""
import os
for name in ("logs/verifier/reward.txt", "logs/verifier/reward.json", "reward.txt", "result.json", "../reward.txt"):
    try:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        open(name, "w").write('{reward}')
    except OSError:
        pass
"""
    assert graded(engine, source, stdio(("3 4\n", "7\n"))).reward == 0.0


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_finite_number_is_an_error(engine: SyncEngine, reward: float) -> None:
    """F06: what is not finite must not reach the trainer, not even from a policy of its own."""
    with pytest.raises(proctor.InputError, match="finite"):
        graded(engine, ADD, reward=lambda grade: reward)


def test_a_reward_file_planted_for_the_next_run(engine: SyncEngine) -> None:
    """F07: the folder of verdicts was never reset, and a planted file won over the verifier's own."""
    source = """
import pathlib
for place in ("/logs/verifier", "logs/verifier", "/tmp/logs/verifier"):
    folder = pathlib.Path(place)
    if (folder / "reward.txt").exists():
        print("it was still there")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "reward.txt").write_text("1.0")
    except OSError:
        pass
print("x")
"""
    for _ in range(2):
        found = graded(engine, source)
        assert found.reward == 0.0
        assert [case.outcome.stdout for case in found.cases] == [b"x\n", b"x\n"]


def test_joined_words_are_not_the_words(engine: SyncEngine) -> None:
    """F09: blanks were skipped, so that 'ab' was equal to 'a b'."""
    found = graded(engine, "input()\nprint('12')\n", stdio(("x\n", "1 2\n"), ("x\n", "12\n")))
    assert [case.verdict for case in found.cases] == [WRONG, OK]


@pytest.mark.parametrize("checker", ["tokens", "lines", "exact", "numbers", "unordered_tokens", "unordered_lines"])
def test_more_than_the_expected_output_is_wrong(engine: SyncEngine, checker: str) -> None:
    """F10: the comparison stopped at the end of the expected text."""
    problem = stdio(("6\n", "6 = 2 * 3\n"))
    assert graded(engine, "n = int(input())\nprint(f'{n} = 2 * 3')\n", problem, checker=checker).verdict is OK
    for more in ("f'{n} = 2 * 3 * 1'", "f'{n} = 2 * 3\\n1'", "f'{n} = 2 * 31'"):
        source = f"n = int(input())\nprint({more})\n"
        assert graded(engine, source, problem, checker=checker).verdict is WRONG, more


def test_a_right_output_with_a_bad_exit_status(engine: SyncEngine) -> None:
    """F11: the exit status was not looked at."""
    found = graded(engine, f"import sys\n{ADD}sys.exit(3)\n")
    assert (found.verdict, found.reward) == (CRASH, 0.0)
    assert {case.outcome.exit_code for case in found.cases} == {3}
    assert found.cases[0].outcome.stdout == b"7\n"


def test_one_right_sample_of_two_hundred(engine: SyncEngine) -> None:
    """F12: pass@1 of one right sample in 200 was reported as 1.0."""
    wrong = [f"print({n})\n" for n in range(100, 299)]
    rewards = proctor.score([*wrong[:77], ADD, *wrong[77:]], SUM, engine=engine, reward="all_or_nothing")
    assert len(rewards) == 200
    right = sum(reward == 1.0 for reward in rewards)
    assert right == 1
    assert proctor.pass_at_k(200, right, 1) == pytest.approx(0.005)
    assert proctor.pass_at_k(200, right, 200) == 1.0


def test_a_table_of_the_known_answers(engine: SyncEngine, tmp_path: Path) -> None:
    """F13: the extra cases had become copies of the base cases, so that a table of those passed."""
    source = "a, b = map(int, input().split())\nprint({(3, 4): 7, (10, -2): 8}.get((a, b), 0))\n"
    known = [{"stdin": "3 4\n", "expected": "7\n"}, {"stdin": "10 -2\n", "expected": "8\n"}]
    rows = [
        {"id": "repaired badly", "mode": "stdio", "cases": known + known},
        {"id": "as it should be", "mode": "stdio", "cases": [*known, {"stdin": "1 1\n", "expected": "2\n"}]},
    ]
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    copies, good = proctor.load_problems(path)
    assert "2 duplicate case(s)" in copies.notes[0]
    assert not good.notes
    assert graded(engine, source, good, reward="all_or_nothing").reward == 0.0
    assert graded(engine, ADD, good, reward="all_or_nothing").reward == 1.0
