"""Source as highlighted HTML: escaped, bounded, with the lines that an audit names marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from proctor.report.text import visible_lines

CHARACTERS, LINES = 8_000, 250  # of one sample


@dataclass(slots=True)
class Budget:
    """Characters of HTML that code may still take; when they are used up it is shown plain and short."""

    left: int


def highlighted(code: str | None, language: str, marked: Sequence[int], budget: Budget) -> tuple[Markup | None, bool]:
    """The code as HTML, and whether some was left out; None where there is none.

    Args:
        marked: numbers of lines, from 1.
    """
    if code is None:
        return None, False
    plenty = budget.left > 0
    shown, cut = visible_lines(code, CHARACTERS if plenty else CHARACTERS // 8, LINES if plenty else LINES // 8)
    try:
        lexer = get_lexer_by_name(language if plenty else "text", stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    formatter = HtmlFormatter(linenos="inline", hl_lines=list(marked), cssclass="code")
    html = highlight(shown, lexer, formatter)
    budget.left -= len(html)
    return Markup(html), cut
