"""``proctor costs``: what sandboxes have cost."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.messages import say
from proctor.cli.render import cell, console, to_json
from proctor.core.errors import InputError

if TYPE_CHECKING:
    from proctor.meter.ledger import Ledger
    from proctor.meter.totals import Total

_AGO = re.compile(r"(\d{1,5})\s*d")
_SHOWN = 20  # rows of a table, unless asked for more

_path = click.option("--ledger", "path", default=None, metavar="PATH", help="Another file than the user's own.")


def day(value: str | date) -> date:
    """A UTC date, ``2026-12-01``, or so many days ago, ``7d``; an option's ``type``."""
    if isinstance(value, date):
        return value
    ago = _AGO.fullmatch(value.strip())
    try:
        if ago is not None:
            return datetime.now(UTC).date() - timedelta(days=int(ago[1]))
        return date.fromisoformat(value.strip())
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no day; write for example 2026-12-01, or 7d for a week ago") from None


def label(value: str | tuple[str, str]) -> tuple[str, str]:
    """``name=value``; an option's ``type``."""
    if isinstance(value, tuple):
        return value
    name, equals, rest = value.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{value!r} is no label; write for example run=grpo-1")
    return name, rest


@click.group(invoke_without_command=True)
@click.option("--by", type=click.Choice(("sandbox", "label", "day", "key")), help="One table, by this.")
@click.option("--since", type=day, metavar="DAY", help="From this UTC day on: 2026-12-01, or 7d for a week ago.")
@click.option("--label", "labelled", type=label, metavar="NAME=VALUE", help="Only what has this label.")
@click.option("--key", default=None, metavar="KEY", help="Only what this key has spent.")
@click.option("--top", type=click.IntRange(0), default=_SHOWN, show_default=True, help="Rows of a table; 0 for all.")
@_path
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def costs(
    ctx: click.Context,
    by: str | None,
    since: date | None,
    labelled: tuple[str, str] | None,
    key: str | None,
    top: int,
    path: str | None,
    as_json: bool,
) -> None:
    """Show what sandboxes have cost: today, this month, by label.

    CPU time is what was measured, at least a twentieth of the sandbox's vCPUs;
    memory is what was set aside. Days and months are UTC. What runs is counted
    up to its last report, some seconds ago. A sandbox with several labels
    counts in each of them.

    Exit codes: 0 done; 1 the ledger cannot be used; 2 bad input.
    """
    ctx.obj = path
    if ctx.invoked_subcommand is not None:
        return
    with _ledger(path) as ledger:
        if by is not None:
            _one(ledger, by, {"since": since, "label": labelled, "key": key}, top or None, as_json)
        else:
            _overview(ledger, {"label": labelled, "key": key}, since, top or None, as_json)


@costs.command()
@click.option("--days", type=click.IntRange(1), default=90, show_default=True, help="How long they are kept.")
@_path
@click.pass_context
def prune(ctx: click.Context, days: int, path: str | None) -> None:
    """Forget sandboxes that ended long ago; sums by day and by key stay.

    Exit codes: 0 done; 1 the ledger cannot be used; 2 bad input.
    """
    with _ledger(path or ctx.obj) as ledger:
        gone = ledger.prune(days) if ledger.path.exists() else 0
    console().print(cell(f"{ledger.path}: {gone} sandboxes forgotten"), soft_wrap=True)


def _ledger(path: str | None) -> Ledger:
    from proctor.meter.ledger import Ledger

    if path == "":
        raise InputError("it is empty; give a file, or leave it out for the user's own", field="--ledger")
    return Ledger.from_settings(path=path)


def _one(ledger: Ledger, by: str, asked: dict[str, Any], top: int | None, as_json: bool) -> None:
    there = ledger.path.exists()
    rows = ledger.totals(by, **asked, top=top) if there else []
    whole = ledger.total(**asked) if there else None
    if as_json:
        told = {"by": by, "rows": [_told(row) for row in rows], "total": _told(whole, "total")}
        click.echo(to_json(told, indent=2))
        return
    _table(by, rows + ([] if whole is None else [whole]))
    if top is not None and len(rows) == top:
        say(f"the first {top}; --top 0 shows all")


def _overview(ledger: Ledger, asked: dict[str, Any], since: date | None, top: int | None, as_json: bool) -> None:
    from proctor.meter.limits import LOCAL

    today = datetime.fromtimestamp(time.time(), UTC).date()
    first = today.replace(day=1) if since is None else since
    there = ledger.path.exists()
    spans = {"today": today, "this month" if since is None else f"since {since}": first}
    sums = {name: ledger.total(since=begin, **asked) if there else None for name, begin in spans.items()}
    labels = ledger.totals("label", since=first, **asked, top=top) if there else []
    limit = ledger.limit(asked["key"] or LOCAL) if there and ledger.daily_micros is not None else None
    if as_json:
        told: dict[str, Any] = {name.replace(" ", "_"): _told(each, name) for name, each in sums.items()}
        if since is not None:
            told["since"] = told.pop(f"since_{since}")
        told |= {"labels": [_told(each) for each in labels], "daily": None if limit is None else limit.to_wire()}
        click.echo(to_json(told, indent=2))
        return
    _table("", list(sums.items()))
    if labels:
        console().print()
        _table("label", labels)
    if limit is not None and limit.limit_micros is not None:
        from proctor.meter.prices import dollars

        used, most = dollars(limit.used_micros), dollars(limit.limit_micros)
        line = f"daily limit of {limit.key}: {used} of {most} used, up to now"
        console().print(cell(line), soft_wrap=True)


def _told(each: Total | None, name: str | None = None) -> dict[str, Any]:
    from proctor.meter.totals import Total

    found = asdict(each if each is not None else Total("", 0, 0.0, 0.0, 0.0, 0, 0))
    return {**found, "name": name or found["name"]}


def _table(by: str, rows: list[Any]) -> None:
    """Rows are sums, or names with sums; None is none."""
    from rich.table import Table

    from proctor.meter.prices import dollars
    from proctor.meter.totals import Total

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(by, overflow="fold")
    sums = [row[1] if isinstance(row, tuple) else row for row in rows]
    gpus = any(each is not None and each.gpu_seconds for each in sums)
    for title in ("sandboxes", "CPU-seconds", "GiB-seconds", *(["GPU-seconds"] if gpus else []), "storage", "cost"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        name, each = row if isinstance(row, tuple) else (row.name or "total", row)
        each = each or Total("", 0, 0.0, 0.0, 0.0, 0, 0)
        table.add_row(
            cell(name, 80),
            f"{each.sandboxes:,}",
            f"{each.cpu_seconds:,.1f}",
            f"{each.gib_seconds:,.1f}",
            *([f"{each.gpu_seconds:,.1f}"] if gpus else []),
            dollars(each.storage_micros),
            dollars(each.cost_micros),
        )
    console().print(table)
