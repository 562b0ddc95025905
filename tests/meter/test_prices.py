"""Prices, usage and settings: exact sums, and what is refused."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meter_help import dollars, micros

from proctor.core.errors import InputError
from proctor.core.settings import default_path, load
from proctor.meter import prices as money
from proctor.meter.limits import daily_micros
from proctor.meter.prices import PICOS, Prices
from proctor.meter.usage import Usage

seconds = st.decimals(0, 10**6, places=6).map(float)
vcpus = st.sampled_from([0.05, 0.25, 0.5, 1.0, 1.5, 2.0, 64.0])
memories = st.integers(1, 1 << 18)
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy host draws numbers slowly


def test_a_training_run_of_200_000_sandboxes_costs_7_dollars_78() -> None:
    one = Usage(cpu_seconds=2, wall_seconds=6, vcpu=1, memory_mib=2048)
    cpu = Usage(cpu_seconds=2, wall_seconds=6, vcpu=1, memory_mib=0)
    total, processors = 200_000 * one.picos(Prices()), 200_000 * cpu.picos(Prices())
    assert round(total / PICOS / 10**6, 2) == 7.78
    assert round(processors / PICOS / 10**6, 2) == 2.78
    assert round((total - processors) / PICOS / 10**6, 2) == 5.00
    assert total // PICOS == 7_777_777
    assert one.charged_cpu_seconds(Prices()) == 2  # above the floor of 0.3
    assert one.gib_seconds == 12
    assert one.cost_micros(Prices()) == 38


def test_a_short_sandbox_costs_what_it_ran() -> None:
    assert Usage(0.1, 0.1, 1, 1024).cost_micros(Prices(cpu_hour=36, memory_hour=36)) == 2000


def test_the_floor_is_a_twentieth_of_the_vcpus() -> None:
    assert Usage(0.0, 100.0, 2, 1024).charged_cpu_seconds(Prices()) == 10
    assert Usage(9.9, 100.0, 2, 1024).charged_cpu_seconds(Prices()) == 10
    assert Usage(10.5, 100.0, 2, 1024).charged_cpu_seconds(Prices()) == 10.5
    assert Usage(0.0, 100.0, 2, 1024).charged_cpu_seconds(Prices(cpu_floor=0)) == 0


def test_storage_by_the_month() -> None:
    month = 30 * 24 * 3600 * 10**6
    assert Prices().storage_picos(10**9, month) == 80_000 * PICOS
    assert Prices().storage_picos(5 * 10**8, month // 2) == 20_000 * PICOS
    assert Prices().storage_picos(10**9, -5) == 0


@patient
@given(seconds, seconds, vcpus, memories, st.decimals(0, 1000, places=6), st.decimals(0, 1, places=3))
def test_costs_are_exact(cpu: float, wall: float, vcpu: float, memory: int, price: Decimal, floor: Decimal) -> None:
    prices = Prices(cpu_hour=price, memory_hour=price // 7, cpu_floor=floor)  # type: ignore[arg-type]
    found = Usage(cpu, wall, vcpu, memory).picos(prices)
    whole = dollars(round(Decimal(cpu), 6), round(Decimal(wall), 6), vcpu, memory, prices) * 10**12
    assert found == whole // 1


def test_gpus_cost_by_the_second_for_as_long_as_a_sandbox_has_them() -> None:
    prices = Prices(gpu_second="0.0006")  # type: ignore[arg-type]
    plain, two = Usage(2, 6, 1, 2048), Usage(2, 6, 1, 2048, 2)
    assert two.gpu_seconds == 12
    assert two.picos(prices) - plain.picos(prices) in (7200 * PICOS, 7200 * PICOS + 1)  # a part of one is left off
    assert two.picos(Prices()) == plain.picos(Prices())  # unless there is a price they cost nothing
    assert Usage(0, 10, 1, 0, 1).seconds_until(7_000, Prices(gpu_second="0.0006", cpu_hour=0), cpus=1) == pytest.approx(  # type: ignore[arg-type]
        7_000 / 600 - 10
    )
    for value in (-1, 1.0, True, 5000):
        with pytest.raises(InputError, match="gpu"):
            Usage(1, 1, 1, 1, value)  # type: ignore[arg-type]


def test_lists_of_before_there_was_a_price_of_gpus_charge_none() -> None:
    old = '{"cpu_hour": "1/40", "memory_hour": "3/400", "storage_month": "2/25", "cpu_floor": "1/20"}'
    assert Prices.from_json(old) == Prices()
    with pytest.raises(ValueError, match="not a price list"):
        Prices.from_json('{"cpu_hour": "1/40"}')


@patient
@given(
    seconds, seconds, vcpus, memories, st.integers(0, 10**9), st.sampled_from([0.5, 1.0, 4.0, 96.0]), st.integers(0, 3)
)
def test_no_ceiling_is_reached_sooner(
    cpu: float, wall: float, vcpu: float, memory: int, ceiling: int, cpus: float, gpus: int
) -> None:
    now, prices = Usage(cpu, wall, vcpu, memory, gpus), Prices(gpu_second="0.0007")  # type: ignore[arg-type]
    until = now.seconds_until(ceiling, prices, cpus=cpus)
    if until == 0:
        assert now.has_reached(ceiling, prices)
        return

    def later(passed: float) -> Usage:
        # Those that use all CPUs are the dearest, unless the floor of idle ones is higher.
        return Usage(cpu + passed * cpus, wall + passed, vcpu, memory, gpus)

    assert not now.has_reached(ceiling, prices)
    if until > 1e-5:
        assert not later(until - 1e-5).has_reached(ceiling, prices)
    if until < 10**8:
        assert later(until + 1e-5).has_reached(ceiling, prices)


def test_what_costs_nothing_reaches_no_ceiling() -> None:
    free = Prices(cpu_hour=0, memory_hour=0)  # type: ignore[arg-type]
    assert Usage(1, 1, 1, 1024).seconds_until(1, free) == math.inf
    assert Usage(1, 1, 1, 1024).seconds_until(0, free) == 0.0


@patient
@given(seconds, seconds, vcpus, memories)
def test_rounding_moves_no_ceiling(cpu: float, wall: float, vcpu: float, memory: int) -> None:
    usage, exact = Usage(cpu, wall, vcpu, memory), dollars(round(cpu, 6), round(wall, 6), vcpu, memory)
    ceiling = micros(exact)
    assert usage.has_reached(ceiling, Prices())
    assert not usage.has_reached(ceiling + 1, Prices())


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", True, None, 10**10])
@pytest.mark.parametrize("field", ["cpu_seconds", "wall_seconds", "vcpu", "memory_mib"])
def test_usage_that_is_none_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        Usage(**{"cpu_seconds": 1, "wall_seconds": 1, "vcpu": 1, "memory_mib": 1, field: value})  # type: ignore[arg-type]


def test_prices_are_what_was_written() -> None:
    assert Prices(cpu_hour=0.1).cpu_hour == Fraction(1, 10)  # type: ignore[arg-type]
    assert Prices(cpu_hour="0.025") == Prices()  # type: ignore[arg-type]
    assert Prices.from_json(Prices(storage_month=Decimal("0.07")).to_json()).storage_month == Fraction(7, 100)  # type: ignore[arg-type]
    assert Prices(cpu_hour="0e-999999999").cpu_hour == 0  # type: ignore[arg-type]
    assert money.dollars(7_777_777) == "$7.777777"
    assert money.dollars(1_234_000_001) == "$1,234.000001"


@pytest.mark.parametrize(
    "value", ["x", "-1", "1e999999999", "1e-999999999", "nan", 1001, True, None, [1], "0" * 99 + "x", "0.0000000000001"]
)
def test_prices_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"prices\.cpu_hour.* is not a number from 0 to 1000"):
        Prices(cpu_hour=value)  # type: ignore[arg-type]


# ---------------------------------------------------------------- settings


def write(text: str, path: Path | None = None) -> Path:
    path = path or default_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_a_file_prices_are_the_usual_ones() -> None:
    assert Prices.from_settings(load()) == Prices()
    assert daily_micros(load()) is None


def test_the_file_and_before_it_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[prices]\ncpu_hour = 0.1\nmemory_hour = 1\n[limits]\ndaily_micros = 5_000_000\n")
    monkeypatch.setenv("PROCTOR_PRICES_CPU_HOUR", " 0.2 ")
    monkeypatch.setenv("PROCTOR_PRICES_STORAGE_MONTH", "")
    found = Prices.from_settings(load())
    assert (found.cpu_hour, found.memory_hour, found.storage_month) == (Fraction(1, 5), 1, Fraction(2, 25))
    assert daily_micros(load()) == 5_000_000
    monkeypatch.setenv("PROCTOR_LIMITS_DAILY_MICROS", "0")
    assert daily_micros(load()) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[prices]\ncpu_huor = 1", r"no setting 'prices.cpu_huor'; did you mean 'cpu_hour'\?"),
        ("[prces]\ncpu_hour = 1", r"no setting 'prces'; did you mean 'prices'\?"),
        ("prices = 3", r"write \[prices\]"),
        ("[prices]\nzzz = 1", "there are cpu_floor, cpu_hour, gpu_second, memory_hour, storage_month"),
        ("[prices]\ncpu_hour = -1", r"prices\.cpu_hour.*-1.* is not a number from 0 to 1000"),
        ("[prices]\ncpu_hour = inf", r"prices\.cpu_hour.* is not a number"),
        ("[prices]\ncpu_hour = 1e-999999999", r"prices\.cpu_hour.* is not a number"),
        ("[prices]\ncpu_hour = true", r"prices\.cpu_hour.* is not a number"),
        ("[prices]\ncpu_hour = [1]", r"prices\.cpu_hour.* is not a number"),
        ("[prices]\ncpu_floor = 1.5", r"prices\.cpu_floor.*from 0 to 1 "),
        ("[limits]\ndaily_micros = 1.5", r"limits\.daily_micros.* is not a whole number"),
        ("[limits]\ndaily_micros = -1", r"limits\.daily_micros.* is not a whole number"),
        ("[limits]\ndaily_micro = 1", r"did you mean 'daily_micros'\?"),
        ("[prices", "is not TOML"),
        ("[prices]\ncpu_hour = " + "9" * 5000, "is not TOML|is not a number"),
    ],
)
def test_settings_that_do_not_fit_are_named(text: str, said: str) -> None:
    path = write(text)

    def read() -> None:
        settings = load()
        Prices.from_settings(settings)
        daily_micros(settings)

    with pytest.raises(InputError, match=said) as caught:
        read()
    assert str(path) in str(caught.value)


def test_a_variable_that_there_is_not_is_named() -> None:
    with pytest.raises(InputError, match=r"variable PROCTOR_PRICES_CPU_HOURS: .*did you mean 'cpu_hour'"):
        Prices.from_settings(load(environ={"PROCTOR_PRICES_CPU_HOURS": "1", "XDG_CONFIG_HOME": "/nowhere"}))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "settings.toml")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not TOML"):
        load(tmp_path / "binary")
