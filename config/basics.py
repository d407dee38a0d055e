"""Base of the settings: the table model, and checks of hosts and URLs. Used by the settings and the readers."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict
from yarl import URL

from channels._shared.settings import is_in_clear, is_loopback, is_name
from config.values import Flaw

__all__ = ["SettingsTable", "address", "is_address", "is_in_clear", "is_loopback"]


class SettingsTable(BaseModel):
    """Base of every table: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def is_address(host: str) -> bool:
    """Return whether the text is an IP address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def address(text: str, example: str) -> SplitResult:
    """Parse a URL of a server and an optional path, nothing more. Raises `Flaw`, which shows `example`."""
    try:
        parts = urlsplit(text)
        port = parts.port
        URL(text)  # parsed as the HTTP client does
    except ValueError:
        raise Flaw("it is not an address", f'Write, for instance, "{example}"') from None
    if "://" not in text and re.match(r"[\w.-]+(:\d|/|$)", text):
        raise Flaw("it is not an http:// or https:// address", f'Write it as "https://{text}", or with http://')
    if parts.scheme not in {"http", "https"} or not parts.hostname or re.search(r"[\s\x00-\x1f]", text):
        raise Flaw("it is not an http:// or https:// address", f'Write, for instance, "{example}"')
    if port == 0 or not is_name(parts.hostname):
        raise Flaw("there is no such host or port", f'Write, for instance, "{example}"')
    if parts.username is not None or parts.password is not None:
        raise Flaw("there is a user name or password in the address", "Leave it out; secrets have keys of their own")
    if parts.query or parts.fragment:
        raise Flaw("there is a ? or # in the address", f'Write, for instance, "{example}"')
    return parts
