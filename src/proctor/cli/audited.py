"""A results file, its inputs and the audit of each sample, as ``audit`` and ``report`` use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proctor.cli.results import load_results
from proctor.core.errors import InputError
from proctor.grading.audit import Audit, audit_row
from proctor.grading.extract import extract_code

if TYPE_CHECKING:
    from proctor.grading.completions import Completion
    from proctor.grading.problem import Problem


@dataclass(frozen=True, slots=True)
class Sample:
    """A line of a results file with what it is about; ``code`` is None where the completion held none."""

    row: dict[str, Any]
    problem: Problem
    completion: Completion
    code: str | None
    audit: Audit


@dataclass(frozen=True, slots=True)
class Audited:
    """All samples that are done, in input order, and the policy that they were scored by."""

    samples: list[Sample]
    reward: str


def load_audited(name: str, problems: Sequence[str], completions: Sequence[str]) -> Audited:
    """Read a results file and its inputs, and audit every line.

    Raises:
        InputError: a file is missing, or results and inputs do not belong together.
    """
    results = load_results(name)
    work = results.work(problems, completions)
    samples = []
    for number, row in enumerate(results.lines, 1):
        index = row["index"]
        if type(index) is not int or not 0 <= index < len(work.completions):
            raise InputError(
                f"{index!r} is not among the {len(work.completions)} completions; give the files that were scored",
                where=f"{name}:{number}",
                field="index",
            )
        completion = work.completions[index]
        problem = work.problems[completion.problem_id]
        language = completion.language or problem.language
        code = extract_code(completion.text, language, work.options.extract, prompt=problem.prompt)
        samples.append(Sample(row, problem, completion, code, audit_row(row, code, problem, language)))
    return Audited(samples, work.options.reward)
