"""How the host dials out for a sandbox: to an address that was checked, or through the host's own proxy.

A name is looked up once, here; each of its addresses is asked about, and a connection is made to exactly one that passed.
Where the host itself reaches the world through a proxy, the name goes to that proxy, which looks it up again: then the
name is checked as ever, and addresses only as far as this host can look them up.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from proctor.core.errors import InputError
from proctor.network import http
from proctor.network.addresses import own_addresses
from proctor.network.attempts import Refused, Unreachable
from proctor.network.names import Address, Host, authority, parse_address, parse_host
from proctor.network.peer import Activity, Peer
from proctor.network.rules import Policy

ADDRESSES_MOST = 8  # of one name that are tried
_LOOKUPS = 4  # at once; a look-up cannot be cancelled
_OWN_FOR_S = 5.0  # seconds that the list of this host's addresses is good for
_CONNECT_S = 8.0  # for one address, while there are others

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
Dialer = Callable[[str, int], Awaitable[socket.socket]]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy of the host's. ``authorization`` goes to it alone, and never into a sandbox."""

    host: str
    port: int
    authorization: bytes | None = field(default=None, repr=False)

    def headers(self) -> http.Headers:
        return [] if self.authorization is None else [(b"Proxy-Authorization", self.authorization)]


@dataclass(frozen=True, slots=True)
class Proxies:
    """What the host's environment says about proxies. ``direct`` are the entries of NO_PROXY."""

    http: Proxy | None = None
    https: Proxy | None = None
    direct: tuple[str, ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Proxies:
        """Read ``http_proxy``, ``https_proxy``, ``all_proxy`` and ``no_proxy``, in either case.

        Raises:
            InputError: one is not an ``http://`` URL.
        """
        named = {name.lower(): (name, value) for name, value in sorted(environ.items()) if value}
        named |= {name: (name, value) for name, value in environ.items() if value and name.islower()}
        every = named.get("all_proxy")
        found = [
            _proxy(*said) if said else None for said in (named.get(f"{s}_proxy", every) for s in ("http", "https"))
        ]
        direct = named.get("no_proxy", ("", ""))[1].replace(",", " ").lower().split()
        return cls(found[0], found[1], tuple(direct))

    def way(self, scheme: Literal["http", "https"], host: Host, port: int) -> Proxy | None:
        proxy = self.http if scheme == "http" else self.https
        return None if proxy is None or self._direct(str(host), port) else proxy

    def _direct(self, host: str, port: int) -> bool:
        for entry in self.direct:
            name, _, number = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
            name = name.removeprefix("*").lstrip(".")
            if entry == "*" or (name and number in ("", str(port)) and (host == name or host.endswith("." + name))):
                return True
        return False


def _proxy(variable: str, value: str) -> Proxy:
    # No word of the value: it may hold a password.
    try:
        url = urlsplit(value if "://" in value else f"http://{value}")
        if url.scheme != "http" or not url.hostname:
            raise ValueError
        login = None
        if url.username is not None:
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
            login = b"Basic " + base64.b64encode(pair.encode())
        return Proxy(url.hostname, url.port or 80, login)
    except ValueError:
        raise InputError(f"{variable} is no http:// URL of a proxy; write http://host:port, or unset it") from None


@dataclass(slots=True)
class Way:
    """A connection that leads to where it was asked for.

    Attributes:
        address: of the server, None where a proxy of the host's looks it up.
        prefix: what stands before the path of a plain request, for a proxy.
        extra: headers of a plain request for that proxy.
    """

    peer: Peer
    address: Address | None
    prefix: bytes = b""
    extra: http.Headers = field(default_factory=list)


class Upstream:
    """Dials out for one sandbox.

    Args:
        resolver: gives a name's addresses, as text; the host's own by default.
        dialer: gives a connected socket, not blocking, for an address that was checked.
        proxies: those of the host's.
        dial_s: seconds for looking up and connecting together.
    """

    def __init__(
        self, *, resolver: Resolver | None, dialer: Dialer | None, proxies: Proxies | None, dial_s: float
    ) -> None:
        self._system = _System() if resolver is None else None
        self._resolve = self._system if resolver is None and self._system is not None else resolver
        self._dial = dialer or dial
        self._proxies = proxies or Proxies()
        self._dial_s = dial_s
        self._own: tuple[float, frozenset[Address]] = (0.0, frozenset())

    def close(self) -> None:
        if self._system is not None:
            self._system.close()

    async def open(
        self, host: Host, port: int, policy: Policy, scheme: Literal["http", "https"], activity: Activity
    ) -> Way:
        """Connect to a host that the rules allow by name, or by address where that was asked for.

        Args:
            scheme: ``http`` for one plain request, ``https`` for a tunnel.

        Raises:
            Refused: none of its addresses may be reached.
            Unreachable: it cannot be reached.
        """
        proxy = self._proxies.way(scheme, host, port)
        try:
            async with asyncio.timeout(self._dial_s):
                if proxy is None:
                    return await self._direct(host, port, policy, activity)
                return await self._through(proxy, host, port, policy, scheme, activity)
        except TimeoutError:
            raise Unreachable(f"no connection to {host} within {self._dial_s:.0f} s") from None

    async def _direct(self, host: Host, port: int, policy: Policy, activity: Activity) -> Way:
        addresses = await self._checked(host, port, policy)
        for address in addresses:
            last = address == addresses[-1]
            try:
                async with asyncio.timeout(None if last else _CONNECT_S):
                    sock = await self._dial(str(address), port)
            except (OSError, TimeoutError) as exc:
                if last:
                    why = os.strerror(exc.errno) if isinstance(exc, OSError) and exc.errno else "no answer"
                    raise Unreachable(f"no connection to {host}: {why}", address=address) from exc
                continue
            return Way(Peer(sock, activity), address)
        raise Unreachable(f"{host} has no address")

    async def _checked(self, host: Host, port: int, policy: Policy) -> list[Address]:
        """The addresses of a host that may be connected to; Refused where it has some, and none may."""
        found = [str(host)]
        if isinstance(host, str):
            assert self._resolve is not None
            try:
                found = [str(text) for text in await self._resolve(host, port)]
            except OSError as exc:
                raise Unreachable(f"{host} has no address: {exc.strerror or 'look-up failed'}") from exc
        own, passed, refused = self._own_addresses(), list[Address](), list[Refused]()
        for text in dict.fromkeys(found):
            decision = policy.address(text, port, host, own=own)
            address = decision.host if decision.host is not None and not isinstance(decision.host, str) else None
            if decision.allowed and address is not None:
                passed.append(address)
            else:
                refused.append(Refused(decision.reason, address=address))
        if refused and not passed:
            raise refused[0]
        return passed[:ADDRESSES_MOST]

    def _own_addresses(self) -> frozenset[Address]:
        now = time.monotonic()
        if now >= self._own[0]:
            self._own = now + _OWN_FOR_S, own_addresses()
        return self._own[1]

    async def _through(
        self, proxy: Proxy, host: Host, port: int, policy: Policy, scheme: str, activity: Activity
    ) -> Way:
        with contextlib.suppress(Unreachable):  # a host behind a proxy often knows no names of the world
            await self._checked(host, port, policy)
        peer = Peer(await self._to(proxy), activity)
        target = authority(host, port).encode()
        if scheme == "http":
            return Way(peer, None, b"http://" + target, proxy.headers())
        try:
            lines = [b"CONNECT %s HTTP/1.1" % target, b"Host: " + target]
            lines += [b"%s: %s" % header for header in proxy.headers()]
            await peer.send(b"\r\n".join(lines) + http.END)
            answer = http.parse_response(await peer.until(http.END, http.HEAD_MOST), b"CONNECT")
            if not 200 <= answer.status < 300:
                raise Unreachable(f"the host's own proxy answers {answer.status} for {host}")
        except (OSError, EOFError, ValueError) as exc:
            peer.abort()
            raise Unreachable(f"the host's own proxy does not answer for {host}") from exc
        except BaseException:
            peer.abort()
            raise
        return Way(peer, None)

    async def _to(self, proxy: Proxy) -> socket.socket:
        """A connection to the host's own proxy, which is the host's choice: its address is not asked about."""
        assert self._resolve is not None
        try:
            host = parse_host(proxy.host)
            found = [str(host)] if not isinstance(host, str) else await self._resolve(host, proxy.port)
            for address in found[:ADDRESSES_MOST]:
                with contextlib.suppress(OSError):
                    return await self._dial(str(parse_address(address)), proxy.port)
        except (OSError, ValueError) as exc:
            raise Unreachable("the host's own proxy cannot be found") from exc
        raise Unreachable("the host's own proxy cannot be reached")


async def dial(address: str, port: int) -> socket.socket:
    """Connect to an address, not a name; OSError when that fails."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


class _System:
    """The host's own look-up, on threads of this sandbox alone: one that asks for slow names holds up no other."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="proctor-lookup")

    async def __call__(self, name: str, port: int) -> list[str]:
        # With its dot, so that no search list makes another name of it. Names of one label are in files, without.
        full = f"{name}." if "." in name else name
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, full, port)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(name: str, port: int) -> list[str]:
    # A zone, as in fe80::1%eth0, stays in the text, and is refused with it.
    return [str(entry[4][0]) for entry in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)]
