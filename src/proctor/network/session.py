"""One connection of a program's, from its first byte to its last: read, asked about, and passed on or refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal, Protocol

from proctor.network import http, sni
from proctor.network.attempts import Kind, Refused, Unreachable
from proctor.network.bounds import Bounds
from proctor.network.names import Host, parse_host
from proctor.network.peer import Activity, Peer, copy_body, overseen, splice
from proctor.network.rules import HTTP, HTTPS, PORTS
from proctor.network.upstream import Way

_INTERIM_MOST = 8  # responses of status 1xx before the real one


class Keeper(Protocol):
    """What a connection asks of its gate."""

    bounds: Bounds

    def note(self, kind: Kind, host: Host | None, port: int | None, decision: Refused) -> None:
        """Log an attempt that was refused."""

    def denied(self, name: str, port: int) -> str | None:
        """The entry of ``deny`` that a name falls under."""

    async def reach(
        self, kind: Kind, host: Host, port: int, scheme: Literal["http", "https"], activity: Activity
    ) -> Way:
        """Ask the rules and connect; logged. Raises Refused and Unreachable."""


@dataclass(frozen=True, slots=True)
class _Greeting:
    host: Host
    raw: bytes  # all that was received with it


class Session:
    """One connection of a program's."""

    def __init__(self, gate: Keeper, peer: Peer) -> None:
        self.gate, self.peer = gate, peer
        self.activity = peer.activity
        self.way: Way | None = None

    def close(self) -> None:
        """End where all was said: what is on its way arrives."""
        self.peer.sock.close()
        if self.way is not None:
            self.way.peer.sock.close()

    def abort(self) -> None:
        """End at once; nothing after ``close``."""
        self.peer.abort()
        if self.way is not None:
            self.way.peer.abort()

    async def proxy(self) -> None:
        """Whatever a program sends to a proxy."""
        request = await self._request("connect", default_port=None)
        if request is None:
            return
        if not request.connect:
            await self._forward(request)
            return
        host, port = request.host, request.port
        if not await self._reach("connect", host, port, "https"):
            return
        await self.peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        assert self.way is not None
        if not isinstance(host, str) and port not in PORTS:  # named by address and port: anything may pass
            await splice(self.peer, self.way.peer, self.activity, self.gate.bounds.idle_s)
            return
        async with asyncio.timeout(self.gate.bounds.head_s):
            if not self.peer.buffer and not await self.peer.more():
                return
        if self.peer.buffer[0] == sni.HANDSHAKE:
            hello = await self._hello(host, port)
            if hello is not None:
                await self._pass_on(hello)
            return
        inner = await self._request("http", default_port=port, expected=(host, port))
        if inner is not None:
            await self._forward(inner)

    async def plain(self) -> None:
        """A plain request of a program that knows no proxy."""
        request = await self._request("http", default_port=HTTP)
        if request is not None and request.connect:
            await self._refuse("http", request.host, request.port, Refused("a CONNECT is for the proxy"))
        elif request is not None:
            await self._forward(request)

    async def tls(self) -> None:
        """TLS of a program that knows no proxy."""
        hello = await self._hello(None, HTTPS)
        if hello is None:
            return
        try:
            self.way = await self.gate.reach("tls", hello.host, HTTPS, "https", self.activity)
        except (Refused, Unreachable):
            await self._say(sni.ALERT)
            return
        await self._pass_on(hello)

    async def _request(
        self, kind: Kind, *, default_port: int | None, expected: tuple[Host, int] | None = None
    ) -> http.Request | None:
        """The next request; None, and the program was told, where it is none."""
        host, port = expected if expected is not None else (None, None)
        try:
            async with asyncio.timeout(self.gate.bounds.head_s):
                head = await self.peer.until(http.END, http.HEAD_MOST)
            return http.parse_request(head, expected=expected, default_port=default_port)
        except ValueError as exc:
            await self._refuse(kind, host, port, Refused(f"not a request that passes: {exc}"), status=400)
        except (TimeoutError, EOFError):
            if self.peer.buffer:
                self.gate.note(kind, host, port, Refused("not a request that passes: it does not end"))
            raise
        return None

    async def _hello(self, host: Host | None, port: int) -> _Greeting | None:
        """A ClientHello whose name fits; None, and the program was told, where there is none.

        Args:
            host: what the tunnel leads to; None takes the name that is asked for.
        """
        reader, said = sni.HelloReader(), None
        try:
            async with asyncio.timeout(self.gate.bounds.head_s):
                hello = None
                while hello is None:
                    if not self.peer.buffer and not await self.peer.more():
                        raise EOFError
                    hello = reader.feed(self.peer.take(len(self.peer.buffer)))
            said = hello.name
            return _Greeting(self._fitting(hello, host, port), bytes(reader.raw))
        except (ValueError, Refused) as exc:
            refused = exc if isinstance(exc, Refused) else Refused(f"not TLS that passes: {exc}")
            self.gate.note("tls", said if host is None else host, port, refused)
            await self._say(sni.ALERT)
        except (TimeoutError, EOFError):
            if reader.raw:
                self.gate.note("tls", host, port, Refused("not TLS that passes: its ClientHello does not end"))
            raise
        return None

    def _fitting(self, hello: sni.ClientHello, host: Host | None, port: int) -> Host:
        """The host that a ClientHello is for."""
        name = parse_host(hello.name) if hello.name is not None else None
        if host is not None and not isinstance(host, str):  # named by address: another name there is as good
            denied = self.gate.denied(name, port) if isinstance(name, str) else None
            if denied is not None:
                raise Refused(f"{name} is denied by {denied!r}")
            if name is not None and not isinstance(name, str) and name != host:
                raise Refused(f"TLS for {name} in a tunnel to {host}")
            return host
        if hello.hidden:
            raise Refused("TLS that hides the name of its server (ECH)")
        if name is None:
            raise Refused("TLS that does not say the name of its server (SNI)")
        if not isinstance(name, str):
            raise Refused("TLS that says an address in place of its server's name (SNI)")
        if host is not None and name != host:
            raise Refused(f"TLS for {name} in a tunnel to {host}")
        return name

    async def _reach(self, kind: Kind, host: Host, port: int, scheme: Literal["http", "https"]) -> bool:
        """Connect; False, and the program was told, where that is refused or fails."""
        try:
            self.way = await self.gate.reach(kind, host, port, scheme, self.activity)
        except Refused as exc:
            await self._say(http.refusal(403, exc.reason))
        except Unreachable as exc:
            await self._say(http.refusal(502, exc.reason))
        return self.way is not None

    async def _pass_on(self, hello: _Greeting) -> None:
        assert self.way is not None
        await self.way.peer.send(hello.raw)
        await splice(self.peer, self.way.peer, self.activity, self.gate.bounds.idle_s)

    async def _forward(self, request: http.Request) -> None:
        """One request to its server, and its answer back."""
        if self.way is None and not await self._reach("http", request.host, request.port, "http"):
            return
        assert self.way is not None
        server = self.way.peer
        await server.send(request.forwarded(prefix=self.way.prefix, extra=self.way.extra))
        jobs = [self._upload(server, request), self._answer(server, request)]
        await overseen(jobs, self.activity, self.gate.bounds.idle_s, decisive=1)
        await self.peer.goodbye()

    async def _upload(self, server: Peer, request: http.Request) -> None:
        try:
            await copy_body(self.peer, server, request.body)
        except ValueError as exc:
            self.gate.note("http", request.host, request.port, Refused(f"not a request that passes: {exc}"))
            raise EOFError from exc
        except OSError:  # a server that answers before it has heard all: its answer counts
            return

    async def _answer(self, server: Peer, request: http.Request) -> None:
        for _ in range(_INTERIM_MOST):
            try:
                response = http.parse_response(await server.until(http.END, http.HEAD_MOST), request.method)
            except (ValueError, EOFError, OSError) as exc:
                why = str(exc) if isinstance(exc, ValueError) else "it ended early"
                await self.peer.send(http.refusal(502, f"{request.host} gave no answer that passes: {why}"))
                return
            await self.peer.send(response.text)
            if not response.interim:
                try:
                    await copy_body(server, self.peer, response.body)
                except ValueError as exc:
                    raise EOFError from exc
                return
        raise EOFError

    async def _refuse(
        self, kind: Kind, host: Host | None, port: int | None, refused: Refused, status: int = 403
    ) -> None:
        self.gate.note(kind, host, port, refused)
        await self._say(http.refusal(status, refused.reason))

    async def _say(self, words: bytes) -> None:
        """Last words to the program."""
        async with asyncio.timeout(self.gate.bounds.head_s):
            await self.peer.send(words)
        await self.peer.goodbye()
