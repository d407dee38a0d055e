"""The way out for programs that are enclosed: below a tool's gate, above the network.

`Egress` opens gates: proxies that look a name up once, vet every address that it leads to, and connect to nothing
else. It is what others import; the modules of the package are its inside: `addresses` and `hosts` decide, `dial`
connects, `wire` and `bodies` speak HTTP, `exchange` serves a connection, `proxy` a gate; `destinations` judges a call.
"""

from __future__ import annotations

from gateway.egress.destinations import vet_reach
from gateway.egress.proxy import Egress

__all__ = ["Egress", "vet_reach"]
