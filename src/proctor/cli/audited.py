"""A results file, its inputs and the audit of each sample, as ``audit`` and ``report`` use them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.cli.messages import is_terminal
from proctor.cli.render import console
from proctor.cli.results import load_results
from proctor.core.errors import InputError
from proctor.grading.asked import asked_of
from proctor.grading.audit import Sample, audit_row
from proctor.grading.extract import extract_code


@dataclass(frozen=True, slots=True)
class Audited:
    """All samples that are done, in input order, and the header that ``score`` left beside the results."""

    samples: list[Sample]
    about: Mapping[str, object]


def load_audited(name: str, problems: Sequence[str], completions: Sequence[str]) -> Audited:
    """Read a results file and its inputs, and audit every line.

    Raises:
        InputError: a file is missing, or results and inputs do not belong together.
    """
    from rich.progress import track

    results = load_results(name)
    work = results.work(problems, completions)
    samples = []
    shown = is_terminal(sys.stderr)
    lines = track(results.lines, "auditing", console=console(stderr=True), disable=not shown, transient=True)
    for number, row in enumerate(lines, 1):
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
        code = extract_code(
            completion.text, language, work.options.extract, prompt=problem.prompt, asked=asked_of(problem, language)
        )
        samples.append(Sample(row, problem, completion, code, audit_row(row, code, problem, language)))
    return Audited(samples, results.about or {})
