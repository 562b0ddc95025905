"""Reads a corpus of attacks: ``manifest.jsonl``, ``tasks.json`` and the programs that they name.

A row of the manifest says what a program tries, how it is graded, and ``what a
sound system must show``: ``status`` (any of these words for each case),
``score``, and ``host_after`` in words. A row may also hold, for this harness
to check: under the same key ``stdout`` and ``stdout_not`` (regular expressions
on what it wrote) and ``died`` (one on how it ended, in the words of the
report), and ``protection`` (keys of ``proctor doctor``'s own table that it
hangs on).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.core.errors import InputError

MODES = ("stdio", "function", "unit_tests")
MUST = "what a sound system must show"
LANGUAGES = {"python": "python", "c": "c", "c++": "cpp", "bash": "bash", "markdown completion": "python"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One program of the corpus.

    Attributes:
        file: its path below the corpus' folder; ``stem`` is its bare name.
        kind: the manifest's ``class``.
        statuses: words, any of which is right for a case.
        score: 0 or 1, or a rule in words.
        must: the whole of ``what a sound system must show``.
        language: canonical; ``completion`` says that it is a model's answer.
        extra: the row as it stands.
    """

    file: str
    kind: str
    tries: str
    mode: str
    core: bool
    language: str
    completion: bool
    statuses: frozenset[str]
    score: float | str
    must: Mapping[str, Any]
    extra: Mapping[str, Any]
    source: str

    @property
    def stem(self) -> str:
        return Path(self.file).stem

    @property
    def control(self) -> bool:
        return self.kind == "control"

    def says(self, name: str) -> str:
        """A field of the row as text, empty where it has none."""
        return str(self.extra.get(name, ""))


@dataclass(frozen=True, slots=True)
class Corpus:
    """A folder of attacks, read."""

    folder: Path
    rows: tuple[Row, ...]
    tasks: Mapping[str, Any]


def load(folder: Path) -> Corpus:
    """Reads a corpus.

    Raises:
        InputError: a file is missing or is not what it should be; says which, with line and field.
    """
    tasks = _json(_read(folder / "tasks.json"), "tasks.json")
    rows: list[Row] = []
    for number, line in enumerate(_read(folder / "manifest.jsonl").splitlines(), 1):
        if line.strip():
            where = f"manifest.jsonl:{number}"
            rows.append(_row(folder, _json(line, where), where))
    if not rows:
        raise InputError("holds no row", where=str(folder / "manifest.jsonl"))
    for mode in {row.mode for row in rows}:
        if not isinstance(tasks.get(mode), dict):
            raise InputError(f"holds no task for mode {mode}", where="tasks.json", field=mode)
    return Corpus(folder, tuple(rows), tasks)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(
            "there is no such file; a corpus holds manifest.jsonl and tasks.json", where=str(path)
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=where) from error
    if not isinstance(found, dict):
        raise InputError("is not a JSON object", where=where)
    return found


def _row(folder: Path, raw: dict[str, Any], where: str) -> Row:
    def field(name: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        value = raw.get(name, default)
        if not isinstance(value, kinds):
            raise InputError("is missing" if value is None else f"{value!r} is not usable", where=where, field=name)
        return value

    must = field(MUST, dict)
    statuses, score = must.get("status"), must.get("score")
    if not isinstance(statuses, list) or not all(isinstance(word, str) for word in statuses):
        raise InputError("is not a list of words", where=where, field="status")
    if isinstance(score, bool) or not isinstance(score, int | float | str):
        raise InputError("is neither a number nor words", where=where, field="score")
    mode, lang = field("mode", str), field("lang", str, "python")
    if mode not in MODES:
        raise InputError(f"{mode!r} is not one of {', '.join(MODES)}", where=where, field="mode")
    if lang not in LANGUAGES:
        raise InputError(f"{lang!r} is not one of {', '.join(LANGUAGES)}", where=where, field="lang")
    for name in ("stdout", "stdout_not", "died"):
        try:
            re.compile(must.get(name, ""))
        except (re.error, TypeError) as error:
            raise InputError(f"is no regular expression: {error}", where=where, field=name) from error
    file = field("file", str)
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{file!r} is outside the corpus", where=where, field="file")
    try:
        source = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InputError(f"{file!r} cannot be read: {error.strerror}", where=where, field="file") from error
    return Row(
        file=file,
        kind=field("class", str),
        tries=field("what it tries", str, ""),
        mode=mode,
        core=bool(raw.get("core", True)),
        language=LANGUAGES[lang],
        completion="completion" in lang,
        statuses=frozenset(statuses),
        score=score,
        must=must,
        extra=raw,
        source=source,
    )
