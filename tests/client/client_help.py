"""What the SDK's tests share."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds that a busy host may take for what takes milliseconds


class Driven:
    """An asynchronous object driven like its synchronous twin, so that one test tries both."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        return drive(getattr(self._inner, name), self._loop)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_inner", "_loop"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)

    def __getitem__(self, name: Any) -> Any:
        return drive(self._inner[name], self._loop)

    def __len__(self) -> int:
        return len(self._inner)

    def __enter__(self) -> Any:
        return drive(self._loop.run_until_complete(self._inner.__aenter__()), self._loop)

    def __exit__(self, *error: Any) -> None:
        self._loop.run_until_complete(self._inner.__aexit__(*error))


def drive(value: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """Awaitables run, asynchronous iterators become lists, objects of the SDK are driven too."""
    if inspect.isawaitable(value):
        return drive(loop.run_until_complete(value), loop)
    if inspect.isasyncgen(value):

        def each() -> Any:
            try:
                while True:
                    yield drive(loop.run_until_complete(anext(value)), loop)
            except StopAsyncIteration:
                return
            finally:
                loop.run_until_complete(value.aclose())

        return each()
    if callable(value) and not inspect.isclass(value):
        return lambda *args, **kwargs: drive(value(*args, **kwargs), loop)
    if type(value).__module__.startswith("proctor.client.async_") and type(value).__name__ != "AsyncPage":
        return Driven(value, loop)
    if type(value).__name__ == "AsyncPage":
        return [drive(item, loop) for item in value]
    return value


def until(happened: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait for something true; what it was last when the time is over."""
    end, pause = time.monotonic() + patience, 0.005
    while not (found := happened()) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(1.5 * pause, 0.2)
    return found


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def leavings(owner: int) -> list[str]:
    """Processes, control groups and mounts of the engines of a process."""
    name = f"proctor-{owner}-"
    found = []
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        status = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if pid == os.getpid() or not status or status[0] in (b"Z", b"X"):
            continue
        if any(name.encode() in _read(f"/proc/{pid}/{file}") for file in ("cmdline", "cgroup", "environ")):
            found.append(f"process {pid}")
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{folder}/{entry}" for entry in names if entry.startswith(name)]
    found += [str(path) for path in Path("/tmp").glob(f"{name}*")]
    return found


def gone(left: Callable[[], Iterable[Any]], patience: float = PATIENCE) -> list[Any]:
    """Wait until a list of things is empty; what is still in it when the time is over."""
    until(lambda: not list(left()), patience)
    return list(left())


_PRELUDE = """
import asyncio, os, signal, sys, threading, time
from proctor import AsyncRuntime, Runtime
"""


def client(script: str) -> subprocess.Popen[str]:
    """A Python process of its own that runs ``script``."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _PRELUDE + textwrap.dedent(script)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(script: str) -> str:
    """What a script printed; it must end well, say nothing else and leave nothing."""
    with client(script) as process:
        out, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, err[-3000:]
    assert not err, err[-3000:]
    assert not gone(lambda: leavings(process.pid))
    return out
