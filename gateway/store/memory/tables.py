"""Tables of the memory store: dicts with indexes, one revision counter, the wake-ups after a transition."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime

from gateway.domain.audit import AuditHead, AuditRow
from gateway.domain.ids import InboundId, NodeId, OwnerName, Principal, SessionId, SlotId, TurnId, WaitId, mint
from gateway.domain.messages import Conversation, Received
from gateway.domain.routes import Route, empty_session
from gateway.domain.slots import EDIT_IN_DOUBT, NewSlot, Slot, SlotKind, SlotState, shown_when_stored
from gateway.domain.steps import Step
from gateway.domain.turns import ENDED, Turn, TurnKind
from gateway.domain.views import Item, Row, Spent
from gateway.domain.waits import Wait
from gateway.policy.audit import beginning_of, sealed
from gateway.ports import Clock
from gateway.store.answer_rules import together
from gateway.store.codec import EPOCH
from gateway.store.constants import HELD, UNDECIDED
from gateway.store.event_bus import LocalEventBus
from gateway.store.memory.rows import Lane, SessionRow, SlotRow, TurnRow
from gateway.store.notifications import Notifications

UNSENT = frozenset({SlotState.DUE, SlotState.SENDING})


class Tables:
    """All rows and their indexes, kept consistent by `put_*`. Atomic only because nothing here awaits."""

    def __init__(self, clock: Clock) -> None:
        """Start empty."""
        self.clock = clock
        self.live_bus = LocalEventBus()
        self.rev = 0
        self.all_sessions: dict[SessionId, SessionRow] = {}
        self.turns: dict[TurnId, TurnRow] = {}
        self.inbounds: dict[InboundId, Received] = {}
        self.waits: dict[WaitId, Wait] = {}
        self.slots: dict[SlotId, SlotRow] = {}
        self.rows: dict[SessionId, dict[tuple[str, str], Row]] = {}
        self.events: dict[tuple[str, str, str], str] = {}
        # Overheard messages by event: an edit may come.
        self.heard: dict[tuple[str, str, str], tuple[InboundId, SessionId]] = {}
        # By album: its turn, and its messages overheard before that began.
        self.albums: dict[tuple[str, str, str], TurnId] = {}
        self.album_heard: dict[tuple[str, str, str], list[InboundId]] = {}
        self.poison: dict[tuple[str, str, str], tuple[str, str, datetime]] = {}
        self.refused_at: dict[Principal, datetime] = {}
        self.people: dict[Principal, tuple[Conversation, datetime]] = {}
        self.owner_chats: dict[OwnerName, Conversation] = {}
        self.codes: dict[str, tuple[OwnerName, datetime]] = {}
        self.cookies: dict[str, tuple[OwnerName, datetime]] = {}
        self.failures: dict[str, list[datetime]] = {}
        self.page_seen: dict[OwnerName, datetime] = {}
        self.namespaces: dict[str, dict[str, tuple[str, datetime | None]]] = {}
        self.told_at: dict[str, datetime] = {}
        self.holds: dict[str, tuple[NodeId, datetime]] = {}
        self.alive_at: datetime | None = None
        self.books: dict[tuple[date, Principal, str], Spent] = {}
        self.audit: list[AuditRow] = []
        self.touched = Notifications()
        # Indexes: with ten thousand parked turns no transition may scan them all.
        self.lanes: dict[tuple[SessionId, TurnKind], Lane] = {}
        self.unended: dict[TurnId, TurnRow] = {}
        self.ended: dict[SessionId, list[TurnRow]] = {}
        self.held_turns: dict[TurnId, TurnRow] = {}
        # Never claimed turns that wait for the rest of a message.
        self.holding: dict[TurnId, TurnRow] = {}
        self.ready: list[tuple[int, TurnId]] = []
        self.undecided: dict[WaitId, Wait] = {}
        self.cards: dict[WaitId, list[SlotId]] = {}
        self.unsent: dict[Conversation, dict[SlotId, SlotRow]] = {}
        # Children by session, oldest first; and all children whose task has not ended.
        self.children: dict[SessionId, list[SessionId]] = {}
        self.live_children: dict[SessionId, SessionRow] = {}

    @contextmanager
    def transition(self) -> Generator[datetime]:
        """Run one transition: yield the time, publish the wake-ups at its end."""
        self.touched = Notifications()
        yield self.clock.now()
        self.touched.publish(self.live_bus)

    def stamp(self, session: SessionId | None, key: tuple[str, str], item: Item) -> None:
        """Give the changed row its next revision."""
        if session is None:
            return
        self.rev += 1
        rows = self.rows.setdefault(session, {})
        known = rows.get(key)
        rows[key] = Row(ord=known.ord if known else self.rev, rev=self.rev, item=item)
        self.all_sessions[session].rev = self.rev
        self.touched.sessions.add(session)

    def use_session(self, route: Route) -> SessionRow:
        """Return the session, created when absent."""
        row = self.all_sessions.get(route.session)
        if row is None:
            row = self.all_sessions[route.session] = SessionRow(empty_session(route, self.clock.now()), 0)
        return row

    def add_spent(self, new: Spent) -> None:
        """Add to this person's usage of this model on this day."""
        key = (new.day, new.principal, new.model)
        self.books[key] = together(self.books[key], new) if key in self.books else new

    def add_audit_row(self, row: AuditRow) -> None:
        """Append a row, ignoring its place and hashes."""
        self.audit.append(sealed(row, self.last_audit()))

    def last_audit(self) -> AuditHead:
        """Return the place and hash of the last audit row."""
        if not self.audit:
            return AuditHead(since=EPOCH, seq=0, hash=beginning_of(EPOCH))
        return AuditHead(since=EPOCH, seq=self.audit[-1].seq, hash=self.audit[-1].hash)

    # --- turns, messages, steps -------------------------------------------------------------

    def lane(self, session: SessionId, kind: TurnKind) -> Lane:
        """Return the lane, created empty when absent."""
        return self.lanes.setdefault((session, kind), Lane())

    def add_turn(self, turn: Turn) -> TurnRow:
        """Store a new queued turn at the end of its lane."""
        self.rev += 1
        row = TurnRow(turn, queued_at=turn.created_at, queued_rev=self.rev)
        self.turns[turn.id] = self.unended[turn.id] = row
        self.lane(turn.session, turn.kind).turns[turn.id] = row
        self.stamp(turn.session, ("turn", turn.id), turn)
        return row

    def put_turn(self, row: TurnRow, turn: Turn) -> None:
        """Store a new version of a turn."""
        before, row.turn = row.turn.state, turn
        lane = self.lane(turn.session, turn.kind)
        lane.held += (turn.state in HELD) - (before in HELD)
        if turn.state in HELD:
            self.held_turns[turn.id] = row
        else:
            self.held_turns.pop(turn.id, None)
        if turn.state in ENDED and before not in ENDED:
            del lane.turns[turn.id], self.unended[turn.id]
            self.ended.setdefault(turn.session, []).append(row)
        self.stamp(turn.session, ("turn", turn.id), turn)

    def put_received(self, session: SessionId, received: Received) -> None:
        """Store a message, new or changed."""
        self.inbounds[received.id] = received
        self.stamp(session, ("message", received.id), received)

    def put_step(self, row: TurnRow, step: Step) -> None:
        """Store a step, new (the next number) or changed."""
        if step.n == len(row.steps):
            row.steps.append(step)
        else:
            row.steps[step.n] = step
        self.stamp(row.turn.session, ("step", f"{step.turn}/{step.n}"), step)

    # --- waits and slots --------------------------------------------------------------------

    def put_wait(self, wait: Wait) -> None:
        """Store a wait, new or changed; the cards that show it get a new version."""
        self.waits[wait.id] = wait
        if wait.state in UNDECIDED:
            self.undecided[wait.id] = wait
        else:
            self.undecided.pop(wait.id, None)
        self.stamp(wait.session, ("wait", wait.id), wait)
        for card in self.cards.get(wait.id, ()):
            self.show_anew(self.slots[card])

    def put_slot(self, row: SlotRow, slot: Slot) -> None:
        """Store a new version of a slot."""
        row.slot = slot
        self.slots[slot.id] = row
        here = self.unsent.setdefault(slot.conversation, {})
        if slot.state in UNSENT:
            here[slot.id] = row
        else:
            here.pop(slot.id, None)
        if not here:
            del self.unsent[slot.conversation]
        self.stamp(slot.session, ("slot", slot.id), slot)
        # A finished slot makes room for the next one of its conversation.
        self.touched.slots_due |= slot.state is not SlotState.SENDING and bool(here)

    def add_slot(self, new: NewSlot, session: SessionId | None, turn: TurnId | None) -> SlotId:
        """Store a new slot, due now; a slot of the page counts as sent once stored."""
        now, kept = self.clock.now(), shown_when_stored(new.conversation)
        slot = Slot(
            id=new.id or SlotId(mint("o")),
            conversation=new.conversation,
            session=session,
            turn=turn,
            n=new.n,
            kind=new.kind,
            text=new.text,
            waits=new.waits,
            file=new.file,
            version=1,
            sent_version=1 if kept else 0,
            platform_id="",
            state=SlotState.SENT if kept else SlotState.DUE,
            attempts=0,
            uncertain=False,
            due_at=now,
            created_at=now,
        )
        self.put_slot(SlotRow(slot, seq=len(self.slots)), slot)
        if new.kind is SlotKind.CARD:
            for wait in new.waits:
                self.cards.setdefault(wait, []).append(slot.id)
        return slot.id

    def rewrite(self, row: SlotRow, text: str, n: int | None) -> None:
        """Replace a slot's text. A dead slot is retried, since its text is new."""
        state = SlotState.SENT if row.slot.state is SlotState.DEAD else row.slot.state
        row.slot = replace(row.slot, text=text, n=n, state=state)
        self.show_anew(row)

    def is_early(self, row: SlotRow) -> bool:
        """Return whether a slot is a draft or a status line of a turn that has not ended."""
        turn = None if row.slot.turn is None else self.turns.get(row.slot.turn)
        return turn is not None and (row.slot.id in turn.early or row.slot.id in turn.status)

    def edit_in_doubt(self, row: SlotRow) -> None:
        """Record that an edit in progress, if there was one, may still arrive."""
        if row.slot.version > 1 and row.slot.platform_id:
            self.may_be_overwritten(row, row.slot.sent_version + 1)

    def may_be_overwritten(self, row: SlotRow, by: int) -> None:
        """Record that an edit to version `by` may still arrive: a newer version is then shown once more."""
        row.again_over = by if row.again_at is None else min(row.again_over, by)
        row.again_at = self.clock.now() + EDIT_IN_DOUBT

    def show_anew(self, row: SlotRow, *, once_more: bool = False) -> None:
        """Give a slot a new version, due if the last one was sent, or is dead but visible.

        `once_more`: the text is unchanged, so a dead slot stays dead.
        """
        again = row.slot.state is SlotState.DEAD and bool(row.slot.platform_id) and not once_more
        slot = replace(row.slot, version=row.slot.version + 1, attempts=0, once_more=once_more)
        if shown_when_stored(slot.conversation):
            slot = replace(slot, sent_version=slot.version)
        elif slot.state is SlotState.SENT or again:
            slot = replace(slot, state=SlotState.DUE, due_at=self.clock.now())
        self.put_slot(row, slot)

    def show_given_up(self, wait: WaitId) -> None:
        """Retry the dead cards of this wait."""
        for card in self.cards.get(wait, ()):
            if self.slots[card].slot.state is SlotState.DEAD:
                self.show_anew(self.slots[card])
