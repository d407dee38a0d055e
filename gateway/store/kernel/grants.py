"""Transitions of grants: given with a press or the first call of a scope, used at a start, revoked, expired."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from gateway.domain.grants import CallPlace, Grant, GrantKind, GrantOffer, GrantPlace, NewGrant
from gateway.domain.ids import GrantId, Principal, SessionId
from gateway.domain.sessions import Session
from gateway.domain.turns import Turn
from gateway.domain.waits import DECIDED_BY, ApprovalRequest, Wait
from gateway.policy.grants import holds, is_live
from gateway.store.codec import dump_json, storable
from gateway.store.constants import AT_ONCE
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import changed


def give(part: Part, wait: Wait, request: ApprovalRequest, offer: GrantOffer, new: NewGrant) -> None:
    """Store the grant of a decided approval. Given again for the same calls and place, it is renewed under its id."""
    if wait.decided_by is None:
        return
    turn, session = part.turns[wait.turn].turn, part.sessions[wait.session].session
    here = place_of(part, session, turn)
    quorum, by_another = wait.payload.get(DECIDED_BY, (1, False))
    grant = Grant(
        id=GrantId(""),
        tool=request.action.tool,
        kind=offer.kind,
        matches=offer.matches,
        risk=request.risk,
        place=new.place,
        session=session.id,
        epoch=turn.epoch,
        root_kind=here.root_kind,
        conversation=here.conversation,
        principal=here.principal,
        shown=offer.shown,
        wait=wait.id,
        granted_by=wait.decided_by,
        quorum=quorum,
        by_another=bool(by_another),
        granted_at=part.now,
        expires_at=part.now + new.lasts,
    )
    grant = changed(grant, id=_id_of(grant))
    part.grants.get(grant.id)  # a backend must know whether there is a row
    part.grants.put(grant.id, grant)


def give_scope(part: Part, wait: Wait, lasts: timedelta) -> None:
    """Store the grant that the approval of a scope becomes when its call starts: for the session, until it is reset."""
    request = wait.approval
    if request is not None and request.scope:
        shown = f"{request.action.tool} with {request.scope}"
        offer = GrantOffer(kind=GrantKind.SCOPE, matches=(request.scope,), shown=shown)
        give(part, wait, request, offer, NewGrant(place=GrantPlace.SESSION, lasts=lasts))


def _id_of(grant: Grant) -> GrantId:
    """Return the id of a grant, the same for the same calls and place: two rows would have to be revoked twice."""
    key: list[Any] = [grant.place, grant.held_by, grant.root_kind, grant.tool, grant.kind, sorted(grant.matches)]
    if grant.place is GrantPlace.SESSION:
        key.append(grant.epoch)
    if grant.kind is GrantKind.SUBJECTS:
        key.append(grant.risk)
    text = dump_json(key)
    return GrantId(f"g{hashlib.sha256(storable(text).encode()).hexdigest()[:16]}")


def place_of(part: Part, session: Session, turn: Turn) -> CallPlace:
    """Return the place of a turn's calls."""
    histories: list[tuple[SessionId, int]] = []
    above: SessionId | None = session.id
    while above is not None and (row := part.sessions.get(above)) is not None:
        histories.append((above, row.session.epoch))
        above = row.session.lineage.parent if row.session.lineage else None
    conversation = session.lineage.conversation if session.lineage else turn.conversation
    return CallPlace(
        histories=tuple(histories),
        root_kind=session.root_kind,
        conversation=conversation,
        principal=turn.principal,
    )


def use(part: Part, grant: GrantId, tool: str, turn: Turn) -> bool:
    """Count the start of a call that a grant allows. Return False when the grant does not hold for it now."""
    found = part.grants.get(grant)
    if found is None or found.tool != tool:
        return False
    if not holds(found, place_of(part, part.sessions[turn.session].session, turn), part.now):
        return False
    part.grants.put(grant, changed(found, used=found.used + 1, last_used_at=part.now))
    return True


def revoke(part: Part, grant: GrantId, by: Principal) -> Grant | None:
    """Take a live grant back. Return it, or None when there is no live one."""
    found = part.grants.get(grant)
    if found is None or not is_live(found, part.now):
        return None
    revoked = changed(found, revoked_at=part.now, revoked_by=by)
    part.grants.put(grant, revoked)
    return revoked


def expire(part: Part) -> int:
    """End grants past their time."""
    due = part.index.expired_grants(part.now, AT_ONCE)
    for grant in due:
        part.grants.put(grant, changed(part.grants[grant], expired=True))
    return len(due)
