"""Before a request is handled: whether its host and page are ours, where it comes from, who it says signed in. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from aiohttp import web

from gateway.ports import COOKIE, Credential

KEY_HEADER = "X-Dragoman-Key"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server listens and what it is called."""

    host: str
    port: int
    public_url: str = ""
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose `X-Forwarded-For` is believed."""

    def hosts(self, port: int) -> frozenset[str]:
        """Every `Host` that is ours, in lower case."""
        names = LOOPBACK | {self._name} - {""}
        found = {f"{name}:{port}" for name in names} | {host.lower() for host in self.allowed_hosts}
        if port == 80:
            found |= names
        if self.public_url:
            found.add(urlsplit(self.public_url).netloc.lower())
        return frozenset(found)

    def origins(self, port: int) -> frozenset[str]:
        """Every `Origin` that may act."""
        found = {f"http://{host}" for host in self.hosts(port)} | {f"https://{h.lower()}" for h in self.allowed_hosts}
        if self.public_url:
            found.add(_origin(self.public_url))
        return frozenset(found)

    def link(self, port: int) -> str:
        """What a person opens, without a path."""
        if self.public_url:
            return self.public_url.rstrip("/")
        return f"http://{self._name or '127.0.0.1'}:{port}"

    @property
    def _name(self) -> str:
        """The loopback address that it listens on, as it stands in an address; empty for another one."""
        if self.host in LOOPBACK:
            return self.host
        try:
            found = ip_address(self.host)
        except ValueError:
            return ""
        if not found.is_loopback:
            return ""
        return f"[{found}]" if found.version == 6 else str(found)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def refusal(request: web.Request, hosts: frozenset[str], origins: frozenset[str]) -> tuple[int, str] | None:
    """Say with which status a request is refused before anybody looks at who sent it, or None. Pure."""
    named = request.headers.getall("Host", [])
    if len(named) != 1 or named[0].lower() not in hosts:
        return 421, "This host is not one of Dragoman's. Add it to [http] allowed_hosts."
    given = request.headers.getall("Origin", [])
    changes = request.method not in ("GET", "HEAD") or request.headers.get("Upgrade", "").lower() == "websocket"
    if len(given) > 1 or any(origin.lower() not in origins for origin in given):
        return 403, "This page is not one of Dragoman's."
    if changes and request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return 403, "Only Dragoman's own page may do this."
    return None


def source_of(remote: str, forwarded: str, proxies: Sequence[str]) -> str:
    """Say where a request comes from: the peer, or, as far as trusted proxies speak, whom they speak for. Pure."""
    networks = [ip_network(one) for one in proxies]
    source = remote
    for hop in reversed([part.strip() for part in forwarded.split(",") if part.strip()]):
        if not _within(source, networks):
            break
        source = hop
    return source


def speaks_for_others(peer: str, proxies: Sequence[str]) -> bool:
    """Say whether a peer is a trusted proxy, whose connections are those of many clients. Pure."""
    return _within(peer, [ip_network(one) for one in proxies])


def _within(address: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def credential(request: web.Request) -> Credential:
    """What shows who is signed in: the cookie, and the key that the page keeps. Either may be empty.

    The key comes as a header, or from a browser's WebSocket, which can set none, as a sub-protocol after `dragoman`.
    """
    offered = [part.strip() for part in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    spoken = offered[1] if len(offered) == 2 and offered[0] == COOKIE else ""
    return Credential(cookie=request.cookies.get(COOKIE, ""), key=request.headers.get(KEY_HEADER, spoken))
