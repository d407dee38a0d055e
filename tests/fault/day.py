"""Rig of a scripted day on Telegram: people, killed lives of the daemon, and the judge of the evening.

`Day` records every message; in the evening the record is compared with the rows and with the chats.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from gateway.domain.decisions import DenyReason
from gateway.domain.messages import Received
from gateway.domain.steps import Step
from gateway.domain.tools import ResultStatus
from gateway.domain.views import Item
from gateway.domain.waits import Wait
from tests.fault.rig import everything, lines_of, until
from tests.fault.telegram_rig import (
    ANN,
    BOB,
    CREATES,
    EVE,
    RESENT,
    SECRET,
    Wire,
    calls_in_bans,
    judge_chats,
    judge_sessions,
    slots_of,
    wire,
)
from tests.support.model_server import Call as ToolCall
from tests.support.model_server import Reply, Rule
from tests.support.proof import LOST, RAN_TWICE, TWICE, dice, figure
from tests.support.telegram import TOKEN, Call, FakeTelegram, Fault, Shown, faults

KITCHEN, BREAD, WINE = -1003, 7, 8
"""A group, and two topics in it."""
CROWD = range(500_000, 500_500)
WORDS_EACH = 2
CRY = "let me in"
IN_THE_FLOOD = "can you hear me in this noise?"
REFUSAL = "I only talk to people"
REFUSALS_AT_ONCE = 8
"""So many lines to strangers may be on their way when it dies."""
LIMITS = "per_group_per_min = 60\noverall_per_s = 60"
"""Chats have Telegram's own second for each message. The others are wider: the whole day lasts less than a minute."""
STORY = " ".join(f"On day {n} the dragoman walked on." for n in range(1, 46))
BROKEN, OVEN, CORK = "what is broken?", "The oven is broken.", "The corkscrew is broken."

CALLBACK_WITHIN_S = 1.0
TURN_STARTS_WITHIN_S = 2.0
EDIT_EVERY_S = 1.0
JITTER_S = 0.1
"""By so much two calls may come nearer to each other on their way."""


def command_of(errand: str) -> str:
    """Leaves a line in a file of that name each time it runs."""
    return f"echo x >> {errand}"


def errand(name: str) -> list[Rule]:
    """Return the rules by which a request for this fetch makes the model call a command."""
    call = ToolCall(name="shell", arguments=f'{{"command": "{command_of(name)}"}}')
    asked = f"fetch the {name}"
    return [
        Rule(text=asked, results=0, reply=Reply(calls=(call,))),
        Rule(text=asked, results=1, reply=Reply(text=f"So much about the {name}.")),
    ]


TOLD_SLOWLY = Reply(text=STORY, chunks=28, delay_s=0.1)
HALF_TOLD = Rule(text="another story", reply=TOLD_SLOWLY.model_copy(update={"stall_after": 14}))
"""While it holds, the model falls silent in the middle of that story."""
RULES = [
    Rule(text="another story", reply=Reply(text=STORY)),
    Rule(text="story", reply=TOLD_SLOWLY),
    Rule(text=f"(?s)oven.*{re.escape(BROKEN)}", reply=Reply(text=OVEN)),
    Rule(text=f"(?s)corkscrew.*{re.escape(BROKEN)}", reply=Reply(text=CORK)),
    *errand("letter"),
    *errand("cellar"),
    *errand("parcel"),
    *errand("silver"),
]


@dataclass(slots=True, kw_only=True)
class Day:
    """The people of that day, and the lives of the daemon that answers."""

    wire: Wire
    mode: str
    said: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By session, in order."""
    said_at: dict[str, float] = field(default_factory=dict[str, float])
    """When a text was said, in seconds of `time.monotonic()`."""
    births: list[float] = field(default_factory=list[float])
    """When each life began."""

    @property
    def telegram(self) -> FakeTelegram:
        """Return the platform where everybody writes."""
        return self.wire.telegram

    # --- who says what ---

    def ann(self, text: str) -> Shown:
        """The owner writes."""
        return self._said("main:ann", text, self.telegram.say(ANN, text))

    def bob(self, text: str) -> Shown:
        """Her friend, who may write, does."""
        return self._said(f"dm:telegram/main/{BOB}", text, self.telegram.say(BOB, text))

    def in_topic(self, topic: int, who: int, text: str, *, to_bot: bool = False) -> Shown:
        """Somebody writes in the group: to the others, or to the bot."""
        named = f"@dragoman_test_bot {text}" if to_bot else text
        shown = self.telegram.say(who, named, chat=KITCHEN, topic=topic)
        return self._said(f"chat:telegram/main/{KITCHEN}/{topic}", text, shown)

    def _said(self, session: str, text: str, shown: Shown) -> Shown:
        self.said.setdefault(session, []).append(text)
        self.said_at[text] = time.monotonic()
        return shown

    async def card(self, name: str, *, count: int = 1) -> Shown:
        """The owner is asked about an errand; returns the card."""
        return await self.telegram.see(ANN, command_of(name), button="Once", count=count)

    async def settled_with(self, chat: int, begins: str = "") -> None:
        """Wait until the store knows that what is due in a chat, or what begins so, was sent there."""

        def unsent() -> list[str]:
            return [text for place, text in self.wire.unsent() if str(chat) in place and text.startswith(begins)]

        await until(lambda: not unsent())

    async def press(self, card: Shown, label: str, told: str) -> None:
        """The owner presses a button, and is told this."""
        assert (await self.telegram.toast(self.telegram.press(ANN, card, label))).text == told

    def questions(self) -> Iterator[object]:
        """Everything that the model was asked."""
        return (one.body["messages"] for one in self.wire.model.requests)

    # --- lives ---

    async def wakes(self, dies_at: str = "") -> None:
        """A life begins. `dies_at`: the point where it will end by `kill -9`."""
        self.births.append(time.monotonic())
        await self.wire.start(f"{dies_at}:kill" if dies_at else "", ready=not dies_at)

    async def dies(self) -> None:
        """It is killed now."""
        await self.wire.kill()

    async def died(self) -> None:
        """It died where it was to die."""
        await self.wire.killed()

    def telegram_repeats_itself(self, updates: int = 5) -> None:
        """The platform tells again what it told, whether or not it was taken."""
        self.telegram.replay(updates)


@asynccontextmanager
async def a_day(folder: Path, mode: str) -> AsyncGenerator[Day]:
    """The group is there, and nobody has said anything."""
    async with wire(folder, mode=mode, chats=[KITCHEN], rules=RULES, limits=LIMITS) as one:
        one.telegram.supergroup("Kitchen", chat=KITCHEN, topics={BREAD: "Bread", WINE: "Wine"})
        one.telegram.updates.shuffle = dice("a day")
        one.telegram.webhook.pause_factor = 0.002  # or a press made in a pause would wait for its end
        yield Day(wire=one, mode=mode)


def refuse_a_few(telegram: FakeTelegram) -> None:
    """From now on one in ten messages to the crowd is refused for a second, beginning with the next."""
    count = 0

    def script(call: Call) -> Fault | None:
        nonlocal count
        if call.method != "sendMessage" or not isinstance(call.chat, int) or call.chat not in CROWD:
            return None
        count += 1
        if count % 10 != 1:
            return None
        telegram.ban(call.chat, 1)
        return faults.too_many(1)

    telegram.script(script)


# --- the evening --------------------------------------------------------------------------------

Rows = Mapping[str, Sequence[Item]]


@dataclass(slots=True, kw_only=True)
class Evening:
    """The judge of a day that has ended: every figure beside its bar, then every promise row by row."""

    day: Day
    rows: Rows
    missed: list[str] = field(default_factory=list[str])

    def hold(
        self,
        fault: str,
        what: str,
        value: float,
        bar: float,
        unit: str = "",
        *,
        of: int | None = None,
        least: bool = False,
        see: object = "",
    ) -> None:
        """State a figure; those that miss their bar are told together in the end, with what there is to `see`."""
        try:
            figure(fault, what, value, bar, unit, least=least, of=of)
        except AssertionError as error:
            self.missed.append(f"{error} {see}")

    def judge(self, ran: Mapping[str, int]) -> None:
        """Raise `AssertionError` for what was missed. `ran`: how often each errand should have been run."""
        self._messages()
        self._commands(ran)
        self._bans_and_edits()
        self._callbacks()
        self._strangers()
        self._owner_among_them()
        self._secrets()
        assert self.missed == [], self.missed
        by_command = {command_of(name): times for name, times in ran.items()}
        judge_sessions(asked_about(self.rows), self.day.said, by_command, self.day.wire)
        deaths = self.day.wire.deaths
        again = judge_chats(self.day.telegram, slots_of(self.rows), deaths)
        self.hold("F02", "shown again and marked, of what was on its way, a death", len(again) / len(deaths), 1)
        assert self.missed == [], self.missed

    def _messages(self) -> None:
        """Nothing that was said is lost, taken twice, or answered out of order."""
        said = Counter((session, text) for session, texts in self.day.said.items() for text in texts)
        got = Counter(
            (session, item.message.text)
            for session, items in self.rows.items()
            for item in items
            if isinstance(item, Received) and item.turn is not None and item.given is not None
        )
        lost, twice = said - got, got - said
        self.hold("F02", LOST, lost.total(), 0, of=said.total(), see=lost)
        self.hold("F02", TWICE, twice.total(), 0, of=said.total(), see=twice)

    def _commands(self, wanted: Mapping[str, int]) -> None:
        """Check calls: allowed ones ran once, denied ones never did, and each call has its result."""
        ran = {name: len(lines_of(self.day.wire.daemon.state, name)) for name in wanted}
        self.hold("F02", RAN_TWICE, sum(count > 1 for count in ran.values()), 0, of=len(ran), see=ran)
        wrong = sum(ran[name] != times for name, times in wanted.items())
        self.hold("F02", "commands that ran otherwise than decided", wrong, 0, of=len(ran), see=ran)
        calls = [item for items in self.rows.values() for item in items if isinstance(item, Step) and item.call]
        orphans = [step for step in calls if step.result is None]
        self.hold("F02", "calls left without a result", len(orphans), 0, of=len(calls), see=orphans)

    def _bans_and_edits(self) -> None:
        """Nothing is sent into a ban, and an answer that grows does so once a second."""
        early = calls_in_bans(self.day.telegram.log)
        refused = [call for call in self.day.telegram.log if call.status == 429]
        self.hold("F14", "bans, known to it, into which something was sent", len(early), 0, of=len(refused), see=early)
        gaps = [gap for chat in (ANN, BOB, KITCHEN) for gap in gaps_between_beginnings(self.day.telegram, chat)]
        what = "between two edits of an answer that is written"
        self.hold("F14", what, min(gaps), EDIT_EVERY_S - JITTER_S, "s", least=True, see=gaps)
        busiest = max(most_edits_in(self.day.telegram, chat, 10.0) for chat in (ANN, BOB, KITCHEN))
        self.hold("F14", "edits in the busiest 10 s of a chat", busiest, 10)

    def _callbacks(self) -> None:
        """Check presses: each got an answer, at once; from a dead daemon: as soon as it lived."""
        told = {call.chat: call.at_s for call in reversed(self.day.telegram.calls("answerCallbackQuery")) if call.ok}
        queries = self.day.telegram.chats.queries.values()
        silent = [query.id for query in queries if query.id not in told]
        self.hold("F02", "presses that nobody answered", len(silent), 0, of=len(queries), see=silent)
        begins = [next(call.at_s for call in self.day.telegram.log if call.at_s > born) for born in self.day.births]

        def waited_s(since_s: float, until_s: float) -> float:
            return until_s - max(since_s, *(at_s for at_s in begins if at_s <= until_s))

        slowest_s = max(waited_s(query.at_s, told[query.id]) for query in queries if query.id in told)
        self.hold("F02", "until a press was answered", slowest_s, CALLBACK_WITHIN_S, "s")

    def _strangers(self) -> None:
        """One line each, once more and marked at most where it was on its way at a death; the model hears nothing."""
        telegram = self.day.telegram
        deaths = [at_s for at_s in self.day.wire.deaths if at_s > self.day.said_at[IN_THE_FLOOD]]
        lines = {who: [message.text for message in telegram.shown(who)] for who in (EVE, *CROWD)}
        again = [who for who, texts in lines.items() if any(RESENT in text for text in texts)]
        odd = {who: texts for who, texts in lines.items() if not one_line(texts)}
        self.hold("F21", "strangers that were told otherwise than once", len(odd), 0, of=len(lines), see=odd)
        at_most = REFUSALS_AT_ONCE * len(deaths)
        self.hold("F21", "strangers that were told again, marked, after deaths", len(again), at_most)
        self.hold("F21", "lines for a stranger who wrote twice", len(lines[EVE]), 1, see=lines[EVE])
        self.hold("F21", "lines for a stranger who wrote twice, at least", len(lines[EVE]), 1, least=True)
        heard = [body for body in self.day.questions() if CRY in str(body)]
        self.hold("F21", "model calls for strangers, of their messages", len(heard), 0, of=len(CROWD) * WORDS_EACH)

    def _owner_among_them(self) -> None:
        """The owner's turn does not wait for a crowd."""
        asked = next(one for one in self.day.wire.model.requests if IN_THE_FLOOD in str(one.body["messages"]))
        started_s = asked.at_s - self.day.said_at[IN_THE_FLOOD]
        self.hold("F21", "until the owner's turn started in the flood", started_s, TURN_STARTS_WITHIN_S, "s")

    def _secrets(self) -> None:
        log = self.day.wire.daemon.log
        leaked = sum(log.count(secret) for secret in (TOKEN.partition(":")[2], SECRET))
        self.hold("F02", "secrets in the log", leaked, 0)


async def evening(day: Day) -> Evening:
    """The daemon stops in peace, and its rows are read."""
    await day.wire.settled()
    assert await day.wire.daemon.stop() == 0
    return Evening(day=day, rows=await everything(day.wire.daemon.state))


def asked_about(rows: Rows) -> dict[str, list[Item]]:
    """The rows without calls of denied or hidden tools: nobody was asked about those, and nothing ran."""
    waits = {(item.turn, item.n) for items in rows.values() for item in items if isinstance(item, Wait)}

    def denied(item: Item) -> bool:
        if not isinstance(item, Step) or item.result is None or (item.turn, item.n) in waits:
            return False
        return item.result.status is ResultStatus.DENIED or item.result.code == DenyReason.UNKNOWN_TOOL

    return {session: [item for item in items if not denied(item)] for session, items in rows.items()}


def one_line(texts: Sequence[str]) -> bool:
    """Return True if a stranger got one reply; or, in doubt, one more with the mark."""
    marked = [text.startswith(RESENT) for text in texts]
    return marked in ([False], [True], [False, True]) and all(REFUSAL in text for text in texts)


def gaps_between_beginnings(telegram: FakeTelegram, chat: int) -> list[float]:
    """Seconds between the changes of each answer while it was written: all but the last, which is its last words."""
    made = {call.answer["result"]["message_id"]: [call.at_s] for call in shown_in(telegram, chat, *CREATES) if call.ok}
    for edit in shown_in(telegram, chat, "editMessageText"):
        made.setdefault(edit.parameters["message_id"], []).append(edit.at_s)
    cards = {message.id for message in telegram.shown(chat) if "executes · " in message.text}
    return [
        later - earlier
        for message, times in made.items()
        if message not in cards
        for earlier, later in pairwise(times[:-1])
    ]


def most_edits_in(telegram: FakeTelegram, chat: int, span_s: float) -> int:
    """Return the largest number of edits that a chat saw in so many seconds."""
    times = [call.at_s for call in shown_in(telegram, chat, "editMessageText", "editMessageReplyMarkup")]
    return max((sum(first <= at_s < first + span_s for at_s in times) for first in times), default=0)


def shown_in(telegram: FakeTelegram, chat: int, *methods: str) -> list[Call]:
    """The calls of these methods that changed something in a chat."""
    return [call for call in telegram.calls(chat=chat) if call.method in methods and call.acted]
