"""Fewer walls only where the host refuses more, never for a fault of ours, and never in silence."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.core.errors import InfrastructureError, IsolationUnavailable
from proctor.engine.job import Case, Job
from proctor.engine.languages import program
from proctor.engine.shared import SyncEngine
from proctor.images.host import host_image

pytestmark = pytest.mark.environments


def level() -> str:
    engine = SyncEngine(slots=1)
    try:
        return engine.isolation
    finally:
        engine.close()


def test_a_fault_is_no_reason_for_fewer_walls() -> None:
    if level() != "jail":
        pytest.skip("this host refuses the jail itself")
    image = host_image()
    broken = replace(image, plan={**image.plan, "binds": [*image.plan["binds"], ["/no/such/place", "/x"]]})
    with pytest.raises(InfrastructureError, match="No such file") as caught:
        SyncEngine(slots=1, image=broken)
    assert not isinstance(caught.value, IsolationUnavailable)


def test_a_step_down_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "proctor"):
        engine = SyncEngine(slots=1)
    try:
        reasons = engine.features["stepped_down"]
        assert bool(reasons) is (engine.isolation == "degraded")
        assert [("degraded, not jail" in record.message) for record in caplog.records] == [True] * bool(reasons)
    finally:
        engine.close()


def test_a_named_level_is_not_stepped_down_from() -> None:
    if level() == "jail":
        pytest.skip("this host allows the jail")
    with pytest.raises(IsolationUnavailable, match="jail"):
        SyncEngine(slots=1, isolation="jail")


def test_packages_that_cannot_be_shown_are_refused(tmp_path: Path) -> None:
    """A virtual environment's, where no mount can put them before the interpreter: never a program's failure."""
    module = tmp_path / "only_here.py"
    module.write_text("x = 7\n")
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    image = host_image()
    sites = {path: [] for path in image.plan["covers"]}
    sites[next(iter(sites))] = [[str(module), module.name]]
    image = replace(image, plan={**image.plan, "covers": sites}, readable=[*image.readable, str(module)])
    with pytest.raises(IsolationUnavailable, match=r"only_here\.py"):
        SyncEngine(slots=1, image=image, isolation="degraded")
    if level() == "jail":
        engine = SyncEngine(slots=1, image=image, isolation="jail")
        try:
            for warm in (True, False):
                (outcome,) = engine.run(Job(program("import only_here\nprint(only_here.x)", warm=warm), (Case(),)))
                assert outcome.stdout == b"7\n"
        finally:
            engine.close()


def test_root_that_cannot_become_anybody_else_is_told_what_to_do() -> None:
    """A container without any capability: its root has one identity, and the kernel bounds no number of its processes."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root has capabilities to drop, and setpriv drops them")
    bare = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"]
    source = "from proctor.engine.shared import SyncEngine\nSyncEngine(slots=1, isolation='degraded')"
    done = subprocess.run([*bare, sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert "IsolationUnavailable" in done.stderr
    assert "run as an ordinary user, or keep those capabilities" in done.stderr
