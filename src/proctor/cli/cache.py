"""``proctor cache``: what is kept from earlier scoring."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.messages import say
from proctor.cli.render import cell, console, to_json
from proctor.cli.units import counted, show_size, size
from proctor.core.errors import InputError

if TYPE_CHECKING:
    from proctor.grading.cache import Cache

EXIT_TROUBLE = 1

_path = click.option("--cache", "path", default=None, metavar="PATH", help="Another file than the user's own.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def open_cache(path: str | None, size: int) -> Cache:
    """The cache that a command line names: None is the user's own.

    Raises:
        InputError: too few bytes, or an empty name.
    """
    from proctor.grading.cache import LEAST_BYTES, Cache

    if size < LEAST_BYTES:
        raise InputError(f"{size} bytes are too few; give {show_size(LEAST_BYTES)} or more", field="--cache-size")
    if path == "":
        raise InputError("it is empty; give a file, or leave it out for the user's own", field="--cache")
    check_folder(path)
    return Cache(path, limit=size)


def check_folder(path: str | None) -> None:
    """InputError where the folder of a cache that was named is not there: none is made for a slip of a name."""
    folder = Path(path).parent if path is not None else Path()
    try:
        there = stat.S_ISDIR(folder.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        there = False
    except (OSError, ValueError):
        there = True  # what is wrong the cache says, when it is used
    if not there:
        raise InputError(f"{folder} is no folder", field="--cache")


@click.group(invoke_without_command=True)
@_path
@click.option(
    "--cache-size", type=size, default="1G", show_default=True, metavar="SIZE", help="Bytes that it may take."
)
@_json
@click.pass_context
def cache(ctx: click.Context, path: str | None, cache_size: int, as_json: bool) -> None:
    """Show where grades are kept, how many, how large the file is and how often it was of use.

    What is kept are verdicts and outcomes, by the content of all that they
    depend on: program, cases, checker, limits, image, isolation, language,
    interpreter and Proctor's own version. Rewards are computed anew each time.

    Exit codes: 0 done; 1 the file cannot be used; 2 bad input.
    """
    ctx.obj = path
    if ctx.invoked_subcommand is not None:
        return
    with open_cache(path, cache_size) as kept:
        found = kept.stats()
    if as_json:
        told = {"path": str(found.path), "entries": found.entries, "bytes": found.bytes, "limit": found.limit}
        click.echo(to_json({**told, "hits": found.hits, "trouble": found.trouble}, indent=2))
    else:
        used = f"{found.bytes / (1 << 20):.1f} MiB of {show_size(found.limit)}"
        console().print(
            cell(f"{found.path}: {counted(found.entries, 'program')}, {used}, {counted(found.hits, 'hit')}"),
            soft_wrap=True,
        )
    if found.trouble is not None:
        say(f"error: {found.path} cannot be used: {found.trouble}")
        ctx.exit(EXIT_TROUBLE)


@cache.command()
@_path
@click.pass_context
def clear(ctx: click.Context, path: str | None) -> None:
    """Forget everything that is kept.

    Exit codes: 0 done; 2 the file is no cache of Proctor's, and was left alone.
    """
    from proctor.grading.cache import Cache

    check_folder(path or ctx.obj)
    with Cache(path or ctx.obj) as kept:
        count = kept.clear()
    console().print(cell(f"{kept.path}: {counted(count, 'program')} forgotten"), soft_wrap=True)
