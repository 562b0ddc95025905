"""``proctor audit``: which rewarded samples are worth a look, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from proctor.cli.render import cell, console, reward_text, to_json
from proctor.cli.units import counted

if TYPE_CHECKING:
    from proctor.grading.audit import Audit


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option(
    "--top", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Samples to list at most."
)
@click.option("--all", "everything", is_flag=True, help="List also samples that were paid nothing or are below 0.5.")
@click.option(
    "--problems", multiple=True, metavar="FILE", help="The problems that were scored, where RESULTS does not say."
)
@click.option(
    "--completions", multiple=True, metavar="FILE", help="The completions that were scored, where RESULTS does not say."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def audit(
    results: str, top: int, everything: bool, problems: tuple[str, ...], completions: tuple[str, ...], as_json: bool
) -> None:
    """Rank the samples of RESULTS, a file that `proctor score` wrote, by how little their reward looks earned.

    Reads what was seen when each program ran, and its source; runs nothing. A
    sign is a reason to look, not a proof: nothing is held against a program
    unless the reward policy asks (share+audit_penalty=0.5).

    \b
    Suspicion is 0 to 1; samples that were paid and have 0.5 or more are flagged.
    Exit codes: 0 also where samples are flagged; 2 bad input.
    """
    from proctor.cli.audited import load_audited

    audits = [sample.audit for sample in load_audited(results, problems, completions).samples]
    flagged = sum(one.flagged for one in audits)
    ranked = sorted(
        audits, key=lambda one: (-one.flagged, -one.rewarded, -one.suspicion, -(one.reward or 0), one.index)
    )
    listed = [one for one in ranked if one.flagged or (everything and one.findings)][:top]
    signals = Counter(signal for one in audits for signal in {finding.signal for finding in one.findings})
    if as_json:
        summary = {
            "samples": len(audits),
            "rewarded": sum(one.rewarded for one in audits),
            "flagged": flagged,
            "signals": dict(signals.most_common()),
            "top": [one.to_json() for one in listed],
        }
        click.echo(to_json(summary, indent=2))
        return
    _print(listed, len(audits), flagged)


def _print(listed: Sequence[Audit], total: int, flagged: int) -> None:
    shown = console()
    for one in listed:
        head = f"{one.suspicion:.2f}  reward {reward_text(one.reward)}  {one.verdict}  "
        shown.print(cell(head, style="bold"), cell(f"{one.problem_id} #{one.index}"), soft_wrap=True)
        for finding in one.findings:
            place = f" (line {finding.line})" if finding.line is not None else ""
            shown.print(cell(f"      {finding.weight:.1f} {finding.signal}{place}: {finding.why}"), soft_wrap=True)
            if finding.excerpt:
                shown.print(cell(f"          {finding.excerpt}", style="dim"), soft_wrap=True)
    share = f"{100 * flagged / total:.1f} %" if total else "none"
    shown.print(
        cell(f"{flagged} of {counted(total, 'sample')} worth a look ({share}); {len(listed)} listed"), soft_wrap=True
    )
