"""The store, as those use it who run turns: the right to run one, its steps, its children and what all of it cost.

The rules of `gateway.ports.store` hold here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Protocol

from gateway.domain.audit import StartRecord
from gateway.domain.children import NewChild, SpawnRefusal
from gateway.domain.ids import InboundId, NodeId, Principal, SessionId, TurnId, WaitId
from gateway.domain.messages import FetchedFile
from gateway.domain.slots import NewSlot
from gateway.domain.steps import Answer
from gateway.domain.tools import ToolResult
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import ChildLine, Claimed, Spent, TurnView
from gateway.domain.waits import NewWait, StartOutcome


class TurnQueue(Protocol):
    """Who runs which turn. A lease lasts 15 s and is renewed every 5 s; one that ran out holds until it is taken away.

    Called by `sessions` and `turn`.
    """

    async def claim(self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0) -> Sequence[Claimed]:
        """Hand out turns that may run now, who waits longest first. Fewer than `limit`: no other one may run now.

        When there is none, wait so many seconds for one, or until anybody publishes to `TURNS`. Who waits may be handed
        a turn in the very commit that makes it claimable, which is then announced to nobody else. What becomes
        claimable by time alone is found a second late by those who wait, and who wait again.
        `history`: so many ended turns come with each MODEL turn, as `Queries.history` gives them at that moment; or
        None, where much of it would have to be read first.

        A MODEL turn may run when it is the oldest model turn of its session that has not ended. A COMMAND turn may
        run when fewer than four command turns of its session are RUNNING or STOPPING.
        """
        ...

    async def renew(self, lease: Lease) -> TurnState:
        """Extend the lease by 15 s from now. Return RUNNING, or STOPPING when the turn was stopped.

        The time between the end of a lease that ran out and its renewal is not counted as work: whoever held it slept.
        """
        ...

    async def park(self, lease: Lease) -> bool:
        """Give up the lease until a wait is decided.

        Return False, and change nothing, when no wait of the turn is open, or one was approved and not consumed, or a
        step whose wait was decided otherwise has no result yet, or a step is PLANNED or STARTED, or the turn is
        STOPPING. Messages that wait to be given do not matter: they are given after the results.
        """
        ...

    async def finish_turn(
        self,
        lease: Lease,
        state: TurnState,
        *,
        answer: Answer | None,
        given: Sequence[InboundId],
        slots: Sequence[NewSlot],
        timers: Sequence[NewWait],
    ) -> bool:
        """End the turn: the last answer as a model step, its slots, its timers, in one transition.

        Calls without a result get a CANCELLED one (a STARTED call UNKNOWN), open and approved waits become CANCELLED;
        `timers` outlive the turn. Return False, and change
        nothing, when DONE was asked for and a message not in `given` waits to be given, or the turn is STOPPING:
        the caller goes on. STOPPED and FAILED always end it; messages not given count as given then.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give the turn back to the queue (at shutdown); a STOPPING one ends STOPPED. Safe on a lost lease."""
        ...


class Children(Protocol):
    """Sub-sessions: one task each, whose end reaches the parent once.

    Called by tools, through `execution`, and by `intake` for people.

    When the turn of a child's task ends (however), the same transition tells the parent. RUN: the CHILD wait of step
    `n` becomes ANSWERED with what `Wait.payload` says, and the parent's turn is woken. SESSION: a message is stored in
    the parent's session, where the spawning turn began, from the principal `system:child`, its task and last words as
    `quoted`; not when the child was STOPPED, and not when the parent was reset meanwhile. It joins a queued turn that
    holds only such messages, or the parent's own task turn when that is a child; else it is a new MODEL turn.

    A CHILD wait that is cancelled (its turn was stopped, or ended) or expired stops the child, and all below it, in the
    same transition; so does the end of a child's task to what is live below it.
    """

    async def spawn(self, lease: Lease, n: int, child: NewChild) -> WaitId | SpawnRefusal | None:
        """Store the child, its first message and its queued MODEL turn; idempotent by `child.session`.

        The turn's place is `child_place`, its principal the spawning turn's. RUN: open a CHILD wait on the STARTED step
        `n`, which becomes ASKED, and return it. SESSION: return None; the step is finished by its caller as usual.
        A refusal wrote nothing.
        """
        ...

    async def stop_child(self, parent: SessionId, child: SessionId, text: str, only: Principal | None = None) -> int:
        """Stop a child below `parent`, and all below it; each says `text`. Return how many turns were stopped.

        Raises `NotFound` when there is no such child below `parent`, and `Forbidden`, when `only` is given, for one
        whose task is another principal's; both changed nothing. Twice is safe.
        """
        ...

    async def family(self, session: SessionId, limit: int = 50) -> Sequence[ChildLine]:
        """The children below a session, live ones first, then those that ended last; each parent before its own."""
        ...

    async def children_of(self, turn: TurnId) -> Sequence[ChildLine]:
        """The children that a turn spawned itself, in the order of its steps; however many its session has had."""
        ...


class UsageStore(Protocol):
    """What is kept in short: the beginning of long histories, and what was spent."""

    async def compact(self, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
        """Store what stands for the history up to and with this ended turn, and what making it cost.

        From then on `Queries.history` begins after it, and `Session.summary` is this. Returns False, and stores the
        cost alone, when the epoch is over or a summary already reaches as far.
        """
        ...

    async def spent(self, since: date) -> Sequence[Spent]:
        """What was spent since a day, the newest first. Answers are counted when they are stored as a model step, for
        the principal of their turn; one without figures is not.
        """
        ...


class TurnJournal(Protocol):
    """The journal of a turn: stored before acting. Called by `turn` and `toolcalls` under a lease."""

    async def plan(
        self, lease: Lease, answer: Answer, *, given: Sequence[InboundId], slots: Sequence[NewSlot]
    ) -> TurnView:
        """Store an answer with calls: a FINISHED model step, then a PLANNED tool step for each call, numbered on.

        `given` messages count as given before the model step. Refused with `LeaseLost` when the turn is STOPPING.
        Return the turn as it stands then.
        """
        ...

    async def open_waits(
        self, lease: Lease, waits: Sequence[NewWait], slots: Sequence[NewSlot], *, most: int | None = None
    ) -> int | None:
        """Open waits on PLANNED steps (they become ASKED) and store their card and note slots.

        `most`: how many approvals of the turn's principal may be OPEN in the session. Only the first waits that fit
        are opened, and cards show only those. Return how many were opened; with 0 nothing is stored.
        Return None, and change nothing, when the turn is STOPPING or a step is not PLANNED.
        """
        ...

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Store that the step's effect may begin, with a row of the audit. With `wait`: consume that approval too.

        The wait must be APPROVED, of this step, bound to `action_sha` and decided within five minutes. Without: the
        step must be PLANNED, or STARTED under a lower fence (a call of an earlier holder that is run again). Without
        the row nothing is started: all of it is one transition.
        """
        ...

    async def open_slot(self, lease: Lease, slot: NewSlot) -> bool:
        """Store the slot of an answer that is still being written, so that its beginning can be shown.

        The answer's `plan` or `finish_turn` names the same slot id: its text replaces this one and raises the version.
        A slot that no answer took over when the turn ends (or asks the model again) gets the turn's last word, or is
        taken away with an empty text. Return False, and change nothing, when the turn is STOPPING.

        A STATUS slot is none of those: it stays as it is until `finish_turn` (or this) names it again. A turn that ends
        without that leaves it saying "Ended.".
        """
        ...

    async def finish_step(
        self, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot] = ()
    ) -> TurnView | None:
        """Store the step's one result, and what is shown of it; allowed in a STOPPING turn.

        Nothing is stored when it had one already. An open or approved wait of the step becomes CANCELLED.

        Return the turn as it stands then, when this was the last of its calls without a result.
        """
        ...

    async def brought(self, lease: Lease, message: InboundId, files: Sequence[FetchedFile]) -> None:
        """Store what became of a message's attachments (`Received.files`). The first word stands; twice is safe."""
        ...

    async def allowed_scopes(self, session: SessionId) -> frozenset[tuple[str, str]]:
        """Read what people allowed for longer than one call: (tool, scope) of the CONSUMED approvals with a scope.

        Those of this session's present epoch, and for a child those of its parents too.
        """
        ...
