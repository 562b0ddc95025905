"""What joins a machine to its host, without a machine: streams over one port, and the disk."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.guest import blocks, channels
from proctor.isolation import erofs


class Joined:
    """Two relays, each on a thread, and the ends of the control stream that they join."""

    def __init__(self) -> None:
        self.engine, control = socket.socketpair()
        self.agent, inside = socket.socketpair()
        self.port, there = socket.socketpair()
        self.said: list[bytes] = []
        self.relays = [
            channels.Relay(self.port.fileno(), control, inside=False, told=self.said.append),
            channels.Relay(there.fileno(), inside, inside=True, told=self.said.append),
        ]
        self.over = threading.Event()
        self.kept = [control, inside, there]
        self.threads = [threading.Thread(target=self.turn, args=(relay,)) for relay in self.relays]
        for thread in self.threads:
            thread.start()

    def turn(self, relay: channels.Relay) -> None:
        while not self.over.is_set():
            relay.turn(5)

    def close(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        for sock in (self.engine, self.agent, self.port, *self.kept):
            sock.close()

    def pipes(self) -> tuple[int, int, int, int]:
        """As an engine gives two to an agent: the engine's ends, to write and to read, then the agent's, to read and to write."""
        read, write = os.pipe()
        back, forth = os.pipe()
        self.engine.sendall(b"before")
        socket.send_fds(self.engine, [b"p"], [read, forth])
        os.close(read)
        os.close(forth)
        self.agent.settimeout(30)
        assert self.agent.recv(6, socket.MSG_WAITALL) == b"before"
        byte, fds, _, _ = socket.recv_fds(self.agent, 1, 2)
        assert byte == b"p"
        assert len(fds) == 2
        return write, back, fds[0], fds[1]


@pytest.fixture
def joined() -> Iterator[Joined]:
    both = Joined()
    yield both
    both.close()


def _fill(fd: int) -> None:
    while True:
        os.write(fd, b"x" * 1000)


def _flood(sock: socket.socket) -> None:
    while True:
        sock.sendall(b"x" * 1000)


def _turns(relay: channels.Relay) -> None:
    for _ in range(1000):
        relay.turn(50)


def test_streams_come_whole_both_ways(joined: Joined) -> None:
    data = os.urandom(3_000_000)
    for here, there in ((joined.engine, joined.agent), (joined.agent, joined.engine)):
        sender = threading.Thread(target=here.sendall, args=(data,))
        sender.start()
        got = b""
        while len(got) < len(data):
            got += there.recv(1 << 20)
        sender.join()
        assert got == data
    joined.engine.shutdown(socket.SHUT_WR)
    assert joined.agent.recv(1) == b""


def test_pipes_pass_data_ends_and_readers_that_go_away(joined: Joined) -> None:
    write, back, read, forth = joined.pipes()
    os.write(write, b"into")
    assert os.read(read, 10) == b"into"
    os.write(forth, b"out")
    assert os.read(back, 10) == b"out"
    os.close(write)
    assert os.read(read, 10) == b""
    os.close(back)
    with pytest.raises(BrokenPipeError):
        _fill(forth)
    os.close(read)
    os.close(forth)


def test_a_slow_reader_holds_up_its_writer_alone(joined: Joined) -> None:
    write, back, read, forth = joined.pipes()
    os.set_blocking(write, False)
    sent, quiet = 0, 0
    while quiet < 50:
        try:
            sent += os.write(write, b"x" * 65536)
            quiet = 0
        except BlockingIOError:
            quiet += 1
            threading.Event().wait(0.01)
    assert sent <= channels.WINDOW + 4 * 65536 + channels.PIECE
    joined.engine.sendall(b"past it")
    assert joined.agent.recv(7, socket.MSG_WAITALL) == b"past it"
    got = 0
    while got < sent:
        got += len(os.read(read, 1 << 20))
    assert got == sent
    for fd in (write, back, read, forth):
        os.close(fd)


def test_sockets_pass_and_others_over_them(joined: Joined) -> None:
    """As a sandbox's doors do: over a socket that came, another one comes for each connection."""
    pairs = [socket.socketpair(socket.AF_UNIX, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]
    (door, names), theirs = zip(*pairs, strict=True)
    socket.send_fds(joined.engine, [b"p"], [sock.fileno() for sock in theirs])
    joined.agent.settimeout(30)
    made = [socket.socket(fileno=fd) for fd in socket.recv_fds(joined.agent, 1, 4)[1]]
    one, two = socket.socketpair()
    for sock in (door, names, one, *made):
        sock.settimeout(30)
    made[0].sendall(b"c")
    assert door.recv(1) == b"c"
    door.sendall(b"first")
    socket.send_fds(door, [b"c"], [two.fileno()])
    assert made[0].recv(5, socket.MSG_WAITALL) == b"first"
    inner = socket.socket(fileno=socket.recv_fds(made[0], 1, 1)[1][0])
    inner.settimeout(30)
    for sock in (two, *theirs):
        sock.close()
    one.sendall(b"request")
    one.shutdown(socket.SHUT_WR)
    assert inner.recv(7, socket.MSG_WAITALL) == b"request"
    assert inner.recv(1) == b""
    inner.sendall(b"answer")  # the other way is still open
    inner.close()
    assert one.recv(6, socket.MSG_WAITALL) == b"answer"
    assert one.recv(1) == b""
    for data in (b"a" * 100, b"b", b"c" * 4000):
        names.send(data)
    assert [len(made[1].recv(9000)) for _ in range(3)] == [100, 1, 4000]
    names.close()
    assert made[1].recv(1) == b""
    door.close()
    assert made[0].recv(1) == b""
    with pytest.raises(BrokenPipeError):
        _flood(made[0])
    for sock in (one, *made):
        sock.close()
    end = time.monotonic() + 30
    while any(len(relay.sources) + len(relay.sinks) > 2 for relay in joined.relays) and time.monotonic() < end:
        time.sleep(0.01)
    assert [len(relay.sources) + len(relay.sinks) for relay in joined.relays] == [2, 2]


@pytest.mark.parametrize(
    "message",
    [
        channels.HEAD.pack(99, 0, 0),
        channels.HEAD.pack(channels.GIVEN, 2, 0),
        channels.HEAD.pack(channels.PASSED, channels.INTO, 4) + struct.pack(">I", 1),
        channels.HEAD.pack(channels.DATA, channels.OUT_OF, 0),  # which would be counted nowhere
        (channels.HEAD.pack(channels.DATA, channels.OUT_OF, 60_000) + bytes(60_000)) * 40,
    ],
    ids=["unknown", "pipes from inside", "more passed on than sent", "nothing", "more than asked for"],
)
def test_a_machine_that_breaks_the_rules_is_ended(message: bytes) -> None:
    engine, control = socket.socketpair()
    port, there = socket.socketpair()
    relay = channels.Relay(port.fileno(), control, inside=False, told=lambda _: None)
    there.setblocking(True)

    def send() -> None:
        with contextlib.suppress(OSError):
            there.sendall(message)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(channels.Broken):
        _turns(relay)
    port.close()
    sender.join()
    for sock in (engine, control, there):
        sock.close()


def test_what_others_may_not_look_into_is_empty_on_the_disk(tmp_path: Path) -> None:
    """Root of a machine is not root of the host: a jail's programs find nothing in such a directory either."""
    shut, open_ = tmp_path / "shut", tmp_path / "open"
    for folder in (shut, open_):
        folder.mkdir()
        (folder / "rule").write_text("secret")
    shut.chmod(0o700)
    walk = erofs._Walk({})
    found = {path.name: walk.node(str(path), f"/{path.name}") for path in (shut, open_)}
    if os.geteuid() == 0:  # what an ordinary user owns is shown to others as it is to its owner
        assert found["shut"] is not None
        assert found["shut"].children == {}
    assert found["open"] is not None
    assert set(found["open"].children or ()) == {b"rule"}


def test_the_disk_is_the_hosts_files(tmp_path: Path) -> None:
    """An index in front, then each file's own content; one that was changed since is an error, never other bytes."""
    top = tmp_path / "top"
    (top / "hidden").mkdir(parents=True)
    contents = {"a": os.urandom(10_000), "b": b"small", "hidden/c": b"secret " * 100, "d": b""}
    for name, content in contents.items():
        (top / name).write_bytes(content)
    (top / "closed").write_bytes(b"nobody may read this")
    (top / "closed").chmod(0o600 if os.geteuid() == 0 else 0)
    plan = {"binds": [[str(top), "/top"]], "links": [["top/a", "/link"]], "files": {"/etc/x": "own"}, "dirs": [], "covers": {"/top/hidden": []}}  # fmt: skip
    folder = tmp_path / "disk"
    folder.mkdir()
    size = erofs.save(plan, {}, folder)
    disk = blocks.Disk.within(str(folder), size)
    whole = disk.read(0, size)
    assert whole[1024:1028] == bytes.fromhex("e2e1f5e0")
    assert contents["a"] in whole
    assert contents["b"] in whole
    assert b"own" in whole
    assert b"secret" not in whole
    assert b"nobody may read" not in whole
    at = whole.index(contents["a"])
    assert at % blocks.BLOCK == 0
    assert disk.read(at + 5000, 100) == contents["a"][5000:5100]
    fresh = blocks.Disk.within(str(folder), size)
    (top / "a").write_bytes(os.urandom(10_000))
    with pytest.raises(OSError, match="has changed since"):
        fresh.read(at, 10)
    disk.close()
    fresh.close()
