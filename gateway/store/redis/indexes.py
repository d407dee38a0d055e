"""Sorted sets of the Redis store: where each row stands in them. A commit writes the difference of before and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from gateway.domain.grants import Grant
from gateway.domain.ids import SessionId, SlotId, WaitId
from gateway.domain.slots import SlotKind, SlotState
from gateway.domain.turns import ENDED, TurnState
from gateway.domain.views import Spent
from gateway.domain.waits import WaitKind, WaitState
from gateway.store.codec import dump_conversation, load_json, to_us
from gateway.store.constants import HELD, UNDECIDED
from gateway.store.kernel.messages import PEOPLE
from gateway.store.kernel.rows import Fact, MessageRow, SessionRow, SlotRow, StepRow, TurnRow, WaitRow
from gateway.store.redis.rows import FACT, MESSAGE, NEW, SLOT, STEP, TURN, WAIT

Place: TypeAlias = tuple[str, str]
"""A sorted set and its member."""
Score: TypeAlias = int

ROOTS, LIVE_CHILDREN, PAST_CHILDREN = "sessions:roots", "sessions:live", "sessions:past"
UNFOLDED = "turns:unfolded"
QUEUED, READY, GATHERING = "turns:queued", "turns:ready", "turns:gathering"
HOMED = "turns:homed"
"""Turns that have a home and have not ended, all at score 0: read in the order of their names (`at_home`)."""
READY_SOMEWHERE = "turns:ready-somewhere"
"""Ready turns of all homes; `READY` has those of none."""
HELD_TURNS, PARKED, STARTED = "turns:held", "turns:parked", "steps:started"
OPEN, TIMERS, APPROVED = "waits:open", "waits:timers", "waits:approved"
ASKED, QUESTIONS = "waits:asked", "waits:questions"
DUE, SENDING, DEAD, AGAIN = "slots:due", "slots:sending", "slots:dead", "slots:again"
GRANTS, EXPIRING, DAYS = "grants:open", "facts:expiring", "spent:days"


LASTING = frozenset({PEOPLE})
"""Namespaces of facts that never expire and are never removed."""


def ready_at(home: str) -> str:
    """Name the queued turns of a home that their lanes let run."""
    return f"turns:ready:{home}"


def at_home(home: str, turn: str = "") -> str:
    """Name a turn of a home among those of all. Those of one home stand together, by their ids."""
    return f"{home} {turn}"


def home_in(member: str) -> tuple[str, str]:
    """Return home and turn of such a name."""
    home, _, turn = member.partition(" ")
    return home, turn


def by_rev(session: SessionId) -> str:
    """Name the rows of a session by revision."""
    return f"by-rev:{session}"


def by_place(session: SessionId) -> str:
    """Name the rows of a session by place."""
    return f"by-place:{session}"


def ended_in(session: SessionId, epoch: int) -> str:
    """Name the ended turns of one history."""
    return f"ended:{session}:{epoch}"


def below(session: SessionId) -> str:
    """Name the children of a session."""
    return f"below:{session}"


def waiting_in(session: SessionId) -> str:
    """Name the open approvals and questions of a session."""
    return f"waiting:{session}"


def unsent_on(channel: str) -> str:
    """Name the unsent slots of a channel, each with its conversation (`lane_of`)."""
    return f"unsent:{channel}"


def lane_of(member: str) -> tuple[SlotId, SlotKind, str]:
    """Return the slot, its kind and its conversation, given as text, of an unsent slot of a channel."""
    slot, kind, conversation = member.split(" ", 2)
    return SlotId(slot), SlotKind(kind), conversation


def unsent_in(conversation: str) -> str:
    """Name the unsent slots of a conversation, given as text."""
    return f"unsent-in:{conversation}"


def grants_of(holder: str) -> str:
    """Name the grants of a place."""
    return f"grants-of:{holder}"


def grants_from(wait: WaitId) -> str:
    """Name the grants that an approval gave."""
    return f"grants-from:{wait}"


def facts_of(namespace: str) -> str:
    """Name the facts of a namespace."""
    return f"facts:{namespace}"


def places_of(key: str, row: Any) -> dict[Place, Score]:
    """Return a row's places in the sorted sets."""
    if row is None:
        return {}
    find = _PLACES.get(key.partition(":")[0])
    return {} if find is None else dict(find(key, row))


Places: TypeAlias = Iterator[tuple[Place, Score]]


def _shown(session: SessionId, key: str, ord_: int, rev: int) -> Places:
    yield (by_rev(session), key), rev
    yield (by_place(session), key), ord_


def _of_session(_key: str, row: SessionRow) -> Places:
    session = row.session
    if session.lineage is None:
        yield (ROOTS, session.id), to_us(session.active_at)
        return
    yield (below(session.lineage.parent), session.id), NEW
    if row.live:
        yield (LIVE_CHILDREN, session.id), to_us(session.created_at)
    else:
        yield (PAST_CHILDREN, session.id), to_us(session.active_at)


def _of_turn(key: str, row: TurnRow) -> Places:
    turn = row.turn
    yield from _shown(turn.session, key, row.ord, row.rev)
    if row.home and turn.state not in ENDED:
        yield (HOMED, at_home(row.home, turn.id)), 0
    if turn.state is TurnState.QUEUED:
        yield (QUEUED, turn.id), to_us(row.queued_at)
        if row.head and row.home:
            yield (ready_at(row.home), turn.id), row.queued_rev
            yield (READY_SOMEWHERE, turn.id), row.queued_rev
        elif row.head:
            yield (READY, turn.id), row.queued_rev
        if row.gathers_until is not None:
            yield (GATHERING, turn.id), row.queued_rev
    elif turn.state in HELD:
        yield (HELD_TURNS, turn.id), to_us(row.lease_until or row.queued_at)
    elif turn.state is TurnState.PARKED:
        yield (PARKED, turn.id), row.queued_rev
    elif turn.state in ENDED:
        yield (ended_in(turn.session, turn.epoch), turn.id), row.ended_rev or 0
        yield (UNFOLDED, turn.id), to_us(turn.ended_at or row.queued_at)


def _of_message(key: str, row: MessageRow) -> Places:
    return _shown(row.session, key, row.ord, row.rev)


def _of_step(key: str, row: StepRow) -> Places:
    yield from _shown(row.session, key, row.ord, row.rev)
    if row.step.started_at is not None:
        yield (STARTED, key), row.ord


def _of_wait(key: str, row: WaitRow) -> Places:
    wait = row.wait
    yield from _shown(wait.session, key, row.ord, row.rev)
    if wait.state not in UNDECIDED:
        return
    if wait.state is not WaitState.OPEN:
        yield (APPROVED, wait.id), to_us(wait.decided_at or wait.opened_at)
        return
    yield (TIMERS if wait.kind is WaitKind.TIMER else OPEN, wait.id), to_us(wait.expires_at)
    if wait.kind is WaitKind.APPROVAL:
        yield (ASKED, wait.id), row.ord
    if wait.kind is WaitKind.QUESTION:
        yield (QUESTIONS, wait.id), row.ord
    if wait.kind in {WaitKind.APPROVAL, WaitKind.QUESTION}:
        yield (waiting_in(wait.session), wait.id), row.ord


def _of_slot(key: str, row: SlotRow) -> Places:
    slot = row.slot
    if slot.session is not None and row.ord is not None and row.rev is not None:
        yield from _shown(slot.session, key, row.ord, row.rev)
    if slot.state is SlotState.DEAD:
        yield (DEAD, slot.id), row.seq
    if row.again_at is not None:
        yield (AGAIN, slot.id), to_us(row.again_at)
    if slot.state not in {SlotState.DUE, SlotState.SENDING}:
        return
    conversation = dump_conversation(slot.conversation)
    yield (unsent_on(slot.conversation.channel), f"{slot.id} {slot.kind} {conversation}"), row.seq
    yield (unsent_in(conversation), slot.id), row.seq
    if row.sending_since is None:
        yield (DUE, slot.id), to_us(slot.due_at)
    if slot.state is SlotState.SENDING:
        yield (SENDING, slot.id), row.seq


def _of_fact(key: str, row: Fact) -> Places:
    yield (facts_of(namespace_of(key)), key), 0
    if row.until is not None:
        yield (EXPIRING, key), to_us(row.until)


def places_of_fact(key: str, kept: Fact | None) -> dict[Place, Score]:
    """Return the possible places of an unread fact, at no known score. `kept`: an earlier state of it, if any."""
    namespace = namespace_of(key)
    if namespace in LASTING:
        return {(facts_of(namespace), key): -1 if kept is None else 0}
    return {(facts_of(namespace), key): -1, (EXPIRING, key): -1}


def namespace_of(fact: str) -> str:
    """Return the namespace of a fact, given by its key in Redis."""
    return fact_key(fact)[0]


def fact_key(fact: str) -> tuple[str, str]:
    """Return the namespace and the name of a fact, given by its key in Redis."""
    namespace, name = load_json(fact.partition(":")[2])
    return namespace, name


def _of_grant(_key: str, row: Grant) -> Places:
    yield (grants_from(row.wait), row.id), 0
    if not row.ended:
        yield (GRANTS, row.id), to_us(row.expires_at)
        yield (grants_of(row.held_by), row.id), to_us(row.granted_at)


def _of_spent(key: str, row: Spent) -> Places:
    yield (DAYS, key), row.day.toordinal()


_PLACES = {
    "session": _of_session,
    TURN.name: _of_turn,
    MESSAGE.name: _of_message,
    STEP.name: _of_step,
    WAIT.name: _of_wait,
    SLOT.name: _of_slot,
    FACT.name: _of_fact,
    "grant": _of_grant,
    "spent": _of_spent,
}
