"""Permits: each is valid for one action, step, turn and holder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.ids import TurnId, main_session
from gateway.domain.turns import Lease
from gateway.toolcalls.permits import Permit, PermitOffice
from tests.support.fakes import NODE
from tests.support.makers import ANN, EPOCH

LEASE = Lease(turn=TurnId("t1"), session=main_session(ANN), node=NODE, fence=3, expires_at=EPOCH)


def test_a_permit_holds_for_its_action_step_turn_and_fence_alone() -> None:
    office = PermitOffice()
    permit = office.issue(LEASE, 2, "sha")

    assert office.holds(permit, LEASE, 2, "sha")
    assert not office.holds(permit, LEASE, 2, "sha2")
    assert not office.holds(permit, LEASE, 3, "sha")
    assert not office.holds(permit, replace(LEASE, fence=4), 2, "sha")
    assert not office.holds(permit, replace(LEASE, turn=TurnId("t2")), 2, "sha")
    assert not PermitOffice().holds(permit, LEASE, 2, "sha")


@pytest.mark.parametrize("bit", range(0, 256, 17))
def test_a_permit_with_one_bit_flipped_does_not_hold(bit: int) -> None:
    office = PermitOffice()
    mac = bytearray(office.issue(LEASE, 2, "sha").mac)
    mac[bit // 8] ^= 1 << bit % 8

    assert not office.holds(Permit(bytes(mac)), LEASE, 2, "sha")
    assert not office.holds(Permit(b""), LEASE, 2, "sha")
