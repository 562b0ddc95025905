"""``proctor doctor``: which protections hold on this host, and a corpus of attacks against them."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import click

from proctor.doctor import audit, manifest, report
from proctor.doctor.canary import Canary, alone
from proctor.doctor.corpus import Campaign
from proctor.doctor.host_audit import HostAudit, by_others
from proctor.doctor.judging import summary
from proctor.doctor.opened import opened
from proctor.doctor.progress import progress
from proctor.doctor.text import printable
from proctor.doctor.trial import examine, warm_up
from proctor.isolation import gpus, monitors, runsc

EXIT_MISSING = 1  # a protection is missing, an attack was not contained, or something is left on the host


@click.command()
@click.option(
    "--attacks",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Run a corpus of attacks: a folder with manifest.jsonl, tasks.json and the programs they name.",
)
@click.option(
    "--isolation",
    default="auto",
    show_default=True,
    metavar="LEVEL",
    help="Level to examine: auto, jail, degraded, gvisor or microvm.",
)
@click.option("--rounds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Times the corpus is run.")
@click.option("--core-only", is_flag=True, help="Of the corpus, only the rows marked core.")
@click.option(
    "--conformance",
    is_flag=True,
    help="Run the suite that every isolation level passes or declares, instead of the attacks.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output, for machines.")
def doctor(
    attacks: Path | None, isolation: str, rounds: int, core_only: bool, conformance: bool, as_json: bool
) -> None:
    """Try each protection's attack on this host and say which hold.

    Exit code 0: all of them hold; with --attacks, everything was contained
    that doctor does not say is missing here; with --conformance, each check
    passed or is declared. 1: something is missing, was not contained, or
    failed. 2: bad input. The last line is a count.
    """
    if conformance:
        for given, name in ((attacks is not None, "--attacks"), (rounds > 1, "--rounds"), (core_only, "--core-only")):
            if given:
                raise click.UsageError(
                    f"--conformance takes --isolation and --json alone; leave out {name}, or --conformance to run attacks"
                )
        from proctor.doctor.conformance.command import conform

        sys.exit(conform(isolation, as_json))
    corpus = manifest.load(attacks) if attacks else None
    out = report.console()
    document: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone())
        document["gvisor"], document["microvm"] = runsc.state(), monitors.state()
        document["gpus"] = gpus.find().state()
        outside = audit.snapshot()
        corpus_audit = HostAudit(attacks, stack) if attacks else None
        canary = Canary()
        with canary, opened(isolation) as engine:
            document["isolation"] = engine.isolation
            document["stepped_down"] = [str(reason) for reason in engine.features.get("stepped_down", [])]
            if not as_json:
                out.print(report.level(engine.isolation))
                for reason in document["stepped_down"]:
                    out.print(f"no stronger isolation on this host: {printable(reason)}", style="yellow")
                for name in ("gvisor", "microvm"):
                    if engine.isolation != name:
                        out.print(f"isolation {name}: {printable(document[name], 800)}", style="dim")
                out.print(f"GPUs for sandboxes: {printable(document['gpus'], 1000)}", style="dim")
            warm_up(engine)
            findings = examine(engine, canary, audit.quiet())
            document["protections"] = [found.to_json() for found in findings]
            fine = all(found.holds for found in findings)
            last = report.missing(findings)
            if not as_json:
                out.print(report.protections(findings))
            if corpus is not None:
                if not as_json:
                    out.print(last + "\n")
                campaign = Campaign(
                    corpus,
                    engine,
                    canary,
                    missing={f.key: f.remedy for f in findings if f.tried and not f.holds},
                    rounds=rounds,
                    core_only=core_only,
                )
                _run(campaign, quiet=as_json)
                fine, last = campaign.contained, summary(campaign.results)
                document |= {
                    "attacks": [report.result_json(r) for r in campaign.results],
                    "controls": campaign.controls,
                }
                if not as_json:
                    out.print(report.attacks(campaign.results))
                    for fault in campaign.controls:
                        out.print(f"control: {fault}; this campaign does not count", style="bold red")
        left = audit.settled(outside)
        others: list[str] = []
        if corpus_audit is not None:
            after = audit.snapshot()
            busy = audit.busy(outside, after)
            for line in (*audit.amounts(outside, after), *(f"host_audit.py: {line}" for line in corpus_audit.diff())):
                (others if by_others(line, busy) else left).append(line)
    document["left_on_host"], document["made_by_others"] = left, others
    document["summary"] = last
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        for thing in left:
            out.print(f"left on the host: {thing}", style="bold red")
        for thing in others:
            out.print(f"made meanwhile by other programs of this host: {thing}", style="dim")
        if corpus is not None and not left:
            out.print("host audit: clean")
        out.print(last)
    sys.exit(0 if fine and not left else EXIT_MISSING)


def _run(campaign: Campaign, quiet: bool) -> None:
    """The campaign, with its progress shown."""
    total = sum(row.core or not campaign.core_only for row in campaign.corpus.rows) * campaign.rounds
    with progress("attacks", total, quiet=quiet) as show:
        done = itertools.count(1)
        campaign.on_result = lambda result: show(next(done), result.row.file)
        campaign.run()
