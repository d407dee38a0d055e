"""Turns of sub-sessions and of their parents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.agent.transcript import ANSWERED
from gateway.domain.children import Agent, SpawnMode
from gateway.domain.events import ANSWERS, LiveEvent, ProgressChanged
from gateway.domain.prompts import CallResult, ModelRequest, UserText
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import Effect, Park, Risk, ToolResult
from gateway.domain.turns import Lease, Turn, TurnLimits, TurnState
from gateway.ports import Task, ToolContext
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, ScriptedModel, Text, calls, in_background
from tests.support.makers import CHAT


async def turn_of(engine: Engine, lease: Lease) -> Turn:
    return (await engine.store.turn(lease.turn)).turn


async def ran(engine: Engine, text: str = "hello") -> Lease:
    """Run the turn of one message to its end or its park."""
    await engine.say(text)
    lease = await engine.claim()
    await engine.run(lease)
    return lease


def people_said(request: ModelRequest) -> list[str]:
    return [one.text for one in request.messages if isinstance(one, UserText)]


@pytest.fixture
def read() -> FakeTool:
    return FakeTool(name="read", risk=Risk.READ)


@pytest.fixture
def family(tmp_path: Path, read: FakeTool) -> Engine:
    """Return an engine with a spawning tool and an agent."""
    agent = Agent(name="scout", description="Looks.", model="small", instructions="Look twice.")
    return Engine(tmp_path, [read, spawner()], agents={"scout": agent}, instructions="Be kind.")


def spawner(*, mode: SpawnMode = SpawnMode.RUN, timeout_s: float | None = None) -> FakeTool:
    async def body(ctx: ToolContext, args: Text) -> ToolResult | Park:
        return await ctx.sessions.spawn(Task(text=args.text, agent="scout", mode=mode, timeout_s=timeout_s))

    return FakeTool(name="sessions_spawn", effect=Effect.IDEMPOTENT, body=body, speaks=True)


async def test_child_gets_its_prompt_and_returns_its_result(family: Engine) -> None:
    family.models.others["small"] = small = ScriptedModel([Answer(text="Seen.")], name="small")
    family.model.script = [calls("sessions_spawn:look around"), Answer(text="It saw it.")]
    lease = await ran(family)
    assert (await turn_of(family, lease)).state is TurnState.PARKED

    child = await family.claim()
    await family.run(child)
    (asked,) = small.requests
    agents = "Agents that sessions_spawn can be given:\n- scout: Looks."
    assert asked.system == f"You are a test.\n\nBe kind.\n\n{agents}\n\nYou are a sub-session.\n\nLook twice."
    assert people_said(asked) == ["look around"]
    assert await family.waits(child.turn) == []  # no copy into the owner's chat

    again = await family.claim()
    await family.run(again)
    assert again.turn == lease.turn
    assert [one.system for one in family.model.requests] == [f"You are a test.\n\nBe kind.\n\n{agents}"] * 2
    (found,) = [one for one in family.model.requests[-1].messages if isinstance(one, CallResult)]
    assert "Seen." in found.result.text
    assert [(slot.kind, slot.text) for slot in await family.slots()] == [
        (SlotKind.STATUS, "1 call (sessions_spawn), 0 s"),
        (SlotKind.ANSWER, "It saw it."),
    ]


async def test_activity_of_a_child_goes_to_the_roots_conversation(family: Engine) -> None:
    family.model.script = [calls("sessions_spawn:look around")]
    lease = await ran(family)
    child = await family.claim()
    async with heard(family) as found:
        await family.run(child)

    doing = [one for one in found if isinstance(one, ProgressChanged)]
    assert [(one.turn, one.conversation, one.by, one.text) for one in doing] == [
        (lease.turn, CHAT, child.session, "thinking"),
        (lease.turn, CHAT, child.session, ""),
    ]


@asynccontextmanager
async def heard(engine: Engine) -> AsyncGenerator[list[LiveEvent]]:
    """Return the events about answers."""
    found: list[LiveEvent] = []
    async with engine.store.event_bus.subscribe(ANSWERS) as events:

        async def listen() -> None:
            async for event in events:
                found.append(event)

        async with in_background(listen()):
            yield found
            await asyncio.sleep(0)


async def test_the_tokens_of_children_count_for_the_parent(tmp_path: Path, read: FakeTool) -> None:
    engine = Engine(tmp_path, [spawner()], limits=TurnLimits(tokens=1_000), agents=SCOUT)
    engine.model.script = [
        calls("sessions_spawn:look"),
        Answer(text="Seen.", usage=Usage(input_tokens=990, output_tokens=10)),
    ]
    lease = await ran(engine)
    await engine.run(await engine.claim())
    await engine.run(await engine.claim())

    assert (await turn_of(engine, lease)).state is TurnState.FAILED
    said = "Stopped: this turn used 1,000 tokens; its limit is 1,000. Write again to go on."
    assert await engine.texts() == ["1 call (sessions_spawn), 0 s, 1,000 tokens", said]


SCOUT = {"scout": Agent(name="scout", description="Looks.")}


async def test_end_of_an_unawaited_child_comes_as_a_message(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [spawner(mode=SpawnMode.SESSION)], agents=SCOUT)
    engine.model.script = [
        calls("sessions_spawn:look"),
        Answer(text="It began."),
        Answer(text="Seen."),
        Answer(text="So!"),
    ]
    await ran(engine)
    await engine.run(await engine.claim())
    await engine.run(await engine.claim())

    said = [one for one in engine.model.requests[-1].messages if isinstance(one, UserText)][-1]
    assert ANSWERED in said.data
    assert "Seen." in said.data
    assert await engine.texts() == ["It began.", "So!"]
