"""Addresses that nobody reaches unless a rule names them: private, local, special; and this host's own."""

from __future__ import annotations

import ipaddress
import itertools
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from pathlib import Path

from proctor.network.names import Address

# Ranges for documentation are not here: they route where somebody routes them, and reach nothing of this host's.
_BLOCKED_4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by carriers, and by clouds for their own",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "a cloud's own service",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.88.99.0/24": "reserved",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "for benchmarks",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved or broadcast",
}
_BLOCKED_6 = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "64:ff9b:1::/48": "translated within a site",
    "100::/64": "discarded",
    "2001::/23": "reserved",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "private",
    "ff00::/8": "multicast",
}
_RANGES = [(ipaddress.ip_network(text), why) for text, why in (_BLOCKED_4 | _BLOCKED_6).items()]
# Where a prefix carries an IPv4 address, and how many bits stand to the right of it.
_CARRIERS = [
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("::ffff:0:0:0/96"), 0),  # translated
    (IPv6Network("::/96"), 0),  # compatible
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
    (IPv6Network("2001::/32"), 64),  # Teredo: its server
]
_TEREDO = IPv6Network("2001::/32")
_ISATAP = (0x00005EFE, 0x02005EFE)


def forms(address: Address) -> Iterator[Address]:
    """The address and every IPv4 address that it carries."""
    yield address
    if isinstance(address, IPv6Address):
        number = int(address)
        for network, right in _CARRIERS:
            if address in network:
                yield IPv4Address(number >> right & 0xFFFFFFFF)
        if address in _TEREDO:  # its client, with all bits turned
            yield IPv4Address(~number & 0xFFFFFFFF)
        if number >> 32 & 0xFFFFFFFF in _ISATAP:
            yield IPv4Address(number & 0xFFFFFFFF)


def special(address: Address, own: frozenset[Address] = frozenset()) -> str | None:
    """Why an address is refused unless a rule names it; None for an ordinary one.

    Args:
        own: the addresses of this host.
    """
    for form in forms(address):
        if form in own:
            return "an address of the host"
        for network, why in _RANGES:
            if form.version == network.version and form in network:
                return why
    return None


def own_addresses(proc: Path = Path("/proc/self/net")) -> frozenset[Address]:
    """Every address of this host's interfaces, as its kernel lists them now."""
    found: set[Address] = set()
    try:
        lines = (proc / "fib_trie").read_text().splitlines()
    except OSError:  # a kernel without it: what can be asked without it
        found.update(IPv4Address(entry[4][0]) for entry in _of_own_name() if entry[0] == socket.AF_INET)
    else:
        for above, line in itertools.pairwise(lines):
            if line.split()[:3] == ["/32", "host", "LOCAL"]:
                found.add(IPv4Address(above.split()[-1]))
    try:
        lines = (proc / "if_inet6").read_text().splitlines()
    except OSError:  # no IPv6 here
        lines = []
    found.update(IPv6Address(int(line.split()[0], 16)) for line in lines if line.strip())
    return frozenset(found)


def _of_own_name() -> list[tuple[socket.AddressFamily, int, int, str, tuple[str, int]]]:
    try:
        return socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)  # type: ignore[return-value]
    except OSError:
        return []
