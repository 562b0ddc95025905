"""Host names and addresses as text: one strict reading, for rules and for what programs ask.

A name has one spelling here: lower case, ASCII letters, digits, ``-`` and ``_``, no dot at its end. An address is
an address only in its usual form. Everything that some other reader might take for an address (``127.1``, ``0x7f.1``,
``2130706433``) or cut short (NUL, blanks, ``@``, ``%``) is refused, so that no two readers can disagree about it.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address
Host = str | Address

NAME_MOST, LABEL_MOST = 253, 63  # characters, RFC 1035
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?", re.ASCII)
# The last label decides whether a name is read as an IPv4 address: WHATWG's "ends in a number".
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_DOTTED = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)


def shown(text: str, most: int = 120) -> str:
    """A text of unknown origin for people: short, printable ASCII."""
    return text[:most].encode("ascii", "backslashreplace").decode().translate(_HARMLESS) + ("..." * (len(text) > most))


_HARMLESS = {code: f"\\x{code:02x}" for code in [*range(32), 127]}


def parse_name(text: str) -> str:
    """The one spelling of a host name; ValueError when it is none."""
    name = text[:-1] if text.endswith(".") else text
    if not name or not name.isascii():
        raise ValueError("no host name" if not name else "a host name in other letters than ASCII")
    name = name.lower()
    labels = name.split(".")
    if len(name) > NAME_MOST or any(len(label) > LABEL_MOST for label in labels):
        raise ValueError("a host name that is too long")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("no valid host name")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError("an address in an unusual form")
    return name


def parse_address(text: str) -> Address:
    """An address in its usual form, without brackets; an IPv4 address inside of IPv6 is that IPv4 address."""
    if not text.isascii() or "%" in text or len(text) > 45 or (":" not in text and not _DOTTED.fullmatch(text)):
        raise ValueError("no address in its usual form")
    address = ip_address(text)
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def parse_host(text: str) -> Host:
    """A name or an address, an IPv6 address in brackets or without; ValueError says what is wrong."""
    if text.startswith("["):
        if not text.endswith("]") or ":" not in text:
            raise ValueError("no valid address in brackets")
        return parse_address(text[1:-1])
    if ":" in text or _DOTTED.fullmatch(text):
        return parse_address(text)
    return parse_name(text)


def parse_port(text: str) -> int:
    """A port number, 1 to 65535, in plain digits."""
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise ValueError("no valid port")
    return int(text)


def parse_authority(text: str, default: int | None = None) -> tuple[Host, int]:
    """Host and port of ``host``, ``host:port``, ``[address]:port``; ValueError without a port and a default."""
    if text.startswith("["):
        inside, bracket, rest = text.partition("]")
        host, colon, port = inside + bracket, rest[:1], rest[1:]
        if rest and colon != ":":
            raise ValueError("no valid host and port")
    else:
        host, colon, port = text.partition(":")
    if not colon:
        if default is None:
            raise ValueError("no port")
        return parse_host(host), default
    return parse_host(host), parse_port(port)


def authority(host: Host, port: int, default: int | None = None) -> str:
    """The text of host and port, as a URL or a ``Host`` header has it."""
    text = f"[{host}]" if isinstance(host, IPv6Address) else str(host)
    return text if port == default else f"{text}:{port}"
