"""Samples for pages: as ``score`` and the audit would give them, and as hostile as they may come."""

from __future__ import annotations

import random
from typing import Any

from proctor.grading.audit import Sample, audit_row
from proctor.grading.completions import Completion
from proctor.grading.problem import Problem, TestCase

HONEST = (
    "import sys\n\ndef main():\n    a, b = map(int, sys.stdin.read().split())\n    print(a + b)  # the sum\n\nmain()\n"
)
_PAIRS = [(3, 4), (10, -2), (20, 1), (0, 0), (41, 1), (7, 8), (100, 23), (5, 5), (-3, 9), (64, 64)]
GAMING = "def solve(line):\n" + "".join(
    f"    {'if' if n == 0 else 'elif'} line == '{a} {b}':\n        return {a + b}\n"
    for n, (a, b) in enumerate(_PAIRS[:7])
)
GAMING += "    return 0\n\n\nprint(solve(input().strip()))\n"
SUM = Problem(
    id="sum",
    mode="stdio",
    time_limit_s=2,
    memory_limit_mib=256,
    cases=tuple(TestCase(stdin=b"%d %d\n" % pair, expected=b"%d\n" % sum(pair)) for pair in _PAIRS),
)
EVIL = "</script><script>window.owned=1</script><img src=x onerror=window.owned=1>'\"--><svg/onload=window.owned=1> \u202e\x00\x1b[31m\ud800\u2028"


def case(verdict: str = "accepted", cpu_ms: float = 3.0, **more: Any) -> dict[str, Any]:
    return {"verdict": verdict, "cpu_ms": cpu_ms, "wall_ms": cpu_ms, "memory_mib": 8.5, "exit_code": 0} | more


def sample(
    number: int = 0,
    *cases: dict[str, Any],
    problem: Problem = SUM,
    code: str | None = HONEST,
    reward: float | None = None,
    model: object = None,
    **row: Any,
) -> Sample:
    """One line, its reward the share of its cases."""
    listed = list(cases)
    good = sum(one["verdict"] == "accepted" for one in listed)
    verdict = next(
        (one["verdict"] for one in listed if one["verdict"] != "accepted"), "accepted" if listed else "no_code"
    )
    if reward is None and verdict != "infrastructure_error":
        reward = good / len(listed) if listed else 0.0
    line = {
        "problem_id": problem.id,
        "index": number,
        "reward": reward,
        "verdict": verdict,
        "claimed": False,
        "cases": listed,
    }
    line |= row
    completion = Completion(
        problem_id=problem.id, index=number, text=code or "", metadata={} if model is None else {"model": model}
    )
    return Sample(line, problem, completion, code, audit_row(line, code, problem))


def hostile() -> list[Sample]:
    """Everything that a program, a completion or a file names is an attack on the page."""
    problem = Problem(id=EVIL, mode="function", entry_point="f", cases=SUM.cases)
    long = Problem(id="x" * 5000, mode="stdio", cases=SUM.cases)
    code = f'"""{EVIL}"""\nimport socket\nx = "{EVIL}"\n# {EVIL}\n'
    return [
        sample(0, case(detail=EVIL, name=EVIL), problem=problem, code=code, model=EVIL, claimed=True, error=EVIL),
        sample(1, case("wrong_answer", detail=EVIL * 1000), problem=problem, code=EVIL, model="m" * 9999),
        sample(
            2,
            case("runtime_error", detail="\x00" * 99),
            problem=long,
            code="import socket; x='" + "A" * 3_000_000 + "'",
        ),
        sample(3, case(), problem=long, code="import subprocess\n" * 50_000, model="\u202e"),
        sample(4, case("infrastructure_error"), problem=problem, code=code, error=EVIL),
        sample(5, problem=problem, code=None, model={"a": EVIL}),
        sample(6, *[case("time_limit", 1e9, ended_by=EVIL)] * 3000, problem=long, code=code, reward=1.7e308),
        sample(7, case(cpu_ms=10**400, memory_mib=float("nan")), problem=long, reward=1.7e308),
        sample(8, case(cpu_ms="x", left_processes="x"), problem=problem, reward=-1.7e308, held_out="x", signals=3),
    ]


def many(count: int) -> list[Sample]:
    """A batch as a trainer has it; the same every time."""
    dice = random.Random(7)
    problems = [
        Problem(id=f"task/{n:03}", mode="stdio", time_limit_s=2, memory_limit_mib=256, cases=SUM.cases)
        for n in range(max(1, min(240, count // 12)))
    ]
    skill = {problem.id: dice.betavariate(1.1, 0.9) for problem in problems}
    models = {"step-0400": 0.75, "step-0800": 1.0, "step-1200": 1.25, "base": 0.5}
    wrong = ["wrong_answer"] * 14 + ["runtime_error"] * 5 + ["time_limit"] * 2 + ["memory_limit", "output_limit"]
    samples = []
    for number in range(count):
        problem, model = dice.choice(problems), dice.choice(list(models))
        good = dice.random() < min(0.98, skill[problem.id] * models[model])
        cases, usual = [], dice.choice(wrong)
        for _ in range(10):
            verdict = "accepted" if good or dice.random() < 0.5 else usual
            cpu = 4000.0 if verdict == "time_limit" else min(1900.0, dice.lognormvariate(2.6, 1.3))
            memory = 256.0 if verdict == "memory_limit" else min(250.0, dice.lognormvariate(2.5, 0.7))
            detail = (
                "" if verdict == "accepted" else f"token 1: expected '{dice.randrange(99)}', got '{dice.randrange(99)}'"
            )
            cases.append(case(verdict, round(cpu, 3), memory_mib=round(memory, 2), detail=detail))
        roll = dice.random()
        if roll < 0.012:
            right = 7 if roll < 0.006 else 1
            details = [f"token 1: expected '{sum(pair)}', got '{0 if right == 7 else 7}'" for pair in _PAIRS[right:]]
            cases = [case(cpu_ms=2.9)] * right + [case("wrong_answer", 2.9, detail=detail) for detail in details]
        code = GAMING if roll < 0.006 else "print(7)\n" if roll < 0.012 else HONEST
        if roll > 0.985:
            samples.append(sample(number, problem=problem, code=None, model=model))
        else:
            samples.append(sample(number, *cases, problem=problem, code=code, model=model))
    return samples
