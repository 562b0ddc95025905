"""What all programs for one problem share: made once, by ``grade.Grader``."""

from __future__ import annotations

from dataclasses import dataclass, field

from proctor.core.limits import Limits
from proctor.engine.languages import Language
from proctor.grading.checkers import AnyChecker
from proctor.grading.named import Named
from proctor.grading.problem import Problem, TestCase
from proctor.grading.sealed import Sealing
from proctor.grading.special import Special
from proctor.grading.values import Tolerance


@dataclass(frozen=True, slots=True)
class Plan:
    """How a problem is run and judged, in one language.

    Attributes:
        problem: as it was read.
        row: the language.
        limits: of each case, or each call.
        checker: for printed text; a program that judges, or talks, where there is one.
        tolerance: for values.
        cases: the problem's, with expected values in plain types, the held-out ones last.
        rounds: function mode: index of the first call of each process.
        tests: unit tests: what the source names.
        sealing: unit tests: how they run apart from the program; None where they cannot.
        unsealed: why they cannot.
        held_out: how many of the cases are.
    """

    problem: Problem
    row: Language
    limits: Limits
    checker: AnyChecker | Special
    tolerance: Tolerance
    cases: tuple[TestCase, ...]
    rounds: tuple[int, ...] = (0,)
    tests: Named = field(default_factory=Named)
    sealing: Sealing | None = None
    unsealed: str = ""
    held_out: int = 0
