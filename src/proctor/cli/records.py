"""One line of ``score``'s journal, with a digest by which it is known to be as it was written."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class Record(NamedTuple):
    """One line of a journal: a completion's number and its line of the output, without a newline."""

    number: int
    text: bytes


def record(number: int, text: bytes) -> bytes:
    """A line of a journal, with its newline."""
    return b"%d\t%s\t%s\n" % (number, _check(number, text), text)


def _check(number: int, text: bytes) -> bytes:
    return hashlib.sha256(b"%d\t%s" % (number, text)).hexdigest()[:16].encode()


def read_record(line: bytes) -> Record | None:
    """What a line of a journal, with its newline, says; None where it is not as it was written."""
    name, _, rest = line[:-1].partition(b"\t")
    check, tab, text = rest.partition(b"\t")
    if not tab or not name.isdigit() or len(name) > 18 or _check(int(name), text) != check:
        return None
    return Record(int(name), text)
