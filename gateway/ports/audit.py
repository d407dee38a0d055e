"""Port of the audit: reads for its verification, and the note of an export. Beside the store's other ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.domain.audit import AuditHead, AuditMark, AuditRow, StartedCall
from gateway.domain.ids import TurnId


class Audit(Protocol):
    """The audit. Only `TurnJournal.start_step` writes a row, in its own transition; only `Retention` removes one."""

    async def audit_head(self) -> AuditHead:
        """Return the end of the audit."""
        ...

    async def audit_row(self, turn: TurnId, n: int) -> AuditRow | None:
        """Return the row of a step's last start; None when it never started. Raises `StoreError` as `audit_rows`."""
        ...

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Return rows with `seq` > after, by `seq`. Raises `StoreError` for a row that cannot be read."""
        ...

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Return started calls whose step's `ord` is > after, by `ord`, each with its row."""
        ...

    async def removed_audit(self) -> AuditMark | None:
        """Return the last row that was removed; None while none was. Raises `StoreError` when that mark was changed."""
        ...

    async def note_export(self, seq: int, row_hash: str) -> bool:
        """Note the row that an export ended in: rows up to it may be removed. Return False when there is none."""
        ...
