"""``proctor sandbox``: sandboxes from the command line."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from proctor.cli.attach import exec_, run
from proctor.cli.boxes import as_json, create_fields, create_options, find, is_kept, kept, labels, line, trial
from proctor.cli.copying import cp
from proctor.cli.keeping import network, snapshot, snapshots
from proctor.cli.render import cell, console, to_json
from proctor.cli.units import seconds, show_time
from proctor.core.errors import InputError, ProctorError


class Boxes(click.Group):
    """A group in which what cannot be met is bad input, and only a failure of the host is one."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ProctorError as error:
            asked = (
                getattr(error, "status", None) in (400, 404, 409, 413, 422) or getattr(error, "code", "") == "not_found"
            )
            if asked and not getattr(error, "retryable", False):
                raise InputError(str(error)) from error
            raise


@click.group(cls=Boxes)
def sandbox() -> None:
    """Make sandboxes and work in them.

    `run` makes one for a single command. The others are kept by a process of
    yours in the background, the keeper, which starts when it is needed and ends
    10 s after the last of its sandboxes. An ID may be a name.

    Exit codes: 0 done; 1 this host failed; 2 bad input, or no such sandbox; `run` and `exec`: the command's own.
    """


for _verb in (run, exec_, cp, snapshot, snapshots, network):
    sandbox.add_command(_verb)


@sandbox.command()
@create_options
@as_json
@trial
def create(as_json: bool, **given: Any) -> None:
    """Make a sandbox that is kept, and print its id."""
    fields = create_fields(given)
    with kept(start=True) as runtime:
        box = runtime.sandboxes.create(**fields)
    click.echo(to_json(box.info, indent=2) if as_json else box.id)


@sandbox.command("ls")
@click.option("--all", "every", is_flag=True, help="Those that have stopped as well.")
@labels
@as_json
@trial
def list_(every: bool, labels: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """List the sandboxes that are kept, oldest first."""
    rows = []
    if is_kept():
        with kept() as runtime:
            rows = [box.info for box in runtime.sandboxes.list(include_stopped=every, labels=dict(labels))]
    if as_json:
        click.echo(to_json(rows, indent=2))
        return
    from rich.table import Table

    table = Table()
    for title in ("id", "name", "state", "made from", "memory", "network", "ends in", "cost", "labels"):
        table.add_column(title, no_wrap=title != "labels")
    for row in rows:
        facts = (
            row.id, row.name or "", row.state if row.state == "running" else f"{row.state} ({row.stopReason})",
            row.snapshot or row.image or "host", f"{row.memoryMiB} MiB", _reach(row.network),
            _left(row.expiresAt) if row.state == "running" else "", f"${row.costMicros / 1e6:.6f}",
            ", ".join(f"{key}={value}" for key, value in row.labels.items()),
        )  # fmt: skip
        table.add_row(*(cell(fact) for fact in facts))
    console().print(table)


def _reach(rules: Any) -> str:
    if not rules.internet:
        return "offline"
    return f"{len(rules.allow)} allowed" if rules.allow else "open"


def _left(moment: str) -> str:
    return show_time(datetime.fromisoformat(moment).timestamp() - time.time())


@sandbox.command("rm")
@click.argument("names", nargs=-1, metavar="[ID...]")
@click.option("--all", "every", is_flag=True, help="All of them.")
@labels
@as_json
@trial
def remove(names: tuple[str, ...], every: bool, labels: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """End sandboxes and forget them: by ID, by label, or all."""
    if sum((bool(names), every, bool(labels))) != 1:
        raise InputError("name sandboxes, or give --all, or --label")
    gone: list[str] = []
    if names or is_kept():
        with kept() as runtime:
            if names:
                boxes = [find(runtime, name) for name in names]
            else:
                boxes = list(runtime.sandboxes.list(include_stopped=True, labels=dict(labels)))
            for box in boxes:
                box.delete()
                gone.append(box.id)
    _told("deleted", gone, as_json)


@sandbox.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@as_json
@trial
def stop(names: tuple[str, ...], as_json: bool) -> None:
    """End sandboxes; `ls --all` shows them as long as the keeper runs."""
    with kept() as runtime:
        boxes = [find(runtime, name) for name in names]
        for box in boxes:
            box.stop()
    _told("stopped", [box.id for box in boxes], as_json)


def _told(word: str, ids: list[str], as_json: bool) -> None:
    if as_json:
        click.echo(to_json({word: ids}, indent=2))
        return
    for one in ids:
        line(f"{word} {one}")


@sandbox.command()
@click.argument("name", metavar="ID")
@click.argument("length", type=seconds, metavar="TIME")
@as_json
@trial
def extend(name: str, length: float, as_json: bool) -> None:
    """Let the lease of ID end TIME later: 600, 10m, 2h."""
    with kept() as runtime:
        info = find(runtime, name).extend(length).info
    if as_json:
        click.echo(to_json(info, indent=2))
        return
    line(f"{info.id} ends in {_left(info.expiresAt)}")
