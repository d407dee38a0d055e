"""Rig for tests of sub-sessions: an engine with spawning tools, and helpers around it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_tools import sessions_list, sessions_spawn, sessions_stop
from gateway.domain.children import Agent
from gateway.domain.ids import CallId, Principal, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer
from gateway.domain.tools import CallScope, ToolCall, ToolPolicy
from gateway.domain.turns import Lease, TurnLimits, TurnState
from gateway.domain.waits import Wait, WaitKind
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import FakeTool
from tests.support.makers import ANN_TELEGRAM, CHAT

AGENTS = {
    "reader": Agent(name="reader", description="Reads.", model="small", tools=("read", "think")),
    "plain": Agent(name="plain", description="As its parent."),
}
LIMITS = TurnLimits(tokens=600_000, active=timedelta(minutes=15), child_active=timedelta(minutes=10))


def own_tool(module: ModuleType) -> Tool:
    """Return one of Dragoman's tools with its defaults."""
    spec = module.SPEC
    policy = ToolPolicy(
        availability=spec.availability, approval={}, timeout_s=spec.timeout_s, actions={}, sandbox=spec.sandbox
    )

    def scope(arguments: Any) -> CallScope:
        return module.scope(arguments, None) if hasattr(module, "scope") else CallScope(risk=spec.risk)

    return Tool(spec=spec, policy=policy, arguments=ModelArguments(module.Args), run=module.run, call_scope=scope)


def spawning(
    folder: Path,
    tools: Iterable[FakeTool | Tool] = (),
    *,
    agents: Mapping[str, Agent] = AGENTS,
    limits: TurnLimits = LIMITS,
    **more: Any,
) -> Engine:
    """Return an engine with these tools and those of sub-sessions."""
    own = [own_tool(module) for module in (sessions_spawn, sessions_list, sessions_stop)]
    engine = Engine(folder, [*tools, *own], agents=agents, limits=limits, **more)
    engine.models.others.update(big=engine.model, small=engine.model)
    return engine


def call(tool: str, n: int = 0, **arguments: Any) -> ToolCall:
    """Return a call as a model makes it."""
    return ToolCall(id=CallId(f"c{n}"), tool=tool, arguments=json.dumps(arguments))


async def planned(engine: Engine, *calls: ToolCall, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT) -> Lease:
    """Return a claimed root turn whose first answer made these calls."""
    turn = await engine.say(who=who, where=where)
    lease = await engine.claim()
    assert lease.turn == turn
    await answered(engine, lease, *calls)
    return lease


async def answered(engine: Engine, lease: Lease, *calls: ToolCall) -> None:
    """Plan the next answer of a claimed turn, with these calls."""
    view = await engine.store.turn(lease.turn)
    given = [one for one in view.inputs if one.given is None]
    await engine.store.plan(lease, Answer(text="", calls=calls, model="scripted"), given=given, slots=[])


async def ended(engine: Engine, lease: Lease, text: str, state: TurnState = TurnState.DONE) -> None:
    """End the turn with this text."""
    view = await engine.store.turn(lease.turn)
    slot = NewSlot(conversation=view.turn.conversation, kind=SlotKind.ANSWER, text=text)
    answer = Answer(text=text, model="scripted") if state is TurnState.DONE else None
    given = [one for one in view.inputs if one.given is None] if answer else []
    await engine.store.finish_turn(lease, state, answer=answer, given=given, slots=[slot], timers=[])


async def child_wait(engine: Engine, turn: TurnId) -> Wait:
    """Return the turn's only wait for a child."""
    (wait,) = [one for one in await engine.waits(turn) if one.kind is WaitKind.CHILD]
    return wait


async def a_child(engine: Engine, **asked: Any) -> tuple[Lease, Lease]:
    """Return a turn of Ann's that waits for one child, and the child's claimed turn."""
    parent = await planned(engine, call("sessions_spawn", task="count", **asked))
    assert not await engine.settle(parent)
    return parent, await engine.claim()
