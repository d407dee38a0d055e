"""Containment of tool processes: below a tool's `spawn`, above the kernel.

`probe` finds out once what this machine can do, `choose` says which mode a call gets, `run_contained` runs it;
`enclosed` keeps a program that outlives calls. Import from here; the modules of the package are its inside.
"""

from __future__ import annotations

from gateway.sandbox.plan import Containment, ProcessLimits, choose
from gateway.sandbox.probe import probe
from gateway.sandbox.run import run_contained
from gateway.sandbox.session import enclosed

__all__ = ["Containment", "ProcessLimits", "choose", "enclosed", "probe", "run_contained"]
