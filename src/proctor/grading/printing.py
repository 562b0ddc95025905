"""Text of strangers, made safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` with control characters, lone surrogates and direction marks escaped; letters of any script stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
