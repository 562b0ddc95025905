"""Which class of a Java source is run: ``javac`` wants a file of the public type's name, and ``java`` a class by name."""

from __future__ import annotations

import re

USUAL = "Main"
_MAX_TEXT = 1 << 20  # characters that are looked at
# Each comment and literal is consumed whether or not it is closed, so that no text is looked at twice.
_PARTS = re.compile(
    r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*+(?:\"\"\")?|\"(?:[^\"\\\n]|\\.)*+\"?"
    r"|'(?:[^'\\\n]|\\.)*+'?|(?P<open>\{)|(?P<close>\})|(?P<end>;)|(?P<public>\bpublic\b)|(?P<main>\bvoid\s+main\s*\()"
    r"|\b(?:class|interface|enum|record)\s+(?P<type>[A-Za-z_$][\w$]*)|\bpackage\s+(?P<package>[A-Za-z_$][\w$.]*)\s*;",
    re.ASCII | re.DOTALL,
)


def names(source: str) -> tuple[str, str]:
    """The file's name without its ending, and the class to run, with its package.

    The file is named by the public type, else ``Main``. What runs is the public
    type where it has a ``main``, else ``Main``, else the first type that has one.
    """
    depth, public, at, package, shown = 0, False, "", "", ""
    types: dict[str, bool] = {}  # those of the top level: it has a main
    for part in _PARTS.finditer(source[:_MAX_TEXT]):
        kind = part.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
            public = False
        elif kind == "end":
            public = False
        elif kind == "public":
            public = True
        elif kind == "package" and depth == 0:
            package = f"{part['package']}."
        elif kind == "type" and depth == 0:
            at = part["type"]
            types.setdefault(at, False)
            shown = shown or (at if public else "")
        elif kind == "main" and depth == 1 and at:
            types[at] = True
    able = [name for name, has_main in types.items() if has_main]
    run = next((name for name in (shown, USUAL, *able) if name in able), USUAL)
    return shown or USUAL, package + run
