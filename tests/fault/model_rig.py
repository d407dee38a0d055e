"""Rig of the fault tests of models: one daemon, people who write side by side, and a model that streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from gateway.domain.slots import Slot, SlotState
from gateway.domain.steps import Step
from gateway.domain.views import Item
from gateway.system.failpoints import ENVIRONMENT
from tests.fault.oracle import (
    Evidence,
    every_call_has_one_result,
    every_turn_ended_with_one_answer,
    nothing_is_lost,
    order_is_kept,
    the_model_was_asked_properly,
    what_was_allowed_ran_once,
)
from tests.fault.rig import stored, until
from tests.support.daemon import Daemon
from tests.support.model_server import Asked, Call, Question, Reply, Rule, ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.platform import FakePlatform, Shown

Json = dict[str, Any]
CONFIG = """
[owners]
{owners}
[model]
name = "openai:first"
base_url = "{model}"
{model_more}
[sessions]
message_while_running = "{running}"
[tools.shell]
approval = "{approval}"
[tools.peek]
module = "tests.support.tools.peek"
[tools.poke]
module = "tests.support.tools.poke"
approval = "deny"
[channels.test]
module = "tests.support.channel"
port = {port}
"""
FALLBACK = """
[[model.fallback]]
name = "openai:second"
base_url = "{model}"
"""
ANSWER = "answer"
"""The kind of message that an answer is."""
UNASKED = frozenset({"peek"})
"""Tools that run without a decision, and may run again."""


def shell(command: str) -> Call:
    """A command as a model asks for it."""
    return Call(name="shell", arguments=json.dumps({"command": command}))


def peek(what: str) -> Call:
    """A call that only reads."""
    return Call(name="peek", arguments=json.dumps({"what": what}))


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Owners, each in a chat and a main session of their own, so that many cases run on one daemon."""

    daemon: Daemon
    platform: FakePlatform
    model: ScriptedModel
    people: Sequence[str]

    async def start(self, armed: str = "", *, ready: bool = True) -> None:
        """Begin a life, with fail points armed; not `ready`: it may die before it can say so."""
        await self.daemon.start({ENVIRONMENT: armed}, ready=ready)

    def chat(self, who: str) -> str:
        """The id of somebody's chat."""
        return f"d{self.people.index(who) + 1}"

    async def say(self, who: str, text: str) -> None:
        """Write `who: text`, by which rules know whom to answer; returns when that is stored."""
        await self.platform.acked(await self.post(who, f"{who}: {text}"))

    async def post(self, who: str, text: str) -> str:
        """Write just that; returns the event's key at once."""
        return await self.platform.say(str(self.people.index(who) + 1), text)

    async def press(self, who: str, card: Shown, row: int, verb: str) -> Json:
        """Press a button; returns what the person was told."""
        return await self.platform.acked(
            await self.platform.press(str(self.people.index(who) + 1), card.handle(verb, row))
        )

    async def see(self, who: str, text: str = "", *, count: int = 1, within_s: float = PATIENCE_S) -> Shown:
        """Wait for the `count`-th answer in somebody's chat that contains a text."""
        try:
            return await self.platform.see(self.chat(who), ANSWER, text, count=count, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{who}: {error}\n{self.daemon.log[-3000:]}") from None

    def answers(self, who: str) -> list[str]:
        """The answers in somebody's chat."""
        return [message.text for message in self.platform.in_chat(self.chat(who), ANSWER)]

    def asked(self, who: str) -> list[Asked]:
        """The questions of somebody's session to the model, without those for a summary."""
        return [one for one in self.model.requests if said_by(who, one.body)]

    async def until_asked(self, who: str, count: int = 1) -> Asked:
        """Wait for the `count`-th of them."""
        await until(lambda: len(self.asked(who)) >= count, 20)
        return self.asked(who)[count - 1]

    async def steps(self, who: str) -> list[Step]:
        """The tool calls of somebody's session in order, once the daemon has stopped."""
        items = await stored(self.daemon.state, f"main:{who}")
        return [item for item in items if isinstance(item, Step) and item.call is not None]

    async def is_ready(self) -> bool:
        """Return True if this life goes on and reports that it can work."""
        async with aiohttp.ClientSession() as client, client.get(f"{self.daemon.url}/readyz") as response:
            return response.status == 200 and self.daemon.process is not None and self.daemon.process.returncode is None


@asynccontextmanager
async def crowd(
    folder: Path,
    people: Sequence[str],
    rules: Iterable[Rule],
    *,
    running: str = "steer",
    approval: str = "allow",
    fallback: bool = False,
) -> AsyncGenerator[Crowd]:
    """A daemon that was not started yet, its platform and its model."""
    async with ScriptedModel(rules=rules) as model, FakePlatform().serve() as platform:
        config = CONFIG.format(
            owners="\n".join(f'{who} = ["test:{n}"]' for n, who in enumerate(people, 1)),
            model=model.base_url,
            model_more=FALLBACK.format(model=model.base_url) if fallback else "",
            running=running,
            approval=approval,
            port=platform.port,
        )
        daemon = Daemon(folder=folder, warm=True, config=config)
        try:
            yield Crowd(daemon=daemon, platform=platform, model=model, people=people)
        finally:
            await daemon.kill()


async def side_by_side(people: Iterable[str], lives: Callable[[str], Awaitable[None]]) -> None:
    """Let everybody live at the same time."""

    async def live(who: str) -> None:
        await lives(who)

    async with asyncio.TaskGroup() as group:
        for who in people:
            group.create_task(live(who), name=who)


def said_by(who: str, body: Json) -> bool:
    """Return True if a question comes from somebody's session: the first message in it is theirs."""
    first: str = next((str(one["content"]) for one in body["messages"] if one["role"] == "user"), "")
    return first.startswith(f"{who}: ")


def results_in(asked: Asked) -> list[str]:
    """Return the results of calls in a question, after the last message of a person."""
    return [outcome.text for outcome in Question.of(asked.body).outcomes]


def once(reply: Reply, **wanted: Any) -> Rule:
    """A reply that is given once."""
    return Rule(times=1, reply=reply, **wanted)


def promises(evidence: Evidence) -> None:
    """All that holds for the rows of a session and the questions asked for it, wherever it died."""
    nothing_is_lost(evidence)
    order_is_kept(evidence)
    every_turn_ended_with_one_answer(evidence)
    every_call_has_one_result(evidence)
    what_was_allowed_ran_once(replace(evidence, items=asked_about(evidence.items)))
    the_model_was_asked_properly(evidence)


def shown_once(evidence: Evidence, deaths: int) -> None:
    """Each slot stands once in its chat; what was on its way at a death may stand there again, marked."""
    creates = [frame for frame in evidence.frames if frame["op"] == "send"]
    for slot in evidence.of(Slot):
        assert slot.state is SlotState.SENT, slot
        mine = [frame["repeated"] for frame in creates if frame["slot"] == slot.id]
        if slot.conversation.channel != "web":
            assert slot.sent_version == slot.version, slot
            assert mine, slot
            assert all(mine[1:]), mine
    assert sum(frame["repeated"] for frame in creates) <= deaths


def asked_about(items: Sequence[Item]) -> list[Item]:
    """The rows without the calls that nobody is asked about."""
    return [
        item for item in items if not (isinstance(item, Step) and item.call is not None and item.call.tool in UNASKED)
    ]
