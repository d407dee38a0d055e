"""Escalation of approvals: a timer shows those still open to further approvers. Used by the sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gateway.domain.ids import Principal, WaitId
from gateway.domain.messages import Conversation, latest_chat
from gateway.domain.sessions import Session
from gateway.domain.slots import ROWS_A_CARD, NewSlot, SlotKind
from gateway.domain.waits import ESCALATED, ESCALATES, ESCALATES_TO, Wait, WaitState
from gateway.ports import ApproversOf
from gateway.store.kernel import turns
from gateway.store.kernel.facts import person_of
from gateway.store.kernel.messages import PEOPLE
from gateway.store.kernel.part import Part
from gateway.store.kernel.slots import add_slot


def escalate(part: Part, timer: Wait, approvers: ApproversOf) -> bool:
    """Show the timer's approvals that are still open to further approvers. Return False when none is open.

    Skip people who may no longer decide, and conversations that show a card of the approval already.
    """
    session = part.sessions[timer.session].session
    rows = [part.waits.get(wait) for wait in _ids(timer)]
    waits = [row.wait for row in rows if row is not None and _is_open(part, row.wait)]
    for wait in waits:
        turns.set_wait(part, wait.id, payload={**wait.payload, ESCALATED: True})
    for place, shown in _shown_at(part, timer, session, waits, approvers).items():
        for i in range(0, len(shown), ROWS_A_CARD):
            card = NewSlot(conversation=place, kind=SlotKind.CARD, waits=tuple(shown[i : i + ROWS_A_CARD]))
            add_slot(part, card, timer.session, timer.turn)
    return bool(waits)


def _is_open(part: Part, wait: Wait) -> bool:
    return wait.state is WaitState.OPEN and wait.expires_at > part.now


def _shown_at(
    part: Part, timer: Wait, session: Session, waits: Sequence[Wait], approvers: ApproversOf
) -> dict[Conversation, list[WaitId]]:
    """Return the approvals to show in the last direct conversation of each further approver."""
    found: dict[Conversation, list[WaitId]] = {}
    for wait in waits:
        may = approvers(wait, session)
        cards = {part.slots[slot].slot.conversation for slot in part.cards.get(wait.id) or ()}
        for person in _persons(timer):
            place = _last_chat(part, [who for who in person if who in may])
            if place is not None and place not in cards:
                found.setdefault(place, []).append(wait.id)
                cards.add(place)
    return found


def _last_chat(part: Part, principals: Sequence[Principal]) -> Conversation | None:
    facts = [part.facts.get((PEOPLE, who)) for who in principals]
    return latest_chat(person_of(fact) for fact in facts if fact is not None)


def _ids(timer: Wait) -> list[WaitId]:
    return [WaitId(str(one)) for one in _listed(timer.payload.get(ESCALATES))]


def _persons(timer: Wait) -> list[list[Principal]]:
    return [[Principal(str(one)) for one in _listed(who)] for who in _listed(timer.payload.get(ESCALATES_TO))]


def _listed(stored: object) -> list[object]:
    """Return a stored list; an empty one in place of anything else, which would stop every sweep."""
    return cast("list[object]", stored) if isinstance(stored, list) else []
