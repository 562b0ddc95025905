"""All that a grade depends on, as data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from proctor.core.limits import Limits
from proctor.core.runner import RUNNER
from proctor.grading.printing import printable

SHOWN = 32  # digits of each digest in a result line
_LIMITS = asdict(Limits())


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """All that a grade depends on.

    Attributes:
        program: SHA-256 of the program's text and files, in hex; None: no code.
        cases: SHA-256 of the problem's cases or tests, and of how they are run;
            None: they hold a value that cannot be sent.
        checker: what compares, in words with all its settings; None: a
            caller's own function, whose content is unknown.
        language: what the program is in.
        limits: of each case.
        warm: Python in forks of a warm interpreter.
        image: digest of what programs see, None where the engine does not say.
        isolation: the level in force, None where the engine does not say.
        runner: version of what runs and judges.
    """

    program: str | None
    cases: str | None
    checker: str | None
    language: str
    limits: Limits = field(default_factory=Limits)
    warm: bool = True
    image: str | None = None
    isolation: str | None = None
    runner: str = RUNNER

    def key(self) -> bytes | None:
        """One digest of it all; None where a part is unknown, so that nothing could be told from it."""
        values = [getattr(self, f.name) for f in fields(self)]
        if None in values:
            return None
        told = [[getattr(value, name) for name in _LIMITS] if isinstance(value, Limits) else value for value in values]
        return hashlib.sha256(json.dumps(told).encode()).digest()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data: digests by their first 32 digits, limits where they are not the default ones."""
        told = {name: getattr(self.limits, name) for name in _LIMITS}
        limits = {name: value for name, value in told.items() if value != _LIMITS[name]}
        return {
            "program": self.program and self.program[:SHOWN],
            "cases": self.cases and self.cases[:SHOWN],
            "checker": self.checker,
            "language": self.language,
            "limits": {"cpu_s": self.limits.cpu_s, "memory_mib": self.limits.memory_mib, **limits},
            "warm": self.warm,
            "image": self.image,
            "isolation": self.isolation and printable(self.isolation),
            "runner": self.runner,
        }
