"""Authorization of presses: the approvers of a session and the verdict on a press. Used by `Approvals`. Pure."""

from __future__ import annotations

from datetime import datetime

from gateway.domain.ids import OwnerName, Principal
from gateway.domain.messages import Press
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.waits import PressResult, PressVerdict, Verb, Wait, WaitState
from gateway.policy.routing import AllowedPeople


def approving_owners(session: Session, people: AllowedPeople) -> tuple[OwnerName, ...]:
    """Return who decides now, not when it was asked: under a main session its owner, elsewhere every owner."""
    if session.root_kind is SessionKind.MAIN:
        return tuple(name for name in people.owners if name == session.owner)
    return tuple(people.owners)


def approvers(session: Session, people: AllowedPeople) -> frozenset[Principal]:
    """Return every principal of the approving owners."""
    return frozenset(who for name in approving_owners(session, people) for who in people.owners[name])


def may_resolve(verb: Verb, who: Principal, requester: Principal, allowed: frozenset[Principal]) -> PressVerdict:
    """Return what a press may do: approvers decide, the requester may deny."""
    if who in allowed:
        state = WaitState.APPROVED if verb is Verb.ONCE else WaitState.DENIED
        return PressVerdict(refusal=None, state=state, withdraw_siblings=verb is Verb.DENY_REASON)
    if verb is not Verb.ONCE and who == requester:
        return PressVerdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=verb is Verb.DENY_REASON)
    return PressVerdict(refusal=PressResult.NOT_ALLOWED)


def asks_reason(verdict: PressVerdict, press: Press, wait: Wait, now: datetime) -> bool:
    """Return whether to ask for the reason of a denial: the platform's buttons carry no text, and the wait is open.

    Only the verdict of "Deny with reason" withdraws the siblings.
    """
    without = press.can_ask_reason and not press.reason.strip()
    undecided = wait.state is WaitState.OPEN and wait.expires_at > now
    return verdict.refusal is None and verdict.withdraw_siblings and without and undecided
