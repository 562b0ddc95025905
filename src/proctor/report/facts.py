"""What a report says, as numbers: everything is counted here, nothing is formatted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import fmean, median
from typing import Any

from proctor.core.verdict import Verdict
from proctor.grading.api import pass_at_k
from proctor.grading.audit import Sample
from proctor.grading.audit.audit import held_out_gap
from proctor.report.text import visible

MODELS = 24  # groups that are told apart; the rest is one
KS = (1, 2, 4, 5, 8, 10, 16, 25, 50, 100)
OTHER, UNNAMED = "other models", "not named"


@dataclass(frozen=True, slots=True)
class Run:
    """One sample in numbers; None where it is not known.

    Attributes:
        number: its place in the completions' order.
        cpu_s: CPU seconds of all its cases, those held out too.
        time_share, memory_share: of its dearest case, as a share of the limit (1 is the limit); calls and tests that
            shared a process count together.
    """

    sample: Sample
    number: int
    problem_id: str
    model: str
    verdict: str
    reward: float | None
    accepted_cases: int
    cases: int
    cpu_s: float
    time_share: float | None
    memory_mib: float | None
    memory_share: float | None
    gap: float | None

    @property
    def scored(self) -> bool:
        """This host did not fail on it."""
        return self.verdict != Verdict.INFRASTRUCTURE_ERROR

    @property
    def accepted(self) -> bool:
        return self.verdict == Verdict.ACCEPTED


@dataclass(frozen=True, slots=True)
class Group:
    """Samples that share a problem or a model.

    Attributes:
        pass_rate: share accepted of those that this host could score.
        verdicts: how many of each.
        cpu_s: median CPU seconds a sample.
        gap: mean gap between the usual cases and those held out.
    """

    name: str
    count: int
    pass_rate: float | None
    mean_reward: float | None
    verdicts: Mapping[str, int]
    cpu_s: float | None
    flagged: int
    gap: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a page shows.

    Attributes:
        cpu_s: CPU seconds in all, equal programs for a problem counted once.
        repeated: samples whose program is one that came before.
        gap: mean over the samples with held-out cases: share accepted of the usual cases less that of those.
    """

    runs: Sequence[Run]
    verdicts: Mapping[str, int]
    problems: Sequence[Group]
    models: Sequence[Group]
    mean_reward: float | None
    rewards: Sequence[float]
    pass_at: Sequence[tuple[int, float]]
    accepted: int
    scored: int
    cases: int
    cpu_s: float
    cpu_per_accepted: float | None
    flagged: Sequence[Run]
    slowest: Sequence[Run]
    examples: Sequence[Run]
    claimed: int
    claimed_problems: Sequence[str]
    repeated: int
    held_out: int
    gap: float | None
    errors: Mapping[str, int]
    signals: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON data; samples by their number in the completions' order, times in seconds."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("runs", "rewards", "examples"):
            del plain[name]
        for name in ("verdicts", "errors", "signals"):
            plain[name] = dict(plain[name])
        for name in ("problems", "models"):
            plain[name] = [asdict(group) | {"verdicts": dict(group.verdicts)} for group in plain[name]]
        for name in ("flagged", "slowest"):
            plain[name] = [run.number for run in plain[name]]
        return plain | {
            "samples": len(self.runs),
            "pass_at": {str(k): rate for k, rate in self.pass_at},
            "claimed_problems": list(self.claimed_problems),
        }


def facts(samples: Iterable[Sample], *, suspicious: int, slowest: int, examples: int) -> Facts:
    """Count everything.

    Args:
        samples: of a results file.
        suspicious, slowest, examples: how many samples to show of each kind; examples are for each verdict.
    """
    runs = _runs(list(samples))
    scored = [run for run in runs if run.scored]
    accepted = sum(run.accepted for run in scored)
    flagged = sorted(
        (r for r in runs if r.sample.audit.flagged),
        key=lambda r: (-r.sample.audit.suspicion, -(r.reward or 0), r.number),
    )
    by_time = sorted((r for r in scored if r.time_share), key=lambda r: (-(r.time_share or 0), r.number))
    gaps = [run.gap for run in runs if run.gap is not None]
    rewards = [run.reward for run in runs if run.reward is not None]
    # Equal programs for a problem run once, so that they cost once.
    distinct = {(run.problem_id, run.sample.row.get("program_sha256") or run.number): run for run in reversed(runs)}
    cpu = sum(run.cpu_s for run in distinct.values())
    problems = _groups(runs, lambda run: run.problem_id)
    return Facts(
        runs=runs,
        verdicts=_verdicts(runs),
        problems=sorted(
            problems, key=lambda g: (g.pass_rate if g.pass_rate is not None else 2, g.mean_reward or 0, g.name)
        ),
        models=sorted(
            _groups(runs, lambda run: run.model), key=lambda g: (g.name == OTHER, -(g.pass_rate or 0), g.name)
        ),
        mean_reward=fmean(rewards) if rewards else None,
        rewards=rewards,
        pass_at=_pass_at(scored),
        accepted=accepted,
        scored=len(scored),
        cases=sum(run.cases for run in runs),
        cpu_s=cpu,
        cpu_per_accepted=cpu / accepted if accepted else None,
        flagged=flagged[:suspicious],
        slowest=by_time[:slowest],
        examples=_examples(runs, examples),
        claimed=sum(bool(run.sample.row.get("claimed")) for run in runs),
        claimed_problems=sorted({run.problem_id for run in runs if run.sample.row.get("claimed")}),
        repeated=len(runs) - len(distinct),
        held_out=len(gaps),
        gap=fmean(gaps) if gaps else None,
        errors=Counter(visible(run.sample.row.get("error")) for run in runs if not run.scored),
        signals=Counter(signal for run in runs for signal in {finding.signal for finding in run.sample.audit.findings}),
    )


def _runs(samples: Sequence[Sample]) -> list[Run]:
    names = [visible(s.completion.metadata.get("model"), 80) or UNNAMED for s in samples]
    kept = {name for name, _ in Counter(names).most_common(MODELS)}
    return [_run(sample, name if name in kept else OTHER) for sample, name in zip(samples, names, strict=True)]


def _run(sample: Sample, model: str) -> Run:
    row = sample.row
    cases = _listed(row, "cases")
    cpu = [_number(case.get("cpu_ms")) or 0.0 for case in cases]
    memory = max((m for case in cases if (m := _number(case.get("memory_mib"))) is not None), default=None)
    dearest = sum(cpu) if sample.problem.mode != "stdio" else max(cpu, default=0.0)
    return Run(
        sample=sample,
        number=int(row["index"]),
        problem_id=visible(sample.problem.id),
        model=model,
        verdict=verdict_of(row),
        reward=_number(row.get("reward")),
        accepted_cases=sum(case.get("verdict") == Verdict.ACCEPTED for case in cases),
        cases=len(cases),
        cpu_s=(sum(cpu) + sum(_number(case.get("cpu_ms")) or 0.0 for case in _listed(row, "held_out"))) / 1000,
        time_share=dearest / 1000 / sample.problem.time_limit_s if cases else None,
        memory_mib=memory,
        memory_share=None if memory is None else memory / sample.problem.memory_limit_mib,
        gap=held_out_gap(row),
    )


def _listed(row: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = row.get(name)
    return [case for case in found if isinstance(case, Mapping)] if isinstance(found, list | tuple) else []


def verdict_of(row: Mapping[str, Any]) -> str:
    """The verdict of a line or a case; a word that is none counts as nothing known."""
    word = row.get("verdict")
    return word if word in _WORDS else str(Verdict.INFRASTRUCTURE_ERROR)


_MOST = 1e300
_WORDS = [verdict.value for verdict in Verdict]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # not a number
        return None
    return float(min(max(value, -_MOST), _MOST))  # so that a sum of many cannot overflow


def _verdicts(runs: Iterable[Run]) -> dict[str, int]:
    count = Counter(run.verdict for run in runs)
    return {word: count[word] for word in _WORDS if count[word]}


def _groups(runs: Iterable[Run], key: Any) -> list[Group]:
    members: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        members[key(run)].append(run)
    groups = []
    for name, group in members.items():
        scored = [run for run in group if run.scored]
        rewards = [run.reward for run in group if run.reward is not None]
        gaps = [run.gap for run in group if run.gap is not None]
        groups.append(
            Group(
                name=name,
                count=len(group),
                pass_rate=sum(run.accepted for run in scored) / len(scored) if scored else None,
                mean_reward=fmean(rewards) if rewards else None,
                verdicts=_verdicts(group),
                cpu_s=median(run.cpu_s for run in scored) if scored else None,
                flagged=sum(run.sample.audit.flagged for run in group),
                gap=fmean(gaps) if gaps else None,
            )
        )
    return groups


def _pass_at(scored: Iterable[Run]) -> list[tuple[int, float]]:
    """The estimates of pass@k for the k that at least half of the problems have samples for; over those problems."""
    totals: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for run in scored:
        totals[run.problem_id] += 1
        right[run.problem_id] += run.accepted
    found = []
    for k in KS:
        enough = [name for name, total in totals.items() if total >= k]
        if enough and 2 * len(enough) >= len(totals):
            found.append((k, fmean(pass_at_k(totals[name], right[name], k) for name in enough)))
    return found


def _examples(runs: Sequence[Run], each: int) -> list[Run]:
    """Of each verdict but accepted the first few, of different problems."""
    chosen: list[Run] = []
    seen: Counter[str] = Counter()
    problems: set[tuple[str, str]] = set()
    for run in runs:
        key = run.verdict, run.problem_id
        if run.accepted or seen[run.verdict] >= each or key in problems:
            continue
        seen[run.verdict] += 1
        problems.add(key)
        chosen.append(run)
    return sorted(chosen, key=lambda run: (_WORDS.index(run.verdict), run.number))
