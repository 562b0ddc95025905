"""Sizes and times as options take them."""

from __future__ import annotations

import click
import pytest

from proctor.cli.units import counted, mebibytes, mib, seconds, show_size, show_time, size


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("65536", 65536), ("64K", 65536), ("64kib", 65536), ("1.5M", 1572864), ("2 GB", 2 << 30), ("12B", 12)],
)
def test_size(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize(("text", "count"), [("512", 512), ("512M", 512), ("1G", 1024), ("100K", 1), ("1500K", 2)])
def test_mebibytes(text: str, count: int) -> None:
    assert mib(mebibytes(text)) == count


@pytest.mark.parametrize(
    ("text", "count"), [("10", 10), ("0.5", 0.5), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("3 s", 3)]
)
def test_seconds(text: str, count: float) -> None:
    assert seconds(text) == count


@pytest.mark.parametrize("text", ["", "x", "-1", "1e3", "10X", "nan", "0x10", "1 2"])
@pytest.mark.parametrize("kind", [size, mebibytes, seconds])
def test_nonsense_is_refused(kind: object, text: str) -> None:
    with pytest.raises(click.BadParameter, match="write for example"):
        kind(text)  # type: ignore[operator]


def test_shown() -> None:
    assert [show_size(n) for n in (10, 1024, 65536, 1 << 20, 3 << 30)] == [
        "10 bytes",
        "1 KiB",
        "64 KiB",
        "1 MiB",
        "3 GiB",
    ]
    assert [show_time(n) for n in (3.4, 65, 3700)] == ["3.4 s", "1 min 05 s", "1 h 01 min"]


def test_counted() -> None:
    assert [counted(n, "case") for n in (0, 1, 2)] == ["0 cases", "1 case", "2 cases"]
    assert [counted(n, "verdict is", "verdicts are") for n in (1, 3)] == ["1 verdict is", "3 verdicts are"]
