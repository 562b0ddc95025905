"""``proctor sandbox snapshot``, ``snapshots`` and ``network``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from proctor.cli.boxes import as_json, find, is_kept, kept, labels, line, trial
from proctor.cli.boxes import network as rules_of
from proctor.cli.render import cell, console, to_json
from proctor.core.errors import InputError

if TYPE_CHECKING:
    from proctor.client.sync_runtime import Runtime


@click.command()
@click.argument("box", metavar="ID")
@click.option("--name", default=None, help="What it is called.")
@click.option("--retention-days", type=float, default=None, metavar="DAYS", help="Forget it after that time.")
@labels
@as_json
@trial
def snapshot(
    box: str, name: str | None, retention_days: float | None, labels: tuple[tuple[str, str], ...], as_json: bool
) -> None:
    """Keep the files of ID as they are, and print the snapshot's id."""
    with kept() as runtime:
        made = find(runtime, box).snapshot(name=name, labels=dict(labels), retention_days=retention_days)
        facts = {key: made[key] for key in ("id", "name", "digest", "sizeBytes", "labels", "createdAt", "expiresAt")}
    click.echo(to_json(facts, indent=2) if as_json else made.id)


@click.group()
def snapshots() -> None:
    """List and remove snapshots."""


@contextlib.contextmanager
def _store() -> Iterator[Runtime]:
    """The keeper, which may have snapshots in use, or this process where there is none."""
    if is_kept():
        with kept() as runtime:
            yield runtime
        return
    from proctor.client.embedded import EmbeddedBackend
    from proctor.client.sync_runtime import Runtime

    backend = EmbeddedBackend()
    try:
        yield Runtime(backend=backend)
    finally:
        backend.close()


@snapshots.command("ls")
@as_json
@trial
def list_(as_json: bool) -> None:
    """List snapshots, oldest first."""
    with _store() as runtime:
        keys = ("id", "name", "digest", "sizeBytes", "labels", "createdAt", "expiresAt")
        rows = [{key: one[key] for key in keys} for one in runtime.snapshots.list()]
    if as_json:
        click.echo(to_json(rows, indent=2))
        return
    from rich.table import Table

    table = Table()
    for title in ("id", "name", "size", "made", "until"):
        table.add_column(title, no_wrap=True)
    for row in rows:
        moments = [_day(row[key]) for key in ("createdAt", "expiresAt")]
        table.add_row(*map(cell, (row["id"], row["name"] or "", f"{row['sizeBytes'] / (1 << 20):.1f} MiB", *moments)))
    console().print(table)


def _day(moment: str | None) -> str:
    if moment is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M", datetime.fromisoformat(moment).astimezone().timetuple())


@snapshots.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="SNAPSHOT...")
@as_json
@trial
def remove(names: tuple[str, ...], as_json: bool) -> None:
    """Remove snapshots, by id or name."""
    from proctor.client.errors import NotFoundError

    gone = []
    with _store() as runtime:
        for name in names:
            try:
                found = runtime.snapshots.get(name)
            except NotFoundError as exc:
                raise InputError(str(exc)) from exc
            found.delete()
            gone.append(found.id)
    if as_json:
        click.echo(to_json({"deleted": gone}, indent=2))
        return
    for one in gone:
        line(f"deleted {one}")


@click.command()
@click.argument("box", metavar="ID")
@click.option("--internet/--offline", "internet", default=None, help="Open it, or close it.")
@click.option("--allow", multiple=True, metavar="HOST", help="Only this can be reached. Repeatable.")
@click.option("--deny", multiple=True, metavar="HOST", help="This cannot be reached. Repeatable.")
@click.option("--log", is_flag=True, help="Show what its programs have tried to reach.")
@as_json
@trial
def network(
    box: str, internet: bool | None, allow: tuple[str, ...], deny: tuple[str, ...], log: bool, as_json: bool
) -> None:
    """Show what ID may reach, or set that with the options, at once; connections under the old rules are cut.

    HOST is a name, *.suffix, an address or a CIDR network, and may name a port.
    """
    change = internet is not None or bool(allow) or bool(deny)
    if change and log:
        raise InputError("it shows, and the others set; give one or the other", field="--log")
    with kept() as runtime:
        found = find(runtime, box)
        if log:
            _show(found.network.attempts(), as_json)
            return
        rules = found.network.set(rules_of(internet, allow, deny)) if change else found.network.get()
    if as_json:
        click.echo(to_json(rules, indent=2))
        return
    if not rules.internet:
        line("offline")
        return
    line("allowed: " + (", ".join(rules.allow) or "every name"))
    if rules.deny:
        line("denied: " + ", ".join(rules.deny))


def _show(rows: list[dict[str, object]], as_json: bool) -> None:
    if as_json:
        click.echo(to_json(rows, indent=2))
        return
    from rich.table import Table

    table = Table()
    titles = list(rows[0]) if rows else ["time", "kind", "host", "port", "address", "decision", "reason"]
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        facts = {key: "" if value is None else str(value) for key, value in row.items()}
        facts["time"] = time.strftime("%H:%M:%S", time.localtime(float(facts["time"])))
        table.add_row(*(cell(facts[title], 200) for title in titles))
    console().print(table)
