"""Sandboxes in virtual machines: what a sandbox promises holds there too, and the wall is a machine of its own."""

from __future__ import annotations

import asyncio
import http.server
import os
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from box_help import Boxes

from proctor.core.errors import IsolationUnavailable
from proctor.core.sandbox import CommandOutcome, CommandSpec, NetworkRules, SandboxError, SandboxSpec, State, StopReason
from proctor.engine.sandbox import Sandbox
from proctor.images.store import Store
from proctor.isolation import machines, monitors, qemu

PATIENCE = 240.0


class Machines(Boxes):
    """Where programs may be 30 times slower, and others use this host."""

    def command(self, box: Sandbox, *argv: str, **options: Any) -> CommandOutcome:
        return super().command(box, *argv, **{"timeout_s": PATIENCE, **options})


@pytest.fixture(scope="module")
def boxes(rooms: qemu.Qemu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    store = Store(tmp_path_factory.mktemp("store"))
    found = Machines(isolation="microvm", store=store, spare=0)
    found.store = store  # type: ignore[attr-defined]
    yield found
    found.close()


@pytest.fixture(scope="module")
def common(boxes: Boxes, saved: Path) -> Iterator[Sandbox]:
    """A sandbox for tests that leave it as it was, but for files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(saved))
        made = boxes.new(timeout_seconds=3600)
    yield made
    boxes.run(boxes.engine.delete(made.id))


async def ended(box: Sandbox) -> None:
    async with asyncio.timeout(PATIENCE):
        while box.state is State.RUNNING:
            await asyncio.sleep(0.02)
        assert box.ending is not None
        await box.ending


# ---------------------------------------------------------------- commands and files


def test_commands_as_in_a_jail(boxes: Boxes, common: Sandbox) -> None:
    out = boxes.sh(common, "uname -n; uname -r; pwd; cat; echo err >&2; exit 3", stdin=b"in\n", env={"X": "y"})
    assert common.lobby is not None
    release = common.lobby.link.features["kernel"]
    assert release != os.uname().release
    assert (out.exit_code, out.stderr) == (3, b"err\n")
    assert out.stdout.decode() == f"sandbox\n{release}\n/workspace\nin\n"
    assert boxes.command(common, "printf", "%s", "$HOME").stdout == b"$HOME"
    assert boxes.command(common, "no-such-command").exit_code == 127
    warm = boxes.python(common, "import sys; print(sys.argv[1:], input())", "a", stdin=b"line\n")
    assert warm.stdout == b"['a'] line\n"
    late = boxes.sh(common, "setsid sleep 1000 & sleep 1000", timeout_s=0.5)
    assert (late.timed_out, late.exit_code) == (True, None)
    assert boxes.sh(common, "! grep -qx sleep /proc/[0-9]*/comm").exit_code == 0  # all that came from it is gone


def test_a_command_that_goes_on_is_fed_read_and_killed(boxes: Boxes, common: Sandbox) -> None:
    seen = bytearray()

    async def talk() -> int | None:
        heard = asyncio.Event()

        def on_output(stream: int, data: bytes) -> None:
            seen.extend(data)
            heard.set()

        argv = ("python3", "-uc", "while True: print(int(input()) * 2)")
        running = await boxes.engine.start_command(
            common.id, CommandSpec(argv=argv, stdin_open=True, timeout_s=None, keep=None), on_output
        )
        await boxes.engine.write_stdin(common.id, running.number, b"21\n")
        await asyncio.wait_for(heard.wait(), PATIENCE)
        await boxes.engine.kill(common.id, running.number, 9)
        return (await running.done).exit_code

    assert boxes.run(talk()) == -9
    assert seen == b"42\n"


def test_files_as_in_a_jail(boxes: Boxes, common: Sandbox) -> None:
    data = os.urandom(1 << 20)
    boxes.file(common, "write", data, path="a/b/c", mode=0o640)
    assert boxes.read(common, "/workspace/a/b/c") == data
    assert boxes.sh(common, "wc -c < a/b/c; ln -s /proc/1/environ a/link; mkfifo a/pipe").stdout == b"1048576\n"
    assert boxes.file(common, "stat", path="a/b/c")[0]["info"]["mode"] == 0o640
    listing = boxes.file(common, "list", path="/workspace/a", depth=3)[1]
    assert [name in listing for name in (b"a/b/c", b"a/link", b"a/pipe")] == [True] * 3
    for path in ("a/link", "a/pipe", "/proc/self/fd/0", "/proc/1/environ"):
        with pytest.raises(SandboxError):
            boxes.read(common, path)
    boxes.file(common, "rename", path="a/b", to="moved")
    boxes.file(common, "remove", path="a", recursive=True)
    assert boxes.sh(common, "test ! -e a && cd moved && test -f c && pwd").stdout == b"/workspace/moved\n"
    boxes.file(common, "remove", path="moved", recursive=True)


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

for number in (9, 19):  # root's reach nobody
    tried("kill 1", lambda: os.kill(1, number) or (os.getuid() == 0 and call(-1)))
tried("chroot", lambda: os.chroot("/tmp"))
tried("ptrace", lambda: call(101, 16, 1, 0, 0))
tried("mount", lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, None))
tried("umount", lambda: call(166, b"/proc", 2))
tried("unshare", lambda: call(272, 0x20000))
tried("mknod", lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(254, 0)))
tried("vsock", lambda: call(41, 40, 1, 0))
tried("limits", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)))
for path in ("/.layers", "/.guest", "/.proctor", "/.skeleton", "/box", "/sys", "/modules", "/proc/1/fd"):
    tried(path, lambda: os.listdir(path) or call(-1))
print(sorted(os.listdir("/dev")))
"""
DEVICES = ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]


@pytest.mark.parametrize("user", ["sandbox", "root"])
def test_nothing_of_what_made_it_is_in_reach(boxes: Boxes, common: Sandbox, user: str) -> None:
    out = boxes.python(common, ATTEMPTS, user=user)
    assert (out.stdout.decode(), out.exit_code) == (f"{DEVICES}\n", 0), out
    assert boxes.sh(common, "echo alive").stdout == b"alive\n"


def test_each_has_a_machine_of_its_own(boxes: Boxes, common: Sandbox) -> None:
    other = boxes.new()
    assert common.lobby is not None
    assert other.lobby is not None
    assert common.lobby.link.agent.process.pid != other.lobby.link.agent.process.pid
    chance = "head -c 16 /dev/urandom | od -An -tx1; python3 -c 'import os; print(os.urandom(8).hex())'"
    boxes.sh(common, "echo secret > /tmp/f; sleep 1000 &")
    here, there = (boxes.sh(box, f"{chance}; cat /tmp/f").stdout.decode().splitlines() for box in (common, other))
    assert here[2] == "secret"
    assert len(there) == 2
    assert not set(here) & set(there)  # copies of one machine, with chance of their own
    boxes.run(boxes.engine.delete(other.id))


# ---------------------------------------------------------------- limits


def test_memory_disk_and_processes_are_bounded_inside(boxes: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines.MachineBoundary, "processes", 40)
    box = boxes.new(memory_mib=128, disk_mib=32)
    out = boxes.python(box, "x = []\nwhile True: x.append(bytearray(1 << 20))")
    assert (out.exit_code, out.out_of_memory) == (-9, True)
    out = boxes.sh(box, "head -c 60M /dev/zero > big || echo full; rm big; echo small > small && cat small")
    assert (out.stdout, out.out_of_memory) == (b"full\nsmall\n", False)
    fill = "import os, signal\nn = 0\ntry:\n    while True:\n        if not os.fork(): signal.pause()\n        n += 1\n"
    out = boxes.python(
        box, f"{fill}except OSError as exc:\n    print(exc.errno, 30 < n < 50, flush=True)\nos.killpg(0, 9)"
    )
    assert out.stdout == b"11 True\n"
    assert boxes.sh(box, "echo alive").stdout == b"alive\n"
    boxes.run(boxes.engine.delete(box.id))


def test_the_host_bounds_the_machine_too_and_meters_it(boxes: Boxes) -> None:
    box = boxes.new(vcpu=0.5)
    if box.group is None or not box.group.paths:
        pytest.skip("this user may make no control group")
    names = "memory.limit_in_bytes", "memory.max", "pids.max", "cpu.cfs_quota_us", "cpu.max"
    found = {
        name: (Path(path) / name).read_text().split()
        for path in box.group.paths
        for name in names
        if (Path(path) / name).exists()
    }
    assert int((found.get("memory.limit_in_bytes") or found["memory.max"])[0]) == 4096 + 512 << 20
    assert int(found["pids.max"][0]) == 64
    assert (found.get("cpu.cfs_quota_us") or found["cpu.max"])[0] == "50000"
    assert os.getpid() not in box.group.processes()
    assert len(box.group.processes()) == 1  # QEMU
    before = box.info().cpu_seconds
    boxes.python(box, "for i in range(300_000): pass")
    boxes.run(boxes.engine.stop(box.id))
    assert box.info().cpu_seconds > before
    assert box.info().cost_micros > 0


def test_a_lease_ends_it(boxes: Boxes) -> None:
    box = boxes.new(timeout_seconds=1)
    boxes.run(ended(box))
    assert box.reason is StopReason.LEASE
    with pytest.raises(SandboxError, match="stopped"):
        boxes.sh(box, "true")


# ---------------------------------------------------------------- images and snapshots


def test_snapshots_pass_between_machines_and_jails(boxes: Boxes, common: Sandbox) -> None:
    jail = boxes.new(isolation="jail")
    boxes.sh(
        jail, "mkdir -p d/e old/in; echo keep > d/e/f; chmod 600 d/e/f; ln d/e/f hard; echo x > old/in/x; ln -s d/e/f link; "
        "mkdir -p /opt/o; echo gone > /opt/o/f; touch /usr/local/mine; head -c 3000000 /dev/urandom > big; sha256sum big > sum",
    )  # fmt: skip
    boxes.sh(jail, "mkdir /var/r; echo root > /var/r/f; chmod 700 /var/r", user="root")
    first = boxes.run(boxes.engine.snapshot(jail.id, name="first"))
    boxes.run(boxes.engine.delete(jail.id))
    machine = boxes.new(snapshot=first.id)
    look = "cat link hard; stat -c '%a %U %h' d/e/f; sha256sum -c sum; ls /var/r 2>&1 | grep -c denied; find old /opt/o -type f"
    out = boxes.sh(machine, look)
    assert out.stdout.decode().splitlines() == [
        "keep", "keep", "600 sandbox 2", "big: OK", "1", "old/in/x", "/opt/o/f",
    ], out  # fmt: skip
    assert boxes.sh(machine, "cat /var/r/f", user="root").stdout == b"root\n"
    boxes.sh(
        machine,
        "echo mine >> d/e/f; rm -r old; mkdir old; echo y > old/y; rm link /opt/o/f /usr/local/mine; sleep 1000 &",
    )
    second = boxes.run(boxes.engine.snapshot(machine.id))
    assert boxes.sh(machine, "cat d/e/f").stdout == b"keep\nmine\n"  # it goes on
    boxes.run(boxes.engine.delete(machine.id))
    for level in ("microvm", "jail"):
        third = boxes.new(isolation=level, snapshot=second.id)
        out = boxes.sh(
            third, "cat d/e/f; find old /opt/o; test -e link -o -e /usr/local/mine || echo none; stat -c '%a %U' d/e/f"
        )
        assert out.stdout.decode().splitlines() == ["keep", "mine", "old", "old/y", "/opt/o", "none", "600 sandbox"], (
            level
        )
        assert boxes.sh(third, "cat /var/r/f", user="root").stdout == b"root\n"
        boxes.run(boxes.engine.delete(third.id))
    assert len(list((Path(os.environ["XDG_CACHE_HOME"]) / "proctor/machines").glob("*/told"))) == 1  # for all of them


def test_the_default_image_has_pip_and_no_other_package(boxes: Boxes, common: Sandbox) -> None:
    out = boxes.command(common, "python3", "-c", "import pip, site; print(pip.__name__); import pytest")
    assert out.stdout == b"pip\n"
    assert b"No module named 'pytest'" in out.stderr


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


def asks(server: int, times: int = 1) -> str:
    """A program that gets the page through the proxy, several times at once."""
    return textwrap.dedent(
        f"""
        import socket
        socks, got = [], []
        try:
            for _ in range({times}):
                s = socket.create_connection(("127.0.0.1", 3128), 200)
                s.sendall(b"GET http://127.0.0.1:{server}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{server}\\r\\n\\r\\n")
                socks.append(s)
            for s in socks:
                data = b""
                while piece := s.recv(1 << 16):
                    data += piece
                got.append((data.split(b" ")[1].decode(), data.count(b"page")))
            print(*got[0], len(set(got)))
        except OSError as exc:
            print("no", exc.errno)
        """
    )


def test_the_network_is_what_the_rules_name(boxes: Boxes, common: Sandbox, server: int) -> None:
    look = "import socket, sys\ntry: print(socket.getaddrinfo(sys.argv[1], 80)[0][4][0])\nexcept OSError: print('no')"
    assert boxes.python(common, asks(server)).stdout == b"no 111\n"
    boxes.run(boxes.engine.set_network(common.id, NetworkRules(True, (f"127.0.0.1:{server}", "a.example"))))
    assert boxes.python(common, asks(server, 5)).stdout == b"200 262144 1\n"
    assert boxes.python(common, look, "a.example").stdout == b"127.0.0.1\n"
    assert boxes.python(common, look, "b.example").stdout == b"no\n"
    boxes.run(boxes.engine.set_network(common.id, NetworkRules(True, ("example.org",))))
    assert boxes.python(common, asks(server)).stdout.startswith(b"403 ")
    told = {(row["kind"], row["host"], row["decision"]) for row in boxes.engine.network_attempts(common.id)}
    assert told >= {("http", "127.0.0.1", "allow"), ("http", "127.0.0.1", "deny"), ("dns", "b.example", "deny")}
    boxes.run(boxes.engine.set_network(common.id, NetworkRules()))
    assert boxes.python(common, asks(server)).stdout == b"no 111\n"


# ---------------------------------------------------------------- where there is none


def test_what_a_machine_has_not_is_refused_by_its_name(boxes: Boxes) -> None:
    asked: list[tuple[dict[str, Any], str, str]] = [
        ({"gpu": 1}, "no_gpu", "gpu: isolation 'microvm' gives no GPU"),
        ({"memory_mib": 8000}, "too_large", "memory_mib: a sandbox of 8000 MiB.*3584"),
        ({"disk_mib": 8000}, "too_large", "disk_mib: a sandbox of"),
        ({"vcpu": 2}, "too_large", "vcpu: "),
    ]
    before = set(boxes.engine.queue.taken)
    for fields, code, words in asked:
        with pytest.raises(SandboxError, match=words) as caught:
            boxes.run(boxes.engine.create(SandboxSpec(**{"isolation": "microvm", **fields})))
        assert caught.value.code == code
    assert set(boxes.engine.queue.taken) == before


def test_what_is_missing_is_an_error_and_no_step_down(
    boxes: Boxes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(IsolationUnavailable, match="QEMU's alone"):
        machines.find({monitors.MONITOR: "firecracker"})
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(qemu, "_FOLDERS", (str(tmp_path / "other"),))
    own = Boxes()
    try:
        with pytest.raises(IsolationUnavailable, match="apt-get install qemu-system-x86"):
            own.new(isolation="microvm", name="one")
        assert not own.engine.queue.taken
        assert own.sh(own.new(name="one"), "echo jail").stdout == b"jail\n"  # the name is free again
    finally:
        own.close()
