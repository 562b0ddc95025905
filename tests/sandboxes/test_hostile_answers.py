"""What a sandbox whose pid 1 is its programs' may answer: whoever asked is told, in time, and no more is kept than there may be."""

from __future__ import annotations

import asyncio
import io
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from box_help import Boxes

from proctor.client import embedded_files
from proctor.core.errors import FrameError, InputError
from proctor.core.sandbox import SandboxError, SandboxSpec
from proctor.engine import roots
from proctor.engine.room import Room
from proctor.engine.sandbox import Sandbox
from proctor.guest import protocol
from proctor.images.rootfs import Rootfs

COMMAND = {"keep": 100, "argv": ["true"]}
ENDED = {"c": 1, "exit": 0, "signal": None, "timed_out": False, "killed": False, "wall_ns": 5, "kept": [3, 0], "written": [3, 0]}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "body"),
    [({"kept": [5, 0]}, b"abc"), ({"exit": 256}, b"abc"), ({"written": None}, b"abc"), ({"wall_ns": -1}, b"abc")],
)
def test_an_end_that_does_not_fit_is_one_for_whoever_waits(changes: dict[str, Any], body: bytes) -> None:
    async def work() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            room = Room(ours, 1)
            theirs.sendall(protocol.pack(protocol.READY, {}))
            await room.ready()
            starting = asyncio.ensure_future(room.start(COMMAND, b"", None, lambda running: None))
            await asyncio.to_thread(
                theirs.recv, 1 << 16
            )  # the request: 1 is the command's own number, and 2 this one's
            theirs.sendall(protocol.pack(protocol.ANSWER, {"n": 2}))
            running = await starting
            theirs.sendall(protocol.pack(protocol.ENDED, ENDED | changes, body))
            with pytest.raises(SandboxError, match="nonsense"):
                await asyncio.wait_for(running.done, 30)
            room.close()

    asyncio.run(work())


def test_an_answer_without_what_is_due_is_no_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class Files(embedded_files.EmbeddedFiles):
        @property
        def engine(self) -> Any:
            return SimpleNamespace(files=self.answer)

        async def answer(self, *args: Any, **header: Any) -> tuple[dict[str, Any], bytes]:
            return {}, b""

    files = Files()
    for asked in (
        files.write_file("s", "a", b"x", None),
        files.write_file("s", "a", bytes(3 << 20), None),
        files.read_file("s", "a", 10),
        files.begin_read("s", "a"),
        files.stat_file("s", "a", link=False),
    ):
        with pytest.raises(FrameError, match="a sandbox"):
            asyncio.run(asked)
    row = {"path": "y" * (1 << 17), "kind": "other", "size": 1, "mode": 1, "mtime_ns": 1}
    with pytest.raises(FrameError, match="no text"):
        embedded_files._file(row)


def test_a_snapshot_has_a_bound_and_an_end_that_hang_on_no_word_of_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(bytes(100))
        source = io.BufferedReader(roots._Bounded(ours, 60), 40)
        assert source.read(40) == bytes(40)
        with pytest.raises(InputError, match="more files than it may have"):
            source.read(40)
    monkeypatch.setattr(roots, "ANSWER_S", 0.2)

    kept: list[socket.socket] = []

    async def ask(name: str, *, give: list[socket.socket], **header: Any) -> None:
        kept.extend(sock.dup() for sock in give)  # the other end stays open

    async def answer(asked: None, seconds: float) -> tuple[dict[str, Any], bytes]:
        return {}, b""

    class Store:
        def snapshot(self, source: Any, **about: Any) -> Any:
            return source.read()  # which waits for the end

        def snapshot_info(self, record: Any) -> Any:
            return record

    room: Any = SimpleNamespace(ask=ask, answer=answer)
    made = roots.Roots(SimpleNamespace(), Store())  # type: ignore[arg-type]
    begun = time.monotonic()
    work = made.snapshot(room, SandboxSpec(disk_mib=16), Rootfs(), name=None, labels={}, retention_days=None)
    assert asyncio.run(asyncio.wait_for(work, 60)) == b""
    assert time.monotonic() - begun < 50
    for sock in kept:
        sock.close()


def test_what_lies_on_a_root_of_equal_content_stays() -> None:
    told: list[str] = []
    made = roots.Roots(SimpleNamespace(), let_go=told.append)  # type: ignore[arg-type]
    first, second = (
        roots.Root(SimpleNamespace(digest="same", record=SimpleNamespace(id=name)), None)  # type: ignore[arg-type]
        for name in ("one", "two")
    )
    made._held |= {"one": first, "two": second}
    made._forget(first)
    assert told == []
    made._forget(second)
    assert told == ["same"]


def test_its_seconds_are_those_of_now(boxes: Boxes, box: Sandbox) -> None:
    boxes.sh(box, "python3 -c 'while __import__(\"time\").process_time() < 0.5: pass'")
    if box.group is None or not box.group.meter.cpu:
        pytest.skip("this host has no meter of a sandbox's CPU time")
    assert box.info().cpu_seconds >= 0.5
