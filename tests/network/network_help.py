"""A gate with real listeners, and servers for it to reach, all on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proctor.core.sandbox import NetworkRules
from proctor.network.attempts import Attempt
from proctor.network.bounds import Bounds
from proctor.network.gate import Gate
from proctor.network.upstream import Proxies

GOOD, EVIL = "good.example.org", "evil.example.net"
OPEN = NetworkRules(True, (GOOD, "127.0.0.1"))
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def listener(kind: int = socket.SOCK_STREAM) -> socket.socket:
    sock = socket.socket(socket.AF_INET, kind)
    sock.bind(("127.0.0.1", 0))
    if kind == socket.SOCK_STREAM:
        sock.listen(16)
    return sock


@dataclass
class Origin:
    """A server that answers every request with its own head and body, and remembers all that it received.

    ``answer`` takes the place of that answer. It keeps connections open, whatever it is told.
    """

    answer: bytes | None = None
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    accepted: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                body = b""
                if b"chunked" in head.lower():
                    body = await reader.readuntil(b"0\r\n\r\n")
                elif b"content-length: " in head.lower():
                    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    body = await reader.readexactly(size)
                self.bodies.append(body)
                said = head + body
                writer.write(self.answer or b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
                await writer.drain()
        writer.close()


@dataclass
class World:
    """``ports`` says which server stands where a gate connects to: (address, port) to a port of this host."""

    gate: Gate
    doors: dict[str, int]
    log: list[Attempt]
    dialled: list[tuple[str, int]]
    resolved: list[str]

    async def talk(self, door: str, data: bytes) -> bytes:
        """Send bytes to a door, and all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.doors[door])
        writer.write(data)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                answer += piece
        writer.close()
        return answer

    def last(self) -> Attempt:
        return self.log[-1]


@contextlib.asynccontextmanager
async def world(
    rules: NetworkRules = OPEN, servers: dict[int, Handler | tuple[Handler, ssl.SSLContext]] | None = None, *,
    names: dict[str, Sequence[str]] | None = None, bounds: Bounds | None = None, proxies: Proxies | None = None,
    log: Callable[[Attempt], None] | None = None, places: asyncio.Semaphore | None = None,
) -> AsyncIterator[World]:  # fmt: skip
    """A gate under rules; ``servers`` are what answers at each port, whatever the address.

    Args:
        names: what names resolve to; GOOD and EVIL are at 127.0.0.1.
    """
    known = {GOOD: ["127.0.0.1"], EVIL: ["127.0.0.1"]} | (names or {})
    made, ports = [], {}
    serving = set[asyncio.Task[object]]()

    def ended(handler: Handler) -> Handler:
        """The same, and known while it runs: nothing of it outlives the test."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            serving.add(task)
            try:
                await handler(reader, writer)
            finally:
                writer.close()
                serving.discard(task)

        return serve

    for port, server in (servers or {}).items():
        handler, context = server if isinstance(server, tuple) else (server, None)
        made.append(await asyncio.start_server(ended(handler), "127.0.0.1", 0, ssl=context, limit=4 << 20))
        ports[port] = made[-1].sockets[0].getsockname()[1]
    dialled: list[tuple[str, int]] = []
    resolved: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        resolved.append(name)
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return known[name]

    async def connect(address: str, port: int) -> socket.socket:
        dialled.append((address, port))
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", ports[port]))
        return sock

    doors = {name: listener() for name in ("proxy", "http", "https")} | {"dns": listener(socket.SOCK_DGRAM)}
    kept: list[Attempt] = []
    gate = Gate(
        doors, rules, log=log or kept.append, resolver=resolve, dialer=connect, bounds=bounds, proxies=proxies,
        places=places,
    )  # fmt: skip
    numbers = {name: sock.getsockname()[1] for name, sock in doors.items()}
    await gate.start()
    try:
        yield World(gate, numbers, kept, dialled, resolved)
    finally:
        await gate.close()
        for one in made:
            one.close()
        for task in (left := list(serving)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for _ in range(3):  # turns in which transports close
            await asyncio.sleep(0)


def certificate(folder: Path, *names: str) -> tuple[ssl.SSLContext, Path]:
    """What a TLS server for these names needs, and the file of the certificate that a client trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not here")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", key, "-out", cert, "-days", "2", "-subj", f"/CN={names[0]}"]  # type: ignore[list-item]
    command += ["-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def hello(name: str | None) -> bytes:
    """The first bytes of a real TLS client that asks for a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


async def settled(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    while not condition():
        await asyncio.sleep(0.01)
