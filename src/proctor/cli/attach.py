"""Commands in sandboxes with this process's own streams: bytes pass as they come, both ways."""

from __future__ import annotations

import codecs
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

import click

from proctor.cli.boxes import as_json, create_fields, create_options, find, kept, queued, trial, variable
from proctor.cli.messages import is_terminal, say
from proctor.cli.render import escape, to_json
from proctor.cli.run import EXIT_TIMEOUT, RunCommand, read_stdin, stream_json
from proctor.cli.units import seconds
from proctor.core.sandbox import CommandOutcome, CommandSpec

if TYPE_CHECKING:
    from proctor.client.sync_sandbox import Sandbox

_PIECE = 1 << 16
_LEASE_MORE_S = 60.0  # the command's own limit comes first: its end says why
_OPTIONS_FIRST = {"allow_interspersed_args": False}
_interactive = click.option(
    "-i", "--interactive", is_flag=True, help="Read standard input from a terminal too, up to Ctrl-D."
)


@click.command(cls=RunCommand, context_settings=_OPTIONS_FIRST)
@click.argument("command", nargs=-1, required=True, metavar="[--] CMD...")
@create_options
@click.option("--keep", is_flag=True, help="Leave the sandbox running, until its lease ends or `proctor sandbox rm`.")
@_interactive
@as_json
@trial
@click.pass_context
def run(
    ctx: click.Context, /, command: tuple[str, ...], keep: bool, interactive: bool, as_json: bool, **given: Any
) -> None:
    """Run CMD in a new sandbox.

    \b
      proctor sandbox run -- python3 -c 'print(6 * 7)'
      proctor sandbox run --image science --allow data.example.org -- python3 < program.py

    Standard input, output and error pass through as they come, in bytes; on a
    terminal, control characters of the output are shown as \\x1b and the like.
    The sandbox ends with CMD, or with Ctrl-C, unless --keep is given.

    \b
    Exit code: the command's own; 124 when its time was over; 128 + N when
    signal N ended it; 125 when Proctor failed.
    """
    fields = create_fields(given)
    limit: float = given["timeout"]
    if keep:
        with kept(start=True) as runtime:
            box = runtime.sandboxes.create(**fields)
            if not as_json:
                say(f"the sandbox is {box.id}; it is kept until its lease ends ({limit:g} s), or `proctor sandbox rm`")
            ctx.exit(_run(box, CommandSpec(argv=command, timeout_s=limit), interactive, as_json))
    from proctor.client.sync_runtime import Runtime

    fields["timeout_seconds"] = limit + _LEASE_MORE_S
    with Runtime(on_queued=queued).sandboxes.create(**fields) as box:
        ctx.exit(_run(box, CommandSpec(argv=command, timeout_s=limit), interactive, as_json))


class ExecCommand(RunCommand):
    """``exec [options] ID [options] [--] CMD``: what follows CMD is CMD's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        name, args = self._first(ctx, args)
        command, args = self._rest(ctx, args)
        return super().parse_args(ctx, [*args, "--", *name, *command])

    def _first(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        """The ID, and all without it."""
        rest = self._positional(ctx, args)
        return rest[:1], args[: len(args) - len(rest)] + rest[1:]

    def _rest(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        """CMD, and the options before it."""
        rest = self._positional(ctx, args)
        options = args[: len(args) - len(rest)]
        return rest, options[:-1] if options[-1:] == ["--"] else options

    def _positional(self, ctx: click.Context, args: list[str]) -> list[str]:
        found = self.make_parser(ctx).parse_args(list(args))[0]
        name, command = found.get("name"), found.get("command")
        return [*([name] if isinstance(name, str) else ()), *(command if isinstance(command, tuple | list) else ())]


@click.command("exec", cls=ExecCommand, context_settings=_OPTIONS_FIRST)
@click.argument("name", metavar="ID")
@click.argument("command", nargs=-1, required=True, metavar="[--] CMD...")
@click.option("--env", type=variable, multiple=True, metavar="NAME=VALUE", help="A variable. Repeatable.")
@click.option("--cwd", default=None, metavar="PATH", help="Directory.  [default: /workspace]")
@click.option("--user", type=click.Choice(("sandbox", "root")), default="sandbox", show_default=True, help="As whom.")
@click.option("--timeout", type=seconds, default=None, metavar="TIME", help="End it then; the sandbox goes on.")
@_interactive
@as_json
@trial
@click.pass_context
def exec_(
    ctx: click.Context, name: str, command: tuple[str, ...], env: tuple[tuple[str, str], ...], cwd: str | None,
    user: str, timeout: float | None, interactive: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run CMD in the sandbox ID (or of that name), with streams and exit codes as in `proctor sandbox run`.

    Without --timeout it runs as long as the sandbox.
    """
    with kept() as runtime:
        box = find(runtime, name)
        spec = CommandSpec(argv=command, env=dict(env), cwd=cwd, user=user, timeout_s=timeout)
        ctx.exit(_run(box, spec, interactive, as_json))


def _run(box: Sandbox, spec: CommandSpec, interactive: bool, as_json: bool) -> int:
    """Run a command to its end; the exit code for this process."""
    from proctor.client.errors import ConflictError

    try:
        if as_json:
            return _reported(box, spec, read_stdin(interactive))
        outcome = _attached(box, spec, interactive)
    except ConflictError as exc:
        if exc.code == "sandbox_stopped" and box.refresh().info.stopReason == "lease_end":
            say("the sandbox's lease ended; --timeout gives it longer, `proctor sandbox extend` as well")
            return EXIT_TIMEOUT
        raise
    _note(outcome, spec.timeout_s)
    return exit_code(outcome)


def exit_code(outcome: CommandOutcome) -> int:
    """What a shell would see."""
    if outcome.timed_out:
        return EXIT_TIMEOUT
    if outcome.exit_code is None:
        return 137
    return 128 - outcome.exit_code if outcome.exit_code < 0 else outcome.exit_code


def _note(outcome: CommandOutcome, limit: float | None) -> None:
    if outcome.timed_out:
        say(f"the time limit of {limit:g} s ended the command")
    elif outcome.out_of_memory:
        say("the sandbox's memory was full, and the command was killed; --memory gives it more")


def _reported(box: Sandbox, spec: CommandSpec, stdin: bytes) -> int:
    result = box.exec(
        list(spec.argv), env=spec.env, cwd=spec.cwd, user=spec.user, stdin=stdin, on_stdout=lambda _: None,
        timeout_ms=None if spec.timeout_s is None else spec.timeout_s * 1000,
    )  # fmt: skip
    click.echo(
        to_json(
            {
                "sandbox_id": box.id,
                "exit_code": result.exit_code,
                **stream_json("stdout", result.stdout_bytes, result.stdout_truncated),
                **stream_json("stderr", result.stderr_bytes, result.stderr_truncated),
                "timed_out": result.timed_out,
                "out_of_memory": result.out_of_memory,
                "duration_ms": result.duration_ms,
            },
            indent=2,
        )
    )
    return exit_code(CommandOutcome(exit_code=result.exit_code, timed_out=result.timed_out))


def _attached(box: Sandbox, spec: CommandSpec, interactive: bool) -> CommandOutcome:
    """Run it with this process's streams; Ctrl-C, or a reader that goes away, kills it."""
    from dataclasses import replace

    door, backend = box._door, box._door.backend
    reads = sys.stdin is not None and (interactive or not sys.stdin.isatty())
    spec = replace(spec, stdin_open=reads, stdin=None if reads else b"", keep=None)
    process: str = door.call(backend.start_command(box.id, spec, reading=True))
    sinks = {1: _sink(sys.stdout), 2: _sink(sys.stderr)}
    ended = False
    try:
        if reads:
            write: Callable[[bytes], Any] = lambda data: door.call(  # noqa: E731
                backend.write_stdin(box.id, process, data, end=not data)
            )
            threading.Thread(target=_feed, args=(write,), name="stdin", daemon=True).start()
        over = False
        while not over:
            pieces, over = door.call(backend.output(box.id, process))
            for stream, data in pieces:
                sinks[stream](data, False)
        for sink in sinks.values():
            sink(b"", True)
        outcome: CommandOutcome = door.call(backend.wait_command(box.id, process))
        ended = True
        return outcome
    finally:
        if not ended:
            _kill(box, process)


def _kill(box: Sandbox, process: str) -> None:
    from proctor.client.errors import RuntimeError

    try:
        box._door.call(box._door.backend.kill(box.id, process, 9))
    except RuntimeError:
        return  # it has ended, or its sandbox has


def _feed(write: Callable[[bytes], Any]) -> None:
    """Standard input, piece by piece, until it ends or nobody reads it any more."""
    from proctor.core.errors import ProctorError

    try:
        while data := os.read(0, _PIECE):
            write(data)
        write(b"")
    except (ProctorError, OSError, ValueError):
        return


def _sink(stream: TextIO | None) -> Callable[[bytes, bool], None]:
    """Where a program's bytes go: as they are to a file or pipe, escaped to a terminal, nowhere if it was closed."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    terminal = is_terminal(stream)

    def put(data: bytes, end: bool) -> None:
        if stream is None:
            return
        if terminal:  # a character may come in two pieces
            data = escape(decoder.decode(data, end)).encode("utf-8", "backslashreplace")
        try:
            stream.buffer.write(data)
            stream.buffer.flush()
        except OSError as error:
            error.filename = "standard output or error"
            raise

    return put
