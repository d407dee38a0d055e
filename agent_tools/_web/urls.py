"""URL validation, and the host that an approval of a URL covers. Pure; `egress` is the second check.

A host in any form but its canonical one is refused, not repaired: two programs that repair it differently would mean
different hosts.
"""

from __future__ import annotations

import re
import unicodedata
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import idna

from gateway.domain.tools import host_scope, ipv6_text

LONGEST = 4096
"""Most characters of a URL."""
_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!\d{1,5}(?:[/?#]|$))")
"""URL scheme. `example.org:8080` has none: a port follows the colon."""
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")


def checked_url(text: str) -> str:
    """Return the canonical URL: with its scheme, its host in lower case ASCII, without a default port. Idempotent.

    Raises `ValueError`, which names the cure.
    """
    text = text.strip()
    if len(text) > LONGEST:
        raise ValueError(f"the address is longer than {LONGEST} characters: give a shorter one")
    if any(char <= " " or char == "\x7f" or char.isspace() or not _is_visible(char) for char in text):
        raise ValueError("there is a space or a control character in the address: write it as %20 or take it out")
    if "\\" in text:
        raise ValueError("there is a backslash in the address: write / for folders and %5C for a backslash")
    scheme, rest = _scheme(text)
    end = re.search(r"[/?#]", rest)
    authority, path = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    host, port = _authority(authority)
    shown = f":{port}" if port and port != _PORTS[scheme] else ""
    return f"{scheme}://{host}{shown}{path if path.startswith('/') else '/' + path}"


def host_and_port(url: str) -> str:
    """Return `host:port` of a URL from `checked_url`, as the egress proxy names it; an IPv6 address in brackets."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{host}:{parts.port or _PORTS[parts.scheme]}"


def scope_of(url: str) -> str:
    """Return the scope that an approval of this URL covers, in the form of `host_scope`; empty without a host.

    The URL comes from `checked_url` or from the browser.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in _PORTS or not host:
        return ""
    return host_scope(host, port or _PORTS[parts.scheme])


def _is_visible(char: str) -> bool:
    """Return False for characters that are invisible or reverse the text (categories Cc, Cf, Cs, Zl, Zp)."""
    return unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _scheme(text: str) -> tuple[str, str]:
    """Return scheme and rest; a URL without a scheme is https."""
    found = _SCHEME.match(text)
    if found is None:
        return "https", text
    scheme, rest = found[1].lower(), text[found.end() :]
    if scheme not in _PORTS:
        raise ValueError(f"{scheme[:32]}: cannot be opened: give an address that begins with https:// or http://")
    if not rest.startswith("//") or rest.startswith("///"):
        raise ValueError(f"after {scheme}: exactly two slashes and a host must follow: write {scheme}://example.org/")
    return scheme, rest[2:]


def _authority(text: str) -> tuple[str, int | None]:
    """Return host and port."""
    if "@" in text:
        raise ValueError("there is a user name or an @ before the host: take it out; sign in on the page itself")
    found = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(\d{1,5}))?", text)
    if found is None:
        raise ValueError("the host or the port cannot be read: write https://example.org/ or https://example.org:8443/")
    port = int(found[2]) if found[2] else None
    if port is not None and not 1 <= port <= 65535:
        raise ValueError("there is no such port: give one from 1 to 65535, or none")
    return _host(found[1]), port


def _host(text: str) -> str:
    if text.startswith("["):
        return f"[{_ipv6(text[1:-1].lower())}]"
    host = _ascii(text.lower())
    labels = host.split(".")
    if not host:
        raise ValueError("there is no host in the address: write it as in https://example.org/")
    if _NUMBER.fullmatch(labels[-1] or labels[-2] if len(labels) > 1 else labels[-1]):
        return _ipv4(host)
    if not labels[-1]:
        raise ValueError("the host ends with a dot: take the dot off")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("that is not the name of a host: use letters, digits, - and dots, as in example.org")
    return host


def _ascii(host: str) -> str:
    """Return an international name in its ASCII (IDNA) form. Raises `ValueError` for look-alike characters."""
    if host.isascii():
        return host
    if unicodedata.normalize("NFKC", host) != host or "\u3002" in host:  # idna treats it as a dot
        raise ValueError("the host is written with unusual characters: write it with plain letters, digits and dots")
    try:
        return idna.encode(host).decode()
    except idna.IDNAError as error:
        raise ValueError(
            "that cannot be the name of a host: write it as it stands in the site's own address"
        ) from error


def _ipv4(host: str) -> str:
    """Return an IPv4 address of four decimal numbers. Parsers disagree on `127.1`, `0x7f.1` and `2130706433`."""
    try:
        return str(IPv4Address(host))
    except ValueError:
        raise ValueError(
            "that is not the plain form of an address: write four numbers from 0 to 255 with dots, or the host's name"
        ) from None


def _ipv6(text: str) -> str:
    try:
        address = ipv6_text(IPv6Address(text))
    except ValueError:
        raise ValueError("that is not an IPv6 address: write it as in [2001:db8::1]") from None
    if address != text or "%" in text:
        raise ValueError("that is not the plain form of an IPv6 address: write it in its shortest form, without a zone")
    return address
