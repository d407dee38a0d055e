"""Containment of tool processes. Stands between a tool's `spawn` and the kernel.

`probe` finds out once what this machine can do, `choose` picks the mode of a call, `run_contained` runs it.
`enclosed` opens a sandbox session for a program that outlives calls. Import from here; the modules are private.
"""

from __future__ import annotations

from gateway.sandbox.plan import Containment, ProcessLimits, choose
from gateway.sandbox.probe import probe
from gateway.sandbox.run import run_contained
from gateway.sandbox.session import enclosed

__all__ = ["Containment", "ProcessLimits", "choose", "enclosed", "probe", "run_contained"]
