"""What a grade depends on, by content: for the cache's keys, and for whoever wants to run it again.

The reward policy is not part of it: rewards are computed from grades, anew
each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from proctor.grading.checkers import Checker
from proctor.grading.plan import Plan
from proctor.grading.special import Special
from proctor.guest import protocol


@dataclass(frozen=True, slots=True)
class Content:
    """A problem's part of a provenance; see there."""

    cases: str | None
    checker: str | None


def content_of(plan: Plan) -> Content:
    """Digest of a problem's cases or tests, and its checker's name; takes as long as hashing them does."""
    problem = plan.problem
    words = [
        problem.mode, problem.entry_point, problem.solution_class, problem.test_code, problem.module,
        problem.test_module, problem.appended, problem.preamble, plan.row.name, plan.row.run, plan.row.compile, plan.held_out,
    ]  # fmt: skip
    digest = _Digest()
    digest.add(json.dumps(words).encode())
    sealing = asdict(plan.sealing) if plan.sealing is not None else None
    named = plan.tests
    tests = [named.wanted, sorted(named.skipped), sorted(named.leaves), named.every, named.fault, named.idle]
    digest.add(json.dumps([sealing, plan.unsealed, tests]).encode())
    digest.files(problem.extra_files)
    for case in plan.cases:
        digest.add(case.stdin)
        if problem.mode in ("stdio", "interactive"):
            digest.add(case.expected)
            digest.add(json.dumps([case.abs, case.rel]).encode())
            continue
        digest.add(json.dumps([case.entry_point, case.abs, case.rel, case.exact_types, case.compare]).encode())
        for value in (case.args, dict(case.kwargs), case.expected):
            try:
                digest.add(_encoded(value))
            except ValueError:  # told when it is to be sent
                return Content(None, _checker(plan))
    return Content(digest.hex(), _checker(plan))


def _encoded(value: Any) -> bytes:
    """A value as it is sent, but for the order of its sets, which is another in every process."""
    data = protocol.encode_value(value)
    if b"S" in data or b"Z" in data:
        return b"o" + protocol.encode_value(_ordered(value))
    return b"v" + data


def _ordered(value: Any) -> Any:
    """Nested tuples that tell the value, the members of sets in the order of their encodings."""
    kind = type(value).__name__
    if isinstance(value, set | frozenset):
        return kind, sorted(protocol.encode_value(_ordered(item)) for item in value)
    if isinstance(value, list | tuple):
        return kind, *map(_ordered, value)
    if isinstance(value, dict):
        return kind, *((_ordered(name), _ordered(item)) for name, item in value.items())
    return kind, value


def program_digest(source: bytes, files: Mapping[str, str | bytes]) -> str:
    """SHA-256 of a program's text and of the files that it brings along, in hex."""
    digest = _Digest()
    digest.add(source)
    digest.files(files)
    return digest.hex()


def _checker(plan: Plan) -> str | None:
    """Its kind and every setting that is not the default one; None for a function."""
    if plan.problem.mode == "unit_tests":
        return "tests"
    if plan.problem.mode == "function":
        told = asdict(plan.tolerance)
        return _named("value", {name: value for name, value in told.items() if value})
    if isinstance(plan.checker, Special):
        return f"{plan.checker.what}:{plan.checker.digest}"
    if not isinstance(plan.checker, Checker) or type(plan.checker) is not Checker:
        return None
    changed = {f.name: getattr(plan.checker, f.name) for f in fields(Checker) if f.name != "kind"}
    usual = {f.name: f.default for f in fields(Checker)}
    return _named(plan.checker.kind, {name: value for name, value in changed.items() if value != usual[name]})


def _named(kind: str, settings: Mapping[str, Any]) -> str:
    told = ",".join(f"{name}={value!r}" for name, value in settings.items())
    return f"{kind}:{told}" if told else kind


class _Digest:
    """SHA-256 of parts that cannot run into each other."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self._hash.update(len(data).to_bytes(8, "big"))
        self._hash.update(data)

    def files(self, files: Mapping[str, str | bytes]) -> None:
        rows: Iterable[tuple[bytes, bytes]] = sorted((_bytes(name), _bytes(data)) for name, data in files.items())
        self.add(str(len(files)).encode())
        for name, data in rows:
            self.add(name)
            self.add(data)

    def hex(self) -> str:
        return self._hash.hexdigest()


def _bytes(data: str | bytes) -> bytes:
    return data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
