"""Grade a batch of completions: the calls that a trainer makes.

``grade`` blocks, ``agrade`` is awaited; both work beside a running event loop
and from any thread, keep a bounded number of programs in flight, run equal
programs once, and give the same grades in whatever order completions come.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from itertools import islice
from typing import Any

from proctor.core.errors import InputError, IsolationUnavailable
from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.core.verdict import Verdict
from proctor.grading import builds
from proctor.grading.cache import Cache
from proctor.grading.checkers import AnyChecker
from proctor.grading.extract import DEFAULT_RULE, Rule
from proctor.grading.grade import Grader, Key, Work
from proctor.grading.grades import CaseGrade, Grade
from proctor.grading.pairing import Completion, Item, Problems, pair_up
from proctor.grading.place import AnyEngine, Place
from proctor.grading.policy import AnyPolicy
from proctor.grading.recall import AnyCache, Recall, as_cache

OnGrade = Callable[[Grade], object]

_BIG = 64 << 10  # bytes of output from which judging leaves the event loop's thread

log = logging.getLogger("proctor")


class _Batch:
    """Which completions are to be run, which wait for an equal one, and the grades so far. Does no I/O."""

    def __init__(
        self, grader: Grader, items: list[Item], on_grade: OnGrade | None, place: Place, cache: Cache | None
    ) -> None:
        self.grader, self.items, self.on_grade = grader, items, on_grade
        self.place, self.recall = place, Recall(grader, place, cache)
        first = {(id(item.problem), item.language): index for index, item in reversed(list(enumerate(items)))}
        for index in reversed(first.values()):  # the caller's mistakes come before anything is run
            grader.plan_for(items[index].problem, items[index].language, f"completions[{index}]")
        self._at = 0
        self._ready: deque[Work] = deque()  # read, and looked up
        self._waiting: dict[Key, list[int]] = {}
        self._done: dict[Key, Work] = {}
        self.grades: list[Grade | None] = [None] * len(items)

    def take(self) -> int | None:
        """The index of the next completion to read."""
        if self._at == len(self.items):
            return None
        self._at += 1
        return self._at - 1

    def enter(self, work: Work, index: int) -> bool:
        """Take note of a completion that was read; True: nothing equal was met before, so it is to be run."""
        if done := self._done.get(work.key):
            self._add(done, index)
            return False
        self._waiting.setdefault(work.key, []).append(index)
        return len(self._waiting[work.key]) == 1

    def next(self) -> Work | None:
        """The next program to run, its job made; None where there is none left."""
        while self._read():
            work = self._ready.popleft()
            if work.cases is None:
                work.start(self.grader.warm)
            if work.job is not None:
                return work
            self.finish(work)
        return None

    async def anext(self) -> Work | None:
        """``next``, with reading and packing in a worker thread and the books kept in this one."""
        while await self._aread():
            work = self._ready.popleft()
            if work.cases is None:
                await asyncio.to_thread(work.start, self.grader.warm)
            if work.job is not None:
                return work
            self.finish(work)
        return None

    def _read(self) -> bool:
        """Have some work ready: read completions and look up those that are not equal to one before; False: the end."""
        while not self._ready and (indices := self._some()):
            fresh = self._entered(indices, self._works(indices))
            self.recall.look_up(fresh)
            self._ready.extend(fresh)
        return bool(self._ready)

    async def _aread(self) -> bool:
        while not self._ready and (indices := self._some()):
            works = await asyncio.to_thread(self._works, indices)
            fresh = self._entered(indices, works)
            await asyncio.to_thread(self.recall.look_up, fresh)
            self._ready.extend(fresh)
        return bool(self._ready)

    def _works(self, indices: list[int]) -> list[Work]:
        return [self.grader.work(self.items[index]) for index in indices]

    def _some(self) -> list[int]:
        """The completions to read next, few enough that those before them do not run out meanwhile."""
        return list(islice(iter(self.take, None), self.recall.ahead))

    def _entered(self, indices: list[int], works: list[Work]) -> list[Work]:
        return [work for index, work in zip(indices, works, strict=True) if self.enter(work, index)]

    def finish(self, work: Work) -> None:
        """Grade every completion that is this program."""
        self.recall.note(work)
        for index in self._waiting.pop(work.key):
            self._add(work, index)
        if not any(case.verdict is Verdict.INFRASTRUCTURE_ERROR for case in work.cases or ()):
            self._done[work.key] = work  # a failure of ours is no reason to fail an equal program later

    def _add(self, work: Work, index: int) -> None:
        grade = self.grades[index] = self.grader.grade(work, index)
        if self.on_grade:
            self.on_grade(grade)

    def result(self) -> list[Grade]:
        """All grades, in the order of the completions."""
        grades = [grade for grade in self.grades if grade is not None]
        assert len(grades) == len(self.items)
        if grades and all(grade.verdict is Verdict.INFRASTRUCTURE_ERROR for grade in grades):
            log.error("none of %d programs could be scored; the first: %s", len(grades), grades[0].error)
        return grades


def grade(
    completions: Iterable[Completion],
    problems: Problems,
    *,
    checker: AnyChecker | str | None = None,
    reward: AnyPolicy | str = "share",
    limits: Limits | Mapping[str, Any] | None = None,
    engine: AnyEngine | Place | None = None,
    warm: bool = True,
    extract: str | Rule = DEFAULT_RULE,
    claimed: str = "count",
    on_grade: OnGrade | None = None,
    workers: int | None = None,
    isolation: str = "auto",
    packages: Sequence[str] = (),
    reuse: int | None = None,
    cache: AnyCache = True,
    repeat: int = 1,
) -> list[Grade]:
    """Run every completion against its problem's cases and judge it; blocks until all are done.

    Args:
        completions: strings, chats (the last assistant message counts), or
            objects or dicts with ``completion`` and perhaps ``problem_id``.
        problems: one problem for all; a mapping from id; or a list, by
            ``problem_id`` where the completions carry one, else aligned.
        checker: judges printed text instead of the problems' own checkers: a
            Checker, a spec such as ``numbers:abs=1e-6``, or a function
            ``(stdout, expected, stdin) -> bool`` of bytes.
        reward: a policy, a spec such as ``share+crash_penalty=0.1``, or a
            function ``(Grade) -> float``.
        limits: ``{"cpu_s": 2}`` changes fields of the problems' limits; a
            whole ``Limits`` replaces them.
        engine: where programs run; None: the one that this process shares.
        warm: run Python in forks of a warm interpreter, else in a new one.
        extract: rule by which code is taken from a completion, or a function.
        claimed: what becomes of verdicts that are the program's own claim
            (tests that cannot be sealed): ``count``, or ``refuse``: no reward.
        on_grade: called in this thread with each Grade as it is ready, in no
            particular order.
        workers, isolation, packages: which shared engine: programs at once
            (None: one a core), the wall around each, and the installed
            packages that they may import beside the standard library.
        reuse: programs that one wall serves before another takes its place;
            1: each has its own; None: any number.
        cache: True: programs that were graded before, with the same cases,
            checker, limits and all else that a verdict depends on, do not run
            again; what is known is in a file of the user's. A path or a
            ``Cache``: in that one. False: all run.
        repeat: how often each program runs, without the cache where that is
            more than once. The first run counts; whether the others gave the
            same is ``Grade.deterministic``.

    Returns:
        A Grade for each completion, in order. A reward of None is no score: this
        host, a judge or a test file failed, or only the program's word could decide.

    Raises:
        InputError: bad arguments or problems, or a reward policy that fails.
        IsolationUnavailable: the isolation asked for cannot be had here.
    """
    place = _place(engine, workers, isolation, packages, reuse)
    batch = _batch(
        completions, problems, on_grade, checker, reward, limits, warm, extract, claimed, place, cache, repeat
    )
    running: dict[Future[list[Outcome]], Work] = {}
    try:
        while True:
            while len(running) < place.width and (fresh := batch.next()):
                _submit(place.engine(), batch, fresh, running)
            if not running:
                return batch.result()
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                work = running.pop(future)
                if (outcomes := _outcomes(future, work)) is not None:
                    work.tell(outcomes)
                if work.job is None:
                    batch.finish(work)
                else:
                    _submit(place.engine(), batch, work, running)
    finally:
        for future in running:
            future.cancel()
        batch.recall.close()


async def agrade(
    completions: Iterable[Completion],
    problems: Problems,
    *,
    checker: AnyChecker | str | None = None,
    reward: AnyPolicy | str = "share",
    limits: Limits | Mapping[str, Any] | None = None,
    engine: AnyEngine | Place | None = None,
    warm: bool = True,
    extract: str | Rule = DEFAULT_RULE,
    claimed: str = "count",
    on_grade: OnGrade | None = None,
    workers: int | None = None,
    isolation: str = "auto",
    packages: Sequence[str] = (),
    reuse: int | None = None,
    cache: AnyCache = True,
    repeat: int = 1,
) -> list[Grade]:
    """``grade`` for an event loop, which stays free: see there.

    Reading completions and judging large outputs happen in a worker thread;
    ``on_grade`` is called in the loop's. Cancelling the task cancels what runs.
    """
    place = _place(engine, workers, isolation, packages, reuse)
    batch = await asyncio.to_thread(
        _batch, completions, problems, on_grade, checker, reward, limits, warm, extract, claimed, place, cache, repeat
    )
    running: set[asyncio.Task[None]] = set()

    async def see_through(work: Work) -> None:
        while work.job is not None:
            futures: dict[Future[list[Outcome]], Work] = {}
            _submit(place.engine(), batch, work, futures)
            future = next(iter(futures))
            try:
                await asyncio.wait([asyncio.wrap_future(future)])
            except asyncio.CancelledError:
                future.cancel()
                raise
            outcomes = _outcomes(future, work)
            if outcomes is None:
                continue
            if sum(len(o.stdout) + len(o.result) for o in outcomes) > _BIG:
                await asyncio.to_thread(work.tell, outcomes)
            else:
                work.tell(outcomes)
        batch.finish(work)

    try:
        while True:
            while len(running) < place.width and (fresh := await batch.anext()):
                if not place.started:
                    await asyncio.to_thread(place.engine)
                running.add(asyncio.create_task(see_through(fresh)))
            if not running:
                return batch.result()
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.to_thread(batch.recall.close)


def score(completions: Iterable[Completion], problems: Problems, **options: Any) -> list[float | None]:
    """The rewards alone, None where there is no score; takes what ``grade`` takes."""
    return [grade.reward for grade in grade(completions, problems, **options)]


async def ascore(completions: Iterable[Completion], problems: Problems, **options: Any) -> list[float | None]:
    """``score`` for an event loop."""
    return [grade.reward for grade in await agrade(completions, problems, **options)]


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate of pass@k from ``n`` samples of which ``c`` are right: ``1 - C(n-c, k) / C(n, k)``.

    Raises:
        InputError: unless ``0 <= c <= n`` and ``1 <= k <= n``.
    """
    for name, value, low, high in (("n", n, 1, None), ("c", c, 0, n), ("k", k, 1, n)):
        if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
            raise InputError(
                f"{value!r} is not a whole number from {low}" + (f" to {high}" if high else ""), field=name
            )
    return 1.0 - math.prod((n - c - i) / (n - i) for i in range(k))


# ---------------------------------------------------------------- below the calls


def _place(
    engine: AnyEngine | Place | None, workers: int | None, isolation: str, packages: Sequence[str], reuse: int | None
) -> Place:
    if isinstance(engine, Place):
        return engine
    return Place(engine, workers=workers, isolation=isolation, packages=packages, reuse=reuse)


def _batch(
    completions: Iterable[Completion],
    problems: Problems,
    on_grade: OnGrade | None,
    checker: AnyChecker | str | None,
    reward: AnyPolicy | str,
    limits: Limits | Mapping[str, Any] | None,
    warm: bool,
    extract: str | Rule,
    claimed: str,
    place: Place,
    cache: AnyCache,
    repeat: int,
) -> _Batch:
    grader = Grader(
        checker=checker, reward=reward, limits=limits, warm=warm, extract=extract, repeat=repeat, claimed=claimed
    )
    kept = as_cache(cache)
    return _Batch(grader, pair_up(completions, problems), on_grade, place, kept if repeat == 1 else None)


def _submit(engine: AnyEngine, batch: _Batch, work: Work, running: dict[Future[list[Outcome]], Work]) -> None:
    assert work.job is not None
    try:
        future = builds.submit(engine, work.job, batch)
    except (InputError, IsolationUnavailable):
        raise
    except Exception as exc:
        future = Future()
        future.set_exception(exc)
    running[future] = work


def _outcomes(future: Future[list[Outcome]], work: Work) -> list[Outcome] | None:
    """What the engine gave; None where it failed, and the work is over."""
    try:
        return future.result()
    except (InputError, IsolationUnavailable):
        raise
    except (Exception, CancelledError) as exc:
        work.fail(f"the engine failed: {type(exc).__name__}: {exc}")
        return None


__all__ = [
    "AnyEngine",
    "CaseGrade",
    "Completion",
    "Grade",
    "Problems",
    "agrade",
    "ascore",
    "grade",
    "pass_at_k",
    "score",
]
