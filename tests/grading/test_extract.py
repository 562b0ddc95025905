"""The program in a completion: fences, rules, chat marks, bodies without a head."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handed import handed
from proctor.core.errors import InputError
from proctor.grading import pysource
from proctor.grading.asked import NOTHING, asked_of
from proctor.grading.completions import load_completions
from proctor.grading.extract import (
    END_TOKENS,
    MAX_BLOCKS,
    MAX_PARSED,
    RULES,
    assemble,
    call_target,
    defines,
    extract_code,
    fenced_blocks,
    opens_body,
    strip_chat,
)
from proctor.grading.formats import load_problems
from proctor.grading.problem import Problem, TestCase

F = "```"


def test_no_fence_is_the_whole_text() -> None:
    assert extract_code("    return x\n") == "    return x\n"
    assert extract_code("I cannot help.") == "I cannot help."
    assert extract_code(" \n") is None


def test_last_block_that_parses() -> None:
    text = f"First:\n{F}python\nprint('old')\n{F}\nBetter:\n{F}\nprint('new')\n{F}\nBroken:\n{F}python\nprint(\n{F}\n"
    assert extract_code(text) == "print('new')\n"
    assert extract_code(text, rule="first-block") == "print('old')\n"
    assert extract_code(text, rule="last-block") == "print(\n"
    assert extract_code(text, rule="whole") == text


def test_a_block_of_output_is_no_program() -> None:
    shown = f"{F}python\nprint(7)\n{F}\nIt prints:\n{F}\n7\n{F}\nor\n{F}\nResult: 7\n{F}\nor\n{F}text\nprint(8)\n{F}\n"
    assert extract_code(shown) == "print(7)\n"
    assert extract_code(f"{F}\n7\n{F}") == "7\n"


def test_fences_and_nothing_usable_is_no_code() -> None:
    assert extract_code(f"{F}python\nprint(\n{F}") is None
    assert extract_code(f"{F}bash\nls\n{F}") is None
    assert extract_code(f"{F}python\n{F}") is None
    assert extract_code(f"{F}python\n  \n{F}", rule="last-block") is None


PROGRAM = f"{F}python\ndef f(x):\n    return x + 1\n{F}\n"
SCRIPT = f"{F}python\nn = int(input())\nprint(n + 1)\n{F}\n"
HELPED = f"{F}python\ndef solve(n):\n    return n + 1\n\nprint(solve(int(input())))\n{F}\n"


@pytest.mark.parametrize(
    "example",
    [
        "print(f(1))",
        "assert f(1) == 2",
        "from solution import f\nprint(f(1))",
        "result = f(1)\nprint(result)",
        "def test():\n    assert f(1) == 2\n\ntest()",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)",
        "for i in range(3):\n    print(i, i + 1)",
        "class Other:\n    def f(self): pass",
        "f",
    ],
)
def test_an_example_of_use_is_not_taken_for_the_function_that_is_asked_for(example: str) -> None:
    text = f"So:\n{PROGRAM}\nExample usage:\n{F}python\n{example}\n{F}\n"
    asked = asked_of(problem(), "python")
    assert extract_code(text, asked=asked) == "def f(x):\n    return x + 1\n"
    assert extract_code(text + text, asked=asked) == "def f(x):\n    return x + 1\n"
    assert extract_code(f"{F}\n{example}\n{F}", asked=asked) == f"{example}\n"  # nothing better is there


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ("class Stack:\n    def push(self, x): pass\n", "Stack"),
        ("class Stack:\n    def push(self, x): pass\n", "Stack.push"),
        ("async def go():\n    pass\n", "go"),
        ("if True:\n    go = len\n", "go"),
        ("go: object = len\n", "go"),
    ],
)
def test_what_defines_a_name(own: str, name: str) -> None:
    use = f"{F}python\nx = {name.partition('.')[0]}()\nprint(x)\n{F}\n"
    asked = asked_of(problem(entry_point=name), "python")
    assert extract_code(f"{F}python\n{own}{F}\n{use}", asked=asked) == own


def test_of_blocks_that_define_what_is_asked_for_the_last_counts() -> None:
    asked = asked_of(problem(), "python")
    better = f"{F}python\ndef f(x):\n    return x + 2\n{F}\n"
    assert extract_code(PROGRAM + better, asked=asked) == "def f(x):\n    return x + 2\n"
    method = f"{F}\nclass Solution:\n    def f(self): return 1\n{F}\n"
    by_class = asked_of(problem(solution_class="Solution"), "python")
    assert extract_code(method + "\n" + f"{F}\nprint(Solution().f())\n{F}", asked=by_class) == (
        "class Solution:\n    def f(self): return 1\n"
    )
    assert extract_code(PROGRAM + method, asked=by_class) == "class Solution:\n    def f(self): return 1\n"
    assert extract_code(PROGRAM + method, asked=asked) == "def f(x):\n    return x + 1\n"
    body = f"{F}python\n    return x / 2\n{F}\nSo\n{F}python\nprint(f(4))\n{F}\n"
    assert extract_code(body, prompt=PROMPT, asked=asked) == "    return x / 2\n"


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        ("from solution import Stack, pop\ndef test_a(): assert Stack().x == pop(1)\n", ["Stack", "pop"]),
        ("import solution as s\ndef test_a():\n    assert s.go() == 1\n", ["go"]),
        ("import math\ndef test_a():\n    n = 1\n    assert area(n) == math.pi\n", ["area"]),
        ("assert [g(i) for i in range(3)] == given\n", ["g"]),
    ],
)
def test_the_names_that_tests_ask_for(tests: str, names: list[str]) -> None:
    tested = Problem(id="p", mode="unit_tests", test_code=tests, preamble="given = [1, 2, 3]\n")
    assert list(asked_of(tested, "python").names) == [((name,),) for name in names]
    own = "".join(f"{name} = len\n" for name in names)
    text = f"{F}python\n{own}{F}\nUsage:\n{F}python\nprint({names[0]}(2))\n{F}\n"
    assert extract_code(text, asked=asked_of(tested, "python")) == own


@pytest.mark.parametrize("program", [SCRIPT, HELPED])
@pytest.mark.parametrize(
    "example",
    [
        "assert True",
        "assert 1 + 1 == 2\nimport sys",
        "def test():\n    assert 3 == 3\ntest()",
        "def add(a, b):\n    return a + b",
        "sample = '3'\nassert int(sample) == 3",
        "7",
    ],
)
def test_a_block_that_prints_nothing_is_no_program_that_is_run_for_what_it_prints(program: str, example: str) -> None:
    asked = asked_of(printing(), "python")
    own = program.removeprefix(f"{F}python\n").removesuffix(f"{F}\n")
    assert extract_code(f"{program}Check:\n{F}python\n{example}\n{F}\n", asked=asked) == own


def test_a_block_that_leans_on_an_earlier_one_is_an_example_of_its_use() -> None:
    asked, own = asked_of(printing(), "python"), HELPED.removeprefix(f"{F}python\n").removesuffix(f"{F}\n")
    for example in (
        "print(solve(3))",
        "for i in range(3):\n    print(i, solve(i))",
        "import io, sys\nsys.stdin = io.StringIO('3')\nprint(solve(1))",
    ):
        shown = f"{F}python\n{example}\n{F}\n"
        assert extract_code(HELPED + shown, asked=asked) == own
        assert extract_code(HELPED + shown + shown, asked=asked) == own
        assert extract_code(HELPED + shown) == own  # also where nothing is known of the problem
    later = "n = int(input())\nprint(solve(n))\n"  # it reads: a program, though a broken one
    assert extract_code(f"{HELPED}{F}python\n{later}{F}\n", asked=asked) == later
    forgot = "print(math.sqrt(2))\n"  # what an earlier block only imports makes no example of a broken program
    assert extract_code(f"{F}\nimport math\nprint(math.pi)\n{F}\n{F}\n{forgot}{F}\n", asked=asked) == forgot
    whole = "import sys\ndef main():\n    print(int(sys.stdin.read()) + 1)\nmain()\n"
    pattern = (
        "while lo < hi:\n    mid = (lo + hi) // 2\n    lo = mid + 1\nprint(lo)\n"  # of no program: it is sure to fail
    )
    assert extract_code(f"{F}python\n{whole}{F}\n{F}python\n{pattern}{F}\n", asked=asked) == whole
    assert extract_code(f"{F}python\n{pattern}{F}\n{F}python\n{whole}{F}\n", asked=asked) == whole
    for last in ("print(7)\n", "from os import *\nprint(solve)\n"):
        assert extract_code(f"{HELPED}{F}python\n{last}{F}\n", asked=asked) == last


@pytest.mark.parametrize(
    "example",
    [
        "print(7 // 2)",
        "import random\nprint(random.randint(1, 100))",
        "for n in range(5):\n    print(n, n + 1)",
        "from solution import solve\nprint(solve(3))",
        "import subprocess\nprint(subprocess.run(['python3', 'solution.py'], input='3', capture_output=True).stdout)",
    ],
)
def test_where_each_case_has_an_input_a_block_that_reads_it_goes_first(example: str) -> None:
    fed = Problem(id="p", mode="stdio", cases=(TestCase(stdin=b"3\n", expected=b"4\n"),))
    own = HELPED.removeprefix(f"{F}python\n").removesuffix(f"{F}\n")
    shown = f"{F}python\n{example}\n{F}\n"
    assert extract_code(HELPED + shown, asked=asked_of(fed, "python")) == own
    assert extract_code(HELPED + shown, asked=asked_of(printing(), "python")) == f"{example}\n" or "solve(" in example
    assert extract_code(shown, asked=asked_of(fed, "python")) == f"{example}\n"  # there is no other
    for later in ("import os\nprint(int(os.read(0, 9)) + 1)\n", "from sys import *\nprint(int(stdin.read()) + 1)\n"):
        assert extract_code(f"{HELPED}{F}python\n{later}{F}\n", asked=asked_of(fed, "python")) == later


@pytest.mark.parametrize("body", ["...", "pass", '"Adds one."'])
def test_a_function_that_does_nothing_is_taken_where_there_is_no_other(body: str) -> None:
    stub = f"{F}python\ndef f(x: int) -> int:\n    {body}\n{F}\n"
    own = PROGRAM.removeprefix(f"{F}python\n").removesuffix(f"{F}\n")
    assert extract_code(f"{PROGRAM}Signature:\n{stub}", asked=asked_of(problem(), "python")) == own
    assert "def f" in (extract_code(stub, asked=asked_of(problem(), "python")) or "")


def test_a_program_in_a_compiled_language_has_a_main() -> None:
    text = f"{F}cpp\nint main() {{}}\n{F}\nThe key:\n{F}cpp\ndp[i] = 1;\n{F}\n"
    assert extract_code(text, "cpp", asked=asked_of(printing(), "c++")) == "int main() {}\n"
    assert extract_code(text, "cpp") == "dp[i] = 1;\n"
    assert extract_code(f"{F}cpp\nint x;\n{F}", "cpp", asked=asked_of(printing(), "cpp")) == "int x;\n"


def test_right_programs_of_models_survive_an_example_behind_them() -> None:
    folder = handed("data/handed")
    tried = 0
    for name in ("mbpp", "humaneval", "lcb-atcoder"):
        problems = {found.id: found for found in load_problems(folder / f"problems_{name}.jsonl")}
        for row in load_completions(folder / f"completions_{name}.jsonl"):
            given = problems[row.problem_id]
            if row.metadata.get("known_verdict") is not True or F in row.text or given.mode == "unit_tests":
                continue
            if pysource.parse(row.text) is None:
                continue
            own = row.text.rstrip("\n") + "\n"
            use = f"print({given.entry_point}(1))" if given.entry_point else "assert 1 + 1 == 2"
            chat = f"Here:\n\n{F}python\n{own}{F}\n\nExample usage:\n\n{F}python\n{use}\n{F}\n\nDone."
            tried += 1
            assert extract_code(chat, prompt=given.prompt, asked=asked_of(given, "python")) == own, row.source
    assert tried > 1000


@pytest.mark.parametrize(
    "label",
    ["python", "py", "Python3", "python3.11", "python title=x", "{.python}", "python:solution.py", "pypy3", "python3="],
)
def test_labels_of_the_language(label: str) -> None:
    assert extract_code(f"{F}{label}\nx = 1\n{F}") == "x = 1\n"


def test_commonmark_fences() -> None:
    assert (
        extract_code("~~~~python\ntext = '''\n```\nnot code\n```\n'''\nprint(1)\n")
        == "text = '''\n```\nnot code\n```\n'''\nprint(1)\n"
    )
    assert (
        extract_code(f"   {F}py\n   x = 1\n     y = 2\n {F}  \nend") is None
    )  # the indent of the fence comes off, not more
    assert extract_code(f"   {F}py\n   if x:\n     y = 2\n {F}  \nend") == "if x:\n  y = 2\n"
    assert extract_code(f"{F}`py\nx = '''\n{F}\n'''\n{F}``\n") == f"x = '''\n{F}\n'''\n"
    assert extract_code(f"Use {F}x{F} here\nx = 1") == f"Use {F}x{F} here\nx = 1"  # no backtick in an info string
    assert [b.label for b in fenced_blocks(f"{F}\r\nx\r\n{F}\r\n~~~ js\ny")] == ["", "js"]
    assert extract_code(f"{F}python\r\nx = 1\r\n{F}") == "x = 1\r\n"
    assert extract_code(f"{F}python\nx = 'a\x0cb\u2028c'\n{F}") == "x = 'a\x0cb\u2028c'\n"  # those end no line


def test_fences_deep_in_a_list_item() -> None:
    assert extract_code(f"1. So:\n\n     {F}python\n     x = f(1)\n     {F}\n") == "x = f(1)\n"


def test_a_program_that_holds_markdown_is_not_cut() -> None:
    program = f'"""Doc.\n{F}python\nprint(1)\n{F}\n"""\nprint(2)\n'
    assert extract_code(program) == program


def test_other_languages() -> None:
    text = f"{F}cpp\nint a;\n{F}\n{F}c++\nint b;\n{F}\n{F}\n3\n{F}\n{F}python\nx = 1\n{F}"
    assert extract_code(text, "cpp") == "int b;\n"
    assert extract_code(f"{F}\nint c;\n{F}\n{F}\n\n{F}", "cpp") == "int c;\n"
    assert extract_code(f"{F}python\nx = 1\n{F}", "cpp") is None
    assert extract_code(f"{F}js\nlet x\n{F}", "javascript") == "let x\n"


def test_own_rule() -> None:
    assert extract_code("a<code>b", rule=lambda text, language: text.partition("<code>")[2]) == "b"
    assert extract_code("a", rule=lambda text, language: None) is None
    with pytest.raises(InputError, match=r"extract.*int"):
        extract_code("a", rule=lambda text, language: 1)  # type: ignore[arg-type,return-value]
    with pytest.raises(InputError, match="last-valid-block"):
        extract_code("a", rule="last")


@pytest.mark.parametrize("token", END_TOKENS)
def test_end_tokens_are_dropped_at_the_end_only(token: str) -> None:
    assert extract_code(f"print(1)\n{token}{token}\n ") == "print(1)\n"
    assert extract_code(f"x = '{token}'") == f"x = '{token}'"
    assert extract_code(f"{F}python\nprint(1){token}") == "print(1)"


def test_reasoning_is_dropped() -> None:
    answer = f"{F}python\nprint(1)\n{F}"
    assert extract_code(f"<think>\n{F}python\nprint(0)\n{F}\n</think>\n{answer}") == "print(1)\n"
    assert extract_code(f"so {F}\n</think>\n\n{answer}") == "print(1)\n"  # the template opened it
    assert extract_code(f"<think> {answer}") is None  # cut off before the answer
    assert strip_chat("<think>\n</think>\n    return 1\n") == "    return 1\n"


def test_huge_and_hostile_texts_end_soon() -> None:
    assert extract_code(f"{F}\nx=(\n{F}\n" * 60_000) is None
    assert extract_code(F * 400_000) is None  # one opening fence, never closed
    assert extract_code("</s>" * 200_000) is None
    deep = "(" * 100_000
    assert extract_code(f"{F}python\n{deep}\n{F}") is None
    assert extract_code(f"{F}python\nprint(1)\n{F}\n{F}python\n{'-' * 200_000}1\n{F}") == "print(1)\n"


def test_what_is_parsed_is_bounded_prompts_included(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    parse = pysource.parse

    def counted(source: str) -> object:
        if len(source) <= pysource.MAX_SOURCE:
            read.append(len(source))
        return parse(source)

    monkeypatch.setattr(pysource, "parse", counted)
    prompt = PROMPT + "    # " + "x" * 50_000 + "\n"
    blocks = "".join(f"{F}\nx=({n}\n{F}\n" for n in range(10_000))
    for before, asked in ((prompt, NOTHING), (None, NOTHING), (prompt, asked_of(problem(), "python"))):
        read.clear()
        assert extract_code(blocks, prompt=before, asked=asked) is None
        assert sum(read) <= MAX_PARSED
        assert len(read) <= 2 * MAX_BLOCKS + 1
    read.clear()
    leaning = "".join(f"{F}\nprint(a{n}, f(1))\n{F}\n" for n in range(10_000))
    assert extract_code(leaning, asked=asked_of(printing(), "python")) == "print(a9999, f(1))\n"
    assert sum(read) <= MAX_PARSED
    assert len(read) <= MAX_BLOCKS + 1
    read.clear()
    assert extract_code(leaning + PROGRAM, asked=asked_of(problem(), "python")) == "def f(x):\n    return x + 1\n"
    assert len(read) == 1  # none is read before the last that defines what is asked for
    read.clear()
    whole = f"{F}python\n    return 1\n{F}\n" + f"{F}\nx=(\n{F}\n" * 10  # some broken ones do no harm
    assert extract_code(whole, prompt=prompt) == "    return 1\n"
    assert extract_code(f"{F}\nprint(1)\n{F}\n" + f"{F}\nx=(\n{F}\n" * (MAX_BLOCKS - 1)) == "print(1)\n"
    assert extract_code(f"{F}\nprint(1)\n{F}\n" + f"{F}\nx=(\n{F}\n" * MAX_BLOCKS) is None


@given(st.text(alphabet="`~ \n\rpyx=1(<think>/|", max_size=120), st.sampled_from(RULES))
def test_any_text_gives_text_or_nothing(text: str, rule: str) -> None:
    found = extract_code(text, rule=rule)
    assert found is None or found.strip()


@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n`~"), max_size=30).filter(str.strip),
    st.integers(3, 6),
    st.sampled_from("`~"),
)
def test_a_fenced_block_comes_back_as_it_was(line: str, width: int, mark: str) -> None:
    blocks = fenced_blocks(f"Hi\n{mark * width}c\n{line}\n{mark * width}\nbye")
    assert [b.text for b in blocks] == [line + "\n"]


def printing() -> Problem:
    return Problem(id="p", mode="stdio", cases=(TestCase(expected=b"1\n"),))


def problem(**fields: object) -> Problem:
    base: dict[str, object] = {"id": "p", "mode": "function", "entry_point": "f", "cases": (TestCase(expected=1),)}
    return Problem(**{**base, **fields})  # type: ignore[arg-type]


PROMPT = 'import math\n\ndef f(x):\n    """Half of x."""\n'


def test_a_body_without_its_head_gets_the_prompt() -> None:
    given = problem(prompt=PROMPT)
    assert assemble(given, "    return x / 2\n") == PROMPT + "    return x / 2\n"
    assert assemble(given, "\n    return x / 2\n\ndef g():\n    pass\n").startswith(PROMPT)
    assert assemble(given, "    return (x\n") == PROMPT + "    return (x\n"
    assert assemble(given, "def f(x):\n    return x / 2\n") == "def f(x):\n    return x / 2\n"
    assert assemble(given, "f = lambda x: x / 2\n") == "f = lambda x: x / 2\n"
    assert (
        assemble(given, "def g(x):\n    return 1\n") == "def g(x):\n    return 1\n"
    )  # a program by itself: not our guess
    assert extract_code(f"{F}python\n    return x / 2\n{F}\n", prompt=PROMPT) == "    return x / 2\n"
    assert extract_code(f"{F}python\n    return x / 2\n{F}\n") is None


def test_the_preamble_is_the_problems_and_only_that() -> None:
    given = problem(preamble="from math import *", prompt=None)
    assert assemble(given, "def f(x): return pow(x, 2)\n") == "from math import *\ndef f(x): return pow(x, 2)\n"
    assert assemble(problem(), "def f(x): return sqrt(x)\n") == "def f(x): return sqrt(x)\n"
    body = problem(preamble="import math\n\n", prompt=PROMPT)
    assert assemble(body, "    return x\n") == PROMPT + "    return x\n"  # not twice
    assert assemble(problem(language="cpp", preamble="#include <cmath>"), "int x;") == "#include <cmath>\nint x;"


def test_future_imports_stay_first_behind_a_preamble() -> None:
    code = '"""Doc."""\nfrom __future__ import (\n    annotations,\n)\nimport re\ndef f(x: Missing): return 1\n'
    whole = assemble(problem(preamble="from typing import *\n"), code)
    assert whole.startswith("from __future__ import annotations\nfrom typing import *\n")
    namespace: dict[str, object] = {}
    exec(compile(whole, "x", "exec", dont_inherit=True), namespace)
    assert "f" in namespace
    late = "x = 1\nfrom __future__ import annotations\n"
    assert assemble(problem(preamble="import re\n"), late).endswith(late)  # wrong in Python, and stays so


def test_defines_and_opens_body() -> None:
    assert defines("try:\n    from a import f\nexcept ImportError:\n    def f(): pass\n", "f")
    assert defines("class Solution:\n    def f(self): return 1\n", "Solution.f")
    assert not defines("class Solution:\n    def g(self): pass\n", "Solution.f")
    assert not defines("def g():\n    def f(): pass\n", "f")
    assert opens_body(PROMPT, "f")
    assert not opens_body(PROMPT + "    return 1\n", "f")  # junk behind a whole program would be accepted


def test_a_method_serves_where_the_problem_says_so() -> None:
    given, case = problem(solution_class="Solution"), TestCase()
    assert call_target(given, case, "class Solution:\n    def f(self): return 1\n") == "Solution.f"
    assert call_target(given, case, "def f(): pass\n") == "f"
    assert call_target(given, TestCase(entry_point="g"), "class Solution:\n    def g(self): pass\n") == "Solution.g"
    assert call_target(problem(), case, "class Solution:\n    def f(self): return 1\n") == "f"


def test_the_attack_on_fences(shared_dir: Path) -> None:
    text = (shared_dir / "attacks" / "f_protocol_abuse" / "code_fence_tricks.md").read_text(encoding="utf-8")
    code = extract_code(text)
    assert code is not None
    assert code.startswith('text = """\n```\nnot code\n```\n"""\n')
    assert "wrong block" not in code
