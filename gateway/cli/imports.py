"""Import settings for a quick start of the daemon: no garbage collection, no unused packages. Used by the CLI."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from gateway.cli.quick_dataclasses import quick_dataclasses

NOT_USED = ("rich", "cryptography")
"""Packages that our libraries import when present, for features not used here: coloured tracebacks, Telegram's
passports. They cost a tenth of a start's CPU, and 5 MB for as long as the daemon runs."""


@contextmanager
def importing() -> Generator[None]:
    """Disable garbage collection during imports, then freeze: objects made at import are never garbage.

    Collecting them takes 6 % of the start's CPU, and later 30 ms of the loop at a time.
    """
    # Pydantic's plug-ins: searching every installed package for them takes 10 ms, and they would see every secret.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    gc.disable()
    try:
        with quick_dataclasses():
            yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def hidden(packages: Sequence[str]) -> Generator[None]:
    """Make imports of these packages fail inside the block, as if they were not installed.

    Use only for our own imports: an owner's plug-ins may need them.
    """
    missing = [name for name in packages if name not in sys.modules]
    for name in missing:
        sys.modules[name] = cast(Any, None)  # makes `import` raise ModuleNotFoundError
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
