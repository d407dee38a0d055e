"""Permits to run one exact action. Issued by `scheduler` after the decision, verified by `execution`."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from gateway.domain.turns import Lease


@dataclass(frozen=True, slots=True)
class Permit:
    """Permit to run one exact action as one step under one lease. Only `PermitOffice.issue` makes a valid one."""

    mac: bytes


class PermitOffice:
    """Issuer and verifier of permits, with a key that exists in this process only."""

    def __init__(self) -> None:
        """Draw the key."""
        self._key = secrets.token_bytes(32)

    def issue(self, lease: Lease, n: int, action_sha: str) -> Permit:
        """Return the permit for this step. Call once the step is stored as started."""
        return Permit(self._mac(lease, n, action_sha))

    def holds(self, permit: Permit, lease: Lease, n: int, action_sha: str) -> bool:
        """Return True when the permit is for exactly this lease, step and action."""
        return hmac.compare_digest(permit.mac, self._mac(lease, n, action_sha))

    def _mac(self, lease: Lease, n: int, action_sha: str) -> bytes:
        bound = f"{lease.turn}|{lease.fence}|{n}|{action_sha}"
        return hmac.new(self._key, bound.encode(), hashlib.sha256).digest()
