"""Answer of a web server to a tool's request. Used by ports and `egress`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Answer to a request, with its decoded content."""

    url: str
    """Address after redirects."""
    status: int
    media_type: str
    """Lower case, without parameters; empty when the server gave none."""
    data: bytes
    cut: bool
    """True when there was more content than asked for."""
