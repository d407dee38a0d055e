"""Check of a call's destination before its approval is asked. Pure: no name is resolved.

A person cannot allow a host that the egress proxy refuses. A card for a loopback or metadata address would have no
effect, and its "allowed" would be untrue.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.tools import CallScope, Destination
from gateway.egress.addresses import vet_address
from gateway.egress.hosts import Host, Permitted, shown, vet_host, vet_public

_NOBODY = "Nobody can allow that address: name another one."
"""Cure for an address that stays refused even if its host is permitted."""


def vet_call_scope(scope: CallScope) -> CallScope:
    """Return the call scope, refused with reason and cure if the egress proxy would refuse its destination.

    A refusal by the tool itself stays unchanged. Raises `BadRequest` for an invalid permitted host.
    """
    if scope.destination is None or scope.refused:
        return scope
    return replace(scope, refused=_refusal(scope.destination))


def _refusal(going: Destination) -> str:
    host = vet_host(going.host)
    if isinstance(host, str):
        return f"{shown(going.host)} is refused. {host} Write the host as the site's own address has it."
    if Permitted(going.permitted).has(host):
        return ""
    why = vet_public(host)
    return why and f"{host} is refused. {why} {_cure(host, going.setting)}"


def _cure(host: Host, setting: str) -> str:
    if host.address is not None and vet_address(host.address, permitted=True):
        return _NOBODY
    return f'If it is a host of your own network, the owner can add it: {setting} = ["{host}"]' if setting else ""
