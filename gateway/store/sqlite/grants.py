"""Reads of grants in SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.grants import CallPlace, Grant
from gateway.domain.ids import Principal, SessionId, TurnId
from gateway.domain.sessions import SessionKind
from gateway.policy.grants import holds
from gateway.store.codec import LINEAGE, dump_json, from_us, load_conversation
from gateway.store.decode import grant_of, readable
from gateway.store.sqlite.tx import ReadTx


def grants_for(reader: ReadTx, turn: TurnId) -> Sequence[Grant]:
    """Return the grants that hold for calls of a turn, oldest first."""
    here = _place_of(reader, turn)
    if here is None:
        return []
    found = readable(grant_of, reader.run("grants_held_by", dump_json(list(here.keys))), "grant")
    return [one for one in found if holds(one, here, from_us(reader.now))]


def live_grants(reader: ReadTx, limit: int) -> Sequence[Grant]:
    """Return live grants, newest first."""
    return readable(grant_of, reader.run("live_grants", reader.now, limit), "grant")


def _place_of(reader: ReadTx, turn: TurnId) -> CallPlace | None:
    found = reader.one("place_of_turn", turn)
    if found is None:
        return None
    session, conversation, principal, lineage, root_kind = found
    place = load_conversation(conversation) if lineage is None else LINEAGE.load(lineage).conversation
    histories = tuple((SessionId(id_), epoch) for id_, epoch in reader.run("histories_above", session))
    return CallPlace(
        histories=histories, root_kind=SessionKind(root_kind), conversation=place, principal=Principal(principal)
    )
