from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.agent.worker import RENEW_EVERY_S
from gateway.app.maintenance import Sweeper
from gateway.domain.ids import NodeId
from gateway.domain.slots import SlotKind
from gateway.domain.steps import StepState
from gateway.domain.tools import Risk
from gateway.domain.turns import TurnState
from gateway.domain.waits import WaitState
from tests.support.engine import Engine
from tests.support.fakes import ANN_PAGE, NODE, FakeChannel, FakeTool, in_background, until
from tests.support.makers import ANN_TELEGRAM
from tests.support.schedules import ScheduledLoop


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)])


def sweeper(engine: Engine, node: NodeId = NODE) -> Sweeper:
    return Sweeper(node_id=node, sweeps=engine.store, node=engine.store, metrics=engine.metrics)


def swept(engine: Engine, name: str) -> float:
    return engine.metrics.registry.get_sample_value("dragoman_swept_total", {"sweep": name}) or 0


async def test_start_frees_turns_of_this_machine_only(engine: Engine) -> None:
    mine = await engine.say()
    await engine.claim()
    theirs = await engine.say(who=ANN_TELEGRAM, text="/shell x")
    assert await engine.store.claim(NodeId("there#1"))
    await sweeper(engine, NodeId("here#2")).start("here")

    assert (await engine.store.turn(mine)).turn.state is TurnState.QUEUED
    assert (await engine.store.turn(theirs)).turn.state is TurnState.RUNNING
    assert swept(engine, "void_leases") == 1


@pytest.mark.parametrize(("away_s", "cards"), [(60, 1), (600, 2)])
async def test_open_cards_are_shown_again_only_after_a_downtime(engine: Engine, away_s: int, cards: int) -> None:
    await sweeper(engine).start("here")
    lease = await engine.planned("shell:ls")
    await engine.settle(lease)
    assert await engine.store.park(lease)
    async with in_background(engine.delivery(FakeChannel()).run()):
        await until(lambda: shown(engine))
    engine.clock.advance(away_s)
    await sweeper(engine).start("here")

    assert len([slot for slot in await engine.slots() if slot.kind is SlotKind.CARD]) == cards


async def shown(engine: Engine) -> bool:
    return (await engine.store.counts()).due_slots == 0


async def test_approval_expired_in_a_downtime_precedes_the_sweep(engine: Engine) -> None:
    await sweeper(engine).start("here")
    lease = await engine.planned("shell:ls")
    await engine.settle(lease)
    assert await engine.store.park(lease)
    engine.clock.advance(7200)
    again = sweeper(engine)
    await again.start("here")
    async with in_background(again.run()):
        await until(lambda: expired(engine, lease.turn))

    (wait,) = await engine.waits(lease.turn)
    assert wait.state is WaitState.SUPERSEDED
    assert (await engine.step(lease.turn, 1)).state is StepState.PLANNED


async def expired(engine: Engine, turn: object) -> bool:
    return all(row.wait.state is not WaitState.OPEN for row in engine.store.waits.values() if row.wait.turn == turn)


async def test_sweeps_expire_waits_and_requeue_turns(engine: Engine) -> None:
    lease = await engine.planned("shell:ls")
    await engine.settle(lease)
    assert await engine.store.park(lease)
    engine.clock.advance(3601)
    async with in_background(sweeper(engine).run()):
        await until(lambda: expired(engine, lease.turn))

    assert swept(engine, "expire_waits") == 1
    assert (await engine.store.turn(lease.turn)).turn.state is TurnState.QUEUED


async def test_unseen_page_answer_is_copied_to_the_chat(engine: Engine) -> None:
    await answered_on_the_page(engine)
    async with in_background(sweeper(engine).run()):
        await until(lambda: copied(engine))

    (copy,) = [slot for slot in await engine.slots() if slot.kind is SlotKind.COPY]
    assert (copy.conversation.channel, copy.text) == ("telegram", "That is all.")


async def answered_on_the_page(engine: Engine) -> None:
    """Long enough ago for a copy, and nobody had it open."""
    await engine.say("from the chat")
    await engine.run(await engine.claim())
    await engine.say("from the page", where=ANN_PAGE)
    await engine.run(await engine.claim())
    engine.clock.advance(31)


async def copied(engine: Engine) -> bool:
    return any(slot.kind is SlotKind.COPY for slot in await engine.slots())


async def test_a_sweep_that_fails_does_not_stop_the_others(engine: Engine) -> None:
    await answered_on_the_page(engine)
    engine.store.failing = {"expire_waits": 1}
    async with in_background(sweeper(engine).run()):
        await until(lambda: copied(engine))

    assert swept(engine, "fire_timers") == 1


def test_holders_may_renew_after_an_outage_before_reclaim(tmp_path: Path) -> None:
    """Holders cannot renew during an outage; reclaiming at once would lose the results of their calls."""
    loop = ScheduledLoop(1)

    async def story() -> float:
        engine = Engine(tmp_path)
        await engine.say()
        lease = await engine.claim()
        engine.clock.advance(16)
        engine.store.failing = {"expire_waits": 1}
        async with in_background(sweeper(engine).run()):
            await asyncio.sleep(RENEW_EVERY_S + 0.5)
            assert await engine.store.renew(lease) is TurnState.RUNNING
            engine.clock.advance(16)
            await asyncio.sleep(3)
        return swept(engine, "reclaim")

    assert loop.run_until_complete(story()) == 1


async def queued(engine: Engine, turn: object) -> bool:
    return any(row.turn.id == turn and row.turn.state is TurnState.QUEUED for row in engine.store.turns.values())
