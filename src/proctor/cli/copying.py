"""``proctor sandbox cp``: files and directories between this host and a sandbox."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from proctor.cli.boxes import as_json, find, kept, line, trial
from proctor.cli.messages import say
from proctor.cli.render import to_json
from proctor.cli.units import counted
from proctor.core.errors import InputError

if TYPE_CHECKING:
    from proctor.client.sync_sandbox import Sandbox


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@as_json
@trial
def cp(source: str, target: str, as_json: bool) -> None:
    """Copy a file or a directory; one of SRC and DST is ID:PATH.

    \b
      proctor sandbox cp ./tests grader:tests
      proctor sandbox cp grader:/workspace/out.json .

    Into a directory that is there, it is copied under its own name. A PATH that
    is not absolute is in /workspace; a local name with a colon is written ./a:b.
    Links that lead elsewhere, devices and pipes are left out, and said.
    """
    there, back = _parted(source), _parted(target)
    if (there is None) == (back is None):
        raise InputError("one of SRC and DST is a sandbox's, ID:PATH, and the other one is on this host")
    with kept() as runtime:
        if back is not None:
            box, path = find(runtime, back[0]), _inside(back[1])
            if back[1].endswith("/") or _is_folder(box, path):
                path = _below(path, os.path.basename(os.path.abspath(source)))
            done = box.files.upload(source, path)
        else:
            assert there is not None
            box, path, into = find(runtime, there[0]), _inside(there[1]), target
            if target.endswith("/") or os.path.isdir(target):
                into = os.path.join(target, os.path.basename(path.rstrip("/")))
            done = box.files.download(path, into)
    for each in done.skipped:
        say(f"left out {each}")
    if as_json:
        click.echo(to_json(done, indent=2))
    else:
        line(f"{counted(done.files, 'file')}, {counted(done.bytes, 'byte')}")


def _parted(text: str) -> tuple[str, str] | None:
    """ID and path of ``ID:PATH``; None for a local path."""
    name, colon, path = text.partition(":")
    return (name, path) if colon and name and "/" not in name else None


def _inside(path: str) -> str:
    return path if path.startswith("/") else f"/workspace/{path}".rstrip("/")


def _below(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _is_folder(box: Sandbox, path: str) -> bool:
    return box.files.exists(path) and box.files.stat(path).type == "directory"
