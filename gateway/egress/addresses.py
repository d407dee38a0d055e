"""Table of non-public addresses. Consulted for each outgoing connection of an egress proxy. Pure.

`ipaddress.is_global` does not fit: it calls NAT64 and multicast global, and its answers changed between Python 3.11 and
3.13. So the table below lists the refused networks, and of IPv6 only the part allocated to networks is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class _Block:
    """Network of the table, with the reason for its refusal."""

    network: IPv4Network | IPv6Network
    what: str
    local: bool
    """True if a host that the owner permits may have such an address."""


def _never(network: str, what: str) -> _Block:
    return _Block(ip_network(network), what, local=False)


def _local(network: str, what: str) -> _Block:
    return _Block(ip_network(network), what, local=True)


# The first match gives the reason.
_BLOCKED = (
    _never("168.63.129.16/32", "a cloud's services for its machines"),
    _never("100.100.100.200/32", "a cloud's services for its machines"),
    _never("fd00:ec2::/32", "a cloud's services for its machines"),
    _local("127.0.0.0/8", "loopback"),
    _local("10.0.0.0/8", "a private network"),
    _local("172.16.0.0/12", "a private network"),
    _local("192.168.0.0/16", "a private network"),
    _local("100.64.0.0/10", "a carrier's shared network"),
    _never("0.0.0.0/8", "this network, unspecified"),
    _never("169.254.0.0/16", "link-local"),
    _never("192.0.0.0/24", "reserved for protocols"),
    _never("192.0.2.0/24", "for documentation"),
    _never("192.88.99.0/24", "a 6to4 relay"),
    _never("198.18.0.0/15", "for benchmarks"),
    _never("198.51.100.0/24", "for documentation"),
    _never("203.0.113.0/24", "for documentation"),
    _never("224.0.0.0/4", "multicast"),
    _never("240.0.0.0/4", "reserved"),
    _local("::1/128", "loopback"),
    _local("fc00::/7", "a private network"),
    _never("::/128", "unspecified"),
    _never("::/96", "an IPv4 address in another form (compatible)"),
    _never("64:ff9b::/96", "an IPv4 address in another form (NAT64)"),
    _never("64:ff9b:1::/48", "an IPv4 address in another form (local NAT64)"),
    _never("2002::/16", "an IPv4 address in another form (6to4)"),
    _never("2001::/32", "an IPv4 address in another form (Teredo)"),
    _never("2001::/23", "reserved for protocols"),
    _never("2001:db8::/32", "for documentation"),
    _never("3fff::/20", "for documentation"),
    _never("3ffe::/16", "given back (6bone)"),
    _never("100::/64", "thrown away"),
    _never("5f00::/16", "for segment routing"),
    _never("fe80::/10", "link-local"),
    _never("fec0::/10", "site-local"),
    _never("ff00::/8", "multicast"),
)
_HANDED_OUT = IPv6Network("2000::/3")
"""Part of IPv6 that is allocated to networks."""


def parse_address(text: str) -> Address | None:
    """Parse an address in its plain form; None for anything else, including a zone (`fe80::1%eth0`)."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def vet_address(address: Address, *, permitted: bool = False) -> str:
    """Return in one sentence why an address is refused; empty when it is public.

    `permitted`: the owner named the host, so loopback and private networks are allowed too, nothing else. Addresses
    that embed an IPv4 address are refused, except mapped ones (`::ffff:…`): a system connects to those over IPv4, so
    the embedded address is vetted.
    """
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return f"{address} is in one zone of this machine only."
        if address.ipv4_mapped is not None:
            return vet_address(address.ipv4_mapped, permitted=permitted)
    for block in _BLOCKED:
        if address in block.network:
            return "" if block.local and permitted else f"{address} is not a public address: {block.what}."
    if isinstance(address, IPv6Address) and address not in _HANDED_OUT:
        return f"{address} is not a public address: not in use."
    return ""
