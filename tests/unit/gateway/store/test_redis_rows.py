"""Rows as values in Redis: whatever a row holds, it is read as it was written."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.audit import AuditHead, AuditRow
from gateway.domain.grants import Grant
from gateway.domain.ids import InboundId, SessionId, TurnId, WaitId
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.views import Spent
from gateway.store.codec import EPOCH, from_us
from gateway.store.kernel.rows import Fact, SessionRow, SlotRow, TurnRow, changed
from gateway.store.redis.rows import (
    AUDIT,
    AUDIT_HEAD,
    FACT,
    GRANT,
    SESSION,
    SLOT,
    SPENT,
    TURN,
    UNNUMBERED,
    Kind,
    named_by,
)
from tests.support.makers import ANN_TELEGRAM, CHAT
from tests.support.proof import examples

KINDS: dict[type[Any], Kind[Any, Any]] = {
    SessionRow: SESSION,
    SlotRow: SLOT,
    Fact: FACT,
    Grant: GRANT,
    Spent: SPENT,
    AuditRow: AUDIT,
    AuditHead: AUDIT_HEAD,
}
st.register_type_strategy(float, st.floats(0, 1e9))
st.register_type_strategy(int, st.integers(0, 1 << 40))
st.register_type_strategy(str, st.text("aé\n\"'\\ {}😀", max_size=6))
st.register_type_strategy(date, st.dates(date(2000, 1, 1), date(2100, 1, 1)))
st.register_type_strategy(datetime, st.integers(0, 1 << 52).map(from_us))


def drawn(of: type[Any], data: st.DataObject) -> Any:
    """Return a row. Its turns have ids without spaces, as all that are made, and its messages ids as platforms give."""
    row = data.draw(st.from_type(of))
    if isinstance(row, SessionRow):
        return changed(row, turns=tuple(TurnId(f"t{n}") for n in range(len(row.turns))))
    if isinstance(row, SlotRow):
        ids = tuple(f"m{n}" for n in range(len(row.slot.message_ids)))
        return changed(row, slot=replace(row.slot, message_ids=ids))
    return row


@pytest.mark.parametrize("of", KINDS, ids=[one.__name__ for one in KINDS])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_row_is_read_as_it_was_written(of: type[Any], data: st.DataObject) -> None:
    row = drawn(of, data)
    assert KINDS[of].load(7, KINDS[of].dump(row)) == row


def test_rows_read_next_are_loaded_with_their_turn() -> None:
    """All of it in the second request, as few as there are."""
    turn = Turn(
        id=TurnId("t1"),
        session=SessionId("main:ann"),
        epoch=0,
        kind=TurnKind.MODEL,
        state=TurnState.QUEUED,
        conversation=CHAT,
        principal=ANN_TELEGRAM,
        created_at=EPOCH,
        started_at=None,
        ended_at=None,
        active_ms=0,
    )
    row = TurnRow(
        turn=turn,
        ord=1,
        rev=1,
        queued_at=EPOCH,
        queued_rev=1,
        head=True,
        inputs=(InboundId("i1"),),
        steps=2,
        waits=(WaitId("w1"),),
    )
    named = named_by(TURN.key(turn.id), row)
    assert named == ["session:main:ann", "message:i1", "step:t1/0", "step:t1/1", "wait:w1"]


@pytest.mark.parametrize("of", [SessionRow, SlotRow], ids=["session", "slot"])
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_revision_of_the_commit_itself_counts_from_it(of: type[Any], data: st.DataObject) -> None:
    kind = KINDS[of]
    row = changed(drawn(of, data), **{name: UNNUMBERED + n for n, name in enumerate(kind.revisions, 1)})
    read = kind.load(7, kind.dump(row))
    assert read == kind.numbered(row, 7)
    assert [getattr(read, name) for name in kind.revisions] == [7 + n for n, _ in enumerate(kind.revisions, 1)]
