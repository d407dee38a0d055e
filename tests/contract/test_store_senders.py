"""One sender an account: who claims slots of it becomes its sender, for as long as a lease lasts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.events import SLOTS, SlotsDue
from gateway.domain.ids import NodeId
from gateway.domain.messages import Conversation
from tests.contract.scene import NODE, OTHER_NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import CHAT, control, inbound, route, seconds

LEASE_S = 15


async def _say(scene: Scene, *texts: str, where: Conversation = CHAT) -> None:
    """Store replies in one chat, one after the other."""
    for text in texts:
        await scene.store.control(route(), inbound("/stop", where=where), replace(control(), idle=text))


@pytest.mark.conformance
async def test_an_account_has_one_sender_at_a_time(scene: Scene, clock: FakeClock) -> None:
    """For 15 s from its last claim that renewed it; a slot of another account goes to whoever asks."""
    bot = replace(CHAT, account="second")
    await _say(scene, "a", "b")
    (first,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    await scene.store.slot_sent(first, ("m",))
    await _say(scene, "c", where=bot)
    (other,) = await scene.store.claim_slots(OTHER_NODE, ["telegram"], 1)
    assert other.conversation == bot
    clock.advance(LEASE_S - 0.1)
    assert await scene.store.claim_slots(OTHER_NODE, ["telegram"], 5) == []
    clock.advance(0.1)
    (second,) = await scene.store.claim_slots(OTHER_NODE, ["telegram"], 5)
    assert second.text == "b"


async def test_claims_of_a_sender_renew_its_lease(scene: Scene, clock: FakeClock) -> None:
    """Not with each claim: a commit costs more than a lease that ends a little early."""
    await _say(scene, "a", "b", "c")
    for after_s in (0, 4, 6):
        clock.advance(after_s)
        (slot,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
        await scene.store.slot_sent(slot, ("m",))
    await _say(scene, "d")
    clock.advance(LEASE_S - 0.1)
    assert await scene.store.claim_slots(OTHER_NODE, ["telegram"], 5) == []
    (slot,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    assert slot.text == "d"


async def test_a_later_life_of_the_sender_sends_on(scene: Scene) -> None:
    """Its earlier life sends nothing any more."""
    await _say(scene, "a", "b")
    (slot,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    await scene.store.slot_sent(slot, ("m",))
    assert await scene.store.claim_slots(NodeId("here#2"), ["telegram"], 5)


async def test_released_sender_wakes_another(scene: Scene) -> None:
    """And for another holder of what it held."""
    await _say(scene, "a", "b")
    (slot,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    await scene.store.slot_sent(slot, ("m",))
    assert await scene.store.hold("telegram/main", NODE, seconds(60))
    async with scene.store.event_bus.subscribe(SLOTS) as wakes:
        await scene.store.leave(NODE)
        assert await anext(wakes) == SlotsDue()
    assert await scene.store.claim_slots(OTHER_NODE, ["telegram"], 5)
    assert await scene.store.hold("telegram/main", OTHER_NODE, seconds(60))
