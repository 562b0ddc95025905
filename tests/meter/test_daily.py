"""What a key may spend in a day."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from meter_help import NOON, Clock, gone, ledger, spec

from proctor.core.errors import InputError
from proctor.core.sandbox import SandboxError

DEAR = {"cpu_hour": 36, "memory_hour": 0, "cpu_floor": 1}  # with one vCPU: a cent a second
SECOND = 10_000  # micros


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def prices() -> dict[str, object]:
    from proctor.meter.prices import Prices

    return {"prices": Prices(**DEAR)}  # type: ignore[arg-type]


def test_without_a_limit_nothing_is_refused(path: Path) -> None:
    with ledger(path) as book:
        book.open_sandbox("s", spec(max_cost_micros=10**12))
        found = book.limit()
        assert (found.limit_micros, found.remaining_micros) == (None, None)
        assert found.to_wire() == {"limitMicros": None, "usedMicros": "0", "remainingMicros": None}


def test_creates_are_refused_when_the_day_is_spent(path: Path, clock: Clock) -> None:
    with ledger(path, clock, daily_micros=10 * SECOND, **prices()) as book:
        book.open_sandbox("a", spec())
        book.close_sandbox("a", 9, 9)
        assert book.limit().to_wire() == {
            "limitMicros": "100000",
            "usedMicros": "90000",
            "remainingMicros": "10000",
        }
        book.open_sandbox("b", spec())
        book.close_sandbox("b", 1, 1)
        with pytest.raises(SandboxError, match="has spent") as caught:
            book.open_sandbox("c", spec())
        assert (caught.value.code, caught.value.status) == ("spending_limit_reached", 402)
        assert re.search(r"from \d{4}-\d\d-\d\dT00:00:00Z", caught.value.hint or "")
        assert book.sandbox("c") is None
        book.open_sandbox("d", spec(), key="another")
        book.open_sandbox("e", spec(), daily_micros=20 * SECOND)  # this key was given more
        clock.wait(12 * 3600)
        book.close_sandbox("e", 0, 0)
        book.open_sandbox("c", spec())
        with pytest.raises(SandboxError):
            book.admit(daily_micros=0)


def test_what_runs_counts_up_to_now(path: Path, clock: Clock) -> None:
    with ledger(path, clock, daily_micros=10 * SECOND, **prices()) as book:
        book.open_sandbox("a", spec())
        book.checkpoint("a", 0, 2)
        clock.wait(7)
        assert book.limit().used_micros == 9 * SECOND
        clock.now -= 5000  # somebody sets the clock
        assert book.limit().used_micros == 9 * SECOND
        clock.wait(1)
        with pytest.raises(SandboxError, match="spent"):
            book.open_sandbox("b", spec())


def test_what_ran_yesterday_does_not_count_today(path: Path, clock: Clock) -> None:
    with ledger(path, clock, daily_micros=10 * SECOND, **prices()) as book:
        clock.now = NOON + 12 * 3600 - 30
        book.open_sandbox("a", spec())
        clock.wait(34)
        assert book.limit().used_micros == 4 * SECOND
        book.checkpoint("a", 0, 34)
        assert book.limit().used_micros == 4 * SECOND
        assert book.total().cost_micros == 34 * SECOND


def test_what_a_killed_process_left_open_sets_nothing_aside(path: Path, clock: Clock) -> None:
    dead = ledger(path, clock, name=gone(), daily_micros=10 * SECOND, **prices())
    dead.open_sandbox("a", spec(max_cost_micros=10 * SECOND))
    dead.close()
    clock.wait(100)
    with ledger(path, clock, daily_micros=10 * SECOND, **prices()) as book:
        assert (book.limit().used_micros, book.limit().reserved_micros) == (0, 0)


def test_ceilings_are_set_aside(path: Path, clock: Clock) -> None:
    with ledger(path, clock, daily_micros=10 * SECOND, **prices()) as book:
        book.open_sandbox("a", spec(max_cost_micros=6 * SECOND))
        with pytest.raises(SandboxError, match="can give it 40000 of its daily limit of 100000") as caught:
            book.open_sandbox("b", spec(max_cost_micros=5 * SECOND))
        assert (caught.value.code, caught.value.status) == ("budget_exceeded", 409)
        book.admit(max_cost_micros=4 * SECOND)
        book.checkpoint("a", 2, 2)
        found = book.limit()
        assert (found.used_micros, found.reserved_micros, found.remaining_micros) == (20000, 40000, 40000)
        book.close_sandbox("a", 3, 3)
        book.open_sandbox("b", spec(max_cost_micros=7 * SECOND))
        assert book.limit().remaining_micros == 0
        book.open_sandbox("c", spec())  # the day is not spent yet


def test_a_ceiling_that_is_raised_is_held_against_the_limit(path: Path, clock: Clock) -> None:
    with ledger(path, clock, daily_micros=10 * SECOND, **prices()) as book:
        book.open_sandbox("a", spec(max_cost_micros=2 * SECOND))
        book.open_sandbox("b", spec(max_cost_micros=3 * SECOND))
        book.checkpoint("a", 1, 1)
        with pytest.raises(SandboxError, match=r"max_cost_micros is 80000, and .* can give it 70000") as caught:
            book.set_ceiling("a", 8 * SECOND)
        assert (caught.value.code, caught.value.status) == ("budget_exceeded", 409)
        assert book.limit().remaining_micros == 5 * SECOND  # nothing was changed
        book.set_ceiling("a", 7 * SECOND)
        assert book.limit().remaining_micros == 0
        with pytest.raises(SandboxError, match="daily limit"):
            book.open_sandbox("c", spec(max_cost_micros=1))
        book.set_ceiling("a", 4 * SECOND)
        assert book.limit().remaining_micros == 3 * SECOND
        book.open_sandbox("free", spec())
        with pytest.raises(SandboxError, match="can give it 30000"):
            book.set_ceiling("free", 4 * SECOND)
        book.set_ceiling("free", 3 * SECOND)
        book.checkpoint("free", 9, 9)
        with pytest.raises(SandboxError) as caught:
            book.set_ceiling("a", 5 * SECOND)
        assert (caught.value.code, caught.value.status) == ("spending_limit_reached", 402)
        book.set_ceiling("a", 1)  # less is never refused
    with ledger(path, clock, **prices()) as book:
        book.set_ceiling("a", 10**12)
        with pytest.raises(InputError, match="max_cost_micros"):
            book.set_ceiling("a", 10**16)


def test_storage_counts(path: Path, clock: Clock) -> None:
    with ledger(path, clock, daily_micros=1000) as book:
        book.store("s", 10**12, NOON - 5 * 86400)
        assert book.limit().used_micros == 40_000_000 // 30
        with pytest.raises(SandboxError, match="spent"):
            book.open_sandbox("a", spec())


@pytest.mark.parametrize("limit", [-1, 1.5, True, "7", 10**16])
def test_limits_that_are_none_are_refused(path: Path, limit: object) -> None:
    with pytest.raises(InputError, match="daily_micros"):
        ledger(path, daily_micros=limit)


CREATOR = """
import sys
from proctor.core.sandbox import SandboxError, SandboxSpec
from proctor.meter.ledger import Ledger
path, mine = sys.argv[1:]
book, made = Ledger(path, daily_micros=1000), 0
sys.stdin.readline()
for number in range(40):
    try:
        book.open_sandbox(f"{mine}-{number}", SandboxSpec(max_cost_micros=50, vcpu=0, memory_mib=0))
        made += 1
    except SandboxError as error:
        assert error.code == "budget_exceeded", error
print(made, flush=True)
sys.stdin.readline()
"""


def test_two_processes_never_share_what_is_left(path: Path) -> None:
    command = [sys.executable, "-c", CREATOR, str(path)]
    both = [
        subprocess.Popen([*command, mine], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for mine in "ab"
    ]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    made = [int(process.stdout.readline()) for process in both if process.stdout is not None]
    assert sum(made) == 20
    for process in both:
        process.communicate("end\n", timeout=60)
        assert process.returncode == 0
