from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.ids import Handle, Principal, WaitId
from gateway.domain.messages import Conversation, Press
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import Effect, Risk
from gateway.domain.turns import STOPPED_TEXT, TurnKind, TurnState
from gateway.domain.waits import PressResult, Verb, WaitState
from gateway.errors import NotKnownYet
from gateway.inbound.reply_texts import WAITING, stranger_text
from tests.support.engine import Engine
from tests.support.fakes import (
    ANN_PAGE,
    BOB_CHAT,
    CLEO_CHAT,
    CLEO_TELEGRAM,
    GROUP,
    NODE,
    FakeTool,
)
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, inbound
from tests.unit.gateway.toolcalls.subsession_rig import a_child, call, ended, planned, spawning

STRANGER = Principal("telegram:9009")
NOWHERE = Conversation(channel="telegram", account="default", chat="9009")


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
    return Engine(tmp_path, [shell, FakeTool(name="read", risk=Risk.READ)])


def counted(engine: Engine, outcome: str) -> float:
    return engine.metrics.registry.get_sample_value("dragoman_messages_total", {"outcome": outcome}) or 0


async def due(engine: Engine) -> list[tuple[str, str]]:
    """Return chat and text of the slots that are due."""
    slots = await engine.store.claim_slots(NODE, ["telegram", "slack"], 50)
    return [(slot.conversation.chat, slot.text) for slot in slots]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("hello", TurnKind.MODEL), ("/usr/bin is full", TurnKind.MODEL), ("/shell ls", TurnKind.COMMAND)],
)
async def test_a_message_becomes_a_turn_of_its_kind(engine: Engine, text: str, kind: TurnKind) -> None:
    turn = (await engine.store.turn(await engine.say(text))).turn

    assert (turn.kind, turn.state, turn.conversation, turn.principal) == (kind, TurnState.QUEUED, CHAT, ANN_TELEGRAM)
    assert counted(engine, "queued") == 1


async def test_the_same_event_twice_is_one_message(engine: Engine) -> None:
    message = inbound("hello", key="e1")
    first, again = await engine.ingress.message(message), await engine.ingress.message(message)

    assert first is not None
    assert again is not None
    assert (first.duplicate, again.duplicate, again.turn) == (False, True, first.turn)
    assert (await engine.store.counts()).queued_turns == 1
    assert counted(engine, "duplicate") == 1


async def test_message_of_unverified_sender_is_not_stored(engine: Engine) -> None:
    message = replace(inbound("hi", who=STRANGER, where=GROUP, direct=False), outsider=True, unsure=True)
    with pytest.raises(NotKnownYet):
        await engine.ingress.message(message)
    assert counted(engine, "stranger") == 0
    assert await engine.ingress.message(replace(message, outsider=False, unsure=False)) is not None


async def test_stranger_is_refused_once_a_day_and_makes_no_session(engine: Engine) -> None:
    for _ in range(3):
        assert await engine.ingress.message(inbound("hi", who=STRANGER, where=NOWHERE)) is None

    assert await due(engine) == [("9009", stranger_text(STRANGER))]
    assert await engine.store.sessions() == []
    assert counted(engine, "stranger") == 3
    assert "Your id is `telegram:9009`." in stranger_text(STRANGER)
    assert "Your id is `slack:T0AA/U0BB`." in stranger_text(Principal("slack:T0AA/U0BB"))


@pytest.mark.parametrize("text", ["/stop", "/new", "/status", "/sessions", "/approvals", "/shell ls", "/nosuch"])
async def test_a_strangers_command_is_a_strangers_message(engine: Engine, text: str) -> None:
    """c6: a stranger has no other way in, whatever the event."""
    await engine.say("mine")
    before = await engine.store.sessions()
    assert await engine.ingress.message(inbound(text, who=STRANGER, where=NOWHERE)) is None

    assert await engine.store.sessions() == before
    assert await due(engine) == [("9009", stranger_text(STRANGER))]


@pytest.mark.parametrize("name", ["help", "tools", "status", "sessions", "approvals", "nosuch", "STATUS"])
async def test_control_command_is_answered_at_once_and_starts_nothing(engine: Engine, name: str) -> None:
    message = inbound(f"/{name}", key="e1")

    assert await engine.ingress.message(message) is None
    assert await engine.ingress.message(message) is None  # sent again: answered once
    ((chat, text),) = await due(engine)
    assert chat == "1001"
    assert text
    assert (await engine.store.counts()).queued_turns == 0


async def test_stop_says_what_it_did(engine: Engine) -> None:
    await engine.ingress.message(inbound("/stop"))
    assert (await due(engine))[-1] == ("1001", "Nothing is running or waiting here.")

    turn = await engine.say()
    lease = await engine.claim()
    await engine.ingress.message(inbound("/stop"))
    assert (await engine.store.turn(turn)).turn.state is TurnState.STOPPING
    assert await engine.store.renew(lease) is TurnState.STOPPING
    assert (await engine.texts())[-1] == "Stopped."


async def test_member_of_a_group_stops_only_own_turns_and_an_owner_all(engine: Engine) -> None:
    turn = await engine.say(who=ANN_TELEGRAM, where=GROUP)
    await engine.claim()
    stop = replace(inbound("/stop", who=BOB, where=GROUP), direct=False)

    await engine.ingress.message(stop)
    assert (await engine.store.turn(turn)).turn.state is TurnState.RUNNING
    await engine.ingress.message(replace(stop, principal=CLEO_TELEGRAM, event_key="e2"))
    assert (await engine.store.turn(turn)).turn.state is TurnState.STOPPING


async def test_new_history_in_a_group_is_for_owners_only(engine: Engine) -> None:
    group = "chat:telegram/default/-1003"
    await engine.say(who=BOB, where=GROUP)
    new = replace(inbound("/new", who=BOB, where=GROUP), direct=False)
    await engine.ingress.message(new)

    assert (await engine.texts(session=group))[-1] == "Only an owner can begin a new history here."
    await engine.ingress.message(replace(new, principal=ANN_TELEGRAM, event_key="e2"))
    assert (await engine.texts(session=group))[-1] == "A new history begins here."
    await engine.ingress.message(inbound("/new", who=BOB, where=BOB_CHAT))
    assert (await engine.texts(session="dm:telegram/default/2002"))[-1] == "A new history begins here."


async def test_message_during_an_open_decision_is_acknowledged(engine: Engine) -> None:
    lease = await engine.planned("shell:ls")
    await engine.settle(lease)
    assert await engine.store.park(lease)
    await engine.say("hurry up")

    assert WAITING.decision in await engine.texts()
    assert counted(engine, "steered") == 1


async def test_steering_is_for_the_same_person_in_the_same_place(engine: Engine) -> None:
    turn = await engine.say()
    await engine.claim()

    assert await engine.say("and this") == turn
    assert await engine.say("from elsewhere", who=ANN_SLACK, where=OTHER_CHAT) != turn


async def test_two_people_never_share_a_turn_in_a_group(engine: Engine) -> None:
    """c14: a stranger's text is never in a turn with an owner's rights."""
    first = await engine.say("as a guest", who=STRANGER, where=GROUP)
    await engine.claim()
    second = await engine.say("as an owner", who=ANN_TELEGRAM, where=GROUP)

    assert first != second
    view = await engine.store.turn(second)
    assert [one.message.text for one in view.inputs] == ["as an owner"]
    assert view.turn.principal == ANN_TELEGRAM


async def test_without_steering_every_message_has_its_turn(tmp_path: Path) -> None:
    engine = Engine(tmp_path, steer=False)
    first = await engine.say()
    await engine.claim()

    assert await engine.say("and this") != first


async def test_interrupting_message_ends_the_running_turn_and_is_next(tmp_path: Path) -> None:
    engine = Engine(tmp_path, running=WhileRunning.INTERRUPT)
    first = await engine.say()
    lease = await engine.claim()
    second = await engine.say("no, this")

    assert second != first
    assert await engine.store.renew(lease) is TurnState.STOPPING


# --- sub-sessions and costs ---------------------------------------------------------------------


async def test_spawn_by_hand_goes_beside_the_model_turn(tmp_path: Path) -> None:
    spawn = FakeTool(name="sessions_spawn").tool()
    engine = Engine(tmp_path, [replace(spawn, spec=replace(spawn.spec, command="spawn"))])
    running = await engine.say()
    await engine.claim()
    by_hand = await engine.say("/spawn count the files")

    assert by_hand != running
    assert (await engine.store.turn(by_hand)).turn.kind is TurnKind.COMMAND
    await engine.ingress.message(inbound("/spwan x"))
    assert "Did you mean `/spawn`?" in (await engine.texts())[-1]


async def test_message_during_a_wait_for_children_names_no_card(tmp_path: Path) -> None:
    engine = spawning(tmp_path)
    parent, _ = await a_child(engine)
    assert await engine.store.park(parent)
    await engine.say("how far are you?")

    texts = await engine.texts()
    assert WAITING.children in texts
    assert WAITING.decision not in texts


async def test_lists_have_roots_live_children_and_every_approval(tmp_path: Path) -> None:
    """Sub-sessions do not push a waiting group out of the lists."""
    engine = spawning(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)])
    await engine.say("hi")
    await ended(engine, await engine.claim(), "hello")
    group = await engine.planned("shell:ls", who=BOB, where=GROUP)
    assert not await engine.settle(group)
    for _ in range(42):
        parent = await planned(engine, *(call("sessions_spawn", n, task=f"count {n}") for n in range(5)))
        while not await engine.settle(parent):
            for claimed in await engine.store.claim(NODE, 5):
                await ended(engine, claimed.lease, "done")
        await ended(engine, parent, "all of them")
    _, live = await a_child(engine)
    await engine.ingress.message(inbound("/sessions"))
    await engine.ingress.message(inbound("/approvals"))

    sessions, approvals = (await engine.texts())[-2:]
    assert [line.split("`")[1] for line in sessions.splitlines() if line.startswith("- ")] == [
        live.session,
        "main:ann",
        "chat:telegram/default/-1003",
    ]
    assert "- `shell` in `chat:telegram/default/-1003`" in approvals


@pytest.mark.parametrize(
    ("who", "where", "session", "told", "not_told"),
    [
        # An owner, directly: all that the owner is, and everybody.
        (ANN_TELEGRAM, CHAT, "main:ann", ["Everybody, today", "2 answers, 222 tokens read"], []),
        # In a group everybody reads along, so it is about who asks alone.
        (BOB, GROUP, "chat:telegram/default/-1003", ["You, today"], ["Everybody", "111", "222", "big"]),
        (ANN_TELEGRAM, GROUP, "chat:telegram/default/-1003", ["- 111 tokens read"], ["Everybody", "222", "big"]),
    ],
)
async def test_usage_lists_own_use_and_all_use_for_owners_in_main(
    engine: Engine, who: Principal, where: Conversation, session: str, told: list[str], not_told: list[str]
) -> None:
    for speaker, place in ((ANN_TELEGRAM, CHAT), (ANN_SLACK, OTHER_CHAT)):
        await engine.say("hi", who=speaker, where=place)
        lease = await engine.claim()
        answer = Answer(text="Yes.", model="big", usage=Usage(input_tokens=111, output_tokens=1))
        given = (await engine.store.turn(lease.turn)).inputs
        await engine.store.finish_turn(lease, TurnState.DONE, answer=answer, given=given, slots=[], timers=[])
    await engine.ingress.message(inbound("/usage", who=who, where=where, direct=where != GROUP))

    text = (await engine.texts(session=session))[-1]
    for words in told:
        assert words in text
    for words in not_told:
        assert words not in text


# --- presses ------------------------------------------------------------------------------------


async def waiting_in_group(engine: Engine) -> WaitId:
    """Park Bob's call in the group; Ann is asked in her chat and Cleo in hers."""
    await engine.say("hi", who=ANN_TELEGRAM, where=CHAT)
    await engine.say("hi", who=CLEO_TELEGRAM, where=CLEO_CHAT)
    for _ in range(2):
        await engine.claim()
    lease = await engine.planned("shell:ls", who=BOB, where=GROUP)
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    assert [slot.conversation for slot in await engine.store.card_slots(wait.id)] == [CHAT, CLEO_CHAT]
    return wait.id


@pytest.mark.parametrize(
    ("who", "where", "verb", "result"),
    [
        (ANN_TELEGRAM, CHAT, Verb.ONCE, PressResult.APPROVED),
        (CLEO_TELEGRAM, CLEO_CHAT, Verb.DENY, PressResult.DENIED),
        (BOB, CHAT, Verb.ONCE, PressResult.NOT_ALLOWED),
        (STRANGER, CHAT, Verb.ONCE, PressResult.NOT_ALLOWED),
        (STRANGER, CHAT, Verb.DENY, PressResult.NOT_ALLOWED),
        (BOB, CHAT, Verb.DENY, PressResult.DENIED),  # who asked may take it back
        (ANN_TELEGRAM, GROUP, Verb.ONCE, PressResult.NOT_VALID),  # no card stands there
        (Principal("telegram:ann"), CHAT, Verb.ONCE, PressResult.NOT_ALLOWED),
    ],
)
async def test_a_press_counts_by_who_pressed_where(
    engine: Engine, who: Principal, where: Conversation, verb: Verb, result: PressResult
) -> None:
    """c7: a press of the wrong approver leaves it open."""
    wait = await waiting_in_group(engine)
    pressed = await engine.press(wait, verb, who=who, where=where)

    assert pressed.result is result
    found = await engine.store.wait(wait)
    assert found is not None
    decided = result in (PressResult.APPROVED, PressResult.DENIED)
    assert (found.state is WaitState.OPEN) is not decided
    assert found.decided_by == (who if decided else None)


async def test_handle_pressed_in_another_chat_is_not_valid(engine: Engine) -> None:
    wait = await waiting_in_group(engine)
    (anns, _) = await engine.store.card_slots(wait)
    handle = engine.tokens.make(wait, anns.id, Verb.ONCE)

    for place in (CLEO_CHAT, GROUP, ANN_PAGE):
        press = Press(event_key=f"p{place.chat}", conversation=place, principal=ANN_TELEGRAM, handle=handle)
        assert (await engine.ingress.press(press)).result is PressResult.NOT_VALID


async def test_page_may_press_every_approval_of_its_owner(engine: Engine) -> None:
    wait = await waiting_in_group(engine)

    pressed = await engine.press(wait, who=Principal("web:ann"), where=ANN_PAGE)
    assert pressed.result is PressResult.APPROVED


@pytest.mark.parametrize("handle", ["", "x", "w0", "w" + "0" * 16 + "." + "A" * 22, "\x00" * 40, "\ud800" * 40])
async def test_a_forged_handle_changes_nothing(engine: Engine, handle: str) -> None:
    press = Press(event_key="p1", conversation=CHAT, principal=ANN_TELEGRAM, handle=Handle(handle))

    assert (await engine.ingress.press(press)).result is PressResult.NOT_VALID
    assert (await engine.ingress.press(press)).result is PressResult.DUPLICATE


async def test_the_second_press_and_a_late_one_change_nothing(engine: Engine) -> None:
    wait = await waiting_in_group(engine)
    assert (await engine.press(wait)).result is PressResult.APPROVED
    assert (await engine.press(wait, Verb.DENY, who=CLEO_TELEGRAM, where=CLEO_CHAT)).result is PressResult.ALREADY


async def test_a_late_press_is_told_that_nothing_was_run(engine: Engine) -> None:
    wait = await waiting_in_group(engine)
    engine.clock.advance(901)

    assert (await engine.press(wait)).result is PressResult.EXPIRED
    found = await engine.store.wait(wait)
    assert found is not None
    assert found.decided_by is None


async def test_former_approver_may_not_press(engine: Engine, tmp_path: Path) -> None:
    wait = await waiting_in_group(engine)
    without_cleo = replace(engine.people, owners={k: v for k, v in engine.people.owners.items() if k != "cleo"})
    later = Engine(tmp_path, people=without_cleo, store=engine.store)

    pressed = await later.press(wait, who=CLEO_TELEGRAM, where=CLEO_CHAT)
    assert pressed.result is PressResult.NOT_ALLOWED


async def test_presses_are_counted_and_text_is_never_consent(engine: Engine) -> None:
    wait = await waiting_in_group(engine)
    await engine.ingress.message(inbound("yes, approve it"))
    await engine.ingress.message(inbound(f"/approve {wait}"))

    found = await engine.store.wait(wait)
    assert found is not None
    assert found.state is WaitState.OPEN
    await engine.press(wait, Verb.DENY)
    sample = engine.metrics.registry.get_sample_value("dragoman_presses_total", {"outcome": "denied"})
    assert sample == 1
    assert STOPPED_TEXT == "Stopped."
    assert SlotKind.NOTE in {slot.kind for slot in await engine.slots(session="chat:telegram/default/-1003")}
