"""Counts of connections and requests under way, by client address. Used by `http`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network, ip_address

FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
ONE_CLIENT = 64
"""Prefix length in bits of the smallest IPv6 network that providers give to a customer."""


def client_of(address: str) -> str:
    """Return the key under which an address is counted: itself, or its network for IPv6, where a client has many."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((int(found), ONE_CLIENT), strict=False))


@dataclass(slots=True, kw_only=True)
class ClientCounts:
    """Count for each address, up to a limit."""

    at_most: int
    taken: Counter[str] = field(default_factory=Counter[str])

    def take(self, address: str) -> bool:
        """Add one for an address; return False, unchanged, if it is at its limit."""
        client = client_of(address)
        if self.taken[client] >= self.at_most:
            return False
        self.taken[client] += 1
        return True

    def leave(self, address: str) -> None:
        """Subtract one that `take` added."""
        client = client_of(address)
        self.taken[client] -= 1
        if self.taken[client] <= 0:
            del self.taken[client]


class PendingConnection(asyncio.Protocol):
    """Connection until its peer is known: then `admit` serves it, or it is closed unread with a 503."""

    def __init__(self, admit: Callable[[str], asyncio.Protocol | None]) -> None:
        """Take `admit`, which returns the protocol for a peer's address; None refuses it."""
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve the connection or refuse it."""
        peer = transport.get_extra_info("peername")
        served = self._admit(str(peer[0]) if peer else "")
        if served is not None:
            transport.set_protocol(served)
            served.connection_made(transport)
            return
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(FULL)
        transport.close()
