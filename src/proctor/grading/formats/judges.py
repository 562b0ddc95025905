"""Checker programs and interactors in problem files, and the files that they name beside the problem file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.core.limits import Limits
from proctor.grading.formats.common import language_of
from proctor.grading.formats.rows import Row, kind_of
from proctor.grading.problem import CheckerProgram

JUDGE_KEYS = ("source", "source_file", "language", "protocol", "flags", "extra_files", "needs", "limits", "points")
MAX_FILE = 8 << 20  # bytes of one file beside the problem file; testlib.h has 200 thousand


def read_judge(row: Row, base: Path | None) -> CheckerProgram:
    """The program of a ``checker`` or ``interactor`` object.

    Args:
        row: that object.
        base: the problem file's folder; None: the rows come from no file.
    """
    if not row.has("source", "source_file"):
        row.fail("source", "missing; give the program's text, or as 'source_file' a file beside the problem file")
    if row.has("source") and row.has("source_file"):
        row.fail("source_file", "there is a 'source' too; leave one of them out")
    source = row.text("source") or ""
    if named := row.text("source_file"):
        source = _beside(row, base, "source_file", named).decode("utf-8", "surrogateescape")
    if not source.strip():
        row.fail("source", "it is empty")
    needs = row.first("needs") or ()
    needs = (needs,) if isinstance(needs, str) else tuple(map(str, needs))
    files = read_files(row, "extra_files")
    flags = row.items("flags")
    if not all(isinstance(flag, str) for flag in flags):
        row.fail("flags", "a list of strings is expected")
    found = row.check(
        lambda: CheckerProgram(
            source=source,
            language=language_of(row),
            protocol=row.text("protocol"),
            flags=tuple(flags),
            extra_files=files,
            needs=needs,
            limits=_limits(row),
            points=1.0 if row.data.get("points") is None else row.data["points"],
        )
    )
    for need in found.missing:
        name = need.rpartition("/")[2]
        if place := _found(row, base, need) or _found(row, base, name):
            files[name] = _beside(row, base, "needs", place)
    return replace(found, extra_files=files)


def _limits(row: Row) -> Limits | None:
    given = row.mapping("limits")
    return Limits(cpu_s=10, memory_mib=512).with_(**given) if given else None


def _found(row: Row, base: Path | None, name: str) -> str | None:
    """The name, where it is that of a file beside the problem file."""
    read_path(row, "needs", name)
    return name if base is not None and (base / name).is_file() else None


def _beside(row: Row, base: Path | None, field: str, name: str) -> bytes:
    """A file below the problem file's folder; a problem file names no other, through links or not."""
    read_path(row, field, name)
    if base is None:
        row.fail(field, f"{name!r} is looked for beside a problem file, and these rows come from none; give its text")
    path = base / name
    try:
        if not path.resolve(strict=True).is_relative_to(base.resolve()):
            row.fail(field, f"{name!r} leads out of the problem file's folder")
        if path.stat().st_size > MAX_FILE or not path.is_file():
            row.fail(field, f"{name!r} is no file of at most {MAX_FILE >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        row.fail(field, f"{str(path)!r} cannot be read: {error.strerror or error}")


def read_files(row: Row, name: str) -> dict[str, str | bytes]:
    """An object of texts by plain relative path."""
    files: Mapping[str, Any] = row.mapping(name)
    for path, text in files.items():
        read_path(row, name, path)
        if not isinstance(text, str | bytes):
            row.fail(f"{name}[{path!r}]", f"a string is expected, not {kind_of(text)}")
    return dict(files)


def read_path(row: Row, name: str, path: str) -> str:
    """A plain relative path."""
    if "\0" in path or len(path) > 1024 or any(part in ("", ".", "..") for part in path.split("/")):
        row.fail(name, f"{path!r} is not a plain relative path")
    return path
