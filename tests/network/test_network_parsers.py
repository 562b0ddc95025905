"""ClientHello, HTTP heads and DNS questions: one reading, or none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_help import hello

from proctor.network import dns, http, sni


def block(data: bytes, size: int) -> bytes:
    return len(data).to_bytes(size, "big") + data


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack(">H", kind) + block(content, 2)


def server_name(name: bytes, kind: int = 0) -> bytes:
    return extension(0, block(bytes([kind]) + block(name, 2), 2))


def client_hello(extensions: bytes, tail: bytes = b"") -> bytes:
    return b"\3\3" + bytes(32) + block(b"", 1) + block(b"\x13\x01", 2) + block(b"\0", 1) + block(extensions, 2) + tail


def records(body: bytes, size: int = 16384) -> bytes:
    message = b"\1" + block(body, 3)
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\3\1" + block(piece, 2) for piece in pieces)


@pytest.mark.parametrize("step", [1, 7, 100000])
@pytest.mark.parametrize("size", [1, 5, 16384])
def test_a_name_is_found_however_the_hello_is_cut(step: int, size: int) -> None:
    data = records(hello("good.example.org")[9:], size) + b"\x14\3\3\0\1\1"
    reader = sni.HelloReader()
    for at in range(0, len(data), step):
        found = reader.feed(data[at : at + step])
        if found is not None:
            break
    assert found == sni.ClientHello("good.example.org", False)
    assert data.startswith(bytes(reader.raw))


def test_a_hello_without_a_name_or_that_hides_it() -> None:
    assert sni.HelloReader().feed(hello(None)) == sni.ClientHello(None, False)
    name = server_name(b"a.example.org")
    for kind in (0xFE0D, 0xFFCE):
        assert sni.parse(client_hello(name + extension(kind, b"x"))) == sni.ClientHello("a.example.org", True)


NAME = server_name(b"a.example.org")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x2e\1\3\1" + bytes(40),  # SSL 2
        b"\x16\2\0" + block(b"\1", 2),
        b"\x16\3\1\0\0",
        b"\x16\3\1\xff\xff",
        b"\x16\3\1" + block(b"\2\0\0\1\0", 2),
        b"\x16\3\1" + block(b"\1\xff\xff\xff", 2),
        b"\x16\3\1" + block(b"\1\0", 2) + b"\x17\3\3\0\1x",
        records(client_hello(NAME + NAME)),
        records(client_hello(server_name(b"a.example.org", 1))),
        records(client_hello(server_name(b""))),
        records(client_hello(extension(0, block(b"\0" + block(b"a.org", 2) + b"\0" + block(b"b.org", 2), 2)))),
        records(client_hello(extension(0, block(b"\0" + block(b"a.org", 2), 2) + b"x"))),
        records(client_hello(NAME, b"x")),
        records(client_hello(NAME[:-3])),
        records(client_hello(extension(21, bytes(17000)) + NAME)),
        records(client_hello(extension(21, bytes(15000)) + NAME), 1),
        b"\x16\3\1" + block(b"\1" + block(client_hello(NAME), 3) + b"\1", 2),
    ],
)  # fmt: skip
def test_what_is_no_plain_hello_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        sni.HelloReader().feed(data)


@given(st.binary(max_size=400), st.booleans())
def test_no_bytes_break_the_reader(data: bytes, wrapped: bool) -> None:
    reader = sni.HelloReader()
    try:
        found = reader.feed(records(data) if wrapped else data)
    except ValueError:
        return
    assert found is None or isinstance(found, sni.ClientHello)


@given(st.data())
def test_no_change_of_a_hello_breaks_the_reader(data: st.DataObject) -> None:
    raw = bytearray(hello("good.example.org"))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        sni.HelloReader().feed(bytes(raw))
    except ValueError:
        return


def head(*lines: str, line: str = "GET http://a.example.org/x HTTP/1.1") -> bytes:
    return "\r\n".join([line, *lines, "", ""]).encode("latin-1")


def test_a_request_goes_on_with_one_host_and_an_end() -> None:
    request = http.parse_request(head("Host: A.example.org:80", "X-A: b", "Connection: x-a, keep-alive",
                                      "Proxy-Authorization: secret", "Upgrade: h2c", "Accept: */*"))  # fmt: skip
    assert (request.host, request.port, request.path, request.body) == ("a.example.org", 80, b"/x", 0)
    assert request.forwarded() == b"GET /x HTTP/1.1\r\nHost: a.example.org\r\naccept: */*\r\nConnection: close\r\n\r\n"
    through = request.forwarded(prefix=b"http://a.example.org:80", extra=[(b"Proxy-Authorization", b"ours")])
    assert through.startswith(b"GET http://a.example.org:80/x HTTP/1.1\r\n")
    assert b"Proxy-Authorization: ours\r\n" in through
    assert b"secret" not in through


@pytest.mark.parametrize(
    ("line", "host", "expected"),
    [
        ("GET http://a.example.org HTTP/1.1", "a.example.org", ("a.example.org", 80, b"/")),
        ("GET http://a.example.org?q=/ HTTP/1.1", "a.example.org", ("a.example.org", 80, b"/?q=/")),
        (
            "GET HTTP://A.example.org.:8080/?http://x HTTP/1.1",
            "a.example.org:8080",
            ("a.example.org", 8080, b"/?http://x"),
        ),
        ("CONNECT a.example.org:443 HTTP/1.1", "a.example.org:443", ("a.example.org", 443, b"")),
        ("CONNECT a.example.org:443 HTTP/1.1", "a.example.org", ("a.example.org", 443, b"")),
        ("GET http://[2001:db8::1]:8080/ HTTP/1.1", "[2001:db8::1]:8080", (None, 8080, b"/")),
    ],
)
def test_where_a_request_goes(line: str, host: str, expected: tuple[str | None, int, bytes]) -> None:
    request = http.parse_request(head(f"Host: {host}", line=line))
    assert (request.host if expected[0] else None, request.port, request.path) == expected


REFUSED = [
    head("Host: a.example.org", "Host: a.example.org"),
    head("Host: b.example.org"),
    head("Host: a.example.org:8080"),
    head("Host: a.example.org@b.example.org"),
    head("Host: a.example.org, b.example.org"),
    head("Host: "),
    head(),
    head("Host: a.example.org", "Content-Length: 1", "Transfer-Encoding: chunked"),
    head("Host: a.example.org", "Content-Length: 1", "Content-Length: 1"),
    head("Host: a.example.org", "Content-Length: 1, 1"),
    head("Host: a.example.org", "Content-Length: +1"),
    head("Host: a.example.org", "Content-Length: -1"),
    head("Host: a.example.org", "Content-Length: 0x1"),
    head("Host: a.example.org", "Content-Length: \xb2"),
    head("Host: a.example.org", "Content-Length:"),
    head("Host: a.example.org", "Transfer-Encoding: xchunked"),
    head("Host: a.example.org", "Transfer-Encoding: gzip, chunked"),
    head("Host: a.example.org", "Transfer-Encoding: chunked, identity"),
    head("Host: a.example.org", "Transfer-Encoding:\x0bchunked"),
    head("Host: a.example.org", "Transfer-Encoding : chunked"),
    head("Host: a.example.org", "Transfer_Encoding: chunked"),
    head("Host: a.example.org", "Content_Length: 5"),
    head("Host: a.example.org", "X: y", " folded: z"),
    head("Host: a.example.org", "X: y", "\tHost: b.example.org"),
    head("Host: a.example.org", "X"),
    head("Host: a.example.org", ": x"),
    head("Host: a.example.org", "X: a\nHost: b.example.org"),
    head("Host: a.example.org", "X: a\rHost: b.example.org"),
    head("Host: a.example.org", "X: a\0b"),
    head("Host: a.example.org\0.b.example.org"),
    head("Host: a.example.org", "Connection: host"),
    head("Host: a.example.org", "Connection: close, Content-Length", "Content-Length: 3"),
    head("Host: a.example.org", *["X: y"] * 200),
    head("Host: a.example.org", "X: " + "y" * http.HEAD_MOST),
    head("Host: a.example.org", line="GET http://u@a.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="GET http://a.example.org:x/ HTTP/1.1"),
    head("Host: a.example.org", line="GET http://a.example.org#/ HTTP/1.1"),
    head("Host: a.example.org", line="GET http://a.example.org\\@b.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="GET https://a.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="GET ftp://a.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="GET //a.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="GET a.example.org HTTP/1.1"),
    head("Host: a.example.org", line="GET / HTTP/1.1"),
    head("Host: a.example.org", line="GET * HTTP/1.1"),
    head("Host: a.example.org", line="GET http://a.example.org/ HTTP/2.0"),
    head("Host: a.example.org", line="GET http://a.example.org/ HTTP/1.1 "),
    head("Host: a.example.org", line="GET  http://a.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="GET\thttp://a.example.org/\tHTTP/1.1"),
    head("Host: a.example.org", line="GET http://a.example.org/ http/1.1"),
    head("Host: a.example.org", line="GET http://a.example.org/"),
    head("Host: a.example.org", line="\r\nGET http://a.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="G\0T http://a.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="GET http://\xe4.example.org/ HTTP/1.1"),
    head("Host: a.example.org", line="CONNECT a.example.org HTTP/1.1"),
    head("Host: b.example.org", line="CONNECT a.example.org:443 HTTP/1.1"),
    head("Host: a.example.org", line="CONNECT http://a.example.org:443 HTTP/1.1"),
    head("Host: a.example.org", "Content-Length: 3", line="CONNECT a.example.org:443 HTTP/1.1"),
    head("Host: a.example.org", "Transfer-Encoding: chunked", line="GET http://a.example.org/ HTTP/1.0"),
    b"GET http://a.example.org/ HTTP/1.1\nHost: a.example.org\n\n\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\n",
]


@pytest.mark.parametrize("data", REFUSED, ids=range(len(REFUSED)))
def test_requests_that_two_could_read_differently_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        http.parse_request(data)


@pytest.mark.parametrize("host", ["b.example.org", "a.example.org:8080", "a.example.org:443"])
def test_a_request_in_a_tunnel_is_for_its_end(host: str) -> None:
    good = head("Host: a.example.org", line="GET / HTTP/1.1")
    assert http.parse_request(good, expected=("a.example.org", 80)).path == b"/"
    with pytest.raises(ValueError, match="another"):
        http.parse_request(head(f"Host: {host}", line="GET / HTTP/1.1"), expected=("a.example.org", 80))
    with pytest.raises(ValueError, match="another"):
        http.parse_request(head(f"Host: {host}", line=f"GET http://{host}/ HTTP/1.1"), expected=("a.example.org", 80))


@given(st.binary(max_size=300))
def test_no_bytes_break_the_heads(data: bytes) -> None:
    for raw in (data, b"GET http://a.example.org/ HTTP/1.1\r\nHost: a.example.org\r\n" + data + http.END):
        for parse in (http.parse_request, lambda raw: http.parse_response(raw, b"GET")):
            try:
                found = parse(raw)
            except ValueError:
                continue
            if isinstance(found, http.Request):
                assert found.forwarded().count(b"Host: a.example.org\r\n") == 1
                assert found.forwarded().count(http.END) == 1


def test_responses() -> None:
    found = http.parse_response(
        b"HTTP/1.1 200 OK\r\nKeep-Alive: x\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n", b"GET"
    )
    assert (found.status, found.body) == (200, 3)
    assert found.text == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nConnection: close\r\n\r\n"
    assert http.parse_response(b"HTTP/1.0 200\r\n\r\n", b"GET").body == "rest"
    assert http.parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"HEAD").body == 0
    assert http.parse_response(b"HTTP/1.1 100 Continue\r\n\r\n", b"GET").interim
    for bad in (b"HTTP/1.1 101 X\r\n\r\n", b"HTTP/2 200\r\n\r\n", b"200 OK\r\n\r\n", b"HTTP/1.1 200 OK\nX: y\r\n\r\n"):
        with pytest.raises(ValueError, match="."):
            http.parse_response(bad, b"GET")


def question(
    name: bytes, kind: int = 1, *, flags: int = 0x0100, tail: bytes = b"", counts: tuple[int, ...] = (1, 0, 0, 0)
) -> bytes:
    labels = b"".join(bytes([len(label)]) + label for label in name.split(b".")) + b"\0"
    return struct.pack(">HHHHHH", 77, flags, *counts) + labels + struct.pack(">HH", kind, 1) + tail


EDNS = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)


@pytest.mark.parametrize(("kind", "records"), [(1, 1), (28, 0), (15, 0), (16, 0), (65, 0)])
def test_an_allowed_name_is_here(kind: int, records: int) -> None:
    for data in (question(b"a.example.org", kind), question(b"a.example.org", kind, tail=EDNS, counts=(1, 0, 0, 1))):
        asked: list[str] = []
        reply = dns.respond(data, lambda name, asked=asked: not asked.append(name))  # type: ignore[misc]
        assert asked == ["a.example.org"]
        assert reply is not None
        number, flags, questions, answers, *_ = struct.unpack_from(">HHHHHH", reply)
        assert (number, flags & 0x800F, questions, answers) == (77, 0x8000, 1, records)
        assert reply.endswith(bytes([127, 0, 0, 1])) is bool(records)


def test_other_names_do_not_exist() -> None:
    reply = dns.respond(question(b"secret-data.evil.net"), lambda name: False)
    assert reply is not None
    assert reply[3] & 15 == dns.NXDOMAIN
    assert len(reply) == len(question(b"secret-data.evil.net"))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x" * 11, b"x" * 600, question(b"a.org", flags=0x8000), question(b"a.org", flags=0x2800),
        question(b"a.org", counts=(2, 0, 0, 0)), question(b"a.org", counts=(1, 1, 0, 0)), question(b"a.org", tail=b"x"),
        question(b"a.org", tail=EDNS + b"x", counts=(1, 0, 0, 1)), question(b"a.org")[:-1],
        struct.pack(">HHHHHH", 1, 256, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",
        struct.pack(">HHHHHH", 1, 256, 1, 0, 0, 0) + b"\x05a.org\0\0\1\0\1",
        struct.pack(">HHHHHH", 1, 256, 1, 0, 0, 0) + b"\1a\0\0\1\0\3",
    ],
)  # fmt: skip
def test_what_is_not_one_question_is_not_answered(data: bytes) -> None:
    def never(name: str) -> bool:
        raise AssertionError(name)

    reply = dns.respond(data, never)
    assert reply is None or (len(reply) == 12 and reply[3] & 15 == dns.FORMERR)
    assert reply is None or not data[2] & 0x80


@given(st.binary(max_size=200))
def test_no_bytes_break_the_answers(data: bytes) -> None:
    for raw in (data, struct.pack(">HHHHHH", 1, 256, 1, 0, 0, 0) + data):
        dns.respond(raw, lambda name: True)
