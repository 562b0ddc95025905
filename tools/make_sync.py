#!/usr/bin/env python3
"""Writes the synchronous twin of the SDK from its asynchronous source: `python tools/make_sync.py [--check]`.

Works on tokens, so that comments and layout stay: `async` and `await` go, names are replaced.
"""

from __future__ import annotations

import io
import sys
import tokenize
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src" / "proctor" / "client"
MODULES = ("process", "files", "sandbox", "runtime")
HEAD = "# Made from async_{}.py by tools/make_sync.py: change that one.\n"
NAMES = {
    "AsyncDoor": "SyncDoor", "AsyncIterator": "Iterator", "__aenter__": "__enter__", "__aexit__": "__exit__",
    "__aiter__": "__iter__", "aclosing": "closing",
}  # fmt: skip
WORDS = {"``async with``": "``with``"}
DROPPED = ("async", "await")


def name_of(name: str) -> str:
    """A name in the twin."""
    if name in NAMES:
        return NAMES[name]
    for prefix, other in (("async_", "sync_"), ("Async", "")):
        if name.startswith(prefix) and name != prefix:
            return other + name[len(prefix) :]
    return name


def twin(source: str) -> str:
    """The synchronous twin of a module."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, int, int, str]] = []  # line, from, to, text
    pending = [i for i, t in enumerate(tokens) if t.string == "Pending" and tokens[i + 1].string in "(["]
    closers = set()
    for at in pending:  # `Pending(work)` is the work itself, `Pending[T]` is T
        depth, end = 0, at + 1
        while True:
            depth += tokens[end].string in ("(", "[")
            depth -= tokens[end].string in (")", "]")
            if depth == 0:
                break
            end += 1
        closers |= {at, at + 1, end}
    for at, token in enumerate(tokens):
        (line, start), (last, end) = token.start, token.end
        if at in closers:
            edits.append((line, start, end, ""))
        elif token.type == tokenize.NAME and token.string in DROPPED:
            width = end + (lines[line - 1][end : end + 1] == " ")
            edits.append((line, start, width, ""))
        elif token.type == tokenize.NAME and name_of(token.string) != token.string:
            edits.append((line, start, end, name_of(token.string)))
        elif token.type == tokenize.STRING:
            for number in range(line, last + 1):
                for word, other in WORDS.items():
                    column = lines[number - 1].find(word)
                    if column >= 0:
                        edits.append((number, column, column + len(word), other))
    for line, start, end, text in sorted(edits, reverse=True):
        whole = lines[line - 1]
        lines[line - 1] = whole[:start] + text + whole[end:]
    return "".join(lines)


def main(check: bool) -> int:
    """Write the twins; with ``check`` only say whether they are as they should be."""
    stale = []
    for module in MODULES:
        source = (CLIENT / f"async_{module}.py").read_text(encoding="utf-8")
        text, path = HEAD.format(module) + twin(source), CLIENT / f"sync_{module}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"not as made by tools/make_sync.py: {', '.join(stale)}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
