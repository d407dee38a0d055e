"""ClientCounts of clients: how many connections and requests each address has now."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network, ip_address

FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
ONE_CLIENT = 64
"""Bits of the smallest IPv6 network that providers give to a customer."""


def client_of(address: str) -> str:
    """Return what an address is counted as: itself, or its whole network where one client has many."""
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
    """ClientCounts that addresses have taken, up to a limit of each."""

    at_most: int
    taken: Counter[str] = field(default_factory=Counter[str])

    def take(self, address: str) -> bool:
        """Take a place of an address; return False, and take none, when it has no more."""
        place = client_of(address)
        if self.taken[place] >= self.at_most:
            return False
        self.taken[place] += 1
        return True

    def leave(self, address: str) -> None:
        """Free a place that was taken."""
        place = client_of(address)
        self.taken[place] -= 1
        if self.taken[place] <= 0:
            del self.taken[place]


class Arrival(asyncio.Protocol):
    """A connection before its peer is known: then `admit` serves it, or it is closed unread with a 503."""

    def __init__(self, admit: Callable[[str], asyncio.Protocol | None]) -> None:
        """Ask `admit` for the protocol of a peer's address; None refuses it."""
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
