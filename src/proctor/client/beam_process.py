"""Commands of a sandbox in Beam's shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proctor.client.errors import invalid
from proctor.client.sync_process import Process
from proctor.client.sync_sandbox import Sandbox


class SandboxProcessTimeout(TimeoutError):
    """``wait`` was over its time; the process goes on."""


class SandboxProcessStream:
    """Output of a process. Iterating waits for more, line by line; ``read`` gives what is there and was not read."""

    def __init__(self, process: SandboxProcess, names: tuple[str, ...]) -> None:
        self._process, self._names = process, names
        self._at = 0

    def read(self) -> str:
        """What has come since the last ``read``; all of it when the process has ended."""
        self._process._pull(wait=False)
        return self._take()

    def _take(self) -> str:
        pieces = self._process._pieces
        text = "".join(data for name, data in pieces[self._at :] if name in self._names)
        self._at = len(pieces)
        return text

    def __iter__(self) -> Iterator[str]:
        left = ""
        while True:
            left += self._take()
            *lines, left = left.split("\n")
            for line in lines:
                yield f"{line}\n"
            if not self._process._pull(wait=True) and self._at == len(self._process._pieces):
                break
        if left:
            yield left


class SandboxProcess:
    """A command under way."""

    def __init__(self, sandbox: Sandbox, process: Process, *, cwd: str, env: Mapping[str, str]) -> None:
        self._sandbox, self._process = sandbox, process
        self.pid, self.args, self.cwd, self.env = int(process.id), list(process.command), cwd, dict(env)
        self._pieces: list[tuple[str, str]] = []
        self._over = False
        self._decoders = process._gathered
        self._code: int | None = None
        self.stdout = SandboxProcessStream(self, ("stdout",))
        self.stderr = SandboxProcessStream(self, ("stderr",))
        self.logs = SandboxProcessStream(self, ("stdout", "stderr"))

    @property
    def exit_code(self) -> int:
        """-1 while it runs."""
        return self._look()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and give its exit code: 137 where it was killed.

        Raises:
            SandboxProcessTimeout: after ``timeout`` seconds; it is not killed.
        """
        if self._code is None:
            try:
                ended = self._process.wait(timeout_ms=None if timeout is None else timeout * 1000)
            except TimeoutError:
                raise SandboxProcessTimeout(f"process {self.pid} has not ended in {timeout:g} s") from None
            code = ended.exit_code
            self._code = 137 if code is None else 128 - code if code < 0 else code
        return self._code

    def kill(self) -> None:
        """End it and all that came from it."""
        self._process.kill("SIGKILL")

    def status(self) -> tuple[int, str]:
        """(-1, "running"), or its exit code and "exited"."""
        code = self._look()
        return (code, "exited") if self._code is not None else (-1, "running")

    def _look(self) -> int:
        if self._code is None and self._process.refresh().state == "exited":
            self.wait()
        return -1 if self._code is None else self._code

    def _pull(self, *, wait: bool) -> bool:
        """Take what has come; False when there will be no more."""
        if self._over:
            return False
        door = self._sandbox._door
        pieces, self._over = door.call(door.backend.output(self._sandbox.id, self._process.id, wait=wait))
        for stream, data in pieces:
            self._pieces.append((("stdout", "stderr")[stream - 1], self._decoders.take(stream, data)))
        if self._over:
            self._pieces += [("stdout", self._decoders.rest(1)), ("stderr", self._decoders.rest(2))]
        return True


class SandboxProcessResponse:
    """How a command ended. ``result`` is its stdout, or its stderr where it failed."""

    def __init__(self, pid: int, exit_code: int, stdout: str, stderr: str) -> None:
        self.pid, self.exit_code, self.stdout, self.stderr = pid, exit_code, stdout, stderr
        self.result = stdout if exit_code == 0 else stderr


class SandboxProcessManager:
    """``instance.process``."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def exec(
        self, *args: str | Sequence[str], cwd: str | None = "/workspace", env: Mapping[str, str] | None = None,
        stdin: Any = None,
    ) -> SandboxProcess:  # fmt: skip
        """Start a program: its arguments one by one, or as a list. No shell.

        Args:
            stdin: all of its standard input: text, bytes, or an open file that is read to its end.
        """
        argv = list(args[0]) if len(args) == 1 and not isinstance(args[0], str) else list(args)
        if hasattr(stdin, "read"):
            stdin = stdin.read()
        if not argv:
            raise invalid("exec", args, "give a program and its arguments")
        process = self._sandbox.spawn([str(item) for item in argv], cwd=cwd, env=env, input=stdin)
        return SandboxProcess(self._sandbox, process, cwd=cwd or "/workspace", env=env or {})

    def run_code(
        self, code: str, blocking: bool = True, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> SandboxProcessResponse | SandboxProcess:
        """Run Python; with ``blocking`` to its end."""
        process = self.exec("python3", "-c", code, cwd=cwd, env=env)
        if not blocking:
            return process
        exit_code = process.wait()
        return SandboxProcessResponse(process.pid, exit_code, process.stdout.read(), process.stderr.read())

    def list_processes(self) -> dict[int, SandboxProcess]:
        """Those of this sandbox, by their pid."""
        return {int(row.id): self.get_process(int(row.id)) for row in self._sandbox.processes()}

    def get_process(self, pid: int) -> SandboxProcess:
        """A handle by pid."""
        return SandboxProcess(self._sandbox, self._sandbox.process(str(pid)), cwd="/workspace", env={})
