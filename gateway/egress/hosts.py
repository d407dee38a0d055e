"""Parser of requested hosts, and the hosts that the owner permits. Used by egress proxies. Pure.

A host is refused unless it is written as any browser would normalise it. Forms that two programs may read differently
(`127.1`, `0x7f.1`, `a\\@b`) are never forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from gateway.domain.tools import USUAL_PORTS, host_scope, ipv6_text
from gateway.egress.addresses import Address, parse_address, vet_address
from gateway.errors import BadRequest

SHOWN_AT_MOST = 100
"""Characters of a requested host that are shown."""

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_WRITTEN = re.compile(r"\[(?P<six>[^][]*)\](?::(?P<six_port>.*))?|(?P<name>[^:]*)(?::(?P<port>[^:]*))?", re.DOTALL)
_LOCAL_NAMES = ("localhost", "local", "internal", "home.arpa")
"""Domains of local networks by definition (RFC 6761, 6762 and 8375, and ICANN for `internal`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Host and port, in the one form in which they are compared, resolved and shown."""

    name: str
    """Lower case ASCII, without a dot at the end; or an address, without brackets."""
    port: int
    address: Address | None
    """The address, if the name is one."""

    def __str__(self) -> str:
        """Return `host:port`, an IPv6 address in brackets."""
        return f"[{self.name}]:{self.port}" if isinstance(self.address, IPv6Address) else f"{self.name}:{self.port}"


def shown(text: str) -> str:
    """Return a requested host in a form for display and logs: printable ASCII, bounded, without a password."""
    text = text.rpartition("@")[2]
    return "".join(char if "!" <= char <= "~" else ascii(char)[1:-1] for char in text[:SHOWN_AT_MOST])


def vet_host(text: str, *, port: int | None = None) -> Host | str:
    """Parse `host`, `host:port` or the same with `[IPv6]`; return one sentence why not for any other form.

    `port` is the default port; None: a port is required. Upper case is lowered, nothing else is corrected.
    """
    if "@" in text:
        return "It has a user before the host."
    written = _WRITTEN.fullmatch(text)
    if written is None:
        return "It is not a host: an IPv6 address needs brackets."
    port_text = written["port"] if written["six"] is None else written["six_port"]
    number = _read_port(port_text, port)
    if isinstance(number, str):
        return number
    name = written["name"] if written["six"] is None else written["six"]
    address = parse_address(name)
    if isinstance(address, IPv6Address) != (written["six"] is not None):
        return "Brackets hold an IPv6 address, without a zone."
    if address is not None:
        name = ipv6_text(address) if isinstance(address, IPv6Address) else str(address)
        return Host(name=name, port=number, address=address)
    if not name.isascii():  # before lower(): the kelvin sign becomes an ASCII k
        return "It is not ASCII: an international name is written with xn--."
    name = name.lower()
    return _misspelled(name) or Host(name=name, port=number, address=None)


def vet_public(host: Host) -> str:
    """Return in one sentence why a host without permission is not resolved; empty when it may be."""
    if host.port not in USUAL_PORTS:
        return f"Port {host.port} is not open: only 80 and 443 are."
    if host.address is not None:
        return vet_address(host.address)
    if "." not in host.name or any(host.name == one or host.name.endswith(f".{one}") for one in _LOCAL_NAMES):
        return f"{host.name} is a name of local networks."
    return ""


class Permitted:
    """Hosts that the owner permits although they are private or have another port."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """Take `host`, `host:port`, `*.host` and `[IPv6]`; without a port, 80 and 443.

        `*.host` matches every sub-domain, not the domain itself. Raises `BadRequest` for anything else.
        """
        self._let: Container[str] | None = None
        self._exact: set[tuple[str, int]] = set()
        self._below: set[tuple[str, int]] = set()
        for text in hosts:
            name = text.removeprefix("*.")
            host = _permittable(text, name)
            ports = USUAL_PORTS if _without_port(name) else {host.port}
            (self._exact if name == text else self._below).update((host.name, port) for port in ports)

    def let(self, scopes: Container[str]) -> None:
        """Restrict the permitted hosts to these: `host`, or `host:port` for a port other than 80 and 443."""
        self._let = scopes

    def has(self, host: Host) -> bool:
        """Return True if the owner permits the host at its port, and `let` does not exclude it."""
        if self._let is not None and host_scope(host.name, host.port) not in self._let:
            return False
        labels = host.name.split(".") if host.address is None else []
        parents = (".".join(labels[n:]) for n in range(1, len(labels)))
        return (host.name, host.port) in self._exact or any((name, host.port) in self._below for name in parents)


def _read_port(text: str | None, default: int | None) -> int | str:
    if text is None:
        return "It has no port." if default is None else default
    if _PORT.fullmatch(text) is None or int(text) > 65_535:
        return "Its port is not a number from 1 to 65535."
    return int(text)


def _misspelled(name: str) -> str:
    """Return why a lower-case name is no valid host; empty when it is."""
    if not name:
        return "It has no host."
    if name.endswith("."):
        return "It ends with a dot."
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return "It is a number that is not written as an address: four decimal numbers, no leading zeros."
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return "It is not a host's name: only letters, digits, - and _ between single dots."
    return ""


def _without_port(name: str) -> bool:
    return name.endswith("]") or ":" not in name


def _permittable(text: str, name: str) -> Host:
    cure = "Write `host`, `host:port`, `*.host` or `[IPv6 address]:port`, without http:// and without a path."
    host = vet_host(name, port=443)
    if isinstance(host, str):
        raise BadRequest(f"The host {shown(text)!r} cannot be permitted. {host}", cure=cure)
    if host.address is None:
        return host
    if name != text:
        raise BadRequest(f"The host {shown(text)!r} cannot be permitted: nothing is below an address.", cure=cure)
    if why := vet_address(host.address, permitted=True):
        raise BadRequest(f"The host {shown(text)!r} cannot be permitted. {why}", cure="Take it out of the list.")
    return host
