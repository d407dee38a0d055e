"""HTTP proxy setting. Used by the HTTP clients of channels and models."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

WANTS_PASSWORD = 407
"""HTTP status of a proxy's refusal; no other server sends it."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """HTTP proxy for outgoing requests. Its string forms contain neither user nor password."""

    url: str = field(repr=False)
    """`http://host:port`, or `http://user:password@host:port`."""

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"http://{host}:{parts.port or 80}"

    def refused(self, status: int) -> tuple[str, str]:
        """Return the error message and the cure for a request that the proxy refused with this status."""
        if status == WANTS_PASSWORD:
            cure = "Correct the setting proxy, for instance http://user:password@host:port."
            return f"The proxy {self} does not take this user and password ({status}).", cure
        cure = "Let it do so, or correct the setting proxy."
        return f"The proxy {self} does not connect to this server ({status}).", cure

    def unreached(self, why: str) -> tuple[str, str]:
        """Return the error message and the cure for an unreachable proxy."""
        return f"The proxy {self} cannot be reached ({why}).", "Start it, or correct the setting proxy."


def through(proxy: Proxy | None) -> str | None:
    """Return the proxy's URL for the HTTP client; None without a proxy."""
    return None if proxy is None else proxy.url
