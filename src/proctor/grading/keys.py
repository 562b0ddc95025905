"""Keys of a completion's row that are read, and what becomes of those that look like a slip of one.

Data sets of completions have columns of their own, so an unknown key is metadata. One that
looks like a slip of a key that decides how the completion runs is refused; of any other that
is read, said. Other names for the language are slips of ``language``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from proctor.core.errors import InputError

ID_KEYS = ("problem_id", "task_id", "question_id", "id")
TEXT_KEYS = ("completion", "solution", "response", "text", "code", "output", "generation")
LIST_KEYS = ("completions", "responses", "solutions", "outputs", "generations", "code_list")
RUN_KEYS = ("language", "extra_files")  # left out by a slip, another program would be judged
READ_KEYS = (*ID_KEYS, *TEXT_KEYS, *LIST_KEYS, *RUN_KEYS)
_NEAR = 0.85
# What others call it. A row that has ``language`` as well may mean anything by them.
_OTHER_NAMES = dict.fromkeys(
    (
        "lang", "langid", "langname", "languageid", "languagename", "programminglanguage", "programminglang", "proglang",
        "codelanguage", "codelang", "sourcelanguage", "solutionlanguage", "targetlanguage", "languageslug",
    ),
    "language",
)  # fmt: skip


@lru_cache(maxsize=4096)
def meant(key: str, known: tuple[str, ...] = READ_KEYS) -> str | None:
    """The key that an unknown one looks like a slip of; None: it is like none, or is known."""
    if key in READ_KEYS:
        return None
    bare = {re.sub(r"[^a-z]", "", name): name for name in known}
    word = re.sub(r"[^a-z]", "", key.lower())
    if _OTHER_NAMES.get(word) in known:
        return _OTHER_NAMES[word]
    near = get_close_matches(word, bare, 1, _NEAR)
    return bare[near[0]] if near else None


def look_over(row: Mapping[Any, Any], where: str, said: set[str], say: Callable[[str], object]) -> None:
    """Say, once for each key in ``said``, what looks like a slip.

    Raises:
        InputError: a key looks like a slip of one that decides how the completion runs.
    """
    for key, value in row.items():
        if not isinstance(key, str) or key in said or (near := meant(key)) is None:
            continue
        if near in RUN_KEYS:
            if re.sub(r"[^a-z]", "", key.lower()) in _OTHER_NAMES and (value is None or row.get(near) is not None):
                continue
            raise InputError(f"unknown key; did you mean {near!r}?", where=where, field=key)
        said.add(key)
        say(f"{where}: the key {key!r} is not read; did you mean {near!r}?")


def hint(keys: Iterable[object], known: tuple[str, ...]) -> str:
    """Words that name the key which looks like a slip of one of those that are missing; empty where none does."""
    for key in keys:
        if isinstance(key, str) and (near := meant(key, known)):
            return f"; there is {key!r}: did you mean {near!r}?"
    return ""
