"""Files of completions, and their pairing with problems."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.core.errors import InputError
from proctor.grading.api import grade
from proctor.grading.completions import _read, completion_text, completions_from_rows, load_completions, pair
from proctor.grading.formats import load_problems, problems_from_rows
from proctor.grading.grade import Grader
from proctor.grading.pairing import pair_up
from proctor.grading.problem import Problem, TestCase

PROBLEMS = problems_from_rows([{"id": f"p{n}", "mode": "stdio", "cases": [{"expected": ""}]} for n in range(2)])


def test_every_text_gets_its_index_in_file_order(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"problem_id": "p0", "completion": "a", "language": "C++", "known_verdict": True},
        {"task_id": 11, "solution": "b"},
        {
            "problem_id": "p1",
            "completions": ["c", [{"role": "user", "content": "?"}, {"role": "assistant", "content": "d"}]],
        },
        {"problem_id": "p1", "response": "", "extra_files": {"a.hpp": "x"}},
    ]
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = load_completions(path)
    assert [(c.problem_id, c.index, c.text) for c in found] == [
        ("p0", 0, "a"),
        ("11", 1, "b"),
        ("p1", 2, "c"),
        ("p1", 3, "d"),
        ("p1", 4, ""),
    ]
    assert (found[0].language, found[1].language, found[0].metadata["known_verdict"]) == ("cpp", None, True)
    assert found[3].source == f"{path}:3"
    assert found[4].extra_files == {"a.hpp": "x"}


def test_evalplus_rows_may_hold_both_the_part_and_the_whole() -> None:
    (found,) = completions_from_rows(
        [{"task_id": "HumanEval/0", "completion": "    return 1", "solution": "def f():\n    return 1"}]
    )
    assert found.text == "def f():\n    return 1"


@pytest.mark.parametrize(
    ("row", "field", "says"),
    [
        ({"completion": "x"}, "problem_id", "missing"),
        ({"problem_id": True, "completion": "x"}, "problem_id", "non-empty"),
        ({"problem_id": "", "completion": "x"}, "problem_id", "non-empty"),
        ({"problem_id": "p"}, "completion", "missing"),
        ({"problem_id": "p", "completion": 1}, "completion", "chat list"),
        ({"problem_id": "p", "completion": []}, "completion", "messages"),
        ({"problem_id": "p", "completion": None}, "completion", "null: there is no completion to judge"),
        ({"problem_id": "p", "response": None}, "response", "null: there is no completion to judge"),
        ({"problem_id": "p", "completions": None}, "completions", "null: there is no completion to judge"),
        ({"problem_id": "p", "completions": ["x", None]}, "completions[1]", "null: there is no completion to judge"),
        (
            {"problem_id": "p", "completion": [{"role": "user", "content": "?"}]},
            "completion",
            "no message of the assistant",
        ),
        ({"problemid": "p", "completion": "x"}, "problem_id", "there is 'problemid': did you mean 'problem_id'?"),
        ({"Problem_ID": "p", "completion": "x"}, "problem_id", "there is 'Problem_ID': did you mean 'problem_id'?"),
        ({"id": "p", "cases": []}, "completion", "this looks like a problem: are the two files swapped?"),
        ({"problem_id": "p", "complation": "x"}, "completion", "there is 'complation': did you mean 'completion'?"),
        ({"problem_id": "p", "completion": "x", "Language": "cpp"}, "Language", "did you mean 'language'"),
        ({"problem_id": "p", "completion": "x", "extra_file": {}}, "extra_file", "did you mean 'extra_files'"),
        ({"problem_id": "p", "completions": "x"}, "completions", "a list"),
        ({"problem_id": "p", "completions": ["x", 1]}, "completions[1]", "chat list"),
        ({"problem_id": "p", "completion": "x", "response": "y"}, "response", "ambiguous"),
        ({"problem_id": "p", "completion": "x", "langauge": "cpp"}, "langauge", "did you mean 'language'"),
        ({"problem_id": "p", "completion": "x", "language": "cobol"}, "language", "known are"),
        ({"problem_id": "p", "completion": "x", "extra_files": {"a": 1}}, "extra_files['a']", "a string"),
    ],
)
def test_what_does_not_fit_is_named(row: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        completions_from_rows([{"problem_id": "p", "text": "x"}, row])
    message = str(caught.value)
    assert message.startswith("row 2: ")
    assert f"field {field!r}" in message
    assert says in message


def test_chat_lists() -> None:
    assert (
        completion_text(
            [
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}],
                }
            ]
        )
        == "ab"
    )
    assert completion_text([{"role": "assistant", "content": None}]) == ""
    assert completion_text([{"role": "assistant", "content": "x"}, {"role": "tool", "content": "y"}]) == "x"


@given(
    st.recursive(
        st.none() | st.text() | st.binary() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["role", "content", "type", "text"]), inner),
    )
)
def test_any_value_is_a_text_or_a_value_error(value: object) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(completion_text(value), str)


def test_pairs_in_the_completions_order_and_unknown_ids_together() -> None:
    found = completions_from_rows([{"problem_id": p, "text": p} for p in ("p1", "p0", "p1")])
    assert [(p.id, c.index) for p, c in pair(PROBLEMS, found)] == [("p1", 0), ("p0", 1), ("p1", 2)]
    strange = completions_from_rows([{"problem_id": p, "text": ""} for p in ("p1", *"abcdefg", "a")])
    with pytest.raises(InputError, match=r"row 2: .*no problem with id 'a', 'b', 'c', 'd', 'e' and 2 more; .* 'p0'"):
        pair(PROBLEMS, strange)


def test_handed_completions_load_and_find_their_problems(shared_dir: Path) -> None:
    folder = shared_dir / "data" / "handed"
    problems = [p for path in sorted(folder.glob("problems_*.jsonl")) for p in load_problems(path)]
    counts = {
        path.stem[12:]: len(pair(problems, load_completions(path))) for path in folder.glob("completions_*.jsonl")
    }
    assert len(problems) == 1738
    assert counts == {
        "apps": 1942, "codecontests": 155, "exercism-python": 88, "humaneval": 4320, "humanevalplus": 612, "humanevalx-cpp": 88,
        "humanevalx-java": 90, "humanevalx-js": 90, "kattis": 3, "lcb-atcoder": 285, "leetcode": 159, "library-checker": 32,
        "mbpp": 7067, "oj-lab": 1, "quixbugs": 26,
    }  # fmt: skip


@pytest.mark.parametrize(
    "key",
    ["lang", "Lang", "LANG", "programming_language", "programmingLanguage", "code_language", "lang_id", "prog_lang"],
)
def test_other_names_of_the_language_are_refused_with_the_right_one(key: str) -> None:
    """Else C++ would be judged as Python, and get 0."""
    row = {"problem_id": "p0", "completion": "int main() {}", key: "cpp"}
    with pytest.raises(InputError, match=rf"^row 1: field '{key}': unknown key; did you mean 'language'"):
        completions_from_rows([row])
    with pytest.raises(InputError, match=rf"^completions\[0\]: field '{key}': unknown key; did you mean 'language'"):
        pair_up([row], PROBLEMS)
    assert completions_from_rows([row | {"language": "cpp"}])[0].metadata == {key: "cpp"}
    assert completions_from_rows([row | {key: None}])[0].language is None


def test_a_slip_of_a_key_that_is_not_needed_is_said_once_and_other_keys_are_metadata() -> None:
    rows = [
        {"problem_id": "p", "completion": "x", "prompts": [], "logprobs": 1, "notes": "", "tasks": 2, "Completion": "y"}
    ] * 3
    said: list[str] = []
    found = _read(((f"c.jsonl:{n}", row) for n, row in enumerate(rows, 1)), said.append)
    assert said == ["c.jsonl:1: the key 'Completion' is not read; did you mean 'completion'?"]
    assert [one.text for one in found] == ["x"] * 3
    assert found[0].metadata == {"prompts": [], "logprobs": 1, "notes": "", "tasks": 2, "Completion": "y"}


def test_what_is_no_completion_is_refused_in_python_too() -> None:
    (problem,) = problems_from_rows([{"id": "p", "cases": [{"expected": ""}]}])
    for nothing in (None, {"completion": None}, [], [{"role": "user", "content": "?"}], {"completion": []}):
        with pytest.raises(InputError, match=r"^completions\[1\]: .*no completion to judge"):
            pair_up(["x", nothing], problem)
    assert [item.text for item in pair_up(["", [{"role": "assistant", "content": None}]], problem)] == ["", ""]
    with pytest.raises(InputError, match=r"^completions\[0\]: field 'langauge': unknown key; did you mean 'language'"):
        pair_up([{"completion": "x", "langauge": "cpp"}], problem)


def test_a_language_that_only_the_completion_names_is_the_completions_fault() -> None:
    (problem,) = problems_from_rows([{"id": "r", "mode": "function", "entry_point": "f", "cases": [{"expected": 1}]}])
    with pytest.raises(InputError, match=r"^c\.jsonl:4: field 'language': problem 'r': .*rust"):
        Grader().plan_for(problem, "rust", "c.jsonl:4")
    with pytest.raises(InputError, match=r"^completions\[1\]: field 'language': problem 'r': functions in cpp"):
        grade(["x", {"completion": "x", "language": "cpp"}, {"completion": "y", "language": "cpp"}], problem)
    own = Problem(id="q", mode="function", language="cpp", entry_point="f", cases=(TestCase(),), source="p.jsonl:7")
    for language in ("cpp", "bash"):  # the problem itself is to blame
        with pytest.raises(InputError, match=r"^p\.jsonl:7: problem 'q': "):
            Grader().plan_for(own, language, "c.jsonl:4")


@pytest.mark.parametrize(
    ("problems", "words"),
    [
        ("problems.jsonl", r"'problems\.jsonl' is neither a Problem .* \(a dict\); for a file: proctor\.load_problems\(PATH\)"),
        (Path("problems.jsonl"), r"PosixPath is neither .*; for a file: proctor\.load_problems\(PATH\)"),
        ([None], r"NoneType is neither a Problem nor a row of a data set \(a dict\)$"),
    ],
)  # fmt: skip
def test_what_is_no_problem_is_named_with_the_fix(problems: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        pair_up(["print(7)"], problems)
