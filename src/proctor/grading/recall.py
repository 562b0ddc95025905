"""A batch and its cache: which programs need not run, and what is kept of those that did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.core.errors import InputError
from proctor.grading.cache import Cache
from proctor.grading.grades import CaseGrade
from proctor.grading.place import Place
from proctor.grading.provenance import Provenance
from proctor.grading.stored import lasting, pack, unpack

if TYPE_CHECKING:
    from proctor.grading.grade import Grader, Work

AnyCache = bool | str | Path | Cache
_Found = tuple["Work", bytes, Provenance, tuple[CaseGrade, ...]]


def as_cache(cache: AnyCache) -> Cache | None:
    """A Cache: True is the user's own, a path names a file, False is none."""
    if isinstance(cache, bool):
        return Cache() if cache else None
    if isinstance(cache, Cache):
        return cache
    if isinstance(cache, str | Path) and str(cache):
        return Cache(cache)
    raise InputError(f"{cache!r} is not True, False, a path or a Cache", field="cache")


class Recall:
    """What a batch knows of its programs before and after they ran.

    Args:
        grader: of the batch.
        place: where its programs run.
        cache: None: every program runs.
    """

    def __init__(self, grader: Grader, place: Place, cache: Cache | None) -> None:
        self._grader, self._place, self._cache = grader, place, cache
        self.ahead = 1 if cache is None else 32  # completions that are read together

    def provenance(self, work: Work) -> Provenance:
        """Of work at the place as it is now."""
        told = self._grader.provenance(work)
        return replace(told, image=self._place.image, isolation=self._place.isolation)

    def look_up(self, works: Sequence[Work]) -> None:
        """Give their grades to those that were graded before; may start the engine and take as long."""
        cache = self._cache
        asked = [work for work in works if work.source is not None]
        if cache is None or not asked or cache.trouble is not None:
            return
        self._place.foresee(cache)
        found = self._find(cache, asked)
        if len(found) < len(asked) and not self._place.started:
            self._place.engine()
            if not self._place.confirm(cache):
                found = self._find(cache, asked)
        for work, key, provenance, cases in found:
            work.cases, work.provenance, work.cached = cases, provenance, True
            cache.hit([key])

    def _find(self, cache: Cache, works: Sequence[Work]) -> list[_Found]:
        keys: dict[bytes, list[tuple[Work, Provenance]]] = {}
        for work in works:
            provenance = self.provenance(work)
            if (key := provenance.key()) is not None:
                keys.setdefault(key, []).append((work, provenance))
        found: list[_Found] = []
        if not keys:
            return found
        for key, data in cache.get(list(keys)).items():
            try:
                cases = unpack(data)
            except ValueError:
                continue
            for work, provenance in keys[key]:
                if work.plan.problem.mode == "unit_tests" or len(cases) == len(work.plan.cases):
                    found.append((work, key, provenance, cases))
        return found

    def note(self, work: Work) -> None:
        """Work is done: say what it depended on, and keep its grades where they may be."""
        if work.cached:
            return
        work.provenance = self.provenance(work)
        cache = self._cache
        if cache is None or cache.trouble is not None or work.source is None or not work.cases:
            return
        key, plan = work.provenance.key(), work.plan
        count = len(work.cases) - (plan.held_out if plan.problem.mode == "function" else 0)
        parts = [part for part in (work.cases[:count], work.cases[count:]) if part]  # each with time of its own
        if key is not None and all(lasting(part, plan.limits) for part in parts):
            data = pack(work.cases)
            if data is not None:
                cache.put(key, data)

    def close(self) -> None:
        """Write out what is to be kept."""
        if self._cache is not None:
            self._cache.close()
