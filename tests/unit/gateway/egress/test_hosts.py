from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.addresses import vet_address
from gateway.egress.hosts import Host, Permitted, shown, vet_host, vet_public
from gateway.errors import BadRequest

REFUSED = [
    "",
    ".",
    "..",
    "127.1",
    "127.0.1",
    "2130706433",
    "0",
    "0x7f.1",
    "0x7f000001",
    "0x",
    "0X7F.1",
    "0177.0.0.1",
    "127.0.0.01",
    "127.0.0.1.",
    "1.2.3.4.5",
    "256.0.0.1",
    "example.123",
    "①②⑦.⓪.⓪.①",
    "１２７.0.0.1",
    "127。0。0。1",
    "münchen.example",
    "\u212aelvin.example",
    "example\u200b.org",
    "localhost.",
    "example.org.",
    "example..org",
    ".example.org",
    "-example.org",
    "example-.org",
    "user@example.org",
    "user:secret@example.org",
    "example.org:80@127.0.0.1",
    "127.0.0.1:80\\@example.com",
    "example.com\\@127.0.0.1",
    "example.com\\",
    "example.org\n",
    "example.org\r\nHost: x",
    "example.org\t",
    " example.org",
    "exa mple.org",
    "example.org\0",
    "127.0.0.1\0.example.org",
    "example%2eorg",
    "%31%32%37.0.0.1",
    "exam\x7fple.org",
    "example.org/",
    "example.org?",
    "example.org#",
    "http://example.org",
    "*.example.org",
    "example.org:",
    "example.org:0",
    "example.org:00080",
    "example.org:65536",
    "example.org:99999999999999",
    "example.org:-1",
    "example.org:+80",
    "example.org: 80",
    "example.org:８０",
    "example.org:http",
    "example.org:80:80",
    "::1",
    "fe80::1",
    "[::1",
    "::1]",
    "[]",
    "[::1]x",
    "[::1]:",
    "[::1]80",
    "[[::1]]",
    "[127.0.0.1]",
    "[example.org]",
    "[fe80::1%eth0]",
    "[fe80::1%25eth0]",
    "[::1%0]",
    "[v1.x]",
    "a" * 64 + ".org",
    ".".join(["a" * 60] * 5),
]


@pytest.mark.parametrize("text", REFUSED)
def test_a_host_in_another_than_its_plain_form_is_refused(text: str) -> None:
    why = vet_host(text, port=80)
    assert isinstance(why, str)
    assert why.endswith(".")


@pytest.mark.parametrize(
    ("text", "name", "port", "written"),
    [
        ("example.org", "example.org", 80, "example.org:80"),
        ("Example.ORG:443", "example.org", 443, "example.org:443"),
        ("LOCALHOST", "localhost", 80, "localhost:80"),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example", 80, "xn--mnchen-3ya.example:80"),
        ("_dmarc.a-b.c_d.example:65535", "_dmarc.a-b.c_d.example", 65_535, "_dmarc.a-b.c_d.example:65535"),
        ("1e100.net", "1e100.net", 80, "1e100.net:80"),
        ("1.2.3.4:1", "1.2.3.4", 1, "1.2.3.4:1"),
        ("[2606:4700:0::0:1111]:443", "2606:4700::1111", 443, "[2606:4700::1111]:443"),
        ("[::1]", "::1", 80, "[::1]:80"),
    ],
)
def test_a_plain_host_is_read(text: str, name: str, port: int, written: str) -> None:
    host = vet_host(text, port=80)
    assert isinstance(host, Host)
    assert (host.name, host.port, str(host)) == (name, port, written)


def test_a_host_that_must_have_a_port_has_one() -> None:
    assert vet_host("example.org") == "It has no port."


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("localhost:80", "local networks"),
        ("a.localhost:443", "local networks"),
        ("metadata.google.internal:80", "local networks"),
        ("printer.local:80", "local networks"),
        ("router.home.arpa:80", "local networks"),
        ("intranet:80", "local networks"),
        ("example.org:8080", "Port 8080"),
        ("example.org:22", "Port 22"),
        ("127.0.0.1:80", "loopback"),
        ("169.254.169.254:80", "link-local"),
        ("[::]:80", "unspecified"),
        ("[::ffff:7f00:1]:80", "loopback"),
        ("[64:ff9b::a9fe:a9fe]:80", "NAT64"),
    ],
)
def test_host_is_refused_before_it_is_resolved(text: str, why: str) -> None:
    host = vet_host(text)
    assert isinstance(host, Host)
    assert why in vet_public(host)


@pytest.mark.parametrize("text", ["example.org:80", "example.org:443", "8.8.8.8:443", "notlocalhost.org:80"])
def test_public_host_may_be_resolved(text: str) -> None:
    host = vet_host(text)
    assert isinstance(host, Host)
    assert vet_public(host) == ""


@pytest.mark.parametrize(
    ("hosts", "asked", "is_permitted"),
    [
        (["Grafana.corp.example"], "grafana.corp.example:80", True),
        (["grafana.corp.example"], "grafana.corp.example:443", True),
        (["grafana.corp.example"], "grafana.corp.example:3000", False),
        (["grafana.corp.example:3000"], "grafana.corp.example:3000", True),
        (["grafana.corp.example:3000"], "grafana.corp.example:80", False),
        (["corp.example"], "grafana.corp.example:80", False),
        (["*.corp.example"], "grafana.corp.example:80", True),
        (["*.corp.example"], "a.b.corp.example:443", True),
        (["*.corp.example"], "corp.example:80", False),
        (["*.corp.example"], "evilcorp.example:80", False),
        (["*.corp.example"], "corp.example.evil.example:80", False),
        (["*.corp.example:8080"], "a.corp.example:8080", True),
        (["127.0.0.1:8000"], "127.0.0.1:8000", True),
        (["127.0.0.1:8000"], "[::ffff:127.0.0.1]:8000", False),
        (["127.0.0.1:8000"], "localhost:8000", False),
        (["[fd12::1]"], "[fd12:0::1]:443", True),
        (["[fd12::1]:81"], "[fd12::1]:80", False),
        (["localhost"], "localhost:80", True),
        ([], "example.org:80", False),
    ],
)
def test_permitted_hosts_match(hosts: list[str], asked: str, is_permitted: bool) -> None:
    host = vet_host(asked)
    assert isinstance(host, Host)
    assert Permitted(hosts).has(host) == is_permitted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.",
        "*.*",
        "a.*",
        "http://intranet",
        "intranet/path",
        "intranet:",
        "intranet:0",
        "::1",
        "fd12::1",
        "*.10.0.0.1",
        "*.[::1]",
        "10.0.0.0/8",
        "intra net",
        "münchen.example",
        "127.1",
        "169.254.169.254",
        "[fe80::1]",
        "0.0.0.0:8000",
    ],
)
def test_invalid_permitted_host_is_refused_with_a_cure(text: str) -> None:
    with pytest.raises(BadRequest, match="cannot be permitted") as caught:
        Permitted(["good.example", text])
    assert caught.value.cure


@given(st.text(max_size=30), st.none() | st.integers(1, 65_535))
def test_parsed_host_is_in_its_plain_form(text: str, port: int | None) -> None:
    host = vet_host(text, port=port)
    if isinstance(host, str):
        return
    assert vet_host(str(host)) == host
    assert host.name == host.name.lower()
    assert set(host.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-_:")


@given(st.ip_addresses(), st.integers(1, 65_535))
def test_an_address_is_judged_as_itself(address: object, port: int) -> None:
    plain = ip_address(str(address))
    host = vet_host(f"[{plain}]:{port}" if plain.version == 6 else f"{plain}:{port}")
    assert isinstance(host, Host)
    assert host.address == plain
    assert not vet_address(plain) or vet_public(host)


def test_shown_host_is_printable_and_short() -> None:
    assert shown("a\r\n\x1b[31m\u202eb") == "a\\r\\n\\x1b[31m\\u202eb"
    assert len(shown("x" * 1_000)) == 100


def test_a_password_is_not_shown() -> None:
    assert shown("user:secret@example.org:443") == "example.org:443"


@pytest.mark.parametrize(
    ("scopes", "host", "is_let"),
    [
        ((), "wiki.lan:80", False),
        (("wiki.lan",), "wiki.lan:80", True),
        (("wiki.lan",), "wiki.lan:443", True),
        (("wiki.lan",), "www.wiki.lan:443", True),
        (("wiki.lan",), "10.0.0.5:8080", False),
        (("10.0.0.5",), "10.0.0.5:8080", False),
        (("10.0.0.5:8080",), "10.0.0.5:8080", True),
        (("[fd00::5]:8080",), "[fd00::5]:8080", True),
        (("elsewhere.lan",), "elsewhere.lan:80", False),
    ],
)
def test_permitted_host_needs_a_persons_consent(scopes: tuple[str, ...], host: str, is_let: bool) -> None:
    """A page of another host must not lead into the owner's network by a frame or a request of its own."""
    permitted = Permitted(["wiki.lan", "*.wiki.lan", "10.0.0.5:8080", "[fd00::5]:8080"])
    found = vet_host(host)
    assert isinstance(found, Host)
    permitted.let(scopes)
    assert permitted.has(found) is is_let
