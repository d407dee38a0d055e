"""`KeyValue` and `Outbox.tell_owners`: values that outlive a restart, and notices to owners."""

from __future__ import annotations

import pytest

from gateway.domain.events import SESSIONS, Changed
from gateway.domain.ids import OwnerName, Principal, main_session, web_principal
from gateway.domain.messages import Conversation
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.ports import Store
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, CHAT, OTHER_CHAT, PAGE, seconds

CLEO = OwnerName("cleo")
OWNERS = {ANN: [ANN_TELEGRAM, ANN_SLACK, web_principal(ANN)]}


# --- notes ----------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_a_note_is_kept_in_its_room_for_its_time(store: Store, clock: FakeClock) -> None:
    """The newest of a key; rooms do not see each other. By the store's clock; one without a time stays."""
    await store.put("bans", "b", "1")
    await store.put("bans", "a", "1", seconds(10))
    await store.put("bans", "b", "2")
    await store.put("chats", "b", "4")
    assert (await store.items("chats"), await store.items("none")) == ({"b": "4"}, {})
    clock.advance(9.9)
    assert await store.items("bans") == {"a": "1", "b": "2"}
    assert await store.get("bans", "a") == "1"
    clock.advance(0.1)
    assert await store.items("bans") == {"b": "2"}
    assert (await store.get("bans", "a"), await store.get("bans", "b")) == (None, "2")
    assert await store.get("chats", "a") is None
    await store.put("bans", "c", "3", seconds(1))
    assert await store.items("bans") == {"b": "2", "c": "3"}


async def test_a_note_takes_the_time_of_its_last_writing(store: Store, clock: FakeClock) -> None:
    """Also none at all."""
    await store.put("bans", "a", "1", seconds(10))
    await store.put("bans", "b", "1", seconds(10))
    clock.advance(5)
    await store.put("bans", "a", "2", seconds(10))
    await store.put("bans", "b", "2")
    clock.advance(6)
    assert await store.items("bans") == {"a": "2", "b": "2"}
    clock.advance(4)
    assert await store.items("bans") == {"b": "2"}


# --- tell_owners ----------------------------------------------------------------------------


async def _due(store: Store) -> list[tuple[Conversation, str]]:
    slots = await store.claim_slots(NODE, ["telegram", "slack", "web"], 50)
    assert all((slot.kind, slot.session) == (SlotKind.REPLY, None) for slot in slots)
    return [(slot.conversation, slot.text) for slot in slots]


async def _on_page(scene: Scene, owner: OwnerName = ANN) -> list[Slot]:
    slots = await scene.slots(main_session(owner))
    return [slot for slot in slots if slot.conversation == Conversation(channel="web", account="page", chat=owner)]


async def test_every_owner_is_told_on_the_page(store: Store, scene: Scene) -> None:
    """In the main session, which is made; nobody wrote from a chat."""
    async with store.event_bus.subscribe(SESSIONS) as heard:
        assert await store.tell_owners("token", "It was revoked.", OWNERS | {CLEO: []})
        assert {await anext(heard), await anext(heard)} == {
            Changed(session=MAIN),
            Changed(session=main_session(CLEO)),
        }
    for owner in (ANN, CLEO):
        (slot,) = await _on_page(scene, owner)
        assert (slot.text, slot.kind, slot.state) == ("It was revoked.", SlotKind.REPLY, SlotState.SENT)
        session = await store.session(main_session(owner))
        assert session is not None
        assert (session.kind, session.owner, session.title) == (SessionKind.MAIN, owner, owner)
    assert await _due(store) == []


async def test_an_owner_is_told_where_they_wrote_last(store: Store, scene: Scene, clock: FakeClock) -> None:
    """In one chat, by any of the principals; the page is told anyway."""
    await scene.say(who=ANN_SLACK, where=OTHER_CHAT)
    clock.advance(1)
    await scene.say(who=ANN_TELEGRAM, where=CHAT)
    clock.advance(1)
    await scene.say(who=web_principal(ANN), where=PAGE)
    assert await store.tell_owners("token", "It was revoked.", OWNERS)
    assert await _due(store) == [(CHAT, "It was revoked.")]
    assert len(await _on_page(scene)) == 1


async def test_only_the_given_principals_are_told(store: Store, scene: Scene) -> None:
    """One that was taken out of the configuration hears nothing."""
    await scene.say()
    assert await store.tell_owners("token", "It was revoked.", {ANN: [Principal("telegram:7")]})
    assert await _due(store) == []


async def test_the_same_notice_is_sent_once_an_hour(store: Store, scene: Scene, clock: FakeClock) -> None:
    """Another thing at once."""
    assert await store.tell_owners("token", "a", OWNERS)
    clock.advance(3599)
    assert not await store.tell_owners("token", "b", OWNERS)
    assert await store.tell_owners("other", "c", OWNERS)
    clock.advance(1)
    assert await store.tell_owners("token", "d", OWNERS)
    assert [slot.text for slot in await _on_page(scene)] == ["a", "c", "d"]


async def test_a_session_that_is_there_stays_as_it_is(store: Store, scene: Scene, clock: FakeClock) -> None:
    """An alert is nobody's activity."""
    await scene.say()
    before = await store.session(MAIN)
    clock.advance(5)
    assert await store.tell_owners("token", "a", OWNERS)
    assert await store.session(MAIN) == before
