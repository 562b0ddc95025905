"""Sandboxes behind gVisor: what a sandbox promises holds there too, and the wall is gVisor's."""

from __future__ import annotations

import asyncio
import http.server
import os
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_help import Boxes

from proctor.core.errors import IsolationUnavailable
from proctor.core.sandbox import CommandSpec, NetworkRules, SandboxError, SandboxSpec, State, StopReason
from proctor.engine.sandbox import Sandbox
from proctor.images.store import Store
from proctor.isolation import runsc

PATIENCE = 120.0


@pytest.fixture(scope="module")
def boxes(rooms: runsc.Runsc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    store = Store(tmp_path_factory.mktemp("store"))
    found = Boxes(isolation="gvisor", store=store)
    found.store = store  # type: ignore[attr-defined]
    yield found
    found.close()


@pytest.fixture
def box(boxes: Boxes) -> Iterator[Sandbox]:
    made = boxes.new()
    yield made
    boxes.run(boxes.engine.delete(made.id))


async def ended(box: Sandbox) -> None:
    async with asyncio.timeout(PATIENCE):
        while box.state is State.RUNNING:
            await asyncio.sleep(0.02)
        assert box.ending is not None
        await box.ending


# ---------------------------------------------------------------- commands and files


def test_its_kernel_is_not_the_hosts(boxes: Boxes, box: Sandbox) -> None:
    assert boxes.command(box, "uname", "-r").stdout.decode().strip() != os.uname().release
    assert boxes.command(box, "uname", "-n").stdout == b"sandbox\n"


def test_commands_as_in_a_jail(boxes: Boxes, box: Sandbox) -> None:
    out = boxes.sh(box, "pwd; cat; echo err >&2; exit 3", stdin=b"in\n", env={"X": "y"})
    assert (out.exit_code, out.stdout, out.stderr) == (3, b"/workspace\nin\n", b"err\n")
    assert boxes.command(box, "printf", "%s", "$HOME").stdout == b"$HOME"
    assert boxes.command(box, "no-such-command").exit_code == 127
    warm = boxes.python(box, "import sys; print(sys.argv[1:], input())", "a", stdin=b"line\n")
    assert warm.stdout == b"['a'] line\n"
    late = boxes.sh(box, "setsid sleep 1000 & sleep 1000", timeout_s=0.5)
    assert (late.timed_out, late.exit_code) == (True, None)
    assert boxes.sh(box, "! grep -qx sleep /proc/[0-9]*/comm").exit_code == 0  # all that came from it is gone


def test_a_command_that_goes_on_is_fed_read_and_killed(boxes: Boxes, box: Sandbox) -> None:
    seen = bytearray()

    async def talk() -> int | None:
        heard = asyncio.Event()

        def on_output(stream: int, data: bytes) -> None:
            seen.extend(data)
            heard.set()

        argv = ("python3", "-uc", "while True: print(int(input()) * 2)")
        running = await boxes.engine.start_command(
            box.id, CommandSpec(argv=argv, stdin_open=True, timeout_s=None, keep=None), on_output
        )
        await boxes.engine.write_stdin(box.id, running.number, b"21\n")
        await asyncio.wait_for(heard.wait(), PATIENCE)
        await boxes.engine.kill(box.id, running.number, 9)
        return (await running.done).exit_code

    assert boxes.run(talk()) == -9
    assert seen == b"42\n"


def test_files_as_in_a_jail(boxes: Boxes, box: Sandbox) -> None:
    boxes.file(box, "write", b"x" * 100_000, path="a/b/c", mode=0o640)
    assert boxes.read(box, "/workspace/a/b/c") == b"x" * 100_000
    assert boxes.sh(box, "wc -c < a/b/c; ln -s /proc/1/environ a/link; mkfifo a/pipe").stdout == b"100000\n"
    assert boxes.file(box, "stat", path="a/b/c")[0]["info"]["mode"] == 0o640
    listing = boxes.file(box, "list", path="/workspace", depth=3)[1]
    assert [name in listing for name in (b"a/b/c", b"a/link", b"a/pipe")] == [True] * 3
    for path in ("a/link", "a/pipe", "/proc/self/fd/0", "/proc/1/environ", "/proc/version"):
        with pytest.raises(SandboxError):
            boxes.read(box, path)
    boxes.file(box, "rename", path="a/b", to="moved")
    boxes.file(box, "remove", path="a", recursive=True)
    assert boxes.sh(box, "echo *").stdout == b"moved\n"
    assert boxes.sh(box, "cd moved && test -f c && pwd").stdout == b"/workspace/moved\n"


# ---------------------------------------------------------------- the wall


ATTEMPTS = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)

def call(*args):
    if libc.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), "")

def tried(name, work):
    try:
        work()
        print("did", name)
    except OSError:
        pass

tried("kill 1", lambda: os.kill(1, 9))
tried("stop 1", lambda: os.kill(1, 19))
tried("tgkill 1", lambda: call(234, 1, 1, 9))
tried("chroot", lambda: os.chroot("/tmp"))
tried("ptrace", lambda: call(101, 16, 1, 0, 0))
tried("mount", lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, None))
tried("umount", lambda: call(166, b"/proc/1", 2))
tried("unshare", lambda: call(272, 0x20000))
tried("mknod", lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(254, 0)))
tried("limits", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)))
for path in ("/.layers", "/.low", "/.guest", "/.proctor", "/.skeleton", "/box", "/sys", "/proc/1/fd", "/proc/1/task"):
    tried(path, lambda: os.listdir(path) or call(-1))
print("end")
"""


@pytest.mark.parametrize("user", ["sandbox", "root"])
def test_nothing_of_what_made_it_is_in_reach(boxes: Boxes, box: Sandbox, user: str) -> None:
    assert box.lobby is not None
    if user == "root" and not box.lobby.link.features["root"]:
        with pytest.raises(SandboxError, match="one identity"):
            boxes.python(box, ATTEMPTS, user=user)
        return
    out = boxes.python(box, ATTEMPTS, user=user)
    assert (out.stdout, out.exit_code) == (b"end\n", 0), out
    assert boxes.sh(box, "echo alive").stdout == b"alive\n"


def test_each_has_a_container_of_its_own(boxes: Boxes, box: Sandbox) -> None:
    other = boxes.new()
    assert box.lobby is not None
    assert other.lobby is not None
    assert box.lobby.link.agent.process.pid != other.lobby.link.agent.process.pid
    boxes.sh(box, "echo secret > /tmp/f; sleep 1000 &")
    assert boxes.sh(other, "cat /tmp/f; ! grep -qx sleep /proc/[0-9]*/comm").exit_code == 0
    boxes.run(boxes.engine.delete(other.id))
    assert boxes.sh(box, "cat /tmp/f").stdout == b"secret\n"


# ---------------------------------------------------------------- limits


def test_memory_disk_and_processes_are_bounded_inside(boxes: Boxes) -> None:
    box = boxes.new(memory_mib=192, disk_mib=32)
    out = boxes.python(box, "x = []\nwhile True: x.append(bytearray(1 << 20))")
    assert (out.exit_code, out.out_of_memory) == (-9, True)
    out = boxes.sh(box, "head -c 60M /dev/zero > big || echo full; rm big; echo small > small && cat small")
    assert out.stdout == b"full\nsmall\n"
    fill = "import os\nn = 0\ntry:\n    while True:\n        if not os.fork(): os.execvp('sleep', ['sleep', '1000'])\n        n += 1\n"
    out = boxes.python(box, f"{fill}except OSError as exc:\n    print(exc.errno, n < 200)\nos.killpg(0, 9)")
    assert out.stdout == b"" or out.stdout == b"11 True\n"
    assert boxes.sh(box, "echo alive", timeout_s=60).stdout == b"alive\n"
    boxes.run(boxes.engine.delete(box.id))


def test_the_host_bounds_the_container_too(boxes: Boxes) -> None:
    box = boxes.new(memory_mib=256, vcpu=0.5)
    assert box.lobby is not None
    if "memory" not in box.lobby.link.features["outside"]:
        pytest.skip("this user may make no control group")
    assert box.group is not None
    found = {
        name: Path(path, name).read_text().split()
        for path in box.group.paths
        for name in ("memory.limit_in_bytes", "memory.max", "pids.max", "cpu.cfs_quota_us", "cpu.max")
        if Path(path, name).exists()
    }
    memory = int((found.get("memory.limit_in_bytes") or found["memory.max"])[0])
    assert 256 << 20 < memory < 3 << 30
    assert int(found["pids.max"][0]) < 30_000
    assert (found.get("cpu.cfs_quota_us") or found["cpu.max"])[0] == "50000"
    members = {int(word) for path in box.group.paths for word in Path(path, "cgroup.procs").read_text().split()}
    assert len(members) >= 3  # runsc, its gofer and its sandbox
    assert os.getpid() not in members
    boxes.run(boxes.engine.delete(box.id))


def test_what_it_uses_is_metered(boxes: Boxes, box: Sandbox) -> None:
    boxes.python(box, "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass")
    boxes.run(boxes.engine.stop(box.id))
    info = box.info()
    assert info.cpu_seconds > 0.25
    assert info.cost_micros > 0


def test_a_lease_ends_it(boxes: Boxes) -> None:
    box = boxes.new(timeout_seconds=1)
    assert box.room is not None
    boxes.run(ended(box))
    assert box.reason is StopReason.LEASE
    with pytest.raises(SandboxError, match="stopped"):
        boxes.sh(box, "true")


# ---------------------------------------------------------------- snapshots


@pytest.mark.parametrize("target", ["gvisor", "jail"])
def test_a_snapshot_starts_others_at_either_level(boxes: Boxes, box: Sandbox, target: str) -> None:
    boxes.sh(box, "mkdir -p d/e old; echo keep > d/e/f; echo x > old/x; ln -s d/e/f link; chmod 600 d/e/f")
    boxes.sh(box, "sleep 1000 &")
    first = boxes.run(boxes.engine.snapshot(box.id, name="first"))
    assert boxes.sh(box, "cat d/e/f").stdout == b"keep\n"  # it goes on
    second = boxes.new(isolation=target, snapshot=first.id)
    assert boxes.sh(second, "cat link; id -u; test -O d/e/f && echo mine >> d/e/f; rm -r old; mkdir old; echo y > old/y; rm link").exit_code == 0  # fmt: skip
    again = boxes.run(boxes.engine.snapshot(second.id))
    for level in ("gvisor", "jail"):
        third = boxes.new(isolation=level, snapshot=again.id)
        assert (
            boxes.sh(third, "cat d/e/f; echo old/*; test -e link || echo no link").stdout
            == b"keep\nmine\nold/y\nno link\n"
        )
        assert boxes.file(third, "stat", path="d/e/f")[0]["info"]["mode"] == 0o600
        boxes.run(boxes.engine.delete(third.id))
    boxes.run(boxes.engine.delete(second.id))


# ---------------------------------------------------------------- network


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 20))
        self.end_headers()
        self.wfile.write(b"page" * (1 << 18))

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made.server_address[1]
    made.shutdown()
    thread.join()
    made.server_close()


def asks(server: int) -> str:
    """A program that gets the page through the proxy."""
    return textwrap.dedent(
        f"""
        import socket, sys
        try:
            s = socket.create_connection(("127.0.0.1", 3128), 30)
            s.sendall(b"GET http://127.0.0.1:{server}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{server}\\r\\n\\r\\n")
            data = b""
            while piece := s.recv(1 << 16):
                data += piece
            print(data.split(b" ")[1].decode(), data.count(b"page"))
        except OSError as exc:
            print("no", exc.errno)
        """
    )


def test_the_network_is_what_the_rules_name(boxes: Boxes, box: Sandbox, server: int) -> None:
    ask = asks(server)
    look = "import socket, sys\ntry: print(socket.getaddrinfo(sys.argv[1], 80)[0][4][0])\nexcept OSError: print('no')"
    assert boxes.python(box, ask).stdout == b"no 111\n"
    boxes.run(boxes.engine.set_network(box.id, NetworkRules(True, (f"127.0.0.1:{server}", "a.example"))))
    assert boxes.python(box, ask).stdout == b"200 262144\n"
    assert boxes.python(box, look, "a.example").stdout == b"127.0.0.1\n"
    assert boxes.python(box, look, "b.example").stdout == b"no\n"
    boxes.run(boxes.engine.set_network(box.id, NetworkRules(True, ("example.org",))))
    assert boxes.python(box, ask).stdout.startswith(b"403 ")
    told = {(row["kind"], row["host"], row["decision"]) for row in boxes.engine.network_attempts(box.id)}
    assert told >= {("http", "127.0.0.1", "allow"), ("http", "127.0.0.1", "deny"), ("dns", "b.example", "deny")}
    boxes.run(boxes.engine.set_network(box.id, NetworkRules()))
    assert boxes.python(box, ask).stdout == b"no 111\n"


def test_what_passes_on_connections_comes_back_when_it_is_killed(boxes: Boxes, server: int) -> None:
    box = boxes.new(network=NetworkRules(True, (f"127.0.0.1:{server}",)))
    assert box.lobby is not None
    if not box.lobby.link.features["root"]:
        pytest.skip("there is no root in this host's sandboxes")
    boxes.python(box, "import os\nos.kill(-1, 9)", user="root")
    end, out = time.monotonic() + PATIENCE, b""
    while not out.startswith(b"200 ") and time.monotonic() < end:
        out = boxes.python(box, asks(server)).stdout
    assert out == b"200 262144\n"
    boxes.run(boxes.engine.delete(box.id))


# ---------------------------------------------------------------- where there is none


def test_a_level_that_is_not_there_is_an_error_and_no_step_down(
    boxes: Boxes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(runsc, "_FOLDERS", (str(tmp_path / "other"),))
    own = Boxes()
    try:
        for level, words in (("gvisor", "apt-get install runsc"), ("degraded", "not there for sandboxes")):
            with pytest.raises(IsolationUnavailable, match=words):
                own.new(isolation=level, name="one")
        assert not own.engine.queue.taken
        assert own.sh(own.new(name="one"), "echo jail").stdout == b"jail\n"  # the name is free again
    finally:
        own.close()


def test_a_gpu_is_refused_by_its_name(boxes: Boxes) -> None:
    with pytest.raises(SandboxError, match="gpu: isolation 'gvisor' gives no GPU") as caught:
        boxes.new(gpu=1)
    assert caught.value.code == "no_gpu"


def test_a_spec_that_names_nothing_is_a_jail(boxes: Boxes) -> None:
    box = boxes.run(boxes.engine.create(SandboxSpec(memory_mib=128, disk_mib=32)))
    assert box.lobby is boxes.engine.rooms.lobby
    boxes.run(boxes.engine.delete(box.id))
