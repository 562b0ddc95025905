"""Which Proctor it was that gave a verdict."""

from __future__ import annotations

VERSION = "0.1.0"
"""Of the package; a test holds it against the build file."""

REVISION = 14
"""Goes up with every change after which the same program could get another verdict."""

RUNNER = f"{VERSION}-{REVISION}"
"""Part of every provenance and of every key of the cache."""
