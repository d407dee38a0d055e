from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.approvals import approvers
from gateway.model.ids import OwnerName, SessionId
from gateway.model.sessions import Origin, Session, SessionKind
from gateway.routing import may_see
from tests.support.fakes import CLEO, PEOPLE
from tests.support.makers import ANN, EPOCH

CHILD = Session(
    id=SessionId("child:1"),
    kind=SessionKind.NON_MAIN,
    origin=Origin.CHILD,
    owner=ANN,
    title="a child",
    epoch=0,
    root_kind=SessionKind.MAIN,
    created_at=EPOCH,
    active_at=EPOCH,
)


@pytest.mark.parametrize(("owner", "seen"), [(ANN, True), (CLEO, False)])
def test_a_child_of_a_main_session_is_seen_by_its_owner_alone(owner: OwnerName, seen: bool) -> None:
    assert may_see(owner, CHILD.owner, CHILD.root_kind) is seen


def test_a_child_of_a_main_session_is_decided_about_by_its_owner_alone() -> None:
    assert approvers(CHILD, PEOPLE) == PEOPLE.owners[ANN]


def test_below_a_main_session_without_an_owner_nobody_decides() -> None:
    assert approvers(replace(CHILD, owner=None), PEOPLE) == frozenset()
    assert approvers(replace(CHILD, kind=SessionKind.MAIN, owner=OwnerName("gone")), PEOPLE) == frozenset()


def test_below_a_group_every_owner_decides() -> None:
    everybody = frozenset(who for principals in PEOPLE.owners.values() for who in principals)
    assert approvers(replace(CHILD, owner=None, root_kind=SessionKind.NON_MAIN), PEOPLE) == everybody
