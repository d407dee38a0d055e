"""F01 and F18 over Telegram: kill -9 while messages, a card and a press are on their way, and long absences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fault.rig import everything, lines_of
from tests.fault.telegram_rig import (
    ANN,
    BOB,
    JOE,
    RESENT,
    Wire,
    age,
    judge_chats,
    judge_sessions,
    slots_of,
    tell_sessions,
    wire,
    words,
)
from tests.support.model_server import Reply, Rule
from tests.support.patience import PATIENCE_S
from tests.support.proof import KILLS, counted, figure, times
from tests.support.stopwatch import Stopwatch
from tests.support.telegram import Call, FakeTelegram, Fault, Shown, faults

AGAIN = range(times(1, 6))
"""So often it dies at all points: at their first passages, then at their second, and so on by turns."""
INGRESS = ("J1", "J2", "J3")
LIVES = [
    ("polling", (*INGRESS, "J8")),
    ("polling", ("J9", "J15", "J16")),
    ("polling", ("J17", "J18", "J19")),
    ("webhook", INGRESS),
]
"""The points at which one life after the other ends, before the one that is left in peace."""
NO_LIMITS = "per_chat_per_s = 0\noverall_per_s = 0"
ALLOWED, DENIED = "echo x >> allowed", "echo x >> denied"
LONG = " ".join(f"This is sentence number {n:04} of a long answer." for n in range(195))
OFFERED_WITHIN_S = 10
AWAY = timedelta(seconds=200)


class People:
    """Two owners and a friend. They do not know that the daemon dies."""

    def __init__(self, telegram: FakeTelegram) -> None:
        """Begin with nothing said."""
        self.telegram = telegram
        self.said: dict[str, list[str]] = {"main:ann": [], "main:joe": [], f"dm:telegram/main/{BOB}": []}
        """By session."""

    def say_all(self, life: int) -> None:
        """Send the messages of one life: two commands that ask, and a word from each."""
        allowed, denied = f"/shell {allowed_in(life)}", f"/shell {denied_in(life)}"
        words = ([allowed, f"hello {life}"], [denied, f"hi {life}"], [f"good morning {life}"])
        for who, texts, said in zip((ANN, JOE, BOB), words, self.said.values(), strict=True):
            for text in texts:
                self.telegram.say(who, text)
                said.append(text)

    async def decide(self, life: int) -> None:
        """Press both cards of one life, once."""
        for who, command, label in ((ANN, allowed_in(life), "Once"), (JOE, denied_in(life), "Deny")):
            card = await self.telegram.see(who, command, button="Once")
            data = next(b["callback_data"] for row in card.buttons for b in row if b["text"].endswith(label))
            self.telegram.press(who, card, data)

    async def press_everything_again(self) -> int:
        """Every button of every card that was ever shown; each is told that it is too late. Returns how many."""
        pressed = [
            self.telegram.press(message.chat, message, data, forged=True)
            for chat in (ANN, JOE)
            for message in self.telegram.shown(chat)
            for data in buttons_of(self.telegram, message)
        ]
        for query in pressed:
            assert (await self.telegram.toast(query)).text == "Already decided."
        return len(pressed)


def buttons_of(telegram: FakeTelegram, message: Shown) -> list[str]:
    """Return the payloads of a message's buttons when it was made."""
    made = [
        call.parameters["reply_markup"]["inline_keyboard"]
        for call in telegram.calls("sendMessage", message.chat)
        if call.acted and call.answer.get("result", {}).get("message_id") == message.id
        if "reply_markup" in call.parameters
    ]
    return [button["callback_data"] for rows in made for row in rows for button in row]


def allowed_in(life: int) -> str:
    """The command that is allowed."""
    return f"echo x >> allowed-{life}"


def denied_in(life: int) -> str:
    """The command that is denied."""
    return f"echo x >> denied-{life}"


async def die_at_each(points: Sequence[str], passage: int, one: Wire, people: People) -> None:
    """One life after the other, each with people who write and press; the last one is left alive."""
    async with asyncio.TaskGroup() as group:
        for life, point in enumerate(points):
            await one.start(f"{point}:kill:{passage}", ready=False)  # it may die before it can say so
            people.say_all(life)
            group.create_task(people.decide(life))
            await one.killed()
        await one.start()
    await one.settled()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize(("mode", "points"), LIVES, ids=[f"{mode} {'-'.join(points)}" for mode, points in LIVES])
async def test_killed_at(mode: str, points: Sequence[str], again: int, tmp_path: Path) -> None:
    """Nothing is lost or answered twice, nothing runs twice; what was on its way may stand there twice, marked."""
    async with wire(tmp_path, mode=mode, limits=NO_LIMITS) as one:
        people = People(one.telegram)
        async with asyncio.timeout(2 * PATIENCE_S):
            await die_at_each(points, 1 + again % 2, one, people)
        late = await people.press_everything_again()
        await one.settled()
        assert await one.daemon.stop() == 0
        rows = await everything(one.daemon.state)
        commands = [command(life) for life in range(len(points)) for command in (allowed_in, denied_in)]
        ran = {command: len(lines_of(one.daemon.state, command.split()[-1])) for command in commands}
        counted(KILLS, len(one.deaths), "F01")
        tell_sessions("F01", rows, people.said, ran)
        surplus = judge_chats(one.telegram, slots_of(rows), one.deaths)
        judge_sessions(rows, people.said, ran, one)
        marked = len(surplus) / len(one.deaths)
        figure(
            "F01", "shown again and marked, of what was on its way in three chats, a death", marked, len(people.said)
        )
        assert late >= 2 * len(commands)


@pytest.mark.parametrize(
    ("fault", "copies"),
    [(faults.slow(wait_s=40), 0), (faults.silent(acts=True), 1)],
    ids=["second part on its way", "second part there, unanswered"],
)
@pytest.mark.sampled(1)
async def test_killed_between_the_parts_of_an_answer(fault: Fault, copies: int, tmp_path: Path) -> None:
    """It goes on behind what is stored: the first part is not shown again, the second at most once more."""
    async with wire(tmp_path, rules=[Rule(reply=Reply(text=LONG))]) as one:
        telegram, held = one.telegram, asyncio.Event()
        telegram.script(nth_create(ANN, 2, fault, held))
        await one.start()
        telegram.say(ANN, "tell me everything")
        async with asyncio.timeout(15):
            await held.wait()
        first = telegram.shown(ANN)[0]
        await telegram.until(lambda: len(telegram.shown(ANN)) == 1 + copies)
        await one.kill()
        telegram.script(lambda call: None)
        await one.start()
        await one.settled()
        assert await one.daemon.stop() == 0
        (slot,) = slots_of(await everything(one.daemon.state))
        surplus = judge_chats(telegram, [slot], one.deaths)
        assert len(surplus) <= copies
        shown = telegram.shown(ANN)
        ids = [int(number) for number in slot.message_ids]
        assert ids[0] == first.id
        assert sum(words(one.text).startswith(words(LONG)[:40]) for one in shown) == 1
        marked = sum(RESENT in one.text for one in shown)
        counted(KILLS, 1, "F01")
        figure("F01", "parts of a long answer that are shown again, marked", marked, 1)
        assert len(surplus) <= marked


def nth_create(chat: int, n: int, fault: Fault, held: asyncio.Event) -> Callable[[Call], Fault | None]:
    """Give the n-th message of a chat a fault, and say when it came."""
    seen = 0

    def script(call: Call) -> Fault | None:
        nonlocal seen
        if call.method != "sendMessage" or call.chat != chat:
            return None
        seen += 1
        if seen != n:
            return None
        held.set()
        return fault

    return script


async def asked(one: Wire, who: int, command: str) -> Shown:
    """Ask for a command; return its card, once it is stored as sent."""
    one.telegram.say(who, f"/shell {command}")
    card = await one.telegram.see(who, command, button="Once")
    await one.all_sent()
    return card


async def offered(one: Wire, who: int, command: str) -> Shown:
    """The second card for a command."""
    return await one.telegram.see(who, command, button="Once", count=2, within_s=OFFERED_WITHIN_S)


async def away(one: Wire) -> None:
    """Dead for longer than Telegram keeps presses: those made meanwhile never come."""
    await one.kill()
    for who, label in ((ANN, "Once"), (JOE, "Deny")):
        card = next(message for message in one.telegram.shown(who) if message.buttons)
        data = next(b["callback_data"] for row in card.buttons for b in row if b["text"].endswith(label))
        one.telegram.press(who, card, data)
    for update in [update for update in one.telegram.updates.waiting if "callback_query" in update]:
        one.telegram.updates.done(update)
    await age(one.daemon.state, AWAY)


async def decided(one: Wire, card: Shown, label: str, wanted: str) -> None:
    """Press a button that a card has, or had, and be told this."""
    datas = buttons_of(one.telegram, card)
    data = datas[0] if label == "Once" else datas[-2]
    assert (await one.telegram.toast(one.telegram.press(card.chat, card, data, forged=True))).text == wanted


async def test_cards_are_offered_again_after_a_long_absence(tmp_path: Path) -> None:
    """The new card works, and so does the old one; whichever is pressed first decides, and it runs once."""
    async with wire(tmp_path) as one:
        await one.start()
        old = {ANN: await asked(one, ANN, ALLOWED), JOE: await asked(one, JOE, DENIED)}
        await away(one)
        one.daemon.warm = False  # how long this start takes is measured
        watch = Stopwatch(lambda: one.daemon.pid)
        await one.start()
        new = {ANN: await offered(one, ANN, ALLOWED), JOE: await offered(one, JOE, DENIED)}
        offered_s = watch.seconds()
        await decided(one, new[ANN], "Once", "Allowed.")
        await decided(one, old[ANN], "Deny", "Already decided.")
        await decided(one, old[JOE], "Deny", "Denied; nothing was run.")
        await decided(one, new[JOE], "Once", "Already decided.")
        await one.telegram.until(lambda: not any(card.buttons for card in [*old.values(), *new.values()]))
        await one.settled()
        assert await one.daemon.stop() == 0
        ran = [len(lines_of(one.daemon.state, name)) for name in ("allowed", "denied")]
        counted(KILLS, 1, "F18")
        figure("F18", "from the start until cards were offered again", offered_s, OFFERED_WITHIN_S, "s")
        figure("F18", "commands that ran otherwise than decided, once", abs(ran[0] - 1) + ran[1], 0, of=2)
        judge_chats(one.telegram, slots_of(await everything(one.daemon.state)))


@pytest.mark.whole("waits for seconds; the cards offered again stay")
async def test_approval_expired_in_a_long_absence_is_asked_again(tmp_path: Path) -> None:
    """The old button is told why it does nothing; the new card decides, once."""
    async with wire(tmp_path) as one:
        one.expiry = "2s"
        await one.start()
        old = await asked(one, ANN, ALLOWED)
        await one.kill()
        await asyncio.sleep(2)
        await age(one.daemon.state, AWAY)
        one.expiry = "1h"
        await one.start()
        await one.telegram.until(lambda: not old.buttons)
        new = await one.telegram.see(ANN, ALLOWED, button="Once", within_s=OFFERED_WITHIN_S)
        toast = await one.telegram.toast(one.telegram.press(ANN, old, buttons_of(one.telegram, old)[0], forged=True))
        assert toast.text in ("Already decided.", "Expired; nothing was run.")
        await decided(one, new, "Once", "Allowed.")
        await one.telegram.see(ANN, "exit 0")
        await one.settled()
        assert len(lines_of(one.daemon.state, "allowed")) == 1
