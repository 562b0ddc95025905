"""Names, addresses and rules: what is allowed, and that no spelling gets past."""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proctor.core.errors import InputError
from proctor.core.sandbox import NetworkRules
from proctor.network.addresses import own_addresses, special
from proctor.network.names import authority, parse_authority, parse_host, parse_name, shown
from proctor.network.rules import Policy, compile

DOCUMENTATION = [
    ipaddress.ip_network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
]


def policy(*allow: str, deny: tuple[str, ...] = ()) -> Policy:
    return compile(NetworkRules(True, allow, deny))


def test_nothing_is_reached_by_default() -> None:
    for rules in (NetworkRules(), NetworkRules(False, ("a.example.org", "10.0.0.1"))):
        off = compile(rules)
        assert not off.name("a.example.org", 443).allowed
        assert not off.resolvable("a.example.org").allowed
        assert not off.address("10.0.0.1", 443, IPv4Address("10.0.0.1")).allowed


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("packages.example.org", 443, True),
        ("packages.example.org", 80, True),
        ("PACKAGES.Example.ORG.", 443, True),
        ("packages.example.org", 22, False),
        ("packages.example.org", 8443, False),
        ("a.files.example.org", 443, True),
        ("b.a.files.example.org", 443, True),
        ("files.example.org", 443, False),
        ("xfiles.example.org", 443, False),
        ("secret.files.example.org", 443, False),
        ("a.secret.files.example.org", 443, True),
        ("x.bad.files.example.org", 443, False),
        ("other.example.org", 443, False),
        ("packages.example.org.evil.net", 443, False),
        ("evil-packages.example.org", 443, False),
        ("git.example.org", 9418, True),
        ("git.example.org", 443, False),
        ("both.files.example.org", 8443, False),
        ("admin.example.org", 80, True),
        ("admin.example.org", 443, False),
    ],
)
def test_allow_and_deny(host: str, port: int, allowed: bool) -> None:
    rules = policy(
        "packages.example.org", "*.files.example.org", "git.example.org:9418", "admin.example.org",
        deny=("secret.files.example.org", "*.bad.files.example.org", "admin.example.org:443"),
    )  # fmt: skip
    decision = rules.name(host, port)
    assert decision.allowed is allowed, decision
    assert decision.reason


def test_an_empty_allow_is_every_name_and_no_address() -> None:
    rules = policy(deny=("evil.example.net",))
    assert rules.name("anything.example.com", 443).allowed
    assert not rules.name("anything.example.com", 25).allowed
    assert not rules.name("EVIL.example.net.", 443).allowed
    for address in ("198.51.100.7", "[2001:db8::1]", "2001:db8::1", "10.0.0.1"):
        assert not rules.name(address, 443).allowed, address


def test_a_name_that_is_denied_at_one_port_resolves_for_the_other() -> None:
    rules = policy("a.example.org", "b.example.org:8080", deny=("a.example.org:443", "b.example.org:8080"))
    assert rules.resolvable("a.example.org").allowed
    assert not rules.resolvable("b.example.org").allowed
    assert not rules.resolvable("c.example.org").allowed
    assert not policy(deny=("a.example.org",)).resolvable("A.example.org.").allowed


# Each is 127.0.0.1, or good.example.org, to somebody.
ODD = [
    "127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.01", "127.0.0.1.", "127.0.0",
    "0x7f.0.0.0x1", "1.2.3.4.5", "good.example.org.1", "foo.0x", "256.1.1.1", "127.0.0.1%eth0", "[::1%lo]", "::1%lo",
    "[::ffff:127.0.0.1]x", "[127.0.0.1]", "[good.example.org]", "[::1", "::1]", "user@good.example.org",
    "good.example.org@evil.net", "good.example.org\0.evil.net", "good.example.org\n", " good.example.org",
    "good.example.org ", "good.example.org\t", "good..example.org", ".good.example.org", "good.example.org..", "", ".",
    "gооd.example.org", "good。example.org", "ｇood.example.org", "good.example.org\u200b", "1２7.0.0.1",
    "good.example.org/", "good.example.org#", "good.example.org?", "good.example.org\\", "good%2eexample.org",
    "-good.example.org", "good-.example.org", "a" * 64 + ".example.org", ".".join(["a" * 50] * 6), "*.example.org", "*",
    "good.example.org:443", "http://good.example.org", "good,example.org", "good.example.org;x", "\x7f.example.org",
    "::ffff:1.2.3", "1::2::3", "12345::", ":::", "g::1", "fe80::1%25eth0", "bücher.example.org", "\u212a.example.org",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_odd_spellings_are_refused_by_every_rule(text: str) -> None:
    for rules in (policy(), policy("good.example.org", "127.0.0.1", "::1", "0.0.0.0/0", "::/0"), policy("*")):
        decision = rules.name(text, 443)
        assert not decision.allowed
        assert decision.host is None
        assert decision.reason.isascii()
        assert decision.reason.isprintable()
        assert not rules.resolvable(text).allowed


@given(st.text(max_size=80))
@example("xn--bcher-kva.example.org")
def test_any_text_is_one_name_or_none(text: str) -> None:
    """What passes is what a naive comparison after lower() and one dot would have found."""
    allowed = policy("good.example.org", "*.files.example.org").name(text, 443).allowed
    plain = text.lower().removesuffix(".")
    assert not allowed or plain == "good.example.org" or plain.endswith(".files.example.org")
    try:
        name = parse_name(text)
    except ValueError:
        return
    assert parse_name(name) == name == plain
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


@given(st.text(alphabet="0123456789abcdefx.:[]%", max_size=40))
def test_any_address_is_in_its_usual_form(text: str) -> None:
    try:
        host = parse_host(text)
    except ValueError:
        return
    if not isinstance(host, str):
        assert ipaddress.ip_address(text.strip("[]")) in (host, getattr(host, "ipv4_mapped", host)) or (
            ipaddress.ip_address(text.strip("[]")).ipv4_mapped == host  # type: ignore[union-attr]
        )
    assert parse_authority(authority(host, 8080)) == (host, 8080)


@pytest.mark.parametrize("text", ["a.example.org:", "a.example.org:0", "a.example.org:65536", "a.example.org:+80",
    "a.example.org:８0", "a.example.org:80:80", "a.example.org:080", "[::1]:", "[::1]80", "::1:80:x", ":80"])  # fmt: skip
def test_odd_ports_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="."):
        parse_authority(text, 80)


BLOCKED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.168.0.1", "198.18.0.1", "198.19.255.255",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.88.99.1",
    "::", "::1", "fe80::1", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1", "64:ff9b:1::1",
    "::ffff:10.0.0.1", "::ffff:7f00:1", "::ffff:0:10.0.0.1", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1",
    "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:0a00:0001::", "2001:0:a00:1::", "2001:0:c000:204::f5ff:fffe",
    "2001:db8::5efe:10.0.0.1", "2001:db8::200:5efe:10.0.0.1",
]  # fmt: skip


@pytest.mark.parametrize("text", BLOCKED)
def test_a_name_does_not_lead_to_a_place_that_is_not_public(text: str) -> None:
    assert not policy().address(text, 443, "good.example.org").allowed
    assert not policy("good.example.org").address(text, 443, "good.example.org").allowed
    assert not policy("good.example.org", "198.51.100.0/24").address(text, 443, "good.example.org").allowed
    named = policy("good.example.org", text).address(text, 443, "good.example.org")
    assert named.allowed
    assert named.named
    assert not policy("good.example.org", text, deny=(text,)).address(text, 443, "good.example.org").allowed
    assert (
        not policy("good.example.org", f"[{text}]:8080" if ":" in text else f"{text}:8080")
        .address(text, 443, "good.example.org")
        .allowed
    )


@pytest.mark.parametrize(
    "text", ["192.0.2.7", "198.51.100.7", "203.0.113.80", "8.8.8.8", "2606:4700::1", "64:ff9b::808:808"]
)
def test_public_addresses_of_a_name_pass(text: str) -> None:
    assert policy().address(text, 443, "good.example.org").allowed
    assert not policy(deny=("0.0.0.0/0", "::/0")).address(text, 443, "good.example.org").allowed
    assert not policy().address(text, 443, ipaddress.ip_address(text)).allowed  # asked for as an address


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_whatever_the_library_calls_private_is_refused(address: IPv4Address | IPv6Address) -> None:
    mapped = getattr(address, "ipv4_mapped", None) or address
    if any(mapped.version == n.version and mapped in n for n in DOCUMENTATION):
        return
    local = mapped.is_private or mapped.is_loopback or mapped.is_link_local or mapped.is_multicast
    if local or mapped.is_unspecified or (mapped.version == 4 and mapped.is_reserved):
        assert not policy().address(address, 443, "good.example.org").allowed


@given(st.ip_addresses(v=4))
def test_a_deny_reaches_into_every_form_of_an_address(address: IPv4Address) -> None:
    number = int(address)
    rules = policy("*", "::/0", deny=(f"{address}/32",))
    carried = [int(IPv6Address("64:ff9b::")) + number, (0x2002 << 112) + (number << 80), (0xFFFF << 32) + number]
    for form in [str(address), *(str(IPv6Address(n)) for n in carried)]:
        assert not rules.address(form, 443, "good.example.org").allowed, form


def test_a_mapped_address_is_its_ipv4_address() -> None:
    assert parse_host("[::ffff:198.51.100.7]") == parse_host("::ffff:c633:6407") == IPv4Address("198.51.100.7")
    for entry, asked in (("198.51.100.7", "[::ffff:198.51.100.7]"), ("::ffff:198.51.100.7", "198.51.100.7")):
        assert policy(entry).name(asked, 443).allowed
        assert not policy("0.0.0.0/0", deny=(entry,)).name(asked, 443).allowed


def test_deny_of_a_mapped_network_is_one_of_ipv4() -> None:
    rules = policy(deny=("::ffff:198.51.100.0/120",))
    assert not rules.address("198.51.100.9", 443, "good.example.org").allowed
    assert rules.address("198.51.101.9", 443, "good.example.org").allowed


def test_the_hosts_own_addresses_are_refused() -> None:
    own = own_addresses()
    assert IPv4Address("127.0.0.1") in own
    public = frozenset({IPv4Address("198.51.100.7"), IPv6Address("2001:db8::7")})
    for text in ("198.51.100.7", "2001:db8::7", "64:ff9b::c633:6407", "2002:c633:6407::"):
        assert not policy().address(text, 443, "good.example.org", own=public).allowed, text
        assert policy().address(text, 443, "good.example.org").allowed
        assert special(ipaddress.ip_address(text), public) == "an address of the host"
    assert (
        policy("good.example.org", "198.51.100.7").address("198.51.100.7", 443, "good.example.org", own=public).allowed
    )


def test_own_addresses_are_read_from_the_kernels_lists(tmp_path: Path) -> None:
    (tmp_path / "fib_trie").write_text(
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n"
        "           |-- 198.51.100.7\n              /32 host LOCAL\n           |-- 198.51.100.255\n"
        "              /32 link BROADCAST\n"
    )
    (tmp_path / "if_inet6").write_text("20010db8000000000000000000000007 04 40 00 82     eth0\n")
    assert own_addresses(tmp_path) == {IPv4Address("198.51.100.7"), IPv6Address("2001:db8::7")}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("allow", "http://x", "'http://x' is a URL; write its host name"),
        ("deny", "u@x.org", "write the host name alone"),
        ("allow", "", "is empty"),
        ("allow", " x.org", "between blanks"),
        ("allow", "bücher.example", "write 'xn--bcher-kva.example'"),
        ("allow", "*x.org", r"write '\*.suffix'"),
        ("allow", "x.*.org", r"write '\*.suffix'"),
        ("allow", "*.", "no host name"),
        ("allow", "10.0.0.1/8", "'10.0.0.0/8'"),
        ("allow", "x.org/path", "no path has a place here"),
        ("allow", "127.1", "unusual form"),
        ("allow", "x.org:99999", "no valid port"),
        ("allow", "[::1", "brackets"),
        ("allow", "[x.org]:80", "brackets"),
        ("allow", 7, "is not a text"),
        ("deny", "x..org", "no valid host name"),
        ("deny", "10.0.0.0/255.0.0.0", "is no network.*10.0.0.0/8"),
        ("deny", "10.0/8", "is no network"),
    ],
)
def test_bad_entries_name_the_field_the_value_and_the_fix(field: str, value: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        compile(NetworkRules(True, **{field: ("fine.example.org", value)}))  # type: ignore[arg-type]
    assert f"{field}[1]" in str(caught.value)


def test_bad_lists_are_named() -> None:
    with pytest.raises(InputError, match="allow: 'x.org' is a text; write a list"):
        compile(NetworkRules(True, "x.org"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at most 1000"):
        compile(NetworkRules(True, ("x.org",) * 1001))
    with pytest.raises(InputError, match="neither true nor false"):
        compile(NetworkRules("no"))  # type: ignore[arg-type]


@given(st.text(max_size=300))
def test_what_is_shown_is_short_and_harmless(text: str) -> None:
    assert shown(text).isascii()
    assert "\n" not in shown(text)
    assert "\x1b" not in shown(text)
    assert len(shown(text)) <= 10 * 120 + 3
