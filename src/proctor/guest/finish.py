"""The end of a script, as the interpreter does it, up to the point of tearing itself down."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import Any


def finish(failure: BaseException | None) -> None:
    """Report an uncaught exception, wait for threads, run atexit, flush, and leave with the right status."""
    status, interrupted = 0, False
    if isinstance(failure, SystemExit):
        status = exit_status(failure.code)
    elif failure is not None:
        status = 1
        interrupted = isinstance(failure, KeyboardInterrupt)
        show(failure)
    failure = None
    threading = sys.modules.get("threading")
    if threading is not None:
        try:
            threading._shutdown()  # type: ignore[attr-defined]
        except BaseException as exc:
            show(exc)
    atexit._run_exitfuncs()
    if not flush():
        status = 120
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


def exit_status(code: Any) -> int:
    """Status for ``SystemExit.code``: None 0, a number itself, anything else is printed and 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code if -(1 << 63) <= code < 1 << 63 else -1
    try:
        sys.stdout.flush()
        print(code, file=sys.stderr)
    except BaseException:
        pass  # the interpreter, too, leaves with 1 when the message cannot be written
    return 1


def show(failure: BaseException) -> None:
    """The traceback on stderr, through the program's own hook, without our frame."""
    trace = failure.__traceback__.tb_next if failure.__traceback__ else None
    failure.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(failure), failure, trace
    try:
        try:
            sys.stdout.flush()
        except Exception:
            pass  # a closed or full stdout is reported by the last flush
        sys.excepthook(type(failure), failure, trace)
    except SystemExit:
        pass
    except BaseException as exc:
        try:
            sys.__excepthook__(type(exc), exc, exc.__traceback__)
        except BaseException:
            pass  # nothing left to write to


def flush() -> bool:
    """Flush the standard streams; False when stdout could not be."""
    good = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException as exc:
            if name == "stdout":
                good = False
                try:
                    sys.unraisablehook(_Unraisable(exc, stream))  # type: ignore[arg-type]
                except BaseException:
                    pass
    return good


class _Unraisable:
    def __init__(self, exc: BaseException, source: object) -> None:
        self.exc_type, self.exc_value, self.exc_traceback = type(exc), exc, exc.__traceback__
        self.err_msg, self.object = None, source
