"""The way out for programs that are enclosed: below a tool's gate, above the network.

`Egress` opens gates: proxies that look a name up once, vet every address that it leads to, and connect to nothing
else. What they let through is said by `vet_host`, `vet_address` and `Permitted`. Import from here; the modules of the
package are its inside: `addresses` and `hosts` decide, `dial` connects, `wire` and `bodies` speak HTTP, `exchange`
serves a connection, `proxy` a gate.
"""

from __future__ import annotations

from gateway.egress.addresses import Address, parse_address, vet_address
from gateway.egress.dial import Connect, Ends, Resolve
from gateway.egress.exchange import Limits
from gateway.egress.hosts import Host, Permitted, vet_host
from gateway.egress.proxy import Egress

__all__ = [
    "Address",
    "Connect",
    "Egress",
    "Ends",
    "Host",
    "Limits",
    "Permitted",
    "Resolve",
    "parse_address",
    "vet_address",
    "vet_host",
]
