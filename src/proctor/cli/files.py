"""Files that a command line names: looked at before anything is done with them."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from proctor.cli.messages import explain_os
from proctor.core.errors import InputError


def check_readable(name: str) -> None:
    """Refuse what cannot be an input file, in words.

    Raises:
        InputError: it is missing, a directory, no regular file, or not readable.
    """
    try:
        mode = Path(name).stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{name}: is a directory; give a file")
        if not stat.S_ISREG(mode):
            raise InputError(f"{name}: is not a regular file; save it to one first (it is read twice)")
        with open(name, "rb"):
            pass
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(explain_os(error) if isinstance(error, OSError) else f"{name!r}: {error}") from error


def read_file(path: Path) -> bytes:
    """All of a file that a command line names; InputError where it cannot be read."""
    check_readable(str(path))
    try:
        return path.read_bytes()
    except OSError as error:
        error.filename = str(path)
        raise InputError(explain_os(error)) from error


def refuse_inputs(out: str | Path, inputs: Iterable[str | Path], field: str = "--out") -> None:
    """InputError where ``out`` is one of these files, by whatever name."""
    target = Path(out)
    for name in inputs:
        if target.exists() and Path(name).exists() and target.samefile(name):
            raise InputError(f"{out} is an input too; give another file", field=field)
