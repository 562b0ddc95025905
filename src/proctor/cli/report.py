"""``proctor report``: a results file as one HTML page."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from proctor.cli.files import refuse_inputs
from proctor.cli.messages import explain_os, say
from proctor.cli.render import to_json
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
@click.option("--json", "as_json", is_flag=True, help="Print the page's figures as JSON on standard output; no page.")
@click.pass_context
def report(
    ctx: click.Context,
    results: str,
    out: str | None,
    problems: tuple[str, ...],
    completions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write RESULTS, a file that `proctor score` wrote, as one HTML page.

    Pass rates by problem and model, verdicts, time and memory against their
    limits, the slowest and the most suspicious samples with their code. The
    page is one file and makes no request. An existing file is replaced only where
    it is such a page. Needs jinja2 and pygments (the extra `report`); --json does not.

    \b
    Exit codes: 0 written; 1 it could not be written; 2 bad input.
    """
    from proctor.cli.audited import load_audited

    if as_json:
        if out is not None:
            raise click.UsageError("--json prints the figures and writes no page; leave --out out", ctx)
        from proctor.report.facts import facts

        found = load_audited(results, problems, completions)
        click.echo(to_json(facts(found.samples, suspicious=30, slowest=12, examples=0).to_json(), indent=2))
        return
    try:
        from proctor.report.page import render
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("jinja2", "markupsafe", "pygments"):
            raise
        raise InputError(
            f"{error.name} is not installed, which reports need: pip install jinja2 pygments (the extra `report`); "
            "--json needs neither"
        ) from None
    audited = load_audited(results, problems, completions)
    target = Path(out) if out is not None else Path(results).with_suffix(".html")
    if out != "-":
        refuse_inputs(target, [results, f"{results}.journal", *problems, *completions, *_noted(audited.about)])
        _check_target(target)
    if not audited.samples:
        raise InputError(f"{results}: holds no line yet; give a file that proctor score wrote")
    page = render(audited.samples, title=Path(results).name, about=audited.about).encode("utf-8")
    if out == "-":
        try:
            sys.stdout.buffer.write(page)
        except BrokenPipeError:
            raise
        except OSError as error:
            error.filename = "standard output"
            raise
        return
    _write(target, page)
    say(f"{len(audited.samples)} samples, {len(page) / 1e6:.1f} MB, written to {target}")


def _noted(about: Mapping[str, object]) -> list[str]:
    """The inputs that ``score`` noted beside the results."""
    inputs = about.get("inputs")
    lists = inputs.values() if isinstance(inputs, Mapping) else ()
    return [name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)]


def _check_target(target: Path) -> None:
    """InputError where the page would take the place of a file that is no report: nobody means that."""
    if target.is_dir():
        raise InputError(f"{target}: is a directory; give a file", field="--out")
    if not target.is_file():
        return
    try:
        with target.open("rb") as file:
            start = file.read(_HEAD)
    except OSError as error:
        raise InputError(explain_os(error), field="--out") from None
    if start and _MARK not in start:
        raise InputError(f"{target} exists and is no report; remove it, or give another file", field="--out")


_HEAD, _MARK = 4096, b'<meta name="generator" content="Proctor report">'


def _write(target: Path, page: bytes) -> None:
    """All of it or nothing.

    Raises:
        InputError: there is no such folder, or it may not be written.
        OSError: there is no room; it names the file.
    """
    if target.exists() and not target.is_file():  # /dev/null, a pipe
        try:
            target.write_bytes(page)
        except OSError as error:
            error.filename = str(target)
            raise
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
    except BaseException as error:
        with suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(target), None
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
