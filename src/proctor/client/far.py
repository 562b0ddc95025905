"""Small pieces of work that run on the backend's side of the door, the same for both twins."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from proctor.client.backend import Backend
from proctor.core.sandbox import SandboxInfo, SandboxSpec

Made = tuple[SandboxInfo, bool]  # and whether it is new


def killing(backend: Backend, sandbox_id: str) -> Callable[[str], Coroutine[Any, Any, None]]:
    """What undoes the start of a command."""

    async def undo(process_id: str) -> None:
        await backend.kill(sandbox_id, process_id, 9)

    return undo


def closing(backend: Backend, sandbox_id: str, *, write: bool) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """What undoes ``begin_write``, or ``begin_read``."""

    async def undo(answer: Any) -> None:
        if write:
            await backend.end_write(sandbox_id, answer, keep=False)
        else:
            await backend.end_read(sandbox_id, answer[0])

    return undo


def deleting(backend: Backend) -> Callable[[Made], Coroutine[Any, Any, None]]:
    """What undoes a create."""

    async def undo(made: Made) -> None:
        if made[1]:
            await backend.delete(made[0].id)

    return undo


def making(
    backend: Backend, spec: SandboxSpec, *, wait_s: float, key: str | None, find: bool
) -> Callable[[Callable[[int], None]], Coroutine[Any, Any, Made]]:
    """A create, or with ``find`` a get_or_create, that tells its place in the queue."""

    async def make(note: Callable[[int], None]) -> Made:
        if find:
            return await backend.get_or_create(spec, wait_s=wait_s, on_wait=note)
        return await backend.create(spec, wait_s=wait_s, on_wait=note, key=key), True

    return make
