"""Where the console script begins: imports take a moment, and Ctrl-C may come in it."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Console script ``proctor``."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        # An exception in the midst of an import can be lost or half told, and nothing is there yet that must be tidied.
        signal.signal(signal.SIGINT, _leave)
    from proctor.cli import main as command_line

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    command_line.main()


def _leave(number: int, frame: object) -> None:
    os.write(2, b"proctor: error: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
