"""The rule of retention: each reason for which a turn stays, and the order in which they are looked at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gateway.domain.retention import Keep, Stays, TurnFacts
from gateway.policy.retention import stays

NOW = datetime(2026, 11, 26, tzinfo=UTC)
OLD = TurnFacts(
    ended_at=NOW - timedelta(days=100),
    is_last=False,
    in_window=False,
    waits=False,
    slots=False,
    children=False,
    grants=False,
)
LAST, DAYS, BOTH = Keep(turns=500), Keep(age=timedelta(days=90)), Keep(turns=500, age=timedelta(days=90))
YOUNG = replace(OLD, ended_at=NOW - timedelta(days=89))


@pytest.mark.parametrize(
    ("turn", "keep", "why"),
    [
        pytest.param(OLD, LAST, None, id="beyond the last ones"),
        pytest.param(OLD, DAYS, None, id="too old"),
        pytest.param(OLD, BOTH, None, id="both"),
        pytest.param(OLD, Keep(), Stays.EVERYTHING, id="no limit"),
        pytest.param(replace(OLD, ended_at=None), BOTH, Stays.NOT_ENDED, id="not ended"),
        pytest.param(replace(OLD, is_last=True), LAST, Stays.LAST, id="one of the last"),
        pytest.param(replace(OLD, is_last=True), BOTH, Stays.LAST, id="old, but one of the last"),
        pytest.param(replace(OLD, is_last=True), DAYS, None, id="the last one, where only days count"),
        pytest.param(YOUNG, DAYS, Stays.YOUNG, id="young"),
        pytest.param(YOUNG, BOTH, Stays.YOUNG, id="young, but not one of the last"),
        pytest.param(YOUNG, LAST, None, id="young, where only turns count"),
        pytest.param(replace(OLD, ended_at=NOW - timedelta(days=90)), DAYS, None, id="as old as that"),
        pytest.param(replace(OLD, in_window=True), BOTH, Stays.WINDOW, id="a model may be given it"),
        pytest.param(replace(OLD, waits=True), BOTH, Stays.WAIT, id="a wait is open"),
        pytest.param(replace(OLD, slots=True), BOTH, Stays.SLOT, id="a message is not sent"),
        pytest.param(replace(OLD, children=True), BOTH, Stays.CHILD, id="a child works"),
        pytest.param(replace(OLD, grants=True), BOTH, Stays.GRANT, id="a grant is good"),
    ],
)
def test_why_a_turn_stays(turn: TurnFacts, keep: Keep, why: Stays | None) -> None:
    assert stays(turn, keep, NOW) is why
