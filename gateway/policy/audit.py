"""The audit's hashes, and whether it is whole. Written by the store where a call starts, read by `dragoman audit`.

Each row's hash covers the row and the hash before it, so that nothing can be changed, taken out or moved without
everything after it being made anew. What was cut off at the end shows by the steps, which name their rows. Whoever can
write the store can make all of it anew: only a head that was noted elsewhere shows that.
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

from gateway.domain.audit import AuditHead, AuditRow, StartedCall
from gateway.ports import Audit

PAGE = 500
"""Rows that are read at once."""
_COVERED = tuple(field.name for field in fields(AuditRow) if field.name not in ("prev_hash", "hash"))


class Why(StrEnum):
    """What is wrong with the audit."""

    REMOVED = "removed"
    """Rows are missing before this one."""
    CHANGED = "changed"
    """The row is not what was written."""
    MOVED = "moved"
    """The row does not follow the one before it: one of them was put there later."""
    NOT_WRITTEN = "not_written"
    """A call started, and there is no row of it."""
    ANOTHER_CALL = "another_call"
    """A call names a row that is not of its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The first thing that is wrong."""

    why: Why
    says: str
    """One sentence that names the row or the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """What came of looking at all of it."""

    rows: int
    """That are whole, from the first one on."""
    head: str
    """The hash of the last one of them."""
    calls: int
    """Started calls that have their row."""
    broken: Broken | None


def canonical(said: Mapping[str, Any]) -> str:
    """Return plain data in its one text form: keys in order, ASCII, no spaces, as the actions of approvals."""
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def beginning_of(since: datetime) -> str:
    """Return what stands for the hash before the first row, so that `since` cannot be changed later either."""
    return hashlib.sha256(canonical({"audit_since": _time(since)}).encode()).hexdigest()


def hash_of(row: AuditRow) -> str:
    """Return the hash that a row must have, whatever stands in its `hash`."""
    said = {name: getattr(row, name) for name in _COVERED}
    said["at"] = _time(row.at)
    return hashlib.sha256((row.prev_hash + canonical(said)).encode()).hexdigest()


def sealed(row: AuditRow, head: AuditHead) -> AuditRow:
    """Return a new row as the one after `head`: with its place and its hashes."""
    placed = replace(row, seq=head.seq + 1, prev_hash=head.hash)
    return replace(placed, hash=hash_of(placed))


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


# --- is it whole? -------------------------------------------------------------------------------


def follow(head: AuditHead, rows: Sequence[AuditRow]) -> tuple[AuditHead, Broken | None]:
    """Go on from `head` over the rows that come next, by `seq`. Return how far they are whole, and what is wrong then.

    Nothing is known of rows that should come after the last one: see `missing`.
    """
    for row in rows:
        broken = _wrong(head, row)
        if broken is not None:
            return head, broken
        head = replace(head, seq=row.seq, hash=row.hash)
    return head, None


def _wrong(head: AuditHead, row: AuditRow) -> Broken | None:
    if row.seq != head.seq + 1:
        gone = f"row {row.seq - 1} is" if row.seq == head.seq + 2 else f"rows {head.seq + 1} to {row.seq - 1} are"
        return Broken(why=Why.REMOVED, says=f"The audit is not whole: {gone} gone.")
    if hash_of(row) != row.hash:
        return Broken(why=Why.CHANGED, says=f"The audit is not whole: row {row.seq} is not what was written.")
    if row.prev_hash != head.hash:
        says = f"The audit is not whole: row {row.seq} does not follow the one before it."
        return Broken(why=Why.MOVED, says=says)
    return None


def missing(since: datetime, calls: Sequence[StartedCall]) -> Broken | None:
    """Return what is wrong with the first started call that has no row, or another call's; None when all have theirs.

    A row that was cut off at the end is found here: its call names it.
    """
    for call in calls:
        step = f"the call at step {call.n} of turn {call.turn} started at {_time(call.started_at)}"
        if call.row is None:
            if call.started_at > since:
                return Broken(why=Why.NOT_WRITTEN, says=f"The audit is not whole: {step}, and there is no row of it.")
        elif (call.row.turn, call.row.n, call.row.at) != (call.turn, call.n, call.started_at):
            says = f"The audit is not whole: {step}, and row {call.row.seq}, which should say so, is of another start."
            return Broken(why=Why.ANOTHER_CALL, says=says)
    return None


async def verify(audit: Audit) -> AuditVerdict:
    """Look at every row and every started call, a page at a time, and stop at the first thing that is wrong.

    Hashing is done beside the event loop. What is written meanwhile may be looked at or not. Raises `StoreError`.
    """
    since = (await audit.audit_head()).since
    head = AuditHead(since=since, seq=0, hash=beginning_of(since))
    broken: Broken | None = None
    while broken is None and (rows := await audit.audit_rows(head.seq, PAGE)):
        head, broken = await asyncio.to_thread(follow, head, rows)
    calls, after = 0, 0
    while broken is None and (page := await audit.started_calls(after, PAGE)):
        broken = missing(since, page)
        calls, after = calls + sum(call.row is not None for call in page), page[-1].ord
    return AuditVerdict(rows=head.seq, head=head.hash, calls=calls, broken=broken)
