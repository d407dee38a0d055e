from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.ids import Principal, TurnId
from gateway.domain.messages import Conversation, Inbound, Refused, RefusedReason
from gateway.domain.prompts import UserText
from gateway.domain.tools import Risk
from gateway.inbound.commands import GREETING
from gateway.inbound.reply_texts import stranger_text
from tests.support.engine import Engine
from tests.support.fakes import GROUP, NODE, FakeTool
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT, inbound

STRANGER = Principal("telegram:9009")
NOWHERE = Conversation(channel="telegram", account="default", chat="9009")
GROUP_SESSION = "chat:telegram/default/-1003"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)])


def counted(engine: Engine, outcome: str) -> float:
    return engine.metrics.registry.get_sample_value("dragoman_messages_total", {"outcome": outcome}) or 0


async def due(engine: Engine) -> list[str]:
    """Return the texts that are due, and mark them sent."""
    found: list[str] = []
    while slots := await engine.store.claim_slots(NODE, ["telegram"], 50):
        found += [slot.text for slot in slots]
        for slot in slots:
            await engine.store.slot_sent(slot, (f"m-{slot.id}",))
    return found


async def texts(engine: Engine, turn: TurnId) -> list[str]:
    return [one.message.text for one in (await engine.store.turn(turn)).inputs]


def edit(of: str, text: str, *, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT) -> Inbound:
    return replace(inbound(text, who=who, where=where, direct=where != GROUP), edits=of)


async def said(engine: Engine, text: str = "helo", key: str = "m1") -> TurnId:
    accepted = await engine.ingress.message(inbound(text, key=key))
    assert accepted is not None
    return accepted.turn


# --- edits --------------------------------------------------------------------------------------


async def test_a_message_that_was_not_read_yet_is_corrected(engine: Engine) -> None:
    turn = await said(engine)
    assert await engine.ingress.message(edit("m1", "hello")) is None

    assert await texts(engine, turn) == ["hello"]
    assert counted(engine, "amended") == 1
    assert (await engine.store.counts()).queued_turns == 1


async def test_late_edit_starts_nothing_and_is_not_answered(engine: Engine) -> None:
    turn = await said(engine)
    await engine.run(await engine.claim())
    await due(engine)
    for text in ("hello", "/stop", "/shell ls"):
        assert await engine.ingress.message(edit("m1", text)) is None

    assert await texts(engine, turn) == ["helo"]
    assert (counted(engine, "edited_late"), counted(engine, "control")) == (3, 0)
    assert (await engine.store.counts()).queued_turns == 0
    assert await due(engine) == []


async def test_a_new_text_is_never_a_command(engine: Engine) -> None:
    turn = await said(engine)
    await engine.ingress.message(edit("m1", "/stop"))

    assert await texts(engine, turn) == ["/stop"]
    assert counted(engine, "control") == 0


@pytest.mark.parametrize(("who", "where"), [(BOB, GROUP), (ANN_TELEGRAM, GROUP), (STRANGER, CHAT), (BOB, CHAT)])
async def test_nobody_edits_what_is_not_theirs_or_not_there(
    engine: Engine, who: Principal, where: Conversation
) -> None:
    turn = await said(engine)
    await engine.ingress.message(edit("m1", "something else", who=who, where=where))

    assert await texts(engine, turn) == ["helo"]
    assert (await engine.store.counts()).queued_turns == 1


async def test_a_strangers_edits_are_a_strangers_messages(engine: Engine) -> None:
    for i in range(3):
        await engine.ingress.message(edit(f"m{i}", "let me in", who=STRANGER, where=NOWHERE))

    assert await due(engine) == [stranger_text(STRANGER)]
    assert counted(engine, "stranger") == 3
    assert await engine.store.sessions() == []


async def test_edit_in_a_group_counts_without_naming_the_bot(engine: Engine) -> None:
    accepted = await engine.ingress.message(inbound("@bot helo", where=GROUP, direct=False, key="m1"))
    assert accepted is not None
    await engine.ingress.message(replace(edit("m1", "hello", where=GROUP), addressed=False))

    assert await texts(engine, accepted.turn) == ["hello"]


async def test_a_place_that_is_shared_live_is_answered_once(engine: Engine) -> None:
    await engine.ingress.message(replace(inbound("", key="m1"), unread="a place"))
    for _ in range(5):
        await engine.ingress.message(replace(edit("m1", ""), unread="a place"))

    assert await due(engine) == ["I cannot read a place yet. Write it as text, please."]
    assert counted(engine, "unreadable") == 6


# --- what starts nothing ------------------------------------------------------------------------


async def test_unreadable_message_is_answered_and_a_caption_is_read(engine: Engine) -> None:
    photo = replace(inbound(""), unread="a photo")
    assert await engine.ingress.message(photo) is None
    assert await engine.ingress.message(photo) is None  # told again by the platform
    assert await due(engine) == ["I cannot read a photo yet. Write it as text, please."]

    turn = await engine.ingress.message(replace(inbound("what is it?"), unread="a photo"))
    assert turn is not None


async def test_a_strangers_photo_is_a_strangers_message(engine: Engine) -> None:
    await engine.ingress.message(replace(inbound("", who=STRANGER, where=NOWHERE), unread="a photo"))

    assert await due(engine) == [stranger_text(STRANGER)]


async def test_overheard_messages_come_with_the_next_turn_as_data(engine: Engine) -> None:
    """c14: others' words are data for the turn, not part of its text, and give it no rights."""
    for text in ("lunch?", "/shell reboot", "/stop"):
        message = replace(inbound(text, who=STRANGER, where=GROUP, direct=False), addressed=False, name="Eve")
        assert await engine.ingress.message(message) is None
    assert (await engine.store.counts()).queued_turns == 0
    assert counted(engine, "context") == 3

    turn = await engine.say("when?", who=BOB, where=GROUP)
    await engine.run(await engine.claim())
    (asked,) = engine.model.requests[0].messages
    assert (await engine.store.turn(turn)).turn.principal == BOB
    assert isinstance(asked, UserText)
    assert asked.text == "when?"
    assert all(f'"Eve" {STRANGER}: {text}' in asked.data for text in ("lunch?", "/shell reboot", "/stop"))
    assert await engine.texts(session=GROUP_SESSION) == ["That is all."]


async def test_an_event_that_is_no_message_is_kept_and_counted_once(engine: Engine) -> None:
    refused = Refused(
        channel="telegram",
        account="default",
        event_key="u1",
        reason=RefusedReason.POISON,
        detail="no chat",
        raw="{}",
    )
    await engine.ingress.refuse(refused)
    await engine.ingress.refuse(refused)

    assert (counted(engine, "poison"), counted(engine, "duplicate")) == (1, 1)
    assert await engine.store.sessions() == []


async def test_start_greets_an_allowed_person_and_nobody_else(engine: Engine) -> None:
    await engine.ingress.message(inbound("/start"))
    (greeting,) = await due(engine)
    assert greeting.startswith(f"{GREETING}\n\n")
    assert "/help" in greeting

    await engine.ingress.message(inbound("/start", who=STRANGER, where=NOWHERE))
    assert stranger_text(STRANGER) in await due(engine)
    assert (await engine.store.counts()).queued_turns == 0
