"""When an outcome is final: a decision without input or output, tried with everything that a host can answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.job import Case, Job, Program
from proctor.engine.settling import NOT_RUN, Settling, Todo

PROGRAM = Program({"solution.py": b""}, ("python3", "solution.py"))
LIMITS = Limits(cpu_s=1, wall_s=10)
FINE = Outcome(exit_code=0, cpu_s=0.5, wall_s=1)
OVER = Outcome(exit_code=0, cpu_s=1.4, wall_s=3)  # over the limit, but not by so much that no load could explain it
ENDED = replace(OVER, ended_by=EndedBy.CPU, exit_code=None, signal=9, confirmed=True)
LOOP = Outcome(signal=9, ended_by=EndedBy.CPU, cpu_s=2.01, wall_s=3)
SLEEPER = Outcome(signal=9, ended_by=EndedBy.WALL, cpu_s=0.1, wall_s=10)
LATE = Outcome(signal=9, ended_by=EndedBy.WALL, cpu_s=5, wall_s=10)
KILLED = Outcome(signal=9, cpu_s=0.1, wall_s=0.2)
BROKEN = Outcome(exit_code=1, compile_failed=True)
LOST = Outcome(error="the agent is gone")

Answer = Callable[[int, Todo, int], Outcome]  # case, what was asked, how often it ran before


def settle(
    answer: Answer, cases: int = 1, steps: int = 1, stop_after: int | None = None
) -> tuple[list[Outcome], list[Todo]]:
    """What comes of a job whose runs are answered so, and everything that was asked; what is told is what comes."""
    told: list[tuple[int, Outcome]] = []
    job = Job(PROGRAM, tuple(Case(steps=steps) for _ in range(cases)), LIMITS, stop_after=stop_after)
    settling = Settling(job, lambda index, outcome: told.append((index, outcome)))
    asked: list[Todo] = []
    runs = [0] * cases
    while todo := settling.todo():
        asked.append(todo)
        assert len(asked) <= 6 * cases + 2, "it never comes to an end"
        assert todo.cases
        late, stop = 0, settling.stop_after(todo)
        for index, _ in todo.cases:
            outcome = answer(index, todo, runs[index])
            if stop is not None and late >= stop:
                outcome = NOT_RUN
            runs[index] += 1
            late += outcome.ended_by in (EndedBy.CPU, EndedBy.WALL)
            settling.add(index, outcome, outcome.cpu_s)
        settling.settle(todo)
    found = settling.result()
    assert told == list(enumerate(found))
    return found, asked


def always(outcome: Outcome) -> Answer:
    return lambda index, todo, before: outcome


def first(outcome: Outcome, then: Outcome) -> Answer:
    return lambda index, todo, before: then if before else outcome


@pytest.mark.parametrize(
    "outcome",
    [
        FINE,
        LOOP,
        SLEEPER,
        LOST,
        Outcome(exit_code=1),
        Outcome(signal=11),
        replace(FINE, ended_by=EndedBy.MEMORY),
        BROKEN,
    ],
)
def test_certain_the_first_time(outcome: Outcome) -> None:
    assert settle(always(outcome), 3) == ([outcome] * 3, [Todo([(i, Case()) for i in range(3)])])


def test_over_the_cpu_limit_alone_is_over_it() -> None:
    (found,), asked = settle(always(OVER))
    assert found == ENDED
    assert [todo.alone for todo in asked] == [False, True]


def test_over_the_cpu_limit_only_under_load_is_not() -> None:
    found, asked = settle(first(OVER, FINE))
    assert found == [replace(FINE, confirmed=True)]
    assert len(asked) == 2


def test_a_wall_limit_with_work_in_it_is_seen_again_alone() -> None:
    assert settle(first(LATE, FINE))[0] == [replace(FINE, confirmed=True)]
    assert settle(always(LATE))[0] == [replace(LATE, confirmed=True)]


def test_a_wall_limit_that_only_the_load_met_is_never_sure() -> None:
    """It waited for a CPU, and was ended though all else that it did was within its limit."""
    starved = Outcome(signal=9, ended_by=EndedBy.WALL, cpu_s=0.1, wall_s=100, waited_s=95)
    assert settle(first(starved, FINE))[0] == [replace(FINE, confirmed=True)]
    assert settle(always(starved))[0] == [starved]
    waited = replace(starved, waited_s=89)
    assert settle(always(waited))[0] == [replace(waited, confirmed=True)]


@pytest.mark.parametrize("number", [9, 15, 24])
def test_killed_is_seen_again_beside_others(number: int) -> None:
    hit = replace(KILLED, signal=number)
    found, asked = settle(first(hit, FINE))
    assert found == [replace(FINE, confirmed=True)]
    assert [todo.alone for todo in asked] == [False, False]
    assert settle(always(hit))[0] == [replace(hit, confirmed=True)]


def test_killed_again_and_again_over_the_limit_is_over_the_limit() -> None:
    """A loop that something else ends is a loop, and not a crash."""
    hit = replace(OVER, exit_code=None, signal=24)
    (found,), asked = settle(always(hit))
    assert (found.ended_by, found.signal, found.confirmed) == (EndedBy.CPU, 9, True)
    assert [todo.alone for todo in asked] == [False, False, True]
    found, asked = settle(lambda index, todo, before: [hit, hit, FINE][before])
    assert found == [replace(FINE, confirmed=True)]


def test_killed_and_then_in_doubt() -> None:
    """The second run was not alone, so its time says nothing yet."""
    found, asked = settle(lambda index, todo, before: [KILLED, OVER, FINE][before])
    assert found == [replace(FINE, confirmed=True)]
    assert [todo.alone for todo in asked] == [False, False, True]


def test_in_doubt_and_then_killed() -> None:
    found, asked = settle(lambda index, todo, before: [OVER, KILLED, FINE][before])
    assert found == [replace(FINE, confirmed=True)]
    assert [todo.alone for todo in asked] == [False, True, True]


def test_an_error_the_second_time_is_an_error() -> None:
    assert settle(first(OVER, LOST))[0] == [LOST]


def test_only_the_case_in_doubt_runs_again() -> None:
    def answer(index: int, todo: Todo, before: int) -> Outcome:
        return OVER if index == 2 and not before else replace(FINE, stdout=b"%d" % index)

    found, asked = settle(answer, 5)
    assert [outcome.stdout for outcome in found] == [b"%d" % i for i in range(5)]
    assert [[i for i, _ in todo.cases] for todo in asked] == [[0, 1, 2, 3, 4], [2]]
    assert [outcome.confirmed for outcome in found] == [False, False, True, False, False]


def test_cases_in_the_same_doubt_run_again_together() -> None:
    """Each time the program is compiled: a program could kill itself in each of two hundred cases."""
    found, asked = settle(always(KILLED), 200)
    assert found == [replace(KILLED, confirmed=True)] * 200
    assert [(len(todo.cases), todo.alone) for todo in asked] == [(200, False), (200, False)]
    firsts = [KILLED, OVER, FINE, OVER, KILLED, FINE]
    found, asked = settle(lambda index, todo, before: FINE if before else firsts[index], 6)
    assert [outcome.confirmed for outcome in found] == [True, True, False, True, True, False]
    assert [[i for i, _ in todo.cases] for todo in asked] == [[0, 1, 2, 3, 4, 5], [0, 4], [1, 3]]
    assert [todo.alone for todo in asked] == [False, False, True]


def test_no_more_run_again_than_may_be_late() -> None:
    """Two are late for certain, so that one more is the last that counts."""
    found, asked = settle(lambda index, todo, before: LOOP if index < 2 else OVER, 6, stop_after=3)
    assert found == [LOOP, LOOP, ENDED, NOT_RUN, NOT_RUN, NOT_RUN]
    assert [[i for i, _ in todo.cases] for todo in asked] == [[0, 1, 2, 3, 4, 5], [2]]


def test_steps_are_over_only_when_they_are_ended_for_it() -> None:
    """Where one step ends and the next begins is not seen to the millisecond."""
    assert settle(always(OVER), steps=10)[0] == [replace(OVER, confirmed=True)]
    assert settle(first(OVER, LOOP), steps=10)[0] == [replace(LOOP, confirmed=True)]


# ---------------------------------------------------------------- the compiler


@pytest.mark.parametrize("broken", [replace(BROKEN, exit_code=None, signal=9), replace(BROKEN, ended_by=EndedBy.WALL), replace(BROKEN, ended_by=EndedBy.CPU), replace(BROKEN, stderr=b"cc: fatal error: Killed signal terminated program cc1")])  # fmt: skip
def test_a_compiler_that_may_have_been_stopped_is_asked_once_more(broken: Outcome) -> None:
    found, asked = settle(first(broken, FINE), 3)
    assert found == [FINE] * 3
    assert [len(todo.cases) for todo in asked] == [3, 3]
    assert asked[1].alone == (broken.ended_by is not None)
    assert settle(always(broken), 3)[0] == [broken] * 3


# ---------------------------------------------------------------- stopping early


def test_after_enough_time_limits_the_rest_is_not_run() -> None:
    found, asked = settle(always(LOOP), 10, stop_after=3)
    assert found == [LOOP] * 3 + [NOT_RUN] * 7
    assert len(asked) == 1


def test_what_ran_by_chance_does_not_count() -> None:
    """The same outcomes whether the agent stopped there or only the second look did."""
    found, asked = settle(lambda index, todo, before: OVER, 10, stop_after=3)
    assert found == [ENDED] * 3 + [NOT_RUN] * 7
    assert [len(todo.cases) for todo in asked] == [10, 3]


def test_what_was_not_run_for_a_doubt_is_made_up() -> None:
    def answer(index: int, todo: Todo, before: int) -> Outcome:
        return LATE if index < 3 and not before else FINE

    found, asked = settle(answer, 6, stop_after=3)
    assert [outcome.ended_by for outcome in found] == [None] * 6
    assert [[i for i, _ in todo.cases] for todo in asked] == [[0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5]]


def test_memory_that_took_the_agent_along() -> None:
    settling = Settling(Job(PROGRAM, (Case(), Case()), LIMITS))
    todo = settling.todo()
    assert todo
    settling.filled(todo.cases, compiling=False)
    assert [i for i, _ in settling.missing(todo.cases)] == [1]
    settling.filled(settling.missing(todo.cases), compiling=True)
    assert [(o.ended_by, o.compile_failed) for o in settling.result()] == [
        (EndedBy.MEMORY, False),
        (EndedBy.MEMORY, True),
    ]


_outcomes = st.sampled_from(
    [FINE, FINE, OVER, LOOP, SLEEPER, LATE, KILLED, LOST, BROKEN, replace(BROKEN, ended_by=EndedBy.WALL)]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(_outcomes, min_size=1, max_size=4), max_size=6),
    st.none() | st.integers(1, 3),
    st.sampled_from([1, 4]),
)
def test_it_always_comes_to_an_end(scripts: list[list[Outcome]], stop: int | None, steps: int) -> None:
    found, asked = settle(
        lambda index, todo, before: scripts[index][min(before, len(scripts[index]) - 1)], len(scripts), steps, stop
    )
    assert len(found) == len(scripts)
    late = 0
    for outcome in found:
        if stop is not None and late >= stop:
            assert outcome == NOT_RUN
        else:
            assert outcome != NOT_RUN
        late += outcome.ended_by in (EndedBy.CPU, EndedBy.WALL)
        # Nothing that hangs on the load is final unless it was seen alone.
        if outcome.ended_by is None and not outcome.error and not outcome.compile_failed and steps == 1:
            assert outcome.cpu_s <= LIMITS.cpu_s
    assert not asked or not asked[0].alone


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([FINE, OVER, LOOP, SLEEPER]), max_size=8),
    st.lists(st.sampled_from([0.9, 1.0, 1.5]), min_size=20, max_size=20),
    st.none() | st.integers(1, 3),
)
def test_load_changes_nothing(truth: list[Outcome], loads: list[float], stop: int | None) -> None:
    """Whatever the load does to the times of runs that are not alone, the outcomes are those of a quiet host."""
    noise = iter(loads * 10)

    def loaded(index: int, todo: Todo, before: int) -> Outcome:
        outcome = truth[index]
        if todo.alone or outcome in (LOOP, SLEEPER):
            return outcome
        cpu = outcome.cpu_s * next(noise)
        if cpu > 2 * LIMITS.cpu_s:
            return replace(LOOP, cpu_s=cpu)
        return replace(outcome, cpu_s=cpu)

    def kinds(outcomes: list[Outcome]) -> list[object]:
        return [(outcome.ended_by, outcome.error) for outcome in outcomes]

    quiet, _ = settle(lambda index, todo, before: truth[index], len(truth), stop_after=stop)
    busy, _ = settle(loaded, len(truth), stop_after=stop)
    assert kinds(quiet) == kinds(busy)
