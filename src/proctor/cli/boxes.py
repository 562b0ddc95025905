"""What the verbs of ``proctor sandbox`` share: options, finding a sandbox by name or id, and how one is shown."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from proctor.cli.costs import label
from proctor.cli.messages import say
from proctor.cli.render import cell, console
from proctor.cli.units import mebibytes, mib, seconds
from proctor.core.errors import InputError

if TYPE_CHECKING:
    from proctor.client.sync_runtime import Runtime
    from proctor.client.sync_sandbox import Sandbox

F = TypeVar("F", bound=Callable[..., Any])
NONE_KEPT = "no sandboxes are kept now; `proctor sandbox create` makes one"

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
trial = click.option("--trial", is_flag=True, hidden=True, expose_value=False, help="Taken, and means nothing here.")
labels = click.option("--label", "labels", type=label, multiple=True, metavar="NAME=VALUE", help="With this label.")


def variable(value: str | tuple[str, str]) -> tuple[str, str]:
    """``NAME=value``; an option's ``type``."""
    if isinstance(value, tuple):
        return value
    name, equals, rest = value.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{value!r} is no variable; write NAME=VALUE")
    return name, rest


_CREATE = (
    click.option("--name", default=None, help="To find it by; unique among the running ones."),
    click.option("--label", "labels", type=label, multiple=True, metavar="NAME=VALUE", help="To find it by. Repeatable."),
    click.option("--vcpu", type=float, default=None, metavar="N", help="Share of CPUs.  [default: 1]"),
    click.option("--memory", type=mebibytes, default=None, metavar="SIZE", help="Processes and files.  [default: 1G]"),
    click.option("--disk", type=mebibytes, default=None, metavar="SIZE", help="Files that it may write.  [default: 1G]"),
    click.option("--timeout", type=seconds, default=300.0, metavar="TIME", show_default="300 s", help="When it ends."),
    click.option("--env", type=variable, multiple=True, metavar="NAME=VALUE", help="For its commands. Repeatable."),
    click.option("--image", default=None, metavar="NAME", help="What it is made from (proctor image ls)."),
    click.option("--snapshot", default=None, metavar="NAME", help="The same, a snapshot's name or id."),
    click.option("--internet/--offline", "internet", default=None, help="With a network, or without, the default."),
    click.option("--allow", multiple=True, metavar="HOST", help="Of the network, only this. Repeatable."),
    click.option("--deny", multiple=True, metavar="HOST", help="Of the network, not this. Repeatable."),
    click.option("--isolation", default=None, metavar="LEVEL", help="The wall around it: auto, jail, gvisor, microvm.  [default: auto, or PROCTOR_ISOLATION]"),
    click.option("--gpu", type=click.IntRange(0, 64), default=None, metavar="N", help="GPUs of its own.  [default: 0]"),
    click.option("--gpu-model", multiple=True, metavar="NAME", help="Of this model: T4, A100-80. Repeatable: any of them."),
    click.option("--max-cost-micros", type=int, default=None, metavar="N", help="End it at this cost, in $0.000001."),
)  # fmt: skip


def create_options(function: F) -> F:
    """The options that say what a sandbox is."""
    for option in reversed(_CREATE):
        function = option(function)
    return function


def create_fields(given: dict[str, Any]) -> dict[str, Any]:
    """What those options mean to ``sandboxes.create``."""
    sizes = {f"{name}_mib": None if given[name] is None else mib(given[name]) for name in ("memory", "disk")}
    return {
        **sizes,
        "name": given["name"], "labels": dict(given["labels"]), "vcpu": given["vcpu"], "env": dict(given["env"]),
        "timeout_seconds": given["timeout"], "image": given["image"], "snapshot": given["snapshot"],
        "network": network(given["internet"], given["allow"], given["deny"]),
        "max_cost_micros": given["max_cost_micros"], "isolation": given["isolation"], "gpu": given["gpu"],
        "gpu_model": list(given["gpu_model"]) or None,
    }  # fmt: skip


def network(internet: bool | None, allow: tuple[str, ...], deny: tuple[str, ...]) -> dict[str, Any]:
    """Rules out of options; ``--allow`` alone opens the network for what it names."""
    if internet is None and deny and not allow:
        raise InputError("it says what cannot be reached; say what can with --internet or --allow", field="--deny")
    return {"internet": bool(allow) if internet is None else internet, "allow": list(allow), "deny": list(deny)}


# ---------------------------------------------------------------- finding


@contextlib.contextmanager
def kept(*, start: bool = False) -> Iterator[Runtime]:
    """The sandboxes that are kept for this user.

    Args:
        start: start a keeper where there is none; else that is an error.
    """
    from proctor.client.distant import DistantBackend
    from proctor.client.sync_runtime import Runtime

    if not start and not is_kept():
        raise InputError(NONE_KEPT)
    backend = DistantBackend(start=start)
    try:
        yield Runtime(backend=backend, on_queued=queued)
    finally:
        backend.close()


def is_kept() -> bool:
    """Whether there is a keeper."""
    from proctor.client.place import connect, default_place

    sock = connect(default_place())
    if sock is not None:
        sock.close()
    return sock is not None


def queued(ahead: int) -> None:
    """Say that a create has to wait."""
    say("waiting for room" + (f"; {ahead} before this one" if ahead else ""))


def find(runtime: Runtime, word: str) -> Sandbox:
    """The sandbox of an id, or the running one of a name.

    Raises:
        InputError: there is none.
    """
    boxes = runtime.sandboxes.list(include_stopped=True)
    for box in boxes:
        if box.id == word:
            return box  # type: ignore[no-any-return]
    for box in reversed(boxes):
        if box.name == word and box.state == "running":
            return box  # type: ignore[no-any-return]
    running = [box.name or box.id for box in boxes if box.state == "running"]
    known = ", ".join(running[:10]) if running else "none"
    raise InputError(f"there is no sandbox {word!r}; running: {known}")


def line(text: str) -> None:
    """One line of standard output."""
    console().print(cell(text), soft_wrap=True)
