"""Which class of a Java source is run: ``javac`` wants a file of the public type's name, and ``java`` a class by name."""

from __future__ import annotations

import re

USUAL = "Main"
_MAX_TEXT = 1 << 20  # characters that are looked at
# Each comment and literal is consumed whether or not it is closed, so that no text is looked at twice.
_PARTS = re.compile(
    r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*+(?:\"\"\")?|\"(?:[^\"\\\n]|\\.)*+\"?"
    r"|'(?:[^'\\\n]|\\.)*+'?|(?P<open>\{)|(?P<close>\})|(?P<end>;)|(?P<public>\bpublic\b)|(?P<static>\bstatic\b)"
    r"|(?P<main>\bvoid\s+main\s*\()|(?P<into>\()|(?P<out>\))"
    r"|\b(?:class|interface|enum|record)\s+(?P<type>(?:[^\W\d]|\$)[\w$]*)|\bpackage\s+(?P<package>(?:[^\W\d]|\$)[\w$.]*)\s*;",
    re.DOTALL,
)


def names(source: str) -> tuple[str, str]:
    """The file's name without its ending, and the class to run, with its package.

    The file is named by the public type, else ``Main``. What runs is the public
    type where it has a static ``main``, else ``Main``, else the first type that has one.
    """
    depth, inside, public, static, at, package, shown = 0, 0, False, False, "", "", ""
    types: dict[str, bool] = {}  # those of the top level: it has a main
    for part in _PARTS.finditer(source[:_MAX_TEXT]):
        kind = part.lastgroup
        if depth == 0 and kind in ("into", "out"):
            inside = max(0, inside + (1 if kind == "into" else -1))
        elif inside:
            continue  # an annotation's values, between ``public`` and its type
        elif kind in ("open", "close", "end"):
            depth = max(0, depth + {"open": 1, "close": -1, "end": 0}[kind])
            public = static = False
        elif kind == "static":
            static = True
        elif kind == "public":
            public = True
        elif kind == "package" and depth == 0:
            package = f"{part['package']}."
        elif kind == "type" and depth == 0:
            at = part["type"]
            types.setdefault(at, False)
            shown = shown or (at if public else "")
        elif kind == "main" and depth == 1 and at and static:
            types[at] = True
    able = [name for name, has_main in types.items() if has_main]
    run = next((name for name in (shown, USUAL, *able) if name in able), USUAL)
    return shown or USUAL, package + run
