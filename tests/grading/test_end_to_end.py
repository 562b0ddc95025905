"""Real programs in real jails, graded: the lessons that need a program to run."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

import proctor
from proctor.core.verdict import Verdict
from proctor.engine.languages import LANGUAGES
from proctor.engine.shared import SyncEngine, shared_engine
from proctor.grading.grades import Grade
from proctor.grading.problem import CheckerSpec, Problem, TestCase

OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR
ADD = "a,b=map(int,input().split())\nprint(a+b)\n"
SUM = Problem(
    id="sum",
    mode="stdio",
    cases=(TestCase(stdin=b"3 4\n", expected=b"7\n"), TestCase(stdin=b"10 -2\n", expected=b"8\n")),
    time_limit_s=2,
    memory_limit_mib=256,
)


def stdio(*cases: tuple[bytes, bytes], **more: Any) -> Problem:
    rows = tuple(TestCase(stdin=given, expected=want) for given, want in cases)
    return Problem(**{"id": "p", "mode": "stdio", "cases": rows, "time_limit_s": 2, "memory_limit_mib": 256, **more})


def function(*cases: TestCase, **more: Any) -> Problem:
    known = {"id": "p", "mode": "function", "entry_point": "solve", "cases": cases, "time_limit_s": 1}
    return Problem(**{**known, "checker": CheckerSpec(kind="value"), **more})


@pytest.fixture(scope="module")
def engine() -> SyncEngine:
    return shared_engine()


def one(engine: SyncEngine, source: str, problem: Problem, **options: Any) -> Grade:
    (found,) = proctor.grade([source], problem, engine=engine, extract="whole", **options)
    return found


FENCE = "```"


@pytest.mark.parametrize(
    ("program", "example", "problem"),
    [
        ("def solve(x):\n    return x + 1\n", "print(solve(1))\n", function(TestCase(args=(1,), expected=2))),
        (ADD, "assert True\n", SUM),
        (
            "def f(x):\n    return x + 1\n",
            "print(f(1))\n",
            Problem(id="t", mode="unit_tests", test_code="assert f(1) == 2"),
        ),
    ],
)
def test_an_example_of_use_costs_nothing(engine: SyncEngine, program: str, example: str, problem: Problem) -> None:
    chat = f"{FENCE}python\n{program}{FENCE}\nExample usage:\n{FENCE}python\n{example}{FENCE}\n"
    assert proctor.score([chat, f"{FENCE}python\n{example}{FENCE}\n"], problem, engine=engine) == [1.0, 0.0]


# ---------------------------------------------------------------- standard input to standard output

HONEST = {
    "plain": ADD,
    "one line and an empty end": "import sys;input=sys.stdin.readline\na,b=map(int,input().split())\nsys.stdout.write(str(a+b))",
    "bytes out": "import sys\na,b=map(int,sys.stdin.readline().split())\nsys.stdout.buffer.write(b'%d\\n'%(a+b))\n",
    "bytes in": "import sys\na,b=map(int,sys.stdin.buffer.read().split())\nprint(a+b)\n",
    "chatty on stderr": "import sys\nsys.stderr.write('e'*300000)\n" + ADD,
    "global": "n=0\ndef f():\n global n\n n+=1\nf()\n" + ADD,
    "main guard": "def main():\n a,b=map(int,input().split());print(a+b)\nif __name__=='__main__':main()\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs(engine: SyncEngine, name: str) -> None:
    found = one(engine, HONEST[name], SUM)
    assert found.reward == 1.0, found


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("import sys\n" + ADD + "sys.exit(3)\n", CRASH),
        ("print(7); raise SystemExit\n", WRONG),  # right once
        ("import nothing_like_this\n", CRASH),
        ("print(7\n", CRASH),
        ("import os\nos.kill(os.getpid(), 6)\n", CRASH),
        ("while True: pass\n", Verdict.TIME_LIMIT),
        ("x = bytearray(b'x') * (700 << 20)\nprint(7)\n", Verdict.MEMORY_LIMIT),
        ("while True: print('x' * 9999)\n", Verdict.OUTPUT_LIMIT),
        ("", Verdict.NO_CODE),
    ],
)
def test_the_verdict_of_a_program(engine: SyncEngine, source: str, verdict: Verdict) -> None:
    found = one(engine, source, SUM, limits={"cpu_s": 0.5, "wall_s": 10})
    assert found.verdict is verdict, found
    assert found.reward in (0.0, 0.5)


def test_what_was_written_before_a_limit_is_kept(engine: SyncEngine) -> None:
    problem = stdio((b"", b"early\n"))
    found = one(engine, "import os,time\nos.write(1,b'early\\n')\ntime.sleep(60)\n", problem, limits={"wall_s": 0.5})
    assert found.verdict is Verdict.TIME_LIMIT
    assert found.cases[0].outcome.stdout == b"early\n"


def test_large_outputs_come_back_whole(engine: SyncEngine) -> None:
    want = b"".join(b"%d\n" % (i * i) for i in range(90_000))
    squares = "n=int(input())\nprint('\\n'.join(str(i*i) for i in range(n)))\n"
    assert one(engine, squares, stdio((b"90000\n", want))).reward == 1.0
    assert (
        one(engine, "import sys\nsys.stdout.write('x'*1000000+'\\n')\n", stdio((b"", b"x" * 1_000_000))).reward == 1.0
    )


def test_numbers_beyond_pythons_guard(engine: SyncEngine) -> None:
    source = "import sys\nsys.set_int_max_str_digits(0)\nprint(10**int(input()))\n"
    assert one(engine, source, stdio((b"5000\n", b"1" + b"0" * 5000))).reward == 1.0


def test_fewer_digits_under_a_tolerance(engine: SyncEngine) -> None:
    problem = stdio((b"3\n", b"0.333333333333\n"))
    source = "n=int(input())\nprint(f'{1/n:.6f}')\n"
    assert one(engine, source, problem).verdict is WRONG
    assert one(engine, source, problem, checker="numbers:abs=1e-6").reward == 1.0


def test_carriage_returns_reach_the_program(engine: SyncEngine) -> None:
    source = "import sys\nprint(repr(sys.stdin.buffer.read()))\n"
    assert one(engine, source, stdio((b"3 4\r\n", b"b'3 4\\r\\n'"))).reward == 1.0


def test_text_that_is_not_ascii(engine: SyncEngine) -> None:
    quote = "\u2019" * 200
    assert one(engine, "print('\\u2019'*200)", stdio((b"", quote.encode()))).reward == 1.0
    assert one(engine, "import os\nos.write(1, b'\\xff\\xfe\\x00')", stdio((b"", b"x"))).verdict is WRONG


def test_any_of_several_answers(engine: SyncEngine) -> None:
    def any_digit_but_the_sum(out: bytes, want: bytes, given: bytes) -> bool:
        return out.strip().isdigit() and len(out.strip()) == 1 and int(out) != sum(map(int, given.split()))

    source = "a,b=map(int,input().split())\nprint(9 if a+b<9 else 0)\n"
    assert one(engine, source, SUM, checker=any_digit_but_the_sum).reward == 1.0
    assert one(engine, ADD, SUM, checker=any_digit_but_the_sum).reward == 0.0


def test_files_never_become_a_score(engine: SyncEngine) -> None:
    source = "import os\nfor n in ('reward.txt','reward.json','logs'):\n open(n,'w').write('1.5')\nprint('x')\n"
    assert one(engine, source, SUM).reward == 0.0


def test_a_preamble_may_shadow_builtins(engine: SyncEngine) -> None:
    problem = stdio((b"", b"8.0\n"), preamble="from math import *\n")
    assert one(engine, "print(pow(2, 3))", problem).reward == 1.0


# ---------------------------------------------------------------- calls


TYPED = "class Solution:\n    def f(self, nums: List[int]) -> int:\n        return sum(nums)\n"


@pytest.mark.parametrize(
    ("name", "source", "reward"),
    [
        ("f", TYPED, 1.0),
        ("f", "from __future__ import annotations\ndef f(nums: Missing) -> int:\n    return sum(nums)\n", 1.0),
        ("f", "def sub(a):\n    return sum(a)\ndef f(nums):\n    return sub(nums) + pow(2, 3, 8)\n", 1.0),
        ("f", "def f(nums, n=0):\n    return sum(nums) if n == 9000 else f(nums, n + 1)\n", 1.0),
        ("prod", "def prod(nums):\n    return sum(nums)\n", 1.0),
        ("prod", "class Solution:\n    def prod(self, nums):\n        return math.fsum(nums)\n", 1.0),
        ("prod", "x = 6\n", 0.0),  # the library's own product of 1, 2 and 3 is nobody's answer
    ],
)
def test_a_function_of_a_data_set_finds_what_its_testers_import(
    engine: SyncEngine, name: str, source: str, reward: float
) -> None:
    tests = {"fn_name": name, "inputs": [[[1, 2, 3]]], "outputs": [6]}
    (problem,) = proctor.problems_from_rows([{"problem_id": 1, "solutions": "", "input_output": json.dumps(tests)}])
    assert one(engine, source, problem).reward == reward
    assert one(engine, TYPED, dataclasses.replace(problem, preamble="", entry_point="f")).reward == 0.0


def test_calls_by_data(engine: SyncEngine) -> None:
    cases = (
        TestCase(args=([3, 1],), expected=[1, 3]),
        TestCase(args=([],), expected=[]),
        TestCase(args=([5.5, 2],), expected=[2, 5.5]),
    )
    assert one(engine, "def solve(x):\n    x.sort()\n    return x\n", function(*cases)).reward == 1.0
    assert one(engine, "def solve(x):\n    yield from sorted(x)\n", function(*cases)).reward == 1.0
    assert one(engine, "solve = sorted\nprint('PASSED')\n", function(*cases)).reward == 1.0
    found = one(engine, "def solve(x):\n    return x\n", function(*cases))
    assert [case.verdict for case in found.cases] == [WRONG, OK, WRONG]


def test_arguments_that_are_changed_are_each_calls_own(engine: SyncEngine) -> None:
    shared = [1, 2]
    problem = function(*(TestCase(args=(shared,), expected=3),) * 3)
    found = one(engine, "def solve(x):\n    n = sum(x)\n    x.clear()\n    return n\n", problem)
    assert found.reward == 1.0


def test_calls_that_crash_or_leave(engine: SyncEngine) -> None:
    source = """
import os
def solve(n):
    if n == 1: raise ValueError("no")
    if n == 3: os._exit(0)
    if n == 7: return solve(n)
    if n == 8: os.abort()
    return n
"""
    problem = function(*(TestCase(args=(n,), expected=n) for n in range(10)), time_limit_s=0.5)
    found = one(engine, source, problem)
    assert [case.verdict for case in found.cases] == [
        OK,
        CRASH,
        OK,
        CRASH,
        OK,
        OK,
        OK,
        CRASH,
        CRASH,
        OK,
    ]
    assert found.reward == 0.6
    assert found.cases[1].detail == "ValueError: no"
    assert found.cases[7].detail.startswith("RecursionError")


def test_a_call_that_never_ends(engine: SyncEngine) -> None:
    source = "def solve(n):\n    while n == 2: pass\n    return n\n"
    found = one(engine, source, function(*(TestCase(args=(n,), expected=n) for n in range(5)), time_limit_s=0.3))
    late = Verdict.TIME_LIMIT
    assert [case.verdict for case in found.cases] == [OK, OK, late, late, late]


def test_liars_and_kinds(engine: SyncEngine) -> None:
    liar = (
        "class Y:\n    def __eq__(s,o): return True\n    def __bool__(s): return True\ndef solve(n):\n    return Y()\n"
    )
    problem = function(TestCase(args=(2,), expected=4), TestCase(args=(3,), expected=9))
    assert one(engine, liar, problem).reward == 0.0
    counter = "from collections import Counter\ndef solve(s):\n    return Counter(s)\n"
    assert one(engine, counter, function(TestCase(args=("aab",), expected={"a": 2, "b": 1}))).reward == 1.0
    match = "import re\ndef solve(s):\n    return re.match('a', s)\n"
    truth = (
        TestCase(args=("ab",), expected=True, compare="truth"),
        TestCase(args=("b",), expected=False, compare="truth"),
    )
    assert one(engine, match, function(*truth)).reward == 1.0


def test_methods_named_in_either_way(engine: SyncEngine) -> None:
    source = (
        "class Solution:\n    seen = 0\n    def solve(self, n):\n        self.seen += 1\n        return n + self.seen\n"
    )
    cases = (TestCase(args=(1,), expected=2), TestCase(kwargs={"n": 2}, expected=3))
    assert one(engine, source, function(*cases, entry_point="Solution.solve")).reward == 1.0
    assert one(engine, source, function(*cases, solution_class="Solution")).reward == 1.0


def test_a_program_is_not_main_when_it_is_called(engine: SyncEngine) -> None:
    source = "def solve():\n    return __name__\nif __name__ == '__main__':\n    raise SystemExit(3)\n"
    assert one(engine, source, function(TestCase(expected="solution"))).reward == 1.0


def test_programs_that_do_not_load(engine: SyncEngine) -> None:
    problem = function(*(TestCase(args=(n,), expected=n) for n in range(20)))
    for source in ("def solve(n) return n", "import os; os._exit(0)", "1/0"):
        found = one(engine, source, problem)
        assert {case.verdict for case in found.cases} == {CRASH}
        assert found.reward == 0.0
    assert one(engine, "def other(n): return n", problem).verdict is CRASH


# ---------------------------------------------------------------- unit tests

TESTED = Problem(
    id="t",
    mode="unit_tests",
    test_code="def test_a():\n    assert f(1) == 2\n\ndef test_b():\n    assert f(2) == 3\n",
    time_limit_s=2,
)


@pytest.mark.parametrize(
    ("source", "reward"),
    [
        ("def f(n): return n + 1\n", 1.0),
        ("def f(n): return 2\n", 1 / 2),
        ("def f(n): return 99\n", 0.0),  # that the tests could be read earns nothing
        ("raise SystemExit\n", 0.0),
        ("import os\nprint('PASSED test_a\\n=== 2 passed in 0.01s ===',flush=True)\nos._exit(0)\n", 0.0),
        ("import os\ndef f(n): os._exit(0)\n", 0.0),
        ("import atexit, os\ndef f(n): return n + 1\natexit.register(os._exit, 1)\n", 0.0),
        ("def f(n):\n    while True: pass\n", 0.0),
    ],
)
def test_unit_tests(engine: SyncEngine, source: str, reward: float) -> None:
    beside = dataclasses.replace(TESTED, test_code=f"import inspect\n{TESTED.test_code}")
    for problem, claimed in ((TESTED, False), (beside, True)):
        found = one(engine, source, problem, limits={"cpu_s": 0.5})
        assert found.claimed is claimed
        if "atexit" not in source:  # whether exit handlers run is the harness's affair
            assert found.reward == pytest.approx(reward), found


def test_bare_assertions(engine: SyncEngine) -> None:
    problem = Problem(id="t", mode="unit_tests", test_code="assert f(1) == 2\nassert f(2) == 3\n")
    assert one(engine, "def f(n): return n + 1\n", problem).reward == 1.0
    assert one(engine, "def f(n): return 2\n", problem).reward == 0.0


def test_a_test_module_of_its_own(engine: SyncEngine) -> None:
    problem = Problem(
        id="t",
        mode="unit_tests",
        module="two_fer.py",
        test_module="two_fer_test.py",
        appended=False,
        test_code="import unittest\nfrom two_fer import f\nclass T(unittest.TestCase):\n"
        "    def test_x(self):\n        self.assertEqual(f(1), 2)\n",
    )
    assert one(engine, "def f(n): return n + 1\n", problem).reward == 1.0
    found = one(engine, "def f(n): return n\n", problem)
    assert found.verdict is WRONG
    assert found.cases[-1].name == "T.test_x"


OTHERS = {
    "cpp": (
        "int f(int n) { return n + 1; }",
        "int f(int n) { return n; }",
        "int f(",
        "#undef NDEBUG\n#include <cassert>\nint main() { assert(f(1) == 2); }",
    ),
    "javascript": (
        "const f = (n) => n + 1",
        "const f = (n) => n",
        None,
        "const t = () => { console.assert(f(1) === 2) }\nt()",
    ),
    "java": (
        "class Solution { int f(int n) { return n + 1; } }",
        "class Solution { int f(int n) { return n; } }",
        "class Solution {",
        "public class Main { public static void main(String[] a) "
        "{ if (new Solution().f(1) != 2) throw new AssertionError(); } }",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_languages(engine: SyncEngine, name: str) -> None:
    if not next(row for row in LANGUAGES if row.name == name).available():
        pytest.skip(f"no {name} here")
    right, wrong, broken, tests = OTHERS[name]
    problem = Problem(id="t", mode="unit_tests", language=name, test_code=tests, memory_limit_mib=2048)
    assert one(engine, right, problem).verdict is OK
    found = one(engine, wrong, problem)
    assert found.verdict is WRONG, found
    assert found.claimed
    if broken:
        assert one(engine, broken, problem).verdict is Verdict.COMPILE_ERROR


JAVA = "import java.util.*;\n{0} {{ public static void main(String[] a) {{ System.out.println(2 * new Scanner(System.in).nextInt()); }} }}"


@pytest.mark.parametrize("head", ["public class Solution", "class Solution", "package a.b; public class Main"])
def test_a_java_program_may_call_its_class_as_it_likes(engine: SyncEngine, head: str) -> None:
    if not next(row for row in LANGUAGES if row.name == "java").available():
        pytest.skip("no java here")
    package, _, rest = head.rpartition("; ")
    source = (f"{package};\n" if package else "") + JAVA.format(rest)
    assert one(engine, source, stdio((b"4\n", b"8\n"), language="java", memory_limit_mib=2048)).reward == 1.0


def test_a_java_program_does_not_run_in_place_of_its_tests(engine: SyncEngine) -> None:
    if not next(row for row in LANGUAGES if row.name == "java").available():
        pytest.skip("no java here")
    tests = OTHERS["java"][3].replace("public class", "class")
    problem = Problem(id="t", mode="unit_tests", language="java", test_code=tests, memory_limit_mib=2048)
    lies = "public class Solution { int f(int n) { return n; } public static void main(String[] a) { } }"
    assert one(engine, lies, problem).reward == 0.0


# ---------------------------------------------------------------- batches


def test_a_mixed_batch_both_ways_and_again(engine: SyncEngine) -> None:
    texts = [ADD + f"# {n}\n" if n % 3 else f"print({n})\n" for n in range(30)]
    first = proctor.score(texts, SUM, engine=engine)
    assert proctor.score(texts[::-1], SUM, engine=engine)[::-1] == first
    assert asyncio.run(proctor.ascore(texts, SUM, engine=engine)) == first
    assert first.count(1.0) == 20
    json.dumps([grade.to_json() for grade in proctor.grade(texts[:3], SUM, engine=engine)])


def test_no_answer_is_in_reach_of_the_program(engine: SyncEngine) -> None:
    canary = "CANARY_5e0c"
    look = (
        "import os, glob, sys\n"
        "print(os.environ, sys.argv, sorted(os.listdir('.')))\n"
        "for n in glob.glob('/workspace/**', recursive=True) + glob.glob('/tmp/**', recursive=True):\n"
        "    if os.path.isfile(n): print(n, open(n, errors='replace').read())\n"
    )
    found = one(engine, look, stdio((b"", canary.encode())))
    assert found.verdict is WRONG
    assert canary.encode() not in found.cases[0].outcome.stdout
    assert b"solution.py" in found.cases[0].outcome.stdout


def test_rows_of_a_data_set_serve_as_problems() -> None:
    row = {
        "id": "sum",
        "mode": "stdio",
        "cases": [{"stdin": "3 4\n", "expected": "7\n"}, {"stdin": "1 1\n", "expected": "2\n"}],
    }
    programs = ["print(sum(map(int, input().split())))", "print(7)"]
    assert proctor.score(programs, [row] * 2) == [1.0, 0.5]
    assert proctor.score(programs, row) == [1.0, 0.5]
    assert proctor.score([{"problem_id": "a", "completion": programs[1]}], {"a": row}) == [0.5]
    with pytest.raises(proctor.InputError, match="expected"):
        proctor.score(programs, {"id": "x", "mode": "stdio", "cases": [{"stdin": "1"}]})
    with pytest.raises(proctor.InputError, match="int is neither"):
        proctor.score(programs, [3, 4])


# ---------------------------------------------------------------- what a clever program tries

BURN = """import os, time
def f(i):
    end = time.process_time() + {seconds}
    while time.process_time() < end:
        pass
{extra}    return i
"""


@pytest.mark.parametrize(
    "extra",
    [
        "    if i == 19:\n        while True: pass\n",
        "    if i % 3 == 2: os._exit(0)\n",
        "    if i % 3 == 2: raise SystemExit\n",
    ],
    ids=["spins at the end", "dies now and then", "leaves now and then"],
)
def test_no_call_is_paid_beyond_the_time_limit(engine: SyncEngine, extra: str) -> None:
    """Neither burning the rest of the time nor dying for a new process buys more time than an honest program has."""
    cases = (TestCase(args=(n,), expected=n) for n in range(20))
    problem = function(*cases, entry_point="f", time_limit_s=0.6)
    honest = one(engine, BURN.format(seconds=0.1, extra=""), problem)
    clever = one(engine, BURN.format(seconds=0.1, extra=extra), problem)
    assert honest.verdict is Verdict.TIME_LIMIT
    assert honest.reward is not None
    assert clever.reward is not None
    assert honest.reward <= 7 / 20
    assert clever.reward <= honest.reward + 1.5 / 20  # a call more or less is the clock's


def test_a_loop_leaves_what_was_right_before_it(engine: SyncEngine) -> None:
    problem = function(*(TestCase(args=(n,), expected=n) for n in range(10)), entry_point="f", time_limit_s=0.5)
    found = one(engine, "def f(i):\n    while i == 5: pass\n    return i\n", problem)
    assert (found.verdict, found.reward) == (Verdict.TIME_LIMIT, 0.5)


@pytest.mark.parametrize(
    "files", [{"a": "", "a/b": ""}, {"solution.py/x": ""}, {"x" * 300: ""}, {"../x": ""}, {"big": "x" * (65 << 20)}],
    ids=["below a file", "below the program", "a long name", "upwards", "too large"],
)  # fmt: skip
def test_files_that_cannot_be_are_the_completions_fault(engine: SyncEngine, files: dict[str, str]) -> None:
    problem = stdio((b"", b"7\n"))
    bad, good = proctor.grade(
        [{"completion": "print(7)", "extra_files": files}, "print(7)"], [problem] * 2, engine=engine
    )
    assert (bad.verdict, bad.reward) == (Verdict.NO_CODE, 0.0)
    assert good.reward == 1.0


def test_output_beyond_any_right_answer_is_not_held_on_to(engine: SyncEngine) -> None:
    found = one(engine, "print('7 ' * 4_000_000)", stdio(*[(b"", b"7\n")] * 3))
    assert {case.verdict for case in found.cases} == {WRONG}
    assert "far more" in found.cases[0].detail
    padded = one(engine, "print(' ' * 200_000 + '7')", stdio((b"", b"7\n")))
    assert padded.reward == 1.0
