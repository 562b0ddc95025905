"""Option values with units: sizes such as ``512M`` and times such as ``500ms``."""

from __future__ import annotations

import math
import re

import click

from proctor.core.limits import KIB, MIB

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?", re.IGNORECASE)
_POWERS = {"": 1, "k": KIB, "m": MIB, "g": MIB << 10, "t": MIB << 20}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def size(value: str | int) -> int:
    """Bytes: ``65536``, ``64K``, ``1.5M``, ``2GiB`` (powers of 1024); an option's ``type``."""
    return _bytes(str(value), 1)


def mebibytes(value: str | int) -> int:
    """Bytes, rounded up to whole MiB; a number without a unit counts MiB. An option's ``type``."""
    return -(-_bytes(str(value), MIB) // MIB) * MIB


def _bytes(value: str, bare: int) -> int:
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size; write for example 512M, 64K or 1G")
    number, letter, suffix = match.groups()
    return math.ceil(float(number) * (_POWERS[letter.lower()] if letter or suffix else bare))


def seconds(value: str | float) -> float:
    """Seconds: ``10``, ``0.5``, ``500ms``, ``2m``, ``1h``; an option's ``type``."""
    match = _TIME.fullmatch(str(value).strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a time; write for example 10, 500ms or 2m")
    number, unit = match.groups()
    return float(number) * _SECONDS[(unit or "s").lower()]


def mib(count: int) -> int:
    """Whole MiB of a size that ``mebibytes`` gave."""
    return count // MIB


def counted(count: int, one: str, more: str = "") -> str:
    """``1 completion has``, ``2 completions have``: the number and its words; ``more`` is ``one`` and an s where left out."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def show_size(count: int) -> str:
    """``64 KiB``, ``512 MiB``: the largest unit that divides it."""
    for power, unit in ((MIB << 10, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= power and count % power == 0:
            return f"{count // power} {unit}"
    return f"{count} bytes"


def show_time(duration: float) -> str:
    """``0.8 s``, ``12 s``, ``2 min 05 s``, ``1 h 04 min``."""
    if duration < 9.95:
        return f"{max(0.0, duration):.1f} s"
    whole = round(duration)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
