"""A results file read back, together with what it was made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.cli.files import read_file
from proctor.cli.messages import say
from proctor.cli.records import read_record
from proctor.cli.render import escape_line
from proctor.core.errors import InputError
from proctor.core.verdict import Verdict

if TYPE_CHECKING:
    from proctor.cli.work import Options, Work

INPUTS = ("problems", "completions")


@dataclass(frozen=True, slots=True)
class Results:
    """The lines of a results file and the header that ``score`` left beside it.

    Attributes:
        path: the file.
        lines: one JSON object a completion, in input order.
        about: inputs, digests and options; None where there is no header.
    """

    path: Path
    lines: list[dict[str, Any]]
    about: Mapping[str, Any] | None

    def options(self) -> Options:
        """The options that the file was made with; the defaults where there is no header."""
        from proctor.cli.work import Options

        told = self.about or {}
        known = {f.name for f in fields(Options)} - {"packages"}
        kept = {name: told[flag] for name in known if (flag := f"--{name.replace('_', '-')}") in told}
        return Options(**kept, packages=tuple(told.get("--package", ())))

    def work(self, problems: Sequence[str] = (), completions: Sequence[str] = ()) -> Work:
        """Problems and completions as ``score`` read them.

        Args:
            problems, completions: files to read instead of those in the header.

        Raises:
            InputError: the files are unknown, gone, or not those that were scored.
        """
        from proctor.cli.journal import digest_file
        from proctor.cli.work import judges_digest, load_work

        files: dict[str, list[str]] = {}
        for name, given in zip(INPUTS, (problems, completions), strict=True):
            kept = ((self.about or {}).get("inputs") or {}).get(name) or []
            files[name] = list(given or kept)
            if not files[name]:
                raise InputError(
                    f"what {self.path} was made from is said in {self.path}.journal, which is not beside it; "
                    f"put it there, or give --{name}",
                    field=f"--{name}",
                )
            wanted = (self.about or {}).get(f"--{name}")
            for file in files[name]:
                if not Path(file).is_file():
                    raise InputError(f"{file}: no such file; give --{name}", field=f"--{name}")
            if wanted is not None and [digest_file(Path(file)) for file in files[name]] != wanted:
                raise InputError(
                    f"{', '.join(files[name])}: not what {self.path} was made from; give the files that were scored",
                    field=f"--{name}",
                )
        work = load_work(files["problems"], files["completions"], self.options())
        if self.about and self.about.get("judges") != judges_digest(work.problems):
            raise InputError(
                f"a checker or interactor is not what {self.path} was made with; restore it, or score again",
                field="--problems",
            )
        return work


def load_results(name: str) -> Results:
    """Read a results file, finished or still under way.

    Raises:
        InputError: there is no such file, or a line is not of its kind.
    """
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{name!r} is a directory; give a file of results")
    journal = path.with_name(path.name + ".journal")
    about: dict[str, Any] | None = None
    waiting: list[tuple[int, str]] = []
    if journal.is_file():
        first, *rest = read_file(journal).split(b"\n")
        try:
            about = dict(json.loads(first))
        except (ValueError, TypeError):
            about = None
        read = [read_record(row + b"\n") for row in rest[:-1]]
        waiting = [(record.number, record.text.decode("utf-8", "replace")) for record in read if record is not None]
        if len(waiting) < len(read):
            say(f"warning: {len(read) - len(waiting)} of {len(read)} lines of {journal} left out, damaged or changed")
    if path.exists() or not waiting:
        data = read_file(path)
        rows = list(enumerate(data.decode("utf-8", "replace").splitlines()))
        if about and about.get("done") is True and about.get("sha256") != hashlib.sha256(data).hexdigest():
            say(f"warning: {name} was changed since proctor score wrote it")
    else:
        say(f"{name} is not finished: these are the {len(waiting)} completions that are done so far")
        rows = sorted(dict(waiting).items())
    return Results(path, [_line(text, f"{name}:{number + 1}") for number, text in rows if text.strip()], about)


def _line(text: str, where: str) -> dict[str, Any]:
    hint = "give a file that proctor score wrote"
    try:
        row = json.loads(text)
    except json.JSONDecodeError as exc:
        raise InputError(f"not JSON: {exc.msg} (column {exc.colno}); {hint}", where=where) from None
    except (ValueError, RecursionError) as exc:
        raise InputError(f"not JSON: {exc}; {hint}", where=where) from None
    if not isinstance(row, dict):
        raise InputError(f"an object is expected; {hint}", where=where)
    for key, fits in _KEYS.items():
        if key not in row:
            raise InputError(f"missing; {hint}", where=where, field=key)
        if not fits(row[key]):
            raise InputError(
                f"{escape_line(repr(row[key]), 60)} is none that proctor score writes; {hint}", where=where, field=key
            )
    return row


def _are_cases(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(case, dict) and _is_verdict(case.get("verdict")) for case in value
    )


def _is_verdict(value: object) -> bool:
    return isinstance(value, str) and value in _VERDICTS


_VERDICTS = frozenset(verdict.value for verdict in Verdict)
_KEYS: dict[str, Callable[[object], bool]] = {
    "problem_id": lambda value: isinstance(value, str),
    "index": lambda value: type(value) is int and value >= 0,
    "reward": lambda value: value is None or type(value) in (int, float),
    "verdict": _is_verdict,
    "cases": _are_cases,
}
