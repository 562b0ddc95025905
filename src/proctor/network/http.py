"""Heads of HTTP/1 messages, read strictly: what two readers might read differently is refused.

That is what keeps one request from hiding in another: bare line ends, folded lines, blanks before a colon, two lengths,
a length beside chunks, two hosts, or a host that is not the one of the address line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from proctor.network.names import Host, authority, parse_authority
from proctor.network.rules import HTTP

HEAD_MOST = 32 << 10  # bytes
HEADERS_MOST = 128
END = b"\r\n\r\n"
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_VERSION = re.compile(rb"HTTP/1\.[01]")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,8}")
# Of one connection, not of the message: each side of this host says its own.
_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade", b"http2-settings"}
_FRAMING = {b"host", b"content-length", b"transfer-encoding"}
Headers = list[tuple[bytes, bytes]]
Body = int | Literal["chunked", "rest"]  # bytes that follow, chunks, or all until the connection ends


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``host`` and ``port`` are None where only a ``Host`` could have said, and did not.

    Attributes:
        path: of the address line, beginning with a slash; "" for CONNECT.
        headers: those that go on, without ``Host`` and without those of the connection.
    """

    method: bytes
    path: bytes
    version: bytes
    host: Host
    port: int
    body: Body
    headers: Headers

    @property
    def connect(self) -> bool:
        return self.method == b"CONNECT"

    def forwarded(self, *, prefix: bytes = b"", extra: Headers | None = None) -> bytes:
        """The head that goes to the server: one host, and an end after it.

        Args:
            prefix: ``http://host:port`` where the next is a proxy.
            extra: headers for that proxy.
        """
        host = authority(self.host, self.port, HTTP).encode("ascii")
        lines = [b"%s %s%s %s" % (self.method, prefix, self.path, self.version), b"Host: " + host]
        lines += [b"%s: %s" % header for header in [*self.headers, *(extra or [])]]
        return b"\r\n".join([*lines, b"Connection: close"]) + END


@dataclass(frozen=True, slots=True)
class Response:
    """A response's head. ``interim`` is one that another follows."""

    status: int
    body: Body
    text: bytes

    @property
    def interim(self) -> bool:
        return 100 <= self.status < 200


def parse_request(head: bytes, *, expected: tuple[Host, int] | None = None, default_port: int | None = None) -> Request:
    """Read a request's head, with the blank line at its end.

    Args:
        expected: the only host and port that it may be for, where a tunnel already leads there.
        default_port: of a request that has no absolute address, where such are taken; None takes none.

    Raises:
        ValueError: it is not one that every reader would read like this.
    """
    lines = _lines(head)
    words = lines[0].split(b" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]) or not _TARGET.fullmatch(words[1]):
        raise ValueError("no valid request line")
    method, target, version = words
    if not _VERSION.fullmatch(version):
        raise ValueError("not HTTP/1.0 or HTTP/1.1")
    headers = _headers(lines[1:])
    said = [value for name, value in headers if name == b"host"]
    if len(said) > 1:
        raise ValueError("more than one Host")
    if not said and version == b"HTTP/1.1":
        raise ValueError("no Host")
    if method == b"CONNECT":
        host, port = parse_authority(target.decode("ascii"))
        path, body = b"", _framing(headers, version)
        if body:
            raise ValueError("a CONNECT with a body")
        default = port  # programs send the name alone, or with the port
    elif target.startswith(b"/"):
        at = default_port if expected is None else expected[1]
        if at is None:
            raise ValueError("a request to a proxy without an absolute address")
        if not said:
            raise ValueError("no Host")
        host, port = parse_authority(said[0].decode("latin-1"), HTTP)
        if expected is None and port != at:
            raise ValueError(f"a Host of another port than {at}")
        path, body, default = target, _framing(headers, version), HTTP
    else:
        host, port, path = _absolute(target)
        body, default = _framing(headers, version), HTTP
    if said and parse_authority(said[0].decode("latin-1"), default) != (host, port):
        raise ValueError("a Host that is not the one of the address")
    if b"#" in target:
        raise ValueError("no valid address in the request line")
    if expected is not None and ((host, port) != expected or method == b"CONNECT"):
        raise ValueError("a request for another host than that of the tunnel")
    return Request(method, path, version, host, port, body, _passing(headers))


def _absolute(target: bytes) -> tuple[Host, int, bytes]:
    scheme, colon, rest = target.partition(b"://")
    if not colon or scheme.lower() != b"http":
        raise ValueError("an address that does not begin with http://")
    end = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    host, port = parse_authority(rest[:end].decode("ascii"), HTTP)
    path = rest[end:]
    return host, port, path if path.startswith(b"/") else b"/" + path


def parse_response(head: bytes, method: bytes) -> Response:
    """Read the head of what answers a request of ``method``; ``text`` is what the program gets instead.

    Raises:
        ValueError: it is not one that every reader would read like this, or it changes the protocol.
    """
    lines = _lines(head)
    found = _STATUS.fullmatch(lines[0])
    if found is None:
        raise ValueError("no valid status line")
    status, headers = int(found[1]), _headers(lines[1:])
    if status == 101:
        raise ValueError("a server that changes the protocol")
    passing, body = _passing(headers), _framing(headers, lines[0][:8], rest=True)
    if status < 200 or status in (204, 304) or method == b"HEAD":
        body = 0
    end = [] if status < 200 else [b"Connection: close"]
    text = b"\r\n".join([lines[0], *(b"%s: %s" % header for header in passing), *end]) + END
    return Response(status, body, text)


def _lines(head: bytes) -> list[bytes]:
    if not head.endswith(END) or len(head) > HEAD_MOST:
        raise ValueError("a head that does not end, or is too long")
    lines = head[: -len(END)].split(b"\r\n")
    if len(lines) > HEADERS_MOST + 1:
        raise ValueError("too many headers")
    return lines


def _headers(lines: list[bytes]) -> Headers:
    """Names in lower case, and values; no line end, NUL or other control byte passes."""
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError("no valid header line")
        name = name.lower()
        if name not in _FRAMING and name.replace(b"_", b"-") in _FRAMING:
            raise ValueError("a header that some servers take for another")
        headers.append((name, value.strip(b" \t")))
    return headers


def _framing(headers: Headers, version: bytes, *, rest: bool = False) -> Body:
    """How the body ends. ``rest``: without a word about it, it is all until the connection ends."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise ValueError("more than one length")
    if codings:
        if codings[0].lower() != b"chunked" or version == b"HTTP/1.0":
            raise ValueError("a transfer encoding other than chunked")
        return "chunked"
    if lengths:
        if not _LENGTH.fullmatch(lengths[0]):
            raise ValueError("no valid length")
        return int(lengths[0])
    return "rest" if rest else 0


def _passing(headers: Headers) -> Headers:
    """What goes on to the other side."""
    named = {
        word.strip(b" \t").lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    }
    if named & _FRAMING:
        raise ValueError("a Connection that names what belongs to the message")
    dropped = _HOP | named | {b"host"}
    return [(name, value) for name, value in headers if name not in dropped and not name.startswith(b"proxy-")]


def parse_chunk(line: bytes) -> int:
    """The size in a chunk's first line, without its line end; no extension."""
    if not _CHUNK.fullmatch(line):
        raise ValueError("no valid chunk")
    return int(line, 16)


def refusal(status: int, reason: str) -> bytes:
    """A whole response that says why. ``reason`` is printable ASCII; it is in the status line, which programs show."""
    line = reason.replace("\r", " ").replace("\n", " ").encode("ascii", "backslashreplace")
    text = line + b"\n"
    return (
        b"HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        % (status, line, len(text))
    ) + text
