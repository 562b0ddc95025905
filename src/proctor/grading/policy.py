"""From verdicts to a reward: small policies that compose.

A policy is a function ``(Grade) -> float``. Those here may be joined::

    share | crash_penalty(0.1) | slow_penalty(0.2)
    parse_policy("share+crash_penalty=0.1+slow_penalty=0.2")
    parse_policy("my_rewards:reward")

Where this host failed the reward is None, whatever the policy says: it is not
even asked.
"""

from __future__ import annotations

import importlib
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import overload

from proctor.core.errors import InputError
from proctor.core.verdict import Verdict
from proctor.grading.grades import Grade

AnyPolicy = Callable[[Grade], float]

# A program that answered, if wrongly, is better than any of these.
CRASHES = frozenset(Verdict) - {Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.INFRASTRUCTURE_ERROR}
NEVER_RAN = frozenset({Verdict.NO_CODE, Verdict.COMPILE_ERROR})


@dataclass(frozen=True, slots=True)
class Step:
    """A change to another policy's reward; ``policy | step`` applies it."""

    name: str
    by: float

    def __call__(self, grade: Grade, reward: float) -> float:
        """The changed reward."""
        return _STEPS[self.name](grade, reward, self.by)


@dataclass(frozen=True, slots=True)
class Policy:
    """A base policy and the steps applied to it, in order; a function ``(Grade) -> float`` that can be pickled."""

    name: str
    base: AnyPolicy
    steps: tuple[Step, ...] = ()

    def __call__(self, grade: Grade) -> float:
        """The reward of a grade whose cases all have a score."""
        reward = self.base(grade)
        # A penalty that is more than a case's worth would pay for giving up the slow ones.
        worth = 1 / len(grade.cases) if self.base is _share and grade.cases else 1e6
        for step in self.steps:
            bounded = replace(step, by=min(step.by, worth)) if step.name == "slow_penalty" else step
            reward = bounded(grade, reward)
        return reward

    @property
    def audited(self) -> bool:
        """Some step reads ``grade.signals``, which are looked for only then."""
        return any(step.name == "audit_penalty" for step in self.steps)

    def __or__(self, step: Step) -> Policy:
        if not isinstance(step, Step):
            name = getattr(step, "__name__", "")
            fix = (
                f"give {name}(0.1)"
                if name in _STEPS
                else f"give a step, such as crash_penalty(0.1): {', '.join(_STEPS)}"
            )
            raise InputError(f"{name or step!r} is no step of a policy; {fix}", field="reward")
        return replace(self, name=f"{self.name}+{step.name}={step.by:g}", steps=(*self.steps, step))


def _share(grade: Grade) -> float:
    if not grade.cases:
        return 0.0
    return sum(case.credit for case in grade.cases) / len(grade.cases)


def _all_or_nothing(grade: Grade) -> float:
    return 1.0 if grade.accepted else 0.0


share = Policy("share", _share)
"""The share of cases that were accepted, 0 to 1; a case with a partial score counts by it."""

all_or_nothing = Policy("all_or_nothing", _all_or_nothing)
"""1 when every case was accepted, else 0."""


def _crash(grade: Grade, reward: float, by: float) -> float:
    crashed = grade.verdict in CRASHES or any(case.verdict in CRASHES for case in grade.cases)
    return reward - by if crashed else reward


def _slow(grade: Grade, reward: float, by: float) -> float:
    used = [case.outcome.cpu_s / grade.limits.cpu_s for case in grade.cases if case.verdict is Verdict.ACCEPTED]
    return reward - by * min(max(used, default=0.0), 1.0)


def _ran(grade: Grade, reward: float, by: float) -> float:
    ended = any(case.verdict not in CRASHES for case in grade.cases)
    return by + (1 - by) * reward if ended and grade.verdict not in NEVER_RAN else reward


def _audited(grade: Grade, reward: float, by: float) -> float:
    from proctor.grading.audit.signals import WORTH_A_LOOK, suspicion

    return reward - by if suspicion(grade.signals) >= WORTH_A_LOOK else reward


_STEPS: dict[str, Callable[[Grade, float, float], float]] = {
    "crash_penalty": _crash,
    "slow_penalty": _slow,
    "compile_bonus": _ran,
    "audit_penalty": _audited,
}
_AMOUNTS = {
    "crash_penalty": 0.1,
    "slow_penalty": 0.1,
    "compile_bonus": 0.1,
    "audit_penalty": 0.5,
}  # where none is given


@overload
def crash_penalty(policy: AnyPolicy, by: float = ...) -> Policy: ...
@overload
def crash_penalty(policy: float = ...) -> Step: ...
def crash_penalty(
    policy: AnyPolicy | float = _AMOUNTS["crash_penalty"], by: float = _AMOUNTS["crash_penalty"]
) -> Policy | Step:
    """Lower the reward by ``by``, once, where any case crashed, met a limit or broke the rules.

    No code and code that does not compile count as a crash, so a wrong answer
    is always worth more than a crash. ``crash_penalty(policy, by)`` gives a
    policy, ``crash_penalty(by)`` a step for ``policy | step``.
    """
    return _step("crash_penalty", policy, by)


@overload
def slow_penalty(policy: AnyPolicy, by: float = ...) -> Policy: ...
@overload
def slow_penalty(policy: float = ...) -> Step: ...
def slow_penalty(
    policy: AnyPolicy | float = _AMOUNTS["slow_penalty"], by: float = _AMOUNTS["slow_penalty"]
) -> Policy | Step:
    """Lower the reward by up to ``by``: by the share of the CPU limit that the slowest accepted case used.

    With ``share`` by no more than one case is worth, so that no program gains by giving up a case that it solves slowly.
    CPU time varies a little from run to run, so this reward does too.
    """
    return _step("slow_penalty", policy, by)


@overload
def compile_bonus(policy: AnyPolicy, by: float = ...) -> Policy: ...
@overload
def compile_bonus(policy: float = ...) -> Step: ...
def compile_bonus(
    policy: AnyPolicy | float = _AMOUNTS["compile_bonus"], by: float = _AMOUNTS["compile_bonus"]
) -> Policy | Step:
    """``by`` for a program that compiles and ends by itself on some case, ``1 - by`` for what the policy gives."""
    return _step("compile_bonus", policy, by)


@overload
def audit_penalty(policy: AnyPolicy, by: float = ...) -> Policy: ...
@overload
def audit_penalty(policy: float = ...) -> Step: ...
def audit_penalty(
    policy: AnyPolicy | float = _AMOUNTS["audit_penalty"], by: float = _AMOUNTS["audit_penalty"]
) -> Policy | Step:
    """Lower the reward by ``by`` where the audit flags the program (suspicion of 0.5 or more; see ``proctor.audit``).

    With it ``grade.signals`` holds the findings, also for the policy that it
    wraps: ``audit_penalty(mine, 0)`` only looks, and ``mine`` decides.
    """
    return _step("audit_penalty", policy, by)


def _step(name: str, policy: AnyPolicy | float, by: float) -> Policy | Step:
    amount = by if callable(policy) else policy
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount <= 1e6:
        raise InputError(f"{amount!r} is not a number from 0 to 1000000", field=name)
    step = Step(name, float(amount))
    return as_policy(policy) | step if callable(policy) else step


def as_policy(policy: AnyPolicy | str) -> Policy:
    """A Policy from a Policy, a spec string, or a plain function of a Grade."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str):
        return parse_policy(policy)
    if not callable(policy):
        raise InputError(f"{policy!r} is neither a policy's name nor a function of a Grade", field="reward")
    return Policy(str(getattr(policy, "__qualname__", type(policy).__name__)), policy)


def parse_policy(spec: str) -> Policy:
    """A policy as the command line writes it: a base, then ``+step=amount`` as often as wanted.

    The base is ``share``, ``all_or_nothing`` or ``module:function``, which is
    imported; steps are ``crash_penalty``, ``slow_penalty``, ``compile_bonus`` (0.1 where no amount is given) and
    ``audit_penalty`` (0.5).

    Raises:
        InputError: an unknown name, an amount that is no number, or a module that cannot be imported.
    """
    first, *rest = (part.strip() for part in spec.split("+"))
    policy = {"share": share, "all_or_nothing": all_or_nothing}.get(first)
    if policy is None:
        policy = _imported(first)
    for part in rest:
        name, _, amount = part.partition("=")
        if name not in _STEPS:
            raise InputError(f"{name!r} is not one of {', '.join(_STEPS)}", field="reward")
        try:
            value = float(amount) if amount else _AMOUNTS[name]
        except ValueError:
            raise InputError(f"{part!r}: {amount!r} is not a number", field="reward") from None
        step = _step(name, value, value)
        assert isinstance(step, Step)
        policy = policy | step
    return policy


def _imported(path: str) -> Policy:
    module, _, name = path.partition(":")
    if not module or not name:
        raise InputError(f"{path!r} is not share, all_or_nothing or module:function", field="reward")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as exc:
        raise InputError(f"{path!r} cannot be imported: {type(exc).__name__}: {exc}", field="reward") from exc
    if not callable(found):
        raise InputError(f"{path!r} is not a function", field="reward")
    return replace(as_policy(found), name=path)


def reward_of(policy: AnyPolicy, grade: Grade) -> float | None:
    """The reward: None where this host failed, else the policy's number.

    Raises:
        InputError: the policy raised, or gave something that is not a finite number; it names the policy.
    """
    if not grade.verdict.is_score or any(not case.verdict.is_score for case in grade.cases):
        return None
    name = as_policy(policy).name
    try:
        reward = policy(grade)
    except Exception as exc:
        message = f"reward policy {name!r} raised {type(exc).__name__} on problem {grade.problem_id!r}: {exc}"
        raise InputError(message, field="reward") from exc
    try:
        number = float(reward) if isinstance(reward, numbers.Real) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        what = f"{reward!r}"[:80]
        message = f"reward policy {name!r} gave {what} on problem {grade.problem_id!r}; it must be a finite number"
        raise InputError(message, field="reward")
    return number
