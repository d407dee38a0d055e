"""Rule of retention: whether an old turn is removed, and why not. Pure. Used by the store's kernel."""

from __future__ import annotations

from datetime import datetime

from gateway.domain.retention import Keep, Stays, TurnFacts


def stays(turn: TurnFacts, keep: Keep, now: datetime) -> Stays | None:
    """Return why a turn stays; None for one that is removed. With two limits, either is enough to keep it."""
    if keep.is_everything:
        return Stays.EVERYTHING
    if turn.ended_at is None:
        return Stays.NOT_ENDED
    if keep.turns is not None and turn.is_last:
        return Stays.LAST
    if keep.age is not None and is_young(turn.ended_at, keep, now):
        return Stays.YOUNG
    if turn.in_window:
        return Stays.WINDOW
    return _needed(turn)


def _needed(turn: TurnFacts) -> Stays | None:
    """Return the reason why an ended turn must stay; None when there is none."""
    if turn.waits:
        return Stays.WAIT
    if turn.slots:
        return Stays.SLOT
    if turn.children:
        return Stays.CHILD
    return Stays.GRANT if turn.grants else None


def is_young(at: datetime, keep: Keep, now: datetime) -> bool:
    """Return whether something of this time is kept for its age."""
    return keep.age is not None and now - at < keep.age
