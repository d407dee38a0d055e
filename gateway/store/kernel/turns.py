"""Parts of transitions that change a turn: queue it, end it, stop it, open its waits, report an ended child.

A node claims a turn in `leases` and works on it in `journal`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from gateway.domain.children import LIVE_BELOW_A_ROOT, NewChild, SpawnMode
from gateway.domain.ids import InboundId, Principal, SessionId, TurnId, WaitId, child_asks
from gateway.domain.messages import Inbound, Received
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Step, StepState, Usage
from gateway.domain.tools import ToolResult, outcome_unknown
from gateway.domain.turns import COMMANDS_AT_ONCE, ENDED, STOPPED_TEXT, Lease, Turn, TurnKind, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import GOES_ON, NewWait, Wait, WaitKind, WaitState, child_of
from gateway.errors import LeaseLost, RowDamaged
from gateway.store.call_rules import CANCELLED
from gateway.store.child_rules import NOBODY_WAITS, End, answer_of, end_message, first_message, lineage_below
from gateway.store.constants import HELD, UNDECIDED
from gateway.store.kernel.family import give, home_of, hops_of, is_below
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import MessageRow, SessionRow, StepRow, TurnRow, WaitRow, changed, held_for, not_before
from gateway.store.kernel.slots import say, show_cards_anew
from gateway.store.workflow_rules import answer_of as workflow_answer
from gateway.store.workflow_rules import begin_ready, has_ended, rows_of, sessions_of, with_end


def held(part: Part, lease: Lease) -> TurnRow:
    """Return the leased turn; raise `LeaseLost` when this lease does not hold it."""
    row = part.turns.get(lease.turn)
    if row is None or row.fence != lease.fence or row.turn.state not in HELD:
        raise LeaseLost
    return row


def view_of(part: Part, turn: TurnId) -> TurnView:
    """Return the turn with all its rows. Raises `RowDamaged` when one is."""
    row = part.turns[turn]
    view = TurnView(
        turn=row.turn,
        session=part.sessions[row.turn.session].session,
        inputs=tuple(part.messages[one].received for one in row.inputs),
        steps=tuple(part.steps[turn, n].step for n in range(row.steps)),
        waits=tuple(part.waits[one].wait for one in row.waits),
        held=held_for(row.held_since, row.lease_until, part.now),
    )
    if not part.is_whole(turn):
        raise RowDamaged(f"A row of the turn {turn} cannot be read.")
    return view


def waits_of(part: Part, row: TurnRow) -> list[Wait]:
    """Return the waits of a turn, oldest first."""
    return [part.waits[one].wait for one in row.waits]


def steps_of(part: Part, row: TurnRow) -> list[Step]:
    """Return the steps of a turn."""
    return [part.steps[row.turn.id, n].step for n in range(row.steps)]


def unended(row: SessionRow) -> tuple[TurnId, ...]:
    """Return a session's turns that have not ended, model turns first."""
    return (*row.turns, *row.commands)


# --- the queue ------------------------------------------------------------------------------


def new_turn(session: SessionRow, kind: TurnKind, message: Inbound, principal: Principal, part: Part) -> Turn:
    """Return a queued turn in the message's conversation."""
    return Turn(
        id=TurnId(part.mint("t")),
        session=session.session.id,
        epoch=session.session.epoch,
        kind=kind,
        state=TurnState.QUEUED,
        conversation=message.conversation,
        principal=principal,
        created_at=part.now,
        started_at=None,
        ended_at=None,
        active_ms=0,
    )


def add_turn(part: Part, turn: Turn) -> TurnRow:
    """Store a new queued turn at the end of its lane."""
    session, queued_rev = part.sessions[turn.session], part.next_rev()
    ord_ = part.next_rev(turn.session)
    is_model = turn.kind is TurnKind.MODEL
    head = not (is_model and session.turns)
    row = TurnRow(turn=turn, ord=ord_, rev=ord_, queued_at=turn.created_at, queued_rev=queued_rev, head=head)
    row = changed(row, home=home) if (home := home_of(part, session)) else row
    part.turns.put(turn.id, row)
    if is_model:
        part.set_session(turn.session, turns=(*session.turns, turn.id))
    else:
        part.set_session(turn.session, commands=(*session.commands, turn.id))
    return row


def receive(
    part: Part,
    session: SessionId,
    message: Inbound,
    turn: TurnId | None,
    *,
    context: bool = False,
    continues: bool = False,
) -> Received:
    """Store a new message, as the last one of its turn."""
    ord_ = part.next_rev(session)
    received = Received(
        id=part.message_id(ord_),
        turn=turn,
        message=message,
        given=None,
        received_at=part.now,
        context=context,
        continues=continues,
    )
    part.messages.put(received.id, MessageRow(received=received, session=session, ord=ord_, rev=ord_))
    if turn is not None:
        add_input(part, turn, received.id)
    return received


def add_input(part: Part, turn: TurnId, message: InboundId) -> None:
    """Add a stored message to those of a turn."""
    part.relink_turn(turn, inputs=(*part.turns[turn].inputs, message))


def offer(part: Part, turn: TurnId) -> None:
    """Wake claims when a turn is queued and may run now."""
    row = part.turns[turn]
    gathers = row.gathers_until is not None and row.gathers_until > part.now
    if row.turn.state is TurnState.QUEUED and not gathers and may_run(part, row):
        part.touched.turns_due = True


def may_run(part: Part, row: TurnRow) -> bool:
    """Return whether its lane lets this queued turn run now."""
    if row.turn.kind is TurnKind.MODEL:
        return row.head
    return part.sessions[row.turn.session].held_commands < COMMANDS_AT_ONCE


def queue(part: Part, turn: TurnId) -> None:
    """Make a turn claimable, behind those already queued."""
    let_go(part, turn, TurnState.QUEUED, queued_at=part.now, queued_rev=part.next_rev())


def wake(part: Part, turn: TurnId) -> None:
    """Queue a parked turn after a decision; otherwise notify its holder."""
    if part.turns[turn].turn.state is TurnState.PARKED:
        queue(part, turn)
    else:
        part.touched.turns.add(turn)


def let_go(part: Part, turn: TurnId, state: TurnState, **changes: Any) -> None:
    """Release a turn from its holder and offer the turns that may run because of it."""
    row = part.turns[turn]
    held = held_for(row.held_since, row.lease_until, part.now)
    active = row.turn.active_ms + round(held / timedelta(milliseconds=1))
    ended_at = not_before(row.turn.started_at, part.now) if state in ENDED else None
    of_turn = {"state": state, "active_ms": active, "ended_at": ended_at}
    part.set_turn(turn, of_turn=of_turn, node=None, lease_until=None, held_since=None, **changes)
    _offer_next(part, row.turn)


def _offer_next(part: Part, turn: Turn) -> None:
    session = part.sessions[turn.session]
    if turn.kind is TurnKind.MODEL:
        if session.turns:
            if not part.turns[session.turns[0]].head:
                part.relink_turn(session.turns[0], head=True)
            offer(part, session.turns[0])
    elif session.held_commands < COMMANDS_AT_ONCE:
        queued = (one for one in session.commands if part.turns[one].turn.state is TurnState.QUEUED)
        part.touched.turns_due |= next(queued, None) is not None


# --- the end --------------------------------------------------------------------------------


def end_turn(part: Part, turn: TurnId, state: TurnState, words: str) -> None:
    """End a turn: every call gets its one result, waits are withdrawn, messages count as given.

    `words`: its last text. A child's end is reported to its parent.
    """
    before = part.turns[turn]
    stopped = stopped_text(before)
    _cancel_calls(part, before, stopped, started_too=True)
    for message in before.inputs:
        if part.messages[message].received.given is None:
            part.set_message(message, given=before.steps)
    stopping = before.turn.state is TurnState.STOPPING
    let_go(part, turn, state)
    part.touched.turns.add(turn)
    session = part.sessions[before.turn.session]
    if session.live and session.task == turn:
        text = stopped if state is TurnState.STOPPED else ""
        _notify_parent(part, session, part.turns[turn], words or text, text, stopping=stopping)


def stop(part: Part, turn: TurnId, text: str, *, below: str | None = None) -> None:
    """Stop a turn: its holder may only write results from now on; without a holder it ends here.

    `below`: the last text of the children that it waits for; None: `text` too.
    """
    row = part.turns[turn]
    for_children = text if below is None else below
    if row.turn.state in HELD:
        part.set_turn(turn, of_turn={"state": TurnState.STOPPING, "stopped_text": text}, stopped_text=text)
        _cancel_calls(part, part.turns[turn], for_children, started_too=False)
        part.touched.turns.add(turn)
    else:
        cancel_waits(part, waits_of(part, row), for_children)
        part.relink_turn(turn, turn=changed(row.turn, stopped_text=text), stopped_text=text)
        end_stopped(part, turn)


def end_stopped(part: Part, turn: TurnId) -> None:
    """End a stopped turn that nobody holds, and show its text where it began."""
    row = part.turns[turn]
    text = stopped_text(row)
    if not text and row.drafts:  # a draft would be emptied: what was shown would be gone
        text = STOPPED_TEXT
    end_turn(part, turn, TurnState.STOPPED, text)
    said = NewSlot(conversation=row.turn.conversation, kind=SlotKind.ANSWER, text=text)
    say(part, turn, [said] if text else [], ends=True)


def stopped_text(row: TurnRow) -> str:
    """Return the text shown after a stop when no holder is left to end the turn."""
    return STOPPED_TEXT if row.stopped_text is None else row.stopped_text


def add_step(part: Part, row: TurnRow, step: Step) -> None:
    """Store a turn's next step."""
    session = row.turn.session
    ord_ = part.next_rev(session)
    part.steps.put((step.turn, step.n), StepRow(step=step, session=session, ord=ord_, rev=ord_))
    part.relink_turn(step.turn, steps=step.n + 1)


def finish_call(part: Part, turn: TurnId, n: int, result: ToolResult) -> None:
    """Give a step its result."""
    part.set_step(turn, n, state=StepState.FINISHED, result=result, ended_at=part.now)


def _cancel_calls(part: Part, row: TurnRow, below: str, *, started_too: bool) -> None:
    cancel_waits(part, waits_of(part, row), below)
    for step in steps_of(part, row):
        if step.state in (StepState.PLANNED, StepState.ASKED):
            finish_call(part, row.turn.id, step.n, CANCELLED)
        elif step.state is StepState.STARTED and started_too:
            # Its outcome is unknown: CANCELLED would claim that it never ran.
            finish_call(part, row.turn.id, step.n, outcome_unknown(step.started_at))


# --- waits ----------------------------------------------------------------------------------


def open_wait(part: Part, row: TurnRow, new: NewWait) -> None:
    """Store a new wait of a turn."""
    wait = Wait(
        id=new.id,
        kind=new.kind,
        session=row.turn.session,
        turn=row.turn.id,
        n=new.n,
        state=WaitState.OPEN,
        approval=new.approval,
        payload=new.payload,
        opened_at=part.now,
        expires_at=part.now + new.expires_in,
    )
    ord_ = part.next_rev(wait.session)
    part.waits.put(wait.id, WaitRow(wait=wait, ord=ord_, rev=ord_))
    part.relink_turn(row.turn.id, waits=(*part.turns[row.turn.id].waits, wait.id))
    show_cards_anew(part, wait.id)


def set_wait(part: Part, wait: WaitId, /, **changes: Any) -> Wait:
    """Change a wait; the cards that show it get a new version."""
    before = part.waits[wait]
    row = changed(before, wait=changed(before.wait, **changes), rev=part.next_rev(before.wait.session))
    part.waits.put(wait, row)
    show_cards_anew(part, wait)
    return row.wait


def cancel_waits(part: Part, waits: Iterable[Wait], below: str) -> None:
    """Withdraw waits that are open, or approved and unused.

    Withdrawing a wait on a child stops the child, with the text `below`.
    """
    for wait in waits:
        if wait.state in UNDECIDED:
            set_wait(part, wait.id, state=WaitState.CANCELLED)
            if wait.kind is WaitKind.CHILD:
                stop_awaited(part, wait, below)


def stop_awaited(part: Part, wait: Wait, text: str) -> None:
    """Stop the children that a wait is for, with all below them."""
    for child in sessions_of(wait.payload) or [child_of(wait)]:
        stop_below(part, child, text)


def wait_no_longer(part: Part, wait: Wait) -> None:
    """Stop the children of a wait that expired, or let the child go on: its end is a message to its parent then."""
    if not wait.payload.get(GOES_ON):
        stop_awaited(part, wait, NOBODY_WAITS)
        return
    row = part.sessions[child_of(wait)]
    if row.parent_wait == wait.id and row.session.lineage is not None:
        lineage = changed(row.session.lineage, mode=SpawnMode.SESSION)
        part.set_session(row.session.id, session=changed(row.session, lineage=lineage), parent_wait=None)


def approvals_asked_by(part: Part, session: SessionId, requester: Principal) -> int:
    """Return the number of open approvals of a session that this person requested."""
    rows = [part.turns[turn] for turn in unended(part.sessions[session])]
    waits = [wait for row in rows if row.turn.principal == requester for wait in waits_of(part, row)]
    return sum(wait.state is WaitState.OPEN and wait.kind is WaitKind.APPROVAL for wait in waits)


# --- children -------------------------------------------------------------------------------


def begin_turn(part: Part, session: SessionRow, principal: Principal, message: Inbound) -> TurnRow:
    """Queue a model turn for a message that came from no channel, in the message's conversation."""
    row = add_turn(part, new_turn(session, TurnKind.MODEL, message, principal, part))
    receive(part, row.turn.session, message, row.turn.id)
    offer(part, row.turn.id)
    return part.turns[row.turn.id]


def begin_child(part: Part, row: TurnRow, n: int, child: NewChild, wait: WaitId | None, quoted: str = "") -> None:
    """Store a child of step `n` of a turn, with its queued task. `quoted`: the results that it is given."""
    parent = part.sessions[row.turn.session].session
    lineage = lineage_below(parent, row.turn.id, n, row.turn.conversation, child)
    session = Session(
        id=child.session,
        kind=SessionKind.NON_MAIN,
        origin=Origin.CHILD,
        owner=parent.owner,
        title=child.title,
        epoch=0,
        root_kind=parent.root_kind,
        tools=child.tools,
        created_at=part.now,
        active_at=part.now,
        lineage=lineage,
        preset=child.preset,
        presets_above=(*parent.presets_above, parent.preset),
        tools_off=parent.tools_off,
    )
    known = SessionRow(session=session, live=True, parent_wait=wait)
    part.sessions.put(session.id, known)
    root = part.sessions[lineage.root]
    part.set_session(lineage.root, live_below=(*root.live_below, session.id))
    task = begin_turn(part, known, row.turn.principal, first_message(child, part.now, quoted))
    part.set_session(session.id, task=task.turn.id)
    give(part, row.turn.id, n, task.turn.id)


def go_on(part: Part, wait: Wait) -> None:
    """Begin the ready steps of a workflow, as far as its root has room for live children."""
    row = part.turns[wait.turn]
    above = part.sessions[row.turn.session].session.lineage
    root = above.root if above else row.turn.session
    room = LIVE_BELOW_A_ROOT - len(part.sessions[root].live_below)
    payload, begun = begin_ready(wait.payload, room)
    set_wait(part, wait.id, payload=payload)
    for child, quoted in begun:
        begin_child(part, row, wait.n, child, wait.id, quoted)


def unended_below(part: Part, session: SessionId, only: Principal | None = None) -> list[TurnId]:
    """Return the stoppable turns of a child and all below it, or of all below a root, parents' first."""
    known = part.sessions.get(session)
    if known is None:
        return []
    lineage = known.session.lineage
    root = known if lineage is None else part.sessions[lineage.root]
    family = [one for one in root.live_below if one == session or is_below(part, one, session)]
    rows = [part.turns[turn] for one in family for turn in unended(part.sessions[one])]
    can = [row for row in rows if row.turn.state is not TurnState.STOPPING and only in (None, row.turn.principal)]
    return [row.turn.id for row in sorted(can, key=lambda row: row.ord)]


def stop_below(part: Part, session: SessionId, text: str, only: Principal | None = None) -> int:
    """Stop a child and all below it, or all below a root. Return how many turns were stopped."""
    found = unended_below(part, session, only)
    for turn in found:
        # The stop of its parent may have ended it.
        if part.turns[turn].turn.state not in ENDED and part.turns[turn].turn.state is not TurnState.STOPPING:
            stop(part, turn, text)
    return len(found)


def unheard_ends(part: Part, session: SessionId) -> list[TurnRow]:
    """Return turns that nobody has started and that only report ended children, the newest first."""
    rows = [part.turns[turn] for turn in part.sessions[session].turns]
    return [row for row in reversed(rows) if row.turn.started_at is None and _only_reports(part, row)]


def _only_reports(part: Part, row: TurnRow) -> bool:
    return child_asks(part.messages[one].received.message.principal for one in row.inputs)


def _notify_parent(part: Part, child: SessionRow, row: TurnRow, words: str, stopped: str, *, stopping: bool) -> None:
    """Report the end of a child's task to its parent, and stop all turns left below, since nobody reads them.

    `stopped`: the text of its stop, empty without one. `stopping`: whether it was stopping before.
    """
    session, state = child.session, row.turn.state
    lineage = session.lineage
    assert lineage is not None, "only a child has a task"
    part.set_session(session.id, live=False)
    root = part.sessions[lineage.root]
    part.set_session(lineage.root, live_below=tuple(one for one in root.live_below if one != session.id))
    end = End(child=session.id, task=row.turn.id, title=session.title, state=state, words=words)
    if child.parent_wait is not None:
        wait = part.waits[child.parent_wait].wait
        if wait.state is WaitState.OPEN:
            _tell_wait(part, wait, end, row.turn.active_ms, _spent_by(part, row))
    elif state is not TurnState.STOPPED and not stopping:
        spawning = part.turns[lineage.turn].turn
        message = end_message(end, spawning.conversation, part.now)
        message_parent(part, spawning, message, hops_of(part, row.turn.id) + 1)
    _stop_orphans(part, session.id, lineage.root, stopped if state is TurnState.STOPPED else NOBODY_WAITS)


def _tell_wait(part: Part, wait: Wait, end: End, active_ms: int, spent: Usage) -> None:
    """Store a child's end in its wait, and wake the turn; a workflow goes on until its last step has ended."""
    payload = answer_of(end, active_ms, spent)
    if rows_of(wait.payload):
        payload = with_end(wait.payload, end, active_ms, spent)
        if not has_ended(payload):
            wait = set_wait(part, wait.id, payload=payload)
            if part.turns[wait.turn].turn.state is not TurnState.STOPPING:
                go_on(part, wait)
            return
        payload = workflow_answer(payload)
    set_wait(part, wait.id, state=WaitState.ANSWERED, payload=payload)
    wake(part, wait.turn)


def _stop_orphans(part: Part, child: SessionId, root: SessionId, text: str) -> None:
    """Stop what a child that has ended left running below itself."""
    if any(is_below(part, one, child) for one in part.sessions[root].live_below):
        stop_below(part, child, text)


def is_heard(part: Part, spawning: Turn) -> bool:
    """Return whether a message of a child would be read. A child as parent reads only until its task ends."""
    parent = part.sessions[spawning.session]
    gone = parent.task is not None and not parent.live
    return not gone and parent.session.epoch == spawning.epoch


def message_parent(part: Part, spawning: Turn, message: Inbound, hops: int) -> None:
    """Store a child's message where the spawning turn began, if its messages are shown there."""
    if not is_heard(part, spawning):
        return
    parent = part.sessions[spawning.session]
    parent = part.set_session(spawning.session, session=changed(parent.session, active_at=part.now))
    joined = _unheard_end(part, spawning) if parent.task is None else parent.task
    if joined is None:
        joined = begin_turn(part, parent, spawning.principal, message).turn.id
    else:
        receive(part, parent.session.id, message, joined)
        part.touched.turns.add(joined)
    part.relink_turn(joined, hops=max(part.turns[joined].hops, hops))


def _unheard_end(part: Part, like: Turn) -> TurnId | None:
    """Return the unstarted turn that reports other ends here: several ends make one prompt."""
    whose = (like.conversation, like.principal)
    found = unheard_ends(part, like.session)
    return next((row.turn.id for row in found if (row.turn.conversation, row.turn.principal) == whose), None)


def _spent_by(part: Part, row: TurnRow) -> Usage:
    """Return the usage of its answers and of all descendants, whether awaited or not."""
    own = (step.answer.usage for step in steps_of(part, row) if step.answer is not None)
    return sum((_spent_by(part, part.turns[task]) for task in row.tasks), sum(own, Usage()))
