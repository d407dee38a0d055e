"""Rows of the store as values in Redis: the columns of the SQLite store as JSON, so that each reads the other's.

A value begins with the number of the commit that wrote it. That stamp shows that a row is still the one that was read.
A revision of the commit itself is stored as its offset from the stamp, negative: it is known only when the row is in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

from gateway.domain.audit import AuditHead, AuditRow
from gateway.domain.grants import Grant
from gateway.domain.ids import InboundId, SessionId, SlotId, TurnId, WaitId
from gateway.domain.views import Spent
from gateway.store import columns
from gateway.store.codec import dump_json, dump_plain, from_us, load_json, storable, to_us
from gateway.store.columns import RowColumns
from gateway.store.decode import (
    BARE_MESSAGE,
    BARE_STEP,
    BARE_TURN,
    BARE_WAIT,
    audit_row_of,
    grant_of,
    moment,
    received_of,
    session_of,
    slot_of,
    spent_of,
    step_of,
    turn_of,
    wait_of,
)
from gateway.store.kernel.part import EventKey, FactKey, StepKey
from gateway.store.kernel.rows import Early, Fact, MessageRow, SessionRow, SlotRow, StepRow, TurnRow, WaitRow, changed

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
Values: TypeAlias = list[Any]

UNNUMBERED = 1 << 60
"""Revisions above this are offsets of the commit that is being prepared."""
TURNS_OF_SESSION = len(columns.SESSIONS.names)
"""Place of a session's unended turns in its values."""
NAME = "="
"""Begins the name of a section of them (`long_queues`), and the text of a row that has one."""
_LISTS_OF_SESSION, _LISTS_OF_TURN = 5, 7
"""Numbers of lists that follow the columns."""
NEW = UNNUMBERED
"""Score of a place that its row is given once, in the order in which rows are made."""


@dataclass(frozen=True, slots=True)
class BareRow:
    """A row that cannot be read whole, without its payloads."""

    row: Any
    kept: Mapping[int, tuple[Any, Any]]
    """Stand-ins for payloads, each with the stored value, by place."""


@dataclass(frozen=True)
class Kind(Generic[K, R]):
    """A kind of row: its key, its stored form, and where its revisions stand."""

    name: str
    words: Callable[[K], str]
    """Text of a row's key, different for different keys."""
    values: Callable[[R], Values]
    make: Callable[[Values], R]
    revisions: tuple[str, ...] = ()
    """Fields that hold revisions, named like their columns."""
    columns: tuple[str, ...] = ()
    """Names of the values, in their order, as far as they have names."""
    complete: Callable[[Values], None] | None = None
    """Adds what rows of earlier versions lack."""
    bare: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """Stand-ins for damaged payloads by their places behind the first value; none: such a row cannot be read at all."""

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Places of the revisions in the values."""
        return tuple(self.columns.index(name) for name in self.revisions)

    def key(self, key: K) -> str:
        """Return the Redis key of a row, without the prefix."""
        return f"{self.name}:{storable(self.words(key))}"

    def dump(self, row: R, bare: BareRow | None = None) -> str:
        """Return the stored form of a row, without its stamp. `bare`: its payloads stay, but for changed ones."""
        values = self.values(row)
        if bare is not None:
            for place, (stand_in, was) in bare.kept.items():
                values[place] = was if values[place] == stand_in else values[place]
        for place in self.places:
            if (rev := values[place]) is not None and rev > UNNUMBERED:
                values[place] = UNNUMBERED - rev
        return dump_plain(values)

    def load(self, stamp: int, text: str) -> R:
        """Return the row of a stored value."""
        return self.make(self.stored(stamp, text))

    def load_bare(self, stamp: int, text: str) -> BareRow:
        """Return the row without its payloads: a transition must be able to end what it cannot read."""
        values = self.stored(stamp, text)
        kept = {at + 1: (stand_in, values[at + 1]) for at, stand_in in self.bare.items()}
        return BareRow(self.make([kept[at][0] if at in kept else value for at, value in enumerate(values)]), kept)

    def stored(self, stamp: int, text: str) -> Values:
        """Return the columns and lists of a stored value, revisions as they are."""
        values = load_json(text)
        for place in self.places:
            if (rev := values[place]) is not None and rev < 0:
                values[place] = stamp - rev
        if self.complete is not None:
            self.complete(values)
        return values

    def numbered(self, row: R, stamp: int) -> R:
        """Return a row as it was stored by the commit of this number."""
        new = {name: rev for name in self.revisions if (rev := getattr(row, name)) is not None and rev > UNNUMBERED}
        return changed(row, **{name: rev - UNNUMBERED + stamp for name, rev in new.items()}) if new else row


def _named(table: RowColumns[Any], values: Values) -> dict[str, Any]:
    """Return the columns of a table by name."""
    return dict(zip(table.names, values, strict=False))


def _until(table: RowColumns[Any], values: Values, end: str, start: int = 1) -> tuple[Any, ...]:
    """Return the columns before the one called `end`: those of the domain's type. The first is the place mostly."""
    return tuple(values[start : table.names.index(end)])


def _session_values(row: SessionRow) -> Values:
    turns = " ".join(row.turns)  # of ten thousand ids, one text is stored in a tenth of the time
    last_end = None if row.last_end is None else to_us(row.last_end)
    return [*columns.SESSIONS.values(row), turns, row.commands, row.held_commands, row.live_below, last_end]


def _session(values: Values) -> SessionRow:
    named = _named(columns.SESSIONS, values)
    turns, commands, held, below, last_end = values[len(columns.SESSIONS.names) :]
    return SessionRow(
        session=session_of(_until(columns.SESSIONS, values, "context", start=0)),
        turns=tuple(
            map(TurnId, turns.split() if isinstance(turns, str) else turns)
        ),  # a list in a copy of another store
        commands=tuple(commands),
        held_commands=held,
        context=tuple(load_json(named["context"])),
        summary_rev=named["summary_rev"],
        task=named["task_turn"],
        parent_wait=named["parent_wait"],
        live=bool(named["live"]),
        live_below=tuple(below),
        homes=tuple(load_json(named["homes"])),
        last_end=moment(last_end),
    )


def _complete_session(values: Values) -> None:
    """Add the homes that schema 1 had not, and the last end that schema 2 had not. Leave out names of sections."""
    missing = len(columns.SESSIONS.names) + _LISTS_OF_SESSION - len(values)
    if missing > 1:
        values.insert(columns.SESSIONS.names.index("homes"), "[]")
    if missing > 0:
        values.append(None)
    turns = values[TURNS_OF_SESSION]
    if isinstance(turns, str) and NAME in turns:
        values[TURNS_OF_SESSION] = " ".join(word for word in turns.split() if not word.startswith(NAME))


def _complete_turn(values: Values) -> None:
    """Add the home and the list of slots that schema 1 had not."""
    missing = len(columns.TURNS.names) + _LISTS_OF_TURN - len(values)
    if missing > 1:
        values.insert(columns.TURNS.names.index("home"), "")
    if missing > 0:
        values.append([])


def _turn_values(row: TurnRow) -> Values:
    lists = [row.inputs, row.steps, row.waits, row.drafts, row.status, row.tasks, row.slots]
    return [*columns.TURNS.values(row), *lists]


def _turn(values: Values) -> TurnRow:
    named = _named(columns.TURNS, values)
    inputs, steps, waits, drafts, status, tasks, slots = values[len(columns.TURNS.names) :]
    return TurnRow(
        turn=turn_of(_until(columns.TURNS, values, "rev")),
        ord=named["ord"],
        rev=named["rev"],
        queued_at=from_us(named["queued_at"]),
        queued_rev=named["queued_rev"],
        head=bool(named["head"]),
        node=named["node"],
        fence=named["fence"],
        lease_until=moment(named["lease_until"]),
        held_since=moment(named["held_since"]),
        gathers_until=moment(named["gathers_until"]),
        stopped_text=named["stopped_text"],
        ended_rev=named["ended_rev"],
        inputs=tuple(inputs),
        steps=steps,
        waits=tuple(waits),
        drafts=tuple(drafts),
        status=tuple(status),
        tasks=tuple(tasks),
        slots=tuple(slots),
        given_by=named["given_by"],
        given_n=named["given_n"],
        hops=named["hops"],
        home=named["home"],
    )


def _message(values: Values) -> MessageRow:
    named = _named(columns.MESSAGES, values)
    received = received_of(_until(columns.MESSAGES, values, "session"))
    return MessageRow(received=received, session=named["session"], ord=named["ord"], rev=named["rev"])


def _step(values: Values) -> StepRow:
    named = _named(columns.STEPS, values)
    return StepRow(
        step=step_of(_until(columns.STEPS, values, "session")),
        session=named["session"],
        ord=named["ord"],
        rev=named["rev"],
        fence=named["fence"],
        audit=named["audit"],
    )


def _wait(values: Values) -> WaitRow:
    named = _named(columns.WAITS, values)
    return WaitRow(wait=wait_of(_until(columns.WAITS, values, "rev")), ord=named["ord"], rev=named["rev"])


def _slot(values: Values) -> SlotRow:
    named = _named(columns.SLOTS, values)
    return SlotRow(
        slot=slot_of(_until(columns.SLOTS, values, "ord")),
        seq=named["seq"],
        ord=named["ord"],
        rev=named["rev"],
        early=Early(named["early"]),
        node=named["node"],
        sending_since=moment(named["sending_since"]),
        shown_by=named["shown_by"],
        again_at=moment(named["again_at"]),
        again_over=named["again_over"],
        why_dead=named["why_dead"],
    )


def _grant(values: Values) -> Grant:
    return grant_of(_until(columns.GRANTS, values, "held_by", start=0))


def _spent_values(spent: Spent) -> Values:
    usage = spent.usage
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    return [spent.day.isoformat(), spent.principal, spent.model, spent.answers, *tokens, usage.cost_micros]


def _audit_values(row: AuditRow) -> Values:
    about = (row.session, row.turn, row.n, row.lane, row.tool, row.action_sha, row.basis, row.wait)
    by = (row.grant, row.rule, row.decided_by, row.sandbox, row.node)
    return [row.seq, to_us(row.at), *about, *by, row.prev_hash, row.hash]


def _expiry(fact: Fact) -> int | None:
    return None if fact.until is None else to_us(fact.until)


def _list(key: Sequence[str]) -> str:
    return dump_plain(list(key))


SpentKey: TypeAlias = tuple[date, str, str]

SESSION = Kind[SessionId, SessionRow](
    "session", str, _session_values, _session, ("summary_rev",), columns.SESSIONS.names, _complete_session
)
TURN = Kind[TurnId, TurnRow](
    "turn",
    str,
    _turn_values,
    _turn,
    ("ord", "rev", "queued_rev", "ended_rev"),
    columns.TURNS.names,
    _complete_turn,
    BARE_TURN,
)
MESSAGE = Kind[InboundId, MessageRow](
    "message", str, columns.MESSAGES.values, _message, ("ord", "rev"), columns.MESSAGES.names, bare=BARE_MESSAGE
)
STEP = Kind[StepKey, StepRow](
    "step",
    lambda key: f"{key[0]}/{key[1]}",
    columns.STEPS.values,
    _step,
    ("ord", "rev"),
    columns.STEPS.names,
    bare=BARE_STEP,
)
WAIT = Kind[WaitId, WaitRow](
    "wait", str, columns.WAITS.values, _wait, ("ord", "rev"), columns.WAITS.names, bare=BARE_WAIT
)
SLOT = Kind[SlotId, SlotRow]("slot", str, columns.SLOTS.values, _slot, ("seq", "ord", "rev"), columns.SLOTS.names)
CARDS = Kind[WaitId, tuple[SlotId, ...]]("cards", str, list, lambda values: tuple(map(SlotId, values)))
EVENT = Kind[EventKey, str]("event", _list, lambda outcome: [outcome], lambda values: values[0])
FACT = Kind[FactKey, Fact](
    "fact", _list, lambda fact: [fact.value, _expiry(fact)], lambda values: Fact(values[0], moment(values[1]))
)
GRANT = Kind[str, Grant]("grant", str, columns.GRANTS.values, _grant)
SPENT = Kind[SpentKey, Spent](
    "spent",
    lambda key: dump_json([key[0].isoformat(), *key[1:]]),
    _spent_values,
    lambda values: spent_of(tuple(values)),
)
AUDIT = Kind[int, AuditRow]("audit", str, _audit_values, lambda values: audit_row_of(tuple(values)))
AUDIT_HEAD = Kind[str, AuditHead](
    "audit-head",
    str,
    lambda head: [to_us(head.since), head.seq, head.hash],
    lambda values: AuditHead(since=from_us(values[0]), seq=values[1], hash=values[2]),
)
KINDS: dict[str, Kind[Any, Any]] = {
    kind.name: kind
    for kind in (
        SESSION,
        TURN,
        MESSAGE,
        STEP,
        WAIT,
        SLOT,
        CARDS,
        EVENT,
        FACT,
        GRANT,
        SPENT,
        AUDIT,
        AUDIT_HEAD,
    )
}


def kind_of(key: str) -> Kind[Any, Any]:
    """Return the kind of the row with this key."""
    return KINDS[key.partition(":")[0]]


def named_by(key: str, row: Any) -> list[str]:
    """Return the keys of rows that readers of this row read next."""
    match row:
        case TurnRow():
            turn = row.turn.id
            steps = [STEP.key((turn, n)) for n in range(row.steps)]
            inputs, waits = [MESSAGE.key(one) for one in row.inputs], [WAIT.key(one) for one in row.waits]
            return [SESSION.key(row.turn.session), *inputs, *steps, *waits]
        case WaitRow():
            return [TURN.key(row.wait.turn), CARDS.key(row.wait.id)]
        case _ if row and kind_of(key) is CARDS:
            return [SLOT.key(one) for one in row]
        case _:
            return []
