"""How many programs one wall serves, and which it serves no more."""

from __future__ import annotations

import asyncio

import pytest

from proctor import grade
from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.engine.engine import Engine
from proctor.engine.job import Case, Job, Program
from proctor.grading.problem import Problem, TestCase

PROBLEM = Problem(id="p", mode="stdio", cases=(TestCase(stdin=b"3\n", expected=b"3\n"),))
CALM = Program({"main.py": b"print(input())"}, ("python3", "main.py"))
# Leaves a process behind that waits without end.
LEAVER = Program(
    {"main.py": b"import os, time\nif os.fork() == 0:\n    time.sleep(1000)\nprint('left')"}, ("python3", "main.py")
)


def run(reuse: int | None, *programs: Program, slots: int = 1, at_once: bool = False) -> list[set[int]]:
    """The supervisors that lived after each job, or once all had run at the same time."""

    async def work() -> list[set[int]]:
        async with Engine(slots=slots, reuse=reuse) as engine:
            seen = []

            async def one(program: Program) -> None:
                (outcome,) = await engine.run(Job(program, (Case(stdin=b"word\n"),)))
                assert outcome.ok, outcome
                seen.append(set(engine.pids()))

            if at_once:
                await asyncio.gather(*(one(program) for program in programs))
            else:
                for program in programs:
                    await one(program)
            assert engine.replaced == 0  # nothing failed
            return seen

    return asyncio.run(work())


def first_in_common(seen: list[set[int]]) -> list[bool]:
    """Whether the agent of the first job still lived after each of the others."""
    return [bool(seen[0] & later) for later in seen[1:]]


def test_a_wall_serves_any_number_unless_told_otherwise() -> None:
    seen = run(None, *[CALM] * 4)
    assert all(found == seen[0] and len(found) == 1 for found in seen)


def test_a_wall_serves_as_many_as_were_asked_for() -> None:
    seen = run(2, *[CALM] * 6)
    assert seen[0] != seen[2] != seen[4]
    assert not seen[0] & seen[3]
    assert not seen[2] & seen[5]


def test_each_program_has_a_wall_of_its_own() -> None:
    seen = run(1, *[CALM] * 4)
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[3]
    assert all(len(found) <= 3 for found in seen)  # one that ends, one that comes, one that works


def test_many_at_once_each_in_its_own() -> None:
    seen = run(1, *[CALM] * 12, slots=3, at_once=True)
    assert len(set().union(*seen)) >= 10
    assert all(len(found) <= 3 * 3 for found in seen)


def test_a_wall_behind_which_a_process_was_left_serves_no_other() -> None:
    seen = run(None, CALM, LEAVER, CALM, CALM)
    assert first_in_common(seen)[-1] is False
    assert seen[2] == seen[3] or seen[2] > seen[3]  # whatever comes after it stays


def test_rewards_are_the_same() -> None:
    codes = ["print(input())", "print(4)", "while True: pass", "import os; os._exit(3)"]
    plain = [one.reward for one in grade(codes, PROBLEM, limits={"cpu_s": 0.2}, cache=False)]
    assert (
        plain
        == [one.reward for one in grade(codes, PROBLEM, limits={"cpu_s": 0.2}, cache=False, reuse=1)]
        == [1.0, 0.0, 0.0, 0.0]
    )


@pytest.mark.parametrize("reuse", [0, -1, True, 1.5, "never"])
def test_what_it_cannot_be(reuse: object) -> None:
    with pytest.raises(InputError, match="reuse"):
        grade(["x"], PROBLEM, reuse=reuse, cache=False)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="reuse"):
        Engine(reuse=reuse)  # type: ignore[arg-type]


def test_idle_agents_make_room_for_a_job_that_needs_their_memory() -> None:
    small, large = Limits(memory_mib=64), Limits(memory_mib=200)

    async def work() -> list[int]:
        counts = []
        async with Engine(slots=2, memory_mib=256) as engine:  # 32 MiB an agent
            for sizes in ((small, small), (large,), (small, small)):
                jobs = [Job(CALM, (Case(stdin=b"word\n"),), limits=limits) for limits in sizes]
                outcomes = await asyncio.gather(*(engine.run(job) for job in jobs))
                assert all(outcome.ok for (outcome,) in outcomes)
                counts.append(len(engine._idle))
        return counts

    assert asyncio.run(work()) == [2, 1, 2]
