"""Sub-sessions as people see them: approvers and conversations, commands, activity."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.ids import Principal, child_session
from gateway.domain.messages import Conversation
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer
from gateway.domain.tools import ApprovalMode, ResultStatus, Risk
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.waits import Verb, WaitKind, WaitState
from gateway.llm.operator import Operator
from gateway.system.cancellation import Cancellation, CancelReason
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, CLEO_CHAT, CLEO_TELEGRAM, GROUP, NODE, FakeTool, ToolBox
from tests.support.makers import BOB, CHAT, inbound
from tests.unit.gateway.toolcalls.subsession_rig import a_child, answered, call, child_wait, ended, planned, spawning


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return spawning(tmp_path, ToolBox().all)


# --- who is asked, and where --------------------------------------------------------------------


async def test_card_of_a_child_of_main_has_its_title(engine: Engine) -> None:
    _, child = await a_child(engine)
    await answered(engine, child, call("shell", text="rm"))
    assert not await engine.settle(child)

    (card,) = [slot for slot in await engine.slots(session=child.session) if slot.kind is SlotKind.CARD]
    assert card.conversation == CHAT
    (wait,) = await engine.waits(child.turn)
    assert ("Sub-session", "count") in engine.approvals.row(wait, card.id).facts
    await engine.press(wait.id, Verb.ONCE)
    assert await engine.settle(child)
    assert (await engine.result(child.turn, 1)).text == "shell rm"


async def test_child_below_a_group_asks_approvers_and_notes_the_group(engine: Engine) -> None:
    await engine.say(who=CLEO_TELEGRAM, where=CLEO_CHAT)
    await ended(engine, await engine.claim(), "hello")
    parent = await planned(engine, call("sessions_spawn", task="count", tools=["read", "write"]), who=BOB, where=GROUP)
    assert not await engine.settle(parent)
    (asked,) = await engine.waits(parent.turn)  # spawning itself is asked for there
    await engine.press(asked.id, who=CLEO_TELEGRAM, where=CLEO_CHAT)
    assert not await engine.settle(parent)

    child = await engine.claim()
    await answered(engine, child, call("write", text="x"))
    assert not await engine.settle(child)
    slots = await engine.slots(session=child.session)
    assert [(slot.kind, slot.conversation) for slot in slots if slot.kind in (SlotKind.CARD, SlotKind.NOTE)] == [
        (SlotKind.CARD, CLEO_CHAT),
        (SlotKind.NOTE, GROUP),
    ]
    (wait,) = await engine.waits(child.turn)
    assert wait.expires_at - wait.opened_at == timedelta(minutes=15)


@pytest.mark.parametrize(("who", "where"), [(BOB, BOB_CHAT), (BOB, GROUP)])
async def test_outside_main_a_person_is_asked_before_a_child_begins(
    engine: Engine, who: Principal, where: Conversation
) -> None:
    await engine.say(who=CLEO_TELEGRAM, where=CLEO_CHAT)
    await ended(engine, await engine.claim(), "hello")
    parent = await planned(engine, call("sessions_spawn", task="x"), who=who, where=where)

    assert not await engine.settle(parent)
    (wait,) = await engine.waits(parent.turn)
    assert (wait.kind, await engine.store.family(parent.session)) == (WaitKind.APPROVAL, [])
    await engine.press(wait.id, who=CLEO_TELEGRAM, where=CLEO_CHAT)
    assert not await engine.settle(parent)
    assert (await child_wait(engine, parent.turn)).state is WaitState.OPEN


async def test_child_of_another_person_cannot_be_stopped_in_a_group(engine: Engine) -> None:
    """As with /stop: a model that works for somebody else is no way around it, and says who can."""
    await engine.say(who=CLEO_TELEGRAM, where=CLEO_CHAT)
    await ended(engine, await engine.claim(), "hello")
    mine = await planned(engine, call("sessions_spawn", task="count", mode="session"), who=BOB, where=GROUP)
    assert not await engine.settle(mine)
    (asked,) = await engine.waits(mine.turn)
    await engine.press(asked.id, who=CLEO_TELEGRAM, where=CLEO_CHAT)
    assert await engine.settle(mine)
    child = child_session(mine.turn, 1)
    await ended(engine, mine, "begun")

    await engine.say("stop it", who=CLEO_TELEGRAM, where=GROUP)
    theirs = next(one.lease for one in await engine.store.claim(NODE, 5) if one.lease.session == mine.session)
    await answered(engine, theirs, call("sessions_stop", session=child))
    assert await engine.settle(theirs)
    refused = await engine.result(theirs.turn, 1)
    assert (refused.status, refused.code) == (ResultStatus.DENIED, "not_yours")
    assert [one.turn.state for one in await engine.store.family(mine.session)] == [TurnState.RUNNING]
    await ended(engine, theirs, "I may not.")

    again = await planned(engine, call("sessions_stop", session=child), who=BOB, where=GROUP)
    assert await engine.settle(again)
    assert (await engine.result(again.turn, 1)).text == "Stopped."
    assert [one.turn.state for one in await engine.store.family(mine.session)] == [TurnState.STOPPING]


# --- by hand ------------------------------------------------------------------------------------


async def test_spawn_by_hand_is_a_command_turn(engine: Engine) -> None:
    turn = await engine.say("/spawn count the files")
    assert (await engine.store.turn(turn)).turn.kind is TurnKind.COMMAND
    again = await engine.say("/sessions_spawn count the files")
    assert (await engine.store.turn(again)).turn.kind is TurnKind.COMMAND


async def test_spawn_by_hand_answers_with_what_the_sub_session_said(engine: Engine) -> None:
    """Through turns and all: the command turn parks, the child's model answers, the command's answer shows it."""
    engine.turns.operator = Operator(lambda: engine.registry.snapshot().commands)
    engine.model.script = [Answer(text="There are **7**.", model="scripted")]
    command = await engine.say("/spawn count the files")
    for _ in range(3):  # the command, the child, the command again
        await engine.run(await engine.claim())

    assert (await engine.store.turn(command)).turn.state is TurnState.DONE
    answer = [slot.text for slot in await engine.slots() if slot.kind is SlotKind.ANSWER][-1]
    assert answer.startswith("There are **7**.\nsessions_spawn done")


async def test_the_tree_is_shown_at_once(engine: Engine) -> None:
    parent, _ = await a_child(engine)
    await engine.ingress.message(inbound("/tree"))

    text = (await engine.texts())[-1]
    assert f"- `count`: running, 0 tokens, `{child_session(parent.turn, 1)}`" in text
    await engine.ingress.message(inbound("/tree", who=CLEO_TELEGRAM, where=CLEO_CHAT))
    assert "There are no sub-sessions" in (await engine.texts(session="main:cleo"))[-1]


async def test_secrets_are_out_of_what_a_child_said(tmp_path: Path) -> None:
    engine = spawning(tmp_path, secrets=["hush-hush-42"])
    parent, child = await a_child(engine)
    await ended(engine, child, "The key is hush-hush-42.")

    assert await engine.settle(parent)
    assert (await engine.result(parent.turn, 1)).text == "The key is [hidden]."


# --- what is said meanwhile ---------------------------------------------------------------------


async def test_activity_lines_follow_the_calls_of_children(tmp_path: Path) -> None:
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, approval={"main": ApprovalMode.ASK})
    engine = spawning(tmp_path, [read, shell], secrets=["hush-hush-42"])
    told: list[str] = []
    parent = await planned(
        engine,
        call("read", 0, text="the key\n is hush-hush-42 \x07" + "x" * 200),
        call("sessions_spawn", 1, task="a"),
        call("sessions_spawn", 2, task="b"),
    )
    view = await engine.store.turn(parent.turn)
    work = asyncio.create_task(engine.settle_telling(view, parent, told.append))
    await read.until_begun()
    await asyncio.sleep(0.02)
    read.release.set()
    await work

    assert told[0].startswith("read: the key is [hidden] xxx")
    assert told[0].endswith("… (and 2 more)")
    assert told[-2].endswith("…")
    assert told[-1] == "waits for 2 sub-sessions"
    assert all("\n" not in line and "hush" not in line for line in told)

    await answered_later(engine, parent)
    told.clear()
    await engine.settle_telling(await engine.store.turn(parent.turn), parent, told.append)
    assert told == []


async def answered_later(engine: Engine, parent: Lease) -> None:
    """End every child."""
    for one in await engine.store.family(parent.session):
        lease = await engine.claim()
        await ended(engine, lease, one.session.title)


async def test_a_decision_is_what_is_waited_for_first(engine: Engine) -> None:
    told: list[str] = []
    parent = await planned(engine, call("shell", 0, text="a"), call("sessions_spawn", 1, task="b"))
    await engine.settle_telling(await engine.store.turn(parent.turn), parent, told.append)

    assert told == ["sessions_spawn: b", "waits for a decision"]


async def test_a_turn_whose_time_is_over_says_so_of_what_it_cut(tmp_path: Path) -> None:
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    engine = spawning(tmp_path, [read])
    parent = await planned(engine, call("read", text="x"))
    halt = Cancellation()
    work = asyncio.create_task(engine.settle(parent, halt))
    await read.until_begun()
    halt.why = CancelReason.LIMIT
    work.cancel()
    await asyncio.wait([work])

    found = await engine.result(parent.turn, 1)
    assert (found.status, found.code, found.hint) == (
        ResultStatus.CANCELLED,
        "limit",
        "cancelled: the turn's time is over",
    )
