"""Egress proxies for programs in sandbox sessions. Stands between such a program and the network.

`Egress` opens proxies that resolve a name once, vet every address of it, and connect to nothing else. Import from
here; the modules are private: `addresses` and `hosts` decide, `dial` connects, `wire` and `bodies` speak HTTP,
`exchange` serves a connection, `proxy` a listening socket. `destinations` vets a call before its approval.
"""

from __future__ import annotations

from gateway.egress.destinations import vet_call_scope
from gateway.egress.fetch import Requests
from gateway.egress.proxy import Egress

__all__ = ["Egress", "Requests", "vet_call_scope"]
