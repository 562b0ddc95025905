"""Admission on its own: a decision without input or output, so it is tried with everything that can happen."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.engine.admission import Admission, Ticket


def test_slots_are_the_bound() -> None:
    admission = Admission(2, 1000)
    tickets = [Ticket("a", 10) for _ in range(4)]
    started = [ticket for new in tickets for ticket in admission.add(new)]
    assert started == tickets[:2]
    assert (admission.running, admission.waiting) == (2, 2)
    assert admission.remove(tickets[0]) == [tickets[2]]


def test_memory_is_a_bound_as_well() -> None:
    admission = Admission(4, 100)
    first, second, third = (Ticket(name, 60) for name in "abc")
    assert admission.add(first) == [first]
    assert admission.add(second) == []
    assert admission.add(third) == []
    assert admission.remove(first) == [second]


def test_what_is_larger_than_the_budget_runs_by_itself() -> None:
    admission = Admission(4, 100)
    small, large, other = Ticket("a", 10), Ticket("b", 500), Ticket("c", 10)
    assert admission.add(small) == [small]
    assert admission.add(large) == []
    assert admission.add(other) == []  # it does not overtake: the large one would wait for ever
    assert admission.remove(small) == [large]
    assert admission.remove(large) == [other]


def test_owners_take_turns() -> None:
    admission = Admission(1, 1000)
    batch = [Ticket("batch", 1) for _ in range(100)]
    running = [ticket for new in batch for ticket in admission.add(new)]
    late = Ticket("caller", 1)
    admission.add(late)
    assert admission.remove(running[0]) == [batch[1]]
    assert admission.remove(batch[1]) == [late]  # second in line, not hundredth


def test_within_an_owner_the_first_come_is_first() -> None:
    admission = Admission(1, 1000)
    tickets = [Ticket("a", 1) for _ in range(20)]
    order = [ticket for new in tickets for ticket in admission.add(new)]
    while admission.running:
        order += admission.remove(order[-1])
    assert order == tickets


def test_alone_waits_for_the_others_and_is_not_overtaken() -> None:
    admission = Admission(3, 1000)
    first, second = Ticket("a", 1), Ticket("a", 1)
    admission.add(first)
    admission.add(second)
    alone = Ticket("b", 1, alone=True)
    assert admission.add(alone) == []
    later = [Ticket("c", 1) for _ in range(3)]
    assert [ticket for new in later for ticket in admission.add(new)] == []
    assert admission.remove(first) == []
    assert admission.remove(second) == [alone]
    other = Ticket("d", 1)
    assert admission.add(other) == []
    assert admission.remove(alone) == [later[0], other, later[1]]  # owners take turns


def test_a_waiting_ticket_can_go() -> None:
    admission = Admission(1, 100)
    running, waiting, alone, last = Ticket("a", 1), Ticket("b", 1), Ticket("c", 1, alone=True), Ticket("d", 1)
    for ticket in (running, waiting, alone, last):
        admission.add(ticket)
    assert admission.remove(waiting) == []
    assert admission.remove(alone) == []
    assert admission.remove(running) == [last]
    assert (admission.running, admission.waiting) == (1, 0)


def test_what_blocks_the_head_lets_the_rest_go_when_it_leaves() -> None:
    admission = Admission(4, 100)
    running, large, small = Ticket("a", 60), Ticket("b", 90), Ticket("c", 30)
    admission.add(running)
    admission.add(large)
    assert admission.add(small) == []
    assert admission.remove(large) == [small]


def test_to_remove_twice_or_what_was_never_there_is_no_harm() -> None:
    admission = Admission(1, 100)
    ticket = Ticket("a", 1)
    admission.add(ticket)
    admission.remove(ticket)
    assert admission.remove(ticket) == []
    assert admission.remove(Ticket("b", 1)) == []
    assert (admission.running, admission.waiting) == (0, 0)


def test_a_long_queue_is_not_slow() -> None:
    import time

    admission = Admission(2, 1000)
    start = time.process_time()
    started = [ticket for _ in range(20_000) for ticket in admission.add(Ticket("a", 1))]
    done = 0
    while started:
        done += 1
        started += admission.remove(started.pop())
    assert done == 20_000
    assert time.process_time() - start < 5


_tickets = st.builds(
    Ticket, owner=st.sampled_from("abc"), memory_mib=st.integers(1, 150), alone=st.booleans() | st.just(False)
)
# A number picks a ticket that is there, and ends it; a ticket is added.
_events = st.lists(_tickets | st.integers(0, 1_000_000), max_size=60)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 4), _events)
def test_never_over_the_bounds_and_all_are_admitted(slots: int, events: list[Ticket | int]) -> None:
    admission = Admission(slots, 100)
    running: list[Ticket] = []
    waiting: list[Ticket] = []

    def started(tickets: list[Ticket]) -> None:
        for ticket in tickets:
            waiting.remove(ticket)
            running.append(ticket)
        assert len(set(running)) == len(running) <= slots
        assert len(running) == 1 or sum(ticket.memory_mib for ticket in running) <= 100
        assert len(running) == 1 or not any(ticket.alone for ticket in running)
        assert (admission.running, admission.waiting) == (len(running), len(waiting))
        for owner in "abc":  # first come, first served
            numbers = [ticket.number for ticket in running if ticket.owner == owner and not ticket.alone]
            first = min((t.number for t in waiting if t.owner == owner and not t.alone), default=None)
            assert first is None or all(number < first for number in numbers)
        # No slot stays empty while the ticket that is next would fit.
        assert running or not waiting

    for event in events:
        if isinstance(event, Ticket):
            waiting.append(event)
            started(admission.add(event))
        elif running or waiting:
            ticket = (running + waiting)[event % len(running + waiting)]
            (running if ticket in running else waiting).remove(ticket)
            started(admission.remove(ticket))
    for _ in range(len(running) + len(waiting)):
        ticket = running.pop()
        started(admission.remove(ticket))
    assert not running
    assert not waiting


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.integers(1, 30), st.integers(1, 30))
def test_nobody_waits_for_more_than_one_turn_of_each_other(slots: int, mine: int, theirs: int) -> None:
    admission = Admission(slots, 10_000)
    running: list[Ticket] = []
    for owner, count in (("theirs", theirs), ("mine", mine)):
        for _ in range(count):
            running += admission.add(Ticket(owner, 1))
    order = list(running)
    while running:
        new = admission.remove(running.pop(0))
        running += new
        order += new
    assert len(order) == mine + theirs
    for at, ticket in enumerate(order):
        if ticket.owner == "mine":
            before = order[:at]
            turns = sum(t.owner == "mine" for t in before)
            assert sum(t.owner == "theirs" for t in before) <= slots + turns + 1


@pytest.mark.parametrize("alone", [False, True])
def test_alone_is_served_in_a_stream_of_others(alone: bool) -> None:
    """New jobs that come without end hold up neither kind."""
    admission = Admission(2, 1000)
    running = admission.add(Ticket("a", 1)) + admission.add(Ticket("a", 1))
    wish = Ticket("b", 1, alone=alone)
    running += admission.add(wish)
    for _ in range(10):
        running += admission.add(Ticket("a", 1))
        running += admission.remove(running.pop(0))
        if wish in running:
            return
    pytest.fail("it was never admitted")


def test_those_that_run_alone_take_turns_by_their_owners() -> None:
    admission = Admission(2, 1000)
    order = [*(Ticket("many", 1, alone=True) for _ in range(20)), Ticket("one", 1, alone=True)]
    running = [ticket for ticket in order for ticket in admission.add(ticket)]
    seen: list[Ticket] = []
    while running:
        seen.append(running.pop(0))
        running += admission.remove(seen[-1])
    assert set(seen) == set(order)
    assert seen.index(order[-1]) <= 2
    waiting = Ticket("gone", 1, alone=True)
    admission.add(Ticket("now", 1))
    admission.add(waiting)
    admission.remove(waiting)
    assert admission.waiting == 0


def test_one_that_runs_alone_does_not_keep_all_others_waiting_for_the_next() -> None:
    admission = Admission(2, 1000)
    alone = [Ticket("near the limit", 1, alone=True) for _ in range(3)]
    running = [ticket for ticket in alone for ticket in admission.add(ticket)]
    others = [Ticket(f"owner {n}", 1) for n in range(40)]
    for ticket in others:
        running += admission.add(ticket)
    order: list[Ticket] = []
    while running:
        ticket = running.pop(0)
        order.append(ticket)
        running += admission.remove(ticket)
    assert len(order) == 43
    first, second, third = (order.index(ticket) for ticket in alone)
    assert first == 0
    assert second - first > 4
    assert third - second > 4
