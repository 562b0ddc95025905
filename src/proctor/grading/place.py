"""Where programs run: an engine that is made when the first program needs it, and what is known of it before."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from proctor.core.errors import InputError
from proctor.core.outcome import Outcome
from proctor.engine.job import Job, Pair
from proctor.grading.cache import Cache
from proctor.isolation.base import LEVELS
from proctor.isolation.surroundings import surroundings

AHEAD = 4  # programs in flight for each slot: enough to keep all busy, few enough to bound memory

log = logging.getLogger("proctor")


class AnyEngine(Protocol):
    """What grading needs of an engine; ``proctor.engine.shared.SyncEngine`` has it.

    One that also has ``image_digest`` and ``isolation`` (words that name what
    programs see and the wall around them) can be graded with a cache.
    """

    @property
    def slots(self) -> int:
        """Programs that run at once."""

    def submit(self, job: Job | Pair, *, owner: object = None) -> Future[list[Outcome]]:
        """Queue a job; the future gives an Outcome for each case, in order. Owners take turns."""


class Place:
    """An engine, now or later.

    Args:
        engine: it; None is the one that this process shares, with the settings
            that follow.
        workers, isolation, packages, reuse: as for ``proctor.grade``.
        on_start: called with the shared engine when it is there.

    Raises:
        InputError: a setting that cannot be.
    """

    def __init__(
        self,
        engine: AnyEngine | None = None,
        *,
        workers: int | None = None,
        isolation: str = "auto",
        packages: Sequence[str] = (),
        reuse: int | None = None,
        on_start: Callable[[AnyEngine], object] | None = None,
    ) -> None:
        if workers is not None and (type(workers) is not int or not 1 <= workers <= 1024):
            raise InputError(f"{workers!r} is not a whole number from 1 to 1024", field="workers")
        if isolation not in LEVELS:
            raise InputError(f"{isolation!r} is not one of {', '.join(LEVELS)}", field="isolation")
        if reuse is not None and (type(reuse) is not int or reuse < 1):
            raise InputError(f"{reuse!r} is not a whole number from 1, or None for any number", field="reuse")
        self._reuse = reuse
        self._engine, self._workers, self._asked, self._packages = engine, workers, isolation, tuple(packages)
        self._on_start = on_start
        self._told: str | None = None  # the level that an earlier engine had in the same surroundings
        self._image: str | None = None
        self._guard = threading.Lock()

    @property
    def started(self) -> bool:
        """The engine is there."""
        return self._engine is not None

    @property
    def width(self) -> int:
        """Programs to have in flight; 1 before the engine is there."""
        return max(1, AHEAD * self._engine.slots) if self._engine is not None else 1

    def engine(self) -> AnyEngine:
        """The engine, made now if it is not there.

        Raises:
            InfrastructureError: it does not come up (IsolationUnavailable: not with this isolation).
        """
        with self._guard:
            if self._engine is None:
                from proctor.engine.shared import shared_engine

                made: AnyEngine = shared_engine(
                    slots=self._workers, isolation=self._asked, packages=self._packages, reuse=self._reuse
                )
                self._engine = made
                if self._on_start is not None:
                    self._on_start(made)
            return self._engine

    @property
    def image(self) -> str | None:
        """Digest of what programs see; None where the engine does not say."""
        if self._engine is not None:
            return _word(self._engine, "image_digest")
        if self._image is None:
            from proctor.images.host import host_image

            self._image = host_image(self._packages).digest
        return self._image

    @property
    def isolation(self) -> str | None:
        """The level in force, or, before the engine is there, the one that it will have; None: nobody knows."""
        if self._engine is not None:
            return _word(self._engine, "isolation")
        return self._told if self._asked == "auto" else self._asked

    def foresee(self, cache: Cache) -> None:
        """Know the level without an engine, where one of before told it; else make the engine."""
        if self._engine is None and self._asked == "auto" and self._told is None:
            self._told = cache.recall(f"isolation {surroundings()}")
            if self._told is None:
                self.engine()
                self.confirm(cache)

    def confirm(self, cache: Cache) -> bool:
        """Hold the engine's level against what was foreseen, and note it for others; False: it is another."""
        real = self.isolation
        before, self._told = self._told, real
        if self._asked == "auto" and real is not None and before != real:
            cache.remember(f"isolation {surroundings()}", real)
        if before is None or before == real:
            return True
        log.warning("isolation is %s, and was %s when programs were scored here before", real, before)
        return False


def _word(engine: AnyEngine, name: str) -> str | None:
    value = getattr(engine, name, None)
    return value if isinstance(value, str) and value else None
