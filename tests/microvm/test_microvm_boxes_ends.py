"""Sandboxes in virtual machines: whatever is killed, an error says so and nothing is left on the host."""

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
from test_microvm_boxes import Machines, ended

from proctor import Runtime
from proctor.client.embedded import EmbeddedBackend
from proctor.core.sandbox import CommandSpec, NetworkRules, SandboxError, State, StopReason
from proctor.engine.sandbox import Sandbox
from proctor.isolation.qemu import Qemu

PATIENCE = 600


@pytest.fixture
def own(rooms: Qemu) -> Boxes:
    return Machines(isolation="microvm", spare=0)


def supervisor(box: Sandbox) -> int:
    assert box.lobby is not None
    return box.lobby.link.agent.process.pid


def parts(pid: int) -> dict[str, list[int]]:
    """Processes of a machine on the host."""
    below = descendants([pid])
    found = [one for one in below if b"qemu-system" in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")[0]]
    return {"supervisor": [pid], "qemu": found, "disks": [one for one in below if one not in found]}


@pytest.mark.parametrize("name", ["qemu", "supervisor", "disks"])
def test_a_part_that_is_killed_ends_the_sandbox_and_says_so(own: Boxes, nothing_left: None, name: str) -> None:
    box = own.new()
    pid = supervisor(box)

    async def work() -> BaseException:
        many = "cat /usr/bin/* > /dev/null; sleep 1000"  # which reads the disk
        running = asyncio.ensure_future(
            own.engine.run_command(box.id, CommandSpec(argv=("sh", "-c", f"echo up > up; {many}")))
        )
        while not (await own.engine.files(box.id, "list", path="/workspace"))[1].count(b"/up"):
            await asyncio.sleep(0.05)
        found = parts(pid)
        assert (len(found["qemu"]), len(found["disks"])) == (1, 2)
        for victim in found[name]:
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
    own.close()


def test_stop_returns_when_nothing_is_left(own: Boxes, nothing_left: None) -> None:
    before = len(os.listdir("/proc/self/fd"))
    box = own.new(network=NetworkRules(True, ("example.org",)))
    own.sh(box, "sleep 1000 &")
    pid = supervisor(box)
    assert box.lobby is not None
    name = box.lobby.link.agent.name
    pids = descendants([pid])
    assert len(pids) == 3
    own.run(own.engine.stop(box.id))
    assert box.state is State.STOPPED
    assert not [one for one in (pid, *pids) if state(one) not in ("", "Z", "X")]
    assert not [line for line in leavings() if name in line]
    own.close()
    assert len(os.listdir("/proc/self/fd")) <= before


CLIENT = """
import asyncio, sys
sys.path[:0] = {folders!r}
from box_help import Boxes

boxes = Boxes(isolation="microvm", spare=1)
box = boxes.new()
print(box.lobby.link.agent.process.pid, flush=True)
boxes.run(asyncio.sleep(1000))
"""


@pytest.mark.parametrize("supervisors", [False, True], ids=["", "with its supervisors"])
def test_a_client_that_is_killed_leaves_nothing(rooms: Qemu, supervisors: bool) -> None:
    folders = [str(Path(__file__).parent.parent / "sandboxes")]
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT.format(folders=folders)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 1
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


def test_the_sdk_is_the_same(rooms: Qemu, tmp_path: Path, nothing_left: None) -> None:
    backend = EmbeddedBackend(store=None, ledger=None, spare=0)
    try:
        runtime = Runtime(backend=backend, isolation="microvm")
        with runtime.sandboxes.create(memory_mib=128, timeout_seconds=3600) as sbx:
            assert sbx.info.isolation == "microvm"
            run = sbx.exec("cat; uname -r; exit 3", stdin="in\n", timeout_ms=240_000)
            assert run.exit_code == 3
            assert run.stdout.splitlines()[0] == "in"
            assert run.stdout.splitlines()[1] != os.uname().release
            kinds = [event.type for event in sbx.exec_stream("echo one; echo two >&2")]
            assert (kinds[0], kinds[-1]) == ("start", "exit")
            process = sbx.spawn(["python3", "-c", "while True: print(int(input()) * 2, flush=True)"], stdin="pipe")
            output = process.output()
            process.write("21\n")
            assert next(output).data == "42\n"
            process.kill("SIGKILL")
            assert process.wait().exit_code == -9
            assert sbx.exec(["sleep", "1000"], timeout_ms=300).timed_out
            (tmp_path / "in").mkdir()
            (tmp_path / "in" / "data").write_bytes(b"x" * 3_000_000)
            sbx.files.upload(str(tmp_path / "in"), "/workspace/in")
            sbx.files.download("/workspace/in", str(tmp_path / "out"))
            assert (tmp_path / "out" / "data").read_bytes() == b"x" * 3_000_000
            assert not sbx.files.exists("none")
    finally:
        backend.close()


def test_the_command_line(rooms: Qemu) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proctor.cli.main", "sandbox", "run", "--isolation", "microvm", "--", "uname", "-n"],
        env={**os.environ, "PROCTOR_ISOLATION": "gvisor"}, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "sandbox\n"), done.stderr
