"""Protocol of the store for ingress, with the types that only its calls carry. Called by `gateway.inbound`.

The rules of `gateway.ports.store` hold here too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.domain.ids import GrantId, Principal, WaitId
from gateway.domain.messages import Inbound, Press, Refused
from gateway.domain.routes import Accepted, Drop, Route, WhileRunning
from gateway.domain.turns import TurnKind
from gateway.domain.waits import Pressed, PressVerdict, WaitKind


class ControlEffect(StrEnum):
    """Effect of a control command on its session."""

    NONE = "none"
    STOP = "stop"
    """Stop the session's active turns; queued messages stay."""
    RESET = "reset"
    """STOP, then a new history; queued messages move into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """Change of a session's limits by a control command."""

    preset: str | None = None
    """Name of its new preset; None: as before."""
    tools_off: frozenset[str] = frozenset()
    """Tools to switch off."""
    tools_on: frozenset[str] = frozenset()
    """Tools to switch on again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Effect of a control command, with the reply that is stored with it."""

    effect: ControlEffect
    only: Principal | None
    """Stop only turns of this person; None: all turns of the session."""
    reply: str
    """Reply when something was stopped, or when nothing had to be."""
    idle: str
    """Reply when there was nothing to stop."""
    stopped_text: str
    """Last text of a stopped turn in its own conversation, when the reply stands in another one."""
    change: SessionChange | None = None
    """Change of the session's limits; None: they stay."""
    revoke: GrantId | None = None
    """Grant to take back, in the name of the message's principal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Replies to a message that arrives while the session's model turn is parked. An empty text sends no reply."""

    decision: str
    """Reply while it waits for a decision."""
    children: str
    """Reply while it waits only for sub-sessions."""
    answer: str = ""
    """Reply while it waits for an answer to a question and no decision."""

    def text(self, open_waits: Collection[WaitKind]) -> str:
        """Return the reply for these open waits. A decision takes precedence over an answer, and both over children."""
        if WaitKind.QUESTION in open_waits and WaitKind.APPROVAL not in open_waits:
            return self.answer
        only_children = bool(open_waits) and all(kind is WaitKind.CHILD for kind in open_waits)
        return self.children if only_children else self.decision


class Intake(Protocol):
    """Writes of ingress. Called by `gateway.inbound` only.

    An event is (channel, account, event_key). A known event writes nothing and is reported as `duplicate`, so every
    method is safe to repeat.
    """

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, running: WhileRunning, say_if_waiting: Waiting | None
    ) -> Accepted:
        """Store the message and its turn; create the session when absent.

        With `message.cut`, the turn cannot be claimed for 1.5 s. The next message of the same principal in the same
        conversation ends that delay. It joins the turn (`Received.continues`) when it is a MODEL message with nothing
        but text. With `follows`, it must also follow the last part directly. If it is cut too, the turn is delayed
        again: for at most 8 parts, and 6 s from the arrival of the first.

        With `message.album`, the turn is delayed likewise, by 1 s and for at most 10 messages. A MODEL message of an
        album joins the album's turn while that was never started. It steers that turn while it is active, regardless of
        `running`. Both need the same session, principal and conversation. Otherwise it starts a turn of its own and
        takes the album's context messages along (`drop`). A command never joins.

        With STEER, a MODEL message joins the session's active model turn, when principal and conversation are the same.
        A turn is active when it was started, has not ended and is not STOPPING. With INTERRUPT that turn is stopped as
        by `control`, says "Interrupted.", and a new turn is queued. In every other case a new turn is queued.

        A MODEL message of text that may steer a turn with an open question answers that question, or the oldest of the
        turn's sub-sessions (`Accepted.answers`). A reply to the card answers a sub-session's after that turn too. The
        message is stored without a turn: the call's result has its text. A reply to another message than the card
        answers nothing, unless it quotes the question.

        A direct message becomes its principal's last direct conversation. When the session's model turn is parked, also
        store a REPLY slot with the text of `say_if_waiting` for its open waits, unless that is empty or None. Only a
        MODEL message gets this reply or reports `waiting`. The duplicate of a dropped event or of a press has empty
        ids.
        """
        ...

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Store the event with its reason. Return False for a duplicate.

        With `drop.told`, store a REFUSAL slot, once in 24 h per principal. For `UNREADABLE` store a REPLY slot each
        time, for `TOO_FAST` one a minute per principal. `CONTEXT` (with its route) is stored for the session's next
        model turn. `accept` gives that turn the last 50 context messages that no turn was given, as `Received.context`.
        With `message.album` it joins that album's turn as in `accept`, if there is one.
        """
        ...

    async def amend(self, message: Inbound) -> bool:
        """Store an edit, the new text of the message `edits`. Return False when it is too late; the event is then
        stored as `EDITED_LATE`.

        The message must be of the same principal and conversation, of a MODEL turn or context, and unread by any model.
        A message is unread while it is not given and its turn is QUEUED or PARKED, or RUNNING with an open call. No
        model is asked before that. It is unread too when it came after the claim and the last result: the request under
        way does not contain it. Context is unread while it has no turn, or a QUEUED one without an answer. The
        duplicate of an edit returns True.
        """
        ...

    async def refuse(self, refused: Refused) -> bool:
        """Store an event that is not a message, with its reason and, for `POISON`, its raw text. Return False for a
        duplicate.
        """
        ...

    async def control(self, route: Route, message: Inbound, control: Control) -> int | None:
        """Store the command, its effect and the reply slot. Return how many turns were stopped; None for a duplicate.

        STOP and RESET also reach every live child below the session. A RUNNING turn becomes STOPPING: its holder is
        woken and may only write results. A PARKED turn ends STOPPED at once, as does a QUEUED one that was started
        before. A QUEUED turn that was never started stays, except a child's.

        In every stopped turn, open and approved waits become CANCELLED and calls not started get a CANCELLED result.
        Turns that ended get an ANSWER slot with `stopped_text`, except a turn of the session in the reply's
        conversation. RESET also raises the epoch. `change` holds at once, for the live children below the session too.
        """
        ...

    async def press(self, press: Press, wait: WaitId | None, verdict: PressVerdict) -> Pressed:
        """Store the press and, when the verdict allows, decide the approval by compare-and-set.

        Only an OPEN wait with `expires_at` in the future is decided; a lost race is `ALREADY` or `EXPIRED`. A question
        takes `verdict.pick`: CHOSEN while a question is left, ANSWERED with the last one, LATE once it is over; an
        earlier question is `ALREADY`. Waits of other kinds are `NOT_VALID`. A decided wait queues a PARKED turn, wakes
        any other one, and raises the version of the card slots that show it.
        `withdraw_siblings` cancels the other open waits of the same model answer.

        With `verdict.question` nothing is decided: the card asks the second question, or asks the first one again. With
        `verdict.grant` the same transition stores the grant of `ApprovalRequest.always`, if that question is open and
        offers the place; else the press is `NOT_VALID`.

        A repeated LATE press is LATE again, so that its caller can pass the answer on; any other is `DUPLICATE`.

        After `ALREADY` and `EXPIRED`, card slots whose update was given up are tried once more. A `written` press is
        not stored in these two cases: its event is still to be accepted as a message.
        """
        ...
