"""Problem files of every format, and what is said about those that do not fit."""

from __future__ import annotations

import base64
import gzip
import json
import math
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.core.errors import InputError
from proctor.grading.formats import FORMATS, load_problems, problems_from_rows
from proctor.grading.formats.rows import loads
from proctor.grading.formats.testcases import pickled_text, unpack
from proctor.grading.problem import Problem


def one(row: dict[str, Any], format: str = "auto") -> Problem:
    (problem,) = problems_from_rows([row], format)
    return problem


def stdio(*cases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "p", "mode": "stdio", "cases": list(cases) or [{"stdin": "1", "expected": "1"}], **fields}


def function(*cases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "p", "mode": "function", "entry_point": "f", "cases": list(cases), **fields}


# --- our own format


def test_bytes_go_in_as_they_are() -> None:
    case = one(stdio({"stdin": "1\r\n2\r\n", "expected": "é\r\n"})).cases[0]
    assert (case.stdin, case.expected) == (b"1\r\n2\r\n", "é\r\n".encode())
    packed = one(stdio({"stdin_b64": base64.b64encode(b"\xff").decode(), "expected": ""})).cases[0]
    assert (packed.stdin, packed.expected) == (b"\xff", b"")


def test_an_expected_whole_number_is_its_digits() -> None:
    for value, text in ((12, b"12"), (-3, b"-3"), (0, b"0"), (10**5000, b"1" + b"0" * 5000)):
        assert one(stdio({"stdin": "", "expected": value})).cases[0].expected == text
    assert one(stdio({"stdin": "", "expected": 12, "expected_b64": "MTI="})).cases[0].expected == b"12"


@pytest.mark.parametrize("value", [True, 0.6, 1e3, ["3", "4"], {"a": 1}, [10**5000], ["x" * 500]], ids=range(7))
@pytest.mark.parametrize("key", ["stdin", "expected"])
def test_text_of_a_case_is_text(key: str, value: object) -> None:
    """Lines as a list, or true, would be compared as Python prints them, and every program be wrong."""
    with pytest.raises(
        InputError, match=rf"^row 1: field 'cases\[1\]\.{key}': a string is expected, not .*: "
    ) as caught:
        one(stdio({"stdin": "", "expected": ""}, {"stdin": "", "expected": "", key: value}))
    assert len(str(caught.value)) < 300
    with pytest.raises(InputError, match="a string is expected"):
        one(stdio({"stdin": "", "expected": "", key: value, f"{key}_b64": "MQ=="}))


def test_literals_win_over_json_and_types_are_exact() -> None:
    case = one(
        function({"args": [[1]], "args_py": "[(1,)]", "expected": [1, "inf", None], "expected_py": "(1, inf, nan)"})
    ).cases[0]
    assert case.args == ((1,),)
    assert case.expected[:2] == (1, math.inf)
    assert math.isnan(case.expected[2])
    assert case.exact_types
    # A tuple could have been written as one, so what JSON calls a list is no tuple.
    assert one(function({"args": [1], "expected": [1]})).cases[0].exact_types


def test_a_function_may_return_none() -> None:
    assert one(function({"args": [], "expected": None})).cases[0].expected is None


def test_a_case_may_name_its_own_function_and_tolerances() -> None:
    row = function({"args": [], "expected": 1, "entry_point": "g", "abs": 0.1, "rel": 0, "kwargs": {"k": 1}})
    del row["entry_point"]
    case = one(row).cases[0]
    assert (case.entry_point, case.abs, case.rel, case.kwargs) == ("g", 0.1, 0, {"k": 1})


def test_numbers_past_pythons_digit_limit() -> None:
    big = 10**6000 - 1
    text = json.dumps(function({"args": [1], "expected": 0})).replace('"expected": 0', '"expected": ' + "9" * 6000)
    with pytest.raises(ValueError, match="limit"):
        json.loads(text)
    assert one(loads(text)).cases[0].expected == big


def test_checkers_of_the_format() -> None:
    assert one(stdio()).checker.kind == "tokens"
    spec = one(stdio(checker={"kind": "float", "abs": 1e-6, "rel": None})).checker
    assert (spec.kind, spec.abs, spec.rel) == ("numbers", 1e-6, None)
    assert not one(stdio(default_validator_is_case_insensitive=True, checker={"kind": "tokens"})).checker.case_sensitive
    rule = {"kind": "float", "abs": 1e-6, "rel": 1e-7, "only_if_expected_is_float": True}
    spec = one(function({"args": [], "expected": 1}, checker=rule)).checker
    assert (spec.kind, spec.only_if_expected_is_float) == ("value", True)
    judge = one(
        stdio(checker={"kind": "program", "source": "int main", "language": "cpp", "needs": "testlib.h"})
    ).checker
    assert judge.kind == "program"
    assert judge.program is not None
    assert judge.program.needs == ("testlib.h",)


def test_unit_tests_beside_or_behind_the_solution() -> None:
    alone = one(
        {"id": "p", "test_code": "import x\nassert x.f()", "module": "acronym.py", "test_module": "acronym_test.py"}
    )
    assert (alone.mode, alone.module, alone.test_module, alone.appended) == (
        "unit_tests",
        "acronym.py",
        "acronym_test.py",
        False,
    )
    behind = one({"id": "p", "language": "java", "test_code": "class Main {}", "file": "Main.java"})
    assert (behind.module, behind.appended, behind.test_module) == ("Main.java", True, None)


@pytest.mark.parametrize(
    "code",
    [
        "x = 1",
        "# to do",
        "def check(f):\n    assert f(1) == 2\n",
        "def check(f):\n    pass\ncheck(f)\n",
        "import acronym",
    ],
)
def test_tests_that_check_nothing_are_refused(code: str) -> None:
    with pytest.raises(InputError, match=r"row 1.*test_code.*any program would pass"):
        one({"id": "p", "test_code": code})


def test_a_statement_that_is_the_head_of_the_function_is_the_prompt() -> None:
    row = function({"args": [1], "expected": 1}, statement='def f(x):\n    """Says x."""\n')
    assert one(row).prompt == row["statement"]
    assert one(row | {"statement": "Write f."}).prompt is None
    assert one(row | {"statement": "def f(x):\n    return x\n"}).prompt is None


def test_duplicate_cases_are_noted_not_refused() -> None:
    case = {"stdin": "3 4\n", "expected": "7\n"}
    assert one(stdio(case, {"stdin": "1", "expected": "1"})).notes == ()
    (note,) = one(stdio(case, case)).notes
    assert note == "1 duplicate case(s), counted from 0: 0 and 1"
    (note,) = one(stdio(case, case | {"expected": "8\n"})).notes
    assert "different expected values: 0 and 1" in note
    assert (
        one(
            function({"args": [1], "expected": 1}, {"args": [True], "expected": 1}, {"args": [1.0], "expected": 1})
        ).notes
        == ()
    )


@pytest.mark.parametrize(
    ("row", "field", "says"),
    [
        ({"mode": "stdio", "cases": [{"expected": ""}]}, "id", "missing"),
        (stdio(id=7), "id", "a string is expected"),
        ({"id": "p", "mode": "stdio"}, "cases", "at least one"),
        ({"id": "p", "mode": "stdio", "cases": []}, "cases", "at least one"),
        (stdio({"stdin": "1"}), "cases[0].expected", 'write ""'),
        (stdio({"stdin": "1", "expected": None}), "cases[0].expected", "missing"),
        (stdio({"stdin": 1, "expected": ""}), "cases[0].stdin", "a string"),
        (stdio({"stdin": "", "expected_b64": "?"}), "cases[0].expected_b64", "base64"),
        (stdio({"input": "1", "expected": "1"}), "input", "cases[0]"),
        (stdio("1"), "cases[0]", "an object"),  # type: ignore[arg-type]
        (stdio(cases="x"), "cases", "a list"),
        (stdio(time_limit="1"), "time_limit", "did you mean 'time_limit_s'"),
        (stdio(modde="1"), "modde", "did you mean 'mode'"),
        (stdio(time_limit_s="1"), "time_limit_s", "not a number"),
        (stdio(time_limit_s=math.nan), "time_limit_s", "not a number"),
        (stdio(memory_limit_mib=100.5), "memory_limit_mib", "whole"),
        (stdio(mode="std"), "mode", "not one of"),
        (stdio(language="pyhton"), "language", "did you mean 'python'"),
        (stdio(checker={"kind": "token"}), "checker.kind", "not one of"),
        (stdio(checker={"kind": "numbers", "abs": math.nan}), "checker.abs", "finite"),
        (stdio(checker={"kind": "numbers", "eps": 1}), "eps", "unknown key"),
        (stdio(checker={"kind": "program"}), "source", "missing"),
        (stdio(checker={"kind": "value"}), "checker.kind", "printed text"),
        (stdio(module="../x.py"), "module", "relative"),
        (stdio(extra_files={"/etc/passwd": ""}), "extra_files", "relative"),
        (stdio(extra_files={"a": 1}), "extra_files['a']", "a string"),
        (function({"args": []}), "cases[0].expected", "write null"),
        (function({"args": 1, "expected": 1}), "cases[0].args", "a list"),
        (function({"kwargs": [], "expected": 1}), "cases[0].kwargs", "an object"),
        (function({"args": [], "expected_py": "f()"}), "cases[0].expected_py", "not a Python literal"),
        (function({"args": [], "expected": 1, "abs": -1}), "cases[0].abs", "at least 0"),
        (function({"args": [], "expected": 1}, checker="lines"), "checker.kind", "printed text"),
        (function({"args": [], "expected": 1, "compare": "truth"}), "cases[0].compare", "true or false"),
        (function({"args": [], "expected": 1}, entry_point=None), "entry_point", "name of the function"),
        ({"id": "p", "mode": "unit_tests"}, "test_code", "source"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_with_its_place(row: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        one(row, "proctor")
    message = str(caught.value)
    assert message.startswith("row 1: ")
    assert f"field {field!r}" in message
    assert says in message


@pytest.mark.parametrize(
    ("said", "literal", "fits"),
    [
        ([1, 2], "(1, 2)", True), ([2, 1], "{1, 2}", True), ({"1": 2}, "{1: 2}", True), ({"a": [1]}, "{'a': (1,)}", True),
        (-88900900080000008192, "-88900900080000008192", True), (0.1, "0.1", True), (1, "1.0", True), ("inf", "inf", True),
        (None, "None", True), ([[1], None], "[(1,), None]", True),
        ([1, 2], "(1, 3)", False), ([1, 2], "(1, 2, 3)", False), (3, "4", False), ("a", "'b'", False), ("1", "1", False),
        (True, "1", False), (1, "True", False), ({"a": 1}, "{'b': 1}", False), ({"a": 1}, "{'a': 2}", False), ([], "{}", False),
    ],
)  # fmt: skip
def test_a_value_that_is_said_twice_is_said_the_same(said: Any, literal: str, fits: bool) -> None:
    for name, data, text in (("expected", said, literal), ("args", [said], f"({literal},)")):
        row = {
            "id": "p",
            "mode": "function",
            "entry_point": "f",
            "cases": [{"expected": 0} | {name: data, f"{name}_py": text}],
        }
        if fits:
            problems_from_rows([row])
        else:
            with pytest.raises(
                InputError, match=rf"field 'cases\[0\].{name}_py': says something else than {name}; keep one"
            ):
                problems_from_rows([row])
    row = {"id": "p", "cases": [{"stdin": "a", "stdin_b64": "YQ==", "expected": "b", "expected_b64": "YQ=="}]}
    with pytest.raises(InputError, match=r"cases\[0\].expected_b64': says something else"):
        problems_from_rows([row])


# --- files


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_lines_are_counted_and_blank_ones_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", json.dumps(stdio()), "", json.dumps(stdio(id="q")))
    assert [p.source for p in load_problems(path)] == [f"{path}:1", f"{path}:3"]
    good = json.dumps(stdio())
    path = write(tmp_path / "p.jsonl", *[good.replace('"p"', f'"{n}"') for n in range(6)], "{'id': 7}")
    with pytest.raises(InputError, match=r"p\.jsonl:7: not JSON: .*column 2"):
        load_problems(path)


def test_an_id_may_stand_once(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", json.dumps(stdio()), json.dumps(stdio()))
    with pytest.raises(InputError, match=r"p\.jsonl:2: field 'id': 'p' stands twice; first in .*p\.jsonl:1"):
        load_problems(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file is empty"),
        (b"[1, 2]", "item 1: a JSON object is expected, not a number"),
        (b'"x"\n', ":1: a JSON object is expected, not a string"),
        (b'{"id": "\xff"}\n', ":1: not JSON"),
        (b'{"id": 1, "id": 2}\n', "stands twice in one object"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a": ' * 100_000, "nested too deep"),
        (b'{"a": 1}', "cannot be told from the keys (a); looked for"),
        (
            b'{"problem_id": "p", "completion": "x"}',
            "this looks like a completion, not a problem; are the two files swapped?",
        ),
        (b'{\n  "id": "p"\n}', "each row stands on one line, or all of them in one array"),
        (b'{"id": "p",\n "cases": []}', "each row stands on one line, or all of them in one array"),
        ('{"id": "p"}'.encode("utf-16"), "not JSON: UTF-16; save it as UTF-8"),
        ('{"id": "\u00e9"}'.encode("latin-1"), "not JSON: byte 0xe9 at column 9 is no UTF-8; save the file as UTF-8"),
        (b"PAR1\x15\x04", "not JSON: a parquet file"),
        (
            b'{"id": "o", "test_code": "assert 1"}\n{"id": "p", "test_module": "assert f(1) == 2"}',
            "test_module is the file name of test_code",
        ),
        (b'{"id": "a", "caes": []}', "'caes': did you mean 'cases'?"),
        (b"\x1f\x8bnot gzip", "damaged"),
        (gzip.compress(b'{"id": "x"}\n' * 1000)[:30], "damaged"),
    ],
)
def test_files_that_are_not_problems(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(text)
    with pytest.raises(InputError) as caught:
        load_problems(path)
    assert says in str(caught.value)
    assert "p.jsonl" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_problems(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        load_problems(tmp_path)
    with pytest.raises(InputError, match="format"):
        load_problems(tmp_path, format="csv")


@given(st.binary(max_size=200))
def test_any_bytes_give_problems_or_an_input_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "p"
    path.write_bytes(data)
    with pytest.raises(InputError):
        load_problems(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["stdin", "expected", "args", "input", "output", "kind"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["id", "mode", "cases", "entry_point", "test_code", "checker", "task_id", "prompt", "test", "test_list", "inputs", "outputs", "fn_name", "verification_info", "public_test_cases", "language", "module", "metadata"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=8), st.sampled_from(FORMATS))
def test_any_row_gives_a_problem_or_an_input_error(row: dict[str, Any], format: str) -> None:
    message = "row 1"
    try:
        problems_from_rows([row], format)
    except InputError as error:
        message = str(error)
    assert "row 1" in message


def test_json_array_and_gzip(tmp_path: Path) -> None:
    rows = [
        {"task_id": n, "text": "t", "code": "def f(x): return x", "test_list": ["assert f(1) == 1"]} for n in (1, 2)
    ]
    path = tmp_path / "sanitized.json.gz"
    path.write_bytes(gzip.compress(json.dumps(rows, indent=1).encode()))
    assert [(p.id, p.source) for p in load_problems(path)] == [("1", f"{path}: item 1"), ("2", f"{path}: item 2")]


# --- HumanEval and MBPP

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'from typing import List\n\n\ndef f(x: List[int]) -> int:\n    """Sums."""\n',
    "canonical_solution": "    return sum(x)\n",
    "entry_point": "f",
    "test": "METADATA = {'author': 'jt'}\n\n\ndef check(candidate):\n    assert candidate([1, 2]) == 3, 'why'\n    assert True, 'fine'\n    assert abs(candidate([1.5]) - 1.5) < 1e-6\n    assert not candidate([])\n    assert candidate((1,))\n    assert candidate([]) == ()\n",
}


def test_humaneval_asserts_become_cases() -> None:
    problem = one(HUMANEVAL)
    assert (problem.id, problem.mode, problem.entry_point) == ("HumanEval/0", "function", "f")
    assert problem.preamble == "from typing import List\n\n\n"
    assert problem.prompt == HUMANEVAL["prompt"]
    assert problem.reference_solution == HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"]
    first, near, falsy, truthy, empty = problem.cases
    assert (first.args, first.expected, first.exact_types, first.compare) == (([1, 2],), 3, True, "equal")
    assert (near.expected, near.abs, near.rel) == (1.5, 1e-6, 0.0)
    assert (falsy.expected, falsy.compare, truthy.expected, truthy.compare) == (False, "truth", True, "truth")
    assert (truthy.args, empty.expected) == (((1,),), ())


@pytest.mark.parametrize(
    "line",
    ["assert candidate([1]) == sum([1])", "for i in range(3): assert candidate([i]) == i", "x = [1]", "assert candidate(*[1]) == 1",
     "assert candidate([1]) is True", "assert candidate([1]) in (1, 2)", "assert sorted(candidate([1])) == [1]", "assert candidate([1]) != 1",
     "assert abs(candidate([1]) - 1) < candidate([1])", "assert candidate(x=open('f')) == 1"],
)  # fmt: skip
def test_anything_else_keeps_the_whole_test_source(line: str) -> None:
    problem = one(HUMANEVAL | {"test": HUMANEVAL["test"] + f"    {line}\n"})
    assert (problem.mode, problem.cases) == ("unit_tests", ())
    assert problem.test_code is not None
    assert problem.test_code.endswith("\n\ncheck(f)\n")
    assert one(HUMANEVAL | {"test": HUMANEVAL["test"] + "\ncheck(f)\n"}).mode == "function"


def test_mbpp() -> None:
    row = {
        "task_id": 11,
        "text": "Write f.",
        "code": "def g(x):\r\n  return x\r\ndef f(x):\r\n  return g(x)",
        "test_list": ["assert f((1,)) == (1,)", "assert math.isclose(f(1), 1.0, rel_tol=0.01)", "assert g(2)==2"],
        "test_setup_code": "",
        "test_imports": ["import math"],
        "challenge_test_list": [],
    }
    problem = one(row)
    assert (problem.id, problem.mode, problem.entry_point, problem.preamble) == ("11", "function", "f", "import math\n")
    assert [c.entry_point for c in problem.cases] == [None, None, "g"]
    assert (problem.cases[1].rel, problem.cases[1].abs) == (0.01, 0.0)
    setup = one(row | {"test_setup_code": "root = Node(1)"})
    assert (setup.mode, setup.preamble) == ("unit_tests", "")
    assert setup.test_code is not None
    assert setup.test_code.startswith("import math\nroot = Node(1)\nassert f((1,))")
    assert one(row | {"test_list": ["assert set(f([1])) == {1}"]}).mode == "unit_tests"


# --- inputs and outputs


def test_apps_programs() -> None:
    tests = {"inputs": ["1\r\n", ["2", "3"]], "outputs": [["a", "b"], 12]}
    for row in (
        {"problem_id": 4, "question": "?", "input_output": json.dumps(tests), "solutions": '["x = 1"]'},
        {"problem_id": 4, "ground_truth": json.dumps(tests)},
        {"problem_id": 4, "reward_model": {"ground_truth": json.dumps(tests), "style": "rule"}, "data_source": "taco"},
        {"problem_id": 4, **tests},
    ):
        problem = one(row)
        assert (problem.id, problem.mode, problem.checker.kind) == ("4", "stdio", "tokens")
        assert [(c.stdin, c.expected) for c in problem.cases] == [(b"1\r\n", b"a\nb"), (b"2\n3", b"12")]
    assert one({"problem_id": 4, "input_output": tests, "solutions": '["x = 1"]'}).reference_solution == "x = 1"


def test_apps_functions() -> None:
    wrapped = one({"inputs": [[1, [2]], [3, {"1": 2}]], "outputs": [[5], [{"7": 1}]], "fn_name": "f"})
    assert (wrapped.mode, wrapped.entry_point, wrapped.solution_class) == ("function", "f", "Solution")
    assert [(c.args, c.expected) for c in wrapped.cases] == [((1, [2]), 5), ((3, {1: 2}), {7: 1})]
    bare = one({"inputs": [[1], [2]], "outputs": [[5], [5, 6]], "fn_name": "f"})
    assert [c.expected for c in bare.cases] == [[5], [5, 6]]
    text = one({"inputs": ['1\n["a"]'], "outputs": ["true"], "fn_name": "f"})
    assert (text.cases[0].args, text.cases[0].expected) == ((1, ["a"]), True)


def test_rows_without_an_id_get_one_from_their_content() -> None:
    row = {"inputs": ["1"], "outputs": ["1"]}
    assert one(row).id == one(dict(row)).id != one(row | {"outputs": ["2"]}).id


TACO = {
    "question": "Sum.", "solutions": '["x = 1"]', "starter_code": "", "difficulty": "EASY", "raw_tags": "['Sorting']",
    "input_output": '{"inputs": ["1\\n"], "outputs": ["2\\n"]}', "name": None, "source": "codeforces", "tags": "['Sorting']",
    "skill_types": "['Sorting']", "url": "https://example.org/1", "Expected Auxiliary Space": None, "time_limit": "2.0 seconds",
    "date": "2021-01-01", "picture_num": "0", "memory_limit": "256.0 megabytes", "Expected Time Complexity": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "limits"),
    [
        ({}, (2.0, 256)),
        ({"time_limit": None, "memory_limit": None}, (10.0, 512)),
        ({"time_limit": "", "memory_limit": "1.5 GB"}, (10.0, 1536)),
        ({"time_limit": "1 - 2 seconds", "memory_limit": "262144 kilobytes"}, (2.0, 256)),
        ({"time_limit": "500 ms", "memory_limit": "4 megabytes"}, (0.5, 16)),
        ({"time_limit": 3, "memory_limit": 64.5}, (3.0, 65)),
        ({"time_limit": "5 seconds", "time_limit_s": 7, "memory_limit_mib": 100}, (7.0, 100)),
    ],
)
def test_rows_of_taco_have_a_contests_limits(told: dict[str, Any], limits: tuple[float, int]) -> None:
    problem = one(TACO | told)
    assert (problem.time_limit_s, problem.memory_limit_mib, problem.notes) == (*limits, ())
    assert (problem.mode, problem.reference_solution) == ("stdio", "x = 1")


def test_a_limit_that_nobody_understands_is_noted() -> None:
    problem = one(TACO | {"time_limit": "a while", "memory_limit": "3 floppies"})
    assert (problem.time_limit_s, problem.memory_limit_mib) == (10.0, 512)
    assert [note.split("'")[1] for note in problem.notes] == ["a while", "3 floppies"]
    for value in (True, [2], {"seconds": 2}, "0 seconds", "nan", "1e999", float("inf")):
        assert one(TACO | {"time_limit": value}).time_limit_s in (10.0, 86_400)


def test_calls_have_the_default_limit_at_least() -> None:
    """A contest's limit is for one case, ours for all calls of a process."""
    tests = {"fn_name": "f", "inputs": [[1]], "outputs": [2]}
    assert one(TACO | {"input_output": json.dumps(tests)}).time_limit_s == 10.0
    assert one(TACO | {"input_output": json.dumps(tests), "time_limit": "20 seconds"}).time_limit_s == 20.0


def test_rows_without_solutions_or_tests() -> None:
    """The data sets write nothing as an empty text."""
    for nothing in ("", None, "[]"):
        assert one(TACO | {"solutions": nothing}).reference_solution is None
    with pytest.raises(InputError, match=r"row 1: field 'input_output': empty: the row has no tests"):
        one(TACO | {"input_output": ""})


CALLS = {"fn_name": "f", "inputs": [[1]], "outputs": [2]}
FUNCTION_ROWS = [
    {"problem_id": 1, "input_output": json.dumps(CALLS)},
    {"data_source": "apps", "reward_model": {"ground_truth": json.dumps(CALLS)}},
    {"ground_truth": json.dumps({"inputs": [], "outputs": [], "assert_case": ["assert f(1) == 2"]})},
    {"verification_info": {"language": "python", "test_cases": [{"fn_name": "f", "input": [1], "output": 2}]}},
    {
        "question_id": "7", "metadata": '{"func_name": "f"}',
        "public_test_cases": json.dumps([{"input": "1", "output": "2", "testtype": "functional"}]),
    },
]  # fmt: skip


@pytest.mark.parametrize("row", FUNCTION_ROWS)
def test_functions_of_data_sets_have_the_imports_that_their_testers_put_first(row: dict[str, Any]) -> None:
    given = one(row).preamble
    assert given.count("\n") == 1  # so that line numbers move by one
    space: dict[str, Any] = {"__name__": "solution"}
    exec(given, space)
    assert {"List", "Counter", "heappush", "gcd", "lru_cache", "deepcopy", "math", "re", "sys"} <= space.keys()
    assert [space[name] for name in ("pow", "open", "math")] == [pow, open, math]
    assert one(row | {"preamble": "import os\n"}).preamble == "import os\n"
    assert one(row | {"preamble": ""}).preamble == ""


def test_programs_and_our_own_format_have_no_preamble_that_they_do_not_name() -> None:
    assert one(TACO).preamble == one({"ground_truth": json.dumps({"inputs": ["1"], "outputs": ["2"]})}).preamble == ""
    assert one(function({"args": [1], "expected": 2})).preamble == ""


def test_prime_rows_as_they_come() -> None:
    tests = json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]})
    row = {
        "data_source": "taco", "prompt": [{"role": "user", "content": "Sum."}], "ability": "code",
        "reward_model": {"ground_truth": tests, "style": "rule"}, "extra_info": {"index": 0, "split": "train"},
    }  # fmt: skip
    assert one(row).cases[0].expected == b"2\n"


def test_prime_assert_cases() -> None:
    problem = one({"ground_truth": json.dumps({"inputs": [], "outputs": [], "assert_case": ["assert f(1) == 2"]})})
    assert (problem.mode, problem.entry_point, problem.cases[0].expected) == ("function", "f", 2)


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        ({"inputs": ["1"], "outputs": []}, "0 of them for 1 inputs"),
        ({"inputs": [], "outputs": []}, "at least one case"),
        ({"inputs": ["1"], "outputs": [None]}, "empty string"),
        ({"inputs": [{"a": 1}], "outputs": [""]}, "neither text nor a list"),
        ({"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}, "not JSON"),
        ("{", "neither JSON nor a Python literal"),
        ("[1]", "a JSON object is expected"),
    ],
)
def test_inputs_and_outputs_that_do_not_fit(tests: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        one({"input_output": tests})


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


def test_livecodebench() -> None:
    public = json.dumps([{"input": "1\n", "output": "2\n", "testtype": "stdin"}])
    private = [{"input": "3\n", "output": "4\n", "testtype": "stdin"}]
    row = {"question_id": "abc_a", "public_test_cases": public, "private_test_cases": packed(private), "metadata": "{}"}
    problem = one(row)
    assert [(c.stdin, c.expected) for c in problem.cases] == [(b"1\n", b"2\n"), (b"3\n", b"4\n")]
    assert len(one(row | {"private_test_cases": json.dumps(private)}).cases) == 2
    calls = [{"input": '[1, 2]\n"a"', "output": "[true]", "testtype": "functional"}]
    functional = one({"question_id": "7", "public_test_cases": json.dumps(calls), "metadata": '{"func_name": "f"}'})
    assert (functional.mode, functional.entry_point, functional.solution_class) == ("function", "f", "Solution")
    assert (functional.cases[0].args, functional.cases[0].expected) == (
        ([1, 2], "a"),
        [True],
    )  # JSON text is never wrapped


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("run",))


@pytest.mark.parametrize("value", [Evil(), b"bytes", ["a"], 1, None, ("a", "b"), {"a": "b"}])
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_of_anything_but_a_string_is_refused(
    value: object, protocol: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pickle.dumps(value, protocol)
    with pytest.raises(ValueError, match="pickle"):
        pickled_text(data)
    with pytest.raises(InputError, match="private_test_cases"):
        one(
            {
                "question_id": "1",
                "public_test_cases": "[]",
                "private_test_cases": base64.b64encode(zlib.compress(data)).decode(),
            }
        )
    assert capsys.readouterr().out == ""


@given(st.text(), st.integers(0, 5))
def test_a_pickled_string_is_read(text: str, protocol: int) -> None:
    assert pickled_text(pickle.dumps(text, protocol)) == text


@given(st.binary(max_size=60))
def test_any_bytes_are_a_pickled_string_or_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="pickle"):
        pickled_text(data + b"?")


def test_packed_tests_that_are_damaged() -> None:
    for text in ("?", "AAAA", packed("x")[:-8]):
        with pytest.raises(ValueError, match=r"base64|cut off"):
            unpack(text)


def test_verification_info() -> None:
    info = {"language": "python", "test_cases": [{"input": "1\n", "output": "2\n", "type": "stdin_stdout"}]}
    for value in (info, json.dumps(info), repr(info)):
        problem = one({"problem_id": "x", "verification_info": value})
        assert [(c.stdin, c.expected) for c in problem.cases] == [(b"1\n", b"2\n")]
    calls = {
        "language": "python",
        "test_cases": [{"fn_name": "f", "input": [1, 2], "output": [3], "type": "function_call"}],
    }
    problem = one({"problem_id": "x", "verification_info": calls})
    assert (problem.mode, problem.cases[0].args, problem.cases[0].expected) == ("function", (1, 2), 3)
    with pytest.raises(InputError, match=r"test_cases\[0\]\.output"):
        one({"problem_id": "x", "verification_info": {"test_cases": [{"input": "1"}]}})
    with pytest.raises(InputError, match="neither JSON nor a Python literal"):
        one({"problem_id": "x", "verification_info": "open('f')"})


def test_slips_in_other_formats_and_columns_of_their_own() -> None:
    assert one({"inputs": ["1"], "outputs": ["1"], "my_column": 1}).metadata["my_column"] == 1
    with pytest.raises(InputError, match="did you mean 'fn_name'"):
        one({"inputs": ["1"], "outputs": ["1"], "fn_nam": "f"})


class Array:
    """Stands for an array of a numeric library."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def tolist(self) -> list[Any]:
        return self.items


def test_rows_of_a_data_set_may_hold_arrays_and_nulls() -> None:
    cases = Array([{"stdin": "1", "expected": "1", "args": None, "origin": None}])
    assert one({"id": "p", "mode": "stdio", "cases": cases, "test_code": None}).cases[0].stdin == b"1"


# --- the data that was handed over

HANDED = {
    "apps": 79, "codecontests": 22, "exercism-python": 88, "humaneval": 90, "humanevalplus": 88, "humanevalx-cpp": 88,
    "humanevalx-java": 90, "humanevalx-js": 90, "kattis": 1, "lcb-atcoder": 143, "leetcode": 81, "library-checker": 34,
    "mbpp": 582, "mbppplus": 227, "oj-lab": 9, "quixbugs": 26,
}  # fmt: skip


@pytest.mark.parametrize("family", HANDED)
def test_handed_problems_load(shared_dir: Path, family: str) -> None:
    problems = load_problems(shared_dir / "data" / "handed" / f"problems_{family}.jsonl")
    assert len(problems) == HANDED[family]
    for problem in problems:
        assert problem.cases or problem.test_code
        assert (problem.checker.kind == "program") <= (family == "library-checker")
        assert (family == "leetcode") == bool(problem.preamble)


def test_handed_problems_as_rows_of_their_own_formats(shared_dir: Path) -> None:
    """The asserts of the handed HumanEval and MBPP, converted here, are the cases that were handed over."""
    for family, format in (("humaneval", "humaneval"), ("mbpp", "mbpp")):
        path = shared_dir / "data" / "handed" / f"problems_{family}.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row, problem in zip(rows, load_problems(path), strict=True):
            made: dict[str, Any] = {"task_id": row["id"], "entry_point": row["entry_point"], "prompt": row["statement"]}
            made |= (
                {"test": row["test_code"]} if format == "humaneval" else {"test_list": row["test_code"].splitlines()}
            )
            again = one(made, format)
            if problem.mode == "function" and again.mode == "function":
                pairs = zip(problem.cases, again.cases, strict=True)
                assert all((a.args, a.expected) == (b.args, b.expected) for a, b in pairs)
            else:
                assert "function" not in (problem.mode, again.mode) or problem.metadata["assert_kinds"].keys() & {
                    "other",
                    "is",
                    "truthy_call",
                }


def test_check_is_called_where_the_source_leaves_that_to_others(tmp_path: Path) -> None:
    source = "def check(candidate):\n    assert candidate(1) == 2\n"
    for test_code, calls in (
        (source, 1),
        (f"{source}\ncheck(f)\n", 1),
        ("def check(a, b):\n    pass\nassert f(1) == 2", 0),
    ):
        (tmp_path / "p.jsonl").write_text(json.dumps({"id": "p", "entry_point": "f", "test_code": test_code}) + "\n")
        (problem,) = load_problems(tmp_path / "p.jsonl")
        assert (problem.test_code or "").count("\ncheck(f)") == calls
