"""Requests that are met once, however often they are made: by a key, for 24 hours."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from proctor.core.sandbox import SandboxError

KEPT_S = 24 * 3600.0
MOST = 10_000


@dataclass(slots=True)
class _Kept:
    body: object
    until: float
    answer: asyncio.Future[Any]


class Once:
    """Answers by key; on one event loop. One that fails is forgotten, so that it may be tried again."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def run(self, key: str | None, body: object, work: Callable[[], Awaitable[Any]]) -> tuple[Any, bool]:
        """The answer to a request, and whether it had been given before.

        Args:
            body: all that the request says, compared with ``==``.

        Raises:
            SandboxError: ``idempotency_key_reused`` (422), for another body.
        """
        if key is None:
            return await work(), False
        self._expire()
        while (kept := self._kept.get(key)) is not None:
            if kept.body != body:
                raise SandboxError(
                    f"idempotency_key {key!a} was used for another request", code="idempotency_key_reused",
                    status=422, hint="take a new key for each request",
                )  # fmt: skip
            await asyncio.wait([kept.answer])
            if not kept.answer.cancelled():
                return kept.answer.result(), True
        mine = self._kept[key] = _Kept(body, time.monotonic() + KEPT_S, asyncio.get_running_loop().create_future())
        try:
            answer = await work()
        except BaseException:
            del self._kept[key]
            mine.answer.cancel()
            raise
        mine.answer.set_result(answer)
        return answer, False

    def _expire(self) -> None:
        now = time.monotonic()
        for key, kept in list(self._kept.items()):
            if not kept.answer.done() or (kept.until > now and len(self._kept) < MOST):
                break
            del self._kept[key]
