"""``proctor doctor --conformance``: the suite on one level of this host."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from proctor.doctor import audit, report
from proctor.doctor.canary import Canary, alone
from proctor.doctor.conformance.check import Check
from proctor.doctor.conformance.suite import CHECKS, Result, State, examine, summary
from proctor.doctor.opened import opened
from proctor.doctor.progress import progress
from proctor.doctor.text import printable

_STYLES = {State.PASS: "green", State.DECLARED: "yellow", State.FAIL: "bold red"}


def conform(isolation: str, as_json: bool, checks: Sequence[Check] = CHECKS) -> int:
    """Run the suite and print what it found; the exit code.

    0: every check passed or is declared by the level. 1: one failed, or
    something is left on the host.
    """
    out = report.console()
    with alone():
        outside = audit.snapshot()
        with Canary() as canary, opened(isolation, slots=1) as engine:
            level, stepped = engine.isolation, [str(reason) for reason in engine.features.get("stepped_down", [])]
            if not as_json:
                out.print(report.level(level))
                for reason in stepped:
                    out.print(f"no stronger isolation on this host: {printable(reason)}", style="yellow")
            with progress("checks", len(checks), quiet=as_json) as show:
                begun = itertools.count()
                results = examine(engine, canary, checks, lambda check: show(next(begun), check.key))
            features = engine.features
            left = [f"changed: {path}" for path in canary.changed()]
            left += [] if engine.isolation == level else [f"the isolation went from {level} to {engine.isolation}"]
        left += audit.settled(outside)
    if as_json:
        click.echo(json.dumps(document(level, stepped, features, results, left), indent=1))
    else:
        out.print(table(results))
        for thing in left:
            out.print(f"left on the host: {printable(thing)}", style="bold red")
        out.print(summary(results))
    return 1 if left or any(result.state is State.FAIL for result in results) else 0


def document(
    level: str, stepped: Sequence[str], features: dict[str, Any], results: Sequence[Result], left: Sequence[str]
) -> dict[str, Any]:
    """All of it for machines; ``page.render`` makes a page from several."""
    return {
        "isolation": level,
        "as_root": os.geteuid() == 0,
        "stepped_down": list(stepped),
        "features": {name: value for name, value in features.items() if name != "stepped_down"},
        "checks": [result.to_json() for result in results],
        "left_on_host": list(left),
        "summary": summary(results),
    }


def table(results: Sequence[Result]) -> Table:
    """One line a check."""
    shown = Table(show_edge=False, pad_edge=False)
    shown.add_column("group", no_wrap=True)
    shown.add_column("check", no_wrap=True)
    shown.add_column("what is so", ratio=4)
    shown.add_column("state", no_wrap=True)
    shown.add_column("shown by", ratio=4)
    for result in results:
        told = Text(printable(result.fault, 300))
        if result.declared:
            told.append(("\n" if result.fault else "passes, though declared: ") + result.declared, "yellow")
        state = Text(result.state, _STYLES[result.state])
        shown.add_row(Text(result.check.group), Text(result.check.key), Text(result.check.title), state, told)
    return shown
