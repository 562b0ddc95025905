"""The only way out of a sandbox: serves the listeners in its network namespace, and asks the rules about everything.

The sockets were made inside the sandbox's own namespace, which has a loopback and nothing else, and their descriptors
are here; so a program that talks to 127.0.0.1 in there talks to this process. Four doors:

    proxy   requests with an absolute address, and CONNECT
    http    requests of programs that know no proxy; their Host says where to
    https   TLS of programs that know no proxy; the name in their ClientHello says where to
    dns     questions for names

Each connection carries one request or one tunnel. It is read as far as is needed to know its host, the rules are asked,
the host's addresses are looked up and asked about, a connection is made, and only then do bytes pass. Both sides are
taken for hostile: all that is read has a bound in bytes and in time, and nothing is buffered that the other side does
not take.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from proctor.core.sandbox import NetworkRules
from proctor.network import dns, http, sni
from proctor.network.attempts import Attempt, Kind, Refused, Unreachable, text_of
from proctor.network.inside import LISTENERS
from proctor.network.names import Host, parse_host
from proctor.network.peer import Activity, Peer, copy_body, overseen, splice
from proctor.network.rules import HTTP, HTTPS, PORTS, Decision, Policy, compile
from proctor.network.upstream import Dialer, Proxies, Resolver, Upstream, Way

_INTERIM_MOST = 8  # responses of status 1xx before the real one
_PAUSE_S = 0.2  # after a failed accept, such as for want of descriptors


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one sandbox may take of its host.

    Attributes:
        connections: at once; further ones wait in the kernel's queue.
        head_s: seconds until a request's head, or a ClientHello, has come whole.
        idle_s: seconds after which a connection is cut on which nothing moves.
        dial_s: seconds for a look-up and a connection.
        attempts: how many are remembered in memory.
        rate: attempts per second over a longer time; further ones wait.
        burst: attempts before that counts.
    """

    connections: int = 64
    head_s: float = 30.0
    idle_s: float = 300.0
    dial_s: float = 20.0
    attempts: int = 1000
    rate: float = 200.0
    burst: float = 1000.0


class Gate:
    """The network of one sandbox.

    Args:
        listeners: sockets that are bound and listen inside the sandbox, by name: ``proxy``, ``http``, ``https`` and
            ``dns`` (see ``inside.LISTENERS``), or some of them. They belong to the gate, which closes them.
        rules: what may be reached.
        log: called with every attempt, in the loop's thread, before a byte of it passes; where it raises, nothing passes.
        resolver: in place of the host's look-up: a name and a port to addresses.
        dialer: in place of a plain connection: an address and a port to a connected socket.
        proxies: the host's own, ``Proxies.of(os.environ)``; None dials directly.

    Raises:
        InputError: an entry of the rules is none.
    """

    def __init__(
        self, listeners: Mapping[str, socket.socket], rules: NetworkRules, *, log: Callable[[Attempt], None] | None = None,
        resolver: Resolver | None = None, dialer: Dialer | None = None, proxies: Proxies | None = None,
        bounds: Bounds | None = None,
    ) -> None:  # fmt: skip
        unknown = set(listeners) - set(LISTENERS)
        if unknown:
            raise ValueError(f"no listeners of a gate: {sorted(unknown)}")
        self.bounds = bounds or Bounds()
        self._policy = compile(rules)
        self._listeners = dict(listeners)
        self._log = log
        self._recent: deque[Attempt] = deque(maxlen=self.bounds.attempts)
        self._upstream = Upstream(resolver=resolver, dialer=dialer, proxies=proxies, dial_s=self.bounds.dial_s)
        self._slots = asyncio.Semaphore(self.bounds.connections)
        self._doors: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._pace = _Pace(self.bounds.rate, self.bounds.burst)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The latest attempts, oldest first."""
        return tuple(self._recent)

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._connections)

    async def start(self) -> None:
        """Serve; returns at once."""
        for name, sock in self._listeners.items():
            sock.setblocking(False)
            self._doors.add(
                asyncio.create_task(self._answer_names(sock) if name == "dns" else self._accept(name, sock))
            )

    async def set(self, rules: NetworkRules) -> None:
        """Change the rules now, and cut every connection that was made under the old ones.

        Raises:
            InputError: an entry is none; then the old rules stay and nothing is cut.
        """
        self._policy = compile(rules)
        await self._cut()

    async def close(self) -> None:
        """Cut every connection and close the listeners."""
        for task in self._doors:
            task.cancel()
        await asyncio.gather(*self._doors, return_exceptions=True)
        self._doors.clear()
        await self._cut()
        for sock in self._listeners.values():
            sock.close()
        self._upstream.close()

    async def _cut(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, door: str, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._slots.acquire()
            try:
                await self._pace.turn()
                sock, _ = await loop.sock_accept(listener)
            except OSError:
                self._slots.release()
                await asyncio.sleep(_PAUSE_S)
                continue
            except BaseException:
                self._slots.release()
                raise
            task = asyncio.create_task(self._serve(door, sock))
            self._connections.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._slots.release()

    async def _serve(self, door: str, sock: socket.socket) -> None:
        session = Session(self, Peer(sock, Activity()))
        try:
            await {"proxy": session.proxy, "http": session.http, "https": session.https}[door]()
        except (OSError, EOFError, TimeoutError):
            pass  # one of both sides went away, or was silent for too long
        except Exception as exc:  # a fault of ours or of the log's costs this connection only
            _report("a connection of a sandbox failed", exc)
        finally:
            session.peer.abort()
            if session.way is not None:
                session.way.peer.abort()

    async def _answer_names(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data, sender = await loop.sock_recvfrom(sock, dns.QUERY_MOST + 1)
                await self._pace.turn()
                answer = dns.respond(data, self._decide_name)
                if answer is not None:
                    with contextlib.suppress(BlockingIOError):
                        sock.sendto(answer, sender)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
            except Exception as exc:
                _report("a sandbox's question for a name failed", exc)

    def _decide_name(self, name: str) -> bool:
        decision = self._policy.resolvable(name)
        self.note("dns", decision.host or name, None, decision)
        return decision.allowed

    def note(self, kind: Kind, host: Host | None, port: int | None, decision: Decision | Refused | Unreachable,
             address: Host | None = None) -> None:  # fmt: skip
        """Log an attempt."""
        allowed = decision.allowed if isinstance(decision, Decision) else isinstance(decision, Unreachable)
        if address is None and not isinstance(decision, Decision):
            address = decision.address
        attempt = Attempt(
            time.time(), kind, text_of(host), port, text_of(address), "allow" if allowed else "deny", decision.reason
        )
        self._recent.append(attempt)
        if self._log is not None:
            self._log(attempt)

    async def reach(
        self, kind: Kind, host: Host, port: int, scheme: Literal["http", "https"], activity: Activity
    ) -> Way:
        """Ask the rules and connect; logged either way.

        Raises:
            Refused, Unreachable: nothing was connected.
        """
        policy: Policy = self._policy
        decision = policy.name(str(host), port)
        try:
            if not decision.allowed:
                raise Refused(decision.reason)
            way = await self._upstream.open(host, port, policy, scheme, activity)
        except (Refused, Unreachable) as exc:
            self.note(kind, host, port, exc)
            raise
        try:
            self.note(kind, host, port, decision, way.address)
        except BaseException:
            way.peer.abort()
            raise
        return way

    def denied(self, name: str, port: int) -> str | None:
        return self._policy.denied(name, port)


class Session:
    """One connection of a program's."""

    def __init__(self, gate: Gate, peer: Peer) -> None:
        self.gate, self.peer = gate, peer
        self.activity = peer.activity
        self.way: Way | None = None

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
        if self.peer.buffer[0] == sni.ALERT[0] + 1:
            hello = await self._hello(host, port)
            if hello is not None:
                await self._pass_on(hello)
            return
        inner = await self._request("http", default_port=port, expected=(host, port))
        if inner is not None:
            await self._forward(inner)

    async def http(self) -> None:
        """A plain request of a program that knows no proxy."""
        request = await self._request("http", default_port=HTTP)
        if request is not None and request.connect:
            await self._refuse("http", request.host, request.port, Refused("a CONNECT is for the proxy"))
        elif request is not None:
            await self._forward(request)

    async def https(self) -> None:
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
        upload = copy_body(self.peer, server, request.body)
        await overseen([upload, self._answer(server, request)], self.activity, self.gate.bounds.idle_s, decisive=1)
        await self.peer.goodbye()

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
                await copy_body(server, self.peer, response.body)
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


@dataclass(frozen=True, slots=True)
class _Greeting:
    host: Host
    raw: bytes  # all that was received with it


class _Pace:
    """Lets ``burst`` through at once and ``rate`` per second after that."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst, self._free, self._at = rate, burst, burst, time.monotonic()

    async def turn(self) -> None:
        now = time.monotonic()
        self._free = min(self._burst, self._free + (now - self._at) * self._rate) - 1
        self._at = now
        if self._free < 0:
            await asyncio.sleep(-self._free / self._rate)


def _report(message: str, exc: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": exc})
