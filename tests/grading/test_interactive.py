"""Interactive problems: who decides what, on real pairs of jails; hostile programs and broken interactors."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine

import proctor
from guessing import GUESS
from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Job, Pair
from proctor.engine.languages import LANGUAGES
from proctor.engine.shared import SyncEngine, shared_engine
from proctor.grading.formats import problems_from_rows
from proctor.grading.grades import CaseGrade, Grade
from proctor.grading.interactive import judge_talk
from proctor.grading.problem import CheckerProgram, Problem, TestCase
from proctor.grading.protocols import ruling

OK, WRONG, CRASH, FAULT, LATE = (
    Verdict.ACCEPTED,
    Verdict.WRONG_ANSWER,
    Verdict.RUNTIME_ERROR,
    Verdict.INFRASTRUCTURE_ERROR,
    Verdict.TIME_LIMIT,
)
CPP = any(row.name == "cpp" and row.available() for row in LANGUAGES)
# Guess a number below 1000 with at most ten questions.
JUDGE = """
import sys
secret = int(open(sys.argv[1]).read())
for turn in range(10):
    line = sys.stdin.readline(100)
    if not line.strip().isdigit():
        open(sys.argv[3] + "judgemessage.txt", "w").write("a number is expected")
        sys.exit(43)
    guess = int(line)
    if guess == secret:
        print("right", flush=True)
        sys.exit(42)
    print("less" if guess > secret else "more", flush=True)
open(sys.argv[3] + "judgemessage.txt", "w").write("too many questions")
sys.exit(43)
"""
GUESS_CPP = """
#include <iostream>
#include <string>
int main() {
    int low = 1, high = 1000;
    std::string answer;
    while (answer != "right") {
        int middle = (low + high) / 2;
        std::cout << middle << std::endl;
        if (!(std::cin >> answer)) return 1;
        if (answer == "less") high = middle - 1; else low = middle + 1;
    }
}
"""


@pytest.fixture(scope="module")
def engine() -> SyncEngine:
    return shared_engine()


def talk(judge: str = JUDGE, *secrets: bytes, protocol: str = "kattis", seconds: float = 0.5, **more: Any) -> Problem:
    return Problem(
        id="guess",
        mode="interactive",
        cases=tuple(TestCase(stdin=secret, expected=b"the answer") for secret in secrets or (b"389",)),
        interactor=CheckerProgram(source=judge, protocol=protocol, **more),
        time_limit_s=seconds,
    )


def one(engine: Any, source: str, problem: Problem | None = None, **options: Any) -> Grade:
    options = {"limits": {"wall_s": 1.5}, **options}
    (found,) = proctor.grade([source], problem or talk(), engine=engine, extract="whole", **options)
    return found


def case(engine: Any, source: str, problem: Problem | None = None, **options: Any) -> tuple[Verdict, str]:
    (found,) = one(engine, source, problem, **options).cases
    return found.verdict, found.detail


# ---------------------------------------------------------------- who decides


@pytest.mark.environments
def test_the_interactor_decides(engine: SyncEngine) -> None:
    problem = talk(JUDGE, b"389", b"1", b"1000")
    for warm in (True, False):
        assert one(engine, GUESS, problem, warm=warm).reward == 1.0
    found = one(engine, "print(389, flush=True)\ninput()", problem)
    assert [grade.verdict for grade in found.cases] == [OK, WRONG, WRONG]
    assert found.cases[1].detail == "a number is expected"
    assert case(engine, "while True:\n    print(5, flush=True)\n    input()") == (WRONG, "too many questions")


@pytest.mark.skipif(not CPP, reason="no C++ here")
def test_compiled_programs_talk(engine: SyncEngine) -> None:
    problem = talk(JUDGE, b"389", b"1")
    problems = {"guess": problem}
    rows = [{"problem_id": "guess", "completion": text, "language": "cpp"} for text in (GUESS_CPP, "int main(")]
    good, broken = proctor.grade(rows, problems, engine=engine, extract="whole", limits={"cpu_s": 5})
    assert good.reward == 1.0
    assert [grade.verdict for grade in broken.cases] == [Verdict.COMPILE_ERROR] * 2
    interactor = """
#include <fstream>
#include <iostream>
int main(int argc, char** argv) {
    std::ifstream input(argv[1]), answer(argv[3]);
    std::ofstream output(argv[2]);
    int secret, guess;
    if (argc != 4 || !output || !answer || !(input >> secret)) return 3;
    std::cout << secret << std::endl;
    if (!(std::cin >> guess)) return 2;
    output << guess << std::endl;
    return guess == secret + 1 ? 0 : 1;
}
"""
    problem = talk(interactor, protocol="testlib", language="cpp")
    assert case(engine, "print(int(input()) + 1)", problem)[0] is OK
    assert case(engine, "print(input())", problem)[0] is WRONG
    assert case(engine, "input()", problem)[0] is WRONG


def test_a_crash_after_the_accept_is_a_crash(engine: SyncEngine) -> None:
    assert case(engine, GUESS + "\n1 / 0") == (CRASH, "exit status 1: ZeroDivisionError: division by zero")
    assert case(engine, GUESS + "\nimport sys; sys.exit(3)")[0] is CRASH
    assert case(engine, GUESS + "\nwhile True: pass")[0] is LATE


def test_words_that_nobody_hears_any_more_are_no_crash(engine: SyncEngine) -> None:
    for warm in (True, False):
        assert case(engine, GUESS + "\nimport time; time.sleep(0.3)\nprint('bye', flush=True)", warm=warm)[0] is OK
        assert case(engine, GUESS + "\nfor _ in range(99999): print('x' * 99)", warm=warm)[0] is OK
    found = one(engine, GUESS + "\nimport time; time.sleep(0.3)\nprint('bye')").cases[0]
    assert (found.verdict, found.outcome.exit_code) == (OK, 0)


def test_one_that_leaves_early_lets_the_interactor_decide(engine: SyncEngine) -> None:
    assert case(engine, "pass") == (WRONG, "a number is expected")
    assert case(engine, "import os, time\nos.close(1)\ntime.sleep(60)") == (WRONG, "a number is expected")
    assert case(engine, "print(389)") == (OK, "")
    late = JUDGE.replace("if guess == secret:", "if guess == secret:\n        import time; time.sleep(0.3)")
    assert case(engine, "print(389)", talk(late)) == (OK, "")  # nobody is there to read the last word
    long = "import sys\nguess = input()\nfor _ in range(99): print('x' * 9999, flush=True)\nsys.exit(42)"
    assert case(engine, "print(389)", talk(long)) == (OK, "")
    assert case(engine, "1 / 0") == (WRONG, "a number is expected")  # as for one that it ended: see there


def test_a_wrong_answer_is_one_outcome_however_the_program_ended(engine: SyncEngine) -> None:
    sources = ["print('x', flush=True)\nwhile True: pass", "print('x', flush=True)\ninput()", "print('x')", "exit(3)"]
    found = [one(engine, source) for source in sources]
    told = {(g.verdict, g.cases[0].detail, g.cases[0].outcome.exit_code, g.cases[0].outcome.ended_by) for g in found}
    assert told == {(WRONG, "a number is expected", None, EndedBy.CANCELLED)}


def test_a_wrong_answer_ends_the_program_at_once(engine: SyncEngine) -> None:
    source = "print('x', flush=True)\nimport time\ntime.sleep(60)"
    found = one(engine, source, limits={"wall_s": 100})
    assert found.verdict is WRONG
    assert found.cases[0].wall_ms < 50_000


def test_points_of_an_interactor(engine: SyncEngine) -> None:
    source = "import sys\nsys.stderr.write('points ' + input())\nsys.exit(7)"
    problem = talk(source, protocol="testlib", points=10)
    found = one(engine, "print(5)", problem)
    assert (found.verdict, found.reward, found.cases[0].score) == (WRONG, 0.5, 0.5)
    assert one(engine, "print(10)", problem).reward == 1.0
    assert case(engine, "print(5, flush=True)\n1/0", problem)[0] is CRASH


# ---------------------------------------------------------------- time


def test_limits_of_the_program(engine: SyncEngine) -> None:
    assert case(engine, "while True: pass") == (LATE, "used more CPU time than allowed")
    assert case(engine, "x = bytearray(b'x') * (600 << 20)")[0] is Verdict.MEMORY_LIMIT
    verdict, detail = case(engine, "input()")
    assert verdict is LATE
    assert "idle" in detail


def test_a_program_that_is_always_late_does_not_run_all_cases(engine: SyncEngine) -> None:
    found = one(engine, "while True: pass", talk(JUDGE, *[b"5"] * 6), limits={"cpu_s": 0.2})
    assert [grade.verdict for grade in found.cases] == [LATE] * 6
    assert [grade.detail.startswith("not run") for grade in found.cases] == [False] * 3 + [True] * 3


# ---------------------------------------------------------------- faults of the interactor


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        ("1 / 0", "the interactor crashed: ZeroDivisionError"),
        ("def f(", "the interactor crashed: SyntaxError"),
        ("import os; os.kill(os.getpid(), 11)", "the interactor ended by SIGSEGV"),
        ("import sys; sys.exit(5)", "the interactor left with status 5"),
        ("pass", "the interactor left with status 0"),
        ("while True: pass", "the interactor used more CPU time"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("program", ["while True:\n    input()", "import sys\nwhile not sys.stdin.readline(): pass"])
def test_a_fault_of_the_interactor_is_no_score(engine: SyncEngine, judge: str, told: str, program: str) -> None:
    problem = talk(judge, limits=Limits(cpu_s=0.3))
    found = one(engine, program, problem, limits={"wall_s": 5})
    assert found.reward is None, found
    assert str(found.error).startswith(told), found.error


def test_an_interactor_that_computes_while_the_program_waits(engine: SyncEngine) -> None:
    found = one(engine, "input()", talk("while True: pass", limits=Limits(cpu_s=60)), limits={"wall_s": 0.5})
    assert found.reward is None
    assert "the interactor computed for" in str(found.error)


def test_what_the_end_of_the_program_explains(engine: SyncEngine) -> None:
    careless = "import sys\nx = int(input())\nsys.exit(42)"
    assert case(engine, "pass", talk(careless)) == (
        WRONG,
        "the program had no more to say, or to hear, before the interactor was done",
    )
    assert case(engine, "1 / 0", talk(careless))[0] is CRASH
    assert case(engine, "1 / 0", talk("import sys\nx = int(sys.stdin.readline())"))[0] is CRASH
    assert case(engine, "print('x')", talk(careless))[0] is FAULT  # it has to expect that


def test_ends_that_need_no_run() -> None:
    program = CheckerProgram(source="x", protocol="kattis")

    def of(first: Outcome, second: Outcome) -> CaseGrade:
        return judge_talk(first, second, ruling(program, second, "interactor"))

    good, wrong, piped = Outcome(exit_code=42), Outcome(exit_code=43), Outcome(signal=13)
    cut, full = Outcome(signal=9, ended_by=EndedBy.CANCELLED), Outcome(signal=9, ended_by=EndedBy.MEMORY)
    assert of(Outcome(error="lost"), Outcome(error="lost")).verdict is FAULT
    assert of(piped, good).verdict is OK
    assert of(Outcome(exit_code=0), piped).verdict is WRONG
    assert of(Outcome(signal=11), piped).verdict is CRASH
    assert of(Outcome(signal=11), Outcome(signal=6)).verdict is FAULT  # which of them was first is not known
    assert of(cut, full).verdict is FAULT
    assert of(full, cut).verdict is Verdict.MEMORY_LIMIT
    assert of(full, wrong).verdict is Verdict.MEMORY_LIMIT
    assert of(cut, wrong).verdict is WRONG
    assert of(Outcome(exit_code=1, compile_failed=True), Outcome(signal=9)).verdict is Verdict.COMPILE_ERROR


# ---------------------------------------------------------------- attacks

ATTACKS = {
    "a flood": "import os\nwhile True: os.write(1, b'9' * 65536)",
    "a flood of lines": "import os\nwhile True: os.write(1, b'5\\n' * 9999)",
    "the words of a verdict": "print('right\\n42\\naccepted\\npoints 1\\nok')",
    "not text": "import os; os.write(1, bytes(range(256)))",
    "an early close": "import os; os.close(0); os.close(1)",
    "a close of the input": "import os, time; os.close(0); print(5, flush=True); time.sleep(0.2); print(6)",
    "a signal": "import os; print(5, flush=True); os.kill(os.getppid(), 9); os.kill(-1, 9)",
    "a signal to the other half": "import os\nfor pid in range(2, 500):\n    try: os.kill(pid, 9)\n    except OSError: pass",
    "the files of the interactor": (
        "import os\nfound = [n for top in ('.', '/tmp', '/proc') for f, _, ns in os.walk(top) for n in ns]\n"
        "print(389 if {'input', 'answer'} & set(found) or os.path.exists('data') or os.path.exists('feedback') else 0)"
    ),
    "the pipe itself": "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'389\\n')\n    except OSError: pass\nos.read(1, 9)",
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.environments
def test_no_attack_is_accepted(engine: SyncEngine, name: str) -> None:
    found = one(engine, ATTACKS[name])
    assert found.verdict in (WRONG, CRASH), found
    assert found.reward == 0.0


def test_silence_is_idle(engine: SyncEngine) -> None:
    for source in ("import time; time.sleep(99)", "import sys; sys.stdin.read()"):
        verdict, detail = case(engine, source, limits={"wall_s": 0.5})
        assert verdict is LATE
        assert "idle" in detail


def test_an_interactor_that_a_flood_fills_gives_no_score(engine: SyncEngine) -> None:
    problem = talk("import sys\nx = sys.stdin.buffer.readline()", limits=Limits(memory_mib=64))
    found = one(engine, ATTACKS["a flood"], problem, limits={"cpu_s": 5, "wall_s": 20})
    assert found.reward is None
    assert found.error == "the interactor used more memory than allowed"


# ---------------------------------------------------------------- problem files


def row(**more: Any) -> dict[str, Any]:
    return {"id": "p", "interactor": {"source": JUDGE, "protocol": "kattis"}, "cases": [{"stdin": "389"}], **more}


def test_an_interactive_problem_from_a_file(engine: SyncEngine) -> None:
    (problem,) = problems_from_rows([row()])
    assert problem.mode == "interactive"
    assert problem.cases[0].expected == b""
    assert one(engine, GUESS, problem).accepted


@pytest.mark.parametrize(
    ("data", "field", "told"),
    [
        (row(interactor=None, mode="interactive"), "interactor", "go together"),
        (row(mode="stdio", cases=[{"stdin": "", "expected": ""}]), "interactor", "mode stdio has none"),
        (row(interactor="x"), "interactor", "an object"),
        (row(interactor={"source": "x", "protocol": "codeforces"}), "protocol", "testlib or kattis"),
        (row(interactor={"source": "x", "kind": "program"}), "kind", "unknown key"),
        (row(checker="tokens"), "checker", "leave the checker out"),
        (row(cases=[]), "cases", "at least one case"),
        (row(cases=[{"stdin": "", "abs": 1}]), "abs", "unknown key"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(data: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        problems_from_rows([data])
    assert f"field {field!r}" in str(caught.value)
    assert told in str(caught.value)


def test_no_other_checker_judges_it() -> None:
    with pytest.raises(InputError, match="an interactor judges this problem"):
        proctor.grade([GUESS], talk(), checker="tokens", engine=FakeEngine(lambda job: []))


def test_one_pair_for_each_case_and_the_secret_in_the_interactors_half_alone() -> None:
    def answer(job: Any) -> list[Outcome]:
        assert isinstance(job, Pair)
        assert isinstance(job.program, Job)
        assert job.stop_on == frozenset(range(-64, 256)) - {42}
        assert job.program.cases[0].files == {}
        assert set(job.program.program.files) == {"solution.py"}
        assert job.counterpart.cases[0].files["data/answer"] == b"the answer"
        assert job.counterpart.limits.wall > job.program.limits.wall
        return [Outcome(exit_code=0), Outcome(exit_code=42)]

    engine = FakeEngine(answer)
    assert one(engine, GUESS, talk(JUDGE, b"1", b"2")).reward == 1.0
    assert len(engine.jobs) == 2
    engine.close()


def test_an_interactor_on_testlib(tmp_path: Path, engine: SyncEngine) -> None:
    """With testlib.h at hand; PROCTOR_TESTLIB names it."""
    testlib = os.environ.get("PROCTOR_TESTLIB")
    if not testlib or not CPP:
        pytest.skip("PROCTOR_TESTLIB names no testlib.h")
    shutil.copy(testlib, tmp_path / "testlib.h")
    source = """
#include "testlib.h"
int main(int argc, char* argv[]) {
    registerInteraction(argc, argv);
    int n = inf.readInt();
    std::cout << n << std::endl;
    if (ouf.readInt() != n + 1) quitf(_wa, "one more is expected");
    quitf(_ok, "fine");
}
"""
    program = CheckerProgram(
        source=source, language="cpp", extra_files={"testlib.h": (tmp_path / "testlib.h").read_bytes()}
    )
    problem = Problem(id="p", mode="interactive", cases=(TestCase(stdin=b"5"),), interactor=program, time_limit_s=1)
    assert case(engine, "print(int(input()) + 1)", problem)[0] is OK
    assert case(engine, "print(input())", problem) == (WRONG, "wrong answer one more is expected")
    assert case(engine, "print('x')", problem)[0] is WRONG
    assert case(engine, "input()", problem)[0] is WRONG
