"""Between decision and execution: the right to run one exact action, which `toolcalls` alone issues."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from gateway.domain.turns import Lease


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to run one exact action as one step under one lease. Only `PermitOffice.issue` makes one that holds."""

    mac: bytes


class PermitOffice:
    """Issues and verifies permits with a key that lives in this process only."""

    def __init__(self) -> None:
        """Make the key."""
        self._key = secrets.token_bytes(32)

    def issue(self, lease: Lease, n: int, action_sha: str) -> Permit:
        """Make the permit for this step. Called by `toolcalls` once the step is stored as started."""
        return Permit(self._mac(lease, n, action_sha))

    def holds(self, permit: Permit, lease: Lease, n: int, action_sha: str) -> bool:
        """Whether this permit is for exactly this."""
        return hmac.compare_digest(permit.mac, self._mac(lease, n, action_sha))

    def _mac(self, lease: Lease, n: int, action_sha: str) -> bytes:
        bound = f"{lease.turn}|{lease.fence}|{n}|{action_sha}"
        return hmac.new(self._key, bound.encode(), hashlib.sha256).digest()
