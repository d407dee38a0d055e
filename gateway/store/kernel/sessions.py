"""Transitions of a session: its preset, the tools that people switched off, and the summary of its history."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.presets import PLAN
from gateway.domain.sessions import Session
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease
from gateway.domain.views import Spent
from gateway.errors import NotFound
from gateway.ports import SessionChange
from gateway.store.answer_rules import NOTHING
from gateway.store.child_rules import not_started
from gateway.store.kernel import turns
from gateway.store.kernel.budgets import settle
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import TurnRow, changed


def change(part: Part, session: SessionId, wanted: SessionChange) -> None:
    """Change the limits of a root, and of its live children: they have no more rights than it has."""
    row = part.sessions[session]
    if row.session.lineage is not None:
        raise NotFound(f"{session} is a sub-session, whose limits follow those of the session above it.")
    now = row.session
    preset = now.preset if wanted.preset is None else wanted.preset
    before = now.preset_before if preset == now.preset else now.preset
    limits = changed(now, preset=preset, preset_before=before, tools_off=_off(now, wanted))
    part.set_session(session, session=limits)
    _limit_children(part, row.live_below, preset, wanted)


def _limit_children(part: Part, children: Iterable[SessionId], preset: str, wanted: SessionChange) -> None:
    for child in children:
        known = part.sessions[child].session
        above = (preset, *known.presets_above[1:])
        part.set_session(child, session=changed(known, presets_above=above, tools_off=_off(known, wanted)))


def enter_plan(part: Part, lease: Lease, n: int) -> None:
    """Give the session of a turn the preset that plans, as the effect of its started step `n`."""
    change(part, _of_started(part, lease, n).turn.session, SessionChange(preset=PLAN))


def leave_plan(part: Part, lease: Lease, n: int) -> None:
    """Give the session of a turn the preset before its present one, as the effect of its started step `n`.

    The session keeps that name as the one before, so that a repetition changes nothing.
    """
    row = _of_started(part, lease, n)
    root = part.sessions[row.turn.session]
    before = root.session.preset_before
    change(part, row.turn.session, SessionChange(preset=before))
    part.set_session(row.turn.session, session=changed(part.sessions[row.turn.session].session, preset_before=before))


def _of_started(part: Part, lease: Lease, n: int) -> TurnRow:
    """Return the held turn whose step `n` was started under this lease."""
    row = turns.held(part, lease)
    step = part.steps.get((lease.turn, n))
    if step is None or step.step.state is not StepState.STARTED or step.fence != row.fence:
        raise not_started(lease, n)
    return row


def _off(session: Session, wanted: SessionChange) -> tuple[str, ...]:
    return tuple(sorted((frozenset(session.tools_off) | wanted.tools_off) - wanted.tools_on))


def summary_holder(session: SessionId) -> str:
    """Return the holder of the reservation for a session's summary."""
    return f"summary {session}"


def compact(part: Part, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
    """Store the summary of the beginning of a history, and its cost."""
    if spent is not None and spent.usage != NOTHING:
        part.spent.append(spent)
        settle(part, summary_holder(session), spent.usage)
    row, turn = part.sessions.get(session), part.turns.get(through)
    if row is None or turn is None or turn.ended_rev is None:
        return False
    if row.session.epoch != epoch or (turn.turn.session, turn.turn.epoch) != (session, epoch):
        return False
    if turn.ended_rev <= row.summary_rev:
        return False
    part.set_session(session, session=changed(row.session, summary=summary), summary_rev=turn.ended_rev)
    return True
