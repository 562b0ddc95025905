"""What a sandbox may reach: rules as they were asked for, made into answers about names and addresses.

Nothing here does any I/O. A name is allowed by its name alone, before anybody looks up its address; then each address
that it has is asked about, so that a name cannot lead to a place that is refused.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from proctor.core.errors import InputError
from proctor.core.sandbox import NetworkRules
from proctor.network.addresses import forms, special
from proctor.network.names import Address, Host, parse_address, parse_host, parse_name, parse_port, shown

HTTP, HTTPS = 80, 443
PORTS = frozenset({HTTP, HTTPS})  # of an entry that names no port
ENTRIES_MOST = 1000  # of each list
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer and its reason. ``host`` is what was asked about in its one spelling, None when it is unreadable.

    ``named`` is true where a rule names an address: only then is an address as good as a name.
    """

    allowed: bool
    reason: str
    host: Host | None = None
    named: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of ``allow`` or ``deny``: a name, the names under a suffix, or a network; with a port or without.

    ``suffix`` begins with a dot, and is "" for every name.
    """

    text: str
    name: str | None = None
    suffix: str | None = None
    network: Network | None = None
    port: int | None = None

    def fits_name(self, name: str) -> bool:
        return name == self.name or (self.suffix is not None and name.endswith(self.suffix))

    def fits_address(self, address: Address) -> bool:
        return self.network is not None and address.version == self.network.version and address in self.network

    def allows_port(self, port: int) -> bool:
        return port in PORTS if self.port is None else port == self.port

    def denies_port(self, port: int) -> bool:
        return self.port is None or port == self.port


@dataclass(frozen=True, slots=True)
class Policy:
    """Compiled rules. Deny beats allow; what is not allowed is refused."""

    internet: bool
    allow: tuple[Entry, ...] = ()
    deny: tuple[Entry, ...] = ()

    def name(self, host: str, port: int) -> Decision:
        """May a program ask for this host and port? ``host`` is text from a program: anything at all.

        An address is allowed only where ``allow`` names it, even where every name is allowed.
        """
        if not self.internet:
            return Decision(False, "the network is off")
        try:
            found = parse_host(host)
        except ValueError as exc:
            return Decision(False, f"{exc}: {shown(host)!r}")
        if not isinstance(found, str):
            return self._literal(found, port)
        return self._name(found, port)

    def resolvable(self, host: str) -> Decision:
        """Is this name allowed at any port?"""
        if not self.internet:
            return Decision(False, "the network is off")
        try:
            name = parse_name(host)
        except ValueError as exc:
            return Decision(False, f"{exc}: {shown(host)!r}")
        fits = [entry for entry in self.allow if entry.fits_name(name)]
        if self.allow and not fits:
            return Decision(False, f"{name} is not in allow", name)
        denies = [entry for entry in self.deny if entry.fits_name(name)]
        ports = {port for e in fits or [_ANY] for port in (PORTS if e.port is None else {e.port})}
        if any(entry.port is None for entry in denies) or not ports - {entry.port for entry in denies}:
            return Decision(False, f"{name} is denied by {denies[0].text!r}", name)
        return Decision(True, f"allowed by {fits[0].text!r}" if fits else "allowed by default", name)

    def denied(self, name: str, port: int) -> str | None:
        """The entry of ``deny`` that a name falls under, None for none."""
        return next((e.text for e in self.deny if e.fits_name(name) and e.denies_port(port)), None)

    def _name(self, name: str, port: int) -> Decision:
        denied = self.denied(name, port)
        if denied is not None:
            return Decision(False, f"{name} is denied by {denied!r}", name)
        fits = [entry for entry in self.allow if entry.fits_name(name)]
        if self.allow and not fits:
            return Decision(False, f"{name} is not in allow", name)
        if not any(entry.allows_port(port) for entry in fits or [_ANY]):
            return Decision(False, f"port {port} of {name} is not allowed", name)
        by = next((repr(entry.text) for entry in fits if entry.allows_port(port)), "default")
        return Decision(True, f"allowed by {by}", name)

    def _literal(self, address: Address, port: int) -> Decision:
        denied, named = self._denies(address, port), self._names(address, port)
        if denied is not None:
            return Decision(False, f"{address} is denied by {denied!r}", address)
        if named is None:
            return Decision(False, f"{address} is an address, and no entry of allow names it at port {port}", address)
        return Decision(True, f"allowed by {named!r}", address, named=True)

    def address(
        self, ip: Address | str, port: int, named_by: Host, *, own: frozenset[Address] = frozenset()
    ) -> Decision:
        """May a connection be made to this address?

        Args:
            named_by: what led here: the name that has this address, or the address itself where it was asked for.
            own: the addresses of this host.
        """
        if not self.internet:
            return Decision(False, "the network is off")
        try:
            address = parse_address(str(ip))
        except ValueError as exc:
            return Decision(False, f"{exc}: {shown(str(ip))!r}")
        denied = self._denies(address, port)
        if denied is not None:
            return Decision(False, f"{address} is denied by {denied!r}", address)
        named = self._names(address, port)
        if named is not None:
            return Decision(True, f"address allowed by {named!r}", address, named=True)
        if not isinstance(named_by, str):
            return Decision(False, f"{address} is an address that no entry of allow names", address)
        why = special(address, own)
        if why is not None:
            return Decision(False, f"{named_by} is at {address}, which is not public ({why})", address)
        return Decision(True, f"an address of {named_by}", address)

    def _denies(self, address: Address, port: int) -> str | None:
        found = [e for form in forms(address) for e in self.deny if e.fits_address(form) and e.denies_port(port)]
        return found[0].text if found else None

    def _names(self, address: Address, port: int) -> str | None:
        return next((e.text for e in self.allow if e.fits_address(address) and e.allows_port(port)), None)


OFF = Policy(internet=False)
_MAPPED = IPv6Network("::ffff:0:0/96")
_ANY = Entry("*", suffix="")


def compile(rules: NetworkRules) -> Policy:
    """Rules made ready.

    Raises:
        InputError: an entry is none; names it, its value and the fix.
    """
    if not isinstance(rules.internet, bool):
        raise InputError(f"internet: {rules.internet!r} is neither true nor false")
    lists = {"allow": rules.allow, "deny": rules.deny}
    for field, entries in lists.items():
        if isinstance(entries, str) or len(entries) > ENTRIES_MOST:
            raise InputError(
                f"{field}: {shown(entries)!r} is a text; write a list of host names"
                if isinstance(entries, str)
                else f"{field}: {len(entries)} entries; write at most {ENTRIES_MOST}, with '*.suffix' for many names"
            )
    made = {
        field: tuple(_entry(text, f"{field}[{index}]") for index, text in enumerate(entries))
        for field, entries in lists.items()
    }
    return Policy(rules.internet, made["allow"], made["deny"])


def _entry(text: object, where: str) -> Entry:
    if not isinstance(text, str):
        raise InputError(f"{where}: {shown(repr(text))} is not a text; write a host name, an address or a network")
    said = f"{where}: {shown(text)!r}"
    if not text or text != text.strip():
        raise InputError(f"{said} is {'empty' if not text.strip() else 'between blanks'}; write a host name")
    if "://" in text:
        raise InputError(f"{said} is a URL; write its host name")
    if "@" in text:
        raise InputError(f"{said} has a user in it; write the host name alone")
    if not text.isascii():
        raise InputError(f"{said} is not ASCII; {_in_ascii(text)}")
    try:
        head, port = _port_of(text)
        if head == "*":
            return Entry(text, suffix="", port=port)
        if head.startswith("*."):
            return Entry(text, suffix=f".{parse_name(head[2:])}", port=port)
        if "*" in head:
            raise InputError(f"{said}: a '*' stands for whole labels at the beginning; write '*.suffix'")
        if "/" in head:
            return Entry(text, network=_network(head, said), port=port)
        host = parse_host(head)
    except InputError:
        raise
    except ValueError as exc:
        raise InputError(
            f"{said}: {exc}; write a host name, '*.suffix', an address such as '192.0.2.7' or '[2001:db8::7]', or a"
            " network such as '192.0.2.0/24', with ':port' or without"
        ) from exc
    if isinstance(host, str):
        return Entry(text, name=host, port=port)
    return Entry(text, network=ipaddress.ip_network(host), port=port)


def _port_of(text: str) -> tuple[str, int | None]:
    """An entry without its port, and its port. An IPv6 address that has one stands in brackets."""
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("no valid address in brackets")
        if ":" not in inside:
            raise ValueError("brackets around something else than an IPv6 address")
        return inside, parse_port(rest[1:]) if rest else None
    if text.count(":") != 1:
        return text, None
    head, _, port = text.partition(":")
    return head, parse_port(port)


def _network(text: str, said: str) -> Network:
    base, _, prefix = text.partition("/")
    try:
        if not (prefix.isascii() and prefix.isdigit()):
            raise ValueError("its part after the slash is no number of bits")
        parse_address(base)
        network = ipaddress.ip_network(text)
        if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):  # as addresses are: in their IPv4 form
            inside = int(network.network_address) & 0xFFFFFFFF
            return IPv4Network((inside, network.prefixlen - _MAPPED.prefixlen))
        return network
    except ValueError as exc:
        try:
            fix = f"{ipaddress.ip_network(text, strict=False)}"
        except ValueError:
            fix = "192.0.2.0/24"
        raise InputError(f"{said} is no network, and no path has a place here; write for example {fix!r}") from exc


def _in_ascii(text: str) -> str:
    try:
        return f"write {text.encode('idna').decode()!r}"
    except UnicodeError:
        return "write the form that begins with 'xn--'"
