"""Checker programs: each protocol's words, faults of the judge, hostile outputs. Real programs in real jails."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, ran

import proctor
from handed import handed
from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.core.verdict import Verdict
from proctor.engine.job import Job
from proctor.engine.languages import LANGUAGES
from proctor.engine.shared import SyncEngine, shared_engine
from proctor.grading import builds
from proctor.grading.formats import load_problems, problems_from_rows
from proctor.grading.grades import Grade
from proctor.grading.problem import CheckerProgram, CheckerSpec, Problem, TestCase
from proctor.grading.protocols import ruling
from proctor.grading.special import special

OK, WRONG, FAULT = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.INFRASTRUCTURE_ERROR
CPP = any(row.name == "cpp" and row.available() for row in LANGUAGES)
# Any two numbers with the right sum.
SUM = """
import sys
given, output, answer = (open(path, errors="replace").read() for path in sys.argv[1:4])
words = output.split()
if len(words) != 2 or not all(word.isdigit() for word in words):
    print("two numbers are expected", file=sys.stderr)
    sys.exit(2)
if sum(map(int, words)) != int(given):
    print("the sum is", sum(map(int, words)), file=sys.stderr)
    sys.exit(1)
"""
SUM_CPP = """
#include <fstream>
#include <cstdlib>
int main(int argc, char** argv) {
    std::ifstream input(argv[1]), output(argv[2]), answer(argv[3]);
    long n, a, b, c, d;
    if (argc != 4 || !(input >> n) || !(answer >> c >> d) || c + d != n) return 3;
    if (!(output >> a >> b)) return 2;
    if (a == 666) abort();
    return a + b == n ? 0 : 1;
}
"""
SPLIT = "n = int(input())\nprint(1, n - 1)\n"


@pytest.fixture(scope="module")
def engine() -> SyncEngine:
    return shared_engine()


def judged(source: str, cases: Sequence[tuple[bytes, bytes]] = ((b"5\n", b"2 3\n"),), **more: Any) -> Problem:
    program = CheckerProgram(source=source, **more)
    rows = tuple(TestCase(stdin=given, expected=want) for given, want in cases)
    return Problem(
        id="p", mode="stdio", cases=rows, time_limit_s=2, checker=CheckerSpec(kind="program", program=program)
    )


def one(engine: Any, source: str, problem: Problem, **options: Any) -> Grade:
    (found,) = proctor.grade([source], problem, engine=engine, extract="whole", **options)
    return found


def says(engine: Any, checker: str, output: str = "1 4", **more: Any) -> tuple[Verdict, str]:
    (case,) = one(engine, f"print({output!r})", judged(checker, **more)).cases
    return case.verdict, case.detail


# ---------------------------------------------------------------- testlib's convention


@pytest.mark.environments
def test_any_right_answer_is_accepted(engine: SyncEngine) -> None:
    problem = judged(SUM, [(b"5\n", b"2 3\n"), (b"7\n", b"0 7\n")])
    found = proctor.grade([SPLIT, "print(1, 4)", "print('x')", "1/0"], problem, engine=engine, extract="whole")
    assert [grade.reward for grade in found] == [1.0, 0.5, 0.0, 0.0]
    assert found[1].cases[1].detail == "the sum is 5"
    assert found[2].cases[0].detail == "two numbers are expected"
    assert found[3].verdict is Verdict.RUNTIME_ERROR
    for warm in (True, False):
        assert one(engine, SPLIT, problem, warm=warm).accepted


@pytest.mark.skipif(not CPP, reason="no C++ here")
def test_a_checker_in_cpp(engine: SyncEngine) -> None:
    problem = judged(SUM_CPP, [(b"5\n", b"2 3\n"), (b"7\n", b"0 7\n")], language="cpp")
    found = proctor.grade(
        [SPLIT, "print(1, 4)", "print('x')", "print(666, 6)"], problem, engine=engine, extract="whole"
    )
    assert [grade.reward for grade in found] == [1.0, 0.5, 0.0, None]
    assert found[3].error == "the checker ended by SIGABRT"


@pytest.mark.skipif(not any(row.name == "javascript" and row.available() for row in LANGUAGES), reason="no node here")
def test_a_checker_in_javascript(engine: SyncEngine) -> None:
    source = """
const fs = require("fs");
const [given, output, answer] = process.argv.slice(2).map((path) => fs.readFileSync(path, "utf8"));
if (output.startsWith("crash")) null.x;
process.exit(output.trim() === answer.trim() ? 0 : 1);
"""
    for output, verdict in (("2 3", OK), ("1 4", WRONG), ("crash", FAULT)):
        assert says(engine, source, output, language="javascript")[0] is verdict
    assert says(engine, "process.exit(", language="javascript")[0] is FAULT


def test_statuses_of_testlib(engine: SyncEngine) -> None:
    def leave(status: int, text: str = "") -> tuple[Verdict, str]:
        return says(engine, f"import sys\nsys.stderr.write({text!r})\nsys.exit({status})")

    assert leave(0) == (OK, "")
    for status in (1, 2, 4, 8):
        assert leave(status, "wrong answer 1st words differ\n") == (WRONG, "wrong answer 1st words differ")
    assert leave(1) == (WRONG, "the checker said no")
    assert leave(3, "FAIL no\n") == (FAULT, "the checker says that the judge is at fault: FAIL no")
    assert leave(5) == (FAULT, "the checker left with status 5, which protocol testlib does not have")
    assert leave(0, "partially correct (40) x")[0] is FAULT  # testlib's _pc: its status could be that of any verdict
    assert leave(7, "nothing")[0] is FAULT
    assert leave(7, "points 1.5 too many") == (
        FAULT,
        "the checker gave no points from 0 to 1: 'points 1.5 too many'",
    )
    assert leave(7, "points nan x")[0] is FAULT
    assert leave(7, "points -1 x")[0] is FAULT
    assert leave(7, "points 0.25 almost") == (WRONG, "partial score 0.25: points 0.25 almost")
    assert leave(7, "points 1 all")[0] is OK


def test_a_partial_score_counts_by_its_share(engine: SyncEngine) -> None:
    source = "import sys\nsys.stderr.write('points ' + open(sys.argv[2]).read())\nsys.exit(7)"
    problem = judged(source, [(b"30", b""), (b"60", b""), (b"0", b"")], points=60)
    found = one(engine, "print(input())", problem)
    assert [case.score for case in found.cases] == [0.5, 1.0, 0.0]
    assert [case.verdict for case in found.cases] == [WRONG, OK, WRONG]
    assert found.reward == 0.5
    assert one(engine, "print(input())", problem, reward="all_or_nothing").reward == 0.0
    assert found.to_json()["cases"][0]["score"] == 0.5
    assert "score" not in one(engine, "print(1, 4)", judged(SUM)).to_json()["cases"][0]


# ---------------------------------------------------------------- Kattis' and open-r1's conventions

VALIDATOR = """
import sys
given, answer = (open(path).read() for path in sys.argv[1:3])
with open(sys.argv[3] + "judgemessage.txt", "w") as message:
    message.write("\\x1b[31mflags " + " ".join(sys.argv[4:]) + "\\n" + "x" * 5000)
words = sys.stdin.read().split()
if words == ["half"]:
    open(sys.argv[3] + "score.txt", "w").write("50\\n")
elif sum(map(int, words)) != int(given):
    sys.exit(43)
sys.exit(42)
"""


@pytest.mark.environments
def test_the_protocol_of_kattis(engine: SyncEngine) -> None:
    more: dict[str, Any] = {"protocol": "kattis", "flags": ("a", "b c"), "points": 100}
    assert says(engine, VALIDATOR, "1 4", **more) == (OK, "")
    verdict, detail = says(engine, VALIDATOR, "1 5", **more)
    assert verdict is WRONG
    assert detail.startswith("\\x1b[31mflags a b c x")
    assert len(detail) <= 200
    assert says(engine, VALIDATOR, "half", **more)[1].startswith("partial score 0.5: ")
    for status in (0, 1, 3, 7, 44):
        assert says(engine, f"import sys; sys.exit({status})", protocol="kattis")[0] is FAULT
    assert says(engine, "import sys; open(sys.argv[3]+'score.txt','w').write('inf'); sys.exit(42)", **more)[0] is FAULT


def test_the_protocol_of_open_r1(engine: SyncEngine) -> None:
    def prints(text: str, status: int = 0) -> tuple[Verdict, str]:
        source = f"import sys\nsys.stdout.write({text!r})\nsys.exit({status})"
        return says(engine, source, protocol="codeforces")

    assert prints("1\n") == (OK, "")
    assert prints("1.0") == (OK, "")
    assert prints("0\n") == (WRONG, "the checker said no")
    assert prints("0\nthe sum is 4\n") == (WRONG, "the sum is 4")
    assert prints("0.5\n") == (WRONG, "partial score 0.5")
    for text, status in (("1\n", 1), ("0\n", 1), ("", 0), ("yes\n", 0), ("1\n1\n", 0), ("wrong at 1", 0), ("2", 0)):
        assert prints(text, status)[0] is FAULT, text
    assert prints("1" + " " * 300 + "\n0\n")[0] is FAULT  # it quotes the program, then says no
    order = "import sys\nprint(int([open(p).read() for p in sys.argv[1:]] == ['5\\n', '2 3\\n', '1 4\\n']))"
    assert says(engine, order, "1 4", protocol="codeforces") == (OK, "")


# ---------------------------------------------------------------- the judge's own faults


@pytest.mark.parametrize(
    ("source", "more", "told"),
    [
        ("1/0", {}, "the checker crashed: ZeroDivisionError: division by zero"),
        ("def f(", {}, "the checker crashed: SyntaxError"),
        ("raise EOFError", {}, "the checker crashed: EOFError"),
        ("import os; os.kill(os.getpid(), 11)", {}, "the checker ended by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", {}, "the checker ended by SIGKILL"),
        ("while True: pass", {"limits": Limits(cpu_s=0.3)}, "the checker used more CPU time than allowed"),
        ("import time; time.sleep(60)", {"limits": Limits(wall_s=0.5)}, "the checker took longer than allowed"),
        ("x = bytearray(b'x') * (500 << 20)", {"limits": Limits(memory_mib=100)}, "the checker used more memory"),
        ("while True: print('x' * 9999)", {"limits": Limits(output_bytes=1 << 20)}, "the checker wrote more"),
    ],
)  # fmt: skip
def test_a_fault_of_the_checker_is_no_score(engine: SyncEngine, source: str, more: dict[str, Any], told: str) -> None:
    found = one(engine, "print(1, 4)", judged(source, **more))
    assert found.verdict is FAULT
    assert found.reward is None
    assert str(found.error).startswith(told), found.error


def test_a_fault_in_one_case_leaves_the_others_their_verdicts(engine: SyncEngine) -> None:
    source = SUM.replace("words =", "assert 'crash' not in output\nwords =")
    problem = judged(source, [(b"5", b""), (b"crash", b""), (b"6", b"")])
    found = one(engine, "n = input()\nprint(n if n == 'crash' else f'1 {int(n) - 1}')", problem)
    assert [case.verdict for case in found.cases] == [OK, FAULT, OK]
    assert found.reward is None


def test_a_checker_that_hangs_costs_one_time_limit(engine: SyncEngine) -> None:
    problem = judged("while True: pass", [(b"%d" % n, b"") for n in range(20)], limits=Limits(cpu_s=0.3))
    found = one(engine, "print(input())", problem)
    assert found.reward is None
    assert "was not run" in found.cases[-1].detail
    assert all(case.verdict is FAULT for case in found.cases)


@pytest.mark.skipif(not CPP, reason="no C++ here")
def test_a_checker_that_does_not_compile(engine: SyncEngine) -> None:
    found = one(engine, "print(1, 4)", judged("int main() { return x; }", language="cpp"))
    assert found.reward is None
    assert "the checker: it does not compile: " in str(found.error)
    assert "error" in str(found.error)
    assert one(engine, "1/0", judged("int main() { return x; }", language="cpp")).reward == 0.0  # nothing to judge


def test_what_another_end_of_a_checker_says() -> None:
    program = CheckerProgram(source="x", language="java")
    crash = Outcome(exit_code=1, stderr=b'Exception in thread "main" java.lang.Error\n')
    assert ruling(program, crash).verdict is FAULT
    assert ruling(program, Outcome(exit_code=1, stderr=b"no\n")).verdict is WRONG
    assert ruling(program, Outcome(error="the agent died")).detail == "the agent died"
    assert ruling(program, Outcome(signal=9, ended_by=EndedBy.NOT_RUN)).verdict is FAULT
    assert (
        ruling(CheckerProgram(source="x", language="go"), Outcome(exit_code=2, stderr=b"panic: x\n")).verdict is FAULT
    )


# ---------------------------------------------------------------- compiled once


def test_a_checker_is_compiled_once_in_a_process() -> None:
    builds.forget()
    compiled = 0

    def answer(job: Job) -> list[Outcome]:
        nonlocal compiled
        if isinstance(job, builds.Build):
            compiled += 1
            return [Outcome(exit_code=0, files={"solution": b"ELF"})]
        if "solution" in job.program.files:
            assert job.program.compile is None
            return [ran() if case.files["data/output"] == b"yes" else ran(exit_code=1) for case in job.cases]
        return [ran(b"yes" if "7" in str(job.program.files) else b"no") for _ in job.cases]

    engine = FakeEngine(answer, slots=4)
    problem = judged("int main() {}", language="cpp")
    rewards = proctor.score([f"print({n})" for n in range(20)], problem, engine=engine)
    assert rewards == [float(n in (7, 17)) for n in range(20)]
    proctor.score(["print(7)"], judged("int main() {}", language="cpp"), engine=engine)
    assert compiled == 1
    engine.close()


def test_a_compilation_that_fails_here_is_tried_again() -> None:
    builds.forget()
    faults = 0

    def answer(job: Job) -> list[Outcome]:
        nonlocal faults
        if isinstance(job, builds.Build):
            faults += 1
            return [Outcome(error="the agent died")]
        return [ran(b"yes") for _ in job.cases]

    engine = FakeEngine(answer)
    problem = judged("int main() {}", language="cpp")
    (found,) = proctor.grade(["print(1)"], problem, engine=engine)
    assert (found.reward, found.error, faults) == (None, "the checker: the agent died", 2)
    assert proctor.score(["print(1)"], problem, engine=engine) == [None]
    assert faults == 4  # nothing was kept of it
    engine.close()


# ---------------------------------------------------------------- what a hostile output finds

NAIVE = """
import sys
given, output, answer = (open(path).read() for path in sys.argv[1:4])
if eval(output.split()[0]) != int(answer.split()[0]):
    print("wrong answer", output, file=sys.stderr)
    sys.exit(1)
"""


@pytest.mark.parametrize(
    "output",
    [
        "'ok\\n0\\n42\\n'",  # the words of verdicts
        "'points 1\\npartially correct (100)\\nAC\\nexit 0\\n'",
        "'\\x1b]0;x\\x07' * 1000",
        "'1 ' * 3_000_000",
        "''",
        "'1 4 1'",
    ],
)
def test_no_words_buy_an_accept(engine: SyncEngine, output: str) -> None:
    found = one(engine, f"print({output})", judged(SUM))
    assert found.verdict is WRONG
    assert found.cases[0].detail.isprintable()


@pytest.mark.parametrize(
    "output",
    [
        b"\xff\xfe\x00",  # not UTF-8
        b"9" * 100_000,  # more digits than int() reads
        b"(" * 100_000,
        b"",
        b"__import__('os')._exit(2)",
        b"exec('while True: pass')",
        b"bytearray(1<<40)",
    ],
)
def test_a_checker_that_an_output_crashes_gives_no_score(engine: SyncEngine, output: bytes) -> None:
    source = f"import sys; sys.stdout.buffer.write({output!r} if len({output!r}) < 99 else {output[:1]!r} * 100_000)"
    problem = judged(NAIVE.replace("2)", "5)"), limits=Limits(cpu_s=0.5, memory_mib=128))
    found = one(engine, source, problem)
    if b"_exit" in output:  # a checker that evaluates it says what the program wants it to: see the threat model
        assert found.verdict is WRONG
    else:
        assert found.verdict is FAULT
        assert found.reward is None


LOOK = """
import os, sys
found = []
for top in ("/workspace", "/tmp", "/proc/self/cwd", ".", ".."):
    for folder, _, names in os.walk(top):
        found += [os.path.join(folder, name) for name in names]
texts = []
for path in found[:3000]:
    try:
        texts.append(open(path, "rb").read(100_000))
    except OSError:
        pass
print("SECRET" if any(b"SEC" + b"RET-ANSWER" in text for text in texts) or os.path.exists("data") else "nothing")
print(sorted(os.listdir(".")))
"""


@pytest.mark.environments
def test_neither_jail_sees_what_is_the_others(engine: SyncEngine) -> None:
    source = """
import os, sys
output = open(sys.argv[2]).read()
assert open(sys.argv[3]).read() == "SECRET-ANSWER"
assert sorted(os.listdir(".")) == ["data", "launch.py", "solution.py"], os.listdir(".")
assert sorted(os.listdir("data")) == ["answer", "input", "output"]
sys.exit(0 if output == "nothing\\n['helper.txt', 'solution.py']\\n" else 1)
"""
    problem = judged(source, [(b"", b"SECRET-ANSWER")] * 2)
    row = {"problem_id": "p", "completion": LOOK, "extra_files": {"helper.txt": "of the program"}}
    (found,) = proctor.grade([row], problem, engine=engine, extract="whole")
    assert found.accepted, found


def test_a_checker_cannot_change_files_for_the_next_case(engine: SyncEngine) -> None:
    source = "import os\nassert not os.path.exists('left')\nopen('left', 'w')\nopen('/tmp/left', 'x')"
    assert one(engine, "print(1)", judged(source, [(b"", b"")] * 3)).accepted


def test_large_outputs_reach_the_checker_whole(engine: SyncEngine) -> None:
    size = 15 << 20
    source = f"import sys, os\nsys.exit(os.path.getsize(sys.argv[2]) != {size})"
    assert one(engine, f"import sys; sys.stdout.write('x' * {size})", judged(source)).accepted
    kattis = f"import sys\nsys.exit(42 if len(sys.stdin.read()) == {size} else 43)"
    assert one(engine, f"import sys; sys.stdout.write('x' * {size})", judged(kattis, protocol="kattis")).accepted


# ---------------------------------------------------------------- problem files


def row(**checker: Any) -> dict[str, Any]:
    return {"id": "p", "cases": [{"stdin": "5", "expected": "2 3"}], "checker": {"kind": "program", **checker}}


def test_a_checker_from_a_problem_file(tmp_path: Path, engine: SyncEngine) -> None:
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges/sum.py").write_text("import helper\n" + SUM)
    (tmp_path / "helper.py").write_text("x = 1")
    checker = {
        "source_file": "judges/sum.py", "protocol": "testlib: checker INPUT OUTPUT ANSWER; exit 0 accept",
        "needs": ["lib/helper.py"], "flags": ["a"], "limits": {"cpu_s": 3}, "points": 2,
    }  # fmt: skip
    (tmp_path / "p.jsonl").write_text(json.dumps(row(**checker)))
    (problem,) = load_problems(tmp_path / "p.jsonl")
    program = problem.checker.program
    assert program is not None
    assert (program.protocol, program.flags, program.points, program.missing) == ("testlib", ("a",), 2, ())
    assert program.limits == Limits(cpu_s=3, memory_mib=512)
    assert one(engine, SPLIT, problem).accepted
    (tmp_path / "helper.py").unlink()
    (problem,) = load_problems(tmp_path / "p.jsonl")
    with pytest.raises(InputError, match=r"'lib/helper.py'.*beside the problem file as 'helper.py'"):
        one(engine, SPLIT, problem)
    assert one(engine, "print(2, 3)", problem, checker="tokens").accepted


@pytest.mark.parametrize(
    ("checker", "field", "told"),
    [
        ({}, "source", "source_file"),
        ({"source": "x", "source_file": "y"}, "source_file", "leave one"),
        ({"source": " "}, "source", "empty"),
        ({"source": "x", "protocol": "icpc"}, "protocol", "testlib, kattis, codeforces"),
        ({"source": "x", "language": "cobol"}, "language", "unknown"),
        ({"source": "x", "flags": [1]}, "flags", "list of strings"),
        ({"source": "x", "limits": {"cpus": 1}}, "cpus", "unknown limit"),
        ({"source": "x", "points": 0}, "points", "number"),
        ({"source": "x", "extra_files": {"../x": ""}}, "extra_files", "relative"),
        ({"source_file": "../secret"}, "source_file", "relative"),
        ({"source_file": "/etc/passwd"}, "source_file", "relative"),
        ({"source_file": "link"}, "source_file", "leads out"),
        ({"source_file": "none.py"}, "source_file", "cannot be read"),
        ({"source": "x", "needs": ["link"]}, "needs", "leads out"),
        ({"source": "x", "sorce": "x"}, "sorce", "source"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, checker: dict[str, Any], field: str, told: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret").write_text("print(1)")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "p.jsonl").write_text(json.dumps(row(**checker)))
    with pytest.raises(InputError) as caught:
        load_problems(folder / "p.jsonl")
    assert "p.jsonl:1: " in str(caught.value)
    assert f"field {field!r}" in str(caught.value)
    assert told in str(caught.value)


def test_rows_have_no_folder() -> None:
    with pytest.raises(InputError, match="these rows come from none"):
        problems_from_rows([row(source_file="a.py")])
    with pytest.raises(InputError, match="only a checker of kind 'program'"):
        problems_from_rows([{"id": "p", "cases": [{"expected": ""}], "checker": {"kind": "tokens", "source": "x"}}])


def test_what_cannot_be_run_is_told_before_anything_runs() -> None:
    def told(**more: Any) -> str:
        with pytest.raises(InputError) as caught:
            special(CheckerProgram(**{"source": "x", **more}), [TestCase()])
        return str(caught.value)

    assert "testlib.h" in told(source='  #include "testlib.h"\n', language="cpp")
    assert "kattis" in told(language="bash")
    assert "taken" in told(extra_files={"data/x": ""})
    assert "taken" in told(extra_files={"solution.py": ""})
    assert "no file or argument" in told(flags=("\0",))
    with pytest.raises(InputError, match=r"cases\[0\]"):
        special(CheckerProgram(source="x"), [TestCase(stdin=bytes(60 << 20))])
    function = Problem(
        id="f", mode="function", entry_point="f", cases=(TestCase(),), checker=judged(SUM).checker
    )  # fmt: skip
    with pytest.raises(InputError, match="not mode function"):
        proctor.grade(["x = 1"], function, engine=FakeEngine(lambda job: []))


def test_a_digest_tells_checkers_apart() -> None:
    def digest(**more: Any) -> str:
        return special(CheckerProgram(**{"source": "x", **more}), []).digest

    others = [{}, {"source": "y"}, {"protocol": "kattis"}, {"flags": ("a",)}, {"points": 2}, {"language": "cpp"},
              {"limits": Limits(cpu_s=1)}, {"extra_files": {"a": "b"}}, {"extra_files": {"a": "c"}}]  # fmt: skip
    assert len({digest(**more) for more in others}) == len(others)
    assert digest() == digest()


# ---------------------------------------------------------------- what was handed over


def test_handed_special_judges(tmp_path: Path, engine: SyncEngine) -> None:
    """With testlib.h at hand (PROCTOR_TESTLIB names it) the known verdicts, else which file is missing."""
    name = "problems_library-checker.jsonl"
    shutil.copy(handed("data/handed") / name, tmp_path)
    (tmp_path / name).chmod(0o644)
    testlib = os.environ.get("PROCTOR_TESTLIB")
    if testlib:
        shutil.copy(testlib, tmp_path / "testlib.h")
    problems = {p.id: p for p in load_problems(tmp_path / name) if p.checker.program is not None}
    assert len(problems) > 20
    if not testlib:
        for problem in problems.values():
            with pytest.raises(InputError, match=r"support/testlib.h.*beside the problem file as 'testlib.h'"):
                one(engine, "print(1)", problem)
        return
    few = [f"library-checker/{what}" for what in ("geo/furthest_pair", "graph/scc", "graph/chordal_graph_recognition")]
    rows = [
        json.loads(line)
        for line in (handed("data/handed") / name.replace("problems", "completions")).read_text().splitlines()
    ]
    rows = [row for row in rows if row["problem_id"] in few]
    sent = [{key: row[key] for key in ("problem_id", "completion", "language")} for row in rows]
    found = proctor.grade(sent, problems, engine=engine, extract="whole")
    assert len(found) >= 6
    assert [grade.accepted for grade in found] == [row["known_verdict"] for row in rows]
    assert all(grade.reward is not None for grade in found)
