"""Hash chain of the audit, and its verification. Written by the store where a call starts, read by `dragoman audit`.

Each row's hash covers the row and the previous hash. Changing, removing or moving a row therefore means recomputing
everything after it. Rows cut off at the end show by the steps, which name their rows. A person who can write the store
can recompute all of it: only a head noted elsewhere reveals that.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from gateway.domain.audit import AuditHead, AuditMark, AuditRow, StartedCall
from gateway.ports import Audit

PAGE = 500
"""Rows read per query."""
_EARLIER_NAMES = {"basis": "because"}
"""Names under which a row's hash covers a field: those of the first version, since a hash that is written stays."""
_COVERED = {
    _EARLIER_NAMES.get(field.name, field.name): field.name
    for field in fields(AuditRow)
    if field.name not in ("prev_hash", "hash")
}


class Why(StrEnum):
    """Kind of damage to the audit."""

    REMOVED = "removed"
    """Rows before this one are missing."""
    CHANGED = "changed"
    """The row differs from what was written."""
    MOVED = "moved"
    """The row does not follow the previous one: one of them was inserted later."""
    NOT_WRITTEN = "not_written"
    """A call started without a row."""
    ANOTHER_CALL = "another_call"
    """A call names a row of another start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """First damage found."""

    why: Why
    says: str
    """Sentence that names the row or the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """Result of a verification."""

    rows: int
    """Intact rows, from the first one on that was not removed."""
    head: str
    """Hash of the last intact row."""
    calls: int
    """Started calls that have their row."""
    broken: Broken | None
    removed: AuditMark | None = None
    """The last row that was removed behind an export; None while none was."""


def canonical(data: Mapping[str, Any]) -> str:
    """Return plain data in canonical form: sorted keys, ASCII, no spaces, as for the actions of approvals."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def beginning_of(since: datetime) -> str:
    """Return the previous hash of the first row. It covers `since`, so that this cannot be changed later either."""
    return hashlib.sha256(canonical({"audit_since": _time(since)}).encode()).hexdigest()


def begins_behind(removed: AuditMark | None, since: datetime) -> AuditHead:
    """Return the head that the first row follows: the last removed row, or where every audit begins."""
    if removed is None:
        return AuditHead(since=since, seq=0, hash=beginning_of(since))
    return AuditHead(since=since, seq=removed.seq, hash=removed.hash)


def check_of(mark: AuditMark) -> str:
    """Return a hash over a mark, which is stored with it."""
    data = {"seq": mark.seq, "hash": mark.hash, "at": _time(mark.at)}
    return hashlib.sha256(canonical(data).encode()).hexdigest()


def hash_of(row: AuditRow) -> str:
    """Return the correct hash of a row, ignoring its `hash`."""
    data = {name: getattr(row, field) for name, field in _COVERED.items()}
    data["at"] = _time(row.at)
    return hashlib.sha256((row.prev_hash + canonical(data)).encode()).hexdigest()


def sealed(row: AuditRow, head: AuditHead) -> AuditRow:
    """Return a new row with the sequence number and hashes that follow `head`."""
    placed = replace(row, seq=head.seq + 1, prev_hash=head.hash)
    return replace(placed, hash=hash_of(placed))


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


# --- verification -------------------------------------------------------------------------------


def follow(head: AuditHead, rows: Sequence[AuditRow]) -> tuple[AuditHead, Broken | None]:
    """Verify the next rows after `head`, by `seq`. Return the head of the intact part and the first damage.

    Rows missing after the last one are not detected here: see `missing`.
    """
    for row in rows:
        broken = _damage(head, row)
        if broken is not None:
            return head, broken
        head = replace(head, seq=row.seq, hash=row.hash)
    return head, None


def _damage(head: AuditHead, row: AuditRow) -> Broken | None:
    if row.seq != head.seq + 1:
        gone = f"row {row.seq - 1} is" if row.seq == head.seq + 2 else f"rows {head.seq + 1} to {row.seq - 1} are"
        return Broken(why=Why.REMOVED, says=f"The audit is damaged: {gone} missing.")
    if hash_of(row) != row.hash:
        return Broken(why=Why.CHANGED, says=f"The audit is damaged: row {row.seq} differs from what was written.")
    if row.prev_hash != head.hash:
        says = f"The audit is damaged: row {row.seq} does not follow the previous one."
        return Broken(why=Why.MOVED, says=says)
    return None


def missing(since: datetime, calls: Sequence[StartedCall], removed: AuditMark | None = None) -> Broken | None:
    """Return the damage of the first started call without a row of its own; None when every call has one.

    Detects rows cut off at the end: their calls name them. A call whose row was removed needs none.
    """
    for call in calls:
        step = f"the call at step {call.n} of turn {call.turn} started at {_time(call.started_at)}"
        if call.row is None:
            if call.started_at > since and not _was_removed(call, removed):
                return Broken(why=Why.NOT_WRITTEN, says=f"The audit is damaged: {step}, and there is no row of it.")
        elif (call.row.turn, call.row.n, call.row.at) != (call.turn, call.n, call.started_at):
            says = f"The audit is damaged: {step}, and its row {call.row.seq} is of another start."
            return Broken(why=Why.ANOTHER_CALL, says=says)
    return None


def cut_off(removed: AuditMark | None, last: int) -> Broken | None:
    """Return the damage when no row is left behind the removed ones: the last one, of number `last`, always stays."""
    if removed is None or last > removed.seq:
        return None
    return Broken(why=Why.REMOVED, says=f"The audit is damaged: the rows behind row {removed.seq} are missing.")


def _was_removed(call: StartedCall, removed: AuditMark | None) -> bool:
    return removed is not None and call.seq is not None and call.seq <= removed.seq and call.started_at <= removed.at


async def verify(audit: Audit) -> AuditVerdict:
    """Verify every row and every started call, a page at a time, up to the first damage. Raises `StoreError`.

    Hashing runs in a thread, beside the event loop. Rows written meanwhile may be covered or not.
    """
    removed = await audit.removed_audit()
    while True:
        verdict = await _verify(audit, removed)
        began, removed = removed, await audit.removed_audit()
        if verdict.broken is None or removed == began:  # else rows were removed while it read
            return verdict


async def _verify(audit: Audit, removed: AuditMark | None) -> AuditVerdict:
    end = await audit.audit_head()
    since, broken = end.since, cut_off(removed, end.seq)
    head = begin = begins_behind(removed, since)
    while broken is None and (rows := await audit.audit_rows(head.seq, PAGE)):
        head, broken = await asyncio.to_thread(follow, head, rows)
    calls, after = 0, 0
    while broken is None and (page := await audit.started_calls(after, PAGE)):
        broken = missing(since, page, removed)
        calls, after = calls + sum(call.row is not None for call in page), page[-1].ord
    return AuditVerdict(rows=head.seq - begin.seq, head=head.hash, calls=calls, broken=broken, removed=removed)
