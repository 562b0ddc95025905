"""``proctor run``: one command in a jail, as a filter."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from proctor.cli.messages import explain_os, is_terminal, say, say_isolation
from proctor.cli.render import escape, to_json
from proctor.cli.units import mebibytes, mib, seconds, show_size, size
from proctor.core.errors import InputError, ProctorError
from proctor.core.limits import KIB, Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.job import MAX_FILES_BYTES, MAX_STDIN, Case, Job, Program

EXIT_TIMEOUT = 124
EXIT_OURS = 125
_PYTHONS = ("python3", "python")
_DEFAULT = Limits()


class RunFailure(click.UsageError):
    """A failure of Proctor's own, a wrong option among them: never one of the program's exit codes."""

    exit_code = EXIT_OURS


class RunCommand(click.Command):
    """A command whose own failures all exit with 125."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            raise _failure(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except click.ClickException as error:
            raise _failure(error) from error
        except (ProctorError, MemoryError) as error:
            raise RunFailure(str(error) or "out of memory") from error
        except OSError as error:
            raise RunFailure(explain_os(error)) from error


def _failure(error: click.ClickException) -> RunFailure:
    return RunFailure(error.format_message(), getattr(error, "ctx", None))


@click.command(cls=RunCommand, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, metavar="[--] CMD...")
@click.option(
    "--cpu",
    type=seconds,
    metavar="TIME",
    default=_DEFAULT.cpu_s,
    show_default=True,
    help="CPU time of the whole process tree.",
)
@click.option(
    "--wall", type=seconds, metavar="TIME", default=None, help="Time from start to end; if not given, 2 x cpu + 3 s."
)
@click.option(
    "--memory",
    type=mebibytes,
    metavar="SIZE",
    default="512M",
    show_default=True,
    help="Memory of the whole tree, files in /workspace included.",
)
@click.option(
    "--processes",
    type=int,
    metavar="N",
    default=_DEFAULT.processes,
    show_default=True,
    help="Processes and threads at once.",
)
@click.option(
    "--open-files",
    type=int,
    metavar="N",
    default=_DEFAULT.open_files,
    show_default=True,
    help="File descriptors a process.",
)
@click.option(
    "--workspace",
    type=mebibytes,
    metavar="SIZE",
    default="64M",
    show_default=True,
    help="Files in /workspace and /tmp together.",
)
@click.option(
    "--workspace-files",
    type=int,
    metavar="N",
    default=_DEFAULT.workspace_inodes,
    show_default=True,
    help="Number of files and directories there.",
)
@click.option(
    "--output",
    type=size,
    metavar="SIZE",
    default="16M",
    show_default=True,
    help="Bytes a stream; a program that writes more is ended.",
)
@click.option(
    "--keep",
    type=size,
    metavar="SIZE",
    default="64K",
    show_default=True,
    help="Bytes of stdout, and of stderr, that are passed on.",
)
@click.option(
    "--file", "files", multiple=True, metavar="PATH[=NAME]", help="Copy a file into /workspace, as NAME. Repeatable."
)
@click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="NAME",
    help="An installed package that python3 may import. Repeatable.",
)
@click.option("-i", "--interactive", is_flag=True, help="Read standard input from a terminal too, up to Ctrl-D.")
@click.option("--real-interpreter", is_flag=True, help="Start a new python3 instead of forking the warm one.")
@click.option(
    "--isolation",
    default="auto",
    show_default=True,
    help="The wall around the program: jail, degraded, or auto, the stronger of these that works; or gvisor, microvm.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what happened as one JSON object instead.")
@click.pass_context
def run(
    ctx: click.Context,
    command: tuple[str, ...],
    cpu: float,
    wall: float | None,
    memory: int,
    processes: int,
    open_files: int,
    workspace: int,
    workspace_files: int,
    output: int,
    keep: int,
    files: tuple[str, ...],
    packages: tuple[str, ...],
    interactive: bool,
    real_interpreter: bool,
    isolation: str,
    as_json: bool,
) -> None:
    """Run CMD in a jail with no network, in an empty /workspace, under limits.

    \b
      proctor run -- python3 solution.py < input.txt
      proctor run --cpu 2 --memory 256M --file data.csv -- python3 -c 'print(open("data.csv").read())'

    Standard input (up to 64 MiB) passes in; on a terminal the program gets
    none unless -i is given. Standard output and error pass out as bytes; on a
    terminal, control characters are shown as \\x1b and the like. CMD is not
    given to a shell.

    Files: every word of CMD that is the relative path of an existing regular
    file below the current directory is copied into /workspace under that
    path, and so is each --file. Nothing else of this host's files is there
    but the system directories, read-only.

    \b
    Sizes take K, M, G (powers of 1024); a bare number is bytes, for --memory
    and --workspace MiB. Times take ms, s, m, h; a bare number is seconds.

    \b
    Exit code: the program's own; 124 when a time limit ended it; 128 + N when
    signal N did (137 for memory and output limits); 125 when Proctor failed.
    """
    limits = Limits(
        cpu_s=cpu, wall_s=wall, memory_mib=mib(memory), processes=processes, open_files=open_files,
        workspace_mib=mib(workspace), workspace_inodes=workspace_files,
        output_bytes=output, stdout_keep=keep, stderr_keep=keep,
    )  # fmt: skip
    stdin = read_stdin(interactive)
    contents = gather_files(command, files)
    warm = not real_interpreter and command[0] in _PYTHONS and len(command) > 1 and command[1] in contents
    program = Program(contents, command, warm=warm)
    from proctor.engine.shared import shared_engine

    engine = shared_engine(slots=1, isolation=isolation, packages=packages)
    say_isolation(engine)
    (outcome,) = engine.run(Job(program, (Case(stdin),), limits))
    if as_json:
        click.echo(to_json(outcome_json(outcome), indent=2))
    elif outcome.error is None:
        for data, stream in ((outcome.stdout, sys.stdout), (outcome.stderr, sys.stderr)):
            if stream is not None:  # it was closed from the start: there is nobody to pass on to
                pass_on(data, stream.buffer, is_terminal(stream))
    for note in notes(outcome, limits, keep):
        say(note)
    ctx.exit(exit_code(outcome))


def read_stdin(interactive: bool) -> bytes:
    """All of standard input, at most 64 MiB; nothing from a terminal unless asked to.

    Raises:
        InputError: there is more.
    """
    if sys.stdin is None or (sys.stdin.isatty() and not interactive):
        return b""
    data = sys.stdin.buffer.read(MAX_STDIN + 1)
    if len(data) > MAX_STDIN:
        raise InputError(f"more than {show_size(MAX_STDIN)} of standard input; give large data with --file")
    return data


def gather_files(command: tuple[str, ...], extra: tuple[str, ...]) -> dict[str, bytes]:
    """What lies in /workspace: the files that CMD names, then each ``--file``.

    Raises:
        InputError: a ``--file`` is not a readable regular file, or two have one name.
    """
    found: dict[str, bytes] = {}
    for word in command:
        path = Path(word)
        if word and "\0" not in word and not path.is_absolute() and ".." not in path.parts and path.is_file():
            found[path.as_posix()] = _read(path)
    given: set[str] = set()
    for item in extra:
        source, _, name = item.partition("=")
        path = Path(source)
        plain = not path.is_absolute() and ".." not in path.parts
        name = name or (path.as_posix() if plain else path.name)
        if name in given:
            raise InputError(f"two files would be {name!r} in /workspace; name one with PATH=NAME", field="--file")
        given.add(name)
        found[name] = _read(path)
    total = sum(map(len, found.values()))
    if total > MAX_FILES_BYTES:
        raise InputError(f"{total} bytes of files, more than {show_size(MAX_FILES_BYTES)}", field="--file")
    return found


def _read(path: Path) -> bytes:
    if not path.is_file():
        reason = "is a directory" if path.is_dir() else "is not a regular file" if path.exists() else "no such file"
        raise InputError(f"{path}: {reason}", field="--file")
    length = path.stat().st_size
    if length > MAX_FILES_BYTES:
        raise InputError(f"{path}: {length} bytes, more than {show_size(MAX_FILES_BYTES)}", field="--file")
    return path.read_bytes()


def pass_on(data: bytes, stream: BinaryIO, terminal: bool) -> None:
    """A program's bytes, as they are to a file or pipe, escaped to a terminal."""
    try:
        stream.write(escape(data).encode("utf-8", "backslashreplace") if terminal else data)
        stream.flush()
    except OSError as error:
        error.filename = "standard output or error"
        raise


def exit_code(outcome: Outcome) -> int:
    """What a shell would see; 124 for time, 125 for our own fault."""
    if outcome.error is not None:
        return EXIT_OURS
    if outcome.ended_by in (EndedBy.CPU, EndedBy.WALL):
        return EXIT_TIMEOUT
    if outcome.signal is not None:
        return 128 + outcome.signal
    if outcome.ended_by is not None:  # ended by us, and the status says nothing of it
        return outcome.exit_code or 137
    return outcome.exit_code or 0


def notes(outcome: Outcome, limits: Limits, keep: int) -> list[str]:
    """What the user should know beside the program's own words, a line each."""
    if outcome.error is not None:
        return [f"error: this host failed: {outcome.error}"]
    told = {
        EndedBy.CPU: f"the CPU time limit of {limits.cpu_s:g} s ended the program",
        EndedBy.WALL: f"the wall time limit of {limits.wall:g} s ended the program",
        EndedBy.MEMORY: f"the memory limit of {limits.memory_mib} MiB ended the program",
        EndedBy.OUTPUT: f"the output limit of {show_size(limits.output_bytes)} a stream ended the program",
        EndedBy.CANCELLED: "the program was cancelled",
    }
    lines = [told[outcome.ended_by]] if outcome.ended_by is not None else []
    for name, cut in (("stdout", outcome.stdout_truncated), ("stderr", outcome.stderr_truncated)):
        if cut:
            lines.append(f"{name} was cut after {show_size(keep)}; --keep SIZE passes on more")
    return lines


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON: times in ms, memory in MiB, bytes as text or base64."""
    peak = outcome.peak_memory_bytes
    return {
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "ended_by": outcome.ended_by.value if outcome.ended_by is not None else None,
        **stream_json("stdout", outcome.stdout, outcome.stdout_truncated),
        **stream_json("stderr", outcome.stderr, outcome.stderr_truncated),
        "cpu_ms": round(outcome.cpu_s * 1000, 3),
        "wall_ms": round(outcome.wall_s * 1000, 3),
        "memory_mib": None if peak is None else round(peak / (KIB * KIB), 3),
        "left_processes": outcome.left_processes,
        "confirmed": outcome.confirmed,
        "error": outcome.error,
    }


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def stream_json(name: str, data: bytes, truncated: bool) -> dict[str, Any]:
    """Output as JSON: text, or base64 where it is none."""
    if truncated:  # the cut may lie within a character; that alone does not make it binary
        data = next((data[:end] for end in range(len(data), max(len(data) - 4, -1), -1) if _is_text(data[:end])), data)
    text, encoding = (data.decode(), "utf-8") if _is_text(data) else (base64.b64encode(data).decode(), "base64")
    return {name: text, f"{name}_encoding": encoding, f"{name}_truncated": truncated}
