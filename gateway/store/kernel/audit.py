"""Transitions of the audit's two marks: the row that an export ended in, and the last row that was removed.

Rows go only when a file holds them: an operator's export names its last row, and what is older than the setting is
removed up to there. The mark that this leaves is where the chain begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from gateway.domain.audit import AuditMark, AuditRow
from gateway.errors import StoreDamaged
from gateway.policy.audit import begins_behind, check_of, follow
from gateway.store.codec import dump_json, from_us, load_json, to_us
from gateway.store.kernel.part import FactKey, Part
from gateway.store.kernel.rows import Fact, latest

EXPORTED: FactKey = ("audit", "exported")
REMOVED: FactKey = ("audit", "removed")
ROWS_AT_ONCE = 60
"""Rows that one transition removes at most: hashing them takes a millisecond."""
DAMAGED = "Keep a copy of the store, and look at deploy/RUNBOOK.md (Was anything run that nobody allowed?)."


def mark_of(text: str | None) -> AuditMark | None:
    """Return a stored mark. Raises `StoreDamaged` for one that is not as it was written."""
    if text is None:
        return None
    try:
        found = load_json(text)
        mark = AuditMark(seq=found["seq"], hash=found["hash"], at=from_us(found["at"]))
        if found["check"] == check_of(mark):
            return mark
    except (ValueError, KeyError, TypeError, OverflowError):
        pass
    raise StoreDamaged(
        "The audit is damaged: its mark of exported or removed rows differs from what was written.",
        cure=DAMAGED,
    )


def text_of(mark: AuditMark) -> str:
    """Return the stored form of a mark."""
    return dump_json({"seq": mark.seq, "hash": mark.hash, "at": to_us(mark.at), "check": check_of(mark)})


def removed(part: Part) -> AuditMark | None:
    """Return the last row that was removed; None while none was."""
    return _mark(part, REMOVED)


def note_export(part: Part, seq: int, hash_: str) -> bool:
    """Note the row that an export ended in. Return False when the audit has no such row."""
    if not _has(part, seq, hash_):
        return False
    part.facts.put(EXPORTED, Fact(text_of(AuditMark(seq=seq, hash=hash_, at=part.now))))
    return True


def trim(part: Part, age: timedelta) -> int:
    """Remove some of the oldest rows: only those older than `age` that were exported, and never the last one.

    Return how many were removed. Raises `StoreDamaged`, and removes nothing, when they are not what was written.
    """
    exported, before = _mark(part, EXPORTED), removed(part)
    passed = 0 if before is None else before.seq
    if exported is None or exported.seq <= passed or not _has(part, exported.seq, exported.hash):
        return 0
    end = part.last_audit()
    last = min(exported.seq, end.seq - 1, passed + ROWS_AT_ONCE)
    young = part.now - age
    old = list(takewhile(lambda row: row.at <= young, part.audit_between(passed + 1, last)))
    if not old:
        return 0
    head, broken = follow(begins_behind(before, end.since), old)
    if broken is not None:
        raise StoreDamaged(broken.says, cure=DAMAGED)
    _remove(part, old, AuditMark(seq=head.seq, hash=head.hash, at=_last_time(before, old)))
    return len(old)


def _remove(part: Part, rows: Sequence[AuditRow], mark: AuditMark) -> None:
    part.audit_removed += [row.seq for row in rows]
    part.facts.put(REMOVED, Fact(text_of(mark)))


def _last_time(before: AuditMark | None, rows: Sequence[AuditRow]) -> datetime:
    found = latest(None if before is None else before.at, *(row.at for row in rows))
    assert found is not None, "there are rows"
    return found


def _has(part: Part, seq: int, hash_: str) -> bool:
    """Return whether the row of this number is the one with this hash."""
    if (gone := removed(part)) is not None and gone.seq == seq:
        return gone.hash == hash_
    return any(row.hash == hash_ for row in part.audit_between(seq, seq))


def _mark(part: Part, key: FactKey) -> AuditMark | None:
    fact = part.facts.get(key)
    return mark_of(None if fact is None else fact.value)
