"""Budgets of turns: what is told, what is refused without a model, and whose account it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent.window import LongHistory
from gateway.domain.budgets import Allowance, BudgetLimits, Measure
from gateway.domain.ids import Principal, TurnId, main_session
from gateway.domain.messages import Conversation
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.turns import TurnState
from gateway.domain.views import Spent
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, GROUP, FakeTool, calls
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, inbound
from tests.unit.gateway.toolcalls.subsession_rig import a_child, spawning

ENDED = "You have used all of today's 1,000 tokens. They reset at 00:00 UTC; no model is asked before."
NEARLY = "You have used 80 % of today's 1,000 tokens. They reset at 00:00 UTC."
DAY = BudgetLimits(person=Allowance(tokens=1_000))


def using(tokens: int, text: str = "Here.", micros: int = 0) -> Answer:
    usage = Usage(input_tokens=tokens - 1, output_tokens=1, cost_micros=micros)
    return Answer(text=text, model="scripted", usage=usage)


def engine_of(folder: Path, limits: BudgetLimits, *script: Answer) -> Engine:
    return Engine(folder, budgets=limits, script=script)


async def ask(
    engine: Engine, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT, text: str = "hello"
) -> TurnState:
    """Say something and run its turn."""
    turn = await engine.say(text, who=who, where=where)
    await engine.run(await engine.claim())
    return (await engine.store.turn(turn)).turn.state


async def notes(engine: Engine, session: str = "") -> list[str]:
    return [slot.text for slot in await engine.slots(session=session) if slot.kind is SlotKind.NOTE]


async def last(engine: Engine) -> str:
    return [slot.text for slot in await engine.slots() if slot.kind is SlotKind.ANSWER][-1]


async def test_a_used_up_day_is_answered_without_a_model(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, DAY, using(800), using(300))
    assert await ask(engine) is TurnState.DONE
    assert await notes(engine) == [NEARLY]
    assert await ask(engine) is TurnState.DONE, "alone, a request fits while anything is left"
    assert await notes(engine) == [NEARLY, ENDED]
    assert [await ask(engine) for _ in range(3)] == [TurnState.FAILED] * 3
    assert len(engine.model.requests) == 2
    assert (await last(engine), await notes(engine)) == (ENDED, [NEARLY, ENDED])


async def test_the_next_day_begins_anew(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, DAY, using(2_000))
    await ask(engine)
    assert await ask(engine) is TurnState.FAILED
    engine.clock.advance(24 * 3_600)
    assert await ask(engine) is TurnState.DONE


async def test_all_accounts_of_an_owner_are_one_person(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, DAY, using(2_000))
    await ask(engine)
    assert await ask(engine, ANN_SLACK, OTHER_CHAT) is TurnState.FAILED
    assert await ask(engine, BOB, BOB_CHAT) is TurnState.DONE, "another person has a budget of their own"


async def test_budget_notice_in_a_group_names_the_person(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, DAY, using(2_000))
    await ask(engine, BOB, GROUP)
    (told,) = await notes(engine, f"chat:{GROUP.key}")
    assert told.startswith("`telegram:2002` has used all of today's 1,000 tokens.")


@pytest.mark.parametrize(("who", "where"), [(ANN_TELEGRAM, CHAT), (BOB, BOB_CHAT)])
async def test_a_person_may_have_a_budget_of_their_own(tmp_path: Path, who: Principal, where: Conversation) -> None:
    free = {"ann": Allowance(), "telegram:2002": Allowance()}
    engine = engine_of(tmp_path, replace(DAY, people=free), using(2_000))
    await ask(engine, who, where)
    assert await ask(engine, who, where) is TurnState.DONE


async def test_a_session_has_its_budget_until_it_is_reset(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, BudgetLimits(session=Allowance(micros=5_000_000)), using(10, micros=5_000_000))
    await ask(engine)
    assert await notes(engine) == ["This session has used all of its $5.00. You can begin a new history with `/new`."]
    engine.clock.advance(24 * 3_600)
    assert await ask(engine) is TurnState.FAILED
    await engine.ingress.message(inbound("/new"))
    assert await ask(engine) is TurnState.DONE


async def test_a_turn_stops_at_its_next_step(tmp_path: Path) -> None:
    first = replace(calls("look"), usage=Usage(input_tokens=1_000))
    engine = Engine(tmp_path, [FakeTool(name="look")], budgets=DAY, script=[first])
    assert await ask(engine) is TurnState.FAILED
    assert await last(engine) == f"Stopped: no budget is left. {ENDED}"
    assert len(engine.model.requests) == 1


async def test_stored_usage_counts_from_the_start(tmp_path: Path) -> None:
    """Budgets may be configured in the middle of a day."""
    engine = engine_of(tmp_path, DAY)
    today = engine.clock.now().date()
    used = Spent(day=today, principal=ANN_SLACK, model="m", answers=1, usage=Usage(input_tokens=1_000))
    await engine.store.compact(main_session(ANN), 0, TurnId("t"), "", used)
    assert await ask(engine) is TurnState.FAILED
    assert engine.model.requests == []


async def test_a_command_needs_no_budget(tmp_path: Path) -> None:
    """It asks no model."""
    engine = Engine(tmp_path, [FakeTool(name="look")], budgets=DAY, script=[using(2_000)])
    await ask(engine)
    assert await ask(engine, text="/look") is TurnState.DONE
    assert len(engine.operator.requests) == 1


async def test_requests_at_the_same_time_exceed_a_budget_by_one(tmp_path: Path) -> None:
    """She asks in twenty groups at once; each request uses 100 of 1,000 tokens."""
    engine = engine_of(tmp_path, DAY, *[using(100) for _ in range(30)])
    await engine.groups(20)
    leases = [await engine.claim() for _ in range(20)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for lease in leases:
            group.create_task(engine.run(lease))
    assert len(engine.model.requests) == 10
    (use,) = await engine.store.budget_uses()
    assert (use.measure, use.used) == (Measure.TOKENS, 1_000)


async def test_a_childs_use_is_its_requesters_and_its_roots_sessions(tmp_path: Path) -> None:
    """The person is told in the chat where it was asked, not in the child."""
    limits = BudgetLimits(person=Allowance(tokens=1_000), session=Allowance(tokens=100_000))
    engine = spawning(tmp_path, budgets=limits, script=[using(900)])
    _, child = await a_child(engine)
    await engine.run(child)
    uses = {(one.account, one.used) for one in await engine.store.budget_uses()}
    assert uses == {(f"{engine.clock.now().date()} ann", 900), ("session main:ann 0", 900)}
    (told,) = [slot for slot in await engine.slots() if slot.kind is SlotKind.NOTE]
    assert (told.text, told.conversation) == (NEARLY, CHAT)


@pytest.mark.parametrize(
    ("who", "where", "seen"),
    [
        (ANN_TELEGRAM, CHAT, ["`ann` today, until 00:00 UTC: 0 of", "`telegram:2002` today, until 00:00 UTC: 900 of"]),
        (BOB, BOB_CHAT, ["`telegram:2002` today, until 00:00 UTC: 900 of 1,000 tokens (90 %)"]),
    ],
)
async def test_usage_shows_budgets(tmp_path: Path, who: Principal, where: Conversation, seen: list[str]) -> None:
    """Everybody sees their own, owners those of all; the session's stands below."""
    limits = BudgetLimits(person=Allowance(tokens=1_000), session=Allowance(micros=2_500_000))
    engine = engine_of(tmp_path, limits, using(900, micros=500_000))
    await ask(engine, BOB, BOB_CHAT)
    await engine.ingress.message(inbound("/usage", who=who, where=where))
    session = "" if who is ANN_TELEGRAM else f"dm:{BOB_CHAT.key}"
    text = (await engine.slots(session=session))[-1].text
    assert [line for line in seen if line not in text] == []
    assert ("`ann`" in text) is (who is ANN_TELEGRAM)
    share = "$0.000 of $2.50 (0 %)" if who is ANN_TELEGRAM else "$0.500 of $2.50 (20 %)"
    assert f"this session, until `/new`: {share}" in text


@pytest.mark.parametrize(("used", "summary", "total"), [(100, "In short.", 320), (500, "", 1_000)])
async def test_a_summary_is_written_while_a_budget_is_left(tmp_path: Path, used: int, summary: str, total: int) -> None:
    """It counts for the person of the turn before it; without a budget the history stays long."""
    engine = engine_of(tmp_path, DAY, using(used), using(used), using(120, "In short."))
    for _ in range(2):
        await ask(engine)
    long = LongHistory(session=main_session(ANN), epoch=0, principal=ANN_TELEGRAM, hard=True)
    await engine.compaction.run(long)
    session = await engine.store.session(main_session(ANN))
    assert session is not None
    assert session.summary == summary
    (use,) = await engine.store.budget_uses()
    assert use.used == total
