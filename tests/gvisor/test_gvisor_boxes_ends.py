"""Sandboxes behind gVisor: whatever is killed, an error says so and nothing is left on the host."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from box_help import Boxes
from engine_help import descendants, gone, kill, leavings, state
from test_gvisor_boxes import ended
from test_gvisor_ends import parts

from proctor.core.sandbox import CommandSpec, NetworkRules, SandboxError, State, StopReason
from proctor.engine.sandbox import Sandbox
from proctor.isolation.runsc import Runsc

pytestmark = pytest.mark.environments


@pytest.fixture
def own(rooms: Runsc) -> Boxes:
    return Boxes(isolation="gvisor", spare=1)


def supervisor(box: Sandbox) -> int:
    assert box.lobby is not None
    return box.lobby.link.agent.process.pid


@pytest.mark.parametrize("name", ["runsc", "runsc-gofer", "runsc-sandbox", "supervisor"])
def test_a_part_that_is_killed_ends_the_sandbox_and_says_so(own: Boxes, nothing_left: None, name: str) -> None:
    box = own.new()
    pid = supervisor(box)

    async def work() -> BaseException:
        running = asyncio.ensure_future(
            own.engine.run_command(box.id, CommandSpec(argv=("sh", "-c", "echo up > up; sleep 1000")))
        )
        while not (await own.engine.files(box.id, "list", path="/workspace"))[1].count(b"/up"):
            await asyncio.sleep(0.05)
        for victim in parts(pid)[name]:
            kill(victim)
        (error,) = await asyncio.gather(running, return_exceptions=True)
        assert isinstance(error, BaseException)
        return error

    error = own.run(work())
    assert isinstance(error, SandboxError)
    assert (error.code, error.status) == ("sandbox_stopped", 409)
    own.run(ended(box))
    assert box.reason is StopReason.FAULT
    with pytest.raises(SandboxError, match="stopped"):
        own.sh(box, "true")
    assert own.sh(own.new(), "echo next").stdout == b"next\n"
    own.close()


def test_stop_returns_when_nothing_is_left(own: Boxes, nothing_left: None) -> None:
    box = own.new()
    own.sh(box, "sleep 1000 &")
    pid = supervisor(box)
    assert box.lobby is not None
    name = box.lobby.link.agent.name
    pids = descendants([pid])
    assert len(pids) >= 3  # runsc, its gofer and its sandbox
    own.run(own.engine.stop(box.id))
    assert box.state is State.STOPPED
    assert not [one for one in (pid, *pids) if state(one) not in ("", "Z", "X")]
    assert not [line for line in leavings() if name in line]
    own.close()


CLIENT = """
import asyncio, sys
sys.path.insert(0, {folder!r})
from box_help import Boxes
from proctor.core.sandbox import NetworkRules

boxes = Boxes(isolation="gvisor", spare=1)
made = [boxes.new(), boxes.new(network=NetworkRules(True, ("example.org",)))]
for box in made:
    boxes.sh(box, "sleep 1000 &")
print(*[box.lobby.link.agent.process.pid for box in made], flush=True)
boxes.run(asyncio.sleep(1000))
"""


@pytest.mark.parametrize("supervisors", [False, True], ids=["", "with its supervisors"])
def test_a_client_that_is_killed_leaves_nothing(rooms: Runsc, supervisors: bool) -> None:
    folder = str(Path(__file__).parent.parent / "sandboxes")
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT.format(folder=folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        os.kill(process.pid, signal.SIGSTOP)
        for pid in pids if supervisors else []:
            kill(pid)
        process.kill()
        process.wait()
    if supervisors:
        assert not gone(lambda: [line for line in leavings(process.pid) if line.startswith("process")])

    def left() -> list[str]:
        if supervisors:  # groups without a guard are for the next engine
            Boxes(spare=0).close()
        return leavings(process.pid)

    assert not gone(left)


def test_many_lives_leave_descriptors_as_they_were(own: Boxes) -> None:
    def cycle() -> None:
        box = own.new(network=NetworkRules(True, ("example.org",)))
        own.sh(box, "true")
        own.run(own.engine.delete(box.id))

    cycle()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        cycle()
    assert len(os.listdir("/proc/self/fd")) - before <= 24  # a spare that is being made
    own.close()


def test_a_forked_child_lets_them_live(own: Boxes, nothing_left: None) -> None:
    """A child that ends, as a data loader's worker does, ends no sandbox of its parent's."""
    box = own.new()
    pid = os.fork()
    if pid == 0:
        own.engine.forget()
        os._exit(0)
    os.waitpid(pid, 0)
    assert own.sh(box, "echo alive").stdout == b"alive\n"
    own.close()
