"""What programs see: a read-only root, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Image:
    """A root and how to use it.

    Attributes:
        plan: what ``guest/root.py`` builds, as JSON.
        python: the interpreter, the same path inside.
        env: all of a program's environment.
        readable: paths to allow where no mount namespace can hide the rest.
        public_python: an interpreter that every user may run, for hosts where
            no mount can show a private one; None where there is none.
        preload: modules to import into the warm interpreter beyond the usual.
        digest: changes when anything that programs can see does.
    """

    plan: dict[str, Any]
    python: str
    env: dict[str, str]
    readable: list[str]
    public_python: str | None
    preload: list[str]
    digest: str
