"""Our own words on standard error, and errors put into them."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import NoReturn, TextIO

from proctor.cli.render import escape_line


def explain_os(error: OSError) -> str:
    """An operating system's error in words, with the file and, where known, the fix."""
    where = f"{error.filename}: " if error.filename is not None else ""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = "no space left on the device; free some and run the same command again"
    return f"{where}{reason}"


def fail(message: str, code: int) -> NoReturn:
    """Print the one line of an error and exit; never raises anything else."""
    say(f"error: {message}")
    try:
        flush_stdout()
    except (OSError, ValueError):
        quiet_stdout()
    sys.exit(code)


def say(message: str) -> None:
    """One line of our own on standard error; a closed or full one is not an error."""
    with contextlib.suppress(OSError, ValueError):
        print(f"proctor: {escape_line(message)}", file=sys.stderr, flush=True)


def say_isolation(engine: object) -> None:
    """Say aloud when this host allows fewer walls than usual; a step down is never silent."""
    reasons = getattr(engine, "features", {}).get("stepped_down")
    if reasons:
        say(
            f"warning: this host does not allow namespaces, so programs run behind fewer walls ({'; '.join(map(str, reasons))}); "
            "`proctor doctor` says what that means here, --isolation jail refuses it"
        )


def is_terminal(stream: TextIO | None) -> bool:
    """Somebody may be looking; None, a stream that was closed from the start, is nobody."""
    return stream is not None and stream.isatty()


def flush_stdout() -> None:
    """Write out what is buffered, so that a failure to do so is seen and told.

    Raises:
        OSError: standard output is full, or its reader has gone.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        quiet_stdout()
        error.filename = "standard output"
        raise


def quiet_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's own last flush cannot fail."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, target)
    os.close(null)
