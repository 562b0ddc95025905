"""One protection, the program that attacks it, and how its outcome is read.

A probe's program tries everything it can think of and prints, as one line of
JSON, ``{"tried": n, "got": [...]}``: what it tried and what worked. Printing
nothing, or ending in a way of its own, is no proof: then the protection was
not tried, and counts as missing. Programs get facts about the host (ports,
process ids, paths) as JSON on their first line of input.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.doctor.text import printable

LIMITS = Limits(
    cpu_s=1.0,
    wall_s=4.0,
    memory_mib=96,
    processes=24,
    open_files=64,
    workspace_mib=8,
    workspace_inodes=256,
    output_bytes=1 << 20,
)

PRELUDE = """
import ctypes, json, os, socket, sys
host = json.loads(sys.stdin.readline())
tried, got = 0, []
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    global tried
    tried += 1
    try:
        result = action()
    except (OSError, ValueError, AttributeError, EOFError):
        return
    if result is not False:
        got.append(name if result in (None, True) else f"{name}: {result}")
def done(**more):
    print(json.dumps({"tried": tried, "got": got, **more}), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a probe showed: whether the protection holds, and by what; ``tried`` False: the attack never began."""

    holds: bool
    how: str
    tried: bool = True


Judge = Callable[[Sequence[Outcome]], Shown]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One protection.

    Attributes:
        key: its name in reports and manifests.
        title: what is protected, in words.
        program: Python source; PRELUDE stands before it.
        judge: reads the outcomes of the cases, one for each of ``stages``.
        remedy: what to install or enable where it is missing.
        stages: a word for each case, given to the program as ``host["stage"]``.
        visits: kinds of the beacon's visitors that there must be none of.
        limits: bounds of each case.
    """

    key: str
    title: str
    program: str
    judge: Judge
    remedy: str
    stages: tuple[str, ...] = ("",)
    visits: tuple[str, ...] = ()
    limits: Limits = field(default=LIMITS)

    def source(self) -> bytes:
        """The program as it is run."""
        return (PRELUDE + textwrap.dedent(self.program)).encode()


def how_it_ended(outcome: Outcome) -> str:
    """An outcome in a few words."""
    if outcome.error is not None:
        return f"this host failed: {printable(outcome.error, 120)}"
    if outcome.compile_failed:
        return f"did not compile: {printable(outcome.stderr, 100)}"
    if outcome.ended_by is EndedBy.NOT_RUN:
        return "not run"
    if outcome.ended_by is not None:
        return f"ended by the {outcome.ended_by.value.replace('_', ' ')} limit after {outcome.wall_s:.1f} s"
    if outcome.signal is not None:
        return f"ended by signal {outcome.signal}"
    if outcome.exit_code is None:
        return "not run"
    last = outcome.stderr.strip().splitlines()[-1:]
    return f"exit status {outcome.exit_code}" + (f" ({printable(last[0], 100)})" if last and outcome.exit_code else "")


def report(outcome: Outcome) -> dict[str, Any] | None:
    """The last line that a probe's program printed; None when it is not a report."""
    try:
        found = json.loads(outcome.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def nothing_worked(outcomes: Sequence[Outcome]) -> Shown:
    """Every case reports attempts, and that none of them worked."""
    tried, got = 0, []
    for outcome in outcomes:
        said = report(outcome)
        if said is None or not outcome.ok or not isinstance(said.get("tried"), int):
            return Shown(False, f"could not be tried: {how_it_ended(outcome)}", False)
        tried += said["tried"]
        got += [printable(str(item), 60) for item in said.get("got", [])]
    if got:
        return Shown(False, f"worked: {', '.join(got[:6])}" + (f" and {len(got) - 6} more" if len(got) > 6 else ""))
    return Shown(tried > 0, f"{tried} ways tried, none worked" if tried else "could not be tried", tried > 0)


def ended_by(*kinds: EndedBy) -> Judge:
    """The case is ended, by one of these limits."""

    def judge(outcomes: Sequence[Outcome]) -> Shown:
        outcome = outcomes[-1]
        used = f", {outcome.cpu_s:.2f} s of CPU used" if outcome.ended_by is EndedBy.CPU else ""
        crashed = outcome.error is not None or (outcome.ended_by is None and not outcome.ok)
        return Shown(not crashed and outcome.ended_by in kinds, how_it_ended(outcome) + used, not crashed)

    return judge


def at_most(limit: float, unit: str, *kinds: EndedBy, floor: float = 1) -> Judge:
    """The program got no more than ``limit`` of something: it reports ``count`` as it goes on.

    Being ended by one of ``kinds`` is fine too. ``floor``: less than this much
    says that the attack never began.
    """

    def judge(outcomes: Sequence[Outcome]) -> Shown:
        outcome = outcomes[-1]
        said = report(outcome)
        count = (said or {}).get("count", 0)
        if outcome.error is not None or not isinstance(count, int | float):
            return Shown(False, how_it_ended(outcome), False)
        ended = outcome.ended_by is not None and outcome.ended_by in kinds
        if (said is None or count < floor) and not ended:
            return Shown(False, f"could not be tried: got {count} {unit}, {how_it_ended(outcome)}", False)
        told = f"got {count:g} of {limit:g} {unit}" + (f", {how_it_ended(outcome)}" if outcome.ended_by else "")
        return Shown(count <= limit, told)

    return judge
