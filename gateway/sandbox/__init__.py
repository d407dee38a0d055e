"""Containment of tool processes. Stands between a tool's part `process` and the kernel.

`probe` finds out once what this machine can do, `choose` and `network_for` pick the mode and the network of a call,
`run_contained` runs it. `open_sandbox_session` is for a program that outlives calls. Import from here; the modules are
private.
"""

from __future__ import annotations

from gateway.sandbox.choice import NO_FLOOR, choose, network_for
from gateway.sandbox.plan import Containment, ProcessLimits
from gateway.sandbox.probe import probe
from gateway.sandbox.public import Serve
from gateway.sandbox.run import Confinement, run_contained
from gateway.sandbox.session import open_sandbox_session, session_limits
from gateway.sandbox.terminal import Terminal

__all__ = [
    "NO_FLOOR",
    "Confinement",
    "Containment",
    "ProcessLimits",
    "Serve",
    "Terminal",
    "choose",
    "network_for",
    "open_sandbox_session",
    "probe",
    "run_contained",
    "session_limits",
]
