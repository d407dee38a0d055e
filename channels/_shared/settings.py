"""What the settings of a channel with accounts are made of, read by the configuration before any message can come.

`[channels.NAME]` is one account, called `main`; `[channels.NAME.accounts.NAME]` are several.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, TypeAlias
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, SecretStr, WithJsonSchema
from pydantic_core import PydanticCustomError
from yarl import URL

from gateway.domain.proxy import Proxy

ONE_ACCOUNT = "main"
"""What the account of a plain `[channels.NAME]` is called."""
SLOWEST_S = 1_000
"""A limit lets a message out at least every so many seconds, or it is 0: of a mistake the account would be mute."""
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,32}")


def flaw(what: str, cure: str, key: str = "") -> PydanticCustomError:
    """Make the error that the configuration tells with its cure. Nothing in it may repeat a secret."""
    return PydanticCustomError("flaw", "{what}", {"what": what, "cure": cure, "key": key})


def check_account_name(name: str) -> None:
    """Raise a `flaw` for what cannot be an account's name: it stands in paths and keys."""
    if not _ACCOUNT.fullmatch(name):
        raise flaw(f"{name!r} cannot be an account's name", "Use 1 to 32 letters, digits, - and _", "accounts")


def limit(per_s: float) -> Callable[[float], float]:
    """Make the check of a limit of so many messages in `per_s` seconds. It raises a `flaw` for one that is no limit, 0,
    and yet hardly lets anything out.
    """
    least = per_s / SLOWEST_S

    def check(value: float) -> float:
        if 0 < value < least:
            raise flaw("it lets hardly anything out", f"Write {least:g} or more, or 0 for no limit")
        return value

    return check


def server(text: str, official: str) -> SplitResult:
    """Take the address of a platform's server apart. Raises a `flaw`, which shows the `official` one."""
    cure = f'Write, for instance, "{official}"'
    try:
        parts = urlsplit(text)
        port = parts.port
        URL(text)  # as what sends the requests reads it
    except ValueError:
        raise flaw("it is not an address", cure) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or re.search(r"[\s\x00-\x1f]", text):
        raise flaw("it is not an http:// or https:// address", cure)
    if port == 0 or not is_name(parts.hostname):
        raise flaw("there is no such host or port", cure)
    if parts.username is not None or parts.query or parts.fragment:
        raise flaw("there is more in it than a server and a path", cure)
    return parts


class ProxyUrl(SecretStr):
    """The address of a proxy, which may have a user and a password in it."""

    @property
    def way(self) -> Proxy:
        """Return the proxy itself."""
        return Proxy(self.get_secret_value())


def check_proxy(proxy: ProxyUrl) -> ProxyUrl:
    """Take the address of an HTTP proxy. Raises a `flaw`, which repeats nothing of it."""
    text, cure = proxy.get_secret_value(), 'Write, for instance, "http://proxy.example.org:3128"'
    try:
        parts = urlsplit(text)
        port = parts.port
        URL(text)  # as what sends the requests reads it
    except ValueError:
        raise flaw("it is not an address", f"{cure}; in a password, write @ : / ? # as %40 %3A %2F %3F %23") from None
    if parts.scheme != "http" or not parts.hostname or re.search(r"[\s\x00-\x1f]", text):
        raise flaw("it is not the http:// address of an HTTP proxy", cure)
    if port == 0 or not is_name(parts.hostname):
        raise flaw("there is no such host or port", cure)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise flaw("there is more in it than a user, a host and a port", cure)
    return proxy


ProxySetting: TypeAlias = Annotated[
    ProxyUrl,
    AfterValidator(check_proxy),
    WithJsonSchema({"type": "string", "pattern": "^(http://.+|env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$"}),
]
"""The type of a key `proxy`."""


def way_of(proxy: ProxyUrl | None) -> Proxy | None:
    """Return the proxy of a setting; None without one."""
    return None if proxy is None else proxy.way


def is_name(host: str) -> bool:
    """Whether a resolver can be asked for it. A name with an empty part or a long one is none, and no `OSError`; nor
    can a request be made to one that stands for no letters (`xn--a`), or has what no name has.
    """
    try:
        host.encode("idna")
        _ = URL.build(scheme="http", host=host).host
    except ValueError:
        return False
    return True
