"""An HTTP proxy on the way to a platform or a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

WANTS_PASSWORD = 407
"""The status with which a proxy, and nobody else, refuses a request."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where requests go first. Its texts have neither user nor password."""

    url: str = field(repr=False)
    """`http://host:port`, or `http://user:password@host:port`."""

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"http://{host}:{parts.port or 80}"

    def refused(self, status: int) -> tuple[str, str]:
        """Say that it let no request through, and the cure."""
        if status == WANTS_PASSWORD:
            cure = "Correct the setting proxy, for instance http://user:password@host:port."
            return f"The proxy {self} does not take this user and password ({status}).", cure
        cure = "Let it do so, or correct the setting proxy."
        return f"The proxy {self} does not connect to this server ({status}).", cure

    def unreached(self, why: str) -> tuple[str, str]:
        """Say that it cannot be reached, and the cure."""
        return f"The proxy {self} cannot be reached ({why}).", "Start it, or correct the setting proxy."


def through(proxy: Proxy | None) -> str | None:
    """Return the address that the HTTP client is told of a proxy."""
    return None if proxy is None else proxy.url
