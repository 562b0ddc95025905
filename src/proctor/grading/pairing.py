"""Pair completions with their problems, in any of the forms that trainers hand them over."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from proctor.core.errors import InputError
from proctor.grading.completions import NO_ANSWER, NOTHING
from proctor.grading.formats import problems_from_rows
from proctor.grading.keys import READ_KEYS, look_over
from proctor.grading.problem import Problem

log = logging.getLogger("proctor")
_READ = frozenset(READ_KEYS)

Completion = Any
"""A string; a chat (list of messages); an object or dict with ``text`` or ``completion`` and perhaps ``problem_id``."""
Row = Problem | Mapping[str, Any]
"""A Problem, or a row of a data set that ``problems_from_rows`` reads."""
Problems = Row | Sequence[Row] | Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Item:
    """One completion and its problem.

    Attributes:
        text: as the policy wrote it.
        problem: what it answers.
        language: what it is written in.
        extra_files: relative path -> content that it brings along.
    """

    text: str
    problem: Problem
    language: str
    extra_files: Mapping[str, str | bytes] = field(default_factory=dict)


def pair_up(completions: Iterable[Completion], problems: Problems) -> list[Item]:
    """An Item for each completion.

    Raises:
        InputError: an unknown or missing ``problem_id``, lists of different
            lengths, or a completion without a text.
    """
    if isinstance(completions, str | bytes | Mapping):
        raise InputError("give a list of completions, not one", field="completions")
    rows = list(completions)
    said: set[str] = set()
    for index, row in enumerate(rows):
        if isinstance(row, Mapping) and not row.keys() <= _READ:
            look_over(row, f"completions[{index}]", said, log.warning)
    made: dict[int, Problem] = {}
    if isinstance(problems, str | PathLike):  # refused as a whole, not by its letters
        _problem(problems, made)
    if isinstance(problems, Problem) or (isinstance(problems, Mapping) and not _by_id(problems)):
        one = _problem(problems, made)
        return [_item(row, one, index) for index, row in enumerate(rows)]
    by_id: Mapping[str, Problem]
    aligned: list[Problem] | None
    if isinstance(problems, Mapping):
        by_id, aligned = {name: _problem(row, made) for name, row in problems.items()}, None
    else:
        aligned = [_problem(row, made) for row in problems]
        by_id = {problem.id: problem for problem in aligned}
    pairs = []
    for index, row in enumerate(rows):
        name = row.get("problem_id") if isinstance(row, Mapping) else getattr(row, "problem_id", None)
        if name is not None and aligned and len(aligned) == len(rows) and aligned[index].id == name:
            problem = aligned[index]
        elif name is not None and name in by_id:
            problem = by_id[name]
        elif name is not None:
            raise InputError(f"no problem has the id {name!r}", where=f"completions[{index}]", field="problem_id")
        elif aligned is None:
            raise InputError(
                "missing, and the problems are a mapping", where=f"completions[{index}]", field="problem_id"
            )
        elif len(aligned) != len(rows):
            message = f"{len(rows)} completions and {len(aligned)} problems; give one each, or completions with an id"
            raise InputError(message, field="problems")
        else:
            problem = aligned[index]
        pairs.append(_item(row, problem, index))
    return pairs


def _by_id(problems: Mapping[str, Any]) -> bool:
    """A mapping of ids to problems, not the row of one problem."""
    return all(isinstance(value, Problem | Mapping) for value in problems.values())


def _problem(row: Any, made: dict[int, Problem]) -> Problem:
    """A Problem, made once for each row object where it is still a row of a data set."""
    if isinstance(row, Problem):
        return row
    if id(row) not in made:
        if not isinstance(row, Mapping):
            name = repr(row[:60]) if isinstance(row, str) else type(row).__name__
            said = f"{name} is neither a Problem nor a row of a data set (a dict)"
            fix = "; for a file: proctor.load_problems(PATH)" if isinstance(row, str | PathLike) else ""
            raise InputError(said + fix, field="problems")
        made[id(row)] = problems_from_rows([row])[0]
    return made[id(row)]


def _item(row: Completion, problem: Problem, index: int) -> Item:
    def told(name: str, default: Any) -> Any:
        value = row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
        return default if value is None else value

    return Item(completion_text(row, index), problem, told("language", problem.language), told("extra_files", {}))


def completion_text(row: Completion, index: int = 0) -> str:
    """The text of a completion in any of the forms that trainers hand over; InputError where it is none of them."""
    where = f"completions[{index}]"
    if row is None:
        raise InputError(NOTHING, where=where)
    if isinstance(row, Mapping) and ("completion" in row or "text" in row):
        row = row["completion"] if "completion" in row else row["text"]
    elif not isinstance(row, str | Sequence | Mapping):
        row = getattr(row, "text", getattr(row, "completion", row))
    if row is None:
        raise InputError(NOTHING, where=where, field="completion")
    if isinstance(row, str):
        return row
    if isinstance(row, Mapping) and "content" in row:
        row = [row]
    if isinstance(row, Sequence) and not isinstance(row, bytes) and all(isinstance(part, Mapping) for part in row):
        messages = [part for part in row if part.get("role", "assistant") == "assistant"]
        if not messages:
            raise InputError(NO_ANSWER, where=where, field="completion")
        content = messages[-1].get("content")
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        if isinstance(content, Sequence):
            texts = [part.get("text") for part in content if isinstance(part, Mapping)]
            return "".join(text for text in texts if isinstance(text, str))
    raise InputError("is no text, no chat and no object with a completion", where=where, field="completion")
