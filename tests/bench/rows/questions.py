"""Row of a question beside a card: turns of each by turns, in this process over the memory store, by CPU time."""

from __future__ import annotations

import json
import time

from agent_tools import ask_user
from gateway.domain.ids import CallId
from gateway.domain.messages import Press
from gateway.domain.questions import Pick
from gateway.domain.steps import Answer
from gateway.domain.tools import Risk, ToolCall
from gateway.domain.waits import Verb, WaitKind
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.rows.turns import MS
from tests.bench.world import Bench
from tests.support.engine import Engine
from tests.support.fakes import FakeTool
from tests.support.makers import ANN_TELEGRAM, CHAT
from tests.unit.gateway.toolcalls.subsession_rig import own_tool

BUDGET_MS = 1.0
QUESTION = {"questions": [{"question": "Which day?", "options": ["Monday", "Friday"]}]}


async def question(bench: Bench) -> list[Figure]:
    """Median milliseconds of a turn that asks and is answered, beyond one with a card that is pressed."""
    tools = [own_tool(ask_user), FakeTool(name="write", risk=Risk.WRITE)]
    engine = Engine(bench.new_folder(), tools)
    asked, carded = list[float](), list[float]()
    for n in range(bench.counts.turns + bench.counts.warm):
        for found, tool, arguments in ((asked, "ask_user", QUESTION), (carded, "write", {"text": f"line {n}"})):
            took = await _turn(engine, tool, json.dumps(arguments))
            if n >= bench.counts.warm:
                found.append(took)
    beyond, card = (measure.p50(asked) - measure.p50(carded)) * MS, measure.p50(carded) * MS
    return [
        Figure(what="turn with a card, CPU, p50", value=card, unit="ms"),
        Figure(what="a question beyond a card, CPU, p50", value=beyond, unit="ms", budget=BUDGET_MS),
    ]


async def _turn(engine: Engine, tool: str, arguments: str) -> float:
    """Return the seconds of CPU of a turn that parks on one press."""
    call = ToolCall(id=CallId("c1"), tool=tool, arguments=arguments)
    engine.model.script += [Answer(text="", calls=(call,), model="m"), Answer(text="Good.", model="m")]
    began = time.process_time()
    turn = await engine.say()
    await engine.run(await engine.claim())
    (wait,) = await engine.waits(turn)
    (card,) = await engine.store.card_slots(wait.id)
    name = Pick(question=0, option=1).name if wait.kind is WaitKind.QUESTION else Verb.ONCE
    handle = engine.tokens.make(wait.id, card.id, name)
    press = Press(event_key=f"press {handle}", conversation=CHAT, principal=ANN_TELEGRAM, handle=handle, reason="")
    await engine.ingress.press(press)
    await engine.run(await engine.claim())
    return time.process_time() - began
