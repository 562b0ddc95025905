"""``proctor replay``: completions of a results file run again, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.messages import say
from proctor.cli.render import console, to_json
from proctor.cli.units import counted
from proctor.core.errors import InputError
from proctor.core.verdict import Verdict

if TYPE_CHECKING:
    from proctor.grading.grades import Grade

EXIT_DIFFERS = 1
_DIGITS = 1e-9  # rewards are sums of decimals

Difference = dict[str, Any]


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--index", "indices", type=click.IntRange(0), multiple=True, metavar="N", help="Which; repeatable.")
@click.option(
    "--verdict",
    "verdicts",
    type=click.Choice([verdict.value for verdict in Verdict]),
    multiple=True,
    metavar="NAME",
    help="All with this verdict; repeatable.",
)
@click.option("--all", "everything", is_flag=True, help="All.")
@click.option("--problems", multiple=True, metavar="FILE", help="Where the problems are now; repeatable.")
@click.option("--completions", multiple=True, metavar="FILE", help="Where the completions are now; repeatable.")
@click.option("--workers", type=click.IntRange(1, 1024), default=None, metavar="N", help="Programs run at once.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def replay(
    ctx: click.Context,
    results: str,
    indices: tuple[int, ...],
    verdicts: tuple[str, ...],
    everything: bool,
    problems: tuple[str, ...],
    completions: tuple[str, ...],
    workers: int | None,
    as_json: bool,
) -> None:
    """Run completions of a results file again, without the cache, and compare what comes out.

    \b
      proctor replay grades.jsonl --index 17 --index 80
      proctor replay grades.jsonl --verdict time_limit

    The problems, the completions and all options are those that the file says it
    was made from. Compared are the verdict, each case's verdict, the reward, and
    the provenance: digests of program, cases and image, checker, limits, isolation,
    interpreter and Proctor's version. Times and memory are not. Where the policy has a
    slow_penalty, the reward may differ by as much as that moves it.

    Exit codes: 0 all is equal; 1 something differs, or could not be run on this
    host; 2 bad input.
    """
    from proctor.cli.results import load_results

    told = load_results(results)
    lines = {line["index"]: line for line in told.lines}
    missing = [index for index in indices if index not in lines]
    if missing:
        raise InputError(f"{missing[0]} is not in {results}, which has {len(lines)} completions", field="--index")
    wanted = [
        index for index, line in lines.items() if everything or index in indices or str(line["verdict"]) in verdicts
    ]
    if not wanted:
        if verdicts:
            raise InputError(f"{results} has no completion with verdict {' or '.join(verdicts)}", field="--verdict")
        raise click.UsageError("say which completions: --index N, --verdict NAME or --all", ctx)
    work = told.work(problems, completions)
    wanted = sorted(set(wanted))
    if wanted[-1] >= len(work):
        raise InputError(f"{wanted[-1]} is beyond the {len(work)} completions that were read", field="--index")
    now: dict[int, Mapping[str, Any]] = {}

    def done(grade: Grade) -> None:
        now[grade.index] = grade.to_json()
        if not as_json:
            _show(lines[grade.index], now[grade.index], slack)

    slack = _slack(work.options.reward)
    work.grade(wanted, workers, done)
    found = {index: differences(lines[index], now[index], slack) for index in wanted}
    equal = sum(not rows for rows in found.values())
    if as_json:
        rows = [
            {
                "index": index,
                "problem_id": now[index]["problem_id"],
                "equal": not found[index],
                "verdict": now[index]["verdict"],
                "reward": now[index]["reward"],
                "differences": found[index],
            }
            for index in wanted
        ]
        click.echo(to_json({"results": results, "replayed": len(rows), "equal": equal, "completions": rows}, indent=2))
    elif equal < len(wanted):
        say(f"{len(wanted) - equal} of {len(wanted)} differ")
    ctx.exit(EXIT_DIFFERS if equal < len(wanted) else 0)


def differences(before: Mapping[str, Any], now: Mapping[str, Any], slack: float = 0.0) -> list[Difference]:
    """What two result lines of one completion do not share: ``{"what", "before", "now"}`` each.

    What the earlier line does not say is not compared.

    Args:
        slack: by how much rewards may differ.
    """
    found: list[Difference] = []

    def compare(what: str, old: Any, new: Any) -> None:
        if old != new:
            found.append({"what": what, "before": old, "now": new})

    compare("problem_id", before.get("problem_id"), now["problem_id"])
    compare("verdict", before["verdict"], now["verdict"])
    for name, label in (("cases", "case"), ("held_out", "held-out case")):
        old, new = _verdicts(before.get(name)), _verdicts(now.get(name))
        compare(f"number of {label}s", len(old), len(new))
        for number, (a, b) in enumerate(zip(old, new, strict=False)):
            compare(f"{label} {number}", a, b)
    rewards = before.get("reward"), now["reward"]
    if not (all(map(_is_number, rewards)) and abs(rewards[0] - rewards[1]) <= slack + _DIGITS):
        compare("reward", *rewards)
    told = before.get("provenance")
    if isinstance(told, Mapping):
        for name, value in now["provenance"].items():
            if name in told:
                compare(f"provenance.{name}", told[name], value)
    if now["verdict"] == Verdict.INFRASTRUCTURE_ERROR and not any(row["what"] == "verdict" for row in found):
        found.append({"what": "could not be run", "before": before.get("error"), "now": now.get("error")})
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _verdicts(cases: Sequence[Mapping[str, Any]] | None) -> list[str]:
    return [str(case["verdict"]) for case in cases or ()]


def _slack(reward: str) -> float:
    """By how much a policy lets a reward follow the CPU time, which is never the same twice."""
    from proctor.grading.policy import parse_policy

    return sum(step.by for step in parse_policy(reward).steps if step.name == "slow_penalty")


def _show(before: Mapping[str, Any], now: Mapping[str, Any], slack: float) -> None:
    """One line for a completion that is equal, more for one that is not."""
    from proctor.cli.render import cell, reward_text

    shown = console()
    found = differences(before, now, slack)
    head = f"{now['index']} {now['problem_id']}: "
    if not found:
        count = f"{counted(len(now['cases']), 'case')}, reward {reward_text(now['reward'])}, provenance"
        shown.print(cell(f"{head}equal: {now['verdict']}, {count}"), soft_wrap=True)
        return
    shown.print(cell(f"{head}differs", style="red"), soft_wrap=True)
    for row in found:
        shown.print(cell(f"  {row['what']}: {row['before']} before, {row['now']} now"), soft_wrap=True)
