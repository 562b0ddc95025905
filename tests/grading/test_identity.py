"""Keys of the cache: everything that a reward depends on changes them, and nothing else does."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.core import runner
from proctor.core.limits import Limits
from proctor.engine.job import Job
from proctor.engine.languages import language
from proctor.grading import identity
from proctor.grading.checkers import exact, numbers, tokens
from proctor.grading.grade import Grader
from proctor.grading.pairing import Item
from proctor.grading.place import Place
from proctor.grading.problem import CheckerSpec, Problem, TestCase
from proctor.grading.provenance import Provenance
from proctor.grading.recall import Recall


class Engine:
    """Names what programs see and the wall around them, and runs nothing."""

    def __init__(self, image: str | None = "host-1", isolation: str | None = "jail") -> None:
        self.slots, self.image_digest, self.isolation = 1, image, isolation

    def submit(self, job: Job, *, owner: object = None) -> Any:
        raise AssertionError("nothing is run here")


PROBLEM = Problem(
    id="a",
    mode="stdio",
    cases=(TestCase(stdin=b"1", expected=b"2"), TestCase(stdin=b"3", expected=b"4")),
    extra_files={"data.txt": "x"},
)
CALL = TestCase(args=(1, [2]), kwargs={"k": 3}, expected=(1, 2), abs=0.5, rel=0.25)
CALLS = Problem(id="f", mode="function", entry_point="f", cases=(CALL,), checker=CheckerSpec(kind="value", abs=0.1))
TESTS = Problem(id="u", mode="unit_tests", test_code="def test_a():\n    assert f() == 1\n")


def provenance(
    problem: Problem = PROBLEM,
    text: str = "print(1)",
    files: dict[str, str | bytes] | None = None,
    name: str = "python",
    engine: Engine | None = None,
    **options: Any,
) -> Provenance:
    grader = Grader(**{"extract": "whole", **options})
    item = Item(text, problem, name, files or {})
    return Recall(grader, Place(engine or Engine()), None).provenance(grader.work(item))


def key(*args: Any, **options: Any) -> bytes | None:
    return provenance(*args, **options).key()


def cased(problem: Problem, **changes: Any) -> Problem:
    return replace(problem, cases=(replace(problem.cases[0], **changes), *problem.cases[1:]))


COMPILED = next((name for name in ("cpp", "c", "bash") if language(name).available()), None)

DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "program": ({}, {"text": "print(1) "}),
    "a file of the program's": ({"files": {"a": "1"}}, {"files": {"a": "2"}}),
    "a file's name": ({"files": {"a": "1"}}, {"files": {"b": "1"}}),
    "a file or none": ({}, {"files": {"a": ""}}),
    "two files that run into each other": ({"files": {"a": "bc", "d": "e"}}, {"files": {"a": "b", "cd": "e"}}),
    "input": ({}, {"problem": cased(PROBLEM, stdin=b"0")}),
    "answer": ({}, {"problem": cased(PROBLEM, expected=b"0")}),
    "input that runs into the answer": ({}, {"problem": cased(PROBLEM, stdin=b"", expected=b"12")}),
    "order of cases": ({}, {"problem": replace(PROBLEM, cases=PROBLEM.cases[::-1])}),
    "fewer cases": ({}, {"problem": replace(PROBLEM, cases=PROBLEM.cases[:1])}),
    "held out": ({}, {"problem": replace(PROBLEM, cases=(PROBLEM.cases[0], replace(PROBLEM.cases[1], held_out=True)))}),
    "a file of the problem's": ({}, {"problem": replace(PROBLEM, extra_files={"data.txt": "y"})}),
    "preamble": ({}, {"problem": replace(PROBLEM, preamble="import os\n")}),
    "checker": ({"checker": tokens()}, {"checker": exact()}),
    "a checker's setting": ({"checker": numbers(abs="1e-6")}, {"checker": numbers(abs="1e-7")}),
    "the problem's checker": ({}, {"problem": replace(PROBLEM, checker=CheckerSpec(kind="lines"))}),
    "the problem's tolerance": (
        {"problem": replace(PROBLEM, checker=CheckerSpec(kind="numbers", abs=0.1))},
        {"problem": replace(PROBLEM, checker=CheckerSpec(kind="numbers", abs=0.2))},
    ),
    "time limit": ({}, {"problem": replace(PROBLEM, time_limit_s=3.0)}),
    "memory limit": ({}, {"problem": replace(PROBLEM, memory_limit_mib=300)}),
    "warm": ({}, {"warm": False}),
    "image": ({}, {"engine": Engine(image="host-2")}),
    "isolation": ({}, {"engine": Engine(isolation="degraded")}),
    "arguments": ({"problem": CALLS}, {"problem": cased(CALLS, args=(1, [3]))}),
    "a tuple and a list": ({"problem": CALLS}, {"problem": cased(CALLS, args=(1, (2,)))}),
    "True and 1": ({"problem": CALLS}, {"problem": cased(CALLS, args=(True, [2]))}),
    "1.0 and 1": ({"problem": CALLS}, {"problem": cased(CALLS, args=(1.0, [2]))}),
    "keywords": ({"problem": CALLS}, {"problem": cased(CALLS, kwargs={"k": 4})}),
    "expected value": ({"problem": CALLS}, {"problem": cased(CALLS, expected=(1, 3))}),
    "a case's tolerance": ({"problem": CALLS}, {"problem": cased(CALLS, abs=0.6)}),
    "a case's relative tolerance": ({"problem": CALLS}, {"problem": cased(CALLS, rel=0.6)}),
    "exact types": ({"problem": CALLS}, {"problem": cased(CALLS, exact_types=True)}),
    "truth": (
        {"problem": cased(CALLS, expected=True)},
        {"problem": cased(CALLS, expected=True, compare="truth")},
    ),
    "a case's function": ({"problem": CALLS}, {"problem": cased(CALLS, entry_point="g")}),
    "function": ({"problem": CALLS}, {"problem": replace(CALLS, entry_point="g")}),
    "class": ({"problem": CALLS}, {"problem": replace(CALLS, solution_class="Solution")}),
    "tolerance of values": (
        {"problem": CALLS},
        {"problem": replace(CALLS, checker=CheckerSpec(kind="value", abs=0.2))},
    ),
    "module": ({"problem": CALLS}, {"problem": replace(CALLS, module="other.py")}),
    "tests": ({"problem": TESTS}, {"problem": replace(TESTS, test_code="def test_a():\n    assert f() == 2\n")}),
    "tests appended": ({"problem": TESTS}, {"problem": replace(TESTS, appended=False)}),
    "test module": ({"problem": TESTS}, {"problem": replace(TESTS, test_module="t.py")}),
    "what the prompt defines": (
        {"problem": replace(TESTS, prompt='def f():\n    """x"""\n')},
        {"problem": replace(TESTS, prompt='def g():\n    return 1\n\n\ndef f():\n    """x"""\n')},
    ),
    "what the prompt calls a class": (
        {"problem": replace(TESTS, prompt="def F():\n    pass\n")},
        {"problem": replace(TESTS, prompt="class F:\n    pass\n")},
    ),
    "a set and what tells of one": (
        {"problem": cased(CALLS, expected={1})},
        {"problem": cased(CALLS, expected=identity._ordered({1}))},
    ),
    "language": ({}, {"name": COMPILED or "python", "text": "print(1)" if COMPILED else "print(2)"}),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_each_ingredient_changes_the_key(what: str) -> None:
    first, second = (key(**told) for told in DIFFERENT[what])
    assert first is not None
    assert second is not None
    assert first != second
    assert first == key(**DIFFERENT[what][0])


def test_no_two_of_all_these_share_a_key() -> None:
    told = [side for pair in DIFFERENT.values() for side in pair]
    provenances = [provenance(**side) for side in told]
    by_key: dict[bytes | None, Provenance] = {}
    for found in provenances:
        assert by_key.setdefault(found.key(), found) == found
    assert len(by_key) > len(DIFFERENT)


@pytest.mark.parametrize("name", [f.name for f in fields(Limits)])
def test_each_limit_changes_the_key(name: str) -> None:
    before = getattr(Limits(), name)
    assert key(limits={name: 20 if before is None else before + 1}) != key()


@pytest.mark.parametrize("name", [f.name for f in fields(Provenance)])
def test_each_part_of_a_provenance_changes_the_key_and_is_told(name: str) -> None:
    found = provenance()
    value = getattr(found, name)
    other = Limits(cpu_s=77) if name == "limits" else not value if name == "warm" else "other"
    changed = replace(found, **{name: other})
    assert changed.key() != found.key()
    assert changed.to_json() != found.to_json()


@given(st.binary(max_size=6), st.binary(max_size=6), st.binary(max_size=6), st.binary(max_size=6))
def test_no_two_problems_share_a_key(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    one, two = (Problem(id="x", mode="stdio", cases=(TestCase(stdin=i, expected=o),)) for i, o in ((a, b), (c, d)))
    assert (key(one) == key(two)) == ((a, b) == (c, d))


def test_what_a_reward_does_not_depend_on_changes_nothing() -> None:
    same = replace(PROBLEM, id="b", notes=("n",), metadata={"x": 1}, source="f:1", reference_solution="s", prompt="p")
    assert key(same) == key()
    assert key(reward="all_or_nothing", extract="whole") == key()
    assert key(reward=lambda grade: 0.5) == key()
    assert key(text="```python\nprint(1)\n```", extract="last-valid-block") == key(text="print(1)\n")
    assert key(files={"a": "1"}) == key(files={"a": b"1"})


def test_a_set_of_cases_means_the_same_in_every_process() -> None:
    """The order of a set of strings hangs on the process's hash seed; what is sent must be told all the same."""
    import subprocess
    import sys

    code = (
        "from test_identity import *\n"
        "print(key(cased(CALLS, expected={'a', 'b', 'c', 'dd'}, args=(frozenset('xyz'), {'q', 'r'}))).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    "told",
    [{"checker": lambda out, want, given: True}, {"engine": Engine(image=None)}, {"engine": Engine(isolation=None)}],
)
def test_what_is_not_known_by_content_has_no_key(told: dict[str, Any]) -> None:
    assert key(**told) is None


def test_the_runners_version_is_the_packages() -> None:
    import tomllib
    from pathlib import Path

    about = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert about["project"]["version"] == runner.VERSION
    assert f"{runner.VERSION}-{runner.REVISION}" == runner.RUNNER
    assert provenance().runner == runner.RUNNER
