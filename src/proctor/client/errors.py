"""What a call of the SDK raises. Every error carries a word for machines, a status as in HTTP and, where there is one, a fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.core.errors import InfrastructureError, InputError, IsolationUnavailable, ProctorError
from proctor.core.sandbox import SandboxError


class RuntimeError(ProctorError):  # the interface's name; RuntimeAPIError is the same class
    """Base of the SDK's errors.

    Attributes:
        message: what is wrong.
        code: a word for machines, such as ``no_capacity``.
        status: as in HTTP; None where no answer came.
        request_id: of the request, where a server gave one.
        hint: how to put it right.
        details: more, as data.
        retry_after_ms: milliseconds after which another try makes sense.
        retryable: whether another try may succeed.
    """

    def __init__(
        self, message: str, *, code: str = "error", status: int | None = None, request_id: str | None = None,
        hint: str | None = None, details: Mapping[str, Any] | None = None, retry_after_ms: int | None = None,
        retryable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.code, self.status, self.hint = message, code, status, hint
        self.request_id, self.details = request_id, dict(details or {})
        self.retry_after_ms, self.retryable = retry_after_ms, retryable


RuntimeAPIError = RuntimeError


class AuthenticationError(RuntimeError):
    """401: no key, or one that is not valid."""


class PermissionDeniedError(RuntimeError):
    """403: not allowed."""


class NotFoundError(RuntimeError):
    """404: no such sandbox, file or snapshot."""


class ConflictError(RuntimeError):
    """409: what is there does not allow it: no room, a name that is taken, a sandbox that has stopped."""


class InvalidRequestError(RuntimeError, InputError):
    """400, 413, 422: a value that cannot be; names the field, the value and the fix."""


class RateLimitError(RuntimeError):
    """429: too many requests."""


class ServiceUnavailableError(RuntimeError, InfrastructureError):
    """500 and above: the host failed, or cannot do it."""


class IsolationUnavailableError(ServiceUnavailableError, IsolationUnavailable):
    """503 ``isolation_unavailable``: this host does not have the isolation that was asked for."""


class ConnectionError(RuntimeError, InfrastructureError):
    """No answer came: the backend is closed or out of reach."""


class CommandError(RuntimeError):
    """A command failed that was run with ``check=True``.

    Attributes:
        code: ``command_failed``, ``command_timeout`` or ``out_of_memory``.
        exit_code: None where a limit ended it.
        stdout, stderr: what it had written.
    """

    def __init__(self, message: str, *, code: str, exit_code: int | None, stdout: str, stderr: str) -> None:
        super().__init__(message, code=code)
        self.exit_code, self.stdout, self.stderr = exit_code, stdout, stderr


_BY_STATUS: dict[int, type[RuntimeError]] = {
    400: InvalidRequestError, 401: AuthenticationError, 403: PermissionDeniedError, 404: NotFoundError,
    409: ConflictError, 413: InvalidRequestError, 422: InvalidRequestError, 429: RateLimitError,
}  # fmt: skip


def invalid(field: str, value: object, fix: str) -> InvalidRequestError:
    """A value that cannot be."""
    shown = ascii(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    error = InvalidRequestError(f"{field}: {shown} cannot be; {fix}", code="invalid_request", status=400)
    error.field = field
    return error


def unsupported(field: str, fix: str) -> InvalidRequestError:
    """Something of the interface that no backend here can do."""
    error = InvalidRequestError(f"{field} is not supported; {fix}", code="not_supported", status=400)
    error.field = field
    return error


def translated(exc: BaseException) -> BaseException:
    """What the caller gets for an error of a backend."""
    if isinstance(exc, SandboxError):
        failed = (
            exc.status >= 500 and exc.status != 507
        )  # a disk or memory that a program has filled is no failure of the host
        kind = ServiceUnavailableError if failed else _BY_STATUS.get(exc.status, RuntimeError)
        retryable = exc.code in ("no_capacity", "quota_exceeded")
        return kind(str(exc), code=exc.code, status=exc.status, hint=exc.hint, retryable=retryable)
    if isinstance(exc, IsolationUnavailable) and not isinstance(exc, RuntimeError):
        return IsolationUnavailableError(str(exc), code="isolation_unavailable", status=503)
    if isinstance(exc, InfrastructureError) and not isinstance(exc, RuntimeError):
        return ServiceUnavailableError(str(exc), code="infrastructure_error", status=503, retryable=True)
    return exc
