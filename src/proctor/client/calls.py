"""The calls of ``Backend`` that cross a socket: by name, with what each takes and gives, and the errors that come back."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from proctor.client.backend import Backend
from proctor.client.wire import Blobs, plain, value_of
from proctor.core.errors import FrameError, InfrastructureError, InputError, IsolationUnavailable
from proctor.core.sandbox import SandboxError

# All that may be asked for. Nothing else of a backend is ever looked up by a name that came from outside.
NAMES = (
    "create", "get_or_create", "get", "find", "stop", "delete", "extend", "update", "limits",
    "run_command", "start_command", "output", "wait_command", "kill", "write_stdin", "processes",
    "write_file", "read_file", "begin_write", "write_piece", "end_write", "begin_read", "read_piece", "end_read",
    "list_files", "stat_file", "make_directory", "remove_file", "rename_file",
    "network_get", "network_set", "network_attempts",
    "snapshot", "snapshots", "get_snapshot", "delete_snapshot",
)  # fmt: skip
NOTED = "on_wait"  # a number that is told while the call goes on


@dataclass(frozen=True, slots=True)
class Call:
    """One call: names and types of its arguments, the type of its answer, and whether it tells numbers meanwhile."""

    name: str
    arguments: Mapping[str, Any]
    positional: tuple[str, ...]
    answer: Any
    notes: bool

    def request(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Header and body of a request."""
        blobs: list[bytes] = []
        header = {"do": self.name, "with": {name: plain(given[name], blobs) for name in self.arguments}}
        return header, b"".join(blobs)

    def given(self, header: Mapping[str, Any], body: bytes) -> dict[str, Any]:
        """The arguments in a request, checked; FrameError where they are not what is due."""
        told, blobs = header.get("with"), Blobs(body)
        try:
            if not isinstance(told, dict) or told.keys() != self.arguments.keys():
                raise ValueError("other arguments are due")
            found = {name: value_of(kind, told[name], blobs) for name, kind in self.arguments.items()}
            blobs.end()
        except (ValueError, TypeError, RecursionError) as exc:
            raise FrameError(f"a request for {self.name!r} is not right: {exc}") from exc
        return found

    def response(self, answer: Any) -> tuple[dict[str, Any], bytes]:
        """Header and body of an answer."""
        blobs: list[bytes] = []
        return {"answer": plain(answer, blobs)}, b"".join(blobs)

    def answered(self, header: Mapping[str, Any], body: bytes) -> Any:
        """What an answer says: its value, or the error that it tells, raised."""
        if "error" in header:
            raise error_of(header["error"])
        try:
            blobs = Blobs(body)
            found = value_of(self.answer, header["answer"], blobs)
            blobs.end()
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            raise FrameError(f"an answer to {self.name!r} is not right: {exc}") from exc
        return found


@cache
def table() -> dict[str, Call]:
    """Calls by name; their types are those of ``Backend``."""
    found = {}
    for name in NAMES:
        method = getattr(Backend, name)
        hints = typing.get_type_hints(method)
        parameters = [p for p in inspect.signature(method).parameters.values() if p.name not in ("self", NOTED)]
        arguments = {p.name: hints[p.name] for p in parameters}
        places = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        found[name] = Call(name, arguments, places, hints["return"], NOTED in hints)
    return found


# ---------------------------------------------------------------- errors


def told(exc: BaseException) -> dict[str, Any]:
    """An error as data."""
    if isinstance(exc, SandboxError):
        return {"kind": "sandbox", "message": str(exc), "code": exc.code, "status": exc.status, "hint": exc.hint}
    if isinstance(exc, InputError):
        return {"kind": "input", "message": exc.message, "where": exc.where, "field": exc.field}
    if isinstance(exc, IsolationUnavailable):
        return {"kind": "isolation", "message": str(exc)}
    if isinstance(exc, FrameError):
        return {"kind": "frame", "message": str(exc)}
    if isinstance(exc, InfrastructureError):
        return {"kind": "infrastructure", "message": str(exc)}
    return {"kind": "infrastructure", "message": f"the keeper failed: {type(exc).__name__}: {exc}"}


def error_of(data: Any) -> Exception:
    """The error that ``told`` described."""
    if not isinstance(data, dict) or not isinstance(data.get("message"), str):
        return FrameError("a keeper told an error that is none")
    kind, message = data.get("kind"), data["message"]
    if kind == "sandbox" and isinstance(data.get("code"), str) and type(data.get("status")) is int:
        hint = data.get("hint")
        return SandboxError(
            message, code=data["code"], status=data["status"], hint=hint if isinstance(hint, str) else None
        )
    if kind == "input":
        where, field = (data[name] if isinstance(data.get(name), str) else None for name in ("where", "field"))
        return InputError(message, where=where, field=field)
    kinds = {"isolation": IsolationUnavailable, "frame": FrameError}
    return kinds.get(str(kind), InfrastructureError)(message)
