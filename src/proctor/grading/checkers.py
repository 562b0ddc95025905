"""Judge what a program wrote against what was expected of it.

Both sides are bytes and stay bytes: nothing is decoded, so no output can fail
to decode. The output is hostile and may be 16 MiB of anything; every kind
reads it lazily, stops at the first difference, and takes time and memory
linear in its size. Numbers are compared as exact decimals, so no number of
digits and no exponent overflows, is rounded into another, or meets Python's
guard on long integers.

A ``CheckResult.detail`` quotes the expected output. It is for people, never
for anything that a program can read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from itertools import chain, zip_longest
from typing import Any, Literal

from proctor.core.errors import InfrastructureError, InputError

KINDS = ("exact", "lines", "tokens", "numbers", "unordered_lines", "unordered_tokens")
EXCERPT = 80  # characters of one side that a detail quotes

_CHUNK = 1 << 16
_BLANKS = b" \t\r\v\f"
_SPACE = re.compile(rb"[ \t\n\r\v\f]")
# Possessive, so that a megabyte of digits is read once and not once a digit.
_DECIMAL = re.compile(rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")
_INTEGER = re.compile(rb"-?+(?:0|[1-9][0-9]*+)")
_WORDS_TO_X = bytes(byte if byte in b" \t\n\r\v\f" else ord("x") for byte in range(256))
_TO_SPACES = bytes.maketrans(_BLANKS, b" " * len(_BLANKS))
_NEWLINE = re.compile(rb"\n")
_FLOAT_SIGNS = re.compile(rb"[.eE]")
# A value keeps all its digits; the difference of two, which is only held against a tolerance, keeps its first 100.
_READ = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_CONTEXT = Context(prec=100, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


@dataclass(frozen=True, slots=True)
class CheckResult:
    """``ok``, and where not, a short printable reason that quotes both sides."""

    ok: bool
    detail: str = ""


class CheckerError(InfrastructureError):
    """A checker failed, so nothing is known about the program: no score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """One way to compare an output with the expected one.

    Attributes:
        kind: ``exact`` (the same bytes), ``lines`` (blanks at the end of a line
            and empty lines at the end are ignored; CRLF is LF), ``tokens``
            (the same words, whatever whitespace is between them), ``numbers``
            (tokens, decimals compared by value), ``unordered_lines`` and
            ``unordered_tokens`` (in any order, each as often as expected).
        case: False compares A-Z as a-z.
        abs, rel: numbers: two decimals are equal when they differ by at most
            ``abs``, or at most ``rel`` times the expected value; None and 0
            allow no difference, so ``1``, ``1.0`` and ``1e0`` are equal and no
            others. nan and inf are words, equal to themselves only.
        only_if_expected_is_float: numbers: the tolerance holds only where the
            expected token has a point or an exponent.
        blanks: lines: ``trailing`` (ignored at the end of a line), ``keep``
            (they count) or ``squeeze`` (any run is one, none at the ends).
        space: tokens, numbers: ``any``, or ``exact``: whitespace counts too.
        strict: tokens that are not of this form are wrong even where they are
            equal: ``decimal``, ``integer`` (no leading zeros) or ``any``.
    """

    kind: str = "tokens"
    case: bool = True
    abs: float | str | None = None
    rel: float | str | None = None
    only_if_expected_is_float: bool = False
    blanks: Literal["trailing", "keep", "squeeze"] = "trailing"
    space: Literal["any", "exact"] = "any"
    strict: Literal["any", "decimal", "integer"] = "any"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"{self.kind!r} is not one of {', '.join(KINDS)}", field="checker.kind")
        for name in ("abs", "rel"):
            tolerance(getattr(self, name), f"checker.{name}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(f"{getattr(self, name)!r} is not one of {known}", field=f"checker.{name}")

    def __call__(self, stdout: bytes, expected: bytes, stdin: bytes = b"") -> CheckResult:
        """Compare; never raises, whatever the bytes are."""
        if not self.case:
            stdout, expected = stdout.lower(), expected.lower()
        if self.kind == "exact":
            return _exact(stdout, expected)
        if self.kind == "lines":
            return _in_order("line", _lines(stdout, self.blanks), _lines(expected, self.blanks), _same)
        if self.kind == "unordered_lines":
            return _unordered("line", _lines(stdout, self.blanks), lambda: _lines(expected, self.blanks))
        if self.space == "exact" and not _same_stream(_spacing(stdout), _spacing(expected)):
            return CheckResult(False, "whitespace differs")
        if self.kind == "unordered_tokens":
            return _unordered("token", _tokens(stdout), lambda: _tokens(expected))
        return _in_order("token", _tokens(stdout), _tokens(expected), self._equal())

    def within(self, abs: float | None, rel: float | None) -> Checker:
        """The same with other tolerances, as one case may have; words become numbers."""
        return replace(self, kind="numbers" if self.kind == "tokens" else self.kind, abs=abs, rel=rel)

    def _equal(self) -> Callable[[bytes, bytes], bool]:
        equal = self._numbers() if self.kind == "numbers" else _same
        form = {"decimal": _DECIMAL, "integer": _INTEGER}.get(self.strict)
        if form is None:
            return equal
        return lambda got, want: form.fullmatch(got) is not None and equal(got, want)

    def _numbers(self) -> Callable[[bytes, bytes], bool]:
        near, scale = tolerance(self.abs, "abs"), tolerance(self.rel, "rel")
        floats_only = self.only_if_expected_is_float

        def equal(got: bytes, want: bytes) -> bool:
            if got == want:
                return True
            a, b = _decimal(got), _decimal(want)
            if a is None or b is None:
                return False
            if a == b:
                return True
            if (not near and not scale) or (floats_only and not _FLOAT_SIGNS.search(want)):
                return False
            gap = _CONTEXT.abs(_CONTEXT.subtract(a, b))
            return gap <= near or gap <= _CONTEXT.multiply(scale, _CONTEXT.abs(b))

        return equal


_CHOICES: dict[str, tuple[str, ...]] = {
    "blanks": ("trailing", "keep", "squeeze"),
    "space": ("any", "exact"),
    "strict": ("any", "decimal", "integer"),
}

Function = Callable[[bytes, bytes, bytes], "bool | CheckResult"]
AnyChecker = Checker | Function


def check(checker: AnyChecker, stdout: bytes, expected: bytes, stdin: bytes = b"") -> CheckResult:
    """Run a checker; a caller's own function that fails is a ``CheckerError``.

    Args:
        checker: a Checker, or a function ``(stdout, expected, stdin) -> bool``.
        stdout, expected, stdin: bytes, as they were written or given.

    Raises:
        CheckerError: the function raised, or did not return True or False.
    """
    if isinstance(checker, Checker):
        return checker(stdout, expected, stdin)
    name = getattr(checker, "__qualname__", type(checker).__name__)
    try:
        answer = checker(stdout, expected, stdin)
    except Exception as exc:
        raise CheckerError(f"checker {name} raised {type(exc).__name__}: {excerpt(str(exc).encode())}") from exc
    if isinstance(answer, CheckResult):
        return answer
    if not isinstance(answer, bool):
        raise CheckerError(f"checker {name} returned {type(answer).__name__}, not True or False")
    return CheckResult(answer, "" if answer else f"checker {name} said no")


# ---------------------------------------------------------------- making one


def exact() -> Checker:
    """The same bytes."""
    return Checker(kind="exact")


def lines(*, case: bool = True, blanks: Literal["trailing", "keep", "squeeze"] = "trailing") -> Checker:
    """The same lines; blanks at their ends and empty lines at the end are ignored."""
    return Checker(kind="lines", case=case, blanks=blanks)


def tokens(*, case: bool = True) -> Checker:
    """The same words in the same order and number, whatever whitespace is between them."""
    return Checker(kind="tokens", case=case)


def numbers(
    abs: float | str | None = 1e-6,
    rel: float | str | None = 1e-6,
    *,
    only_if_expected_is_float: bool = False,
    case: bool = True,
) -> Checker:
    """Tokens, where decimals may differ by ``abs``, or by ``rel`` of the expected value."""
    return Checker(kind="numbers", abs=abs, rel=rel, only_if_expected_is_float=only_if_expected_is_float, case=case)


def unordered_lines(*, case: bool = True) -> Checker:
    """The same lines in any order, each as often as expected."""
    return Checker(kind="unordered_lines", case=case)


def tolerance(value: Any, field: str) -> Decimal:
    """A tolerance as a decimal; a float counts as the shortest decimal that reads as it (1e-6, not 0.00000099...)."""
    if value is None:
        return Decimal(0)
    text = str(value).encode("utf-8", "replace")
    number = None if isinstance(value, bool) or len(text) > 100 else _decimal(text)
    if number is None or number < 0:
        raise InputError(f"{value!r} is not a number of at least 0", field=field)
    return number


# ---------------------------------------------------------------- reading lazily


def _chunks(data: bytes, end: re.Pattern[bytes]) -> Iterator[bytes]:
    """Pieces of about 64 KiB, cut only where ``end`` matches, so that one split holds a piece and not the whole."""
    at, size = 0, len(data)
    while at < size:
        found = end.search(data, min(at + _CHUNK, size))
        stop = found.end() if found else size
        yield data[at:stop]
        at = stop


def _tokens(data: bytes) -> Iterator[bytes]:
    return chain.from_iterable(map(bytes.split, _chunks(data, _SPACE)))


def _spacing(data: bytes) -> Iterator[bytes]:
    """The whitespace, with an ``x`` for each word, in pieces of at most 64 KiB or so."""
    for chunk in _chunks(data, _SPACE):
        chunk = chunk.translate(_WORDS_TO_X)
        while b"xx" in chunk:  # halves each word; a chunk ends between two
            chunk = chunk.replace(b"xx", b"x")
        yield chunk


def _same_stream(left: Iterator[bytes], right: Iterator[bytes]) -> bool:
    """Both give the same bytes, however they are cut (into pieces that are not empty)."""
    a = b = b""
    while True:
        a, b = a or next(left, b""), b or next(right, b"")
        if not a or not b:
            return a == b
        size = min(len(a), len(b))
        if a[:size] != b[:size]:
            return False
        a, b = a[size:], b[size:]


def _lines(data: bytes, blanks: str) -> Iterator[bytes]:
    """Lines without their ends and without those at the end of the output that are empty or blank."""
    kept = data.rstrip()
    if not kept:
        return
    end = data.find(b"\n", len(kept)) if blanks == "keep" else len(kept)  # the last line's own blanks may count
    data = data if end < 0 else data[:end]
    for chunk in _chunks(data, _NEWLINE):
        rows = chunk.removesuffix(b"\n").split(b"\n")
        if blanks == "keep":
            yield from (row.removesuffix(b"\r") for row in rows)
        elif blanks == "squeeze":
            yield from map(_squeezed, rows)
        else:
            yield from (row.rstrip(_BLANKS) for row in rows)


def _squeezed(row: bytes) -> bytes:
    """One space for each run of blanks; by halving the runs, since a list of the words could be huge."""
    row = row.translate(_TO_SPACES).strip(b" ")
    while b"  " in row:
        row = row.replace(b"  ", b" ")
    return row


def _decimal(token: bytes) -> Decimal | None:
    """The value of a decimal number, None for nan, inf, hexadecimal, words, and exponents beyond 10**18."""
    if not _DECIMAL.fullmatch(token):
        return None
    number = _READ.create_decimal(token.decode("ascii"))
    return number if number.is_finite() else None


# ---------------------------------------------------------------- comparing


def excerpt(data: bytes, limit: int = EXCERPT) -> str:
    """Printable ASCII of at most ``limit`` characters, everything else escaped."""
    text = repr(bytes(data[:limit]))[2:-1]
    return text if len(text) <= limit and len(data) <= limit else text[: limit - 3] + "..."


def _same(got: bytes, want: bytes) -> bool:
    return got == want


def _exact(stdout: bytes, expected: bytes) -> CheckResult:
    if stdout == expected:
        return CheckResult(True)
    at, step = 0, _CHUNK
    while step:  # halve the stretch that holds the first difference
        while stdout[at : at + step] == expected[at : at + step] and at < len(expected):
            at += step
        step //= 16
    want, got = excerpt(expected[at : at + 40]), excerpt(stdout[at : at + 40])
    return CheckResult(False, f"byte {at}: expected '{want}', got '{got}'")


def _in_order(
    what: str, got: Iterable[bytes], want: Iterable[bytes], equal: Callable[[bytes, bytes], bool]
) -> CheckResult:
    for index, (a, b) in enumerate(zip_longest(got, want), 1):
        if a is None:
            return CheckResult(False, f"{what} {index}: expected '{excerpt(b)}', got the end of the output")
        if b is None:
            return CheckResult(False, f"{what} {index}: expected the end, got '{excerpt(a)}'")
        if not equal(a, b):
            return CheckResult(False, f"{what} {index}: expected '{excerpt(b)}', got '{excerpt(a)}'")
    return CheckResult(True)


def _unordered(what: str, got: Iterable[bytes], want: Callable[[], Iterable[bytes]]) -> CheckResult:
    # Only the expected output is held; each piece of the hostile one is looked up and dropped.
    left = Counter(want())
    missing = left.total()
    for index, piece in enumerate(got, 1):
        if not left.get(piece):
            return CheckResult(False, f"{what} {index}: '{excerpt(piece)}' is not expected, or not this often")
        left[piece] -= 1
        missing -= 1
    if missing:
        first = next(piece for piece, count in left.items() if count)
        return CheckResult(False, f"{missing} {what}(s) missing, such as '{excerpt(first)}'")
    return CheckResult(True)
