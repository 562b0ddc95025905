"""Tables and JSON of what the doctor found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proctor.doctor.judging import Result, State
from proctor.doctor.text import printable
from proctor.doctor.trial import Finding

_STYLES = {
    State.CONTAINED: "green",
    State.NOT_CONTAINED: "bold red",
    State.DECLARED: "yellow",
    State.VOID: "bold red",
    State.SKIPPED: "dim",
}
LEVELS = {
    "jail": "namespaces, read-only root, system call filter, Landlock, limits",
    "gvisor": "a kernel in user space around namespaces, system call filter and limits",
    "microvm": "a virtual machine around namespaces, system call filter, Landlock and limits",
    "degraded": "no namespaces here: system call filter, Landlock and limits only",
}


def console() -> Console:
    """Reads no markup, and is wide enough for its tables where there is no terminal."""
    shown = Console(markup=False, highlight=False, emoji=False)
    return shown if shown.is_terminal else Console(markup=False, highlight=False, emoji=False, width=170)


def level(name: str) -> str:
    """An isolation level with what it is made of."""
    return f"isolation: {name}" + (f" ({LEVELS[name]})" if name in LEVELS else "")


def protections(findings: Sequence[Finding]) -> Table:
    """Protection, whether it holds, how that was shown, what to install or enable."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("protection", ratio=3)
    table.add_column("state", no_wrap=True)
    table.add_column("shown by", ratio=4)
    table.add_column("to install or enable", ratio=4)
    for found in findings:
        state = Text("holds", "green") if found.holds else Text("MISSING" if found.tried else "NOT TRIED", "bold red")
        table.add_row(Text(found.title), state, Text(found.how), Text("" if found.holds else found.remedy))
    return table


def missing(findings: Sequence[Finding]) -> str:
    """The last line of a look at the protections."""
    gone = [found for found in findings if not found.holds]
    if not gone:
        return f"all {len(findings)} protections hold"
    told = [
        f"{word}: {', '.join(names)}"
        for word, names in (
            ("missing", [f.key for f in gone if f.tried]),
            ("not tried", [f.key for f in gone if not f.tried]),
        )
        if names
    ]
    return f"{len(findings) - len(gone)} of {len(findings)} protections hold; {'; '.join(told)}"


def attacks(results: Sequence[Result]) -> Table:
    """One line a row and round."""
    rounds = max((result.round for result in results), default=1)
    table = Table(show_edge=False, pad_edge=False)
    if rounds > 1:
        table.add_column("round", justify="right")
    table.add_column("program", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("how it ended", ratio=1)
    for result in results:
        told = "; ".join((*result.faults, *result.notes))
        how = Text(printable(result.how, 160)) + Text(f"\n{printable(told, 300)}" if told else "", "yellow")
        cells = [Text(result.row.file), Text(result.state, _STYLES[result.state]), how]
        table.add_row(*([Text(str(result.round))] if rounds > 1 else []), *cells)
    return table


def result_json(result: Result) -> dict[str, Any]:
    """One row as plain JSON data."""
    return {
        "file": result.row.file,
        "round": result.round,
        "state": str(result.state),
        "how": printable(result.how),
        "faults": [printable(fault) for fault in result.faults],
        "notes": [printable(note) for note in result.notes],
        "protections": list(result.protections),
        "seconds": round(result.seconds, 3),
    }
