"""Waits: rows that a parked turn waits on. An approval is the wait for a person's decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gateway.domain.ids import Principal, SessionId, TurnId, WaitId
from gateway.domain.steps import Usage
from gateway.domain.tools import Action, Risk
from gateway.domain.turns import ENDED, TurnState


class WaitKind(StrEnum):
    """What a turn can wait for."""

    APPROVAL = "approval"
    CHILD = "child"
    TIMER = "timer"


class WaitState(StrEnum):
    """Where a wait stands. Every move is one compare-and-set; nothing leaves a final state.

    `open → approved | denied | expired | cancelled | superseded`, `approved → consumed | expired | cancelled`;
    waits of other kinds: `open → answered | expired | cancelled`.
    """

    OPEN = "open"
    APPROVED = "approved"
    """Decided, and good for five minutes."""
    CONSUMED = "consumed"
    """Its one execution was started, in the same transition."""
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    """It expired while nobody could press it, and was asked anew."""
    ANSWERED = "answered"


class Verb(StrEnum):
    """What a button says."""

    ONCE = "once"
    DENY = "deny"
    DENY_REASON = "deny_reason"
    """Deny, say why, and withdraw the open siblings of the same answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What a decision is asked about: one exact action. `action_sha` binds it to this step and person."""

    action: Action
    risk: Risk
    action_key: str
    """SHA-256 hex of the canonical (tool, arguments, cwd, sandbox)."""
    action_sha: str
    """SHA-256 hex of action_key + session + turn + step + requester."""
    requester: Principal
    rendered: str
    """The whole action as it is shown, escaped; reversible."""
    escaped: bool
    """True when something in it was not plain printable ASCII."""
    note: str = ""
    """What a card must say besides: for instance that there is no sandbox."""
    scope: str = ""
    """What allowing it covers from then on in this session's history, such as a host; empty: this one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One wait, as stored."""

    id: WaitId
    kind: WaitKind
    session: SessionId
    turn: TurnId
    n: int
    """The step that waits."""
    state: WaitState
    approval: ApprovalRequest | None
    payload: Mapping[str, Any]
    """For the other kinds: what they need. For a child: `child`, its session; once it has ended, all of `ChildEnd`."""
    opened_at: datetime
    expires_at: datetime
    decided_by: Principal | None = None
    decided_at: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """How the task of a child ended, as the wait of its parent tells it."""

    child: SessionId
    state: TurnState
    """Of the turn that did the task: done, stopped or failed."""
    text: str
    """Its last words; of very many only the beginning."""
    active_ms: int
    usage: Usage
    """Of that turn and of the children that it waited for; what was cached is not told apart."""

    @staticmethod
    def of(wait: Wait) -> ChildEnd | None:
        """What a wait tells; None when it is not on a child, or on one that has not ended."""
        told = wait.payload
        if wait.kind is not WaitKind.CHILD or str(told.get("state")) not in ENDED:
            return None
        return ChildEnd(
            child=SessionId(str(told.get("child", ""))),
            state=TurnState(str(told["state"])),
            text=str(told.get("text", "")),
            active_ms=_figure(told, "active_ms"),
            usage=Usage(
                input_tokens=_figure(told, "input_tokens"),
                output_tokens=_figure(told, "output_tokens"),
                cost_micros=_figure(told, "cost_micros"),
            ),
        )

    def as_payload(self) -> dict[str, Any]:
        """What is stored, and what `of` reads."""
        return {
            "child": self.child,
            "state": self.state.value,
            "text": self.text,
            "active_ms": self.active_ms,
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
            "cost_micros": self.usage.cost_micros,
        }


def _figure(payload: Mapping[str, Any], name: str) -> int:
    value = payload.get(name)
    return value if isinstance(value, int) else 0


def used_by_children(waits: Iterable[Wait]) -> Usage:
    """What the children used that have ended, of those that these waits are on."""
    return sum((end.usage for end in map(ChildEnd.of, waits) if end is not None), Usage())


class PressResult(StrEnum):
    """What came of a press. Said to whoever pressed."""

    APPROVED = "approved"
    DENIED = "denied"
    DUPLICATE = "duplicate"
    """This very event was handled before."""
    ALREADY = "already"
    """Somebody decided before, or it was cancelled."""
    EXPIRED = "expired"
    ASK_REASON = "ask_reason"
    """Not decided yet: the person's next reply to the card is the reason, and denies it."""
    NOT_ALLOWED = "not_allowed"
    NOT_VALID = "not_valid"
    """Unknown, forged or from another place."""


TOO_LATE = frozenset({PressResult.ALREADY, PressResult.EXPIRED})
"""Results of who might have decided, but for the time: the card should have changed before."""

PRESSED_TEXT: Mapping[PressResult, str] = MappingProxyType(
    {
        PressResult.APPROVED: "Allowed.",
        PressResult.DENIED: "Denied; nothing was run.",
        PressResult.DUPLICATE: "This press was handled before.",
        PressResult.ALREADY: "Already decided.",
        PressResult.EXPIRED: "Expired; nothing was run.",
        PressResult.ASK_REASON: "Reply to this card with the reason.",
        PressResult.NOT_ALLOWED: "You may not decide this.",
        PressResult.NOT_VALID: "This button is not valid here.",
    }
)
"""What is said to whoever pressed, at most 200 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressed:
    """The outcome of a press, with the wait as it stands now (None when the handle is not valid)."""

    result: PressResult
    wait: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWait:
    """A wait to be opened. Its id is chosen by the caller, because handles and cards name it."""

    id: WaitId
    kind: WaitKind
    n: int
    """The step that will wait. For a timer: 0."""
    approval: ApprovalRequest | None
    payload: Mapping[str, Any]
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PressVerdict:
    """What the press would do, decided before the transition: a new state, or a refusal that is only recorded."""

    refusal: PressResult | None
    """`ASK_REASON`, `NOT_ALLOWED`, `NOT_VALID`, or None when the press may decide."""
    state: WaitState = WaitState.DENIED
    """`APPROVED` or `DENIED`, when it may."""
    withdraw_siblings: bool = False
    written: bool = False
    """The press is a message that gives a reason: one that comes `TOO_LATE` is not recorded, and stays a message."""


class StartOutcome(StrEnum):
    """Whether a step was started."""

    STARTED = "started"
    NOT_APPROVED = "not_approved"
    """Its approval is not (or no longer) approved, or binds another action."""
    TOO_OLD = "too_old"
    """The decision was made more than five minutes ago; the wait is expired now."""
    STOPPING = "stopping"
    """The turn was stopped; nothing may start."""


DECISION_GOOD_FOR_S = 300
"""Seconds within which an approved call must start."""
