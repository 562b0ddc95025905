"""What can go wrong, by whose fault.

A program's faults are verdicts, never exceptions. Exceptions are for the
caller's own input (``InputError`` and its kin) and for this host
(``InfrastructureError``); the two are never mixed.
"""

from __future__ import annotations


class ProctorError(Exception):
    """Base of every error that Proctor raises on purpose."""


class InputError(ProctorError, ValueError):
    """The caller gave something unusable: names the field, the value and the fix.

    Args:
        message: what is wrong and how to put it right.
        where: place in a file, such as ``problems.jsonl:7``.
        field: name of the offending field.
    """

    def __init__(self, message: str, *, where: str | None = None, field: str | None = None) -> None:
        self.message, self.where, self.field = message, where, field
        place = f"{where}: " if where else ""
        named = f"field {field!r}: " if field else ""
        super().__init__(f"{place}{named}{message}")


class InfrastructureError(ProctorError):
    """This host failed, not the program: retried, then no score."""


class IsolationUnavailable(InfrastructureError):
    """The isolation that was asked for cannot be had on this host; never a silent step down."""


class FrameError(InfrastructureError):
    """Bytes on a guest's stream are not a valid frame: the guest is not to be trusted any more."""
