"""What the lists of programs for the differential test are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """One small program whose outcome must not depend on how it is started.

    Attributes:
        native: compared with the interpreter outside the jail too; off where the jail itself must show.
        fresh: compared with the interpreter inside the jail; off where that one is random.
    """

    source: bytes
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    native: bool = True
    fresh: bool = True


def sample(
    source: str,
    stdin: str | bytes = b"",
    files: Mapping[str, str] | None = None,
    *,
    native: bool = True,
    fresh: bool = True,
) -> Sample:
    """A sample from text; ``files`` lie beside it."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    beside = {name: text.encode() for name, text in (files or {}).items()}
    return Sample(source.encode(), data, beside, native, fresh)
