"""``proctor image``: what sandboxes are made from."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from proctor.cli.boxes import variable
from proctor.cli.files import check_readable, read_file
from proctor.cli.messages import is_terminal, say
from proctor.cli.render import cell, console, to_json
from proctor.cli.units import mebibytes, mib

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proctor.images.records import Origin

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_snapshot = click.option("--snapshot", "is_snapshot", is_flag=True, help="NAME is a snapshot's.")


@click.group()
def image() -> None:
    """Import, build, list and remove the images that sandboxes are made from; snapshots are listed with them.

    An image is called NAME (its newest version), NAME@v2, NAME@sha256:..., or by
    its id. They are kept under XDG_DATA_HOME (~/.local/share), in proctor/images.

    Exit codes: 0 done; 1 the store cannot be used; 2 bad input, or no such image.
    """


@image.command("import")
@click.argument("file", metavar="FILE")
@click.option("--name", required=True, help="What it is called; a name that exists gets its next version.")
@click.option("--ref", "reference", default=None, metavar="REF", help="Which one, where FILE has several images.")
@click.option("--preimport", multiple=True, metavar="MODULE", help="A module that its interpreter is to have warm.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label.")
@click.option("--retention-days", type=float, default=None, metavar="DAYS", help="Forget it after that time.")
@_json
def import_(
    file: str,
    name: str,
    reference: str | None,
    preimport: tuple[str, ...],
    labels: tuple[str, ...],
    retention_days: float | None,
    as_json: bool,
) -> None:
    """Import FILE, an OCI layout or what `docker save` wrote, as tar or packed; - is standard input.

    Users other than 0 and 1000 become root; set-user-id bits, devices and file
    capabilities are left out and counted.
    """
    from proctor.images.oci import import_archive
    from proctor.images.store import Store

    parted = dict(_label(text) for text in labels)
    if file != "-":
        check_readable(file)
    source: Path | BinaryIO = sys.stdin.buffer if file == "-" else Path(file)
    total = None if file == "-" else Path(file).stat().st_size
    told = _Progress(total)
    with Store() as store:
        made = import_archive(
            store,
            source,
            name=name,
            reference=reference,
            preimport=preimport,
            labels=parted,
            retention_days=retention_days,
            told=told.add,
        )
    record = made.record
    if as_json:
        click.echo(to_json(record.to_json() | {"dropped": dict(made.dropped)}, indent=2))
        return
    console().print(cell(f"{record.reference}  {record.id}  {record.digest}"), soft_wrap=True)
    console().print(cell(f"{len(record.layers)} layers, {_mib(record.bytes)}{_left_out(made.dropped)}"), soft_wrap=True)


@image.command()
@click.option("--name", required=True, help="What it is called; a name that exists gets its next version.")
@click.option("--requirements", default=None, metavar="FILE", help="A requirements file for pip.")
@click.option(
    "--package", "packages", multiple=True, metavar="P", help="A Python package, as pip names it. Repeatable."
)
@click.option("--debian", multiple=True, metavar="PKG", help="A Debian package. Repeatable.")
@click.option("--preimport", multiple=True, metavar="MODULE", help="A module that its interpreter is to have warm.")
@click.option("--env", type=variable, multiple=True, metavar="NAME=VALUE", help="A variable of all commands in it.")
@click.option("--allow", multiple=True, metavar="HOST", help="pip may reach this alone. Repeatable.  [default: all]")
@click.option("--memory", type=mebibytes, default="2G", show_default=True, metavar="SIZE", help="Room for pip.")
@_json
def build(
    name: str,
    requirements: str | None,
    packages: tuple[str, ...],
    debian: tuple[str, ...],
    preimport: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    allow: tuple[str, ...],
    memory: int,
    as_json: bool,
) -> None:
    """Build an image: the host's system with Python and Debian packages on top.

    pip installs in a sandbox with a network, from where this host's pip
    configuration says. Debian packages are fetched by this host's apt-get and
    unpacked; none of their scripts runs. Progress goes to standard error. The
    same packages again make no new version; a build that fails leaves nothing.
    """
    from proctor.client.build import Recipe, build
    from proctor.images.store import Store

    text = None if requirements is None else read_file(Path(requirements))
    recipe = Recipe(
        name=name, requirements=text, packages=packages, debian=debian, preimport=preimport, env=dict(env),
        allow=allow, memory_mib=mib(memory),
    )  # fmt: skip
    with Store() as store:
        record = build(store, recipe, say)
    if as_json:
        click.echo(to_json(record.to_json(), indent=2))
        return
    console().print(cell(f"{record.reference}  {record.id}  {record.digest}"), soft_wrap=True)
    console().print(cell(f"{len(record.layers)} layers, {_mib(record.bytes)}"), soft_wrap=True)


@image.command("ls")
@_json
def list_(as_json: bool) -> None:
    """List images and snapshots, the oldest first."""
    from proctor.images.store import Store

    with Store() as store:
        records = store.list()
    if as_json:
        click.echo(to_json([record.to_json() for record in records], indent=2))
        return
    from rich.table import Table

    table = Table()
    for title in ("name", "version", "kind", "base", "size", "made", "until", "id"):
        table.add_column(title, justify="right" if title == "size" else "left", no_wrap=True)
    for one in records:
        version = f"v{one.version}" if one.version else ""
        until = "" if one.expires_at is None else _day(one.expires_at)
        facts = (one.name or "", version, one.origin, one.base, _mib(one.bytes), _day(one.created_at), until, one.id)
        table.add_row(*(cell(fact) for fact in facts))
    console().print(table)


@image.command()
@click.argument("name")
@_snapshot
@_json
def inspect(name: str, is_snapshot: bool, as_json: bool) -> None:
    """Show all that is known of NAME: layers, settings, sizes, and which processes use it."""
    from proctor.images.store import Store

    with Store() as store:
        facts = store.inspect(name, _origin(is_snapshot))
    if as_json:
        click.echo(to_json(facts, indent=2))
        return
    shown = console()
    for key, value in facts.items():
        text = value if isinstance(value, str) else to_json(value)
        if value not in (None, [], {}, ""):
            shown.print(cell(f"{key}: {text}"), soft_wrap=True)


@image.command("rm")
@click.argument("name")
@_snapshot
@click.option("--all", "every", is_flag=True, help="All versions of NAME.")
@_json
def remove(name: str, is_snapshot: bool, every: bool, as_json: bool) -> None:
    """Remove NAME, unless it is in use. Its disk space is free after `proctor image gc`."""
    from proctor.images.store import Store

    with Store() as store:
        gone = store.remove(name, _origin(is_snapshot), every_version=every)
    if as_json:
        click.echo(to_json([record.id for record in gone], indent=2))
        return
    for record in gone:
        console().print(cell(f"removed {record.reference}  {record.id}"), soft_wrap=True)


@image.command()
@_json
def gc(as_json: bool) -> None:
    """Remove what has expired, layers that nothing needs any more, and what crashes left; nothing that is in use."""
    from proctor.images.store import Store

    with Store() as store:
        done = store.gc()
    if as_json:
        told = {"expired": list(done.expired), "layers": done.layers, "bytes": done.bytes, "leftovers": done.leftovers}
        click.echo(to_json(told, indent=2))
        return
    text = (
        f"{len(done.expired)} expired, {done.layers} layers ({_mib(done.bytes)}) and {done.leftovers} leftovers removed"
    )
    console().print(cell(text), soft_wrap=True)


class _Progress:
    """Says every few seconds how much of a file is read, on a terminal or in a log."""

    def __init__(self, total: int | None) -> None:
        self._total, self._done, self._said = total, 0, time.monotonic()
        self._every = 1.0 if is_terminal(sys.stderr) else 5.0

    def add(self, count: int) -> None:
        """So many bytes more."""
        self._done += count
        if time.monotonic() - self._said > self._every:
            self._said = time.monotonic()
            say(f"importing: {_mib(self._done)} read" + ("" if self._total is None else f" of {_mib(self._total)}"))


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is no label; write KEY=VALUE", param_hint="--label")
    return key, value


def _origin(is_snapshot: bool) -> Origin | None:
    from proctor.images.records import Origin

    return Origin.SNAPSHOT if is_snapshot else None


def _left_out(dropped: Mapping[str, int]) -> str:
    return (
        "; left out or changed: " + ", ".join(f"{count} {what}" for what, count in dropped.items()) if dropped else ""
    )


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
