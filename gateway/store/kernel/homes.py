"""Transitions about homes: the place that holds the files of a family of sessions, and what happens when it is away.

A place is named by the id that stands beside its workspaces. Only a node at the home of a family claims its turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

from gateway.domain.children import child_place
from gateway.domain.ids import SYSTEM_HOME, NodeId, SessionId, awaited_slot
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.nodes import LEFT_TIMES, LIVES_FOR, HomeHolder, Role, name_of
from gateway.domain.sessions import Session, SessionKind, works_in
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import StepState
from gateway.domain.tools import outcome_unknown
from gateway.domain.turns import Lease, TurnKind
from gateway.domain.waits import WaitKind, WaitState
from gateway.errors import FilesElsewhere
from gateway.store.codec import from_us, load_json
from gateway.store.constants import AT_ONCE, HELD, UNDECIDED
from gateway.store.kernel import messages, turns
from gateway.store.kernel.home_notices import Away, files_awaited, files_away
from gateway.store.kernel.nodes import DRAINED, MEMBERS, PLACES
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import SessionRow, TurnRow
from gateway.store.kernel.slots import add_slot

AWAITED_UNSAID = timedelta(seconds=5)
"""Longest wait of a turn for its home before a notice."""
TOLD_AT_ONCE = 20
"""Turns notified in one transition; the others wait for the next check."""


def settle(part: Part, lease: Lease) -> None:
    """Make the place of a turn's holder the home of a family that has none.

    Raises `FilesElsewhere` when another one is: a second turn of the family was first to leave files.
    """
    if not lease.home:
        return
    root = works_in(part.sessions[lease.session].session)
    row = part.sessions[root]
    if row.homes and row.homes[-1] != lease.home:
        raise FilesElsewhere(f"The files of {root} are on another node.")
    if not row.homes:
        _move(part, row, lease.home)


def _move(part: Part, row: SessionRow, home: str) -> None:
    before = tuple(one for one in row.homes if one != home)
    part.set_session(row.session.id, homes=(*before, home))
    for turn in _turns_of(part, row):
        part.relink_turn(turn.turn.id, home=home)


def _turns_of(part: Part, root: SessionRow) -> Iterator[TurnRow]:
    """Yield the turns of a family that have not ended, those of the root first."""
    for row in (root, *(part.sessions[child] for child in root.live_below)):
        yield from [part.turns[turn] for turn in turns.unended(row)]


# --- places -----------------------------------------------------------------------------------


def places_of(part: Part, session: SessionId) -> list[HomeHolder]:
    """Return the places that hold, or held, files of a session, the present home first."""
    found = part.sessions.get(session)
    if found is None:
        return []
    row = part.sessions[works_in(found.session)]
    return [_place(part, home) for home in reversed(row.homes)]


def _place(part: Part, home: str) -> HomeHolder:
    members = [row for row in _members(part) if row["home"] == home]
    last = max(members, key=lambda row: row["alive"], default=None)
    return HomeHolder(
        home=home,
        name=_name(part, home),
        address="" if last is None else last["address"],
        alive_at=None if last is None else from_us(last["alive"]),
    )


def node_named(part: Part, name: str) -> HomeHolder | None:
    """Return the node with this name, if one gave a sign of life within a day."""
    row = next((row for row in _members(part) if name_of(row["node"]) == name), None)
    if row is None:
        return None
    return HomeHolder(home=row["home"], name=name, address=row["address"], alive_at=from_us(row["alive"]))


def _name(part: Part, home: str) -> str:
    place = _place_at(part, home)
    return home if place is None else str(place["name"])


def _members(part: Part) -> list[dict[str, Any]]:
    return [load_json(fact.value) for _, fact in part.facts_in(MEMBERS) if fact.until is None or fact.until > part.now]


def _place_at(part: Part, home: str) -> dict[str, Any] | None:
    fact = part.facts.get((PLACES, home))
    return None if fact is None else load_json(fact.value)


def _is_away(part: Part, home: str, taker: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether nobody at this place takes work, for as long as it and the taker say.

    The home may give signs of life by a longer time of its own, after an outage of the store too. One that was drained
    or ended keeps its sessions for longer: it may come back from an upgrade.
    """
    place = _place_at(part, home)
    here = [row for row in members if row["home"] == home]
    after = _away_after(taker, here)
    signs = [from_us(taker["steady"]), *(from_us(row["alive"]) for row in here if _takes_work(part, row))]
    if place is not None:
        signs += [from_us(place["seen"])] if place.get("seen") is not None else []
        if place["left"] is not None:
            times = 1 if _is_replaced(members, home, place) else LEFT_TIMES
            signs.append(from_us(place["left"]) + after * (times - 1))
    return all(part.now - sign > after for sign in signs)


def _is_replaced(members: Sequence[Mapping[str, Any]], home: str, place: Mapping[str, Any]) -> bool:
    """Return whether the node of a place has another place now."""
    return any(name_of(row["node"]) == place["name"] and row["home"] != home for row in members)


# --- a home that is awaited -------------------------------------------------------------------


def say_awaited(part: Part, node: NodeId) -> int:
    """Notify the chats of turns that wait for a home, once each. Return the number of notified turns.

    An absence of seconds is not worth a message: an upgrade takes as long. The others are notified before a takeover of
    the family, which is no sooner than twice the time after which a home counts as missed.
    """
    own, homes = _row_of(part, node), part.index.homes_at_work()
    if own is None or not homes:
        return 0
    members, waiting = _members(part), list[TurnRow]()
    for home in homes:
        after = _away_after(own, [row for row in members if row["home"] == home])
        if home == own["home"] or not _is_missed(part, home, members, after):
            continue
        unsaid = part.now - min(AWAITED_UNSAID, after / 10)
        ready = [part.turns[turn] for turn in part.index.ready_turns(part.now, AT_ONCE, home)]
        waiting += [row for row in ready if row.home == home and row.queued_at < unsaid and not _is_told(row)]
    return len(list(islice((row for row in waiting if _say_awaited(part, row, members)), TOLD_AT_ONCE)))


def _is_told(row: TurnRow) -> bool:
    return awaited_slot(row.turn.id) in row.slots


def _away_after(own: Mapping[str, Any], here: Sequence[Mapping[str, Any]]) -> timedelta:
    """Return the time after which a silent place is away, by the one that looks and by those that are there."""
    return timedelta(seconds=max(row["away_after"] for row in (own, *here)))


def _is_missed(part: Part, home: str, members: Sequence[Mapping[str, Any]], after: timedelta) -> bool:
    """Return True if no worker there gave a sign of life for 30 s, or for half the time after which it is away."""
    heard = part.now - min(after / 2, LIVES_FOR)
    return not any(row["home"] == home and _takes_work(part, row) and from_us(row["alive"]) >= heard for row in members)


def _say_awaited(part: Part, row: TurnRow, members: Sequence[Mapping[str, Any]]) -> bool:
    """Say it, unless it stands in that conversation for a turn of the family that has not ended."""
    root = part.sessions[works_in(part.sessions[row.turn.session].session)]
    family, place = list(_turns_of(part, root)), _shown_in(part, row)
    if any(one.turn.state in HELD for one in family):
        return False  # its home works, and only takes nothing new
    if any(_is_told(one) and _shown_in(part, one) == place for one in family):
        return False
    why, name = _why_away(part, row.home, members)
    text = files_awaited(why, name, for_owners=root.session.kind is SessionKind.MAIN)
    new = NewSlot(conversation=place, kind=SlotKind.REPLY, text=text, id=awaited_slot(row.turn.id))
    add_slot(part, new, root.session.id, row.turn.id)
    return True


# --- a home that is away ----------------------------------------------------------------------


def astray(part: Part, node: NodeId) -> list[SessionId]:
    """Return families with unended turns whose home is away, at most 500. Nothing for a node that may not take any."""
    own = _taker(part, node)
    if own is None:
        return []
    # Not all places that ever were: in a cluster of short-lived machines these are thousands.
    homes = [home for home in part.index.homes_at_work() if home != own["home"]]
    members = _members(part) if homes else []
    away = [home for home in homes if _is_away(part, home, own, members)]
    found = [turn for home in away for turn in part.index.turns_at(home, AT_ONCE)][:AT_ONCE]
    return list(dict.fromkeys(works_in(part.sessions[part.turns[turn].turn.session].session) for turn in found))


def _taker(part: Part, node: NodeId) -> dict[str, Any] | None:
    """Return the entry of a node that may take families of others.

    It has worked without a break for as long as a home may be silent: after an outage of the store nobody has.
    """
    row = _row_of(part, node)
    if row is None or not row["home"] or not _takes_work(part, row):
        return None
    after = timedelta(seconds=row["away_after"])
    return row if part.now - from_us(row["steady"]) > after >= part.now - from_us(row["alive"]) else None


def _row_of(part: Part, node: NodeId) -> dict[str, Any] | None:
    """Return the entry of this life of a node."""
    fact = part.facts.get((MEMBERS, name_of(node)))
    row = None if fact is None else load_json(fact.value)
    return None if row is None or row["node"] != node else row


def _takes_work(part: Part, row: Mapping[str, Any]) -> bool:
    """Return whether a node is a worker, and not drained."""
    return Role.WORKER in row["roles"] and part.facts.get((DRAINED, name_of(row["node"]))) is None


def take_over(part: Part, node: NodeId, session: SessionId) -> bool:
    """Give a family whose home is away to this node, with an empty workspace; notify its models and people.

    Approvals are asked again, and calls under way get an unknown outcome. False, and nothing is changed, when its home
    is not away, and while somebody holds one of its turns.
    """
    own, row = _taker(part, node), part.sessions.get(session)
    if own is None or row is None or not row.homes or row.homes[-1] == own["home"]:
        return False
    family = list(_turns_of(part, row))
    held = any(one.turn.state in HELD for one in family)
    if held or not _is_away(part, row.homes[-1], own, _members(part)):
        return False
    text = _says(part, row, name_of(node))
    _move(part, row, own["home"])
    _tell_people(part, row, family, text)
    _tell_models(part, row, family, text)
    for one in family:
        if _let_go_of(part, one):
            turns.wake(part, one.turn.id)
        turns.offer(part, one.turn.id)
    return True


def _says(part: Part, row: SessionRow, taker: str) -> str:
    """Return the notice about a family whose home is away."""
    why, name = _why_away(part, row.homes[-1], _members(part))
    return files_away(why, name, taker, for_owners=row.session.kind is SessionKind.MAIN)


def _why_away(part: Part, home: str, members: Sequence[Mapping[str, Any]]) -> tuple[Away, str]:
    """Return why nobody works at a place, and the name of its node."""
    place = _place_at(part, home)
    if place is None:
        return Away.GONE, ""
    why = Away.SILENT if place["left"] is None else Away.LEFT
    return Away.REPLACED if _is_replaced(members, home, place) else why, place["name"]


def _let_go_of(part: Part, row: TurnRow) -> bool:
    """Void what a turn had at its old home: approvals, and calls under way. Return whether there was any."""
    turn, found = row.turn.id, False
    for wait in turns.waits_of(part, row):
        if wait.kind is WaitKind.APPROVAL and wait.state in UNDECIDED:
            found = True
            turns.set_wait(part, wait.id, state=WaitState.SUPERSEDED)
            part.set_step(turn, wait.n, state=StepState.PLANNED, asked_anew=True)
    for step in turns.steps_of(part, row):
        if step.state is StepState.STARTED:
            found = True
            turns.finish_call(part, turn, step.n, outcome_unknown(step.started_at))
    return found


def _tell_people(part: Part, root: SessionRow, family: list[TurnRow], text: str) -> None:
    """Say it once in each conversation where a turn of the family began."""
    places = [_shown_in(part, one) for one in family]
    for place in dict.fromkeys(places):
        add_slot(part, NewSlot(conversation=place, kind=SlotKind.REPLY, text=text), root.session.id, None)


def _shown_in(part: Part, row: TurnRow) -> Conversation:
    lineage = part.sessions[row.turn.session].session.lineage
    return row.turn.conversation if lineage is None else lineage.conversation


def _tell_models(part: Part, root: SessionRow, family: list[TurnRow], text: str) -> None:
    """Say it in each model turn, or else in the next one of the root."""
    models = [one for one in family if one.turn.kind is TurnKind.MODEL]
    for one in models:
        session = part.sessions[one.turn.session].session
        turns.receive(part, session.id, _notice(part, session, one.turn.conversation, text), one.turn.id)
    if all(one.turn.session != root.session.id for one in models):
        place = _shown_in(part, family[0])
        received = turns.receive(part, root.session.id, _notice(part, root.session, place, text), None, context=True)
        messages.overhear(part, root.session.id, received)


def _notice(part: Part, session: Session, place: Conversation, text: str) -> Inbound:
    return Inbound(
        event_key=f"home/{session.id}/{part.mint('h')}",
        conversation=place if session.lineage is None else child_place(session.id),
        principal=SYSTEM_HOME,
        name="Dragoman",
        direct=False,
        addressed=True,
        text=text,
        sent_at=part.now,
    )
