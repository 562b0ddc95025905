"""``proctor report``: a results file as one HTML page."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from proctor.cli.messages import explain_os, say
from proctor.core.errors import InputError


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option(
    "--out", default=None, metavar="FILE", show_default="RESULTS with .html", help="The page; - for standard output."
)
@click.option(
    "--problems", multiple=True, metavar="FILE", help="The problems that were scored, where RESULTS does not say."
)
@click.option(
    "--completions", multiple=True, metavar="FILE", help="The completions that were scored, where RESULTS does not say."
)
def report(results: str, out: str | None, problems: tuple[str, ...], completions: tuple[str, ...]) -> None:
    """Write RESULTS, a file that `proctor score` wrote, as one HTML page.

    Pass rates by problem and model, verdicts, time and memory against their
    limits, the slowest and the most suspicious samples with their code. The
    page is one file and makes no request. Needs pip install 'proctor[report]'.

    \b
    Exit codes: 0 written; 1 it could not be written; 2 bad input.
    """
    from proctor.cli.audited import load_audited

    try:
        from proctor.report.page import render
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("jinja2", "markupsafe", "pygments"):
            raise
        raise InputError(f"{error.name} is not installed, which reports need: pip install 'proctor[report]'") from None
    target = Path(out) if out is not None else Path(results).with_suffix(".html")
    audited = load_audited(results, problems, completions)
    if not audited.samples:
        raise InputError(f"{results}: holds no line yet; give a file that proctor score wrote")
    if out != "-":
        for kept in (results, *problems, *completions):
            if target.exists() and Path(kept).exists() and target.samefile(kept):
                raise InputError(f"{target} is an input too; give another file", field="--out")
    page = render(audited.samples, title=Path(results).name, about=audited.about).encode("utf-8")
    if out == "-":
        sys.stdout.buffer.write(page)
        return
    _write(target, page)
    say(f"{len(audited.samples)} samples, {len(page) / 1e6:.1f} MB, written to {target}")


def _write(target: Path, page: bytes) -> None:
    """All of it or nothing.

    Raises:
        InputError: there is no such folder, or it may not be written.
    """
    if target.exists() and not target.is_file():  # /dev/null, a pipe
        target.write_bytes(page)
        return
    try:
        number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        error.filename = str(target)
        raise InputError(explain_os(error), field="--out") from None
    try:
        with open(number, "wb") as file:
            file.write(page)
        Path(name).chmod(0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
