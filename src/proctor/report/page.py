"""The page: facts put into the template, with bounds on everything that a program may have made large."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from proctor.grading.audit import SIGNALS, Sample
from proctor.report import charts, text
from proctor.report.code import Budget, highlighted
from proctor.report.facts import Facts, Group, Run, facts, verdict_of

SUSPICIOUS, SLOWEST, EXAMPLES = 30, 12, 2  # samples with their code; examples are for each verdict
ROWS = 20_000  # samples in the table
PROBLEMS, COLUMNS = 400, 240  # problems in their table, and in their chart
CASES, SQUARES = 12, 200  # of one sample: in words, and as squares
CODE = 1_200_000  # characters of highlighted code in a page
SIGNS = 12  # of one sample
_TIME, _MEMORY = (0.0001, 1.0), (0.001, 1.0)  # shares of the limit


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure at the top."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


def render(samples: Sequence[Sample], *, title: str, about: Mapping[str, Any] | None = None) -> str:
    """The page as HTML: one file, no request.

    Args:
        samples: of a results file, in its order.
        title: what the page is about, such as the file's name.
        about: the header that ``proctor score`` left beside the results.
    """
    known = facts(samples, suspicious=SUSPICIOUS, slowest=SLOWEST, examples=EXAMPLES)
    style, script = _part("report.css"), _part("report.js")
    environment = Environment(
        loader=PackageLoader("proctor.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": text.percent,
        "seconds": text.seconds,
        "mebibytes": text.mebibytes,
        "number": text.number,
        "visible": text.visible,
        "words": charts.words,
    }
    environment.globals |= {"charts": charts, "plural": text.plural, "verdict_of": verdict_of}
    budget = Budget(CODE)
    return environment.get_template("report.html.j2").render(
        title=text.visible(title),
        facts=known,
        style=Markup(style),
        script=Markup(script),
        style_hash=_digest(style),
        script_hash=_digest(script),
        run_facts=_run_facts(about or {}, samples[0].row if samples else {}),
        tiles=_tiles(known, (about or {}).get("from_cache")),
        problems=known.problems[:PROBLEMS],
        column_rates=_column_rates(known.problems),
        named_models=any(model.name != "not named" for model in known.models),
        time_bins=_time_bins(known.runs),
        memory_bins=_memory_bins(known.runs),
        reward_bins=_reward_bins(known),
        suspicious=[_card(run, budget) for run in known.flagged],
        slowest=[_card(run, budget) for run in known.slowest],
        examples=[_card(run, budget) for run in known.examples],
        signal_rows=[
            (name, SIGNALS[name], count) for name, count in sorted(known.signals.items(), key=lambda kv: -kv[1])
        ],
        table=Markup(_table(known)),
        table_rows=min(len(known.runs), ROWS),
    )


def _part(name: str) -> str:
    return files("proctor.report").joinpath("templates", name).read_text("utf-8")


def _digest(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _run_facts(about: Mapping[str, Any], first: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How the results were made, where that is known."""
    rows = [("Proctor", about.get("proctor")), ("reward", about.get("--reward"))]
    for name in ("checker", "isolation", "extract", "limit", "repeat"):
        rows.append((name, about.get(f"--{name}")))
    packages = about.get("--package")
    rows.append(("packages", ", ".join(map(str, packages)) if isinstance(packages, list) else None))
    inputs = about.get("inputs")
    for name in ("problems", "completions"):
        found = inputs.get(name) if isinstance(inputs, Mapping) else None
        names = [str(path).rpartition("/")[2] for path in found] if isinstance(found, list) else []
        rows.append((name, ", ".join(names)))
    told = first.get("provenance")
    if isinstance(told, Mapping):
        for name in ("image", "runner"):
            value = told.get(name)
            rows.append((name, str(value)[:16] if value else None))
    return [(name, text.visible(value, 120)) for name, value in rows if value not in (None, "", [])]


def _tiles(known: Facts, from_cache: object = None) -> list[Tile]:
    total = len(known.runs)
    share = known.accepted / known.scored if known.scored else None
    tiles = [
        Tile("accepted", text.percent(share), f"{known.accepted:,} of {text.plural(known.scored, 'sample')}", "good"),
        Tile("mean reward", text.number(known.mean_reward), f"over {text.plural(len(known.rewards), 'reward')}"),
    ]
    if known.pass_at:
        k, rate = known.pass_at[-1]
        first = text.percent(known.pass_at[0][1])
        tiles.append(Tile(f"pass@{k}", text.percent(rate), f"pass@1 is {first}" if k > 1 else "over problems"))
    flagged = sum(group.flagged for group in known.problems)
    tiles += [
        Tile(
            "worth a look",
            f"{flagged:,}",
            f"{text.percent(flagged / total if total else None)} of all samples",
            "warn" if flagged else "",
        ),
        Tile("CPU time", text.seconds(known.cpu_s), f"{text.seconds(known.cpu_per_accepted)} for each accepted"),
        Tile("cases run", f"{known.cases:,}", f"of {text.plural(len(known.problems), 'problem')}"),
    ]
    if type(from_cache) is int and from_cache:
        tiles.append(Tile("from the cache", text.percent(from_cache / total), f"{from_cache:,} did not have to run"))
    if known.repeated:
        tiles.append(Tile("equal programs", text.percent(known.repeated / total), "ran once, and cost once"))
    if known.gap is not None:
        tone = "bad" if known.gap > 0.1 else ""
        tiles.append(
            Tile("held-out gap", text.percent(known.gap), f"over {text.plural(known.held_out, 'sample')}", tone)
        )
    if known.claimed:
        tiles.append(Tile("claimed", f"{known.claimed:,}", "verdicts are the program's own word", "warn"))
    if total > known.scored:
        tiles.append(Tile("no score", f"{total - known.scored:,}", "this host failed, not they", "bad"))
    return tiles


def _column_rates(problems: Sequence[Group]) -> list[tuple[str, float]]:
    """Pass rates, hardest first; beyond a bound each column is the mean of neighbours."""
    rates = [(group.name, group.pass_rate) for group in problems if group.pass_rate is not None]
    if len(rates) <= COLUMNS:
        return rates
    size = -(-len(rates) // COLUMNS)
    parts = [rates[start : start + size] for start in range(0, len(rates), size)]
    return [(f"{p[0][0]} and {len(p) - 1} more", sum(rate for _, rate in p) / len(p)) for p in parts]


def _time_bins(runs: Sequence[Run]) -> list[tuple[str, int, int]]:
    edges = [*charts.log_edges(*_TIME, 20), 2.2]
    return charts.by_share(((run.time_share, run.accepted) for run in runs if run.time_share is not None), edges)


def _memory_bins(runs: Sequence[Run]) -> list[tuple[str, int, int]]:
    edges = [*charts.log_edges(*_MEMORY, 20), 1.2]
    return charts.by_share(((run.memory_share, run.accepted) for run in runs if run.memory_share is not None), edges)


def _reward_bins(known: Facts) -> list[tuple[str, int, int]]:
    """Twenty steps over the rewards that there are, at least 0 to 1."""
    low, high = min((0.0, *known.rewards)), max((1.0, *known.rewards))
    step = (high - low) / 20
    counts = [[0, 0] for _ in range(20)]
    for run in known.runs:
        if run.reward is not None:
            counts[min(19, max(0, int((run.reward - low) / step)))][0 if run.accepted else 1] += 1
    return [(f"{low + n * step:.3g} to {low + (n + 1) * step:.3g}", good, bad) for n, (good, bad) in enumerate(counts)]


def _card(run: Run, budget: Budget) -> dict[str, Any]:
    """A sample with its code, signs and cases, bounded."""
    sample = run.sample
    cases = [case for case in sample.row.get("cases") or () if isinstance(case, Mapping)]
    listed = sorted(enumerate(cases), key=lambda pair: (verdict_of(pair[1]) == "accepted", pair[0]))[:CASES]
    findings = sample.audit.findings[:SIGNS]
    language = sample.completion.language or sample.problem.language
    code, cut = highlighted(sample.code, language, [f.line for f in findings if f.line], budget)
    return {
        "run": run,
        "findings": findings,
        "suspicion": sample.audit.suspicion,
        "squares": [verdict_of(case) for case in cases[:SQUARES]],
        "more_squares": max(0, len(cases) - SQUARES),
        "cases": [(number, case) for number, case in sorted(listed)],
        "more_cases": max(0, len(cases) - CASES),
        "code": code,
        "cut": cut,
        "language": language,
        "anchor": f"sample-{run.number}",
        "claimed": bool(sample.row.get("claimed")),
        "error": text.visible(sample.row.get("error")),
    }


def _table(known: Facts) -> str:
    """Rows for the script as JSON that cannot end its element: no ``<``, ``>`` or ``&`` is left in it."""
    rows = [
        [
            run.number,
            run.problem_id,
            run.model,
            run.verdict,
            None if run.reward is None else round(run.reward, 4),
            run.accepted_cases,
            run.cases,
            round(run.cpu_s, 4),
            None if run.memory_mib is None else round(run.memory_mib, 1),
            run.sample.audit.suspicion,
        ]
        for run in known.runs[:ROWS]
    ]
    shown = json.dumps(rows, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return shown.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
