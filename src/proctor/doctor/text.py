"""Text that came from a program, made fit to show."""

from __future__ import annotations


def printable(data: bytes | str, width: int = 0) -> str:
    """On one line, without control or direction characters; cut to ``width`` characters where that is not 0."""
    text = data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")
    line = "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)
    return line[: width - 1] + "…" if width and len(line) > width else line
