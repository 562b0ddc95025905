"""``proctor demo``: bundled programs of every kind, scored before your eyes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.messages import say, say_isolation
from proctor.cli.render import cell, console, reward_text, to_json, verdict_cell

if TYPE_CHECKING:
    from proctor.engine.shared import SyncEngine
    from proctor.grading.grades import Grade

_DATA = "demo_data"
_CASES, _ROUNDS = 10, 3
_SPEED = b"import sys\nnumbers = sys.stdin.read().split()\nprint(sum(map(int, numbers)))\n"
_INPUT = b"1 2 3\n"


@click.command()
@click.option(
    "--isolation",
    default="auto",
    show_default=True,
    help="The wall around each program: jail, degraded, or auto, the stronger of these that works; or gvisor, microvm.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON instead of a table.")
@click.pass_context
def demo(ctx: click.Context, isolation: str, as_json: bool) -> None:
    """Score bundled programs that are right, wrong, crash, loop, or attack this host.

    Each runs in its own jail. The last line compares a warm case with an
    unsandboxed subprocess.run of the same program, both measured just then.

    Exit code: 0 when every verdict is the expected one, else 1.
    """
    from proctor.engine.shared import shared_engine

    rows = load_rows()
    rows, left_out = usable(rows)
    engine = shared_engine(isolation=isolation)
    say_isolation(engine)
    started = time.monotonic()
    grades = grade_rows(rows, engine)
    seconds = time.monotonic() - started
    speed = compare_speed(engine)
    results = [result_json(row, grade) for row, grade in zip(rows, grades, strict=True)]
    wrong = [row["program"] for row in results if row["verdict"] != row["expected"]]
    if as_json:
        click.echo(
            to_json(
                {
                    "isolation": engine.isolation,
                    "results": results,
                    "unexpected": len(wrong),
                    "left_out": left_out,
                    "seconds": round(seconds, 3),
                    **speed,
                },
                indent=2,
            )
        )
    else:
        show(results, engine.isolation, seconds, speed)
    for language in left_out:
        say(f"programs in {language} were left out: this host has no tools for it")
    if wrong:
        say(f"error: {len(wrong)} of {len(rows)} verdicts are not the expected ones: {', '.join(wrong)}")
        ctx.exit(1)


def load_rows() -> list[dict[str, Any]]:
    """The bundled completions, one dict each: problem_id, model (a name), detail, expect, completion; perhaps ``or``.

    ``or`` is a verdict that is right too: where starting a process takes long (gVisor, a busy host), a fork bomb is out of time
    before it is out of processes.
    """
    text = files("proctor").joinpath(_DATA, "completions.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def usable(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows whose language this host can run, and the languages that it cannot."""
    from proctor.core.errors import InputError
    from proctor.engine.languages import language

    missing = []
    for name in sorted({row["language"] for row in rows}):
        try:
            language(name)
        except InputError:
            missing.append(name)
    return [row for row in rows if row["language"] not in missing], missing


def grade_rows(rows: list[dict[str, Any]], engine: SyncEngine) -> list[Grade]:
    """A grade for each row."""
    from proctor.grading.api import grade
    from proctor.grading.formats import load_problems

    with as_file(files("proctor").joinpath(_DATA, "problems.jsonl")) as path:
        problems = {problem.id: problem for problem in load_problems(path)}
    return grade(rows, problems, engine=engine, cache=False)


def result_json(row: dict[str, Any], grade: Grade) -> dict[str, Any]:
    """One line of the table: CPU in ms over all cases, memory in MiB at its highest."""
    peaks = [case.memory_mib for case in grade.cases if case.memory_mib is not None]
    return {
        "problem_id": row["problem_id"],
        "program": row["model"],
        "about": row["detail"],
        "verdict": str(grade.verdict),
        "expected": row["or"] if row.get("or") == grade.verdict else row["expect"],
        "reward": grade.reward,
        "cpu_ms": round(sum(case.cpu_ms for case in grade.cases), 1),
        "memory_mib": round(max(peaks), 1) if peaks else None,
    }


def show(results: list[dict[str, Any]], isolation: str, seconds: float, speed: dict[str, Any]) -> None:
    """The table, and the comparison under it."""
    from rich.table import Table

    shown = console()
    table = Table(title=f"{len(results)} programs, isolation {isolation}", title_justify="left")
    for name, justify in (
        ("problem", "left"), ("program", "left"), ("what it does", "left"), ("verdict", "left"),
        ("reward", "right"), ("cpu ms", "right"), ("MiB", "right"),
    ):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in results:
        verdict = verdict_cell(row["verdict"])
        if row["verdict"] != row["expected"]:
            verdict.append(f" (expected {row['expected']})", style="bold red")
        table.add_row(
            cell(row["problem_id"].removeprefix("demo/")),
            cell(row["program"]),
            cell(row["about"]),
            verdict,
            reward_text(row["reward"]),
            f"{row['cpu_ms']:.0f}",
            "-" if row["memory_mib"] is None else f"{row['memory_mib']:.0f}",
        )
    shown.print(table)
    shown.print(cell(f"{len(results)} programs scored in {seconds:.1f} s"))
    shown.print(
        cell(
            f"A warm case, all protections on: {speed['warm_case_ms']:.1f} ms; unsandboxed subprocess.run of the same "
            f"program: {speed['subprocess_ms']:.1f} ms; ratio {speed['ratio']:.2f}"
        ),
        soft_wrap=True,
    )


def compare_speed(engine: SyncEngine) -> dict[str, Any]:
    """Median ms of a warm case and of ``subprocess.run([python, file])``, taken in turn.

    A warm case is a tenth of a job of ten.

    Raises:
        InfrastructureError: a case did not give its answer.
    """
    from proctor.core.errors import InfrastructureError
    from proctor.engine.job import Case, Job
    from proctor.engine.languages import program

    job = Job(program(_SPEED.decode()), (Case(_INPUT),) * _CASES)
    warm, bare = [], []
    with tempfile.TemporaryDirectory(prefix="proctor-demo-") as folder:
        source = Path(folder, "solution.py")
        source.write_bytes(_SPEED)
        for turn in range(_ROUNDS + 1):
            start = time.perf_counter()
            outcomes = engine.run(job)
            middle = time.perf_counter()
            for outcome in outcomes:
                if outcome.stdout != b"6\n":
                    raise InfrastructureError(outcome.error or "the program of the speed comparison failed")
            for _ in range(_CASES):
                subprocess.run([sys.executable, source], input=_INPUT, capture_output=True, check=True)
            if turn:  # the first one warms caches
                warm.append((middle - start) * 1000 / _CASES)
                bare.append((time.perf_counter() - middle) * 1000 / _CASES)
    case, other = statistics.median(warm), statistics.median(bare)
    return {"warm_case_ms": round(case, 2), "subprocess_ms": round(other, 2), "ratio": round(case / other, 3)}
