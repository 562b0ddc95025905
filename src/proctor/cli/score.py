"""``proctor score``: a file of completions to a file of grades."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.files import check_readable, refuse_inputs
from proctor.cli.messages import explain_os, fail, is_terminal, say
from proctor.cli.render import to_json
from proctor.cli.units import counted, size
from proctor.core.errors import InputError
from proctor.core.runner import RUNNER
from proctor.core.verdict import Verdict

if TYPE_CHECKING:
    from proctor.cli.journal import Journal, Plain
    from proctor.cli.progress import Tally
    from proctor.cli.work import Work
    from proctor.grading.grades import Grade

EXIT_UNSCORED = 1
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


@click.command()
@click.option("--problems", multiple=True, required=True, metavar="FILE", help="Problems; repeatable.")
@click.option(
    "--completions",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Completions; repeatable, scored in the order given.",
)
@click.option(
    "--out", required=True, metavar="FILE", help="Grades, one JSON line a completion, in input order; - for stdout."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=None,
    metavar="N",
    show_default="one a core",
    help="Programs run at once.",
)
@click.option(
    "--isolation",
    default="auto",
    show_default=True,
    help="The wall around each program: jail, degraded, or auto, the stronger of these that works; or gvisor, microvm.",
)
@click.option(
    "--reuse",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    show_default="any number",
    help="Programs that one wall serves before a new one takes its place; 1: a wall for each.",
)
@click.option(
    "--reward", default="share", show_default=True, metavar="POLICY", help="How verdicts become a number; see below."
)
@click.option(
    "--checker",
    default=None,
    metavar="NAME",
    show_default="the problem's own",
    help="Judge outputs by this checker instead; see below.",
)
@click.option(
    "--format",
    "format_",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Format of the problems: auto, proctor, humaneval, mbpp, apps, livecodebench, verification-info.",
)
@click.option(
    "--extract",
    default="last-valid-block",
    show_default=True,
    metavar="RULE",
    help="Which part of a completion is the program.",
)
@click.option(
    "--real-interpreter", is_flag=True, help="Start a new python3 for each case instead of forking the warm one."
)
@click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="NAME",
    help="An installed package that programs may import; repeatable. Else the standard library alone.",
)
@click.option("--no-cache", is_flag=True, help="Run every program, also those whose grades are known from before.")
@click.option(
    "--cache", "cache_file", default=None, metavar="PATH", show_default="the user's own", help="Where grades are kept."
)
@click.option(
    "--cache-size", type=size, default="1G", show_default=True, metavar="SIZE", help="Bytes that they may take."
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=1,
    metavar="K",
    help="Run each program K times, without the cache, and say which differ; the first run counts.",
)
@click.option(
    "--claimed",
    type=click.Choice(["count", "refuse"]),
    default="count",
    show_default=True,
    help="Unit tests that cannot be sealed: their verdict is the program's own claim. Refuse: no reward for it.",
)
@click.option("--check-determinism", is_flag=True, help="The same as --repeat 2.")
@click.option("--limit", type=click.IntRange(1), default=None, metavar="N", help="Score the first N completions only.")
@click.option("--restart", is_flag=True, help="Begin anew, whatever an earlier run left at --out.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output instead of a table."
)
@click.pass_context
def score(
    ctx: click.Context,
    problems: tuple[str, ...],
    completions: tuple[str, ...],
    out: str,
    workers: int | None,
    isolation: str,
    reuse: int | None,
    reward: str,
    checker: str | None,
    format_: str,
    extract: str,
    real_interpreter: bool,
    packages: tuple[str, ...],
    no_cache: bool,
    cache_file: str | None,
    cache_size: int,
    repeat: int,
    claimed: str,
    check_determinism: bool,
    limit: int | None,
    restart: bool,
    as_json: bool,
) -> None:
    """Run every completion against its problem's cases, each in its own jail, and write the grades.

    \b
      proctor score --problems problems.jsonl --completions completions.jsonl --out grades.jsonl

    Each line of --out is one completion: problem_id, index, reward, verdict, cases,
    program_sha256, ... The reward is null, which is no score and no 0, where this
    host, a judge or a test file failed (verdict infrastructure_error), and where
    --claimed refuse refuses it.

    The run can be killed at any moment: what is done is kept in FILE.journal
    beside --out, and the same command goes on from there. --out appears only
    when it is complete. Run again after that, it says so, or tries again just
    those completions that this host failed on.

    Programs that were scored before, with the same cases, checker, limits and all
    else that a verdict depends on, do not run again; `proctor cache` says more.

    \b
    Reward policies: share (of cases accepted), all_or_nothing, or module:function
    (imported, also from here), then as many as wanted of +crash_penalty=0.1,
    +slow_penalty=0.1, +compile_bonus=0.1, +audit_penalty=0.5 (for programs that
    `proctor audit` would flag); for example share+crash_penalty=0.2.

    \b
    Checkers: exact, lines, tokens, numbers, unordered_lines, unordered_tokens, and
    testlib's names (wcmp, yesno, rcmp6, ...); with options as in
    numbers:abs=1e-6,rel=1e-9 or tokens:case=no.

    \b
    Extraction rules: last-valid-block (the last fenced block that defines what the
    problem asks for, else the last that is a program and no example of its use; the
    whole text where there is no block), first-block, last-block, whole.

    \b
    Exit codes: 0 all scored, or refused as --claimed asks; 1 this host, a judge or
    a test file failed on some, or the output could not be written; 2 bad input;
    130 interrupted.
    """
    if not out:
        raise click.UsageError("--out is empty; give a file, or - for standard output", ctx)
    if as_json and out == "-":
        raise click.UsageError("--json and --out - would both write to standard output", ctx)
    if no_cache and cache_file is not None:
        raise click.UsageError("--no-cache and --cache say different things", ctx)
    from proctor.cli.cache import open_cache
    from proctor.cli.progress import Meter, Tally, print_causes, print_summary
    from proctor.cli.work import Options, load_work

    for name in (*problems, *completions):
        check_readable(name)
        for mine in (out, f"{out}.journal", f"{out}.tmp"):
            refuse_inputs(mine, [name])
    options = Options(
        format=format_,
        checker=checker,
        reward=reward,
        extract=extract,
        real_interpreter=real_interpreter,
        isolation=isolation,
        packages=tuple(sorted(set(packages))),
        limit=limit,
        repeat=max(repeat, 2) if check_determinism else repeat,
        claimed=claimed,
    )
    cache = None if no_cache or options.repeat > 1 else open_cache(cache_file, cache_size)
    work = load_work(problems, completions, options)
    tally = Tally(len(work))
    with open_output(out, describe(problems, completions, work), len(work), restart) as journal:
        pending = take_up(journal, tally, out)

        def done(grade: Grade) -> None:
            line = grade.to_json()
            journal.add(grade.index, to_json(line))
            tally.add(line, cached=grade.cached)

        try:
            with _terminable(), _quiet_log(), Meter(tally, terminal=is_terminal(sys.stderr)):
                if pending:
                    work.grade(pending, workers, done, cache or False, reuse)
                journal.finish(tally.cached)
        except (KeyboardInterrupt, _Terminated) as error:
            with contextlib.suppress(OSError):
                journal.sync()
            again = "to go on" if journal.resumes else "to begin anew"
            say(f"interrupted: {_kept(journal, tally)}; run the same command again {again}")
            ctx.exit(EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_TERMINATED)
        except BrokenPipeError:
            raise
        except OSError as error:
            fail(f"{explain_os(error)}; {_kept(journal, tally)}", EXIT_UNSCORED)
    if cache is not None and cache.trouble is not None:
        say(f"warning: the cache {cache.path} could not be used, and scoring went on without it: {cache.trouble}")
    if as_json:
        click.echo(to_json(tally.to_json(out), indent=2))
    elif out != "-":
        print_summary(tally, out, refused=claimed == "refuse")
    print_causes(tally, {name: problem.source for name, problem in work.problems.items()})
    ctx.exit(EXIT_UNSCORED if tally.unscored else 0)


def describe(problems: Sequence[str], completions: Sequence[str], work: Work) -> dict[str, Any]:
    """All that two runs must share to give the same output, and, which may differ, where the inputs were found."""
    from proctor.cli.journal import digest_file
    from proctor.cli.work import judges_digest, policy_file

    options = work.options
    policy = policy_file(options.reward)
    return {
        "proctor": RUNNER,
        "inputs": {
            "problems": [str(Path(name).resolve()) for name in problems],
            "completions": [str(Path(name).resolve()) for name in completions],
        },
        "--problems": [digest_file(Path(name)) for name in problems],
        "--completions": [digest_file(Path(name)) for name in completions],
        "policy": digest_file(policy) if policy is not None else None,
        "judges": judges_digest(work.problems),
        **{f"--{name.replace('_', '-')}": value for name, value in asdict(options).items() if name != "packages"},
        "--package": list(options.packages),
    }


def take_up(journal: Journal | Plain, tally: Tally, out: str) -> list[int]:
    """Count what an earlier run did, say so, and give the numbers that are left to do."""
    before = len(journal)
    if journal.damaged:
        said = counted(journal.damaged, "line")
        say(f"warning: {said} of {out}.journal damaged or changed: what is there is scored again")
    if before:
        void = journal.forget(lambda grade: grade["verdict"] == Verdict.INFRASTRUCTURE_ERROR)
        for grade in journal.grades():
            tally.add(grade, fresh=False)
        if journal.finished:
            say(f"{out} is complete already: {counted(before, 'completion')}, same inputs and options; nothing to do")
        elif void:
            say(
                f"trying again {counted(void, 'completion')} that had no score; {before - void} of {tally.total} are done"
            )
        else:
            say(f"going on where an earlier run was: {before} of {tally.total} are done")
    return [number for number in range(tally.total) if number not in journal]


def _kept(journal: Journal | Plain, tally: Tally) -> str:
    if not len(journal):
        return "nothing is kept" if not tally.done else f"{tally.done} of {tally.total} lines were written"
    return f"{len(journal)} of {tally.total} completions are done and kept"


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """What the layers below log is told by the summary, so it does not break the bar."""
    log, handler = logging.getLogger("proctor"), logging.NullHandler()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Terminated(BaseException):
    """SIGTERM came."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the block like Ctrl-C does, with its own exit code."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: leave signals alone
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def open_output(out: str, about: dict[str, Any], total: int, restart: bool) -> Iterator[Journal | Plain]:
    """The journal of a regular file, or plain lines to ``-``, a pipe or a device.

    Raises:
        InputError: it can be neither, before anything was run.
    """
    from proctor.cli.journal import Journal, Plain

    path = Path(out)
    if out == "-":
        yield Plain(sys.stdout.buffer, "standard output", total)
        return
    try:
        if path.exists() and not path.is_file():
            if path.is_dir():
                raise InputError(f"{out}: is a directory; give a file", field="--out")
            stream: Any = path.open("wb", buffering=0)
        else:
            if not path.parent.is_dir():
                raise InputError(f"{path.parent}: no such directory", field="--out")
            if path.exists() and not os.access(path, os.W_OK):
                raise InputError(f"{out}: permission denied", field="--out")
            stream = None
            journal: Journal | Plain = Journal(path, about, total, restart=restart)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(explain_os(error), field="--out") from error
    if stream is not None:
        journal = Plain(stream, out, total)
    try:
        yield journal
    finally:
        journal.close()
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
