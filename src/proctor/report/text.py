"""Text that programs made, as a page may show it; numbers as people read them."""

from __future__ import annotations

from proctor.grading.grades import printable

NOTHING = "\N{EN DASH}"


def visible(value: object, most: int = 200) -> str:
    """One line: control characters, direction marks and lone surrogates escaped, at most ``most`` characters."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    shown = printable(text[:most])
    return shown[: most - 1] + "…" if len(shown) > most or len(text) > most else shown


def visible_lines(text: str, most: int, lines: int) -> tuple[str, bool]:
    """The same for source, whose newlines and tabs stay; and whether something was left out."""
    kept = text[:most].replace("\r\n", "\n").split("\n")
    cut = len(text) > most or len(kept) > lines
    rows = (line.replace("\t", "    ") for line in kept[:lines])
    return "\n".join(printable(row) for row in rows), cut


def percent(share: float | None) -> str:
    """``12 %``; a share that is not nothing or all never looks so."""
    if share is None:
        return NOTHING
    rounded = round(100 * share)
    if (rounded == 0 and share > 0) or (rounded == 100 and share < 1):
        return f"{100 * share:.1f} %" if 0.0005 <= share < 0.9995 else ("< 0.1 %" if share < 0.5 else "> 99.9 %")
    return f"{rounded} %"


def seconds(value: float | None) -> str:
    """``3.1 ms``, ``0.42 s``, ``12 s``, ``3 min``, ``2.1 h``."""
    if value is None:
        return NOTHING
    if value < 0.1:
        return f"{1000 * value:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"


def mebibytes(value: float | None) -> str:
    """``31 MiB``."""
    return NOTHING if value is None else f"{value:.3g} MiB" if value < 100 else f"{value:.0f} MiB"


def number(value: float | None) -> str:
    """``0.25``, ``5,000``."""
    if value is None:
        return NOTHING
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


def plural(count: int, word: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
