"""Carries a call to the backend's loop and its answer back: from any event loop, or from a thread that waits.

Whoever is cancelled or interrupted waits until the call has ended over there,
so that nothing of it goes on; where it had succeeded meanwhile, it is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from proctor.client.backend import Backend
from proctor.client.errors import ConnectionError, translated

T = TypeVar("T")
Note = Callable[[int], None]
Undo = Callable[[Any], Coroutine[Any, Any, object]]

_END = object()


async def within(work: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """The same over there, with TimeoutError after so long."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError as exc:
        if limit.expired():
            raise TimeoutError(f"the command has not ended within {seconds:g} s; it goes on") from exc
        raise


class _Call(Generic[T]):
    """One coroutine on the backend's loop. ``ended`` is called there, once."""

    def __init__(self, backend: Backend, work: Coroutine[Any, Any, T], ended: Callable[[], None]) -> None:
        self._backend, self._loop, self._work, self._ended = backend, backend.loop, work, ended
        self._task: asyncio.Task[T] | None = None
        self._given_up = False

    def begin(self) -> None:
        """Hand it over; not in the constructor, so that whoever is interrupted meanwhile has it in hand."""
        try:
            if self._backend.closed:
                raise RuntimeError
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            self._given_up = True
            self._work.close()
            raise ConnectionError(
                "the sandboxes of this handle were closed, or belong to the process that was forked",
                code="closed", hint="create others",
            ) from None  # fmt: skip

    def _begin(self) -> None:
        if self._given_up:
            return
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(lambda _: self._ended())

    def cancel(self) -> None:
        """From any thread; ``ended`` is called all the same."""
        if self._given_up:  # in a forked child nobody runs the loop
            self._ended()
            return
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed, and all in it has ended
            self._ended()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self._given_up:  # whoever was to hand it over was interrupted first
            self._given_up = True
            self._work.close()
            self._ended()
        else:
            self._ended()

    def abandon(self, undo: Undo | None) -> None:
        """Nobody takes the answer: undo it, now or when it comes."""

        def dispose(task: asyncio.Task[T]) -> None:
            if not task.cancelled() and task.exception() is None and undo is not None:
                undoing = self._loop.create_task(undo(task.result()))
                _kept.add(undoing)
                undoing.add_done_callback(_let_go)

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._task.add_done_callback(dispose) if self._task else None)

    def answer(self) -> T:
        """Its result, after ``ended``."""
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise ConnectionError("the call was given up: the backend was closed", code="closed") from None
        except Exception as exc:
            other = translated(exc)
            if other is exc:
                raise
            raise other from exc


_kept: set[asyncio.Task[object]] = set()


def _let_go(task: asyncio.Task[object]) -> None:
    _kept.discard(task)
    if not task.cancelled():
        task.exception()


class AsyncDoor:
    """For callers with an event loop."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def call(self, work: Coroutine[Any, Any, T], undo: Undo | None = None) -> T:
        """Run it over there. Raises the SDK's errors."""
        return await self.noting(lambda _: work, lambda _: None, undo)

    async def noting(
        self, make: Callable[[Note], Coroutine[Any, Any, T]], on_note: Note, undo: Undo | None = None
    ) -> T:
        """The same for a call that tells numbers meanwhile: ``on_note`` gets them here."""
        here = asyncio.get_running_loop()
        ended: asyncio.Future[None] = here.create_future()
        failure: list[BaseException] = []

        def back(function: Callable[..., None], *args: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed
                here.call_soon_threadsafe(function, *args)

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        def note(number: int) -> None:
            try:
                on_note(number)
            except Exception as exc:
                failure.append(exc)
                call.cancel()

        call = _Call(self.backend, make(lambda number: back(note, number)), lambda: back(end))
        call.begin()
        try:
            await asyncio.shield(ended)
        except BaseException:
            call.cancel()
            try:
                await asyncio.shield(ended)
            finally:
                call.abandon(undo)
            raise
        if failure:
            call.abandon(undo)
            raise failure[0]
        return call.answer()

    async def thread(self, function: Callable[..., T], *args: Any) -> T:
        """Something that waits for this host's disk. It has ended when this ends, and nothing of it stays open."""
        work = asyncio.ensure_future(asyncio.to_thread(function, *args))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            if not work.cancelled() and work.exception() is None:
                opened = work.result()
                for each in opened if isinstance(opened, tuple) else (opened,):
                    if hasattr(each, "close"):
                        each.close()
            raise

    async def settle(self, value: Awaitable[object] | object) -> None:
        """Wait for what a callback gave, if it is something to wait for."""
        if isinstance(value, Awaitable):
            await value

    async def pause(self, seconds: float) -> None:
        """Let others go on."""
        await asyncio.sleep(seconds)


def on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """This thread runs the loop now. Where it collects garbage, it closes generators that nobody holds any more."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class SyncDoor:
    """For callers that wait, in any thread, a running event loop's included."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def call(self, work: Coroutine[Any, Any, T], undo: Undo | None = None) -> T:
        """Run it over there and wait. Raises the SDK's errors."""
        return self.noting(lambda _: work, lambda _: None, undo)

    def noting(self, make: Callable[[Note], Coroutine[Any, Any, T]], on_note: Note, undo: Undo | None = None) -> T:
        """The same for a call that tells numbers meanwhile: ``on_note`` gets them in this thread."""
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        over: list[bool] = []  # set before _END is put: an interrupt may take that from the queue and lose it

        def end() -> None:
            over.append(True)
            events.put(_END)

        call = _Call(self.backend, make(events.put), end)
        if on_loop(self.backend.loop):
            call.begin()
            raise ConnectionError("there nobody may wait for an answer; it is done all the same", code="own_loop")
        try:
            call.begin()
            while (event := events.get()) is not _END:
                on_note(event)
        except BaseException:
            call.cancel()
            try:
                while not over:
                    events.get()
            finally:
                call.abandon(undo)
            raise
        return call.answer()

    def thread(self, function: Callable[..., T], *args: Any) -> T:
        """As in the asynchronous twin; this thread may wait."""
        return function(*args)

    def settle(self, value: object) -> None:
        """A callback's result: nothing to wait for here."""
        if isinstance(value, Coroutine):
            value.close()
            raise TypeError("a callback of a synchronous call cannot be async; use AsyncRuntime, or a plain function")

    def pause(self, seconds: float) -> None:
        """Wait."""
        import time

        time.sleep(seconds)


class Pending(Coroutine[Any, Any, T]):
    """A call under way that is also its result's ``async with``: ``await create()`` and ``async with create()``."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._made: Any = None

    def __await__(self) -> Any:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        return self._work.send(value)

    def throw(self, *args: Any) -> Any:
        return self._work.throw(*args)

    def close(self) -> None:
        self._work.close()

    async def __aenter__(self) -> T:
        self._made = await self._work
        made: T = await self._made.__aenter__()
        return made

    async def __aexit__(self, *error: Any) -> None:
        await self._made.__aexit__(*error)
