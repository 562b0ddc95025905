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
import functools
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal

from proctor.core.sandbox import NetworkRules
from proctor.network import dns
from proctor.network.attempts import Attempt, Kind, Refused, Unreachable, text_of
from proctor.network.bounds import Bounds
from proctor.network.doors import Door, Names
from proctor.network.inside import LISTENERS
from proctor.network.names import Host
from proctor.network.peer import Activity, Peer
from proctor.network.rules import Decision, Policy, compile
from proctor.network.session import Session
from proctor.network.upstream import Dialer, Proxies, Resolver, Upstream, Way

_PAUSE_S = 0.2  # after a failed accept, such as for want of descriptors


class Gate:
    """The network of one sandbox.

    Args:
        listeners: sockets that are bound and listen inside the sandbox, by name: ``proxy``, ``http``, ``https`` and
            ``dns`` (see ``inside.LISTENERS``), or some of them; or what stands for them (``doors``). They belong to the
            gate, which closes them.
        rules: what may be reached.
        log: called with every attempt, in the loop's thread, before a byte of it passes; where it raises, nothing passes.
        resolver: in place of the host's look-up: a name and a port to addresses.
        dialer: in place of a plain connection: an address and a port to a connected socket.
        proxies: the host's own, ``Proxies.of(os.environ)``; None dials directly.
        places: for connections of this and of other gates together; None: its own bound is enough.

    Raises:
        InputError: an entry of the rules is none.
    """

    def __init__(
        self, listeners: Mapping[str, socket.socket | Door | Names], rules: NetworkRules, *, log: Callable[[Attempt], None] | None = None,
        resolver: Resolver | None = None, dialer: Dialer | None = None, proxies: Proxies | None = None,
        bounds: Bounds | None = None, places: asyncio.Semaphore | None = None,
    ) -> None:  # fmt: skip
        unknown = set(listeners) - set(LISTENERS)
        if unknown:
            raise ValueError(f"no listeners of a gate: {sorted(unknown)}")
        self.bounds = bounds or Bounds()
        self._policy, self._rules = compile(rules), rules
        self._listeners = dict(listeners)
        self._log = log
        self._recent: deque[Attempt] = deque(maxlen=self.bounds.attempts)
        self._upstream = Upstream(resolver=resolver, dialer=dialer, proxies=proxies, dial_s=self.bounds.dial_s)
        self._slots = asyncio.Semaphore(self.bounds.connections)
        self._places = places or asyncio.Semaphore(self.bounds.connections)
        self._doors: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._pace = _Pace(self.bounds.rate, self.bounds.burst)

    @property
    def rules(self) -> NetworkRules:
        """Those in force now."""
        return self._rules

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
            if isinstance(sock, socket.socket):
                sock.setblocking(False)
            answers = isinstance(sock, Names) or (name == "dns" and isinstance(sock, socket.socket))
            work = self._answer_names(sock) if answers else self._accept(name, sock)  # type: ignore[arg-type]
            self._doors.add(asyncio.create_task(work))

    async def set(self, rules: NetworkRules) -> None:
        """Change the rules now, and cut every connection that was made under the old ones.

        Raises:
            InputError: an entry is none; then the old rules stay and nothing is cut.
        """
        self._policy, self._rules = compile(rules), rules
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

    def forget(self) -> None:
        """In a forked child: close the copies of the listeners, which are the parent's to answer on."""
        for sock in self._listeners.values():
            sock.close()

    async def _cut(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, door: str, listener: socket.socket | Door) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock = await listener.accept() if isinstance(listener, Door) else (await loop.sock_accept(listener))[0]
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            # One that was accepted waits here, the others in the kernel's queue. A place is taken only now, or doors
            # at which nobody knocks would hold all of them.
            try:
                await self._slots.acquire()  # its own first: one that has none left stands in no other's way
                try:
                    await self._places.acquire()
                except BaseException:
                    self._slots.release()
                    raise
            except BaseException:
                sock.close()
                raise
            task = asyncio.create_task(self._serve(door, sock))
            self._connections.add(task)
            task.add_done_callback(functools.partial(self._ended, sock))

    def _ended(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        sock.close()  # also where it was cut before it began
        self._connections.discard(task)
        self._slots.release()
        self._places.release()

    async def _serve(self, door: str, sock: socket.socket) -> None:
        session = Session(self, Peer(sock, Activity()))
        try:
            await self._pace.turn()
            await {"proxy": session.proxy, "http": session.plain, "https": session.tls}[door]()
            session.close()
        except (OSError, EOFError, TimeoutError):
            pass  # one of both sides went away, or was silent for too long
        except Exception as exc:  # a fault of ours or of the log's costs this connection only
            _report("a connection of a sandbox failed", exc)
        finally:
            session.abort()

    async def _answer_names(self, sock: socket.socket | Names) -> None:
        loop, most = asyncio.get_running_loop(), dns.QUERY_MOST + 1
        while True:
            try:
                data, sender = await (sock.receive(most) if isinstance(sock, Names) else loop.sock_recvfrom(sock, most))
                await self._pace.turn()
                answer = dns.respond(data, self._decide_name)
                if answer is not None:
                    with contextlib.suppress(BlockingIOError):
                        sock.send(answer, sender) if isinstance(sock, Names) else sock.sendto(answer, sender)
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
