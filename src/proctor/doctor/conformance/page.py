"""The page about conformance: which level does what, from the results of the suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proctor.core.errors import InputError
from proctor.doctor.conformance.declared import DECLARED
from proctor.doctor.conformance.suite import CHECKS, State

HEAD = """\
# Conformance of isolation levels

<!-- Made by tools/make_conformance.py from results of `proctor doctor --conformance --json`: change those. -->

A program must not be able to tell, and a verdict must not depend on, which wall stands around it. So there is one suite that
every [isolation level](isolation.md) passes, or declares beforehand what it does not do, and why:

```console
$ proctor doctor --conformance                       # the level that this host gets
$ proctor doctor --conformance --isolation gvisor    # another; --json for machines
```

Each check is a small program and what must come of it. It runs in a warm interpreter and in a real one, each on first and second
use of a slot, and unless clocks are in it all four outcomes must be the same. Those that are also an attack of `proctor doctor`
are that attack. A result is `pass`, `declared` (it does not pass, the level says so, and it fails in the very way that is
declared), or `FAIL`, which makes the exit status 1. A declared check that passes is said too. What this host failed on is never
excused, nor is a program that breaks its slot.

A column is one level on one host, as root unless it says otherwise; numbers lead to the reasons below.
"""


def column(document: Mapping[str, Any]) -> str:
    """The name of a result's column."""
    return str(document["isolation"]) + ("" if document["as_root"] else ", as a user")


def render(documents: Sequence[Mapping[str, Any]]) -> str:
    """The whole page.

    Args:
        documents: what ``--json`` printed, one for each column.

    Raises:
        InputError: a result is of another suite, has a check that fails, or is of the same column as another.
    """
    states: dict[str, dict[str, Mapping[str, Any]]] = {}
    for document in documents:
        rows, name = {row["check"]: row for row in document["checks"]}, column(document)
        if name in states:
            raise InputError(f"there are two results for {name!r}; give one of them", field="isolation")
        if list(rows) != [check.key for check in CHECKS]:
            raise InputError(f"the result for {name!r} is of another suite; run this one's again", field="checks")
        if failed := [key for key, row in rows.items() if row["state"] == State.FAIL]:
            raise InputError(f"{', '.join(failed)} FAIL in {name!r}; mend or declare them first", field="checks")
        states[name] = rows
    return HEAD + "".join(_tables(states)) + "".join(_reasons())


def _tables(states: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    group = ""
    for check in CHECKS:
        if check.group != group:
            group = check.group
            yield f"\n## {group.capitalize()}\n\n| check | what is so | {' | '.join(states)} |\n|---|---|{'---|' * len(states)}\n"
        cells = [_cell(name.partition(",")[0], check.key, rows[check.key]) for name, rows in states.items()]
        yield f"| `{check.key}` | {check.title} | {' | '.join(cells)} |\n"


def _cell(level: str, check: str, row: Mapping[str, Any]) -> str:
    if "declared" not in row:
        return str(row["state"])
    for number, one in enumerate(_unique(), 1):
        if (level, check) in one[1] and one[0] == row["declared"]:
            return f"{row['state']} ({number})"
    raise InputError(f"what {level} declares about {check} has changed; run the suite again", field="declared")


def _unique() -> list[tuple[str, list[tuple[str, str]]]]:
    """Each reason once, with the levels and checks that it stands for."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one in DECLARED:
        found.setdefault(one.why, []).append((one.level, one.check))
    return list(found.items())


def _reasons() -> Iterator[str]:
    yield "\n## Declared\n\n"
    for number, (why, places) in enumerate(_unique(), 1):
        levels = list(dict.fromkeys(level for level, _ in places))
        checks = list(dict.fromkeys(f"`{check}`" for _, check in places))
        yield f"{number}. {' and '.join(levels)}, {', '.join(checks)}: {why}.\n"
