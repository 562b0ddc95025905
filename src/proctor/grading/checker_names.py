"""Checkers by name: the command line's grammar, problem files, testlib's and Kattis' words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from proctor.core.errors import InputError
from proctor.grading.checkers import Checker, exact, lines, numbers, tokens, unordered_lines
from proctor.grading.problem import CheckerSpec


def _within(abs: str, rel: str | None = None) -> Checker:
    return Checker(kind="numbers", abs=abs, rel=rel, strict="decimal")


# Names that problem setters know, each given by our kinds; the differences are in tests/grading/test_checkers.py.
NAMED: dict[str, Checker] = {
    "exact": exact(),
    "lines": lines(),
    "tokens": tokens(),
    "numbers": numbers(),
    "float": numbers(),
    "unordered_lines": unordered_lines(),
    "unordered_tokens": Checker(kind="unordered_tokens"),
    "fcmp": lines(blanks="keep"),
    "lcmp": lines(blanks="squeeze"),
    "wcmp": tokens(),
    "hcmp": Checker(strict="integer"),
    "icmp": Checker(strict="integer"),
    "ncmp": Checker(strict="integer"),
    "uncmp": Checker(kind="unordered_tokens"),
    "yesno": Checker(case=False),
    "nyesno": Checker(case=False),
    "casewcmp": tokens(),
    "caseicmp": tokens(),
    "acmp": _within("1.5e-6"),
    "rcmp": _within("1.5e-6"),
    "dcmp": _within("1e-6", "1e-6"),
    "rncmp": _within("1.5e-5"),
    "rcmp4": _within("1e-4", "1e-4"),
    "rcmp6": _within("1e-6", "1e-6"),
    "rcmp9": _within("1e-9", "1e-9"),
    "kattis": tokens(case=False),
}
_TYPES: dict[str, type] = {f.name: bool if f.type == "bool" else str for f in fields(Checker)}
_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def parse_checker(spec: str) -> Checker:
    """A checker as the command line writes it: ``name`` or ``name:key=value,key=value``.

    ``numbers:abs=1e-6,rel=1e-9``, ``tokens:case=no``, ``lines:blanks=keep``,
    ``wcmp``, ``kattis:abs=1e-6,rel=1e-6``. A tolerance given to a name that
    compares words makes it ``numbers``; one of ``abs`` and ``rel`` given alone
    leaves the other at none.

    Raises:
        InputError: an unknown name or key, or a value that does not fit.
    """
    name, _, rest = spec.strip().partition(":")
    base = NAMED.get(name)
    if base is None:
        raise InputError(f"{name!r} is not one of {', '.join(NAMED)}", field="checker")
    given: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = part.partition("=")
        if key not in _TYPES or key == "kind" or not equals:
            known = ", ".join(sorted(k for k in _TYPES if k != "kind"))
            raise InputError(f"{part!r} is not key=value with a key of {known}", field="checker")
        if _TYPES[key] is bool and value.lower() not in _YES:
            raise InputError(f"{value!r} is not yes or no", field=f"checker.{key}")
        given[key] = _YES[value.lower()] if _TYPES[key] is bool else value
    return _with(base, given)


def from_spec(spec: CheckerSpec) -> Checker:
    """The checker that a problem asks for; InputError for a kind that does not compare printed text."""
    if spec.kind in ("value", "program"):
        raise InputError(
            f"kind {spec.kind!r} does not compare printed text; name another with --checker or checker=",
            field="checker.kind",
        )
    return Checker(
        kind=spec.kind,
        case=spec.case_sensitive,
        abs=spec.abs,
        rel=spec.rel,
        only_if_expected_is_float=spec.only_if_expected_is_float,
    )


def kattis_checker(args: Iterable[str]) -> Checker:
    """The default validator of the Kattis problem format, from its flags.

    Case and whitespace are ignored unless ``case_sensitive`` and
    ``space_change_sensitive`` are given; decimals are compared by value only
    under ``float_tolerance``, ``float_absolute_tolerance`` or
    ``float_relative_tolerance``.
    """
    words, given = iter(args), dict[str, Any](case=False)
    for word in words:
        if word == "case_sensitive":
            given["case"] = True
        elif word == "space_change_sensitive":
            given["space"] = "exact"
        elif word in ("float_tolerance", "float_absolute_tolerance", "float_relative_tolerance"):
            value = next(words, "")
            given |= {k: value for k in ("abs", "rel") if word in ("float_tolerance", _KATTIS[k])} | {"kind": "numbers"}
        else:
            raise InputError(f"unknown flag {word!r} of the Kattis validator", field="checker")
    return Checker(**given)


_KATTIS = {"abs": "float_absolute_tolerance", "rel": "float_relative_tolerance"}


def _with(base: Checker, given: dict[str, Any]) -> Checker:
    kind = "numbers" if {"abs", "rel"} & set(given) and base.kind == "tokens" else base.kind
    for key in given:
        if key in _ONLY_FOR and kind not in _ONLY_FOR[key]:
            raise InputError(f"kind {kind!r} has no such option", field=f"checker.{key}")
    if {"abs", "rel"} & set(given):
        given = {"abs": None, "rel": None} | given
    return replace(base, kind=kind, **given)


_ONLY_FOR = {
    "abs": ("numbers",),
    "rel": ("numbers",),
    "only_if_expected_is_float": ("numbers",),
    "blanks": ("lines", "unordered_lines"),
    "space": ("tokens", "numbers", "unordered_tokens"),
    "strict": ("tokens", "numbers"),
}
