"""Import settings for a quick start of the daemon: no garbage collection, no unused packages. Used by the CLI."""

from __future__ import annotations

import gc
import os
import ssl
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
        with quick_dataclasses(), no_idle_authorities():
            yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def no_idle_authorities() -> Generator[None]:
    """Load no certificate authorities, in this block, into a TLS context that verifies nothing.

    aiohttp makes two contexts on import, one of which verifies nothing and is never used here. The 140 authorities
    take 4 % of a start's CPU. A context that is made to verify later has none, and trusts nobody.
    """
    load = ssl.SSLContext.set_default_verify_paths

    def load_for_verifying(self: ssl.SSLContext) -> None:
        if self.verify_mode is not ssl.CERT_NONE:
            load(self)

    ssl.SSLContext.set_default_verify_paths = load_for_verifying
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths  # the inherited one is back


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
