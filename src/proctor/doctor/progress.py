"""How far a long run of the doctor is, on standard error where that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextlib.contextmanager
def progress(what: str, total: int, *, quiet: bool) -> Iterator[Callable[[int, str], None]]:
    """A bar for ``total`` things; gives what is called with how many are done and a word on the one at hand."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, word: None
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=total)
        yield lambda done, word: bars.update(bar, completed=done, description=word)
