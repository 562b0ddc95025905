"""Inside gVisor the checks in which it differs fail as they are declared, and others pass."""

from __future__ import annotations

from proctor.doctor.canary import Canary
from proctor.doctor.conformance.declared import DECLARED
from proctor.doctor.conformance.suite import CHECKS, State, examine
from proctor.engine.shared import SyncEngine
from proctor.isolation.runsc import Runsc

ALSO = {
    "exit_statuses",
    "fresh",
    "own_files",
    "daemon",
    "ended_by_signal",
    "output_exact",
    "threads_exact",
    "addresses",
    "cpu_clocks",
}


def test_it_conforms_where_it_differs_most(build: Runsc) -> None:
    some = {one.check for one in DECLARED if one.level == "gvisor"} | ALSO
    engine = SyncEngine(slots=1, isolation="gvisor")
    with Canary() as canary:
        results = examine(engine, canary, [check for check in CHECKS if check.key in some])
    engine.close()
    assert {result.check.key for result in results} == some
    assert [(result.check.key, result.fault) for result in results if result.state is State.FAIL] == [], build.version
