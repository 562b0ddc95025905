"""A real network namespace with a root inside: what is allowed works there with ordinary programs, and nothing else does."""

from __future__ import annotations

import array
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from network_help import EVIL, GOOD, Origin, certificate, world

from proctor.core.sandbox import NetworkRules
from proctor.network.attempts import Attempt
from proctor.network.gate import Gate
from proctor.network.inside import LISTENERS

HERE = Path(__file__).resolve().parent
UNSHARE = ["unshare", "--net", "--mount", "--propagation", "private"]


def allowed_here() -> bool:
    if os.getuid() or shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not allowed_here(), reason="namespaces need root here")
def test_a_gate_is_the_only_way_out_of_a_namespace(tmp_path: Path) -> None:
    context, _ = certificate(tmp_path, GOOD, EVIL)
    log: list[Attempt] = []

    async def work() -> dict[str, str]:
        loop, origin = asyncio.get_running_loop(), Origin()
        plain = await asyncio.start_server(origin.serve, "127.0.0.1", 0)
        secure = await asyncio.start_server(origin.serve, "127.0.0.1", 0, ssl=context)
        ports = {80: plain.sockets[0].getsockname()[1], 443: secure.sockets[0].getsockname()[1]}

        async def resolve(name: str, port: int) -> list[str]:
            return ["203.0.113.5"]

        async def dial(address: str, port: int) -> socket.socket:
            sock = socket.socket()
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", ports[port]))
            return sock

        ours, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), str(tmp_path), GOOD, EVIL, str(ports[80])]
        with open(tmp_path / "stderr", "wb") as stderr:
            child = await asyncio.create_subprocess_exec(
                *UNSHARE, sys.executable, str(HERE / "inside_namespace.py"), *arguments, pass_fds=[theirs.fileno()],
                stderr=stderr, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip
        theirs.close()
        try:
            ours.settimeout(60)
            words, numbers = await loop.run_in_executor(None, receive, ours)
            assert words == b"here", (tmp_path / "stderr").read_text()
            listeners = {name: socket.socket(fileno=fd) for name, fd in zip(LISTENERS, numbers, strict=True)}
            gate = Gate(listeners, NetworkRules(True, (GOOD,)), log=log.append, resolver=resolve, dialer=dial)
            await gate.start()
            ours.setblocking(False)
            said = b""
            while piece := await loop.sock_recv(ours, 65536):
                said += piece
            await gate.close()
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
            ours.close()
            plain.close()
            secure.close()
        found: dict[str, str] = json.loads(said)
        return found

    found = asyncio.run(asyncio.wait_for(work(), 180))
    expected = {name for name in found if name.startswith(f"{GOOD} ")} | {"as root"}
    assert len(expected) >= 8
    assert found.pop("as root") == "0"
    for name, result in found.items():
        assert result.startswith("ok ") is (name in expected), (name, result)
    assert found[f"{GOOD} look-up"] == "ok 127.0.0.1"
    assert {attempt.host for attempt in log if attempt.allowed} == {GOOD}
    assert {attempt.kind for attempt in log if attempt.allowed} == {"http", "connect", "tls", "dns"}
    assert {EVIL, "203.0.113.5", "169.254.169.254", "127.0.0.1"} <= {a.host for a in log if not a.allowed}


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    words, ancillary, _, _ = control.recvmsg(16, socket.CMSG_SPACE(4 * len(LISTENERS)))
    numbers = array.array("i")
    for _, _, data in ancillary:
        numbers.frombytes(data)
    return words, list(numbers)


@pytest.mark.parametrize("name", ["good", "other"])
def test_the_systems_own_look_up_takes_names_of_this_host(name: str) -> None:
    """Without an injected resolver: a name that is nowhere is unreachable, one of this host's is refused."""

    async def work() -> None:
        host = "localhost" if name == "good" else "nowhere.invalid"
        async with world(NetworkRules(True)) as w:
            gate = Gate({"http": (door := socket.create_server(("127.0.0.1", 0)))}, NetworkRules(True))
            await gate.start()
            w.doors["http"] = door.getsockname()[1]
            answer = await w.talk("http", f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            attempt = gate.attempts[-1]
            if name == "good":
                assert answer.startswith(b"HTTP/1.1 403 localhost is at ")
                assert not attempt.allowed
                assert attempt.address in ("127.0.0.1", "::1")
            else:
                assert answer.startswith(b"HTTP/1.1 502 nowhere.invalid has no address")
            await gate.close()

    asyncio.run(asyncio.wait_for(work(), 120))
