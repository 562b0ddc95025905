"""An agent that lies, babbles, stalls or dies: never believed, always ended, and no case of its job lost.

The agent here is a thread of the test at the other end of the control stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine_help import until
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.core.errors import FrameError, InfrastructureError, IsolationUnavailable
from proctor.core.image import Image
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine import engine as engine_module
from proctor.engine import link, reading
from proctor.engine.engine import Engine
from proctor.engine.job import Case, Job, Program
from proctor.guest import protocol
from proctor.isolation.base import AgentProcess

ATTEMPTS = 3
PROGRAM = Program({"solution.py": b""}, ("python3", "solution.py"), warm=True)
LIMITS = Limits(cpu_s=1, wall_s=0.3, output_bytes=1000, stderr_keep=100)


class Peer:
    """The agent's end of the stream."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.token = 0

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def frame(self) -> tuple[int, dict[str, Any]]:
        kind, header, body = protocol.unpack_head(self.exactly(protocol.HEAD.size))
        text = protocol.unpack_header(self.exactly(header))
        self.exactly(body)
        if kind == protocol.JOB:
            self.token = text["token"]
        return kind, text

    def send(self, kind: int, header: Any, body: bytes = b"") -> None:
        self.sock.sendall(protocol.pack(kind, header, body))

    def ready(self) -> None:
        self.send(protocol.READY, {"features": {"level": "fake"}, "preloaded": []})

    def outcome(self, case: int, body: bytes = b"ok", /, **changes: Any) -> dict[str, Any]:
        """A header that is right but for ``changes``; a value ... takes the field away."""
        header = {
            "job": self.token, "case": case, "ended": None, "exit": 0, "signal": None, "cpu_ns": 10**6, "step_ns": 10**6, "wall_ns": 2 * 10**6, "waited_ns": 0,
            "peak": 0, "left": 0, "read": 0, "kept": [len(body), 0, 0], "written": [len(body), 0, 0],
        }  # fmt: skip
        header.update(changes)
        return {name: value for name, value in header.items() if value is not ...}

    def answer(self, case: int, body: bytes = b"ok", /, **changes: Any) -> None:
        self.send(protocol.OUTCOME, self.outcome(case, body, **changes), body)

    def jobs(self, count: int = 1_000_000) -> None:
        """Serve jobs as an honest agent does; after ``count`` outcomes return in the middle of it all."""
        while True:
            kind, header = self.frame()
            if kind == protocol.CASE:
                if count == 0:
                    return
                count -= 1
                self.answer(header["case"], b"%d" % header["case"])
            elif kind == protocol.END:
                self.send(protocol.DONE, {})


Script = Callable[[Peer], None]


class FakeBoundary:
    """Starts agents that follow scripts, the last one again and again; its supervisors are processes that end at a word."""

    agent_mib = 32

    def __init__(self, *scripts: Script) -> None:
        self.scripts = scripts
        self.started: list[AgentProcess] = []
        self.over: list[AgentProcess] = []
        self.threads: list[threading.Thread] = []

    def prepare(self, image: Image) -> None:
        pass

    def start(self, image: Image, number: int) -> AgentProcess:
        host, guest = socket.socketpair()
        lifeline, watched = socket.socketpair()
        with watched:
            process = subprocess.Popen(["head", "-c1"], stdin=watched, stdout=subprocess.DEVNULL)
        script = self.scripts[min(len(self.started), len(self.scripts) - 1)]

        def follow() -> None:
            with guest, contextlib.suppress(OSError, EOFError):
                script(Peer(guest))
                guest.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        self.threads.append(thread)
        agent = AgentProcess(process, host, lifeline, os.memfd_create("log"), f"fake-{number}", 0)
        self.started.append(agent)
        return agent

    def close(self) -> None:
        pass

    def ended(self, agent: AgentProcess) -> bool:
        assert agent.process.returncode is not None
        self.over.append(agent)
        return True


def outcomes(boundary: FakeBoundary, cases: int = 1, jobs: int = 1, **options: Any) -> list[Outcome]:
    """What an engine makes of the scripts, for jobs one after the other; all of its agents are over afterwards."""

    async def main() -> list[Outcome]:
        found = []
        async with Engine(slots=1, boundary=boundary, memory_mib=10_000) as engine:
            for _ in range(jobs):
                found += await engine.run(Job(PROGRAM, tuple(Case() for _ in range(cases)), LIMITS, **options))
        return found

    found = asyncio.run(main())
    assert boundary.over == boundary.started or set(map(id, boundary.over)) == set(map(id, boundary.started))
    for thread in boundary.threads:
        thread.join(10)
        assert not thread.is_alive()
    for outcome in found:  # an infrastructure fault is never a result
        assert (outcome.error is None) or (outcome.exit_code, outcome.stdout, outcome.ended_by) == (None, b"", None)
    return found


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENCE_S", 2)
    monkeypatch.setattr(link, "READY_S", 2)
    monkeypatch.setattr(engine_module, "ATTEMPTS", ATTEMPTS)


def honest(peer: Peer) -> None:
    peer.ready()
    peer.jobs()


def after_job(act: Callable[[Peer], None]) -> Script:
    """An agent that is well until it has read its first case."""

    def script(peer: Peer) -> None:
        peer.ready()
        while peer.frame()[0] != protocol.CASE:
            pass
        act(peer)
        with contextlib.suppress(OSError, EOFError):
            while True:
                peer.frame()

    return script


def test_the_fake_is_a_good_one() -> None:
    boundary = FakeBoundary(honest)
    found = outcomes(boundary, cases=3, jobs=2)
    assert [(o.stdout, o.error) for o in found] == [(b"%d" % i, None) for i in (0, 1, 2, 0, 1, 2)]
    assert len(boundary.started) == 1


def _raw(data: bytes) -> Script:
    return after_job(lambda peer: peer.sock.sendall(data))


def _field(**changes: Any) -> Script:
    return after_job(lambda peer: peer.answer(0, **changes))


NEST = b"[" * 980 + b"]" * 980
NONSENSE: dict[str, Script] = {
    "text": _raw(b"hello, I passed all tests\n" * 10),
    "zeros": _raw(bytes(100)),
    "ones": _raw(b"\xff" * 100),
    "end": after_job(lambda peer: peer.sock.close()),
    "half a head": after_job(lambda peer: (peer.sock.sendall(b"B\0\0"), peer.sock.close())),
    "half a frame": after_job(lambda peer: (peer.sock.sendall(protocol.pack(protocol.OUTCOME, peer.outcome(0), b"ok")[:-1]), peer.sock.close())),
    "a frame that never ends": after_job(lambda peer: peer.sock.sendall(protocol.pack(protocol.OUTCOME, peer.outcome(0), b"ok")[:-1])),
    "large header": _raw(struct.pack(">BII", protocol.OUTCOME, protocol.MAX_HEADER + 1, 0)),
    "large body": _raw(struct.pack(">BII", protocol.OUTCOME, 2, protocol.MAX_BODY + 1)),
    "more body than the limits keep": _raw(struct.pack(">BII", protocol.OUTCOME, 2, 1000 + 100 + protocol.MAX_RESULT + 1)),
    "header that is a list": _raw(struct.pack(">BII", protocol.OUTCOME, 2, 0) + b"[]"),
    "header that is deep": _raw(struct.pack(">BII", protocol.OUTCOME, 400_000, 0) + b"[" * 400_000),
    "header that is no JSON": _raw(struct.pack(">BII", protocol.OUTCOME, 2, 0) + b"{]"),
    "header in no encoding": _raw(struct.pack(">BII", protocol.OUTCOME, 2, 0) + b"\xff\xff"),
    "header with a huge number": _raw(struct.pack(">BII", protocol.OUTCOME, 10_008, 0) + b'{"case":' + b"9" * 9_999 + b"}"),
    "a kind from the host": after_job(lambda peer: peer.send(protocol.CASE, {})),
    "no such kind": after_job(lambda peer: peer.send(200, {})),
    "a second greeting": after_job(lambda peer: peer.ready()),
    "done at once": after_job(lambda peer: peer.send(protocol.DONE, {})),
    "a beat with a body": after_job(lambda peer: peer.send(protocol.BEAT, {}, b"x")),
    "a fault": after_job(lambda peer: peer.send(protocol.FAULT, {"message": "\ud800 it broke"})),
    "a fault without words": after_job(lambda peer: peer.send(protocol.FAULT, {"message": {"a": 1}})),
    "a deep fault": _raw(struct.pack(">BII", protocol.FAULT, 1960 + 12, 0) + b'{"message":' + NEST + b"}"),
    "silence": after_job(lambda peer: None),
    "case as a list": _field(case=[0]), "case as true": _field(case=False), "another case": _field(case=1), "the compiler's": _field(case=-1),
    "case as a float": _field(case=0.0), "no case": _field(case=...), "case missing, exit there": _field(case=None),
    "another job": _field(job=1), "no job": _field(job=...),
    "negative time": _field(cpu_ns=-1), "time as a float": _field(cpu_ns=1.5), "time as nan": _field(wall_ns=float("nan")),
    "time as true": _field(cpu_ns=True), "time as text": _field(cpu_ns="1"), "no time": _field(cpu_ns=...), "no end of time": _field(wall_ns=1 << 63),
    "no waiting": _field(waited_ns=...), "negative waiting": _field(waited_ns=-1), "waiting as text": _field(waited_ns="1"),
    "no steps": _field(step_ns=...), "steps as nan": _field(step_ns=float("nan")), "negative steps": _field(step_ns=-1),
    "memory as nan": _field(peak=float("nan")), "negative memory": _field(peak=-5), "too much memory": _field(peak=1 << 70),
    "exit 256": _field(exit=256), "exit -1": _field(exit=-1), "exit as true": _field(exit=True), "exit as text": _field(exit="0"),
    "exit and signal": _field(signal=9), "neither": _field(exit=None), "signal 128": _field(exit=None, signal=128),
    "ended by a list": _field(ended=[[]]), "ended by 0": _field(ended=0), "ended by false": _field(ended=False), "ended by magic": _field(ended="magic"),
    "ended by nothing": _field(ended=""), "left out": _field(ended="not_run", exit=None, signal=9),
    "left as nan": _field(left=float("nan")), "no left": _field(left=...), "left -1": _field(left=-1),
    "sizes as text": _field(kept="abc"), "two sizes": _field(kept=[2, 0]), "sizes as floats": _field(kept=[2.0, 0, 0]), "sizes as true": _field(kept=[2, False, 0]),
    "sizes that do not add up": _field(kept=[1, 0, 0]), "negative sizes": _field(kept=[3, -1, 0]), "kept more than written": _field(written=[1, 0, 0]),
    "written nan": _field(written=[float("nan")] * 3), "no sizes": _field(kept=...), "written as deep list": _field(written=[[[]]]),
    "stdout over its limit": after_job(lambda peer: peer.answer(0, b"x" * 1001)),
    "stderr over its limit": after_job(lambda peer: peer.answer(0, b"x" * 101, kept=[0, 101, 0], written=[0, 101, 0])),
    "outcomes twice": after_job(lambda peer: (peer.answer(0), peer.answer(0))),
}  # fmt: skip


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_an_error_and_never_a_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENCE_S", 0.7)  # nobody here has anything good to say
    boundary = FakeBoundary(NONSENSE[name])
    (outcome,) = outcomes(boundary)
    if name == "outcomes twice":  # the first stands; the agent is ended all the same
        assert (outcome.error, outcome.stdout) == (None, b"ok")
        return
    assert outcome.error is not None
    assert outcome.error.startswith(f"after {ATTEMPTS} attempts: ")
    outcome.error.encode()  # text that can be written anywhere
    assert len(boundary.started) == ATTEMPTS


@pytest.mark.parametrize("name", ["text", "end", "silence", "a fault", "case as true", "exit 256", "half a frame"])
def test_one_bad_agent_does_no_harm(name: str) -> None:
    boundary = FakeBoundary(NONSENSE[name], honest)
    found = outcomes(boundary, cases=2)
    assert [(o.stdout, o.error) for o in found] == [(b"0", None), (b"1", None)]
    assert len(boundary.started) == 2


def test_agents_that_get_a_little_further_each() -> None:
    """More faults in a job than attempts, but never so many in one case."""

    def tired(peer: Peer) -> None:
        peer.ready()
        peer.jobs(1)

    boundary = FakeBoundary(tired)
    found = outcomes(boundary, cases=6)
    assert [(o.stdout, o.error) for o in found] == [(b"%d" % i, None) for i in range(6)]
    assert len(boundary.started) == 6


def test_a_case_that_kills_every_agent_costs_only_itself_and_what_follows() -> None:
    def allergic(peer: Peer) -> None:
        peer.ready()
        while True:
            kind, header = peer.frame()
            if kind == protocol.CASE:
                if header["case"] == 2:
                    return
                peer.answer(header["case"])

    found = outcomes(FakeBoundary(allergic), cases=4)
    assert [o.error is None for o in found] == [True, True, False, False]


def test_beats_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "GRACE_S", 0.1)
    monkeypatch.setattr(link, "WALL_FACTOR", 1)

    def beating(peer: Peer) -> None:
        while True:
            peer.send(protocol.BEAT, {})
            threading.Event().wait(0.05)

    boundary = FakeBoundary(after_job(beating))
    (outcome,) = outcomes(boundary)
    assert "beats" in (outcome.error or "")
    assert len(boundary.started) == ATTEMPTS


def test_beats_keep_a_long_case_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENCE_S", 1.0)

    def slow(peer: Peer) -> None:
        for _ in range(7):
            peer.send(protocol.BEAT, {})
            threading.Event().wait(0.3)  # twice the patience in all
        peer.answer(0)
        while peer.frame()[0] != protocol.END:
            pass
        peer.send(protocol.DONE, {})

    (outcome,) = outcomes(FakeBoundary(after_job(slow)))
    assert (outcome.stdout, outcome.error) == (b"ok", None)


def test_what_is_left_in_the_stream_is_not_the_next_jobs() -> None:
    """An agent that was taken over by one program sends an outcome ahead for the program after it."""

    def prophet(peer: Peer) -> None:
        peer.ready()
        while peer.frame()[0] != protocol.CASE:
            pass
        peer.answer(0, b"mine")
        while peer.frame()[0] != protocol.END:
            pass
        peer.send(protocol.DONE, {})
        peer.answer(0, b"forged")
        peer.send(protocol.DONE, {})
        peer.jobs()

    first, second = outcomes(FakeBoundary(prophet, honest), jobs=2)
    assert (first.stdout, second.stdout) == (b"mine", b"0")


def test_idle_agents_that_died_do_not_count() -> None:
    """More of them than attempts: each was well when it was put aside."""

    def once(peer: Peer) -> None:
        peer.ready()
        while peer.frame()[0] != protocol.CASE:
            pass
        peer.answer(0)
        while peer.frame()[0] != protocol.END:
            pass
        peer.send(protocol.DONE, {})

    boundary = FakeBoundary(once)
    assert [o.error for o in outcomes(boundary, jobs=8)] == [None] * 8


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (lambda peer: None, InfrastructureError),
        (lambda peer: peer.sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n"), FrameError),
        (lambda peer: peer.send(protocol.DONE, {}), FrameError),
        (lambda peer: peer.send(protocol.READY, {"features": 1}), FrameError),
        (lambda peer: peer.send(protocol.READY, {"features": {}}, b"x" * 100), FrameError),
        (lambda peer: peer.send(protocol.FAULT, {"message": "no"}), InfrastructureError),
        (lambda peer: peer.send(protocol.FAULT, {"message": "no", "isolation": True}), IsolationUnavailable),
        (lambda peer: peer.sock.sendall(b"A"), InfrastructureError),
    ],
)  # fmt: skip
def test_an_agent_that_does_not_come_up(words: Script, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "READY_S", 0.7)

    def script(peer: Peer) -> None:
        words(peer)
        with contextlib.suppress(OSError):
            peer.sock.recv(1)  # until the host gives up

    boundary = FakeBoundary(script)
    with pytest.raises(error):
        outcomes(boundary)
    assert len(boundary.over) == len(boundary.started) == (1 if error is IsolationUnavailable else ATTEMPTS)


def test_a_level_that_cannot_be_had_later_is_not_tried_again() -> None:
    def refusing(peer: Peer) -> None:
        peer.send(protocol.FAULT, {"message": "no namespaces any more", "isolation": True})

    boundary = FakeBoundary(after_job(lambda peer: peer.sock.close()), refusing)
    (outcome,) = outcomes(boundary)
    assert "no namespaces any more" in (outcome.error or "")
    assert len(boundary.started) == 2


def test_preloaded_names_of_the_wrong_kind_are_none() -> None:
    def odd(peer: Peer) -> None:
        peer.send(protocol.READY, {"features": {}, "preloaded": ["os", 1]})
        peer.jobs()

    (outcome,) = outcomes(FakeBoundary(odd))
    assert outcome.stdout == b"0"


# ---------------------------------------------------------------- the compiler's outcome


def compiled(script: Script, cases: int = 2) -> tuple[list[Outcome], FakeBoundary]:
    boundary = FakeBoundary(script)
    program = Program({"a.c": b""}, ("./a",), compile=("cc", "a.c"))

    async def main() -> list[Outcome]:
        async with Engine(slots=1, boundary=boundary, memory_mib=10_000) as engine:
            return await engine.run(Job(program, tuple(Case() for _ in range(cases)), LIMITS))

    return asyncio.run(main()), boundary


def _compiling(*answers: dict[str, Any]) -> Script:
    """An agent whose compiler answers so, the last answer again and again over all agents; cases then run well."""
    left = list(answers)

    def script(peer: Peer) -> None:
        peer.ready()
        broken = False
        while True:
            kind, header = peer.frame()
            if kind == protocol.JOB:
                answer = left.pop(0) if len(left) > 1 else left[0]
                broken = answer.get("exit", 0) != 0 or bool(answer.get("ended"))
                text = b"message"
                peer.answer(-1, text, **{"kept": [0, len(text), 0], "written": [0, len(text), 0], **answer})
            elif kind == protocol.CASE and not broken:
                peer.answer(header["case"], b"%d" % header["case"])
            elif kind == protocol.END:
                peer.send(protocol.DONE, {})

    return script


def test_a_compiler_that_fails_is_an_outcome_of_each_case() -> None:
    found, boundary = compiled(_compiling({"exit": 1}))
    assert [(o.compile_failed, o.exit_code, o.stderr, o.error) for o in found] == [(True, 1, b"message", None)] * 2
    assert len(boundary.started) == 1


@pytest.mark.parametrize(
    "first",
    [
        {"exit": None, "signal": 9},
        {"exit": None, "signal": 9, "ended": "wall_time"},
        {"exit": None, "signal": 9, "ended": "cpu_time"},
    ],
)
def test_a_compiler_that_was_killed_is_asked_again(first: dict[str, Any]) -> None:
    found, _ = compiled(_compiling(first, {}))
    assert [(o.compile_failed, o.stdout) for o in found] == [(False, b"0"), (False, b"1")]


@pytest.mark.parametrize("answer", [{"exit": None, "signal": 9}, {"exit": None, "signal": 9, "ended": "wall_time"}])
def test_a_compiler_that_is_killed_each_time_has_failed(answer: dict[str, Any]) -> None:
    found, _ = compiled(_compiling(answer))
    assert [(o.compile_failed, o.error) for o in found] == [(True, None)] * 2


# ---------------------------------------------------------------- one outcome, each field

_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["cpu_time", "memory", "not_run", 0, 1, -1, 255]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_NAMES = list(Peer(None).outcome(0)) + ["note"]  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(_NAMES), _junk, max_size=3), st.binary(max_size=4))
def test_every_field_is_checked(changes: dict[str, Any], body: bytes) -> None:
    header = {**Peer(None).outcome(0, b"ok"), **changes}  # type: ignore[arg-type]
    try:
        outcome, busiest = reading.outcome(header, body, 0, 0, LIMITS, Case())
    except FrameError as exc:
        assert len(str(exc)) < 200
        return
    assert (
        body
        == outcome.stdout
        + outcome.stderr.removesuffix(str(changes.get("note", ""))[:500].encode("utf-8", "replace"))
        + outcome.result
    )
    assert (outcome.exit_code is None) != (outcome.signal is None)
    assert outcome.exit_code is None or type(outcome.exit_code) is int
    assert all(0 <= number < 1e10 and number == number for number in (outcome.cpu_s, outcome.wall_s, busiest))
    assert outcome.ended_by is None or isinstance(outcome.ended_by, EndedBy)


def test_depth_that_only_just_parses() -> None:
    """A list too deep for repr() but not for the parser must not get past as another kind of error."""
    for depth in range(900, 1000, 7):
        text = b'{"case":0,"job":0,"kept":' + b"[" * depth + b"]" * depth + b"}"
        try:
            header = protocol.unpack_header(text)
        except ValueError:
            continue
        with pytest.raises(FrameError):
            reading.outcome(header, b"", 0, 0, LIMITS, Case())


def test_a_note_is_cut() -> None:
    header = Peer(None).outcome(0, note="x" * 5000 + "\ud800")  # type: ignore[arg-type]
    outcome, _ = reading.outcome(json.loads(json.dumps(header)), b"ok", 0, 0, LIMITS, Case())
    assert outcome.stderr == b"x" * 500


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert until(lambda: threading.active_count() <= before)
