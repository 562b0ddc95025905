"""Fewer walls only where the host refuses more, never for a fault of ours, and never in silence."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from proctor.core.errors import InfrastructureError, IsolationUnavailable
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
