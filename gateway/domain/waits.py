"""Wait types: rows that a parked turn waits for. An approval is the wait for a person's decision.

It has the default times until an approval expires and is shown to more people, and how long a decision is good for.
`PRESSED_TEXT` has the replies to presses of buttons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast

from gateway.domain.grants import GrantOffer, GrantPlace, NewGrant
from gateway.domain.ids import Person, Principal, SessionId, TurnId, WaitId, child_session, mint
from gateway.domain.questions import Inquiry, Pick
from gateway.domain.steps import Usage
from gateway.domain.tools import Action, Risk
from gateway.domain.turns import ENDED, TurnState


class WaitKind(StrEnum):
    """Event that a wait is for."""

    APPROVAL = "approval"
    CHILD = "child"
    QUESTION = "question"
    """Questions of a call to a person (`gateway.domain.questions`)."""
    TIMER = "timer"


class WaitState(StrEnum):
    """State of a wait. Every transition is one compare-and-set; final states are never left.

    `open → approved | denied | expired | cancelled | superseded`, `approved → consumed | expired | cancelled`; waits of
    other kinds: `open → answered | expired | cancelled`.
    """

    OPEN = "open"
    APPROVED = "approved"
    """Approved, and valid for `DECISION_GOOD_FOR_S`."""
    CONSUMED = "consumed"
    """The one execution was started, in the same transition."""
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    """Expired while nobody could press it, and asked again."""
    ANSWERED = "answered"


class Verb(StrEnum):
    """Action of a button."""

    ONCE = "once"
    ALWAYS = "always"
    """Ask the second question: what a grant would match, and where it would hold. Grants nothing."""
    BACK = "back"
    """Withdraw the second question."""
    GRANT_CHAT = "grant_chat"
    """Confirm the second question: grant for the chat."""
    GRANT_SESSION = "grant_session"
    GRANT_PERSON = "grant_person"
    DENY = "deny"
    DENY_REASON = "deny_reason"
    """Deny, say why, and withdraw the open siblings of the same answer."""


GRANTS: Mapping[Verb, GrantPlace] = MappingProxyType(
    {
        Verb.GRANT_CHAT: GrantPlace.CHAT,
        Verb.GRANT_SESSION: GrantPlace.SESSION,
        Verb.GRANT_PERSON: GrantPlace.PERSON,
    }
)
"""Place of the grant that a verb confirms."""
ALLOWING = frozenset({Verb.ONCE, Verb.ALWAYS, Verb.BACK, *GRANTS})
"""Verbs for approvers alone: everything but the denials."""
ALWAYS_ASKED = "always"
"""Key in the payload of an open approval: True while its card asks the second question."""
GRANTED = "grant"
"""Key in the payload of a decided approval: the place of the grant that was given with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One exact action to be decided. `action_sha` binds it to this step and person."""

    action: Action
    risk: Risk
    action_key: str
    """SHA-256 hex of the canonical action, with its home."""
    action_sha: str
    """SHA-256 hex of action_key + session + turn + step + requester."""
    requester: Principal
    rendered: str
    """The whole action as shown, escaped; reversible."""
    escaped: bool
    """True when something in it was not plain printable ASCII."""
    note: str = ""
    """Additional line for the card, for instance that there is no sandbox."""
    scope: str = ""
    """Scope that the approval allows for the rest of this session's history, such as a host; empty: this one call."""
    summary: str = ""
    """One-line summary of the call; empty: the text of the risk is used."""
    parts: tuple[str, ...] = ()
    """A line for each part of a shell command, escaped: `git status · reads only`. At most eight."""
    prepared: Mapping[str, Any] | None = None
    """`Preview.state` of a call that read the workspace before it was asked about; `action_sha` binds it."""
    always: GrantOffer | None = None
    """Grant that may be given instead of allowing it once; None: none is offered."""
    node: str = ""
    """Name of the node that has the files of the action; empty while there is no other node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait as stored."""

    id: WaitId
    kind: WaitKind
    session: SessionId
    turn: TurnId
    n: int
    """Number of the waiting step."""
    state: WaitState
    approval: ApprovalRequest | None
    payload: Mapping[str, Any]
    """Data of the other kinds. For a child: `child`, its session; after its end, all of `ChildEnd`. For a workflow
    also `workflow`: its steps, with the child, state and result of each. For a question: its `Inquiry`."""
    opened_at: datetime
    expires_at: datetime
    decided_by: Principal | None = None
    decided_at: datetime | None = None
    reason: str = ""

    @property
    def decided_after(self) -> timedelta:
        """Time from the question to its decision; zero while there is none. No part of a call's `duration_ms`."""
        return timedelta() if self.decided_at is None else max(timedelta(), self.decided_at - self.opened_at)

    @property
    def asks_always(self) -> bool:
        """True while its card asks the second question."""
        return self.state is WaitState.OPEN and self.payload.get(ALWAYS_ASKED) is True


VOTES = "votes"
"""Key in the payload of an approval that several persons must allow: who allowed it so far."""
DECIDED_BY = "decided_by"
"""Key in the payload of an allowed approval: how many persons had to allow it, and whether the requester could not."""
ESCALATED = "escalated"
"""Key in the payload of an approval that was shown to the second list of approvers too."""
ESCALATES = "escalates"
"""Key in the payload of the timer that shows approvals to further approvers: the ids of these approvals."""
ESCALATES_TO = "to"
"""Key beside it: for each further approver the principals, by which their last direct conversation is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One person's "once" for an approval that needs several."""

    person: Person
    principal: Principal
    at: datetime

    @staticmethod
    def of(wait: Wait) -> tuple[Vote, ...]:
        """Return the votes of an approval, oldest first."""
        stored = wait.payload.get(VOTES)
        rows = cast("list[object]", stored) if isinstance(stored, list) else []
        return tuple(vote for vote in map(_vote, rows) if vote is not None)

    def as_payload(self) -> list[str]:
        """Return the stored form, which `of` reads."""
        return [self.person, self.principal, self.at.isoformat()]


def _vote(row: object) -> Vote | None:
    fields = cast("list[object]", row) if isinstance(row, list) else []
    match fields:
        case [str(person), str(principal), str(at)]:
            return Vote(person=Person(person), principal=Principal(principal), at=datetime.fromisoformat(at))
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """End of a child's task, as the parent's wait stores it."""

    child: SessionId
    state: TurnState
    """Final state of the task's turn: done, stopped or failed."""
    text: str
    """Last text of the child; only the beginning of a very long one."""
    active_ms: int
    usage: Usage
    """Usage of that turn and of the children it waited for; cached tokens are not counted separately."""

    @staticmethod
    def of(wait: Wait) -> ChildEnd | None:
        """Return the end stored in a wait; None for any other wait, and for a child that has not ended."""
        payload = wait.payload
        if wait.kind is not WaitKind.CHILD or str(payload.get("state")) not in ENDED:
            return None
        return ChildEnd(
            child=SessionId(str(payload.get("child", ""))),
            state=TurnState(str(payload["state"])),
            text=str(payload.get("text", "")),
            active_ms=_figure(payload, "active_ms"),
            usage=Usage(
                input_tokens=_figure(payload, "input_tokens"),
                output_tokens=_figure(payload, "output_tokens"),
                cost_micros=_figure(payload, "cost_micros"),
            ),
        )

    def as_payload(self) -> dict[str, Any]:
        """Return the stored form, which `of` reads."""
        return {
            "child": self.child,
            "state": self.state.value,
            "text": self.text,
            "active_ms": self.active_ms,
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
            "cost_micros": self.usage.cost_micros,
        }


GOES_ON = "goes_on"
"""Key in the payload of a wait on a child: true when the child goes on after the wait has expired."""


def child_of(wait: Wait) -> SessionId:
    """Return the child that a wait is for; of a workflow, that of the first step."""
    child = wait.payload.get("child")
    return SessionId(child) if isinstance(child, str) else child_session(wait.turn, wait.n)


def _figure(payload: Mapping[str, Any], name: str) -> int:
    value = payload.get(name)
    return value if isinstance(value, int) else 0


def used_by_children(waits: Iterable[Wait]) -> Usage:
    """Return the summed usage of the ended children of these waits."""
    return sum((end.usage for end in map(ChildEnd.of, waits) if end is not None), Usage())


def inquiry_of(wait: Wait | NewWait) -> Inquiry | None:
    """Return the questions stored in a wait; None for a wait of another kind, and for a damaged one."""
    return Inquiry.parse(wait.payload) if wait.kind is WaitKind.QUESTION else None


class PressResult(StrEnum):
    """Result of a press. The person who pressed sees it."""

    APPROVED = "approved"
    DENIED = "denied"
    DUPLICATE = "duplicate"
    """This very event was handled before."""
    ALREADY = "already"
    """The wait was decided or cancelled before."""
    EXPIRED = "expired"
    COUNTED = "counted"
    """One of several persons allowed it; others must press too."""
    ASK_REASON = "ask_reason"
    """Not decided yet: the person's next reply to the card is the reason, and denies it."""
    ASK_ALWAYS = "ask_always"
    """Not decided: the card asks the second question now."""
    BACK = "back"
    """Not decided: the card asks the first question again."""
    CHOSEN = "chosen"
    """An option of a question was ticked or unticked, or one of several questions was answered."""
    ANSWERED = "answered"
    """The last question of its call was answered."""
    LATE = "late"
    """The question is over. The answer is passed on as a message that quotes it."""
    NOT_ALLOWED = "not_allowed"
    NOT_VALID = "not_valid"
    """The handle is unknown, forged or from another conversation."""


TOO_LATE = frozenset({PressResult.ALREADY, PressResult.EXPIRED})
"""Results of an authorised press that came after the wait was closed. The card should have been updated before."""

EXPIRED_TEXT = "Expired; nothing was run"
"""Outcome of an expired approval: on its card, and in the reply to a press."""
PRESSED_TEXT: Mapping[PressResult, str] = MappingProxyType(
    {
        PressResult.APPROVED: "Allowed.",
        PressResult.DENIED: "Denied; nothing was run.",
        PressResult.DUPLICATE: "This press was handled before.",
        PressResult.ALREADY: "Already decided.",
        PressResult.EXPIRED: f"{EXPIRED_TEXT}.",
        PressResult.COUNTED: "Noted. Another approver must allow this too.",
        PressResult.ASK_REASON: "Reply to this card with the reason.",
        PressResult.ASK_ALWAYS: "Nothing is granted yet. Read the question on the card and choose.",
        PressResult.BACK: "Nothing was granted.",
        PressResult.CHOSEN: "Noted.",
        PressResult.ANSWERED: "Noted. The agent has your answer.",
        PressResult.LATE: "Nobody waits for this answer any longer; the agent gets it as a message.",
        PressResult.NOT_ALLOWED: "You may not decide this.",
        PressResult.NOT_VALID: "This button is not valid here.",
    }
)
"""Replies to the person who pressed, at most 200 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressed:
    """Result of a press, with the current wait (None when the handle is not valid)."""

    result: PressResult
    wait: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWait:
    """Wait to be opened. The caller chooses its id, because handles and cards contain it."""

    id: WaitId
    kind: WaitKind
    n: int
    """Number of the step that will wait. For a timer: 0."""
    approval: ApprovalRequest | None
    payload: Mapping[str, Any]
    expires_in: timedelta
    """Time from its opening in the store to its expiry."""


def escalates(wait: Wait | NewWait) -> bool:
    """Return whether this is the timer that shows approvals to further approvers: no turn waits for it."""
    return wait.kind is WaitKind.TIMER and ESCALATES in wait.payload


def escalation(waits: Iterable[WaitId], to: Iterable[Iterable[Principal]], after: timedelta) -> NewWait:
    """Return the timer that shows these approvals to further approvers. Each is given by their principals."""
    payload = {ESCALATES: list(waits), ESCALATES_TO: [list(person) for person in to]}
    return NewWait(id=WaitId(mint("w")), kind=WaitKind.TIMER, n=0, approval=None, payload=payload, expires_in=after)


@dataclass(frozen=True, slots=True, kw_only=True)
class PressVerdict:
    """Verdict on a press before the transition: a new state, or a refusal that is only recorded."""

    refusal: PressResult | None
    """`ASK_REASON`, `NOT_ALLOWED`, `NOT_VALID`, or None when the press may decide."""
    state: WaitState = WaitState.DENIED
    """`APPROVED` or `DENIED`, when it may."""
    withdraw_siblings: bool = False
    question: bool | None = None
    """True to open the second question, False to withdraw it: then nothing is decided."""
    grant: NewGrant | None = None
    """Grant to be stored with an approval, if the second question is open."""
    written: bool = False
    """True when the press is a message that gives a reason. When it comes `TOO_LATE`, it is treated as a message."""
    quorum: int = 1
    """Number of different persons who must allow it, when it may approve."""
    person: Person | None = None
    """The presser with all accounts; needed for a quorum."""
    by_another: bool = False
    """True when the requester may not allow it."""
    among: frozenset[Person] = frozenset()
    """Persons whose votes count now. A vote of somebody who may no longer decide does not."""
    pick: Pick | None = None
    """Answer to a question, for a QUESTION wait only."""


class StartOutcome(StrEnum):
    """Result of starting a step."""

    STARTED = "started"
    NOT_APPROVED = "not_approved"
    """The approval is not (or no longer) approved, or binds another action."""
    TOO_OLD = "too_old"
    """The decision is older than `DECISION_GOOD_FOR_S`; the wait is expired now."""
    NOT_GRANTED = "not_granted"
    """The grant was revoked, has expired or does not hold here. Decide the call again."""
    STOPPING = "stopping"
    """The turn was stopped; nothing may start."""


APPROVAL_EXPIRY_MAIN = timedelta(hours=1)
"""Time in which an approval can be decided in an owner's own session, when no setting says otherwise."""
APPROVAL_EXPIRY_OTHER = timedelta(minutes=15)
"""Expiry of approvals in every other session."""
ESCALATE_AFTER = 0.5
"""Part of that time after which open approvals are shown to further approvers, when no setting says otherwise."""
DECISION_GOOD_FOR_S = 300
"""Seconds after its decision within which an approved call must start."""
