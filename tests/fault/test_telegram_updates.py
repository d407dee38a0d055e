"""F15, F16 and bad input on Telegram's way in: a rival poller, updates in any order, poison, forgeries."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fault.rig import everything, lines_of
from tests.fault.telegram_rig import (
    ANN,
    EVE,
    JOE,
    SECRET,
    Wire,
    judge_chats,
    judge_sessions,
    slots_of,
    tell_sessions,
    wire,
)
from tests.support.proof import dice, figure
from tests.support.stopwatch import Stopwatch
from tests.support.telegram import TOKEN, Call, FakeTelegram, Fault, Shown, faults

RIVAL_TIMEOUT_S = 49
"""Timeout that marks the rival's polls."""
RIVAL_S = 12.0
WELL_AT_MOST = 2
"""Times that it may look healthy meanwhile: each attempt to come back begins well."""
ALERT_WITHIN_S = 10.0
BACK_WITHIN_S = 15.0
CROWD = range(3001, 3031)
REPLAYED = 0.3
LATER_WITHIN_S = 2.0
TROUBLE_WITHIN_S = 5.0
UNKNOWN, NONSENSE = "987654321:AAAnotherTokenThatNobodyKnows-00000", "55555:short"
THREE_BOTS = """
[channels.telegram.accounts.good]
token = "env:TELEGRAM_BOT_TOKEN"
api_root = "{api_root}"
[channels.telegram.accounts.unknown]
token = "env:UNKNOWN_TOKEN"
api_root = "{api_root}"
[channels.telegram.accounts.nonsense]
token = "env:NONSENSE_TOKEN"
api_root = "{api_root}"
"""
REFUSED = ("You may not decide this.", "This button is not valid here.")

Json = dict[str, Any]


# --- F15: somebody else polls -------------------------------------------------------------------


@asynccontextmanager
async def rival(telegram: FakeTelegram) -> AsyncGenerator[None]:
    """Another program with the same token, which polls and confirms nothing."""

    async def poll() -> None:
        address = f"{telegram.api_root}/bot{TOKEN}/getUpdates"
        async with aiohttp.ClientSession() as client:
            while True:
                async with client.post(address, json={"timeout": RIVAL_TIMEOUT_S}) as response:
                    await response.read()
                await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        polling = group.create_task(poll(), name="rival")
        try:
            yield
        finally:
            polling.cancel()


def conflicts(telegram: FakeTelegram, since_s: float) -> list[float]:
    """When the daemon was told that somebody else polls."""
    polls = [call for call in telegram.calls("getUpdates") if call.answered_s >= since_s and call.status == 409]
    return [call.answered_s for call in polls if call.parameters.get("timeout") != RIVAL_TIMEOUT_S]


async def healths(one: Wire, until_s: float) -> list[int]:
    """Return the answers of /readyz, every quarter of a second."""
    found: list[int] = []
    while time.monotonic() < until_s:
        found.append((await one.health())[0])
        await asyncio.sleep(0.25)
    return found


@pytest.mark.whole("waits 16 s; the account refuses a second poller in test_account")
async def test_a_second_poller(tmp_path: Path) -> None:
    """Nobody is answered twice; the owners hear of it, /readyz says so, and it yields ever longer, then comes back."""
    async with wire(tmp_path) as one:
        telegram = one.telegram
        await one.start()
        telegram.say(ANN, "/status")
        await telegram.see(ANN, "This session")
        began = time.monotonic()
        async with rival(telegram):
            await telegram.see(ANN, "Somebody else polls", within_s=ALERT_WITHIN_S)
            alert_s = time.monotonic() - began
            ready = await healths(one, began + RIVAL_S)
            telegram.say(JOE, "while it polls")
            await asyncio.sleep(0.3)
        told = conflicts(telegram, began)
        gone_s = time.monotonic()
        telegram.say(JOE, "afterwards")
        await telegram.see(JOE, "You said: afterwards", within_s=BACK_WITHIN_S)
        back_s = time.monotonic() - gone_s
        await one.settled()
        assert (await one.health())[0] == 200
        assert await one.daemon.stop() == 0
        gaps = [round(later - earlier, 1) for earlier, later in pairwise(told)]
        figure("F15", "until the owner knew", alert_s, ALERT_WITHIN_S, "s")
        figure("F15", "until it polled again when the rival was gone", back_s, BACK_WITHIN_S, "s")
        figure("F15", "polls into the rival's in 12 s", len(told), 2)
        figure("F15", "between the first two of them", gaps[0], 4.5, "s", least=True)
        figure("F15", "times that /readyz said all was well", ready.count(200), WELL_AT_MOST)
        rows = await everything(one.daemon.state)
        tell_sessions("F15", rows, {"main:joe": ["while it polls", "afterwards"]}, {})
        judge_sessions(rows, {"main:joe": ["while it polls", "afterwards"]}, {}, one)
        assert len([m for m in telegram.shown(ANN) if "Somebody else polls" in m.text]) == 1
        assert len(told) == 2


# --- F16: repeated, shuffled, under other ids ---------------------------------------------------


async def say_and_replay(telegram: FakeTelegram, round_: int, chance: random.Random) -> int:
    """Everybody says something, and Telegram tells much of it again. Returns how much was told again."""
    replayed = 0
    for who in CROWD:
        telegram.say(who, f"round {round_} from {who}")
        if chance.random() < REPLAYED:
            count = chance.randint(1, 5 * round_ * len(CROWD) // 10)
            telegram.replay(count)
            replayed += count
        if chance.random() < 0.2:
            await asyncio.sleep(0.02)
    return replayed


async def test_updates_repeated_shuffled_and_renumbered(tmp_path: Path) -> None:
    """Each message is taken exactly once, whatever comes again, in whatever order, under whatever number."""
    chance = dice("F16")
    async with wire(tmp_path, friends=CROWD, limits="per_chat_per_s = 0\noverall_per_s = 0") as one:
        telegram = one.telegram
        telegram.updates.shuffle = chance
        await one.start()
        again = await say_and_replay(telegram, 1, chance)
        await telegram.jump()
        again += await say_and_replay(telegram, 2, chance)
        await telegram.jump(10**8)
        again += await say_and_replay(telegram, 3, chance)
        await one.settled()
        assert await one.daemon.stop() == 0
        rows = await everything(one.daemon.state)
        said = {f"dm:telegram/main/{who}": [f"round {n} from {who}" for n in (1, 2, 3)] for who in CROWD}
        tell_sessions("F16", rows, said, {})
        judge_sessions(rows, said, {}, one)
        assert judge_chats(telegram, slots_of(rows)) == []
        figure("F16", "updates told again", again, len(CROWD), least=True)


# --- bad input ----------------------------------------------------------------------------------


def poison(telegram: FakeTelegram) -> int:
    """Put updates that nobody can read into the queue; returns how many."""
    good: Json = telegram.updates.given[-1]["message"]
    bad: list[Json] = [
        {"message": "text"},
        {"message": {**good, "from": {"id": "1001"}}},
        {"message": {**good, "date": 10**20}},
        {"message": {**good, "chat": None}},
        {"message": {**good, "text": {"a": [1] * 1000}}},
        {"message": {**good, "message_id": -1}},
        {"message": {**good, "entities": [{"type": "bot_command", "offset": -5, "length": 9}]}},
        {"edited_message": []},
        {"callback_query": {"id": 5, "from": good["from"], "data": "x"}},
        {"callback_query": {"id": "6", "from": good["from"], "data": "x" * 5000, "message": good}},
        {"update_id": "abc", "message": good},
        {"update_id": -7, "poll": {}},
    ]
    for update in bad:
        telegram.send_raw(update)
    return len(bad)


async def troubled(one: Wire, *wanted: str) -> str:
    """Wait until /readyz says all of this."""
    async with asyncio.timeout(TROUBLE_WITHIN_S):
        while True:
            status, text = await one.health()
            if status == 503 and all(word in text for word in wanted):
                return text
            await asyncio.sleep(0.05)


async def test_bad_tokens_and_poison(tmp_path: Path) -> None:
    """A bad token is named, in one account and the other; poison stops nobody; a token can be revoked at any time."""
    async with wire(tmp_path, channel=THREE_BOTS) as one:
        telegram = one.telegram
        one.env |= {"UNKNOWN_TOKEN": UNKNOWN, "NONSENSE_TOKEN": NONSENSE}
        await one.start(ready=False)
        telegram.say(ANN, "good morning")
        await telegram.see(ANN, "You said: good morning")
        text = await troubled(one, "account unknown", "(401)", "account nonsense", "(404)", "BotFather")
        assert "account good" not in text
        telegram.say(ANN, "before")
        count = poison(telegram)
        watch = Stopwatch(lambda: one.daemon.pid)
        telegram.say(JOE, "after")
        await telegram.see(JOE, "You said: after")
        after_s = watch.seconds()
        await telegram.see(ANN, "You said: before")
        assert count > 10
        figure("F16", "until a message behind poisoned updates was answered", after_s, LATER_WITHIN_S, "s")
        telegram.script(revoked)
        telegram.say(ANN, "is anybody there?")
        text += await troubled(one, "account good", "(401)")
        assert one.daemon.process is not None
        assert one.daemon.process.returncode is None
        leaked = [t for t in (UNKNOWN, NONSENSE, TOKEN) if t.partition(":")[2] in text + one.daemon.log]
        assert leaked == []


def revoked(call: Call) -> Fault | None:
    """The token is good for nothing any more."""
    return faults.error(401, "Unauthorized")


def events(one: Wire) -> int:
    """Return the number of stored events."""
    path = f"file:{one.daemon.state / 'dragoman.db'}?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as store:
        return store.execute("SELECT count(*) FROM events").fetchone()[0]


async def post(one: Wire, body: Any, *secrets: str) -> int:
    """Call the webhook; return the status."""
    headers = [("X-Telegram-Bot-Api-Secret-Token", secret) for secret in secrets]
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{one.daemon.url}/telegram/main", data=body, headers=headers) as response,
    ):
        return response.status


async def in_pieces(size: int) -> AsyncGenerator[bytes]:
    """A body whose length nobody says beforehand."""
    for _ in range(size // 65536 + 1):
        yield b"x" * 65536


async def test_forged_calls_of_the_webhook_and_forged_presses(tmp_path: Path) -> None:
    """Without the secret nothing is read or stored; what is too large or no JSON is neither; presses decide nothing."""
    async with wire(tmp_path, mode="webhook") as one:
        telegram = one.telegram
        await one.start()
        telegram.say(ANN, "hello")
        await telegram.see(ANN, "You said: hello")
        before = events(one)
        forged = b'{"update_id": 1, "message": %s}' % order_of(telegram)
        unsigned = [
            await post(one, forged, *shown) for shown in ((), ("",), ("wrong",), (SECRET, SECRET), (SECRET[:-1],))
        ]
        assert unsigned == [401] * 5
        large = [await post(one, BytesIO(b" " * (1 << 21)), SECRET), await post(one, in_pieces(1 << 21), SECRET)]
        assert large == [413, 413]
        figure("F16", "events stored for unsigned and too large calls", events(one) - before, 0, of=7)
        odd = [await post(one, body, SECRET) for body in (b"not json", b"\xff\xfe", b"", b"[" * 100_000, b"null", b"7")]
        assert odd == [200] * 6
        half = order_of(telegram).replace(b"/shell", b"\\ud800 ")
        halves = [await post(one, b'{"update_id": 2, "message": %s}' % half, SECRET) for _ in range(3)]
        assert halves[-1] == 200
        await forged_presses(one)
        assert (await one.health())[0] == 200
        assert lines_of(one.daemon.state, "forged") == []
        assert {status for _, status in telegram.webhook.tries} == {200}


def order_of(telegram: FakeTelegram) -> bytes:
    """A message in which Ann seems to ask for a command."""
    message: Json = {**telegram.updates.given[-1]["message"], "message_id": 77, "text": "/shell echo x >> forged"}
    message["entities"] = [{"type": "bot_command", "offset": 0, "length": 6}]
    return json.dumps(message).encode()


async def forged_presses(one: Wire) -> None:
    """Strangers, other chats and made-up data are told so; a press that is answered too late still counts once."""
    telegram = one.telegram
    telegram.say(JOE, "/status")
    other = await telegram.see(JOE, "This session")
    telegram.say(ANN, "/shell echo x >> forged")
    card = await telegram.see(ANN, "echo x >> forged", button="Once")
    once, _, deny, _ = (button["callback_data"] for row in card.buttons for button in row)
    wrong: list[tuple[int, Shown, str]] = [
        (EVE, card, once),
        (JOE, other, once),
        (ANN, other, once),
        (ANN, card, once[:-2] + ("BA" if once.endswith("AA") else "AA")),  # one handle in 256 ends with AA
        (ANN, card, "x"),
        (ANN, card, "\u202e" * 21),
        (777000, card, once),
    ]
    toasts = [(await telegram.toast(telegram.press(who, at, data, forged=True))).text for who, at, data in wrong]
    figure("F26", "forged presses that decided something", sum(t not in REFUSED for t in toasts), 0, of=len(wrong))
    assert set(toasts) <= set(REFUSED)
    assert card.buttons
    telegram.chats.query_lives_s = 0
    telegram.press(ANN, card, deny)
    await telegram.until(lambda: not card.buttons)
    await one.settled()
