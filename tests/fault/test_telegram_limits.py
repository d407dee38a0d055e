"""F14, F17 and F21 at Telegram's wire: bans, sends nobody knows the end of, and a crowd of strangers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fault.rig import everything, resident_kib
from tests.fault.telegram_rig import (
    ANN,
    BOB,
    CREATES,
    JOE,
    RESENT,
    Wire,
    calls_in_bans,
    judge_chats,
    retry_after_s,
    slots_of,
    wire,
)
from tests.support.model_server import Reply, Rule
from tests.support.patience import PATIENCE_S
from tests.support.proof import KILLS, LOST, TWICE, counted, dice, figure
from tests.support.telegram import Call, FakeTelegram, Fault, Shown, faults

OTHERS_WITHIN_S = 2.0
CARL = 2003
CROWD = range(3001, 3051)
REFUSED_SHARE = 0.2
BAN_S = 6
TYPING_BAN_S = 3
NO_SUCH_COMMAND = "There is no command /xyzzy. /help lists them."
STRANGERS = range(500_000, 502_500)
WORDS_EACH = 2
FLOOD_S = 10.0
STARTED_WITHIN_S = 2.0
OUTAGE_S = 6.0
ANSWERED_WITHIN_S = 5.0
GROWTH_AT_MOST_KIB = 20 * 1024


# --- F14: 429 -----------------------------------------------------------------------------------


async def answered_in(one: Wire, who: int, text: str) -> float:
    """Say something; return the seconds until it was answered."""
    began = time.monotonic()
    one.telegram.say(who, text)
    await one.telegram.see(who, f"You said: {text}")
    return time.monotonic() - began


async def refused_at(telegram: FakeTelegram, chat: int) -> Call:
    """Wait until a chat was refused; return the call."""

    def refused() -> list[Call]:
        return [call for call in telegram.calls(chat=chat) if call.status == 429]

    await telegram.until(lambda: bool(refused()))
    return refused()[0]


async def test_bans(tmp_path: Path) -> None:
    """One banned chat delays no other, and a restart does not forget it; three banned chats pause the account."""
    async with wire(tmp_path, friends=[BOB, CARL]) as one:
        telegram = one.telegram
        await one.start()
        telegram.ban(ANN, BAN_S)
        telegram.say(ANN, "hello from ann")
        ban = await refused_at(telegram, ANN)
        delays = [await answered_in(one, JOE, "one"), await answered_in(one, BOB, "two")]
        await one.kill()
        await one.start()
        delays.append(await answered_in(one, JOE, "three"))
        await telegram.see(ANN, "You said: hello from ann")
        opened_s = next(call.at_s for call in telegram.calls("sendMessage", ANN) if call.ok) - ban.answered_s
        counted(KILLS, 1, "F14")
        figure("F14", "slowest answer in other chats during a ban", max(delays), OTHERS_WITHIN_S, "s")
        figure("F14", "first call after a ban of 6 s and a restart in it", opened_s, BAN_S - 0.3, "s", least=True)
        figure("F14", "calls into the first ban, besides the one that met it", len(telegram.during_ban) - 1, 0)
        await three_chats_are_banned(one)
        told_in_bans(telegram)
        await one.settled()
        assert await one.daemon.stop() == 0
        judge_chats(telegram, slots_of(await everything(one.daemon.state)), one.deaths)


async def test_a_ban_that_typing_met_holds_the_answer(tmp_path: Path) -> None:
    """Telegram refuses that the bot is shown as writing: the answer that comes a second later waits."""
    thinks = Reply(text="You said: {text}", think_s=1.0)
    async with wire(tmp_path, friends=[BOB], rules=[Rule(reply=thinks)]) as one:
        telegram = one.telegram
        await one.start()
        telegram.ban(ANN, TYPING_BAN_S)
        telegram.say(ANN, "hello")
        ban = await refused_at(telegram, ANN)
        await telegram.see(ANN, "You said: hello")
        told_in_bans(telegram)
        assert (ban.method, len(telegram.during_ban)) == ("sendChatAction", 1)
        assert await one.daemon.stop() == 0


async def three_chats_are_banned(one: Wire) -> None:
    """A fourth chat is not even tried until the first of the bans ends."""
    telegram, three = one.telegram, (ANN, JOE, BOB)
    before = len(telegram.log)
    for chat in three:
        telegram.ban(chat, 3)
        telegram.say(chat, f"again {chat}")
    await telegram.until(lambda: len([call for call in telegram.log[before:] if call.status == 429]) == len(three))
    bans = [call for call in telegram.log[before:] if call.status == 429]
    await asyncio.sleep(0.2)
    telegram.say(CARL, "fourth")
    await telegram.see(CARL, "You said: fourth")
    first = next(call for call in telegram.calls(chat=CARL) if call.method in CREATES)
    opens_s = min(call.answered_s + retry_after_s(call) for call in bans)
    late_s = first.at_s - opens_s
    figure("F14", "a fourth chat tried after the first of three bans ended", late_s, -0.1, "s", least=True)
    for chat in three:
        await telegram.see(chat, f"You said: again {chat}")


def told_in_bans(telegram: FakeTelegram) -> None:
    """State how many calls were made in bans that it had been told of."""
    refused = [call for call in telegram.log if call.status == 429]
    figure(
        "F14", "bans, known to it, into which something was sent", len(calls_in_bans(telegram.log)), 0, of=len(refused)
    )


def refuse_some(telegram: FakeTelegram, chance: random.Random) -> Callable[[Call], Fault | None]:
    """Ban a fifth of the chats that are written to, at each message, for a second or two."""

    def script(call: Call) -> Fault | None:
        if call.method != "sendMessage" or not isinstance(call.chat, int) or chance.random() > REFUSED_SHARE:
            return None
        seconds = chance.randint(1, 2)
        telegram.ban(call.chat, seconds)
        return faults.too_many(seconds)

    return script


@pytest.mark.by_the_clock
@pytest.mark.whole("by the clock; test_slack_limits refuses a fifth too, and test_bans stays")
async def test_a_fifth_of_all_sends_is_refused(tmp_path: Path) -> None:
    """Fifty chats: nothing is sent into a ban, nothing is lost or doubled, each chat keeps its order."""
    async with wire(tmp_path, friends=CROWD, limits="overall_per_s = 0") as one:
        telegram = one.telegram
        await one.start()
        telegram.script(refuse_some(telegram, dice("F14")))
        for who in CROWD:
            telegram.say(who, f"hello {who}")
            telegram.say(who, "/xyzzy")
        await one.settled(45)
        assert await one.daemon.stop() == 0
        rows = await everything(one.daemon.state)
        slots = slots_of(rows)
        refused = [call for call in telegram.log if call.status == 429]
        told_in_bans(telegram)
        told = {who: Counter(message.text for message in telegram.shown(who)) for who in CROWD}
        wanted = {who: Counter([NO_SUCH_COMMAND, f"You said: hello {who}"]) for who in CROWD}
        figure("F14", LOST, sum((wanted[who] - told[who]).total() for who in CROWD), 0, of=2 * len(CROWD))
        figure("F14", TWICE, sum((told[who] - wanted[who]).total() for who in CROWD), 0, of=2 * len(CROWD))
        figure("F14", "shown twice, of messages", len(judge_chats(telegram, slots)), 0, of=len(slots))
        assert len(refused) >= len(slots) * REFUSED_SHARE / 2


# --- F17: sends whose end is not known ----------------------------------------------------------

ENTITIES = faults.error(400, "Bad Request: can't parse entities: Unsupported start tag")
FRIENDS = {
    4001: "cut",
    4002: "cut twice",
    4003: "502, acted",
    4004: "502, not acted",
    4005: "dropped",
    4006: "never answered",
    4007: "late",
    4008: "entities refused",
    4009: "blocked",
}
Faults = Sequence[Fault | None]
FAULTS: Mapping[tuple[str, int], Faults] = {
    ("sendMessage", 4001): [faults.cut()],
    ("sendMessage", 4002): [faults.cut(), faults.cut()],
    ("sendMessage", 4003): [faults.page(acts=True)],
    ("sendMessage", 4004): [faults.page()],
    ("sendMessage", 4005): [faults.drop()],
    ("sendMessage", 4006): [faults.silent(acts=True)],
    ("sendMessage", 4007): [faults.slow(hold_s=1.0)],
    ("sendMessage", 4008): [ENTITIES],
    ("editMessageText", ANN): [faults.cut(), None, faults.page(acts=True)],
    ("editMessageText", JOE): [faults.silent(acts=True)],
}
PLAIN, MARKED = "Bold words.", f"{RESENT} Bold words."
SHOWN: Mapping[int, list[str]] = {
    4001: [PLAIN, MARKED],
    4002: [PLAIN, MARKED],
    4003: [PLAIN, MARKED],
    4004: [MARKED],
    4005: [MARKED],
    4006: [PLAIN, MARKED],
    4007: [PLAIN],
    4008: [PLAIN],
    4009: [],
}
"""Messages that people see in the end: never a third copy, never an unmarked second one."""


def by_turn(faults_of: Mapping[tuple[str, int], Faults]) -> Callable[[Call], Fault | None]:
    """Give the n-th call of a method in a chat the n-th of its faults."""
    seen: Counter[tuple[str, int]] = Counter()

    def script(call: Call) -> Fault | None:
        if not isinstance(call.chat, int):
            return None
        key = (call.method, call.chat)
        n, wanted = seen[key], faults_of.get(key, ())
        seen[key] += 1
        return wanted[n] if n < len(wanted) else None

    return script


async def deny(one: Wire, who: int, command: str) -> Shown:
    """Ask for a command and deny it; return the card."""
    one.telegram.say(who, f"/shell {command}")
    card = await one.telegram.see(who, command, button="Once")
    one.telegram.press(who, card, card.buttons[0][1]["callback_data"])
    await one.telegram.see(who, "denied: Nothing was run.")
    return card


@pytest.mark.whole("waits for seconds; test_an_answer in test_delivery_limits stays")
async def test_sends_that_nobody_knows_the_end_of(tmp_path: Path) -> None:
    """A message that may stand there comes once more, marked; an edit is simply repeated; who blocks us is let go."""
    bold = [Rule(reply=Reply(text="**Bold** words."))]
    async with wire(tmp_path, friends=list(FRIENDS), rules=bold) as one:
        telegram = one.telegram
        await one.start()
        telegram.say(ANN, "/status")
        await telegram.see(ANN, "This session")
        telegram.script(by_turn(FAULTS))
        telegram.block(4009)
        for friend in FRIENDS:
            telegram.say(friend, "hello")
        async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
            edited = [group.create_task(deny(one, who, f"env echo {who}")) for who in (ANN, JOE)]
            edited.append(group.create_task(deny_second(one)))
        telegram.say(4009, "are you there?")
        await one.settled(40)
        found = {friend: [message.text for message in telegram.shown(friend)] for friend in FRIENDS}
        wrong = {FRIENDS[friend]: texts for friend, texts in found.items() if texts != SHOWN[friend]}
        what = "ways to fail after which a message is shown otherwise than once, or twice and marked"
        figure("F17", what, len(wrong), 0, of=len(FRIENDS))
        assert wrong == {}
        figure(
            "F17",
            "messages of a send with an unknown end that are not there at all",
            gone(found),
            0,
            of=len(FRIENDS) - 1,
        )
        assert telegram.shown(4008)[0].entities == []
        cards = [task.result() for task in edited]
        assert not any(card.buttons for card in cards)
        cards_shown = [m for who in (ANN, JOE) for m in telegram.shown(who) if "executes · " in m.text]
        figure("F17", "cards shown twice whose edits failed", len(cards_shown) - len(cards), 0, of=len(cards))
        told = Counter(note.text.split(" an answer")[0] for note in telegram.shown(ANN) if "could not be" in note.text)
        assert told == {f"In telegram/main/{friend}": 1 for friend in (4002, 4009)}


def gone(found: Mapping[int, Sequence[str]]) -> int:
    """Return the number of friends who did not block us and see nothing."""
    return sum(not texts for friend, texts in found.items() if SHOWN[friend])


async def deny_second(one: Wire) -> Shown:
    """Another card for Ann, once her first is decided."""
    await one.telegram.see(ANN, "denied: Nothing was run.")
    one.telegram.say(ANN, "/shell env echo second")
    card = await one.telegram.see(ANN, "echo second", button="Once")
    one.telegram.press(ANN, card, card.buttons[0][1]["callback_data"])
    await one.telegram.see(ANN, "denied: Nothing was run.", count=2)
    return card


async def test_nobody_there_is_no_doubt(tmp_path: Path) -> None:
    """A refused connection has shown nothing: the message comes later, once and unmarked."""
    slow = [Rule(text="later", reply=Reply(text="Here it is.", think_s=1.0))]
    async with wire(tmp_path, rules=slow) as one:
        await one.start()
        one.telegram.say(ANN, "later")
        await one.model.until(lambda: bool(one.model.requests))
        await one.hang_up()
        await asyncio.sleep(3)
        assert one.telegram.shown(ANN) == []
        await one.connect()
        await one.telegram.see(ANN, "Here it is.")
        await one.settled()
        texts = [message.text for message in one.telegram.shown(ANN)]
        figure("F17", "shown twice, or marked, after refused connections", len(texts) - texts.count("Here it is."), 0)
        assert texts == ["Here it is."]


@pytest.mark.whole("waits for seconds; test_bans and the unit tests of delivery stay")
async def test_an_outage_costs_no_answer(tmp_path: Path) -> None:
    """Telegram answers nothing but 502 for a while, then nobody is there at all: everybody gets everything later."""
    async with wire(tmp_path, friends=list(FRIENDS)) as one:
        telegram = one.telegram
        await one.start()
        telegram.script(lambda call: faults.page() if call.method in CREATES else None)
        for friend in FRIENDS:
            telegram.say(friend, "hello")
        await asyncio.sleep(OUTAGE_S)
        await one.hang_up()
        telegram.script(lambda call: None)
        await asyncio.sleep(OUTAGE_S)
        await one.connect()
        await one.settled(40)
        found = [[message.text for message in telegram.shown(friend)] for friend in FRIENDS]
        figure("F17", LOST, sum(not texts for texts in found), 0, of=len(FRIENDS))
        figure("F17", "shown twice after an outage", sum(len(texts) > 1 for texts in found), 0, of=len(FRIENDS))


# --- F21: a crowd of strangers ------------------------------------------------------------------


async def flood(telegram: FakeTelegram, owner_speaks: asyncio.Event) -> None:
    """Strangers write as fast as they can; half-way it is the owner's turn."""
    words = [who for _ in range(WORDS_EACH) for who in STRANGERS]
    dice("F21").shuffle(words)
    began, each = time.monotonic(), FLOOD_S / len(words)
    for n, who in enumerate(words):
        telegram.say(who, "/shell id")
        if n == len(words) // 2:
            owner_speaks.set()
        if n % 25 == 24:
            await asyncio.sleep(max(0.0, began + n * each - time.monotonic()))


@pytest.mark.whole("waits for seconds; test_bans stays")
@pytest.mark.by_the_clock
async def test_a_crowd_of_strangers(tmp_path: Path) -> None:
    """Five thousand messages in ten seconds: they cost no model call, little memory, and the owner no time."""
    async with wire(tmp_path) as one:
        telegram = one.telegram
        await one.start()
        assert one.daemon.process is not None
        await answered_in(one, ANN, "warm up")
        before_kib = resident_kib(one.daemon.process.pid)
        turn = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            flooding = group.create_task(flood(telegram, turn))
            await turn.wait()
            said_s = time.monotonic()
            telegram.say(ANN, "in the middle")
            await one.model.until(lambda: len(one.model.requests) == 2)
            started_s = time.monotonic() - said_s
            with suppress(AssertionError):  # the other figures are wanted too
                await telegram.see(ANN, "You said: in the middle", within_s=ANSWERED_WITHIN_S)
            answered_s = time.monotonic() - said_s
            await flooding
        await telegram.until(lambda: not telegram.updates.pending(), 30)
        growth_kib = resident_kib(one.daemon.process.pid) - before_kib
        refusals = max(len(telegram.shown(who)) for who in STRANGERS)
        count = len(STRANGERS) * WORDS_EACH
        figure("F21", "model calls for strangers, of their messages", len(one.model.requests) - 2, 0, of=count)
        figure("F21", "refusals that one stranger was told", refusals, 1)
        figure("F21", "until the owner's turn started in the flood", started_s, STARTED_WITHIN_S, "s")
        figure("F21", "until the owner was answered in the flood", answered_s, ANSWERED_WITHIN_S, "s")
        figure("F21", "memory that grew", growth_kib / 1024, GROWTH_AT_MOST_KIB / 1024, "MiB")
        assert refusals == 1
