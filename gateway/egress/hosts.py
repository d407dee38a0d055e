"""Which hosts may be asked for at a gate: how one is written, and which the owner permits. Pure.

A host is refused unless it is written as it would be after any browser's reading of it. What two programs read
differently (`127.1`, `0x7f.1`, `a\\@b`) is never handed on, so there is nothing to disagree about.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from gateway.domain.tools import EVERY_SCOPE, USUAL_PORTS, host_scope
from gateway.egress.addresses import Address, parse_address, vet_address
from gateway.errors import BadRequest

SHOWN_AT_MOST = 100
"""Characters of what was asked for that are shown."""

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_WRITTEN = re.compile(r"\[(?P<six>[^][]*)\](?::(?P<six_port>.*))?|(?P<name>[^:]*)(?::(?P<port>[^:]*))?", re.DOTALL)
_LOCAL_NAMES = ("localhost", "local", "internal", "home.arpa")
"""Names that lead into local networks by definition (RFC 6761, 6762 and 8375, and ICANN for `internal`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host and its port, in the one form in which they are compared, resolved and shown."""

    name: str
    """Lower case ASCII, without a dot at the end; or an address, without brackets."""
    port: int
    address: Address | None
    """When the name is one."""

    def __str__(self) -> str:
        """Return `host:port`, an IPv6 address in brackets."""
        return f"[{self.name}]:{self.port}" if isinstance(self.address, IPv6Address) else f"{self.name}:{self.port}"


def shown(text: str) -> str:
    """Return what somebody asked for as it may be shown and logged: printable ASCII, not too long, no password."""
    text = text.rpartition("@")[2]
    return "".join(char if "!" <= char <= "~" else ascii(char)[1:-1] for char in text[:SHOWN_AT_MOST])


def vet_host(text: str, *, port: int | None = None) -> Host | str:
    """Read `host`, `host:port` or the same with `[IPv6]`; return one sentence why not when it is not plainly one.

    `port` is that of a host without one; None: it must have one. Upper case is made lower, nothing else is mended.
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
        return Host(name=str(address), port=number, address=address)
    if not name.isascii():  # before it is lowered: the sign for kelvin has an ASCII k for its lower case
        return "It is not ASCII: an international name is written with xn--."
    name = name.lower()
    return _misspelled(name) or Host(name=name, port=number, address=None)


def vet_public(host: Host) -> str:
    """Say in one sentence why a host that the owner does not permit is refused before it is looked up; empty: go on."""
    if host.port not in USUAL_PORTS:
        return f"Port {host.port} is not open: only 80 and 443 are."
    if host.address is not None:
        return vet_address(host.address)
    if "." not in host.name or any(host.name == one or host.name.endswith(f".{one}") for one in _LOCAL_NAMES):
        return f"{host.name} is a name of local networks."
    return ""


class Permitted:
    """The hosts that the owner lets through although they are private or have another port."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """Take `host`, `host:port`, `*.host` and `[IPv6]`; without a port 80 and 443 are meant.

        `*.host` means every name below it, and not itself. Raises `BadRequest` for anything else.
        """
        self._let: frozenset[str] | None = None
        self._exact: set[tuple[str, int]] = set()
        self._below: set[tuple[str, int]] = set()
        for text in hosts:
            name = text.removeprefix("*.")
            host = _permittable(text, name)
            ports = USUAL_PORTS if _without_port(name) else {host.port}
            (self._exact if name == text else self._below).update((host.name, port) for port in ports)

    def let(self, scopes: Collection[str]) -> None:
        """From now on only those that are named here: `host`, or `host:port` where it is not 80 or 443."""
        self._let = frozenset(scopes)

    def has(self, host: Host) -> bool:
        """Say whether the owner permits a host at its port, and it was let through."""
        if self._let is not None and self._let.isdisjoint((host_scope(host.name, host.port), EVERY_SCOPE)):
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
    """Why a name, in lower case, is no host's; empty when it may be one."""
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
