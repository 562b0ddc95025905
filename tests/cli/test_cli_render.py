"""Nothing that a program wrote reaches a terminal as more than printable text."""

from __future__ import annotations

import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.cli.render import cell, escape, escape_line, reward_text, to_json


def test_escapes_control_characters() -> None:
    assert escape(b"a\x1b[2Jb\x07\x7f\r\n\tc") == "a\\x1b[2Jb\\x07\\x7f\\x0d\n\tc"


def test_escapes_bytes_that_are_not_utf8_and_keeps_those_that_are() -> None:
    assert escape("é 日本".encode() + b"\xff\xc3") == "é 日本\\xff\\xc3"


def test_escapes_c1_controls_and_direction_overrides() -> None:
    assert escape("\x9b2J\u202e\u2028\u200b") == "\\x9b2J\\u202e\\u2028\\u200b"


def test_line_shows_newlines() -> None:
    assert escape_line("a\nb\tc") == "a\\nb\\tc"
    assert escape_line("abcdef", width=4) == "abc…"


@settings(database=None)
@given(st.binary())
def test_escaped_bytes_are_harmless(data: bytes) -> None:
    shown = escape(data)
    assert all(c.isprintable() or c in "\n\t\u00a0\u3000" for c in shown)
    shown.encode()


@settings(database=None)
@given(st.text(st.characters(blacklist_categories=())))
def test_escaped_text_is_harmless(text: str) -> None:
    assert all(c.isprintable() or c in "\u00a0\u3000" for c in escape_line(text))


def test_json_is_ascii_and_has_no_del() -> None:
    shown = to_json({"a": "\x1b\x7f\x9b é"})
    assert shown.isascii()
    assert shown.isprintable()
    assert json.loads(shown) == {"a": "\x1b\x7f\x9b é"}


def test_cells_read_no_markup() -> None:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, markup=True).print(cell("[bold]x[/bold] \x1b[31m"))
    assert out.getvalue() == "[bold]x[/bold] \\x1b[31m\n"


def test_reward_text() -> None:
    assert [reward_text(x) for x in (1.0, 0.25, None, -0.1)] == ["1", "0.25", "none", "-0.1"]
