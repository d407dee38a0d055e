"""Dialler of an egress proxy: resolves a requested host once, vets its addresses and connects to a vetted one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import NamedTuple, TypeAlias

from gateway.egress.addresses import Address, parse_address, vet_address
from gateway.egress.hosts import Host, Permitted, shown, vet_host, vet_public
from gateway.system.dns import ThreadedResolver

BUFFER = 65_536
"""Approximate bytes buffered for a slow reader in each direction; also the limit of a head."""
TRIED_AT_MOST = 3
"""Number of addresses of one host that are tried."""


class Ends(NamedTuple):
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolve a name at a port: every address as text, best first. Raises `OSError`."""
Connect: TypeAlias = Callable[[Address, int], Awaitable[Ends]]
"""Connect to an address and port. Raises `OSError`."""


class TurnedAwayError(Exception):
    """Refused destination: `host` as it was requested, `why` in one sentence."""

    def __init__(self, host: str, why: str) -> None:
        """Store both in a form that may be shown."""
        super().__init__(f"{host}: {why}")
        self.host = host
        self.why = why


class UnreachableError(Exception):
    """Allowed destination that does not answer; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialler:
    """Sole maker of an egress proxy's outgoing connections."""

    permitted: Permitted
    resolve: Resolve
    connect: Connect
    is_own: Callable[[Address], bool]
    """Return True if an address is this machine's own."""
    resolve_s: float
    """Timeout in seconds for a name."""
    connect_s: float
    """Timeout in seconds for each address."""

    def admit(self, text: str, *, port: int | None = None) -> Host:
        """Parse `host:port` (or `host`, at `port`) and check it before resolving. Raises `TurnedAwayError`."""
        host = vet_host(text, port=port)
        if isinstance(host, str):
            raise TurnedAwayError(shown(text), host)
        if not self.permitted.has(host) and (why := vet_public(host)):
            raise TurnedAwayError(str(host), why)
        return host

    async def dial(self, host: Host) -> Ends:
        """Resolve an admitted host once, and connect to one of its addresses if all of them are allowed.

        Raises `TurnedAwayError` when one is not, and `UnreachableError` when none answers.
        """
        return await self._connect(host, await self._look_up(host))

    async def _look_up(self, host: Host) -> Sequence[Address]:
        """Return the host's addresses, all vetted: one refused address refuses the name."""
        if host.address is not None:
            found = [str(host.address)]
        else:
            try:
                async with asyncio.timeout(self.resolve_s):
                    found = await self.resolve(host.name, host.port)
            except TimeoutError:
                raise UnreachableError(f"The name {host.name} was not found in {self.resolve_s:g} s.") from None
            except (OSError, UnicodeError) as error:
                why = error.strerror if isinstance(error, OSError) else ""
                raise UnreachableError(f"The name {host.name} was not found: {why or 'no answer'}.") from None
        if not found:
            raise UnreachableError(f"The name {host.name} has no address.")
        return list(dict.fromkeys(self._vet(host, text) for text in found))

    def _vet(self, host: Host, text: str) -> Address:
        address, permitted = parse_address(text), self.permitted.has(host)
        if address is None:
            raise TurnedAwayError(str(host), f"{shown(text)} is not an address.")
        why = vet_address(address, permitted=permitted)
        if not why and not permitted and self.is_own(address):
            why = f"{address} is this machine itself."
        if why:
            raise TurnedAwayError(str(host), why)
        return address

    async def _connect(self, host: Host, addresses: Sequence[Address]) -> Ends:
        why = ""
        for address in addresses[:TRIED_AT_MOST]:
            try:
                async with asyncio.timeout(self.connect_s):
                    return await self.connect(address, host.port)
            except TimeoutError:
                why = f"no answer in {self.connect_s:g} s"
            except OSError as error:
                why = error.strerror or "it cannot be reached"
        raise UnreachableError(f"{host} cannot be reached: {why}.")


async def connect_to(address: Address, port: int) -> Ends:
    """Connect to this address and no other. Raises `OSError`."""
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    return Ends(*await asyncio.open_connection(str(address), port, family=family, limit=BUFFER))


def is_own_address(address: Address) -> bool:
    """Return True if an address is one of this machine's own. Sends nothing; about 10 µs.

    The kernel's answer is current and needs no list of interfaces. It picks the address as the source of a packet to
    that address only if it is its own.
    """
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return parse_address(str(probe.getsockname()[0])) == address
    except OSError:
        return False  # no route


def resolve_by(lookups: ThreadedResolver) -> Resolve:
    """Return a resolver that asks the system."""

    async def resolve(name: str, port: int) -> Sequence[str]:
        return [str(address[0]) for *_, address in await lookups.find(name, port, type=socket.SOCK_STREAM)]

    return resolve
