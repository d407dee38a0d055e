"""A tool of a machine whose name servers do not answer: looking up a name takes as long as the system lets it."""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

from tests.support.tools.peek import SPEC as PEEK
from tests.support.tools.peek import Args, run

__all__ = ["SPEC", "Args", "run"]

SPEC = PEEK
SILENT = ".example.org"
ASKED = "The name servers are asked, and silent."
GIVES_UP_S = 25.0
_ask = socket.getaddrinfo


def _asked(host: Any, *asked: Any, **how: Any) -> Any:
    if str(host).endswith(SILENT):
        sys.stderr.write(f"{ASKED}\n")
        time.sleep(GIVES_UP_S)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _ask(host, *asked, **how)


socket.getaddrinfo = _asked
