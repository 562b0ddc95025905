"""What sandboxes cost: told to the ledger to the end, and never beyond a ceiling."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_help import SMALL, Boxes

from proctor.core.sandbox import SandboxError, SandboxSpec, State, StopReason
from proctor.meter.ledger import Ledger
from proctor.meter.prices import Prices


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite", prices=Prices()) as made:
        yield made


@pytest.fixture
def charged(ledger: Ledger) -> Iterator[Boxes]:
    found = Boxes(ledger=ledger)
    yield found
    found.close()


def test_cpu_is_measured_and_the_account_is_closed_with_the_sandbox(charged: Boxes, ledger: Ledger) -> None:
    box = charged.new(labels={"run": "a"})
    charged.python(box, "import time\nwhile time.process_time() < 0.5: pass\n")
    charged.run(charged.engine.stop(box.id))
    info = charged.engine.get(box.id).info()
    assert info.cpu_seconds >= 0.5
    cost = ledger.sandbox(box.id)
    assert cost is not None
    assert cost.cpu_seconds == pytest.approx(info.cpu_seconds, abs=1e-3)
    assert (cost.cost_micros, cost.reason) == (info.cost_micros, StopReason.REQUEST)
    assert info.cost_micros >= 3  # half a CPU second is 3.5 micros


def test_a_sandbox_ends_when_it_has_cost_what_it_may(charged: Boxes, ledger: Ledger) -> None:
    box = charged.new(max_cost_micros=2)  # 0.29 CPU seconds

    async def wait() -> None:
        while charged.engine.get(box.id).state is State.RUNNING:
            await asyncio.sleep(0.02)

    with pytest.raises(SandboxError, match="max_cost"):
        charged.python(box, "while True: pass", timeout_s=60)
    charged.run(asyncio.wait_for(wait(), 60))
    info = charged.engine.get(box.id).info()
    assert info.stop_reason is StopReason.COST
    assert info.cost_micros >= 2


def test_a_daily_limit_refuses_creates_and_frees_what_they_held(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite", prices=Prices(), daily_micros=3) as ledger:
        own = Boxes(ledger=ledger)
        box = own.new()
        own.python(box, "import time\nwhile time.process_time() < 0.6: pass\n")
        own.run(own.engine.stop(box.id))
        for _ in range(3):
            with pytest.raises(SandboxError) as caught:
                own.new()
            assert (caught.value.code, caught.value.status) == ("spending_limit_reached", 402)
        assert not own.engine.queue.taken
        with pytest.raises(SandboxError):
            own.run(own.engine.create(SandboxSpec(**SMALL, max_cost_micros=1)))
        own.close()


def test_a_ceiling_is_raised_within_the_daily_limit_alone(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite", prices=Prices(), daily_micros=1000) as ledger:
        own = Boxes(ledger=ledger)
        box = own.new(max_cost_micros=100)
        other = own.new(max_cost_micros=500)
        before = box.expires_at
        with pytest.raises(SandboxError) as caught:
            own.run(own.engine.update(box.id, max_cost_micros=900, timeout_seconds=9000))
        assert (caught.value.code, caught.value.status) == ("budget_exceeded", 409)
        assert (box.spec.max_cost_micros, box.expires_at) == (100, before)
        assert own.run(own.engine.update(box.id, max_cost_micros=400)).spec.max_cost_micros == 400
        own.run(own.engine.delete(other.id))
        assert own.run(own.engine.update(box.id, max_cost_micros=900)).spec.max_cost_micros == 900
        own.close()
