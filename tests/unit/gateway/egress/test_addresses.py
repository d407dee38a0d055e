from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.addresses import parse_address, vet_address

BLOCKED = [
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "unspecified"),
    ("10.0.0.1", "private"),
    ("10.255.255.255", "private"),
    ("100.64.0.1", "carrier"),
    ("100.127.255.255", "carrier"),
    ("100.100.100.200", "cloud"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("168.63.129.16", "cloud"),
    ("169.254.0.1", "link-local"),
    ("169.254.169.254", "link-local"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.1", "protocols"),
    ("192.0.0.9", "protocols"),
    ("192.0.0.192", "protocols"),
    ("192.0.2.1", "documentation"),
    ("192.88.99.1", "6to4"),
    ("192.168.1.1", "private"),
    ("198.18.0.1", "benchmarks"),
    ("198.19.255.255", "benchmarks"),
    ("198.51.100.7", "documentation"),
    ("203.0.113.7", "documentation"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "reserved"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("::127.0.0.1", "compatible"),
    ("::8.8.8.8", "compatible"),
    ("::ffff:7f00:1", "loopback"),
    ("::ffff:169.254.169.254", "link-local"),
    ("::ffff:10.0.0.1", "private"),
    ("::ffff:0:127.0.0.1", "not in use"),
    ("64:ff9b::7f00:1", "NAT64"),
    ("64:ff9b::a9fe:a9fe", "NAT64"),
    ("64:ff9b::808:808", "NAT64"),
    ("64:ff9b:1::a00:1", "local NAT64"),
    ("64:ff9b:1:ffff::1", "local NAT64"),
    ("2002:7f00:1::", "6to4"),
    ("2002:808:808::1", "6to4"),
    ("2001::1", "Teredo"),
    ("2001:0:5ef5:79fd::1", "Teredo"),
    ("2001:2::1", "protocols"),
    ("2001:10::1", "protocols"),
    ("2001:db8::1", "documentation"),
    ("3fff::1", "documentation"),
    ("3ffe::1", "6bone"),
    ("100::1", "thrown away"),
    ("5f00::1", "segment"),
    ("fc00::1", "private"),
    ("fd12:3456::1", "private"),
    ("fd00:ec2::254", "cloud"),
    ("fe80::1", "link-local"),
    ("febf::1", "link-local"),
    ("fec0::1", "site-local"),
    ("ff02::1", "multicast"),
    ("ff0e::1", "multicast"),
    ("4000::1", "not in use"),
    ("1::1", "not in use"),
]
OPEN = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.1",
    "168.63.129.15",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "198.17.255.255",
    "198.20.0.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "2001:4860:4860::8888",
    "2003::1",
    "::ffff:8.8.8.8",
]


@pytest.mark.parametrize(("text", "why"), BLOCKED)
def test_non_public_address_is_refused_with_its_reason(text: str, why: str) -> None:
    # The table holds the reason too: an address that only another line of it happens to catch is a hole in the making.
    assert why in vet_address(ip_address(text))


@pytest.mark.parametrize("text", OPEN)
def test_public_address_is_allowed(text: str) -> None:
    assert vet_address(ip_address(text)) == ""


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "::1", "10.1.2.3", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:127.0.0.1", "8.8.8.8"]
)
def test_a_permitted_host_may_be_in_a_local_network(text: str) -> None:
    assert vet_address(ip_address(text), permitted=True) == ""


@pytest.mark.parametrize(
    "text",
    ["169.254.169.254", "168.63.129.16", "fd00:ec2::254", "0.0.0.0", "::", "224.0.0.1", "64:ff9b::7f00:1", "fe80::1"],
)
def test_even_a_permitted_host_may_not_be_there(text: str) -> None:
    assert vet_address(ip_address(text), permitted=True) != ""


def test_an_address_in_a_zone_is_refused() -> None:
    assert "zone" in vet_address(IPv6Address("2606:4700::1%1"))
    assert parse_address("2606:4700::1%1") is None


@pytest.mark.parametrize("text", ["", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "①②⑦.⓪.⓪.①", "1.2.3.4 ", "[::1]"])
def test_only_plain_addresses_are_read(text: str) -> None:
    assert parse_address(text) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_nothing_is_open_that_this_python_calls_not_global(address: IPv4Address | IPv6Address) -> None:
    """Its list is shorter than ours, and another one with each version: ours holds all that any of them holds."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    assert vet_address(address) or (mapped or address).is_global


@given(st.ip_addresses(v=4))
def test_another_form_of_an_address_opens_nothing(address: IPv4Address) -> None:
    inner = int(address)
    assert bool(vet_address(IPv6Address((0xFFFF << 32) | inner))) == bool(vet_address(address))
    for form in (inner, (0x64FF9B << 96) | inner, (0x64FF9B0001 << 80) | inner, (0x2002 << 112) | (inner << 80)):
        assert vet_address(IPv6Address(form))
