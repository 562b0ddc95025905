"""The gate with real sockets: what passes, and that each attack fails where one like it, but allowed, passes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from network_help import EVIL, GOOD, OPEN, Origin, certificate, hello, settled, world

from proctor.core.errors import InputError
from proctor.core.sandbox import NetworkRules
from proctor.network.attempts import Attempt
from proctor.network.bounds import Bounds
from proctor.network.peer import Activity, Peer, copy_body


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def get(host: str, line: str = "GET {url} HTTP/1.1", more: str = "") -> bytes:
    return f"{line.format(url=f'http://{host}/x')}\r\nHost: {host}\r\n{more}\r\n".encode("latin-1")


PLAIN = f"GET /x HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode()


def test_plain_requests_pass_by_name_and_are_logged() -> None:
    async def work() -> None:
        origin = Origin()
        async with world(OPEN, {80: origin.serve}) as w:
            for door, data in (
                ("proxy", get(GOOD)),
                ("http", PLAIN),
                ("http", get(GOOD)),
                ("proxy", get(GOOD.upper() + ".")),
            ):
                answer = await w.talk(door, data)
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer
                assert b"Connection: close\r\n" in answer
                assert w.last().allowed
                assert (w.last().kind, w.last().host, w.last().port, w.last().address) == (
                    "http",
                    GOOD,
                    80,
                    "127.0.0.1",
                )
            assert all(head.startswith(b"GET /x HTTP/1.1\r\nHost: good.example.org\r\n") for head in origin.heads)
            assert set(w.dialled) == {("127.0.0.1", 80)}
            assert len(w.gate.attempts) == 4

    run(work())


def test_bodies_pass_whole_in_both_forms() -> None:
    async def work() -> None:
        origin, body = Origin(), bytes(range(256)) * 2000
        async with world(OPEN, {80: origin.serve}) as w:
            answer = await w.talk("proxy", get(GOOD, "POST {url} HTTP/1.1", f"Content-Length: {len(body)}\r\n") + body)
            assert answer.endswith(body)
            chunks = b"5\r\nhello\r\n" + b"%X\r\n" % 70000 + b"y" * 70000 + b"\r\n0\r\n\r\n"
            await w.talk("proxy", get(GOOD, "POST {url} HTTP/1.1", "Transfer-Encoding: chunked\r\n") + chunks)
            assert origin.bodies[1] == b"5\r\nhello\r\n" + b"%x\r\n" % 70000 + b"y" * 70000 + b"\r\n0\r\n\r\n"
            origin.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            assert (await w.talk("proxy", get(GOOD))).endswith(b"3\r\nabc\r\n0\r\n\r\n")
            origin.answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n"
            assert (await w.talk("proxy", get(GOOD))).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n")

    run(work())


@pytest.mark.parametrize("second", [EVIL, GOOD])
def test_a_connection_carries_one_request(second: str) -> None:
    async def work() -> None:
        origin = Origin()
        async with world(OPEN, {80: origin.serve}) as w:
            answer = await w.talk("proxy", get(GOOD) + get(second, "POST {url} HTTP/1.1"))
            assert answer.count(b"HTTP/1.1 200") == 1
            assert len(origin.heads) == 1
            body = get(second)
            await w.talk("proxy", get(GOOD, "POST {url} HTTP/1.1", "Content-Length: 3\r\n") + b"abc" + body)
            assert origin.bodies[1:] == [b"abc"]

    run(work())


@pytest.mark.parametrize(
    "data",
    [
        get(EVIL),
        get(f"{GOOD}.evil.net"),
        get("127.1"),
        get("2130706433"),
        get("10.0.0.1"),
        get("[::ffff:10.0.0.1]"),
        get(f"{GOOD}:22"),
        get(f"{GOOD}@{EVIL}"),
        get(f"{EVIL}%00{GOOD}"),
        f"GET http://{GOOD}/ HTTP/1.1\r\nHost: {EVIL}\r\n\r\n".encode(),
        f"GET http://{EVIL}/ HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode(),
        get(GOOD, more=f"Host: {EVIL}\r\n"),
        get(GOOD, more=f"X: y\r\n Host: {EVIL}\r\n"),
        get(GOOD, more=f"X: y\nHost: {EVIL}\r\n"),
        get(GOOD, "POST {url} HTTP/1.1", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + b"0\r\n\r\n",
        get(GOOD, "POST {url} HTTP/1.1", "Content-Length: 4\r\nContent-Length: 5\r\n") + b"abcde",
        get(GOOD, "POST {url} HTTP/1.1", "Transfer-Encoding: chunked, identity\r\n") + b"0\r\n\r\n",
        b"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: evil.example.net\r\n\r\n",
        b"CONNECT good.example.org:25 HTTP/1.1\r\nHost: good.example.org\r\n\r\n",
        b"CONNECT 203.0.113.5:443 HTTP/1.1\r\nHost: 203.0.113.5\r\n\r\n",
        b"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n",
        b"\x04\x01\x01\xbb\x7f\0\0\1\0" + b"\r\n\r\n",  # SOCKS
        b"\x05\x01\0\r\n\r\n",
        b"A" * 40000 + b"\r\n\r\n",
    ],
)
@pytest.mark.parametrize("door", ["proxy", "http"])
def test_attacks_on_the_head_reach_nobody(door: str, data: bytes) -> None:
    if door == "http" and data.startswith(b"GET / "):
        pytest.skip("that is how one asks there")

    async def work() -> None:
        origin = Origin()
        async with world(OPEN, dict.fromkeys((22, 25, 80, 443), origin.serve)) as w:
            answer = await w.talk(door, data)
            assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))
            assert (w.dialled, w.resolved, origin.accepted) == ([], [], 0)
            assert [attempt.decision for attempt in w.log] == ["deny"]
            assert w.last().reason.isprintable()

    run(work())


@pytest.mark.parametrize(
    "chunks",
    [b"5\r\nhelloX\r\n", b"5;ext=1\r\nhello\r\n0\r\n\r\n", b"0x5\r\nhello\r\n", b"-5\r\n", b"5 \r\nhello\r\n", b"5\nhello\n",
     b"fffffffff\r\n", b"0\r\nHost: evil\r\n\r\n", b"1" * 100],
)  # fmt: skip
def test_bad_chunks_end_the_request(chunks: bytes) -> None:
    async def work() -> None:
        origin = Origin()
        async with world(OPEN, {80: origin.serve}) as w:
            hidden = get(EVIL)
            answer = await w.talk(
                "proxy", get(GOOD, "POST {url} HTTP/1.1", "Transfer-Encoding: chunked\r\n") + chunks + hidden
            )
            assert b"200" not in answer
            assert not w.last().allowed
            assert origin.bodies == []
            assert all(EVIL.encode() not in head for head in origin.heads)

    run(work())


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", b"502"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", b"502"),
        (b"SSH-2.0-server\r\n\r\n", b"502"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 9000 + b"\r\n", b"502"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 50, b"100"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"200"),
    ],
)
def test_hostile_servers_end_their_own_connection(answer: bytes, seen: bytes) -> None:
    async def work() -> None:
        origin = Origin(answer)
        async with world(OPEN, {80: origin.serve}) as w:
            assert (await w.talk("proxy", get(GOOD)))[9:12] in (seen, b"")
            await settled(lambda: w.gate.connections == 0)
            origin.answer = None
            assert b"200 OK" in await w.talk("proxy", get(GOOD))

    run(work())


def test_a_name_that_leads_to_a_private_place_is_refused() -> None:
    async def work() -> None:
        origin = Origin()
        places = [
            "10.0.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "fe80::1%eth0",
            "junk",
        ]
        names = {f"n{index}.example.org": [place] for index, place in enumerate(places)}
        names["mixed.example.org"] = ["10.0.0.1", "203.0.113.5", "127.0.0.1"]
        async with world(NetworkRules(True), {80: origin.serve}, names=names) as w:
            for index, place in enumerate(places):
                assert (await w.talk("proxy", get(f"n{index}.example.org"))).startswith(b"HTTP/1.1 403 "), place
                assert not w.last().allowed
            assert w.dialled == []
            assert b"200 OK" in await w.talk("proxy", get("mixed.example.org"))
            assert w.dialled == [("203.0.113.5", 80)]
            assert w.last().address == "203.0.113.5"

    run(work())


def test_the_address_that_was_checked_is_the_one_that_is_used() -> None:
    """A name that changes its address between two look-ups: there is only one."""

    class Turning(list[str]):
        def __iter__(self) -> Any:
            answers, self[:] = self[:], ["10.0.0.1"]
            return iter(answers)

    async def work() -> None:
        origin = Origin()
        async with world(NetworkRules(True), {80: origin.serve}, names={GOOD: Turning(["203.0.113.5"])}) as w:
            assert b"200 OK" in await w.talk("proxy", get(GOOD))
            assert (w.resolved, w.dialled) == ([GOOD], [("203.0.113.5", 80)])
            assert b"HTTP/1.1 403" in await w.talk("proxy", get(GOOD))
            assert w.dialled == [("203.0.113.5", 80)]

    run(work())


def test_what_cannot_be_reached_is_said_and_was_allowed() -> None:
    async def work() -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with world(NetworkRules(True, ("*.example.org", "127.0.0.1")), {80: refuse}) as w:
            assert b"502 missing.example.org has no address" in await w.talk("proxy", get("missing.example.org"))
            assert w.last().allowed
            assert b"HTTP/1.1 502 " in await w.talk("proxy", get(GOOD))

    run(work())


async def over_tls(w: Any, door: str, cert: Path, sni: str, connect: str | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", w.doors[door])
    try:
        if connect is not None:
            writer.write(f"CONNECT {connect} HTTP/1.1\r\nHost: {connect}\r\n\r\n".encode())
            said = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in said.split(b"\r\n")[0]:
                return said
        context = ssl.create_default_context(cafile=str(cert))
        await writer.start_tls(context, server_hostname=sni)
        writer.write(f"GET /x HTTP/1.1\r\nHost: {sni}\r\n\r\n".encode())
        return await reader.readuntil(b"\r\n\r\n")
    except (ssl.SSLError, OSError, EOFError) as exc:
        return repr(exc).encode()
    finally:
        writer.close()


def test_tls_passes_by_its_name_alone(tmp_path: Path) -> None:
    context, cert = certificate(tmp_path, GOOD, EVIL, "other.example.org")

    async def work() -> None:
        origin = Origin()
        rules = NetworkRules(True, ("*.example.org", "127.0.0.1"))
        async with world(rules, {443: (origin.serve, context)}, names={"other.example.org": ["127.0.0.1"]}) as w:
            for arguments in ((GOOD, None), (GOOD, f"{GOOD}:443"), (GOOD.upper(), f"{GOOD}:443")):
                door = "https" if arguments[1] is None else "proxy"
                assert b"200 OK" in await over_tls(w, door, cert, *arguments), arguments
                assert w.last().allowed
                assert w.last().address == "127.0.0.1"
            served = len(origin.heads)
            # The certificate fits all of these: only the gate is against them.
            for door, sni, connect in (
                ("https", EVIL, None),
                ("proxy", EVIL, f"{GOOD}:443"),
                ("proxy", "other.example.org", f"{GOOD}:443"),
                ("proxy", EVIL, f"{EVIL}:443"),
            ):
                assert b"200 OK" not in await over_tls(w, door, cert, sni, connect), (sni, connect)
                assert not w.last().allowed
                assert w.last().kind == ("connect" if connect == f"{EVIL}:443" else "tls")
            assert len(origin.heads) == served

    run(work())


def ech(name: str) -> bytes:
    data = bytearray(hello(name))
    added = struct.pack(">HH", 0xFE0D, 4) + b"abcd"
    at = 9 + 2 + 32
    at += 1 + data[at]
    at += 2 + int.from_bytes(data[at : at + 2], "big")
    at += 1 + data[at]
    for place, size in ((3, 2), (6, 3), (at, 2)):
        longer = int.from_bytes(data[place : place + size], "big") + len(added)
        data[place : place + size] = longer.to_bytes(size, "big")
    return bytes(data + added)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (hello(None), "does not say the name"),
        (ech(GOOD), "hides the name"),
        (hello(EVIL), f"{EVIL}"),
        (b"GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n", "not TLS that passes"),
        (b"SSH-2.0-x\r\n", "not TLS that passes"),
        (hello(GOOD).replace(b"good.example.org", b"good\0example.org"), "not TLS that passes"),
        (hello(GOOD).replace(b"good.example.org", b"good.example.127"), "not TLS that passes"),
        (hello(GOOD).replace(b"good.example.org", b"good.ex\xe4mple.org"), "not TLS that passes"),
    ],
)
def test_first_words_that_are_no_tls_for_an_allowed_name(data: bytes, reason: str) -> None:
    async def work() -> None:
        origin = Origin()
        async with world(OPEN, {443: origin.serve}) as w:
            assert (await w.talk("https", data))[:1] in (b"\x15", b"")
            assert reason in w.last().reason
            assert not w.last().allowed
            assert (w.dialled, origin.accepted) == ([], 0)
            if data[0] != 22:
                return
            connect = f"CONNECT {GOOD}:443 HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode()
            answer = await w.talk("proxy", connect + data)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert not w.last().allowed
            await settled(lambda: w.gate.connections == 0)
            assert origin.heads == []

    run(work())


def test_a_hello_in_pieces_arrives_as_it_was_sent() -> None:
    async def work() -> None:
        got = bytearray()

        async def remember(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while piece := await reader.read(65536):
                got.extend(piece)
            writer.write(b"bye")
            writer.close()

        async with world(OPEN, {443: remember}) as w:
            data = hello(GOOD) + b"\x17\3\3\0\3abc"
            reader, writer = await asyncio.open_connection("127.0.0.1", w.doors["https"])
            for at in range(0, len(data), 40):
                writer.write(data[at : at + 40])
                await writer.drain()
                await asyncio.sleep(0.001)
            writer.write_eof()
            assert await reader.read() == b"bye"
            assert bytes(got) == data
            writer.close()

    run(work())


def test_a_tunnel_to_a_name_carries_its_plain_requests_alone() -> None:
    async def work() -> None:
        origin = Origin()
        connect = f"CONNECT {GOOD}:80 HTTP/1.1\r\nHost: {GOOD}:80\r\n\r\n".encode()
        async with world(OPEN, {80: origin.serve}) as w:
            assert b"200 OK\r\n" in await w.talk("proxy", connect + PLAIN)
            assert len(origin.heads) == 1
            for inner in (PLAIN.replace(GOOD.encode(), EVIL.encode()), b"SSH-2.0-x\r\n\r\n", connect, hello(EVIL)):
                assert b"200 OK\r\n" not in await w.talk("proxy", connect + inner)
                assert not w.last().allowed
            await settled(lambda: w.gate.connections == 0)
            assert len(origin.heads) == 1

    run(work())


def test_a_name_with_a_port_of_its_own_is_no_way_for_other_protocols() -> None:
    async def work() -> None:
        origin = Origin()
        rules = NetworkRules(True, (f"{GOOD}:5432", "127.0.0.1:5432"))
        connect = f"CONNECT {GOOD}:5432 HTTP/1.1\r\nHost: {GOOD}:5432\r\n\r\n".encode()
        async with world(rules, {5432: origin.serve}) as w:
            asked = f"GET / HTTP/1.1\r\nHost: {GOOD}:5432\r\n\r\n".encode()
            assert b"200 OK" in await w.talk("proxy", connect + asked)
            assert b"Host: good.example.org:5432\r\n" in origin.heads[0]
            for words in (
                b"\0\0\0\x08\x04\xd2\x16\x2f\r\n\r\n",
                asked.replace(GOOD.encode(), EVIL.encode()),
                hello(EVIL),
            ):
                await w.talk("proxy", connect + words)
                assert not w.last().allowed
            await settled(lambda: w.gate.connections == 0)
            assert len(origin.heads) == 1

    run(work())


def test_the_plain_doors_are_for_their_own_ports_and_for_no_tunnel() -> None:
    async def work() -> None:
        origin = Origin()
        rules = NetworkRules(True, (GOOD, f"{GOOD}:8080", "127.0.0.1", "127.0.0.1:8080"))
        async with world(rules, dict.fromkeys((80, 443, 8080), origin.serve)) as w:
            for data in (
                f"GET / HTTP/1.1\r\nHost: {GOOD}:8080\r\n\r\n".encode(),
                f"CONNECT {GOOD}:443 HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode(),
            ):
                assert (await w.talk("http", data)).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
                assert not w.last().allowed
            assert w.dialled == []
            assert b"200 OK" in await w.talk("proxy", get(f"{GOOD}:8080"))

    run(work())


def test_an_address_that_is_named_may_be_asked_for_without_a_name() -> None:
    async def work() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"ready ")
            writer.write(await reader.read(100))
            writer.close()

        rules = NetworkRules(True, ("203.0.113.5", "203.0.113.5:5432"), ("evil.example.net",))
        async with world(rules, dict.fromkeys((443, 5432), echo)) as w:
            for port, words in ((5432, b"any words"), (443, hello(None)), (443, hello("fine.example.org"))):
                connect = f"CONNECT 203.0.113.5:{port} HTTP/1.1\r\nHost: 203.0.113.5:{port}\r\n\r\n".encode()
                assert (await w.talk("proxy", connect + words)).endswith(b"ready " + words[:100])
            connect = b"CONNECT 203.0.113.5:443 HTTP/1.1\r\nHost: 203.0.113.5\r\n\r\n"
            assert b"ready" not in await w.talk("proxy", connect + hello(EVIL))
            assert not w.last().allowed
            for other in (b"203.0.113.6:5432", b"203.0.113.5:22"):
                refused = b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (other, other)
                assert (await w.talk("proxy", refused)).startswith(b"HTTP/1.1 403 ")

    run(work())


def test_set_changes_the_rules_live_and_cuts() -> None:
    async def work() -> None:
        origin = Origin()
        async with world(NetworkRules(), {80: origin.serve, 443: origin.serve}) as w:
            assert (await w.talk("proxy", get(GOOD))).startswith(b"HTTP/1.1 403 the network is off")
            await w.gate.set(OPEN)
            assert b"200 OK" in await w.talk("proxy", get(GOOD))
            reader, writer = await asyncio.open_connection("127.0.0.1", w.doors["https"])
            writer.write(hello(GOOD))
            await settled(lambda: origin.accepted == 2)
            with pytest.raises(InputError):
                await w.gate.set(NetworkRules(True, ("http://x",)))
            assert w.gate.connections == 1
            await w.gate.set(NetworkRules())
            assert w.gate.connections == 0
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            for door, data in (("proxy", get(GOOD)), ("http", PLAIN), ("https", hello(GOOD))):
                assert b"200 OK" not in await w.talk(door, data)
                assert not w.last().allowed
            assert origin.accepted == 2
            await w.gate.set(OPEN)
            assert b"200 OK" in await w.talk("proxy", get(GOOD))

    run(work())


def test_a_connection_that_is_being_made_is_cut_as_well() -> None:
    async def work() -> None:
        gone: list[bool] = []

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while await reader.read(100):
                    pass
            gone.append(True)
            writer.close()

        async with world(OPEN, {80: hang}) as w:
            talk = asyncio.create_task(w.talk("proxy", get(GOOD)))
            await settled(lambda: w.dialled != [])
            await w.gate.set(NetworkRules())
            assert await talk == b""
            await settled(lambda: bool(gone))

    run(work())


def test_names_are_answered_from_the_rules_and_nothing_is_asked_outside() -> None:
    async def work() -> None:
        async with world(OPEN) as w:
            for name, answers in ((GOOD, 1), (GOOD.upper(), 1), (EVIL, 0), ("secret." + GOOD, 0), ("1.2.3.4", 0)):
                sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                sock.connect(("127.0.0.1", w.doors["dns"]))
                sock.setblocking(False)
                labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
                sock.send(struct.pack(">HHHHHH", 5, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1")
                reply = await asyncio.get_running_loop().sock_recv(sock, 512)
                sock.close()
                assert struct.unpack_from(">HHHH", reply)[3] == answers, name
                assert (w.last().kind, w.last().allowed) == ("dns", bool(answers))
            assert w.resolved == []

    run(work())


def test_connections_at_once_are_bounded_and_the_next_waits() -> None:
    async def work() -> None:
        origin = Origin()
        async with world(OPEN, {80: origin.serve}, bounds=Bounds(connections=2)) as w:
            held = [await asyncio.open_connection("127.0.0.1", w.doors["proxy"]) for _ in range(2)]
            await settled(lambda: w.gate.connections == 2)
            third = asyncio.create_task(w.talk("proxy", get(GOOD)))
            for _ in range(30):
                await asyncio.sleep(0.01)
                assert w.gate.connections == 2
            assert not third.done()
            held[0][1].close()
            held[1][1].close()
            assert b"200 OK" in await third

    run(work())


@pytest.mark.parametrize("body", ["chunked", "rest", 3000])
def test_a_side_that_is_always_ready_leaves_the_loop_to_others(body: Any) -> None:
    async def work() -> None:
        sent = b"1\r\na\r\n" * 50 + b"0\r\n\r\n" if body == "chunked" else b"a" * 3000
        (here, source), (sink, there) = socket.socketpair(), socket.socketpair()
        with here, there:
            here.sendall(sent)
            here.shutdown(socket.SHUT_WR)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            ticking = asyncio.create_task(other())
            one, two = Peer(source, Activity()), Peer(sink, Activity())
            pieces = 0
            plain = one._loop.sock_sendall

            async def counted(*args: Any) -> None:
                nonlocal pieces
                pieces += 1
                await plain(*args)

            one._loop.sock_sendall = counted  # type: ignore[method-assign]
            await copy_body(one, two, body)
            ticking.cancel()
            assert turns >= pieces > 0
            one.sock.close()
            two.sock.close()

    run(work())


def test_connections_of_all_sandboxes_are_bounded_together() -> None:
    async def work() -> None:
        origin = Origin()
        places = asyncio.Semaphore(2)
        async with (
            world(OPEN, bounds=Bounds(connections=2), places=places) as greedy,
            world(OPEN, {80: origin.serve}, places=places) as w,
        ):
            held = [await asyncio.open_connection("127.0.0.1", greedy.doors["proxy"]) for _ in range(3)]
            await settled(lambda: greedy.gate.connections == 2)
            waits = asyncio.create_task(w.talk("proxy", get(GOOD)))
            for _ in range(30):
                await asyncio.sleep(0.01)
                assert w.gate.connections == 0
            await greedy.gate.close()  # its third one, which waits, gives nothing back that it has not
            assert b"200 OK" in await waits
            for _, writer in held:
                writer.close()
        assert [places.locked(), places._value] == [False, 2]

    run(work())


@pytest.mark.parametrize("door", ["proxy", "http", "https"])
@pytest.mark.parametrize("words", [b"", b"G", b"\x16\3\1"])
def test_a_head_that_does_not_come_ends_the_connection(door: str, words: bytes) -> None:
    async def work() -> None:
        async with world(OPEN, bounds=Bounds(head_s=0.3)) as w:
            await w.talk(door, words)
            await settled(lambda: w.gate.connections == 0)

    run(work())


def test_a_connection_on_which_nothing_moves_is_cut() -> None:
    async def work() -> None:
        origin = Origin(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        async with world(OPEN, {80: origin.serve, 443: origin.serve}, bounds=Bounds(idle_s=0.3)) as w:
            assert (await w.talk("proxy", get(GOOD))).endswith(b"abc")
            await w.talk("https", hello(GOOD))
            await settled(lambda: w.gate.connections == 0)

    run(work())


def test_a_side_that_does_not_take_slows_the_other() -> None:
    whole = 256 << 20

    async def work() -> None:
        sent = 0

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            with contextlib.suppress(OSError):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % whole)
                while sent < whole:
                    writer.write(bytes(1 << 20))
                    await writer.drain()
                    sent += 1 << 20
            writer.close()

        async with world(OPEN, {80: flood}) as w:
            _, writer = await asyncio.open_connection("127.0.0.1", w.doors["proxy"], limit=1024)
            writer.write(get(GOOD))
            still = 0
            while still < 20:
                before = sent
                await asyncio.sleep(0.05)
                still = still + 1 if sent == before and sent else 0
            assert sent < whole
            writer.transport.abort()

    run(work())


def test_a_server_that_answers_before_it_has_heard_all_is_heard() -> None:
    async def work() -> None:
        async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too large\r\nContent-Length: 2\r\n\r\nno")
            await writer.drain()
            await reader.read()

        async with world(OPEN, {80: early}) as w:
            answer = await w.talk("proxy", get(GOOD, "POST {url} HTTP/1.1", "Content-Length: 999999\r\n") + b"abc")
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert answer.endswith(b"no")

    run(work())


def test_what_cannot_be_logged_does_not_pass() -> None:
    async def work() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))

        def full(attempt: Attempt) -> None:
            raise OSError("no space") if attempt.kind == "dns" else RuntimeError("no space")

        origin = Origin()
        async with world(OPEN, {80: origin.serve}, log=full) as w:
            assert b"200" not in await w.talk("proxy", get(GOOD))
            await settled(lambda: w.gate.connections == 0)
            assert origin.heads == []
            assert [str(fault["exception"]) for fault in faults] == ["no space"]

    run(work())


def test_attempts_beyond_the_rate_wait_and_the_latest_are_kept() -> None:
    async def work() -> None:
        bounds = Bounds(rate=0.001, burst=8, attempts=5)
        async with world(OPEN, bounds=bounds) as w:
            for index in range(8):
                await w.talk("proxy", get(f"n{index}.example.net"))
            late = asyncio.create_task(w.talk("proxy", get("late.example.net")))
            await settled(lambda: w.gate.connections == 1)
            await asyncio.sleep(0.3)
            assert not late.done()
            assert len(w.log) == 8
            assert [attempt.host for attempt in w.gate.attempts] == [f"n{index}.example.net" for index in range(3, 8)]
            await w.gate.close()
            await late

    run(work())


def test_close_leaves_nothing() -> None:
    async def work() -> None:
        origin = Origin()
        async with world(OPEN, {80: origin.serve}) as w:
            held = await asyncio.open_connection("127.0.0.1", w.doors["proxy"])
            await settled(lambda: w.gate.connections == 1)
            await w.gate.close()
            with pytest.raises(OSError, match="."):
                await asyncio.open_connection("127.0.0.1", w.doors["proxy"])
            held[1].close()
            assert w.gate.connections == 0
            left = [str(task.get_coro()) for task in asyncio.all_tasks()]
            assert not [text for text in left if "Gate." in text or "Session." in text or "copy" in text]

    run(work())
