"""A results file read back, together with what it was made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.cli.messages import say
from proctor.core.errors import InputError

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
                raise InputError(f"{self.path} does not say what it was made from; give --{name}", field=f"--{name}")
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
    journal = path.with_name(path.name + ".journal")
    about: dict[str, Any] | None = None
    waiting: list[tuple[int, str]] = []
    if journal.is_file():
        first, *rest = journal.read_text("utf-8", "replace").split("\n")
        try:
            about = dict(json.loads(first))
        except (ValueError, TypeError):
            about = None
        for row in rest[:-1]:
            number, tab, text = row.partition("\t")
            if tab and number.isdigit():
                waiting.append((int(number), text))
    if path.is_file():
        data = path.read_bytes()
        rows = list(enumerate(data.decode("utf-8", "replace").splitlines()))
        if about and about.get("done") is True and about.get("sha256") != hashlib.sha256(data).hexdigest():
            say(f"warning: {name} was changed since proctor score wrote it")
    elif waiting:
        say(f"{name} is not finished: these are the {len(waiting)} completions that are done so far")
        rows = sorted(waiting)
    else:
        raise InputError(f"{name}: no such file; give a file that proctor score wrote")
    return Results(path, [_line(text, f"{name}:{number + 1}") for number, text in rows if text.strip()], about)


def _line(text: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError as exc:
        raise InputError(f"is not JSON: {exc}; give a file that proctor score wrote", where=where) from None
    missing = [
        key for key in ("problem_id", "index", "verdict", "cases") if not isinstance(row, dict) or key not in row
    ]
    if missing:
        raise InputError("missing; give a file that proctor score wrote", where=where, field=missing[0])
    return dict(row)
