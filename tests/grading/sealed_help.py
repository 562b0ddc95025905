"""Runs one program with unit tests."""

from __future__ import annotations

from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.api import grade
from proctor.grading.grades import Grade
from proctor.grading.problem import Problem


def run(
    engine: SyncEngine,
    program: str,
    tests: str,
    *,
    module: bool = False,
    file: str = "solution.py",
    test_file: str = "tests.py",
    policy: str = "share",
    **fields: object,
) -> Grade:
    """Its grade; ``module``: the tests are a module of their own, and import the program from ``file``."""
    problem = Problem(
        id="p", mode="unit_tests", test_code=tests, appended=not module, test_module=test_file if module else None,
        time_limit_s=2, module=file, **fields,
    )  # fmt: skip
    (found,) = grade([program], problem, engine=engine, extract="whole", reward=policy)
    return found


def decided(engine: SyncEngine, right: str, wrong: str, tests: str) -> None:
    """The right program passes by no claim of its own, and the wrong one earns nothing."""
    passes(engine, right, tests)
    assert run(engine, wrong, tests).reward == 0.0


def passes(engine: SyncEngine, program: str, tests: str, **options: object) -> Grade:
    """The grade of a program that passes all tests by no claim of its own."""
    found = run(engine, program, tests, **options)
    assert found.verdict is Verdict.ACCEPTED, found.cases
    assert not found.claimed, found.claim
    return found
