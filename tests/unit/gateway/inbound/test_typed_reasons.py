"""Denial reasons that come later, as a reply to the card, because the platform's buttons carry no text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.ids import Principal, SessionId, WaitId
from gateway.domain.messages import Conversation, Press
from gateway.domain.routes import Accepted
from gateway.domain.sessions import Session
from gateway.domain.steps import Answer
from gateway.domain.tools import Effect, ResultStatus, Risk
from gateway.domain.turns import TurnState
from gateway.domain.waits import Pressed, PressResult, Verb, Wait, WaitState
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, CLEO_CHAT, CLEO_TELEGRAM, GROUP, NODE, FakeTool, calls
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, attachment, inbound

STRANGER = Principal("telegram:9009")


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
    return Engine(tmp_path, [shell], script=[calls("shell:a", "shell:b"), Answer(text="As you wish.")])


async def asked(engine: Engine) -> tuple[Wait, Wait]:
    """Open two waits of one answer, on one card that Ann's chat shows as the messages c1 and c2."""
    turn = await engine.say("do it")
    await engine.run(await engine.claim())
    await sent(engine)
    first, second = await engine.waits(turn)
    return first, second


async def sent(engine: Engine) -> None:
    for slot in await engine.store.claim_slots(NODE, ["telegram"], 50):
        await engine.store.slot_sent(slot, ("c1", "c2") if slot.waits else (f"m-{slot.id}",))


async def press(
    engine: Engine,
    wait: Wait,
    verb: Verb = Verb.DENY_REASON,
    *,
    who: Principal = ANN_TELEGRAM,
    where: Conversation = CHAT,
    key: str = "",
) -> Pressed:
    """Return a press on a platform whose buttons carry no text."""
    (card,) = [slot for slot in await engine.store.card_slots(wait.id) if slot.conversation == CHAT]
    handle = engine.tokens.make(wait.id, card.id, verb)
    event = key or f"q-{wait.id}-{verb}-{who}"
    return await engine.ingress.press(
        Press(event_key=event, conversation=where, principal=who, handle=handle, can_ask_reason=True)
    )


async def reply(
    engine: Engine,
    text: str = "too dangerous",
    *,
    to: str = "c2",
    who: Principal = ANN_TELEGRAM,
    where: Conversation = CHAT,
    key: str | None = None,
    cut: bool = False,
) -> Accepted | None:
    message = inbound(text, who=who, where=where, direct=where != GROUP, key=key)
    return await engine.ingress.message(replace(message, reply_to=to, cut=cut))


async def state(engine: Engine, wait: WaitId) -> WaitState:
    found = await engine.store.wait(wait)
    assert found is not None
    return found.state


async def test_reply_after_the_press_denies_with_its_reason(engine: Engine) -> None:
    first, second = await asked(engine)
    assert (await press(engine, first)).result is PressResult.ASK_REASON
    assert await state(engine, first.id) is WaitState.OPEN

    assert await reply(engine, "  too dangerous ") is None
    denied = await engine.store.wait(first.id)
    assert denied is not None
    assert (denied.state, denied.decided_by, denied.reason) == (WaitState.DENIED, ANN_TELEGRAM, "too dangerous")
    assert await state(engine, second.id) is WaitState.CANCELLED

    await engine.run(await engine.claim())
    assert await engine.results(first.turn) == [ResultStatus.DENIED, ResultStatus.CANCELLED]
    assert "too dangerous" in (await engine.result(first.turn, 1)).hint
    view = await engine.store.turn(first.turn)
    assert [one.message.text for one in view.inputs] == ["do it"]
    assert view.turn.state is TurnState.DONE


async def test_a_voice_message_is_no_reason(engine: Engine) -> None:
    """Its words are not known yet, and a transcript may be wrong."""
    first, _ = await asked(engine)
    await press(engine, first)
    note = replace(attachment("voice.ogg", media_type="audio/ogg"), spoken=True)
    accepted = await engine.ingress.message(replace(inbound(""), reply_to="c2", attachments=(note,)))

    assert accepted is not None
    assert await state(engine, first.id) is WaitState.OPEN


async def test_a_reason_that_came_with_the_press_denies_at_once(engine: Engine) -> None:
    first, _ = await asked(engine)
    pressed = await engine.press(first.id, Verb.DENY_REASON, reason="no")

    assert pressed.result is PressResult.DENIED
    assert pressed.wait is not None
    assert pressed.wait.reason == "no"


async def test_empty_reason_denies_at_once_where_buttons_carry_text(engine: Engine) -> None:
    first, _ = await asked(engine)

    assert (await engine.press(first.id, Verb.DENY_REASON)).result is PressResult.DENIED


async def test_a_plain_denial_asks_for_nothing(engine: Engine) -> None:
    first, second = await asked(engine)

    assert (await press(engine, first, Verb.DENY)).result is PressResult.DENIED
    assert await state(engine, second.id) is WaitState.OPEN
    assert await reply(engine) is not None


@pytest.mark.parametrize("text", ["yes, approve", "allow it", "Once", "approved", "/usr/bin/true is fine, allow it"])
async def test_no_text_approves_whatever_it_says(engine: Engine, text: str) -> None:
    first, second = await asked(engine)
    await reply(engine, text)  # nobody pressed: a message like any other
    assert (await state(engine, first.id), await state(engine, second.id)) == (WaitState.OPEN, WaitState.OPEN)

    await press(engine, first)
    assert await reply(engine, text) is None
    assert await state(engine, first.id) is WaitState.DENIED


async def test_a_reply_to_a_card_without_a_press_is_a_message(engine: Engine) -> None:
    first, _ = await asked(engine)

    assert await reply(engine, "what does it do?") is not None
    assert await state(engine, first.id) is WaitState.OPEN


@pytest.mark.parametrize(
    ("who", "where", "to"),
    [
        (CLEO_TELEGRAM, CLEO_CHAT, "c2"),  # another person, elsewhere
        (CLEO_TELEGRAM, CHAT, "c2"),  # another person on the very card
        (BOB, BOB_CHAT, "c2"),
        (STRANGER, CHAT, "c2"),
        (ANN_SLACK, OTHER_CHAT, "c2"),  # the same owner, another principal
        (ANN_TELEGRAM, GROUP, "c2"),  # another conversation
        (ANN_TELEGRAM, replace(CHAT, thread="7"), "c2"),
        (ANN_TELEGRAM, CHAT, "c3"),  # another message
        (ANN_TELEGRAM, CHAT, "c"),
        (ANN_TELEGRAM, CHAT, "c1,c2"),
        (ANN_TELEGRAM, CHAT, ","),
        (ANN_TELEGRAM, CHAT, ""),  # no reply at all
    ],
)
async def test_only_the_presser_gives_the_reason_on_the_same_card(
    engine: Engine, who: Principal, where: Conversation, to: str
) -> None:
    first, second = await asked(engine)
    await press(engine, first)
    accepted = await reply(engine, who=who, where=where, to=to)

    assert (await state(engine, first.id), await state(engine, second.id)) == (WaitState.OPEN, WaitState.OPEN)
    assert (accepted is None) is (who == STRANGER)


@pytest.mark.parametrize("who", [BOB, STRANGER, CLEO_TELEGRAM])
async def test_person_who_may_not_deny_is_not_asked_for_a_reason(engine: Engine, who: Principal) -> None:
    """Ann decides for her main session; Cleo owns another one."""
    first, _ = await asked(engine)

    assert (await press(engine, first, who=who)).result is PressResult.NOT_ALLOWED
    await reply(engine, who=who)
    assert await state(engine, first.id) is WaitState.OPEN


async def test_a_press_from_another_conversation_asks_nothing(engine: Engine) -> None:
    first, _ = await asked(engine)

    assert (await press(engine, first, where=GROUP)).result is PressResult.NOT_VALID
    assert await reply(engine) is not None


async def test_another_card_of_the_same_chat_is_another_decision(engine: Engine) -> None:
    first, _ = await asked(engine)
    await press(engine, first)
    (card,) = await engine.store.card_slots(first.id)
    await engine.store.slot_sent(card, ("c9",))

    assert await reply(engine, to="c2") is not None
    assert await state(engine, first.id) is WaitState.OPEN
    assert await reply(engine, to="c9") is None
    assert await state(engine, first.id) is WaitState.DENIED


async def test_a_reply_after_the_decision_is_a_message(engine: Engine) -> None:
    """After a decision elsewhere, on the page for instance, the reply must not vanish."""
    first, second = await asked(engine)
    await press(engine, first)
    await press(engine, first, Verb.ONCE)

    accepted = await reply(engine, "list the files instead")
    assert accepted is not None
    assert not accepted.duplicate
    assert (await state(engine, first.id), await state(engine, second.id)) == (WaitState.APPROVED, WaitState.OPEN)
    assert set((await engine.store.items(f"reasons/{CHAT.key}")).values()) == {""}


@pytest.mark.parametrize("cut", [False, True])
async def test_a_reply_in_the_moment_of_the_decision_is_a_message(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, *, cut: bool
) -> None:
    """The same holds for its rest, where the platform cut it in two."""
    first, _ = await asked(engine)
    await press(engine, first)
    read = engine.store.session

    async def and_it_is_decided(session: SessionId) -> Session | None:
        monkeypatch.undo()
        assert (await press(engine, first, Verb.ONCE)).result is PressResult.APPROVED
        return await read(session)

    monkeypatch.setattr(engine.store, "session", and_it_is_decided)
    accepted = await reply(engine, "list the files instead", key="m7", cut=cut)
    assert accepted is not None
    assert not accepted.duplicate
    assert await state(engine, first.id) is WaitState.APPROVED
    assert await reply(engine, "all of them", to="", key="m8") is not None
    again = await reply(engine, "list the files instead", key="m7", cut=cut)  # told again by the platform
    assert again is not None
    assert (again.duplicate, again.turn) == (True, accepted.turn)


async def test_a_press_after_the_decision_asks_for_no_reason(engine: Engine) -> None:
    first, _ = await asked(engine)
    await press(engine, first, Verb.ONCE)

    assert (await press(engine, first)).result is PressResult.ALREADY
    assert await reply(engine) is not None


async def test_a_reply_after_the_approval_expired_is_a_message(engine: Engine) -> None:
    first, _ = await asked(engine)
    engine.clock.advance(1800)
    await press(engine, first)
    engine.clock.advance(1801)  # the approval expired, the question did not

    assert await reply(engine) is not None
    assert await state(engine, first.id) is WaitState.OPEN  # the sweep's affair
    assert (await press(engine, first, key="later")).result is PressResult.EXPIRED


async def test_reason_is_not_expected_after_an_hour(engine: Engine) -> None:
    first, _ = await asked(engine)
    await press(engine, first)
    engine.clock.advance(3601)

    assert await reply(engine) is not None


async def test_the_rest_of_a_reason_that_was_cut_off_is_no_message(engine: Engine) -> None:
    """The rest is stored nowhere, and the agent must not take it for a request."""
    first, _ = await asked(engine)
    await press(engine, first)
    assert await reply(engine, "r" * 4050, key="m7", cut=True) is None
    assert await reply(engine, "more", to="", key="m8", cut=True) is None
    assert await reply(engine, "and more", to="", key="m9") is None
    assert await reply(engine, "and more", to="", key="m10") is not None
    denied = await engine.store.wait(first.id)
    assert denied is not None
    assert denied.reason == "r" * 1000


@pytest.mark.parametrize(
    ("after_s", "change"),
    [(1.5, {}), (0, {"follows": "m6"}), (0, {"reply_to": "c1"}), (0, {"principal": BOB}), (0, {"conversation": GROUP})],
)
async def test_unrelated_message_after_a_cut_reason_is_a_message(
    engine: Engine, after_s: float, change: dict[str, Any]
) -> None:
    """Too late, after another message, a reply, of another person, in another chat."""
    first, _ = await asked(engine)
    await press(engine, first)
    await reply(engine, "r" * 4050, key="m7", cut=True)
    engine.clock.advance(after_s)
    message = replace(inbound("list the files", key="m8"), **change)
    if message.principal != ANN_TELEGRAM or message.conversation != CHAT:
        message = replace(message, direct=False, conversation=GROUP)

    assert await engine.ingress.message(message) is not None


async def test_the_reason_is_taken_once_and_what_follows_is_a_message(engine: Engine) -> None:
    first, _ = await asked(engine)
    await press(engine, first)
    assert await reply(engine, "no", key="m7") is None
    again = await reply(engine, "no", key="m7")  # told again by the platform

    assert again is not None
    assert again.duplicate
    assert await reply(engine, "try it with less") is not None
    denied = await engine.store.wait(first.id)
    assert denied is not None
    assert denied.reason == "no"


async def test_repeated_press_still_waits_for_its_reason(engine: Engine) -> None:
    first, _ = await asked(engine)
    assert (await press(engine, first, key="q1")).result is PressResult.ASK_REASON
    assert (await press(engine, first, key="q1")).result is PressResult.DUPLICATE

    assert await reply(engine) is None
    assert await state(engine, first.id) is WaitState.DENIED


async def test_the_reason_is_for_the_button_that_was_pressed_last(engine: Engine) -> None:
    first, second = await asked(engine)
    await press(engine, first)
    await press(engine, second)
    await reply(engine)

    assert (await state(engine, first.id), await state(engine, second.id)) == (
        WaitState.CANCELLED,
        WaitState.DENIED,
    )


@pytest.mark.parametrize("first", [0, 1])
async def test_each_of_two_cards_has_its_own_reason(tmp_path: Path, first: int) -> None:
    """In either order, a reply to one card is neither a request nor a reason for the other card."""
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
    engine = Engine(tmp_path, [shell], script=[Answer(text="hello"), calls("shell:a"), calls("shell:b")])
    await engine.say("hello")  # so that Ann can be reached
    await engine.run(await engine.claim())
    waits = list[Wait]()
    for where in (BOB_CHAT, GROUP):
        turn = await engine.say("do it", who=BOB, where=where)
        await engine.run(await engine.claim())
        waits += await engine.waits(turn)
    while due := await engine.store.claim_slots(NODE, ["telegram"], 50):
        for slot in due:
            await engine.store.slot_sent(slot, (f"m-{slot.id}",))
    for wait in waits:
        assert (await press(engine, wait)).result is PressResult.ASK_REASON

    for n in (first, 1 - first):
        (card,) = [slot for slot in await engine.store.card_slots(waits[n].id) if slot.conversation == CHAT]
        assert await reply(engine, f"reason {n}", to=card.message_ids[0]) is None
    found = [await engine.store.wait(wait.id) for wait in waits]
    assert [(one.state, one.reason) for one in found if one is not None] == [
        (WaitState.DENIED, "reason 0"),
        (WaitState.DENIED, "reason 1"),
    ]


async def test_the_question_outlives_a_restart(engine: Engine, tmp_path: Path) -> None:
    first, _ = await asked(engine)
    await press(engine, first)
    later = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)], store=engine.store)

    assert await reply(later) is None
    assert await state(engine, first.id) is WaitState.DENIED


async def test_former_decider_gives_no_reason(engine: Engine, tmp_path: Path) -> None:
    """Bob asked in the group and may deny; Cleo was an owner when she pressed, and no longer is."""
    await engine.say("hi", who=CLEO_TELEGRAM, where=CLEO_CHAT)
    await engine.claim()
    lease = await engine.planned("shell:ls", who=BOB, where=GROUP)
    await engine.settle(lease)
    await sent(engine)
    (wait,) = await engine.waits(lease.turn)
    (card,) = await engine.store.card_slots(wait.id)
    handle = engine.tokens.make(wait.id, card.id, Verb.DENY_REASON)
    event = Press(event_key="q1", conversation=CLEO_CHAT, principal=CLEO_TELEGRAM, handle=handle, can_ask_reason=True)
    assert (await engine.ingress.press(event)).result is PressResult.ASK_REASON

    people = replace(
        engine.people,
        owners={name: who for name, who in engine.people.owners.items() if name != "cleo"},
        allowed=frozenset([BOB, CLEO_TELEGRAM]),
    )
    later = Engine(tmp_path, people=people, store=engine.store)
    assert await reply(later, who=CLEO_TELEGRAM, where=CLEO_CHAT) is None
    assert await state(engine, wait.id) is WaitState.OPEN


@pytest.mark.parametrize("text", ["/stop", "/status"])
async def test_a_command_is_a_command_also_as_a_reply_to_the_card(engine: Engine, text: str) -> None:
    first, _ = await asked(engine)
    await press(engine, first)
    await reply(engine, text)

    found = await engine.store.wait(first.id)
    assert found is not None
    assert found.reason == ""
    assert found.state is (WaitState.CANCELLED if text == "/stop" else WaitState.OPEN)


async def test_a_photo_or_an_edit_is_no_reason(engine: Engine) -> None:
    first, _ = await asked(engine)
    await press(engine, first)
    await engine.ingress.message(replace(inbound(""), reply_to="c2", unread="a photo"))
    await engine.ingress.message(replace(inbound("no"), reply_to="c2", edits="m1"))

    assert await state(engine, first.id) is WaitState.OPEN
