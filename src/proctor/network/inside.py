"""What a sandbox holds of its own for the gate to work: where its listeners are, and what its programs are told."""

from __future__ import annotations

import socket
from types import MappingProxyType

# Name of a listener in ``Gate``: kind of socket, address and port inside the sandbox's network namespace.
LISTENERS = MappingProxyType(
    {
        "proxy": (socket.SOCK_STREAM, "127.0.0.1", 3128),
        "http": (socket.SOCK_STREAM, "127.0.0.1", 80),
        "https": (socket.SOCK_STREAM, "127.0.0.1", 443),
        "dns": (socket.SOCK_DGRAM, "127.0.0.1", 53),
    }
)

_PROXY, _DIRECT = "http://127.0.0.1:3128", "localhost,127.0.0.1,::1"
ENVIRONMENT = MappingProxyType(
    {
        "http_proxy": _PROXY,
        "https_proxy": _PROXY,
        "HTTP_PROXY": _PROXY,
        "HTTPS_PROXY": _PROXY,
        "no_proxy": _DIRECT,
        "NO_PROXY": _DIRECT,
    }
)

RESOLV_CONF = "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n"
