"""Rig of the fault tests of sub-sessions: scripts of families, presses, deaths in a row, and the judge."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import time
from bisect import bisect
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.domain.ids import SessionId
from gateway.domain.messages import Received
from gateway.domain.steps import Step
from gateway.domain.turns import ENDED, Turn
from gateway.domain.views import ChildLine, Item
from gateway.domain.waits import Wait, WaitKind
from gateway.store import open_store
from gateway.system.clock import SystemClock
from gateway.system.failpoints import ENVIRONMENT
from tests.fault import oracle
from tests.fault.oracle import Evidence
from tests.fault.rig import figures, lines_of, stored, until_quiet
from tests.support.daemon import Daemon
from tests.support.model_server import Call, Question, Reply, Rule, ScriptedModel, unmarked
from tests.support.patience import PATIENCE_S
from tests.support.platform import FakePlatform
from tests.support.proof import KILLS, counted

CONFIG = """
[owners]
ann = ["test:1001"]
[channels.test]
module = "tests.support.channel"
port = {port}
"""
MODEL = """
[model]
name = "openai:scripted"
base_url = "{url}"
"""
ANN, CHAT, ROOT = "1001", "d1001", "main:ann"
CHILD = "You are a sub-session"
"""Phrase in the system prompt of a child, and of no other session."""


# --- scripts ----------------------------------------------------------------------------------


def spawn(task: str, **how: Any) -> Call:
    """The call that spawns a sub-session."""
    return Call(name="sessions_spawn", arguments=json.dumps({"task": task, **how}))


def shell(command: str) -> Call:
    """The call that runs a command."""
    return Call(name="shell", arguments=json.dumps({"command": command}))


def asks(text: str, *calls: Call, then: str = "Summed up:\n{results}", system: str = "") -> list[Rule]:
    """A session that is asked `text` makes the calls; with all their results it answers."""
    found = rf"\b{text}\b"
    return [
        Rule(text=found, system=system, results=0, reply=Reply(calls=calls)),
        Rule(text=found, system=system, results=len(calls), reply=Reply(text=then)),
    ]


def works(name: str) -> list[Rule]:
    """A child with the task `do NAME`: it runs a command, which leaves a line in the file `ran-NAME`, and answers."""
    return asks(f"do {name}", shell(command(name)), then=done(name), system=CHILD)


def command(name: str) -> str:
    """Return the command of that child."""
    return f"echo x >> ran-{name}"


def done(name: str) -> str:
    """Return the answer of that child."""
    return f"The task of {name} is done."


# --- a daemon, its platform, its model --------------------------------------------------------


@dataclass(slots=True)
class Tree:
    """A daemon whose sessions spawn others, and ann, who does not know that it dies."""

    daemon: Daemon
    platform: FakePlatform
    model: ScriptedModel
    births: list[float] = field(default_factory=list[float])
    """When each life began, on the model's clock."""
    pressed: dict[str, str] = field(default_factory=dict[str, str])
    """By handle: the key of the press."""

    async def begin(self, armed: str = "", *, ready: bool = True) -> None:
        """Start a life."""
        self.births.append(time.monotonic())
        await self.daemon.start({ENVIRONMENT: armed} if armed else {}, ready=ready)

    async def through_a_death(self, said: str, answer: str) -> None:
        """Say something, let the daemon die and come back, and see the answer."""
        async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(self.come_back())
            await self.say(said)
            group.create_task(self.answer(answer))

    async def come_back(self) -> None:
        """Wait for the death by `kill -9`, then start a life that lasts."""
        assert await self.daemon.died() == -signal.SIGKILL
        await self.begin()

    async def killed(self) -> None:
        """Die by `kill -9` now, and live again."""
        await self.daemon.kill()
        await self.begin()

    async def say(self, text: str) -> None:
        """Ann writes, and the daemon has it."""
        await self.platform.acked(await self.platform.say(ANN, text))

    async def press(self, verb: str = "once", contains: str = "") -> str:
        """Press the button of the first row that has one and contains a text; returns what was said to that."""
        handle = next(one for one in self.handles(verb, contains) if one not in self.pressed)
        self.pressed[handle] = await self.platform.press(ANN, handle)
        return str((await self.platform.acked(self.pressed[handle]))["result"])

    async def press_all(self) -> None:
        """Allow whatever is asked, each once, until cancelled."""
        while True:
            for handle in self.handles("once"):
                if handle not in self.pressed:
                    self.pressed[handle] = await self.platform.press(ANN, handle)
            await asyncio.sleep(0.02)

    def handles(self, verb: str, contains: str = "") -> list[str]:
        """The buttons that are to be seen now, oldest first."""
        rows = [row for card in self.platform.in_chat(CHAT, "card") for row in card.rows if contains in row["rendered"]]
        return [button["handle"] for row in rows for button in row["buttons"] if button["verb"] == verb]

    async def answer(self, contains: str, within_s: float = PATIENCE_S) -> str:
        """Press all that is asked until ann has her answer, and everything is quiet; returns its text."""
        pressing = asyncio.create_task(self.press_all(), name="ann presses")
        try:
            shown = await self.platform.see(CHAT, "answer", contains, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.daemon.log[-3000:]}") from None
        finally:
            pressing.cancel()
            with suppress(asyncio.CancelledError):
                await pressing
        await until_quiet(self.daemon)
        return shown.text

    async def die_again_and_again(self, points: Sequence[str], dice: random.Random, times: int) -> int:
        """Live through deaths at points, passages and moments that the dice say; returns how many came.

        Ends in a life that lasts. A death that does not come, because all was done before, ends it too.
        """
        came = 0
        for _ in range(times):
            at, passage, moment = dice.choice(points), dice.randint(1, 3), dice.uniform(0.0, 0.4)
            await self.daemon.kill()
            await self.begin(f"{at}:kill:{passage}", ready=False)
            with suppress(AssertionError):  # it may die before it is ready
                await self.daemon.until_ready()
            with suppress(TimeoutError):
                await self.daemon.died(within_s=moment)
            came += 1
        await self.killed()
        return came

    # --- what the model was asked ---------------------------------------------------------------

    def asked(self, text: str, results: int | None = None) -> list[dict[str, Any]]:
        """The questions whose last message of a person contains a text, with so many results after it."""
        found = [(Question.of(one.body), one.body) for one in self.model.requests]
        return [
            body
            for question, body in found
            if re.search(rf"\b{text}\b", question.text) and results in (None, question.results)
        ]

    def results(self, text: str) -> list[str]:
        """The results in the last question after `text`, in order."""
        return [unmarked(one.text) for one in Question.of(self.asked(text)[-1]).outcomes]

    def questions(self) -> list[tuple[int, str, int]]:
        """Of each question, in order: the life that asked it, the last message's last line, the results after it."""
        found = [(one.at_s, Question.of(one.body)) for one in self.model.requests]
        return [(bisect(self.births, at_s), q.text.splitlines()[-1], q.results) for at_s, q in found]


async def until_counts(daemon: Daemon, condition: Callable[[Mapping[str, int]], bool]) -> None:
    """Look every 20 ms until the store's counts are so. Raises `TimeoutError`."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition(await figures(daemon)):
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def tree(folder: Path, rules: Iterable[Rule], config: str = "", armed: str = "") -> AsyncGenerator[Tree]:
    """A daemon in its first life, with fail points armed in that."""
    async with ScriptedModel(rules=rules) as model, FakePlatform().serve() as platform:
        settings = CONFIG.format(port=platform.port) + MODEL.format(url=model.base_url) + config
        found = Tree(Daemon(folder=folder, warm=True, config=settings), platform, model)
        await found.begin(armed)
        try:
            yield found
        finally:
            await found.daemon.kill()


# --- what is stored ---------------------------------------------------------------------------


async def family_of(state: Path, session: str = ROOT) -> Sequence[ChildLine]:
    """The sub-sessions below a session, read from the store of a stopped daemon."""
    store = open_store(f"sqlite://{state / 'dragoman.db'}", SystemClock())
    try:
        return await store.family(SessionId(session))
    finally:
        await store.close()


async def judge_family(found: Tree, said: Sequence[str], names: Sequence[str], tasks: Sequence[str]) -> Sequence[Item]:
    """Stop the daemon; raise `AssertionError` for the first promise that was broken. Returns every row.

    `said`: what ann wrote and what the gateway said to a session in her stead; `names`: of the children that `works`;
    `tasks`: of all children. Every turn of theirs has its answer.
    """
    evidence = await judge_ended(found, said, names, tasks)
    if evidence.in_flight:
        counted(KILLS, evidence.in_flight, "F01")
        oracle.tell("F01", evidence)
    oracle.nothing_is_lost(evidence)
    oracle.every_turn_ended_with_one_answer(evidence)
    oracle.what_was_allowed_ran_once(asked_alone(evidence))
    return evidence.items


async def judge_ended(found: Tree, said: Sequence[str], names: Sequence[str], tasks: Sequence[str]) -> Evidence:
    """The same for a family in which some turns ended without an answer."""
    assert await found.daemon.stop() == 0, found.daemon.log[-3000:]
    state = found.daemon.state
    lines = await family_of(state)
    sessions = [ROOT, *(line.session.id for line in lines)]
    evidence = Evidence(
        said=[*said, *tasks],
        ran={command(name): len(lines_of(state, f"ran-{name}")) for name in names},
        frames=found.platform.log,
        asked=[one.body for one in found.model.requests],
        page=(),
        items=[item for session in sessions for item in await stored(state, session)],
        in_flight=len(found.births) - 1,
    )
    assert Counter(line.session.title for line in lines) == Counter(tasks)
    assert max(evidence.ran.values(), default=0) <= 1, evidence.ran
    oracle.every_call_has_one_result(evidence)
    oracle.every_slot_is_shown_once(evidence)
    oracle.the_model_was_asked_properly(evidence)
    nobody_is_left(evidence)
    questions_go_forward(found)
    received = [one.message.text for one in evidence.of(Received)]
    assert Counter(received) == Counter(evidence.said)
    return evidence


def asked_alone(evidence: Evidence) -> Evidence:
    """The same without the calls that nobody was asked about."""
    asked = {(wait.turn, wait.n) for wait in evidence.of(Wait) if wait.kind is WaitKind.APPROVAL}
    items = [
        item
        for item in evidence.items
        if not (isinstance(item, Step) and item.call is not None and (item.turn, item.n) not in asked)
    ]
    return replace(evidence, items=items)


def nobody_is_left(evidence: Evidence) -> None:
    """Every turn has ended, and no wait on a child is open."""
    assert all(turn.state in ENDED for turn in evidence.of(Turn))
    waits: list[Wait] = [wait for wait in evidence.of(Wait) if wait.kind is WaitKind.CHILD]
    assert all(wait.state in oracle.FINAL for wait in waits), waits


def questions_go_forward(found: Tree) -> None:
    """No life asks the same question twice, and none asks one again after the question that its answer led to."""
    asked = found.questions()
    assert max(Counter(asked).values()) == 1, Counter(asked).most_common(3)
    furthest: dict[str, int] = {}
    for _, text, results in asked:
        assert results >= furthest.get(text, 0), (text, results, asked)
        furthest[text] = results


def told(items: Sequence[Item]) -> list[str]:
    """The messages of sub-sessions that have ended, in the order they were stored."""
    received = [item for item in items if isinstance(item, Received)]
    return [one.message.quoted for one in received if one.message.principal == "system:child"]
