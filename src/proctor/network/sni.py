"""The first words of a TLS client, read for the name that it asks for. Nothing is decrypted or changed.

Strict: whatever a server might read differently from this module is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HELLO_MOST = 16 << 10  # bytes of a ClientHello; browsers send about 2,000
RAW_MOST = 32 << 10  # bytes of the records that carry it
_RECORD_MOST = 1 << 14
HANDSHAKE, _CLIENT_HELLO = 22, 1  # HANDSHAKE is the first byte of TLS
_SERVER_NAME, _ESNI, _ECH = 0, 0xFFCE, 0xFE0D
# A fatal alert, access_denied: what a client is told before its connection ends.
ALERT = bytes([21, 3, 1, 0, 2, 2, 49])


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What a client says in clear: ``name`` is as it was sent, None where it sent none; ``hidden`` where it sends another."""

    name: str | None
    hidden: bool


class _Bytes:
    """Reads fields one after another; ValueError where they do not fit."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError("a ClientHello that ends in the middle of a field")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, size: int) -> bytes:
        """A field with its length, in ``size`` bytes, before it."""
        return self.take(self.number(size))

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def end(self) -> None:
        if self.left:
            raise ValueError("a ClientHello with bytes that have no meaning")


@dataclass(slots=True)
class HelloReader:
    """Takes a client's bytes as they come, in pieces of any size, until its ClientHello is whole."""

    raw: bytearray = field(default_factory=bytearray)
    _at: int = 0  # of the next record in raw
    _hello: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> ClientHello | None:
        """Take more bytes; None when it needs more than these.

        Raises:
            ValueError: this is no ClientHello, or one that is not read here.
        """
        self.raw += data
        while len(self.raw) >= self._at + 5:
            kind, major, _, length = (
                self.raw[self._at],
                self.raw[self._at + 1],
                0,
                self.raw[self._at + 3 : self._at + 5],
            )
            size = int.from_bytes(length, "big")
            if kind != HANDSHAKE or major != 3:
                raise ValueError("no TLS ClientHello")
            if not 0 < size <= _RECORD_MOST:
                raise ValueError("a TLS record of an impossible size")
            if self._at + 5 + size > RAW_MOST:
                raise ValueError("a ClientHello that is too long")
            if len(self.raw) < self._at + 5 + size:
                break
            self._hello += self.raw[self._at + 5 : self._at + 5 + size]
            self._at += 5 + size
            found = self._whole()
            if found is not None:
                return found
        if self.raw and self.raw[0] != HANDSHAKE:
            raise ValueError("no TLS ClientHello")
        return None

    def _number(self, at: int) -> int:
        return int.from_bytes(self.raw[at : at + 2], "big")

    def _whole(self) -> ClientHello | None:
        if self._hello[0] != _CLIENT_HELLO:
            raise ValueError("no TLS ClientHello")
        if len(self._hello) < 4:
            return None
        size = int.from_bytes(self._hello[1:4], "big")
        if size > HELLO_MOST:
            raise ValueError("a ClientHello that is too long")
        if len(self._hello) < 4 + size:
            return None
        if len(self._hello) > 4 + size:
            raise ValueError("a ClientHello with another message in its last record")
        return parse(bytes(self._hello[4:]))


def parse(body: bytes) -> ClientHello:
    """Read a ClientHello's body, without the header of its message; ValueError when it is not exactly one."""
    data = _Bytes(body)
    if data.take(2)[0] != 3:
        raise ValueError("a ClientHello of an unknown version")
    data.take(32)
    data.block(1)  # session
    suites, methods = data.block(2), data.block(1)
    if not suites or len(suites) % 2 or not methods:
        raise ValueError("a ClientHello without cipher suites")
    if not data.left:
        return ClientHello(None, False)
    extensions = _Bytes(data.block(2))
    data.end()
    seen: set[int] = set()
    name, hidden = None, False
    while extensions.left:
        kind, content = extensions.number(2), extensions.block(2)
        if kind in seen:
            raise ValueError("a ClientHello that repeats an extension")
        seen.add(kind)
        hidden = hidden or kind in (_ECH, _ESNI)
        if kind == _SERVER_NAME:
            name = _server_name(content)
    return ClientHello(name, hidden)


def _server_name(content: bytes) -> str:
    outer = _Bytes(content)
    names = _Bytes(outer.block(2))
    outer.end()
    kind, name = names.number(1), names.block(2)
    names.end()
    if kind != 0 or not name:
        raise ValueError("a server name that is no host name")
    return name.decode("latin-1")  # what is no host name in ASCII is refused where names are read
