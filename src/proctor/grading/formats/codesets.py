"""HumanEval and MBPP (and evalplus' releases of them): Python functions with asserts.

Where every assert is plain (see ``asserts``) the problem becomes function
cases; otherwise its test source is run whole, as unit tests.
"""

from __future__ import annotations

from typing import Any

from proctor.grading.formats import asserts
from proctor.grading.formats.common import LIMIT_KEYS, built, id_of, limits_of, rest
from proctor.grading.formats.rows import Row
from proctor.grading.problem import CheckerSpec, Problem

HUMANEVAL_KEYS = (
    "task_id", "prompt", "canonical_solution", "test", "entry_point", "base_input", "plus_input", "atol", "contract",
    *LIMIT_KEYS,
)  # fmt: skip
MBPP_KEYS = (
    "task_id", "text", "prompt", "code", "test_list", "test_setup_code", "test_imports", "challenge_test_list",
    "source_file", "test", "entry_point", "canonical_solution", *LIMIT_KEYS,
)  # fmt: skip


def read_humaneval(row: Row) -> Problem:
    """A problem whose completion continues ``prompt``.

    Its preamble is what the prompt has before the entry point: the imports
    and helper functions with which upstream runs every completion.
    """
    row.names(HUMANEVAL_KEYS, strict=False)
    entry, prompt, test = row.need("entry_point"), row.need("prompt"), row.need("test")
    runs_itself = any(line.startswith("check(") for line in test.splitlines())
    code = test if runs_itself else f"{test.rstrip()}\n\ncheck({entry})\n"
    before, found, _ = prompt.partition(f"def {entry}(")
    at_start = found and (not before or before.endswith("\n"))
    return _either(
        row,
        asserts.cases_of(code, [entry], check=entry),
        code,
        id=id_of(row),
        entry_point=entry,
        prompt=prompt,
        preamble=before if at_start and before.strip() else "",
        reference_solution=_continued(prompt, row.text("canonical_solution")),
        metadata=rest(row, *HUMANEVAL_KEYS[:5], *LIMIT_KEYS),
    )


def _continued(prompt: str, solution: str | None) -> str | None:
    return prompt + solution if solution is not None else None


def read_mbpp(row: Row) -> Problem:
    """A problem with a list of asserts; ``test_setup_code`` and ``test_imports`` are put before the tests."""
    row.names(MBPP_KEYS, strict=False)
    lines = row.items("test_list")
    if not lines or not all(isinstance(line, str) for line in lines):
        row.fail("test_list", "a list of asserts is expected, with at least one")
    tests = row.text("test") or "\n".join(lines) + "\n"
    reference = row.text("code") or row.text("canonical_solution")
    entry = row.text("entry_point") or asserts.first_call("\n".join(lines))
    if entry is None:
        row.fail("test_list", "no assert calls a function; give entry_point")
    setup = _setup(row)
    names = list(dict.fromkeys([entry, *asserts.defined(reference or "")]))
    # Set-up that defines more than imports belongs to the tests' own namespace, so such tests run as they are.
    plain = all(line.startswith(("import ", "from ")) or not line.strip() for line in setup.splitlines())
    return _either(
        row,
        asserts.cases_of(tests, names) if plain else None,
        setup + tests,
        id=id_of(row),
        entry_point=entry,
        preamble=setup if plain else "",
        reference_solution=reference,
        metadata=rest(row, "task_id", "code", "test_list", "test", "test_setup_code", "test_imports", *LIMIT_KEYS),
    )


def _setup(row: Row) -> str:
    parts = [line for line in row.items("test_imports") if isinstance(line, str)]
    parts += [row.text("test_setup_code") or ""]
    return "".join(f"{part.rstrip()}\n" for part in parts if part.strip())


def _either(row: Row, cases: Any, tests: str, **fields: Any) -> Problem:
    if cases is None:
        # Appended tests bring their own set-up.
        fields["preamble"] = fields["preamble"] if fields.get("prompt") else ""
    return built(
        row,
        mode="unit_tests" if cases is None else "function",
        cases=cases or (),
        test_code=tests,
        checker=CheckerSpec(kind="value"),
        **fields,
        **limits_of(row),
    )
