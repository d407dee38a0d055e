"""The gate's own judgement of a host before anybody is asked about a call that goes there. Pure: no name is looked up.

A person cannot open what the gate refuses. So a card for a loopback or metadata address would be a question without
an effect, and its "allowed" would be untrue.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.tools import CallScope, Destination
from gateway.egress.addresses import vet_address
from gateway.egress.hosts import Host, Permitted, shown, vet_host, vet_public

_NOBODY = "Nobody can allow that address: name another one."


def vet_reach(reach: CallScope) -> CallScope:
    """Return the reach, refused with reason and cure when a gate never lets its destination through.

    What the tool refused already stays as it is. Raises `BadRequest` for a permitted host that is none.
    """
    if reach.destination is None or reach.refused:
        return reach
    return replace(reach, refused=_refusal(reach.destination))


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
