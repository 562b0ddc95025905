"""Charts as inline SVG: shapes and native tooltips only.

Labels stand beside them as HTML, so that text keeps its size on any screen;
colours are classes, so that they follow the page's scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup

from proctor.report.text import percent, plural

HEIGHT = 100.0
_RECT = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>')
_OPEN = Markup('<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">')
_CLOSE = Markup("</svg>")


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _rect(style: str, x: float, y: float, width: float, height: float, title: str) -> Markup:
    return _RECT.format(style, _short(x), _short(y), _short(width), _short(height), title)


def _svg(style: str, width: float, height: float, label: str, shapes: Iterable[Markup]) -> Markup:
    return _OPEN.format(style, _short(width), _short(height), label) + Markup("").join(shapes) + _CLOSE


def words(verdict: str) -> str:
    """``wrong answer``."""
    return verdict.replace("_", " ")


def mix(verdicts: Mapping[str, int], label: str, style: str = "mix") -> Markup:
    """One bar, each verdict a part of it."""
    total = sum(verdicts.values()) or 1
    shapes, x = [], 0.0
    for verdict, count in verdicts.items():
        width = 100 * count / total
        title = f"{words(verdict)}: {count:,} ({percent(count / total)})"
        shapes.append(_rect(f"v-{verdict}", x, 0, width, 10, title))
        x += width
    said = ", ".join(f"{words(verdict)} {count}" for verdict, count in verdicts.items())
    return _svg(style, 100, 10, f"{label}: {said}", shapes)


def meter(share: float | None, label: str) -> Markup:
    """A bar that is filled by a share."""
    share = 0.0 if share is None else min(max(share, 0.0), 1.0)
    shapes = [_rect("track", 0, 0, 100, 10, label), _rect("fill", 0, 0, 100 * share, 10, label)]
    return _svg("meter", 100, 10, label, shapes)


def histogram(bins: Sequence[tuple[str, int, int]], label: str, kinds: tuple[str, str]) -> Markup:
    """Columns of two kinds, one on the other.

    Args:
        bins: what each column stands for, and how many of each kind it has.
        label: of the whole, for those who hear it.
        kinds: names of the two.
    """
    top = max((low + high for _, low, high in bins), default=0) or 1
    step = 100 / max(1, len(bins))
    shapes = []
    for place, (name, low, high) in enumerate(bins):
        title = f"{name}: {plural(low, 'sample')} {kinds[0]}, {high:,} {kinds[1]}"
        x, width = place * step + step * 0.06, step * 0.88
        lower, upper = HEIGHT * low / top, HEIGHT * high / top
        shapes.append(_rect("hit", place * step, 0, step, HEIGHT, title))
        if low:
            shapes.append(_rect("bar-a", x, HEIGHT - lower, width, lower, title))
        if high:
            shapes.append(_rect("bar-b", x, HEIGHT - lower - upper, width, upper, title))
    return _svg("histogram", 100, HEIGHT, label, shapes)


def columns(rates: Sequence[tuple[str, float]], label: str) -> Markup:
    """One column for each name, as high as its rate; a rate of 0 keeps a foot so that it can be seen."""
    step = 100 / max(1, len(rates))
    gap = 0.12 if len(rates) <= 160 else 0.0
    shapes = []
    for place, (name, rate) in enumerate(rates):
        height = max(1.5, HEIGHT * rate)
        style = "col-zero" if rate == 0 else "col-full" if rate == 1 else "col"
        title = f"{name}: {percent(rate)}"
        shapes.append(_rect("hit", place * step, 0, step, HEIGHT, title))
        shapes.append(_rect(style, place * step + step * gap / 2, HEIGHT - height, step * (1 - gap), height, title))
    return _svg("histogram", 100, HEIGHT, label, shapes)


def by_share(values: Iterable[tuple[float, bool]], edges: Sequence[float]) -> list[tuple[str, int, int]]:
    """Counts between edges, for those accepted and the others; what is outside goes to the ends."""
    counts = [[0, 0] for _ in range(len(edges) - 1)]
    for value, good in values:
        place = sum(value >= edge for edge in edges[1:-1])
        counts[place][0 if good else 1] += 1
    names = [f"{percent(low)} to {percent(high)}" for low, high in pairwise(edges)]
    return [(name, good, bad) for name, (good, bad) in zip(names, counts, strict=True)]


def log_edges(low: float, high: float, count: int) -> list[float]:
    """Edges of ``count`` equal steps on a logarithmic scale."""
    step = math.log(high / low) / count
    return [low * math.exp(step * place) for place in range(count)] + [high]
