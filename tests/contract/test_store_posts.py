"""Posts in the store: stored with their result, changed by their session alone, told the message they are about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.ids import SessionId, SlotId, TurnId
from gateway.domain.posts import Post, PostAct, post_slot
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState
from gateway.domain.tools import ResultStatus, ToolResult
from gateway.domain.turns import Lease
from tests.contract.scene import NODE, Scene
from tests.support.makers import CHAT, OTHER_CHAT, route

DONE = ToolResult(status=ResultStatus.OK, text="stored")


def new(turn: TurnId, text: str, post: Post | None = None, *, slot: SlotId | None = None) -> NewSlot:
    own = slot or post_slot(turn, 1)
    return NewSlot(conversation=CHAT, kind=SlotKind.POST, text=text, n=1, id=own, post=post)


async def posted(scene: Scene, slot: NewSlot | None = None, text: str = "one") -> Lease:
    """Finish a call that posts, in a turn that is over then."""
    lease = await scene.planned()
    await scene.store.finish_step(lease, 1, DONE, [slot or new(lease.turn, text)])
    await scene.finish(lease)
    return lease


async def due(scene: Scene) -> list[Slot]:
    return [one for one in await scene.store.claim_slots(NODE, ["telegram"], 50) if one.kind is SlotKind.POST]


@pytest.mark.conformance
async def test_a_post_comes_back_with_all_that_it_says(scene: Scene) -> None:
    post = Post(act=PostAct.POLL, conversation=OTHER_CHAT, options=("Mon \U0001f44d", "Tue"))
    lease = await scene.planned()
    result = replace(DONE, posts=(replace(post, text="Which day?"),))
    await scene.store.finish_step(lease, 1, result, [new(lease.turn, "Which day?", post)])
    assert await scene.store.finish_step(lease, 1, result, [new(lease.turn, "Twice", post)]) is None
    (slot,) = await due(scene)
    assert (slot.post, slot.text, slot.version) == (post, "Which day?", 1)
    assert (await scene.store.turn(lease.turn)).steps[1].result == result
    assert await scene.slot(slot.id) == slot


async def test_an_edit_is_a_version_of_the_same_slot(scene: Scene) -> None:
    first = await posted(scene)
    (slot,) = await due(scene)
    await scene.store.slot_sent(slot, ("41",))
    await posted(scene, new(first.turn, "two", slot=slot.id))
    (again,) = await due(scene)
    assert (again.id, again.text, again.version, again.message_ids) == (slot.id, "two", 2, ("41",))


async def test_an_edit_of_another_sessions_post_changes_nothing(scene: Scene) -> None:
    first = await posted(scene)
    (slot,) = await due(scene)
    await scene.store.slot_sent(slot, ("41",))
    lease = await scene.planned(to=route(SessionId("chat:telegram/default/-1003")))
    await scene.store.finish_step(lease, 1, DONE, [new(first.turn, "mine", slot=slot.id)])
    assert await due(scene) == []
    kept = await scene.slot(slot.id)
    assert (kept.text, kept.state) == ("one", SlotState.SENT)


@pytest.mark.parametrize(("shown", "told"), [(("41", "42"), "41"), ((), "")])
async def test_a_pin_is_told_the_message_when_it_is_claimed(scene: Scene, shown: tuple[str, ...], told: str) -> None:
    first = await posted(scene)
    (slot,) = await due(scene)
    await (scene.store.slot_sent(slot, shown) if shown else scene.store.slot_dead(slot, "blocked"))
    pin = Post(act=PostAct.PIN, conversation=CHAT, slot=post_slot(first.turn, 1))
    lease = await scene.planned()
    await scene.store.finish_step(lease, 1, DONE, [new(lease.turn, "", pin)])
    (claimed,) = await due(scene)
    assert claimed.post == replace(pin, message=told)
    assert await scene.slot(claimed.id) == claimed
