"""How anything that a program made is shown: escaped, always.

A program's output is hostile to a terminal: escape sequences move the cursor,
rewrite earlier lines, set the clipboard. Nothing here lets a control
character through but newline and tab, and the rich helpers never read markup
in such text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Unicode line and paragraph separators are not "printable", ordinary and
# no-break spaces are; only these blanks may pass.
_SPACES = frozenset(" \u00a0\u3000")


def _escape_char(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8, kept by surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def escape(data: bytes | str, *, keep: str = "\n\t") -> str:
    """Text that a terminal can be given.

    Printable characters and those in ``keep`` stay; every other one, control
    characters, direction overrides and invisible format characters among
    them, is shown as ``\\xNN``, ``\\uNNNN`` or ``\\UNNNNNNNN``, and so is each
    byte that is not UTF-8.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or c in _SPACES else _escape_char(c) for c in text)


def escape_line(data: bytes | str, width: int = 0) -> str:
    """The same on one line: newlines and tabs are shown as ``\\n`` and ``\\t``.

    Args:
        width: characters to keep at most, the last an ellipsis; 0 keeps all.
    """
    line = escape(data, keep="\n\t").replace("\n", "\\n").replace("\t", "\\t")
    return line[: width - 1] + "…" if width and len(line) > width else line


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Plain ASCII JSON, so that it is safe on a terminal too; NaN is refused.

    ``json`` leaves DEL as it is; that one is escaped here.
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent).replace("\x7f", "\\u007f")


def cell(data: bytes | str, width: int = 0, style: str = "") -> Text:
    """A table cell in which nothing is markup."""
    from rich.text import Text

    return Text(escape_line(data, width), style=style)


_STYLES = {
    "accepted": "green",
    "wrong_answer": "red",
    "infrastructure_error": "bold magenta",
    "policy_violation": "bold red",
}


def verdict_cell(verdict: str) -> Text:
    """A verdict in its colour."""
    return cell(verdict, style=_STYLES.get(verdict, "yellow"))


def reward_text(reward: float | None) -> str:
    """A reward as people read it: ``1``, ``0.25``, ``none``."""
    return "none" if reward is None else f"{reward:.4g}"


def console(*, stderr: bool = False) -> Console:
    """A console that reads no markup and colours only what it is told to.

    Without a terminal, tables are as wide as they need: a log has no edge.
    """
    from rich.console import Console

    shown = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not shown.is_terminal:
        shown = Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=max(shown.width, 140))
    return shown
