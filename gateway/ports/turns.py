"""Protocols of the store for `gateway.agent` and `gateway.toolcalls`: turn queue, journal, children and usage.

The rules of `gateway.ports.store` hold here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Protocol

from gateway.domain.audit import StartRecord
from gateway.domain.budgets import BudgetUse, Reservation, Reserved
from gateway.domain.children import MessageFate, NewChild, NewMessage, SpawnRefusal
from gateway.domain.grants import Grant
from gateway.domain.hooks import HookOutcome
from gateway.domain.ids import GrantId, InboundId, NodeId, Principal, SessionId, TurnId, WaitId
from gateway.domain.messages import FetchedFile, Received
from gateway.domain.slots import NewSlot
from gateway.domain.steps import Answer
from gateway.domain.task_lists import TaskItem
from gateway.domain.tools import ToolResult
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import ChildLine, Claimed, Spent, TurnView
from gateway.domain.waits import NewWait, StartOutcome
from gateway.domain.workflows import NewStep


class TurnQueue(Protocol):
    """Queue of turns, and their leases. Called by `gateway.agent` (worker, turn).

    A lease lasts 15 s and is renewed every 5 s. An expired lease holds until the turn is reclaimed.
    """

    async def claim(
        self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0, home: str = ""
    ) -> Sequence[Claimed]:
        """Claim turns that may run now, longest waiting first. Fewer than `limit`: no other one may run now,
        or one of them was begun often and did not end (`domain.turns.company`).

        When there is none, wait `wait_s` seconds for one, or until anybody publishes to `TURNS`. A waiting caller may
        get a turn in the very commit that makes it claimable; nobody else is notified of that turn. A turn that becomes
        claimable by time alone is found up to a second late by waiting callers, which must wait again. `history`:
        return so many ended turns with each MODEL turn, as `Queries.history` gives them at that moment. None where much
        of it would have to be read first.

        A MODEL turn may run when it is the oldest model turn of its session that has not ended. A COMMAND turn may run
        when fewer than four command turns of its session are RUNNING or STOPPING.

        `home`: id of the place where the node has its workspaces. A family of sessions whose files are at another place
        is left to that one (decision 74). Empty: the node takes turns of every home, and gives none to any.
        """
        ...

    async def renew(self, lease: Lease) -> TurnState:
        """Extend the lease by 15 s from now. Return RUNNING, or STOPPING when the turn was stopped.

        The time between the expiry of a lease and its renewal does not count as work: the holder was suspended.
        """
        ...

    async def park(self, lease: Lease) -> bool:
        """Release the lease until a wait is decided.

        Return False and change nothing if no wait of the turn is open, or one is approved and not consumed. The same
        holds if a step has no result though its wait was decided otherwise, or a step is PLANNED or STARTED, or the
        turn is STOPPING. Messages not yet given do not matter: they are given after the results.
        """
        ...

    async def finish_turn(
        self,
        lease: Lease,
        state: TurnState,
        *,
        answer: Answer | None,
        given: Sequence[Received],
        slots: Sequence[NewSlot],
        timers: Sequence[NewWait],
    ) -> bool:
        """End the turn: store the last answer as a model step, its slots and its timers, in one transition.

        Calls without a result get a CANCELLED one (a STARTED call UNKNOWN), open and approved waits become CANCELLED;
        `timers` outlive the turn. For DONE, return False and change nothing when a message not in `given` is waiting,
        or the turn is STOPPING: the caller continues the turn. STOPPED and FAILED always end it; messages not given
        count as given then.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Return the turn to the queue (at shutdown); a STOPPING one ends STOPPED. Safe on a lost lease."""
        ...


class Children(Protocol):
    """Sub-sessions: one task at a time; its end is reported to the parent once.

    Called by tools, through `gateway.toolcalls`, and by `gateway.inbound` for people.

    When the turn of a child's task ends (in any state), the same transition notifies the parent. RUN: the CHILD wait of
    step `n` becomes ANSWERED with the payload of `ChildEnd`, and the parent's turn is woken. SESSION: a message is
    stored in the parent's session, in the conversation of the spawning turn. It is from the principal `system:child`,
    with the task and the last text as `quoted`. Nothing is stored when the child was STOPPED or the parent was reset
    meanwhile. The message joins a queued turn that holds only such messages, or the parent's own task turn when that is
    a child; else it is a new MODEL turn.

    A CHILD wait that is cancelled (its turn was stopped, or ended) or expired stops the child and all below it, in the
    same transition. The end of a child's task likewise stops all live children below it.
    """

    async def spawn(self, lease: Lease, n: int, child: NewChild) -> WaitId | SpawnRefusal | None:
        """Store the child, its first message and its queued MODEL turn; idempotent by `child.session`.

        The turn's conversation is `child_place`, its principal the spawning turn's. RUN: open a CHILD wait on the
        STARTED step `n`, which becomes ASKED, and return its id. SESSION: return None; the caller finishes the step as
        usual. A refusal wrote nothing.
        """
        ...

    async def begin_workflow(self, lease: Lease, n: int, steps: Sequence[NewStep]) -> WaitId | SpawnRefusal:
        """Store a workflow in one CHILD wait on the STARTED step `n`, which becomes ASKED; idempotent by the step.

        Ready steps begin at once, as many as there is room for; each is a child as of `spawn`, with the id
        `step_session`. The end of one begins the next in the same transition, with the results of its needs `quoted`.
        The last end makes the wait ANSWERED and wakes the turn. A step that failed ends all that need it.
        """
        ...

    async def send(
        self, lease: Lease, n: int, message: NewMessage, only: Principal | None = None
    ) -> WaitId | MessageFate | SpawnRefusal:
        """Store a message from the STARTED step `n` to a child that its session spawned; idempotent by the step.

        The message joins the task at work. When that has ended, it is a further task: the same session with its
        history, a new MODEL turn, and no right that its parent lacks now. With `waits`, open a CHILD wait on the step,
        which becomes ASKED, and return its id; not when another call waits for the child already. The end of the task
        is reported as that of `spawn`. When the wait expires, the child goes on, and its end is a message.

        Raises `NotFound` for any other session. With `only`, raises `Forbidden` for a child whose task is another
        principal's. Both, and a refusal, wrote nothing.
        """
        ...

    async def tell(self, lease: Lease, n: int, text: str) -> MessageFate | SpawnRefusal:
        """Store a message from the STARTED step `n` of a child's task to its parent; idempotent by the step.

        It arrives as the end of a task does, and counts as one more message between sessions. A parent that waits for
        the child, or that would not hear its end, gets none. Raises `NotFound` for a session without a parent.
        """
        ...

    async def stop_child(self, parent: SessionId, child: SessionId, text: str, only: Principal | None = None) -> int:
        """Stop a child below `parent`, and all below it; each shows `text`. Return how many turns were stopped.
        Idempotent.

        Raises `NotFound` when there is no such child below `parent`. With `only`, raises `Forbidden` for a child whose
        task is another principal's. Both changed nothing.
        """
        ...

    async def family(self, session: SessionId, limit: int = 50) -> Sequence[ChildLine]:
        """Return the children below a session: live ones first, then the last ended; each parent before its own
        children.
        """
        ...

    async def children_of(self, turn: TurnId) -> Sequence[ChildLine]:
        """Return the tasks that a turn gave to children itself, in the order of its steps, each with its child."""
        ...


class UsageStore(Protocol):
    """Summaries of long histories, and token usage."""

    async def compact(self, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
        """Store a summary of the history up to and including this ended turn, and the usage of making it.

        From then on `Queries.history` begins after that turn, and `Session.summary` is this text. Return False, and
        store the usage alone, when the epoch is over or a summary already reaches as far.
        """
        ...

    async def spent(self, since: date) -> Sequence[Spent]:
        """Return the usage since a day, the newest first.

        An answer is counted when it is stored as a model step, for the principal of its turn; one without figures is
        not.
        """
        ...


class Budgets(Protocol):
    """Budgets of tokens and money. What a request may use is reserved before it is made.

    A reservation counts while its turn is held under this lease; so nothing releases it. The answer that `plan` or
    `finish_turn` stores settles it: its usage is added, and a NOTE informs the person at 80 % and at the end, once.
    """

    async def reserve(self, lease: Lease, wanted: Reservation) -> Reserved:
        """Reserve the estimate in every budget of the request, or in none.

        The largest use so far counts where it exceeds the estimate. SPENT: a budget is used up. BUSY: the estimate does
        not fit beside requests under way; alone, a request fits as long as anything is left. So requests at the same
        time exceed a budget by one of them at most. A turn has one reservation, the last one.
        """
        ...

    async def reserve_summary(self, session: SessionId, wanted: Reservation) -> Reserved:
        """Reserve for a summary, without a lease: for ten minutes, or until `UsageStore.compact` stores its usage."""
        ...

    async def budget_uses(self) -> Sequence[BudgetUse]:
        """Return the use of all budgets whose accounts are stored."""
        ...


class TurnJournal(Protocol):
    """Journal of a turn, written before acting. Called by `gateway.agent` and `gateway.toolcalls` under a lease."""

    async def plan(
        self, lease: Lease, answer: Answer, *, given: Sequence[Received], slots: Sequence[NewSlot]
    ) -> TurnView:
        """Store an answer with calls: a FINISHED model step, then a PLANNED tool step for each call. Return the new
        turn view.

        Step numbers continue. `given` messages count as given before the model step, with the text that the model read:
        an edit that came meanwhile is undone. Raises `LeaseLost` also when the turn is STOPPING.
        """
        ...

    async def open_waits(
        self, lease: Lease, waits: Sequence[NewWait], slots: Sequence[NewSlot], *, most: int | None = None
    ) -> int | None:
        """Open waits on PLANNED steps (they become ASKED), and store their card and note slots. Return how many were
        opened.

        `most`: how many approvals of the turn's principal may be OPEN in the session. Only the first waits that fit are
        opened, and cards show only those; with 0 nothing is stored. Return None, and change nothing, when the turn is
        STOPPING or a step is not PLANNED.
        """
        ...

    async def store_hook_outcome(self, lease: Lease, n: int, outcome: HookOutcome) -> None:
        """Store the outcome of the hooks before a call, so that they run once. Changes nothing unless the step is
        PLANNED.

        The first write wins; repeating is safe.
        """
        ...

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Store that the step's effect may begin, with a row of the audit. With `wait`, consume that approval too.

        With `wait`: it must be APPROVED, of this step, bound to `action_sha` and decided within five minutes. Without:
        the step must be PLANNED, or STARTED under a lower fence (a call of an earlier holder that is run again). With
        `beginning.grant` that grant must hold for the turn now, and is counted. An approval of a scope becomes a grant
        for the session. All of it is one transition: without the row nothing is started.
        """
        ...

    async def open_slot(self, lease: Lease, slot: NewSlot) -> bool:
        """Store the slot of an answer that still streams, so that its beginning can be shown.

        The answer's `plan` or `finish_turn` names the same slot id: its text replaces this one and raises the version.
        A slot that no answer took over gets the turn's last text when the turn ends or asks the model again. With an
        empty text it is removed. Return False, and change nothing, when the turn is STOPPING.

        A STATUS slot is different: it stays as it is until `finish_turn` (or this method) names it again. A turn that
        ends without naming it leaves it with "Ended."; one that names it without having opened it shows nothing.
        """
        ...

    async def finish_step(
        self, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot] = ()
    ) -> TurnView | None:
        """Store the only result of the step, and the slots that show it; allowed in a STOPPING turn.

        An open or approved wait of the step becomes CANCELLED. Stores nothing when the step has a result already.
        Return the turn view when this was the last of its calls without a result, else None.
        """
        ...

    async def record_fetched(
        self, lease: Lease, message: InboundId, files: Sequence[FetchedFile], slots: Sequence[NewSlot] = ()
    ) -> None:
        """Store the fetched attachments of a message (`Received.files`), and the slots that show them.

        The first write wins; repeating is safe. The slots of a STOPPING turn are not shown.
        """
        ...

    async def enter_plan(self, lease: Lease, n: int) -> None:
        """Give the session the preset `plan`, as the effect of the STARTED step `n`. Else as `leave_plan`."""
        ...

    async def leave_plan(self, lease: Lease, n: int) -> None:
        """Give the session the preset before its present one, as the effect of the STARTED step `n`. Safe to repeat.

        It holds for live children at once, as a change by `Intake.control` does. Raises `NotFound` for a sub-session.
        """
        ...

    async def grants_for(self, turn: TurnId) -> Sequence[Grant]:
        """Return the grants that hold for calls of this turn now, oldest first; none for an unknown turn."""
        ...


class Inquiries(Protocol):
    """Questions and task lists of calls, for people. Called by `gateway.toolcalls` under a lease."""

    async def ask(self, lease: Lease, wait: NewWait, slots: Sequence[NewSlot]) -> WaitId | None:
        """Open a QUESTION wait on a STARTED step, which becomes ASKED, and store its card slots. Return its id.

        Idempotent by the step: a second call returns the wait of the first. Return None, and change nothing, when the
        turn is STOPPING. Raises `NotFound` for a step that was not started under this lease.
        """
        ...

    async def write_list(self, lease: Lease, n: int, items: Sequence[TaskItem]) -> None:
        """Store the session's task list, as the effect of the STARTED step `n`, and show it. Safe to repeat.

        In the turn's conversation the message of an unfinished list gets the new text; after a finished one there is a
        new message. An empty list leaves no text. Raises `NotFound` as `ask`.
        """
        ...

    async def task_list(self, session: SessionId, epoch: int) -> Sequence[TaskItem]:
        """Return the task list of a session's history; empty when there is none."""
        ...


class Grants(Protocol):
    """Grants for people: lists and revocation. Called by `gateway.inbound` and the control socket."""

    async def live_grants(self, limit: int = 1000) -> Sequence[Grant]:
        """Return live grants of every session, newest first. A grant for a session ends when its history is reset."""
        ...

    async def revoke_grant(self, grant: GrantId, by: Principal) -> Grant | None:
        """Take a grant back. Return it, or None when there is no live one."""
        ...
