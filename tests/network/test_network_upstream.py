"""How the host dials out where it has a proxy of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib

import pytest
from network_help import EVIL, GOOD, OPEN, Origin, hello, settled, world

from proctor.core.errors import InputError
from proctor.core.sandbox import NetworkRules
from proctor.network.upstream import Proxies, Proxy


def test_the_hosts_environment_is_read() -> None:
    proxies = Proxies.of(
        {"HTTP_PROXY": "http://upper:1", "http_proxy": "http://us%40er:p%3Aw@lower:3128/", "ALL_PROXY": "every:8080",
         "NO_PROXY": "inside.example.org, .corp.example.org *.star.example.org,10.0.0.1 one.example.org:8080"}
    )  # fmt: skip
    login = b"Basic " + base64.b64encode(b"us@er:p:w")
    assert proxies.http == Proxy("lower", 3128, login)
    assert proxies.https == Proxy("every", 8080)
    assert "p:w" not in repr(proxies)
    assert login.decode() not in repr(proxies)
    direct = ["inside.example.org", "a.inside.example.org", "a.corp.example.org", "b.a.star.example.org", "10.0.0.1"]
    assert all(proxies.way("http", host, 80) is None for host in direct)
    for host in ("xinside.example.org", "inside.example.org.net", "10.0.0.11", "one.example.org"):
        assert proxies.way("http", host, 80) is not None, host
    assert proxies.way("https", "one.example.org", 8080) is None
    assert Proxies.of({"http_proxy": "http://a", "no_proxy": "*"}).way("http", "x.org", 80) is None
    assert Proxies.of({}) == Proxies()
    assert Proxies.of({"http_proxy": "http://[2001:db8::1]:3128"}).http == Proxy("2001:db8::1", 3128)


@pytest.mark.parametrize("value", ["socks5://u:secret@h:1", "https://u:secret@h:1", "http://u:secret@h:x", "http://"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_login(value: str) -> None:
    with pytest.raises(InputError, match="HTTPS_PROXY is no http:// URL") as caught:
        Proxies.of({"HTTPS_PROXY": value})
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_requests_and_tunnels_go_through_the_hosts_proxy() -> None:
    async def work() -> None:
        origin, tunnels, inside = Origin(), list[bytes](), list[bytes]()

        async def parent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"CONNECT"):
                tunnels.append(head)
                refused = b"closed.example.org" in head
                writer.write(b"HTTP/1.1 407 No\r\n\r\n" if refused else b"HTTP/1.1 200 Fine\r\n\r\n")
                if not refused:  # a whole ClientHello: closing with something unread would reset the connection
                    record = await reader.readexactly(5)
                    inside.append(await reader.readexactly(int.from_bytes(record[3:])))
                writer.close()
            else:
                feed = asyncio.StreamReader()
                feed.feed_data(head)
                await origin.serve(feed, writer)

        names = {"proxy.corp.example.org": ["10.9.9.9"], "trap.example.org": ["10.0.0.1"]}
        proxies = Proxies.of({"http_proxy": "http://u:p@proxy.corp.example.org:3128", "https_proxy": "10.9.9.9:3128"})
        rules = NetworkRules(True, ("*.example.org",), ("proxy.corp.example.org",))
        async with world(rules, {3128: parent}, names=names | {GOOD: ["203.0.113.5"]}, proxies=proxies) as w:
            # One whose address this host does not know, which is usual there, and one that it knows.
            for host in ("unknown.example.org", GOOD):
                feed = await w.talk("proxy", f"GET http://{host}/x HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                assert b"HTTP/1.1 200 OK" in feed
                assert origin.heads[-1].startswith(
                    b"GET http://%s:80/x HTTP/1.0\r\nHost: %s\r\n" % ((host.encode(),) * 2)
                )
                assert b"Proxy-Authorization: Basic dTpw\r\n" in origin.heads[-1]
                assert w.last().allowed
                assert w.last().address is None
            await w.talk("https", hello("unknown.example.org"))
            assert tunnels == [b"CONNECT unknown.example.org:443 HTTP/1.1\r\nHost: unknown.example.org:443\r\n\r\n"]
            assert b"unknown.example.org" in inside[0]
            assert w.last().allowed
            assert set(w.dialled) == {("10.9.9.9", 3128)}
            # Names stay checked here; what this host knows to be private does not go to the proxy.
            before = len(w.dialled)
            for host in (EVIL, "trap.example.org", "proxy.corp.example.org", "10.9.9.9"):
                assert b" 403 " in await w.talk(
                    "proxy", f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
                )
                assert not w.last().allowed
            assert len(w.dialled) == before
            closed = b"CONNECT closed.example.org:443 HTTP/1.1\r\nHost: closed.example.org\r\n\r\n"
            assert b"502 the host's own proxy answers 407" in await w.talk("proxy", closed)

    asyncio.run(asyncio.wait_for(work(), 60))


def test_names_of_no_proxy_are_dialled_directly() -> None:
    async def work() -> None:
        origin = Origin()
        proxies = Proxies.of({"http_proxy": "http://10.9.9.9:3128", "no_proxy": "example.org"})
        async with world(OPEN, {80: origin.serve}, proxies=proxies) as w:
            assert b"200 OK" in await w.talk("http", f"GET / HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode())
            assert w.dialled == [("127.0.0.1", 80)]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_proxy_that_says_nothing_right_is_no_way() -> None:
    async def work() -> None:
        async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"220 mail.example.org\r\n\r\n")
            with contextlib.suppress(OSError):
                await reader.read()
            writer.close()

        async with world(OPEN, {3128: odd}, proxies=Proxies.of({"https_proxy": "10.9.9.9:3128"})) as w:
            connect = f"CONNECT {GOOD}:443 HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode()
            assert b"502 the host's own proxy does not answer" in await w.talk("proxy", connect)
            await settled(lambda: w.gate.connections == 0)

    asyncio.run(asyncio.wait_for(work(), 60))
