"""Backoff in an outage, and the state of a slot between two attempts."""

from __future__ import annotations

from channels.slack.send_state import FIRST_S, KEPT, LONGEST_S, PATIENT_FOR_S, SendStates, Unfinished
from gateway.domain.ids import SlotId

SLOT = SlotId("o1.1")


def test_wait_after_each_silence_doubles_up_to_a_minute() -> None:
    tries = SendStates()
    waits = [tries.silent(now_s=1000.0) for _ in range(2000)]
    assert waits[:7] == [FIRST_S, 4, 8, 16, 32, LONGEST_S, LONGEST_S]
    assert set(waits[7:]) == {LONGEST_S}


def test_nothing_is_waited_out_for_ever() -> None:
    tries = SendStates()
    tries.silent(now_s=1000.0)
    assert tries.silent(now_s=1000.0 + PATIENT_FOR_S) > 0
    assert tries.silent(now_s=1000.0 + PATIENT_FOR_S + 1) == 0


def test_shown_slot_resets_its_waits() -> None:
    unfinished = Unfinished()
    for _ in range(5):
        unfinished.of(SLOT).silent(now_s=0.0)
    unfinished.shown(SLOT)
    assert unfinished.of(SLOT).silent(now_s=0.0) == FIRST_S


def test_only_so_many_slots_are_known() -> None:
    unfinished = Unfinished()
    unfinished.of(SLOT).silent(now_s=0.0)
    for n in range(KEPT - 1):
        unfinished.of(SlotId(f"o2.{n}"))
    assert unfinished.of(SLOT).silent(now_s=0.0) > FIRST_S
    for n in range(KEPT):
        unfinished.of(SlotId(f"o3.{n}"))
    assert unfinished.of(SLOT).silent(now_s=0.0) == FIRST_S
