"""What the ledger says is what was used: however often, in whatever order and by whom it was told."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meter_help import NOON, Clock, dollars, gone, ledger, micros, spec

from proctor.core.errors import InputError
from proctor.core.sandbox import StopReason
from proctor.meter.database import default_path
from proctor.meter.ledger import Ledger
from proctor.meter.prices import Prices

DAY = date(1970, 1, 1) + timedelta(days=NOON // 86400)
COST = dollars(2, 6, 1, 2048)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "ledger.sqlite"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(path: Path, clock: Clock) -> Iterator[Ledger]:
    with ledger(path, clock) as opened:
        yield opened


def test_what_was_told_is_there_for_another(path: Path, book: Ledger) -> None:
    book.open_sandbox("s", spec(name="n", labels={"run": "a", "step": ""}, max_cost_micros=50), key="k")
    book.checkpoint("s", 1, 3)
    with ledger(path) as other:
        found = other.sandbox("s")
        assert found is not None
        assert (found.state, found.cpu_seconds, found.wall_seconds, found.ended_at) == ("running", 1, 3, None)
    book.close_sandbox("s", 2, 6, reason=StopReason.LEASE)
    with ledger(path) as other:
        found = other.sandbox("s")
        assert found is not None
        assert (found.state, found.reason, found.key, found.name) == ("stopped", "lease_end", "k", "n")
        assert found.labels == {"run": "a", "step": ""}
        assert (found.cost_micros, found.max_cost_micros, found.ended_at) == (micros(COST), 50, NOON)
        assert other.sandbox("t") is None
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_it_lies_where_the_state_of_a_user_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert default_path() == Path("/somewhere/proctor/ledger.sqlite")
    monkeypatch.setenv("XDG_STATE_HOME", "relative is not allowed")
    monkeypatch.setenv("HOME", "/nobody")
    assert default_path() == Path("/nobody/.local/state/proctor/ledger.sqlite")


def test_lower_figures_repeats_and_late_ones_change_nothing(book: Ledger) -> None:
    book.open_sandbox("s", spec())
    for cpu, wall in ((1, 4), (0.5, 3), (1, 4), (0, 0)):
        book.checkpoint("s", cpu, wall)
    assert book.total().cost_micros == micros(dollars(1, 4, 1, 2048))
    book.open_sandbox("s", spec(vcpu=8))  # a create that was tried again
    for cpu, wall in ((2, 6), (2, 6), (9, 9)):
        book.close_sandbox("s", cpu, wall)
    book.checkpoint("s", 100, 100)
    assert (book.total().cost_micros, book.total().sandboxes) == (micros(COST), 1)


def test_ids_are_used_once(book: Ledger) -> None:
    book.open_sandbox("s", spec())
    book.close_sandbox("s", 0, 0)
    with pytest.raises(InputError, match="there is a sandbox 's' already"):
        book.open_sandbox("s", spec())
    with pytest.raises(InputError, match="no sandbox 't'"):
        book.checkpoint("t", 1, 1)
    book.open_sandbox("u", spec())
    with pytest.raises(InputError, match="no sandbox 't'"):
        book.checkpoints({"t": (1, 1), "u": (1, 1)})
    assert book.total().cpu_seconds == 1  # the other's was written


@pytest.mark.parametrize("figures", [(-1, 0), (0, float("nan")), (0, float("inf")), ("1", 1), (True, 1)])
def test_figures_that_are_none_are_refused(book: Ledger, figures: tuple[float, float]) -> None:
    book.open_sandbox("s", spec())
    with pytest.raises(InputError, match="_seconds"):
        book.checkpoint("s", *figures)
    with pytest.raises(InputError, match="_seconds"):
        book.close_sandbox("s", *figures)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"vcpu": -1}, "vcpu"),
        ({"memory_mib": 1.5}, "memory_mib"),
        ({"max_cost_micros": -1}, "max_cost_micros"),
        ({"labels": {"": "x"}}, "labels"),
        ({"labels": {"x": "\udc80"}}, "labels"),
        ({"labels": {"x": 1}}, "labels"),
        ({"name": "x" * 300}, "name"),
    ],
)
def test_a_spec_that_does_not_fit_is_named(book: Ledger, more: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        book.open_sandbox("s", spec(**more))  # type: ignore[arg-type]
    assert book.total().sandboxes == 0


def test_each_sandbox_keeps_the_prices_that_it_was_made_under(path: Path, book: Ledger, clock: Clock) -> None:
    book.open_sandbox("s", spec())
    dear = Prices(cpu_hour=1, memory_hour=1)  # type: ignore[arg-type]
    with ledger(path, clock, prices=dear) as other:
        other.open_sandbox("t", spec())
        other.checkpoints({"s": (2, 6), "t": (2, 6)})
    assert book.total().cost_micros == micros(COST + dollars(2, 6, 1, 2048, dear))


def test_a_day_ends_at_midnight_utc(book: Ledger, clock: Clock) -> None:
    book.open_sandbox("s", spec(vcpu=1))
    clock.wait(13 * 3600)  # an hour into the next day
    book.close_sandbox("s", 26 * 360, 13 * 3600)
    days = {each.name: each for each in book.totals("day")}
    assert {name: round(each.cpu_seconds) for name, each in days.items()} == {
        str(DAY): 24 * 360,
        str(DAY + timedelta(days=1)): 2 * 360,
    }
    assert [each.sandboxes for each in days.values()] == [0, 1]
    cost = dollars(26 * 360, 13 * 3600, 1, 2048)
    assert days[str(DAY)].cost_micros == micros(cost * Fraction(12, 13))
    assert book.total().cost_micros == micros(cost)
    assert book.total(since=DAY + timedelta(days=1)).cpu_seconds == 2 * 360
    assert book.total(until=DAY - timedelta(days=1)).cost_micros == 0


def test_a_day_that_ends_now_has_all_of_it(book: Ledger, clock: Clock) -> None:
    book.open_sandbox("s", spec())
    clock.wait(12 * 3600)
    book.close_sandbox("s", 5, 12 * 3600)
    assert [each.name for each in book.totals("day")] == [str(DAY)]


@pytest.mark.parametrize("jump", [-400 * 86400, -3600, 3600, 4000 * 86400])
def test_a_clock_that_was_set_moves_no_cost_to_a_day_that_nobody_lived(book: Ledger, clock: Clock, jump: int) -> None:
    book.open_sandbox("s", spec())
    clock.wait(5)
    clock.now += jump
    book.close_sandbox("s", 2, 6)
    assert book.total().cost_micros == micros(COST)
    spent = [each for each in book.totals("day") if each.cost_micros]
    assert [each.name for each in spent] == [str(date(1970, 1, 1) + timedelta(days=int(clock.now // 86400)))]


def test_gpus_are_counted_and_charged(path: Path, clock: Clock) -> None:
    with ledger(path, clock, prices=Prices(gpu_second="0.0005")) as book:  # type: ignore[arg-type]
        clock.wait(3)
        book.open_sandbox("s", spec(gpu=2, labels={"run": "a"}))
        book.open_sandbox("t", spec())
        clock.wait(6)
        for name in "st":
            book.close_sandbox(name, 2, 6)
        one, other = book.sandbox("s"), book.sandbox("t")
        assert one is not None
        assert other is not None
        assert (one.gpus, other.gpus) == (2, 0)
        assert one.cost_micros == micros(COST) + 6000
        for found in (book.total(), book.totals("day")[0], book.total(label=("run", "a")), book.totals("sandbox")[0]):
            assert found.gpu_seconds == 12
        assert book.totals("sandbox")[1].gpu_seconds == 0
        book.open_sandbox("u", spec(gpu=1))
        clock.wait(4)
        before = book.limit().used_micros  # of what runs as well
        clock.wait(10)
        assert book.limit().used_micros - before >= 5000


def test_a_file_of_before_gpus_were_counted_goes_on(path: Path, clock: Clock) -> None:
    with ledger(path, clock) as book:
        book.open_sandbox("s", spec())
        book.close_sandbox("s", 2, 6)
    with sqlite3.connect(path) as database:
        for table, column in (("sandboxes", "gpus"), ("spent", "gpu"), ("daily", "gpu")):
            database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        old = {name: value for name, value in json.loads(Prices().to_json()).items() if name != "gpu_second"}
        database.execute("UPDATE prices SET list = ?", (json.dumps(old),))
        database.execute("PRAGMA user_version = 1")
    database.close()
    with ledger(path, clock) as book, ledger(path, clock) as other:
        found = other.sandbox("s")
        assert found is not None
        assert (found.cost_micros, found.gpus) == (micros(COST), 0)
        book.open_sandbox("t", spec(gpu=1))
        book.close_sandbox("t", 0, 6)
        assert (other.total().sandboxes, other.total().gpu_seconds) == (2, 6)


def test_labels_sandboxes_and_keys(book: Ledger) -> None:
    for number in range(6):
        labels = {"run": "a" if number < 4 else "b", "step": str(number % 2)}
        book.open_sandbox(f"s{number}", spec(labels=labels), key="k" if number else "other")
        book.close_sandbox(f"s{number}", number, 6)
    found = {each.name: (each.sandboxes, each.cpu_seconds) for each in book.totals("label")}
    assert found == {"run=a": (4, 6.3), "run=b": (2, 9), "step=0": (3, 6.3), "step=1": (3, 9)}
    assert [each.name for each in book.totals("sandbox", top=2)] == ["s5", "s4"]
    assert {each.name: each.sandboxes for each in book.totals("key")} == {"k": 5, "other": 1}
    assert {each.name: each.sandboxes for each in book.totals("label", label=("run", "a"), key="k")} == {
        "run=a": 3,
        "step=0": 1,
        "step=1": 2,
    }
    assert [each.sandboxes for each in book.totals("day", label=("run", "b"))] == [2]
    assert [each.sandboxes for each in book.totals("key", label=("run", "b"))] == [2]
    assert book.total(label=("run", "b")).cpu_seconds == 9
    assert book.total(label=("run", "' OR 1=1 --")).sandboxes == 0
    with pytest.raises(InputError, match="'colour' is none of sandbox, label, day, key"):
        book.totals("colour")


def test_storage_is_counted_while_it_is_kept(book: Ledger, clock: Clock) -> None:
    month = 30 * 86400
    book.store("a", 10**9, NOON)
    assert book.total().storage_micros == 0
    clock.wait(month / 2)
    assert book.total().storage_micros == 40_000
    book.store("a", 10**9, NOON)  # told again
    book.store("a", 7, 0, clock.now)  # removed: only the end is news
    clock.wait(month)
    book.store("a", 10**9, NOON, clock.now + month)  # a late wish to keep it longer
    clock.wait(month)
    total = book.total()
    assert (total.storage_micros, total.cost_micros, total.sandboxes) == (40_000, 40_000, 0)
    assert sum(each.storage_micros for each in book.totals("day")) in range(39_980, 40_001)
    assert book.totals("day")[-1].storage_micros == micros(Fraction(80_000, 10**6) / 60)
    assert [each.cost_micros for each in book.totals("key")] == [40_000]
    book.store("b", 10**9, clock.now, clock.now + month, key="k")
    clock.wait(2 * month)
    assert book.total(key="k").cost_micros == 80_000
    with pytest.raises(InputError, match="size_bytes"):
        book.store("c", -1, 0)


def test_old_rows_are_forgotten_and_their_days_are_not(book: Ledger, clock: Clock) -> None:
    for number in range(1200):
        book.open_sandbox(f"old{number}", spec(labels={"run": "a"}))
        book.close_sandbox(f"old{number}", 2, 6)
    book.store("old", 10**9, NOON - 86400, NOON)
    book.open_sandbox("runs", spec())
    clock.wait(10 * 86400)
    book.open_sandbox("new", spec())
    book.close_sandbox("new", 2, 6)
    book.store("new", 10**9, clock.now)
    before, days = book.total(), book.totals("day")
    assert book.prune(20) == 0
    assert book.prune(5) == 1200
    assert (book.total(), book.totals("day")) == (before, days)
    assert [each.name for each in book.totals("sandbox")] == ["new", "runs"]
    assert book.totals("label") == []
    with pytest.raises(InputError, match="days"):
        book.prune(0)


def test_what_its_owner_left_open_is_settled_at_what_was_last_told(path: Path, clock: Clock) -> None:
    dead = ledger(path, clock, name=gone())
    dead.open_sandbox("s", spec())
    dead.checkpoint("s", 2, 6)
    clock.wait(3600)
    with ledger(path, clock) as book:
        found = book.sandbox("s")
        assert found is not None
        assert (found.state, found.reason, found.ended_at) == ("lost", "infrastructure_error", NOON)
        assert found.cost_micros == micros(COST)
    dead.checkpoint("s", 3, 7)  # it was not dead after all
    with ledger(path, clock, name="elsewhere/1/2/3") as book:
        book.open_sandbox("t", spec())
        assert book.total().cost_micros == micros(dollars(3, 7, 1, 2048))
    dead.close()


def test_owners_that_cannot_be_seen_are_given_15_minutes(path: Path, clock: Clock) -> None:
    with ledger(path, clock, name="elsewhere/1/2/3") as other:
        other.open_sandbox("s", spec())
    for minutes, state in ((14, "running"), (2, "lost")):
        clock.wait(minutes * 60)
        with ledger(path, clock) as book:
            found = book.sandbox("s")
            assert found is not None
            assert found.state == state


def test_a_forked_child_goes_on(path: Path) -> None:
    with Ledger(path) as book:
        book.open_sandbox("parent", spec())
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                book.open_sandbox("child", spec())
                book.close_sandbox("child", 2, 6)
                book.checkpoint("parent", 1, 1)
                book.close()
                status = 0 if book.trouble is None else 2
            finally:
                os._exit(status)
        book.checkpoint("parent", 2, 6)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        book.close_sandbox("parent", 2, 6)
        assert book.total().cost_micros == micros(2 * COST)


ACTS = st.one_of(
    st.tuples(st.just("told"), st.integers(0, 3), st.integers(0, 10), st.integers(0, 10)),
    st.tuples(st.just("late"), st.integers(0, 3), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("close"), st.integers(0, 3), st.integers(0, 10), st.integers(0, 10)),
    st.tuples(st.just("kill"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("clock"), st.just(0), st.integers(-100_000, 200_000), st.just(0)),
    st.tuples(st.just("reopen"), st.just(0), st.just(0), st.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(acts=st.lists(ACTS, max_size=40))
def test_any_order_of_reports_repeats_closes_and_kills_gives_what_was_used(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int, int, int]]
) -> None:
    path, clock = tmp_path_factory.mktemp("ledger") / "l.sqlite", Clock()
    life = 0
    book = ledger(path, clock, name=gone(life))
    used: dict[str, tuple[float, float]] = {}  # as it truly was
    sizes: dict[str, tuple[float, int]] = {}
    told: dict[str, list[tuple[float, float]]] = {}
    closed: set[str] = set()
    for act, number, one, two in acts:
        name = f"{life}-{number}"
        if act in ("told", "late", "close") and name not in used:
            sizes[name] = (number + 0.5, 512 * (number + 1))
            used[name], told[name] = (0, 0), []
            book.open_sandbox(name, spec(*sizes[name], labels={"size": str(number)}), key=f"k{number % 2}")
        if act in ("told", "close") and name not in closed:
            cpu, wall = used[name]
            used[name] = (cpu + one / 10, wall + two * 3001.7)
            told[name].append(used[name])
            if act == "told":
                book.checkpoint(name, *used[name])
            else:
                book.close_sandbox(name, *used[name])
                closed.add(name)
        elif act == "late" and told[name]:
            cpu, wall = told[name][one % len(told[name])]
            book.checkpoint(name, cpu, wall)
        elif act == "clock":
            clock.now += one
        elif act == "reopen":
            book.close()
        elif act == "kill":
            book._database.close()
            life += 1
            book = ledger(path, clock, name=gone(life))
    exact = sum(
        (int(dollars(round(cpu, 6), round(wall, 6), *sizes[name]) * 10**12) for name, (cpu, wall) in used.items()), 0
    )
    cost = exact // 10**6
    assert (book.total().cost_micros, book.total().sandboxes) == (cost, len(used))
    for each in ("sandbox", "label", "key", "day"):
        found = book.totals(each)
        assert sum(row.sandboxes for row in found) == len(used)
        assert cost - len(found) <= sum(row.cost_micros for row in found) <= cost
    for name in used:
        row = book.sandbox(name)
        assert row is not None
        running = name not in closed and name.startswith(f"{life}-")
        assert row.state == ("stopped" if name in closed else "running" if running else "lost")
    book.close()
