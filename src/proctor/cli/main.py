"""The entry point: which verbs there are, and how an error is told.

Verbs are imported when they are used, so that ``proctor --help`` is quick.
Every error is one line, ``proctor: error: ...``, on standard error; a
traceback is shown only with ``proctor --traceback``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from proctor.cli.messages import explain_os, fail, flush_stdout, quiet_stdout
from proctor.core.errors import InputError, ProctorError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

# verb -> where its command is, and its line in the help
VERBS: dict[str, tuple[str, str]] = {
    "run": ("proctor.cli.run:run", "Run one command in a jail; stdin, stdout and exit code pass through."),
    "score": ("proctor.cli.score:score", "Score a file of completions against problems."),
    "replay": ("proctor.cli.replay:replay", "Run completions of a results file again and say what differs."),
    "cache": ("proctor.cli.cache:cache", "Show the grades that are kept from earlier scoring, or clear them."),
    "costs": ("proctor.cli.costs:costs", "Show what sandboxes have cost: by day, label, sandbox or key."),
    "audit": ("proctor.cli.audit:audit", "Rank the samples of a results file that may not have earned their reward."),
    "report": ("proctor.cli.report:report", "Write a results file as one HTML page."),
    "image": ("proctor.cli.image:image", "Import, build, list and remove the images that sandboxes are made from."),
    "sandbox": ("proctor.cli.sandbox:sandbox", "Make sandboxes, run commands in them, and copy files both ways."),
    "doctor": ("proctor.doctor.command:doctor", "Try each protection's attack on this host and say what holds."),
    "demo": ("proctor.cli.demo:demo", "Score bundled programs: right, wrong, crashing, looping, hostile."),
}
ALIASES = {"sandboxes": "sandbox"}


class PipeClosed(Exception):
    """Whoever read our output has gone. Click itself would turn it into exit code 1."""


class Root(click.Group):
    """A group whose verbs are loaded when used, and whose errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name][0].partition(":")
        command = getattr(import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{name} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosed from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        self.traceback = False
        # What the layers below log, the command line says in its own words.
        logging.getLogger("proctor").addHandler(logging.NullHandler())
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            flush_stdout()
        except click.exceptions.Exit as exit_:
            code = exit_.exit_code
        except (click.Abort, KeyboardInterrupt):
            fail("interrupted", EXIT_INTERRUPTED)
        except BaseException as error:
            if self.traceback and not isinstance(error, SystemExit):
                raise
            _explain(error)
        sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> NoReturn:
    """Say in one line what went wrong, and exit with the right code."""
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, click.ClickException):
        hint = ""
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            click.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see {error.ctx.command_path} --help)"
        fail(error.format_message().rstrip(".") + hint, error.exit_code)
    if isinstance(error, PipeClosed | BrokenPipeError):
        quiet_stdout()
        sys.exit(EXIT_PIPE)
    if isinstance(error, InputError):
        fail(str(error), EXIT_USAGE)
    if isinstance(error, ProctorError):
        fail(str(error), EXIT_FAILED)
    if isinstance(error, OSError):
        fail(explain_os(error), EXIT_FAILED)
    if isinstance(error, MemoryError):
        fail("out of memory", EXIT_FAILED)
    fail(f"internal error: {type(error).__name__}: {error} (proctor --traceback ... shows where)", EXIT_FAILED)


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done; 1 this host failed (some completions have no score); 2 bad input; 130 interrupted. "
    "`run` passes the program's own code through.",
)
@click.version_option(package_name="proctor", message="proctor %(version)s")
@click.option("--traceback", is_flag=True, help="Show where an error of Proctor's own came from.")
@click.pass_context
def cli(ctx: click.Context, traceback: bool) -> None:
    """Run the programs that a language model writes, in sealed offline jails, and score what they output."""
    if isinstance(ctx.command, Root):
        ctx.command.traceback = traceback


def main() -> None:
    """All of the command line; the console script is ``proctor.cli.entry``."""
    try:
        cli.main(prog_name="proctor")
    except KeyboardInterrupt:  # before or behind what the command itself catches
        fail("interrupted", EXIT_INTERRUPTED)
    finally:
        _close_engines()


def _close_engines() -> None:
    """End the agents while the interpreter is still whole; Ctrl-C meanwhile ends everything at once.

    Should that happen, nothing is left either: agents die with their parent.
    """
    shared = sys.modules.get("proctor.engine.shared")
    if shared is None:
        return
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(EXIT_INTERRUPTED))
    with contextlib.suppress(Exception):
        shared.close_all()


if __name__ == "__main__":
    main()
