"""Guard of HTTP requests before their handlers: Host, Origin, client address, credential. Used by `http`. Pure."""

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
    """Listening address and public names of the server."""

    host: str
    port: int
    public_url: str = ""
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose `X-Forwarded-For` is trusted."""

    def hosts(self, port: int) -> frozenset[str]:
        """Return every allowed `Host`, in lower case."""
        names = LOOPBACK | {self._name} - {""}
        found = {f"{name}:{port}" for name in names} | {host.lower() for host in self.allowed_hosts}
        if port == 80:
            found |= names
        if self.public_url:
            found.add(urlsplit(self.public_url).netloc.lower())
        return frozenset(found)

    def origins(self, port: int) -> frozenset[str]:
        """Return every allowed `Origin`."""
        found = {f"http://{host}" for host in self.hosts(port)} | {f"https://{h.lower()}" for h in self.allowed_hosts}
        if self.public_url:
            found.add(_origin(self.public_url))
        return frozenset(found)

    def link(self, port: int) -> str:
        """Return the URL that a person opens, without a path."""
        if self.public_url:
            return self.public_url.rstrip("/")
        return f"http://{self._name or '127.0.0.1'}:{port}"

    @property
    def _name(self) -> str:
        """Return the loopback address that the server listens on, in URL form; empty for any other."""
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
    """Return status and text of a refusal before authentication, or None to go on. Pure."""
    named = request.headers.getall("Host", [])
    if len(named) != 1 or named[0].lower() not in hosts:
        return 421, "This host name is not allowed. Add it to [http] allowed_hosts."
    given = request.headers.getall("Origin", [])
    changes = request.method not in ("GET", "HEAD") or request.headers.get("Upgrade", "").lower() == "websocket"
    if len(given) > 1 or any(origin.lower() not in origins for origin in given):
        return 403, "Requests from this page are not allowed."
    if changes and request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return 403, "Only Dragoman's own page may do this."
    return None


def source_of(remote: str, forwarded: str, proxies: Sequence[str]) -> str:
    """Return the client address of a request: the peer, or behind trusted proxies the forwarded one. Pure."""
    networks = [ip_network(one) for one in proxies]
    source = remote
    for hop in reversed([part.strip() for part in forwarded.split(",") if part.strip()]):
        if not _within(source, networks):
            break
        source = hop
    return source


def speaks_for_others(peer: str, proxies: Sequence[str]) -> bool:
    """Return whether a peer is a trusted proxy, whose connections belong to many clients. Pure."""
    return _within(peer, [ip_network(one) for one in proxies])


def _within(address: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def credential(request: web.Request) -> Credential:
    """Return the credential of a request: the cookie and the page's key. Either may be empty.

    The key is a header, or the sub-protocol after `dragoman` of a browser's WebSocket, which can set no headers.
    """
    protocols = [part.strip() for part in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    key = protocols[1] if len(protocols) == 2 and protocols[0] == COOKIE else ""
    return Credential(cookie=request.cookies.get(COOKIE, ""), key=request.headers.get(KEY_HEADER, key))
