"""The engine's process, as a supervisor watches it."""

from __future__ import annotations

import os
import select
from typing import Any


class Host:
    """The engine's process, seen from the supervisor: never wait for anything without watching it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.parent = config["parent"]
        self.poller = select.poll()
        self.poller.register(config["lifeline"], select.POLLIN)  # a byte, or its end
        self.ends = {config["lifeline"]}
        self.timeout = None
        try:
            parent = os.pidfd_open(self.parent)
            self.poller.register(parent, select.POLLIN)
            self.ends.add(parent)
        except OSError:
            self.timeout = 200  # no process descriptors here: look at the parent's number now and then

    def wait(self, fd: int | None, timeout: int | None = None) -> None:
        """Until something comes on ``fd``, or for ``timeout`` ms; BrokenPipeError when the engine has gone."""
        if fd is not None:
            self.poller.register(fd, select.POLLIN)
        try:
            while True:
                ready = {which for which, _ in self.poller.poll(self.timeout if timeout is None else timeout)}
                if ready & self.ends or os.getppid() != self.parent:
                    raise BrokenPipeError
                if ready or timeout is not None:
                    return
        finally:
            if fd is not None:
                self.poller.unregister(fd)

    def hear(self, fd: int) -> bytes:
        """The next word on a pipe, b"" at its end."""
        self.wait(fd)
        return os.read(fd, 500)

    def join(self, pid: int) -> None:
        """Wait for a child that is about to end."""
        while not os.waitpid(pid, os.WNOHANG)[0]:
            self.wait(None, 1)
