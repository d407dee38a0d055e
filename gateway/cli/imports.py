"""A start of the daemon: its modules are imported without what does not pay. No part of the path of a message."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

NOT_USED = ("rich", "cryptography")
"""What libraries of ours take along where something else has brought it, for what nothing here does: coloured
tracebacks on a terminal, Telegram's passports. A tenth of a start's CPU and 5 MB, for as long as the daemon lives."""


@contextmanager
def importing() -> Generator[None]:
    """Import the daemon without what does not pay: nothing that a module makes at import is ever garbage.

    Looking for garbage meanwhile takes 6 % of the start's CPU, and later 30 ms of the loop at a time.
    """
    # Pydantic's plug-ins: looking for them in every installed package takes 10 ms, and they would see every secret.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def hidden(packages: Sequence[str]) -> Generator[None]:
    """Nobody finds these meanwhile, as if they were not installed; afterwards whoever asks for one has it.

    For what this version imports only: what an owner brings may want them.
    """
    meant = [name for name in packages if name not in sys.modules]
    for name in meant:
        sys.modules[name] = cast(Any, None)  # which Python takes as "there is none"
    try:
        yield
    finally:
        for name in meant:
            del sys.modules[name]
