"""Building blocks and checks for settings of channels with accounts. Used by each channel's `settings`.

`[channels.NAME]` is one account, called `main`; `[channels.NAME.accounts.NAME]` are several.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection
from typing import Annotated, TypeAlias
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, SecretStr, WithJsonSchema
from pydantic_core import PydanticCustomError
from yarl import URL

from gateway.domain.proxy import Proxy

ONE_ACCOUNT = "main"
"""Name of the account in a plain `[channels.NAME]`."""
SLOWEST_S = 1_000
"""Longest interval in seconds between messages that a rate limit may set: a typing error would mute the account."""
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,32}")


def flaw(what: str, cure: str, key: str = "") -> PydanticCustomError:
    """Return the error that the configuration reports with its cure. It must not repeat a secret."""
    return PydanticCustomError("flaw", "{what}", {"what": what, "cure": cure, "key": key})


def check_account_name(name: str) -> None:
    """Raise a `flaw` for an invalid account name: names are part of paths and keys."""
    if not _ACCOUNT.fullmatch(name):
        raise flaw(f"{name!r} cannot be an account's name", "Use 1 to 32 letters, digits, - and _", "accounts")


def limit(per_s: float) -> Callable[[float], float]:
    """Return the check of a rate limit in messages per `per_s` seconds. It raises a `flaw` for a limit near 0; 0 itself
    means no limit.
    """
    least = per_s / SLOWEST_S

    def check(value: float) -> float:
        if 0 < value < least:
            raise flaw("it lets hardly anything out", f"Write {least:g} or more, or 0 for no limit")
        return value

    return check


def server(text: str, official: str) -> SplitResult:
    """Parse the URL of a platform's server. Raises a `flaw`, which shows the `official` one."""
    cure = f'Write, for instance, "{official}"'
    parts = _parts(text, {"http", "https"}, "an http:// or https:// address", cure)
    if parts.username is not None or parts.query or parts.fragment:
        raise flaw("there is more in it than a server and a path", cure)
    return parts


def _parts(text: str, schemes: Collection[str], wanted: str, cure: str, encoded: str = "") -> SplitResult:
    """Parse a URL. Raises a `flaw`; `encoded` completes its cure for text that no URL contains."""
    try:
        parts = urlsplit(text)
        port = parts.port
        URL(text)  # the HTTP client's own parser
    except ValueError:
        raise flaw("it is not an address", f"{cure}{encoded}") from None
    if parts.scheme not in schemes or not parts.hostname or re.search(r"[\s\x00-\x1f]", text):
        raise flaw(f"it is not {wanted}", cure)
    if port == 0 or not is_name(parts.hostname):
        raise flaw("there is no such host or port", cure)
    return parts


class ProxyUrl(SecretStr):
    """URL of a proxy; may contain a user and a password."""

    @property
    def way(self) -> Proxy:
        """Return the proxy."""
        return Proxy(self.get_secret_value())


def check_proxy(proxy: ProxyUrl) -> ProxyUrl:
    """Check the URL of an HTTP proxy. Raises a `flaw`, which repeats nothing of it."""
    cure = 'Write, for instance, "http://proxy.example.org:3128"'
    encoded = "; in a password, write @ : / ? # as %40 %3A %2F %3F %23"
    parts = _parts(proxy.get_secret_value(), {"http"}, "the http:// address of an HTTP proxy", cure, encoded)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise flaw("there is more in it than a user, a host and a port", cure)
    return proxy


ProxySetting: TypeAlias = Annotated[
    ProxyUrl,
    AfterValidator(check_proxy),
    WithJsonSchema({"type": "string", "pattern": "^(http://.+|env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$"}),
]
"""Type of the key `proxy`."""


def way_of(proxy: ProxyUrl | None) -> Proxy | None:
    """Return the proxy of a setting; None without one."""
    return None if proxy is None else proxy.way


def is_name(host: str) -> bool:
    """Return True for a host name that can be resolved and requested. An empty or overlong label raises no `OSError`
    later; invalid punycode (`xn--a`) and invalid characters fail in the request.
    """
    try:
        host.encode("idna")
        _ = URL.build(scheme="http", host=host).host
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host name or address means this machine only."""
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_in_clear(url: str) -> bool:
    """Return whether a secret sent to this URL crosses a network without TLS."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def is_safe_to_send_to(url: str) -> bool:
    """Return whether a platform may send user messages to this URL: over TLS, or on this machine only."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (bool(url) and is_loopback(parts.hostname or ""))
