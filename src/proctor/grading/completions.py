"""What the policy wrote, from files: one completion each, numbered in file order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.core.errors import InputError
from proctor.grading.formats.common import language_of
from proctor.grading.formats.rows import Row, kind_of, read_rows
from proctor.grading.keys import ID_KEYS, LIST_KEYS, READ_KEYS, TEXT_KEYS, hint, look_over
from proctor.grading.problem import Problem

log = logging.getLogger("proctor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One text that the policy wrote for one problem.

    Attributes:
        problem_id: the problem that it answers.
        index: its position among all completions of the file, from 0.
        text: as it was written; the code is still to be extracted.
        language: what it is written in; None: the problem's language.
        extra_files: relative path -> content that it brings along.
        source: file and line where it was read.
        metadata: the row's other fields.
    """

    problem_id: str
    index: int
    text: str
    language: str | None = None
    extra_files: Mapping[str, str | bytes] = field(default_factory=dict)
    source: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


def load_completions(path: str | Path, *, say: Callable[[str], object] = log.warning) -> list[Completion]:
    """The completions of a file (JSONL or a JSON array, plain or gzipped), in its order.

    A row names its problem by ``problem_id`` or ``task_id`` and has one
    ``completion`` (or solution, response, text), as text or as a chat list, or
    a list of ``completions``. Other keys are kept as metadata; ``say`` is told
    once of each that looks like a slip of one that is read.

    Raises:
        InputError: an unreadable file or a row that does not fit, with file, line and field.
    """
    return _read(read_rows(path), say)


def completions_from_rows(rows: Iterable[Mapping[str, Any]]) -> list[Completion]:
    """The completions of rows; errors name rows counted from 1. Raises as load_completions."""
    return _read(((f"row {number}", row) for number, row in enumerate(rows, 1)), log.warning)


def _read(rows: Iterable[tuple[str, Any]], say: Callable[[str], object]) -> list[Completion]:
    found: list[Completion] = []
    said: set[str] = set()
    for where, data in rows:
        row = Row(data, where)
        look_over(row.data, where, said, say)
        name, language = _problem_id(row), language_of(row) if row.has("language") else None
        files = row.mapping("extra_files")
        for path, content in files.items():
            if not isinstance(content, str | bytes):
                row.fail(f"extra_files[{path!r}]", f"a string is expected, not {kind_of(content)}")
        other = {key: value for key, value in row.data.items() if key not in READ_KEYS}
        for text in _texts(row):
            found.append(
                Completion(
                    problem_id=name,
                    index=len(found),
                    text=text,
                    language=language,
                    extra_files=files,
                    source=where,
                    metadata=other,
                )
            )
    return found


def _problem_id(row: Row) -> str:
    value = row.first(*ID_KEYS)
    if value is None:
        row.fail("problem_id", f"missing; one of {', '.join(ID_KEYS)}{hint(row.data, ID_KEYS)}")
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        row.fail("problem_id", f"a non-empty string or a number is expected, not {value!r}")
    return str(value)


def _texts(row: Row) -> Iterator[str]:
    given = [key for key in (*TEXT_KEYS, *LIST_KEYS) if row.has(key)]
    if not given and (name := next((key for key in (*TEXT_KEYS, *LIST_KEYS) if key in row.data), None)):
        row.fail(name, NOTHING)
    if not given:
        keys = (*TEXT_KEYS, *LIST_KEYS)
        swapped = "; this looks like a problem: are the two files swapped?" if row.has("cases", "test_code") else ""
        row.fail("completion", f"missing; one of {', '.join(keys)}{swapped or hint(row.data, keys)}")
    # evalplus' raw files have solution beside completion: the whole program beside the part that the model wrote.
    if len(given) > 1 and given != ["completion", "solution"]:
        row.fail(given[1], f"ambiguous: {' and '.join(given)} both hold a completion; keep one")
    name = given[-1]
    value = row.data[name]
    if name in TEXT_KEYS:
        yield row.check(lambda: completion_text(value), name)
        return
    for position, item in enumerate(row.items(name)):
        yield row.check(lambda item=item: completion_text(item), f"{name}[{position}]")  # type: ignore[misc]


NOTHING = 'null: there is no completion to judge; leave the row out, or write "" where the model answered nothing'
NO_ANSWER = "the chat has no message of the assistant, so there is no completion to judge; leave the row out"


def completion_text(value: Any) -> str:
    """The text of a completion: a string, or a chat list whose last assistant message it is.

    Raises:
        ValueError: it is neither, or there is none: a sampler that failed is no answer that is worth 0.
    """
    if value is None:
        raise ValueError(NOTHING)
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        messages = [m for m in value if isinstance(m, Mapping) and "content" in m]
        if not messages or len(messages) < len(value):
            raise ValueError("a chat list holds messages, each with role and content, and at least one")
        own = [m for m in messages if m.get("role", "assistant") == "assistant"]
        if not own:
            raise ValueError(NO_ANSWER)
        return _content(own[-1]["content"])
    raise ValueError(f"a string or a chat list is expected, not {kind_of(value)}")


def _content(value: Any) -> str:
    if value is None:  # a message that only calls tools
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(part, Mapping) for part in value):
        return "".join(str(part.get("text") or "") for part in value if part.get("type", "text") == "text")
    raise ValueError(f"a message's content is a string or a list of parts, not {kind_of(value)}")


def pair(problems: Iterable[Problem], completions: Iterable[Completion]) -> list[tuple[Problem, Completion]]:
    """Each completion with its problem, in the completions' order.

    Raises:
        InputError: a completion names a problem that is not there; lists up to 5 such ids.
    """
    known = {problem.id: problem for problem in problems}
    completions = list(completions)
    strange = {c.problem_id: c.source for c in reversed(completions) if c.problem_id not in known}
    if strange:
        names = list(dict.fromkeys(c.problem_id for c in completions if c.problem_id in strange))
        shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        hint = f"; the problems have ids such as {next(iter(known))!r}" if known else "; there are no problems"
        raise InputError(f"no problem with id {shown}{hint}", where=strange[names[0]] or None, field="problem_id")
    return [(known[c.problem_id], c) for c in completions]
