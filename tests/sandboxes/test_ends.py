"""How sandboxes end, and that nothing is left: processes, control groups, descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from box_help import SMALL, Boxes

from proctor.core.errors import InfrastructureError
from proctor.core.sandbox import CommandSpec, SandboxError, SandboxSpec, State, StopReason
from proctor.engine import room
from proctor.engine.capacity import cores
from proctor.engine.lobby import Lobby
from proctor.engine.sandbox import Sandbox

PATIENCE = 60.0


def until_gone(look: object, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while left := look():  # type: ignore[operator]
        assert time.monotonic() < end, f"{what} left: {left}"
        time.sleep(0.02)


def named(word: str) -> list[str]:
    """Processes of this host whose arguments hold a word."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def groups(owner: int) -> list[str]:
    """Control groups that an engine of a process has made."""
    found = []
    for folder, inside, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{folder}/{name}" for name in inside if name.startswith(f"proctor-{owner}-")]
    return found


async def later(call: Callable[..., object], *args: object, **options: object) -> object:
    """A call that needs a running loop."""
    return call(*args, **options)


def test_a_stop_ends_all_processes_and_answers_all_who_wait(boxes: Boxes) -> None:
    box = boxes.new()

    async def stop_in_the_middle() -> BaseException | None:
        waiting = asyncio.ensure_future(boxes.engine.run_command(box.id, CommandSpec(argv=("sleep", "31415"))))
        while not named("31415"):
            await asyncio.sleep(0.01)
        await boxes.engine.stop(box.id)
        assert not named("31415")  # when stop returns nothing is left
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
        return result if isinstance(result, BaseException) else None

    error = boxes.run(stop_in_the_middle())
    assert isinstance(error, SandboxError)
    assert error.code == "sandbox_stopped"
    info = boxes.engine.get(box.id).info()
    assert (info.state, info.stop_reason) == (State.STOPPED, StopReason.REQUEST)
    assert box.group is None


def test_a_lease_ends_by_itself_and_can_be_made_longer(boxes: Boxes) -> None:
    short, long = boxes.new(timeout_seconds=0.4), boxes.new(timeout_seconds=0.4)
    boxes.run(later(boxes.engine.extend, long.id, 1000))

    async def wait() -> None:
        while boxes.engine.get(short.id).state is State.RUNNING:
            await asyncio.sleep(0.02)

    boxes.run(asyncio.wait_for(wait(), PATIENCE))
    info = boxes.engine.get(short.id).info()
    assert info.stop_reason is StopReason.LEASE
    assert info.stopped_at is not None
    assert info.stopped_at >= info.expires_at  # never early
    assert boxes.engine.get(long.id).state is State.RUNNING
    boxes.run(boxes.engine.update(long.id, timeout_seconds=0.1))
    boxes.run(asyncio.wait_for(asyncio.sleep(0.3), PATIENCE))
    with pytest.raises(SandboxError, match="stopped"):
        boxes.sh(long, "true")


@pytest.mark.parametrize("metered", [True, False])
def test_a_pid_1_that_has_no_time_does_not_hold_up_the_end_of_a_lease(
    boxes: Boxes, metered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no control group its use is asked for: an answer that does not come is not waited for."""
    box = boxes.new(timeout_seconds=300)
    if box.group is None or not box.group.processes():
        pytest.skip("without a control group nobody here knows the sandbox's processes")
    (init,) = box.group.processes()
    boxes.sh(box, "sleep 1000 & true")
    pids = box.group.processes()
    if not metered:
        monkeypatch.setattr(box.group.meter, "cpu", False)
    os.kill(init, signal.SIGSTOP)
    boxes.run(boxes.engine.update(box.id, timeout_seconds=0.1))

    async def ended() -> None:
        while box.state is State.RUNNING:
            await asyncio.sleep(0.05)
        assert box.ending is not None
        await box.ending

    boxes.run(asyncio.wait_for(ended(), 45))  # an unbounded question would be given up after 60 s
    assert box.reason is StopReason.LEASE
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_cancelled_command_is_killed(boxes: Boxes, box: Sandbox) -> None:
    async def cancel() -> None:
        task = asyncio.ensure_future(boxes.engine.run_command(box.id, CommandSpec(argv=("sleep", "27182"))))
        while not named("27182"):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    boxes.run(cancel())
    # The loop goes on meanwhile: a command that is cancelled before the room has said that it runs is killed after that.
    boxes.run(asyncio.to_thread(until_gone, lambda: named("27182"), "processes"))
    assert boxes.sh(box, "echo alive").stdout == b"alive\n"


def test_the_agents_death_ends_its_sandboxes_and_the_next_ones_work(boxes: Boxes) -> None:
    own = Boxes()
    box = own.new()
    lobby = own.engine.rooms.lobby
    assert lobby is not None
    os.kill(lobby.link.agent.process.pid, signal.SIGKILL)

    async def wait() -> None:
        while own.engine.get(box.id).state is State.RUNNING:
            await asyncio.sleep(0.02)

    own.run(asyncio.wait_for(wait(), PATIENCE))
    assert own.engine.get(box.id).info().stop_reason is StopReason.FAULT
    with pytest.raises(SandboxError):
        own.sh(box, "true")
    assert own.sh(own.new(), "echo again").stdout == b"again\n"
    own.close()


@pytest.mark.parametrize("cgroup", [True, False])
def test_a_lobby_that_makes_no_rooms_is_replaced_and_keeps_what_it_has(cgroup: bool) -> None:
    """Stopped: a create goes to another; what runs in the old one goes on, ends when told to, and takes it along."""
    own = Boxes(spare=0)
    if not cgroup:
        own.run(own.engine.rooms.close())  # the agent that has them
        own.engine.rooms.closed = False
        own.engine.rooms.boundary.cgroup = False
    box = own.new()
    old = own.engine.rooms.lobby
    assert old is not None
    supervisor = old.link.agent.process.pid
    (lobby,) = map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split())
    own.sh(box, "sleep 17171 > /dev/null 2>&1 &")
    os.kill(lobby, signal.SIGSTOP)
    try:

        async def many() -> list[Sandbox]:
            return await asyncio.gather(*(own.engine.create(SandboxSpec(**SMALL)) for _ in range(3)))

        others = own.run(asyncio.wait_for(many(), 45))  # less than one is waited for on a busy host
        assert old.retired
        assert {other.lobby for other in others} == {own.engine.rooms.lobby} != {old}
        assert own.sh(box, "echo alive").stdout == b"alive\n"
        assert own.sh(own.new(), "echo again").stdout == b"again\n"
        assert Path(f"/proc/{lobby}").exists()
        own.run(asyncio.wait_for(own.engine.delete(box.id), 45))
        until_gone(lambda: named("17171"), "processes")

        async def ended() -> None:
            while old.link.agent.process.returncode is None:
                await asyncio.sleep(0.05)

        own.run(asyncio.wait_for(ended(), 45))
        assert not Path(f"/proc/{lobby}").exists()
        assert own.sh(others[0], "echo here").stdout == b"here\n"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(lobby, signal.SIGCONT)
        own.close()


def test_an_engine_closes_with_a_lobby_that_is_stopped() -> None:
    own = Boxes(spare=0)
    box = own.new()
    assert own.engine.rooms.lobby is not None
    name = own.engine.rooms.lobby.link.agent.name
    supervisor = own.engine.rooms.lobby.link.agent.process.pid
    (lobby,) = map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split())
    os.kill(lobby, signal.SIGSTOP)
    assert own.sh(own.new(), "echo new").stdout == b"new\n"
    assert own.sh(box, "echo old").stdout == b"old\n"
    own.run(asyncio.wait_for(own.engine.close(), 60))
    own.loop.close()
    assert not Path(f"/proc/{lobby}").exists()
    until_gone(lambda: [path for path in groups(os.getpid()) if name in path], "control groups")


def test_an_engine_closes_while_a_room_does_not_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Boxes(spare=0)
    assert own.engine.rooms.lobby is not None
    supervisor = own.engine.rooms.lobby.link.agent.process.pid
    (lobby,) = map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split())
    monkeypatch.setattr(Lobby, "is_stopped", lambda self: False)  # as where a room is stopped before its first word
    os.kill(lobby, signal.SIGSTOP)

    async def make_and_close() -> BaseException | None:
        making = asyncio.ensure_future(own.engine.create(SandboxSpec(**SMALL)))
        own.engine.rooms.spare = 1
        own.engine.rooms.fill()
        await asyncio.sleep(0.1)
        await own.engine.close()
        return (await asyncio.gather(making, return_exceptions=True))[0]

    failed = own.run(asyncio.wait_for(make_and_close(), 45))  # a room is waited for longer
    assert isinstance(failed, InfrastructureError)
    own.loop.close()
    assert not Path(f"/proc/{lobby}").exists()


def test_a_lobby_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not stopped, but without a room in the time that the busiest host takes, here a shorter one."""
    own = Boxes(spare=0)
    box = own.new()
    old = own.engine.rooms.lobby
    assert old is not None
    supervisor = old.link.agent.process.pid
    (lobby,) = map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split())
    monkeypatch.setattr(Lobby, "is_stopped", lambda self: False)
    os.kill(lobby, signal.SIGSTOP)
    monkeypatch.setattr(room, "_READY_S", 0.2)
    making = own.loop.create_task(own.engine.create(SandboxSpec(**SMALL)))

    async def retired() -> None:
        while not old.retired:
            await asyncio.sleep(0.005)
        monkeypatch.undo()  # the next one has its whole time

    own.run(asyncio.wait_for(retired(), 45))
    other = own.run(asyncio.wait_for(making, 45))
    assert own.sh(other, "echo new").stdout == b"new\n"
    assert own.sh(box, "echo old").stdout == b"old\n"
    own.close()
    assert not Path(f"/proc/{lobby}").exists()


TRAINER = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from box_help import Boxes
boxes = Boxes()
made = [boxes.new() for _ in range(3)]
for box in made:
    boxes.sh(box, "sleep 16180 > /dev/null 2>&1 &")
print("up", flush=True)
{then}
"""


@pytest.mark.parametrize(
    ("then", "number"), [("input()", signal.SIGKILL), ("boxes.close()", None), ("raise SystemExit", None)]
)
def test_nothing_outlives_the_process_that_made_it(boxes: Boxes, then: str, number: int | None) -> None:
    source = TRAINER.format(tests=str(Path(__file__).parent), then=then)
    trainer = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == b"up\n"
    if number is not None:
        assert named("16180")
        trainer.send_signal(number)
    trainer.communicate()
    until_gone(lambda: named("16180"), "processes")
    until_gone(lambda: groups(trainer.pid), "control groups")


def test_places_are_given_in_order_and_no_bound_is_passed() -> None:
    own = Boxes(most=3, memory_mib=1000)
    told: list[tuple[int, int]] = []
    order: list[int] = []
    most = 0

    async def one(number: int) -> None:
        nonlocal most
        spec = SandboxSpec(**SMALL)
        box = await own.engine.create(spec, on_wait=lambda place: told.append((number, place)))
        order.append(number)
        most = max(most, len(own.engine.queue.taken))
        await own.engine.run_command(box.id, CommandSpec(argv=("true",)))
        await own.engine.delete(box.id)

    async def all_of_them() -> None:
        tasks = []
        for number in range(12):
            tasks.append(asyncio.ensure_future(one(number)))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    own.run(all_of_them())
    assert all(abs(number - place) < 3 for place, number in enumerate(order))  # three are opened at a time
    assert most == 3
    assert (11, 8) in told  # the twelfth waits behind eight when the first three have theirs
    own.close()


def test_who_waits_too_long_or_asks_too_much_is_told_why() -> None:
    own = Boxes(most=1, memory_mib=400)
    box = own.new()
    with pytest.raises(SandboxError, match="no room") as caught:
        own.run(own.engine.create(SandboxSpec(**SMALL), wait_s=0.05))
    assert (caught.value.code, caught.value.status) == ("no_capacity", 409)
    with pytest.raises(SandboxError, match="more than this host gives"):
        own.run(own.engine.create(SandboxSpec(memory_mib=4096)))
    with pytest.raises(SandboxError, match=r"vcpu: a sandbox of 1000 CPUs is more than this host has") as caught:
        own.run(own.engine.create(SandboxSpec(**SMALL, vcpu=1000)))
    assert (caught.value.code, caught.value.status) == ("too_large", 400)
    assert f"ask for {cores()} or less" in (caught.value.hint or "")

    async def give_up_and_take() -> str:
        first = asyncio.ensure_future(own.engine.create(SandboxSpec(**SMALL)))
        second = asyncio.ensure_future(own.engine.create(SandboxSpec(**SMALL)))
        await asyncio.sleep(0.01)
        first.cancel()
        await own.engine.delete(box.id)
        return (await second).state

    assert own.run(give_up_and_take()) == State.RUNNING
    own.close()


def test_a_hundred_sandboxes_at_once_and_the_next_one_waits() -> None:
    own = Boxes(most=100, memory_mib=100 * 200)

    async def fill() -> list[bytes]:
        made = await asyncio.gather(*(own.engine.create(SandboxSpec(**SMALL)) for _ in range(100)))
        late = asyncio.ensure_future(own.engine.create(SandboxSpec(**SMALL)))
        outs = await asyncio.gather(
            *(own.engine.run_command(box.id, CommandSpec(argv=("echo", box.id))) for box in made)
        )
        assert not late.done()
        await own.engine.delete(made[0].id)
        made[0] = await late
        assert [out.stdout.decode().strip() for out in outs[1:]] == [box.id for box in made[1:]]
        return [out.stdout for out in outs]

    assert len(set(own.run(fill()))) == 100
    before = len(os.listdir("/proc/self/fd"))
    own.run(own.engine.close())
    assert len(os.listdir("/proc/self/fd")) < before
    own.loop.close()
    until_gone(lambda: [g for g in groups(os.getpid()) if ".r" in g and own_name(own) in g], "control groups")


def own_name(own: Boxes) -> str:
    lobby = own.engine.rooms.lobby
    assert lobby is not None
    return lobby.link.agent.name


def test_many_lives_leave_descriptors_and_children_as_they_were(boxes: Boxes) -> None:
    def cycle() -> None:
        box = boxes.new()
        boxes.sh(box, "echo x > f; (sleep 100 &)")
        boxes.run(boxes.engine.delete(box.id))

    for _ in range(5):
        cycle()
    boxes.run(asyncio.sleep(0.2))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(60):
        cycle()
    boxes.run(asyncio.sleep(0.2))
    assert abs(len(os.listdir("/proc/self/fd")) - before) <= 8 * boxes.engine.rooms.spare


def test_sandboxes_that_compute_leave_the_cpus_to_whoever_else_wants_them(boxes: Boxes) -> None:
    box = boxes.new()
    assert box.lobby is not None
    assert box.room is not None
    group = box.lobby.groups[box.room.number]
    found = [Path(path, name) for path in group.paths for name in ("cpu.shares", "cpu.weight")]
    weights = [path.read_text().strip() for path in found if path.exists()]
    if not weights:
        pytest.skip("no CPU controller for this user")
    assert set(weights) <= {"128", "12"}  # an eighth of 1024, or of 100
