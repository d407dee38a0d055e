"""The secret of a gateway, from which all that it signs with is derived. Made by `app.core`."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

_CLUSTER = b"dragoman cluster key 1"


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A secret of 32 bytes. Every node of a gateway has the same one."""

    root: bytes = field(repr=False)

    def derived(self, purpose: str) -> bytes:
        """Return the key for one purpose, 32 bytes: what is signed for one means nothing to another."""
        return hmac.new(self.root, purpose.encode(), hashlib.sha256).digest()

    @property
    def fingerprint(self) -> str:
        """Return a text by which two keys are compared; it does not give the key away."""
        return self.derived("fingerprint").hex()[:32]


def cluster_key(text: str) -> SecretKey:
    """Return the key of a configured secret of any length."""
    return SecretKey(hmac.new(_CLUSTER, text.encode(), hashlib.sha256).digest())
