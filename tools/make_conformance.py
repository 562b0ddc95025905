#!/usr/bin/env python3
"""Writes docs/conformance.md: `python tools/make_conformance.py RESULT.json ...`, one result for each column.

A result is what `proctor doctor --conformance --json` printed on one level of one host.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from proctor.core.errors import InputError  # noqa: E402
from proctor.doctor.conformance.page import render  # noqa: E402


def main(names: list[str]) -> int:
    """Reads the results, writes the page."""
    if not names:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        text = render([json.loads(Path(name).read_text(encoding="utf-8")) for name in names])
    except (OSError, ValueError, InputError) as error:
        print(f"make_conformance: error: {error}", file=sys.stderr)
        return 2
    (ROOT / "docs" / "conformance.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
