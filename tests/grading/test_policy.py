"""Reward policies: each, composed, from a spec, from a caller's function."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from typing import Any

import pytest

import proctor
from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.core.verdict import Verdict
from proctor.grading.grades import CaseGrade, Grade, overall
from proctor.grading.policy import (
    all_or_nothing,
    as_policy,
    compile_bonus,
    crash_penalty,
    parse_policy,
    reward_of,
    share,
    slow_penalty,
)

OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


def made(*verdicts: Verdict, cpu_s: float = 0.0, verdict: Verdict | None = None) -> Grade:
    cases = tuple(CaseGrade(verdict=v, outcome=Outcome(cpu_s=cpu_s, exit_code=0)) for v in verdicts)
    return Grade(problem_id="p", verdict=verdict or overall(cases), cases=cases, limits=Limits(cpu_s=2))


def test_share_and_all_or_nothing() -> None:
    assert share(made(OK, OK, WRONG, CRASH)) == 0.5
    assert all_or_nothing(made(OK, OK, WRONG)) == 0.0
    assert all_or_nothing(made(OK, OK)) == 1.0
    assert share(made(verdict=Verdict.NO_CODE)) == 0.0
    assert all_or_nothing(made(verdict=Verdict.NO_CODE)) == 0.0


def test_a_crash_is_below_a_wrong_answer() -> None:
    policy = share | crash_penalty(0.1)
    assert policy(made(WRONG, WRONG)) == 0.0
    for verdict in set(Verdict) - {OK, WRONG, Verdict.INFRASTRUCTURE_ERROR}:
        assert policy(made(verdict, verdict)) == -0.1, verdict
    assert policy(made(OK, CRASH)) == 0.4
    assert policy(made(verdict=Verdict.NO_CODE)) == -0.1
    assert crash_penalty(share, 0.1) == policy


def test_slow_programs_get_less() -> None:
    policy = share | slow_penalty(0.2)
    assert policy(made(OK, cpu_s=0.0)) == 1.0
    assert policy(made(OK, cpu_s=1.0)) == pytest.approx(0.9)
    assert policy(made(OK, cpu_s=2.0)) == pytest.approx(0.8)
    assert policy(made(OK, cpu_s=9.0)) == pytest.approx(0.8)
    assert policy(made(WRONG, cpu_s=2.0)) == 0.0


def test_no_case_is_given_up_for_its_time() -> None:
    for by in (0.1, 0.2, 1.0):
        policy = share | slow_penalty(by)
        solved = policy(made(*[OK] * 20, cpu_s=1.9))
        given_up = policy(made(*[OK] * 19, WRONG, cpu_s=0.0))
        assert 0.95 == given_up < solved < policy(made(*[OK] * 20, cpu_s=0.1)), by
    assert (all_or_nothing | slow_penalty(0.2))(made(*[OK] * 20, cpu_s=2.0)) == pytest.approx(0.8)


def test_compiling_and_running_is_worth_a_little() -> None:
    policy = share | compile_bonus(0.1)
    assert policy(made(Verdict.COMPILE_ERROR)) == 0.0
    assert policy(made(verdict=Verdict.NO_CODE)) == 0.0
    assert policy(made(CRASH)) == 0.0
    assert policy(made(WRONG)) == pytest.approx(0.1)
    assert policy(made(OK, WRONG)) == pytest.approx(0.55)
    assert policy(made(OK)) == pytest.approx(1.0)


def test_steps_compose_in_order_and_survive_pickling() -> None:
    policy = all_or_nothing | crash_penalty(0.1) | slow_penalty(0.5)
    assert policy.name == "all_or_nothing+crash_penalty=0.1+slow_penalty=0.5"
    assert parse_policy(policy.name) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert slow_penalty(crash_penalty(all_or_nothing, 0.1), 0.5) == policy
    assert parse_policy("share + crash_penalty=0.1") == share | crash_penalty(0.1)
    assert parse_policy("share+compile_bonus") == share | compile_bonus(0.1)


def mine(grade: Grade) -> float:
    return 0.25 * len(grade.cases)


def test_a_plain_function_is_a_policy() -> None:
    assert reward_of(mine, made(OK, OK)) == 0.5
    assert reward_of(crash_penalty(mine, 0.5), made(CRASH)) == -0.25
    assert as_policy(mine).name == "mine"
    path = f"{__name__}:mine"
    assert parse_policy(f"{path}+crash_penalty=1").name == f"{path}+crash_penalty=1"
    assert reward_of(parse_policy(path), made(OK)) == 0.25


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, [1], 1 + 0j, Fraction(10**400)])
def test_a_reward_is_a_finite_number(value: Any) -> None:
    def silly(grade: Grade) -> float:
        return value  # type: ignore[no-any-return]

    with pytest.raises(InputError, match=r"reward policy '.*silly' gave .*must be a finite number"):
        reward_of(silly, made(OK))


def test_a_policy_that_raises_is_named() -> None:
    def careless(grade: Grade) -> float:
        return 1 / 0

    with pytest.raises(
        InputError, match=r"reward policy '.*careless' raised ZeroDivisionError on problem 'p'"
    ) as caught:
        reward_of(careless, made(OK))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.field == "reward"


def test_numbers_of_any_kind_become_floats() -> None:
    assert reward_of(lambda grade: True, made(OK)) == 1.0
    assert reward_of(lambda grade: Fraction(1, 4), made(OK)) == 0.25  # type: ignore[arg-type, return-value]


def test_our_own_failure_is_no_reward_whatever_the_policy() -> None:
    grade = made(OK, Verdict.INFRASTRUCTURE_ERROR, WRONG)
    assert grade.verdict is Verdict.INFRASTRUCTURE_ERROR

    def never(grade: Grade) -> float:
        raise AssertionError("asked")

    for policy in (share, all_or_nothing | crash_penalty(1), never):
        assert reward_of(policy, grade) is None
    assert reward_of(share, made(verdict=Verdict.INFRASTRUCTURE_ERROR)) is None


@pytest.mark.parametrize(
    "spec",
    ["", "shares", "share+speed", "share+crash_penalty=x", "share+crash_penalty=-1", "share+slow_penalty=nan", ":f", "m:",
     "no.such.module:f", "math:nope", "math:pi", "share+crash_penalty=1e9"],
)  # fmt: skip
def test_bad_specs_are_refused(spec: str) -> None:
    with pytest.raises(InputError):
        parse_policy(spec)


def test_what_is_no_step_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(InputError, match=r"field 'reward': 'crash_penalty' is no step .*; give crash_penalty\(0\.1\)"):
        share | crash_penalty  # type: ignore[operator]
    with pytest.raises(InputError, match=r"0\.5 is no step of a policy; give a step, such as crash_penalty\(0\.1\)"):
        share | 0.5  # type: ignore[operator]


def test_no_policy_at_all() -> None:
    with pytest.raises(InputError, match="neither"):
        as_policy(3)  # type: ignore[arg-type]


def test_the_first_case_that_fails_gives_the_verdict() -> None:
    assert made(OK, WRONG, CRASH).verdict is WRONG
    assert made(OK, CRASH, WRONG).verdict is CRASH
    assert made().verdict is Verdict.INFRASTRUCTURE_ERROR


@pytest.mark.parametrize("name", ["crash_penalty", "slow_penalty", "compile_bonus", "audit_penalty"])
def test_a_step_without_an_amount_is_the_same_in_a_spec_and_in_python(name: str) -> None:
    assert parse_policy(f"share+{name}").name == (share | getattr(proctor, name)()).name
