"""Limits of open approvals for each person. Used by `toolcalls.scheduler` before it asks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.decisions import Deny, DenyReason
from gateway.domain.ids import Principal, SessionId
from gateway.domain.waits import Wait

EXAMINED = 10_000
"""Open approvals that are read before more are opened."""
SESSIONS_FULL = 2
"""Sessions in which one person may reach the limit of open approvals, or as many approvals in more sessions."""


def room_to_ask(waiting: Sequence[Wait], session: SessionId, requester: Principal, most: int) -> tuple[int, Deny]:
    """Return how many more approvals a person may open in a session, and the refusal of calls beyond.

    `waiting`: the first `EXAMINED` open approvals of all sessions. `most`: the limit in one session. As many
    approvals as are read at most leave no room, since those of the person may be among the others.
    """
    theirs = [wait for wait in waiting if wait.approval is not None and wait.approval.requester == requester]
    here = most - sum(wait.session == session for wait in theirs)
    anywhere = SESSIONS_FULL * most - len(theirs) if len(waiting) < EXAMINED else 0
    if anywhere < here:
        return max(0, anywhere), too_many_open(SESSIONS_FULL * most, "all sessions")
    return max(0, here), too_many_open(most, "this session")


def too_many_open(most: int, where: str) -> Deny:
    """Return the refusal of a call that would open more than `most` approvals of one person."""
    waiting = "One call of yours waits" if most == 1 else f"{most} calls of yours wait"
    hint = (
        f"Not asked, and nothing was run: {waiting} for a decision in {where}, and no more may. "
        "Ask again when one of them is decided, or withdraw them with /stop."
    )
    return Deny(reason=DenyReason.TOO_MANY_OPEN, hint=hint)
