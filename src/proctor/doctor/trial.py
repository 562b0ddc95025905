"""Runs every probe in the engine and says which protections hold on this host."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from proctor.doctor import audit
from proctor.doctor.canary import Canary
from proctor.doctor.probe import Probe, Shown
from proctor.doctor.probes_limits import BOUNDS
from proctor.doctor.probes_walls import WALLS
from proctor.engine.job import Case, Job, Program
from proctor.grading.api import AnyEngine

PROBES: tuple[Probe, ...] = WALLS + BOUNDS
# Variables that a program has anyway, with values of the jail's own.
ORDINARY = frozenset(
    [
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TMPDIR",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "TERM",
        "USER",
        "LOGNAME",
        "PYTHONHASHSEED",
        "_",
    ]
)
WAYS = (("warm", True), ("real interpreter", False))
REPORT_THIS = "nothing: this is a fault of Proctor's, please report it"


class Runner(AnyEngine, Protocol):
    """What the doctor needs of an engine; ``proctor.engine.shared.SyncEngine`` has it."""

    @property
    def isolation(self) -> str:
        """The level that is really in force."""

    @property
    def features(self) -> dict[str, Any]:
        """What its agents have said of themselves."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe found out.

    Attributes:
        key, title: the protection.
        holds: the attack on it failed, in every way that a program is run.
        how: what was seen.
        remedy: what to install or enable, where it does not hold.
        tried: False: the attack could not even begin, so nothing is known.
    """

    key: str
    title: str
    holds: bool
    how: str
    remedy: str = ""
    tried: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        row: dict[str, Any] = {"protection": self.key, "title": self.title, "holds": self.holds, "shown": self.how}
        return row if self.holds else row | {"tried": self.tried, "remedy": self.remedy}


def facts(canary: Canary, level: str, pace: float = 1.0) -> dict[str, Any]:
    """What an attacker is told about the host, so that it does not have to guess."""
    home = Path.home()
    return {
        "pid": canary.pid,
        "tcp": canary.tcp,
        "udp": canary.udp,
        "shm": canary.shm,
        "files": [str(path) for path in canary.files if path.is_file()],
        "home": str(home) if home != Path("/") else "/root",
        "name": os.uname().nodename,
        "pace": pace,  # seconds of a program's own CPU clock for one of its limit's
        "own_kernel": level in ("gvisor", "microvm"),
        "cmdline": Path("/proc/cmdline").read_text() if os.path.exists("/proc/cmdline") else "",
        "names": sorted(set(os.environ) - ORDINARY),
    }


def job(probe: Probe, known: dict[str, Any], warm: bool) -> Job:
    """The job of one probe: a case for each of its stages."""
    lines = (json.dumps(known | {"stage": stage}).encode() + b"\n" for stage in probe.stages)
    program = Program({"probe.py": probe.source()}, ("python3", "probe.py"), warm=warm)
    return Job(program, tuple(Case(stdin=line) for line in lines), limits=probe.limits)


def merge(probe: Probe, shown: Sequence[tuple[str, Shown]], visited: dict[str, int]) -> Finding:
    """One finding from all the ways in which the probe was run, and from who came to the beacon."""
    reached = [f"{count} reached the host over {kind}" for kind in probe.visits if (count := visited.get(kind, 0)) > 0]
    bad = [(way, one) for way, one in shown if not one.holds]
    if not bad and not reached:
        return Finding(probe.key, probe.title, True, shown[0][1].how)
    ways = ", ".join(way for way, _ in bad)
    told = [bad[0][1].how + (f" ({ways})" if len(bad) < len(shown) else "")] if bad else []
    tried = bool(reached) or any(one.tried for _, one in bad)
    return Finding(
        probe.key, probe.title, False, "; ".join(told + reached), probe.remedy if tried else REPORT_THIS, tried
    )


def warm_up(engine: Runner) -> None:
    """Has every slot's agent started, so that a later look at the host shows only what is new."""
    program = Program({"nap.py": b"import time\ntime.sleep(0.3)\n"}, ("python3", "nap.py"), warm=True)
    for future in [engine.submit(Job(program, (Case(),))) for _ in range(engine.slots)]:
        future.result()


def examine(engine: Runner, canary: Canary, before: audit.Snapshot, probes: Sequence[Probe] = PROBES) -> list[Finding]:
    """Every probe, warm and in a real interpreter, then a look at what they left on the host.

    Args:
        before: the host with the engine and the canary in place, before any probe ran.
    """
    level = engine.isolation
    known, visits = facts(canary, level, float(engine.features.get("pace", 1.0))), canary.visits()
    waiting = [(probe, way, engine.submit(job(probe, known, warm))) for probe in probes for way, warm in WAYS]
    shown: dict[str, list[tuple[str, Shown]]] = {probe.key: [] for probe in probes}
    for probe, way, future in waiting:
        shown[probe.key].append((way, probe.judge(future.result())))
    alive = canary.alive()
    after = canary.visits() if alive else {}
    visited = {kind: count - visits[kind] for kind, count in after.items()}
    found = [merge(probe, shown[probe.key], visited) for probe in probes]
    left = audit.settled(before, running=True)
    left += [f"changed: {path}" for path in canary.changed()] + ([] if alive else ["the beacon was ended"])
    left += [] if engine.isolation == level else [f"the isolation went from {level} to {engine.isolation}"]
    how = (
        "; ".join(left[:5])
        if left
        else "no process, file, mount, cgroup, segment or socket is left; planted files are unchanged"
    )
    found.append(Finding("host_audit", "nothing is left on the host or changed there", not left, how, REPORT_THIS))
    return found
