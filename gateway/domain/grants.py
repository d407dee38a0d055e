"""Grant types: a stored "always" of an approver. Offered on a card, made by a press, read before a call is asked about.

A grant lifts an `Ask` and nothing else. `gateway.policy.grants` holds its rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.approvers import ApproverRules
from gateway.domain.ids import GrantId, Principal, SessionId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import Risk

GRANT_LASTS = timedelta(days=30)
"""Default lifetime of a grant."""


class GrantKind(StrEnum):
    """Part of a call that a grant is compared with. It is always equality, never a pattern with wildcards."""

    ACTION = "action"
    """The action key: tool, every argument, folder and sandbox."""
    SUBJECTS = "subjects"
    """Every subject of the call is among those of the grant, and its risk is the same."""
    SCOPE = "scope"
    """The scope of the call, such as a host."""


class GrantPlace(StrEnum):
    """Place of a grant: the calls for which it holds. Sub-sessions are included."""

    SESSION = "session"
    """The session in which it was given, until its history is reset."""
    CHAT = "chat"
    """The conversation in which the call was asked for."""
    PERSON = "person"
    """The person who asked for the call, in sessions of the same kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantOffer:
    """Offer of an "Always" on an approval: the calls that a grant would match. Fixed when it is asked."""

    kind: GrantKind
    matches: tuple[str, ...]
    """The action key; the subjects; or the scope."""
    shown: str
    """The whole of what it would match, for people."""
    places: tuple[GrantPlace, ...] = ()
    """Places that may be chosen, in the order of their buttons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGrant:
    """Grant to be stored with the press that confirms it."""

    place: GrantPlace
    lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Grant as stored. The first four fields say what it matches, the next five where it holds."""

    id: GrantId
    tool: str
    kind: GrantKind
    matches: tuple[str, ...]
    """As in `GrantOffer`."""
    risk: Risk
    place: GrantPlace
    session: SessionId
    """Session of the approval that it came from."""
    epoch: int
    """History of that session; a grant for the session ends with it."""
    root_kind: SessionKind
    conversation: Conversation
    """Conversation of the call; for a sub-session, the one that began its root's turn."""
    principal: Principal
    """Person who asked for the call."""
    shown: str
    """The whole of what it matches, for people."""
    wait: WaitId
    """Approval that it came from."""
    granted_by: Principal
    """Person who allowed it last."""
    quorum: int = 1
    """Number of persons who had to allow it."""
    by_another: bool = False
    """True when the requester could not allow it."""
    granted_at: datetime
    expires_at: datetime
    used: int = 0
    """Calls that it allowed to start, besides the one of the approval."""
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: Principal | None = None
    expired: bool = False
    """True once the sweep ended it; a clock that goes back does not revive it."""

    @property
    def ended(self) -> bool:
        """True when it was revoked or swept: it never allows anything again."""
        return self.expired or self.revoked_at is not None

    def satisfies(self, rules: ApproverRules) -> bool:
        """Return whether it stands for all who must allow a call by now: then only what the approval of a scope became.

        The rules may be stricter than those by which it was given.
        """
        if rules.one_decides:
            return True
        is_of_an_approval = (self.kind, self.place) == (GrantKind.SCOPE, GrantPlace.SESSION)
        by_another = self.by_another or rules.requester_may_approve
        return is_of_an_approval and by_another and self.quorum >= rules.quorum

    @property
    def held_by(self) -> str:
        """Key of its place: the session, the conversation or the person. Equal keys need not mean that it holds."""
        match self.place:
            case GrantPlace.SESSION:
                return self.session
            case GrantPlace.CHAT:
                return self.conversation.key
            case GrantPlace.PERSON:
                return self.principal


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    """Place of a call, as grants see it."""

    histories: tuple[tuple[SessionId, int], ...]
    """The session and those above it, each with its present epoch."""
    root_kind: SessionKind
    conversation: Conversation
    """As in `Grant.conversation`."""
    principal: Principal

    @property
    def keys(self) -> list[str]:
        """Values of `Grant.held_by` that grants for this place may have."""
        return [*(session for session, _ in self.histories), self.conversation.key, self.principal]
