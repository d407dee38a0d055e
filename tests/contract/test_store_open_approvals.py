"""`TurnJournal.open_waits` with a limit, and the order of cards: nobody can flood an owner."""

from __future__ import annotations

import pytest

from gateway.domain.ids import Principal, SessionId
from gateway.domain.routes import Route
from gateway.domain.sessions import Origin, SessionKind
from gateway.domain.slots import NewSlot, Slot, SlotKind
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnKind
from gateway.domain.waits import NewWait, WaitKind
from tests.contract.scene import NODE, Scene
from tests.support.makers import BOB, CHAT, answer, card, chat, deny, new_wait, said, seconds

GROUP = Route(session=SessionId("group:1"), kind=SessionKind.NON_MAIN, origin=Origin.GROUP, owner=None, title="A group")
OTHER_GROUP = Route(
    session=SessionId("group:2"), kind=SessionKind.NON_MAIN, origin=Origin.GROUP, owner=None, title="Another group"
)
CARL = Principal("telegram:3003")


async def planned(scene: Scene, calls: int = 1, *, to: Route = GROUP, who: Principal = BOB) -> Lease:
    """A running command turn with so many planned calls."""
    accepted = await scene.say(to=to, who=who, where=chat(7), kind=TurnKind.COMMAND)
    lease = await scene.claim()
    assert lease.turn == accepted.turn
    await scene.store.plan(lease, answer(calls=calls), given=[], slots=[])
    return lease


def waits_of(scene: Scene, calls: int, kind: WaitKind = WaitKind.APPROVAL) -> list[NewWait]:
    """A wait for each call, the first one being step 1."""
    ttl = seconds(3600)
    return [new_wait(n, expires_in=ttl, kind=kind) for n in range(1, calls + 1)]


async def ask(scene: Scene, lease: Lease, calls: int, *, most: int | None) -> tuple[int | None, list[NewWait]]:
    """Ask about so many calls of a turn with one card in the owner's chat; how many were opened."""
    waits = waits_of(scene, calls)
    slots = [card(*(wait.id for wait in waits)), NewSlot(conversation=chat(7), kind=SlotKind.NOTE, text="asked")]
    return await scene.store.open_waits(lease, waits, slots, most=most), waits


async def test_approvals_open_as_far_as_the_limit_leaves_room(scene: Scene) -> None:
    """The first ones open, and the card has no row of the others, whose steps stay planned."""
    lease = await planned(scene, 5)
    opened, waits = await ask(scene, lease, 5, most=3)
    view = await scene.view(lease.turn)
    assert (opened, [wait.id for wait in view.waits]) == (3, [wait.id for wait in waits[:3]])
    assert [step.state for step in view.steps[1:]] == [StepState.ASKED] * 3 + [StepState.PLANNED] * 2
    (shown,) = await scene.slots(GROUP.session, kind=SlotKind.CARD)
    assert shown.waits == tuple(wait.id for wait in waits[:3])


async def test_approvals_of_other_turns_of_the_requester_count(scene: Scene) -> None:
    """The second turn finds no room: nothing is stored, neither card nor note."""
    assert (await ask(scene, await planned(scene, 3), 3, most=3))[0] == 3
    lease = await planned(scene)
    before = await scene.rows(GROUP.session)
    assert (await ask(scene, lease, 1, most=3))[0] == 0
    assert await scene.rows(GROUP.session) == before


async def test_approvals_of_others_and_elsewhere_do_not_count(scene: Scene) -> None:
    """The limit is for one person in one session."""
    assert (await ask(scene, await planned(scene, 3), 3, most=3))[0] == 3
    assert (await ask(scene, await planned(scene, 3, who=CARL), 3, most=3))[0] == 3
    assert (await ask(scene, await planned(scene, 3, to=OTHER_GROUP), 3, most=3))[0] == 3


async def test_decided_approvals_and_other_waits_do_not_count(scene: Scene) -> None:
    """A decision makes room, and a sub-session at work takes none."""
    lease = await planned(scene, 3)
    _, waits = await ask(scene, lease, 3, most=3)
    await scene.press(waits[0].id)
    await scene.press(waits[1].id, deny())
    working = await planned(scene, 1)
    assert await scene.store.open_waits(working, waits_of(scene, 1, WaitKind.CHILD), [])
    assert (await ask(scene, await planned(scene, 3), 3, most=3))[0] == 2


async def test_approvals_have_no_limit_when_none_is_given(scene: Scene) -> None:
    """An owner's own session is not limited."""
    assert (await ask(scene, await planned(scene, 5), 5, most=None))[0] == 5


# --- which goes first to the owner's chat ----------------------------------------------------


async def claimed(scene: Scene) -> list[Slot]:
    """Return the slots claimed for the owner's chat, in order."""
    return [slot for slot in await scene.send_all() if slot.conversation == CHAT]


@pytest.mark.conformance
async def test_own_slots_go_before_cards_of_other_sessions(scene: Scene) -> None:
    """The owner's answer and own card overtake what a group asked for before; these keep their order."""
    first = await planned(scene, 2)
    await ask(scene, first, 2, most=None)
    second = await planned(scene, 1, to=OTHER_GROUP)
    await ask(scene, second, 1, most=None)
    own = await scene.planned(1)
    await scene.store.plan(own, answer(calls=1), given=[], slots=[said("Look.")])
    await scene.ask(own, waits_of(scene, 1))
    left = await claimed(scene)
    assert [(slot.turn, slot.kind) for slot in left] == [
        (own.turn, SlotKind.ANSWER),
        (own.turn, SlotKind.CARD),
        (first.turn, SlotKind.CARD),
        (second.turn, SlotKind.CARD),
    ]


@pytest.mark.conformance
async def test_own_slot_waits_for_the_card_being_sent(scene: Scene) -> None:
    """One message of a conversation at a time, as ever; and a card to be tried again holds up no answer."""
    await ask(scene, await planned(scene), 1, most=None)
    (sending,) = [slot for slot in await scene.store.claim_slots(NODE, ["telegram"], 9) if slot.kind is SlotKind.CARD]
    own = await scene.planned(1)
    await scene.store.plan(own, answer(calls=1), given=[], slots=[said("Look.")])
    assert await claimed(scene) == []
    await scene.store.slot_retry(sending, seconds(60), uncertain=False)
    assert [slot.turn for slot in await claimed(scene)] == [own.turn]
