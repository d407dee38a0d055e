"""Byte code of all that a daemon imports, before daemons are measured. No part of a message's path."""

from __future__ import annotations

import compileall
import os
from sysconfig import get_path

from tests.support.daemon import ROOT

OWN = ("gateway", "channels", "agent_tools", "tests")


def have_bytecode() -> None:
    """Compile whatever is not compiled yet. Called by a command before it starts anything.

    Without it whichever daemon first needs a module compiles it: a second of CPU, and 7 MB that it never gives back,
    which no second start has.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for place in (*(ROOT / name for name in OWN), get_path("purelib")):
        compileall.compile_dir(place, quiet=2)
