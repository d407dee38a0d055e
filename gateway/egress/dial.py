"""From a host as asked for at a gate to a connection: looked up once, vetted, and dialled by the vetted address."""

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
"""Bytes that are held for a slow reader, about, in each direction; and what a head may measure."""
TRIED_AT_MOST = 3
"""Addresses of one host."""


class Ends(NamedTuple):
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks a name up: every address as text, best first. Raises `OSError`."""
Connect: TypeAlias = Callable[[Address, int], Awaitable[Ends]]
"""Connects to an address and port. Raises `OSError`."""


class TurnedAwayError(Exception):
    """Nobody may go there: `host` as it was asked for, `why` in one sentence."""

    def __init__(self, host: str, why: str) -> None:
        """Take both as they may be shown."""
        super().__init__(f"{host}: {why}")
        self.host = host
        self.why = why


class UnreachableError(Exception):
    """One may go there, but nobody answers; says why in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialler:
    """The one place where a gate's connections to the outside are made."""

    permitted: Permitted
    resolve: Resolve
    connect: Connect
    is_own: Callable[[Address], bool]
    """Whether an address is this machine's."""
    resolve_s: float
    connect_s: float
    """Seconds for each address."""

    def admit(self, text: str, *, port: int | None = None) -> Host:
        """Read `host:port` (or `host`, at `port`), and say whether it may be looked up. Raises `TurnedAwayError`."""
        host = vet_host(text, port=port)
        if isinstance(host, str):
            raise TurnedAwayError(shown(text), host)
        if not self.permitted.has(host) and (why := vet_public(host)):
            raise TurnedAwayError(str(host), why)
        return host

    async def dial(self, host: Host) -> Ends:
        """Look an admitted host up, once, and connect to one of its addresses if all of them are good.

        Raises `TurnedAwayError` when one is not, and `UnreachableError` when nobody answers.
        """
        return await self._connect(host, await self._look_up(host))

    async def _look_up(self, host: Host) -> Sequence[Address]:
        """Return its addresses, all of them vetted: one bad address spoils the name."""
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
    """Connect to exactly this address. Raises `OSError`."""
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    return Ends(*await asyncio.open_connection(str(address), port, family=family, limit=BUFFER))


def is_own_address(address: Address) -> bool:
    """Say whether an address is one of this machine's own. Sends nothing; about 10 µs.

    The kernel answers as of now, with no list of interfaces to keep: it chooses the address itself as the source of
    what would go there exactly when that is its own.
    """
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return parse_address(str(probe.getsockname()[0])) == address
    except OSError:
        return False  # no way leads there


def resolve_by(lookups: ThreadedResolver) -> Resolve:
    """Make a resolver that asks the system."""

    async def resolve(name: str, port: int) -> Sequence[str]:
        return [str(address[0]) for *_, address in await lookups.find(name, port, type=socket.SOCK_STREAM)]

    return resolve
