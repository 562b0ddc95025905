"""What is kept of each attempt to reach something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proctor.network.names import Address, Host, shown

Kind = Literal["http", "connect", "tls", "dns"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt and what was decided.

    Attributes:
        time: seconds since the epoch.
        kind: ``http`` a plain request, ``connect`` a tunnel through the proxy, ``tls`` a TLS connection (in a tunnel
            or straight to port 443), ``dns`` a question for a name.
        host: name or address that was asked for, short printable ASCII; None where it could not be read.
        address: what was connected to, or what was refused; None where no address was looked up.
        decision: ``allow`` or ``deny``.
        reason: for people; of an allowed attempt also why no connection came about.
    """

    time: float
    kind: Kind
    host: str | None
    port: int | None
    address: str | None
    decision: Literal["allow", "deny"]
    reason: str

    @property
    def allowed(self) -> bool:
        return self.decision == "allow"


class Refused(Exception):
    """The rules, or the way it was asked, forbid it. The text is for the program, and for the log."""

    def __init__(self, reason: str, *, address: Address | None = None) -> None:
        super().__init__(reason)
        self.reason, self.address = reason, address


class Unreachable(Exception):
    """The rules allow it, and it cannot be reached or does not answer as it should."""

    def __init__(self, reason: str, *, address: Address | None = None) -> None:
        super().__init__(reason)
        self.reason, self.address = reason, address


def text_of(host: Host | str | None) -> str | None:
    return None if host is None else shown(str(host), 253)
