from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from telegram import Bot as LibraryBot
from telegram import InlineKeyboardButton, InlineKeyboardMarkup
from telegram.error import BadRequest

from tests.support.telegram import Call, FakeTelegram, Fault, faults

ANN, BEN = 1001, 1002


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(first_update=500).serve() as server:
        yield server


class Client:
    """A bot over plain HTTP."""

    def __init__(self, telegram: FakeTelegram, session: aiohttp.ClientSession) -> None:
        self.root = f"{telegram.api_root}/bot{telegram.token}"
        self.session = session

    async def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        async with self.session.post(f"{self.root}/{method}", json=parameters) as response:
            return await response.json()

    async def ids(self, **parameters: Any) -> list[int]:
        answer = await self("getUpdates", **parameters)
        return [update["update_id"] for update in answer["result"]]


@pytest.fixture
async def bot(telegram: FakeTelegram) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(telegram, session)


async def test_an_offset_confirms_what_is_before_it(telegram: FakeTelegram, bot: Client) -> None:
    for n in range(4):
        telegram.say(ANN, f"{n}")
    assert await bot.ids() == await bot.ids() == [500, 501, 502, 503]
    assert await bot.ids(limit=2) == [500, 501]
    assert await bot.ids(offset=502) == [502, 503]
    assert await bot.ids() == [502, 503]
    assert await bot.ids(offset=-1) == [503]
    assert await bot.ids(offset=504) == []
    assert list(telegram.updates.waiting) == []


async def test_ids_jump_back_repeat_and_come_in_any_order(telegram: FakeTelegram, bot: Client) -> None:
    telegram.say(ANN, "old")
    assert await bot.ids(offset=501) == []
    await telegram.jump(-400)
    telegram.say(ANN, "new")
    assert await bot.ids(offset=501) == [101]  # an offset far ahead confirms nothing
    assert await bot.ids(offset=102) == []
    telegram.replay(2)
    assert await bot.ids(offset=102) == [500, 101]
    for n in range(6):
        telegram.say(ANN, f"{n}")
    telegram.updates.shuffle = random.Random(4)
    shuffled = await bot.ids(offset=102)
    assert sorted(shuffled) == list(range(102, 108)) != shuffled
    assert telegram.send_raw({"update_id": 3, "novelty": {}}) == 3
    assert 3 in await bot.ids(offset=102)


async def test_a_poll_waits_and_a_second_ends_it(telegram: FakeTelegram, bot: Client) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(bot("getUpdates", timeout=50))
        await telegram.until(lambda: len(telegram.log) == 1)
        second = group.create_task(bot("getUpdates", timeout=50))
        assert (await first) == {
            "ok": False,
            "error_code": 409,
            "description": "Conflict: terminated by other getUpdates request; "
            "make sure that only one bot instance is running",
        }
        telegram.say(ANN, "hello")
        [update] = (await second)["result"]
    message = update["message"]
    assert message.pop("date") == pytest.approx(time.time(), abs=5)
    assert message == {
        "message_id": 1,
        "from": {
            "id": ANN,
            "is_bot": False,
            "first_name": "Person1001",
            "username": "person1001",
            "language_code": "en",
        },
        "chat": {"id": ANN, "first_name": "Person1001", "username": "person1001", "type": "private"},
        "text": "hello",
    }


async def test_only_the_kinds_that_were_asked_for(telegram: FakeTelegram, bot: Client) -> None:
    assert await bot.ids(allowed_updates=["message"]) == []
    channel = telegram.channel()
    telegram.post(channel, "unseen")
    said = telegram.say(ANN, "seen")
    assert await bot.ids() == [said.update_id]


async def test_people_of_every_kind(telegram: FakeTelegram, bot: Client) -> None:
    group, channel = telegram.supergroup(topics={7: "Builds"}), telegram.channel()
    telegram.say_anonymously(group, "hidden", topic=7)
    telegram.post(channel, "news")
    telegram.attach(ANN, "photo", caption="look @dragoman_test_bot")
    telegram.edit(telegram.say(ANN, "frist"), "first")
    got = (await bot("getUpdates"))["result"]
    hidden, news, photo, _, edited = [next(v for k, v in u.items() if k != "update_id") for u in got]

    assert (hidden["from"]["id"], hidden["sender_chat"]["id"], hidden["message_thread_id"]) == (1087968824, group, 7)
    assert "from" not in news
    assert news["sender_chat"]["type"] == "channel"
    assert [entity["type"] for entity in photo["caption_entities"]] == ["mention"]
    assert (edited["text"], "edit_date" in edited) == ("first", True)


async def test_a_webhook_is_pushed_in_order_until_it_takes(telegram: FakeTelegram, bot: Client) -> None:
    got: list[tuple[str, str | None]] = []

    async def hook(request: web.BaseRequest) -> web.Response:
        update = await request.json()
        got.append((update["message"]["text"], request.headers.get("X-Telegram-Bot-Api-Secret-Token")))
        return web.Response(status=500 if len(got) < 3 else 200)

    runner = web.ServerRunner(web.Server(hook))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    telegram.say(ANN, "one")
    assert (await bot("setWebhook", url=url, secret_token="no spaces"))["description"] == (
        "Bad Request: secret token contains unallowed characters"
    )
    assert (await bot("setWebhook", url=url, secret_token="s-1"))["ok"]
    telegram.say(ANN, "two")
    assert (await bot("getUpdates"))["error_code"] == 409
    await telegram.until(lambda: not telegram.updates.waiting)

    assert got == [("one", "s-1")] * 3 + [("two", "s-1")]
    assert telegram.webhook.tries == [(500, 500), (500, 500), (500, 200), (501, 200)]
    assert (await bot("getWebhookInfo"))["result"]["last_error_message"] == "Wrong response from the webhook: 500"
    assert (await bot("deleteWebhook"))["ok"]
    assert (await bot("getWebhookInfo"))["result"]["url"] == ""
    await runner.cleanup()


ACTED: list[tuple[Fault, str, int]] = [
    (faults.too_many(3), "429", 0),
    (faults.broken(), "500", 0),
    (faults.page(502), "502", 0),
    (faults.drop(), "closed", 0),
    (faults.cut(), "closed", 1),
    (faults.silent(acts=False), "silent", 0),
    (faults.silent(acts=True), "silent", 1),
    (faults.slow(0.01, hold_s=0.01), "200", 1),
]


@pytest.mark.parametrize(("fault", "heard", "shown"), ACTED)
async def test_faults(telegram: FakeTelegram, bot: Client, fault: Fault, heard: str, shown: int) -> None:
    telegram.private(ANN)
    telegram.script(lambda call: fault if call.method == "sendMessage" else None)
    try:
        timeout = aiohttp.ClientTimeout(total=0.3)
        body = {"chat_id": ANN, "text": "x"}
        async with bot.session.post(f"{bot.root}/sendMessage", json=body, timeout=timeout) as response:
            outcome = str(response.status)
    except TimeoutError:
        outcome = "silent"
    except aiohttp.ClientError:
        outcome = "closed"

    assert outcome == heard
    assert len(telegram.shown(ANN)) == shown
    [call] = telegram.calls("sendMessage", ANN)
    assert (call.acted, call.status) == (shown == 1, 0 if heard in ("closed", "silent") else int(heard))
    assert (await bot("getMe"))["ok"]


async def test_a_script_looks_again_once_a_call_acted(telegram: FakeTelegram, bot: Client) -> None:
    telegram.private(ANN)
    telegram.script(lambda call: None, lambda call: faults.page() if telegram.shown(ANN) else None)
    async with bot.session.post(f"{bot.root}/sendMessage", json={"chat_id": ANN, "text": "x"}) as response:
        assert (response.status, response.content_type) == (502, "text/html")
    assert [message.text for message in telegram.shown(ANN)] == ["x"]


async def test_a_poll_that_was_left_confirms_nothing(telegram: FakeTelegram, bot: Client) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await bot("getUpdates", timeout=50)
    telegram.say(ANN, "hello")
    assert await bot.ids() == [500]


async def test_a_connection_may_close_before_the_call_is_read(telegram: FakeTelegram, bot: Client) -> None:
    telegram.drop_before_reading(lambda method: method == "sendMessage")
    with pytest.raises(aiohttp.ClientError):
        await bot("sendMessage", chat_id=ANN, text="x")
    assert telegram.log == []


async def test_a_ban_holds_one_chat_or_all(telegram: FakeTelegram, bot: Client) -> None:
    telegram.private(ANN)
    telegram.private(BEN)
    telegram.ban(ANN, 600)
    answer = await bot("sendMessage", chat_id=ANN, text="x")
    retry_after = answer["parameters"]["retry_after"]
    assert 540 < retry_after <= 600
    assert answer["description"] == f"Too Many Requests: retry after {retry_after}"
    assert (await bot("sendMessage", chat_id=BEN, text="x"))["ok"]
    telegram.ban(None, 600)
    assert (await bot("sendMessage", chat_id=BEN, text="x"))["error_code"] == 429
    telegram.ban(None, 0)
    assert (await bot("sendMessage", chat_id=BEN, text="x"))["ok"]
    assert [call.chat for call in telegram.during_ban] == [ANN, BEN]
    assert [call.status for call in telegram.log] == [429, 200, 429, 200]


async def test_two_bots_share_the_log(telegram: FakeTelegram) -> None:
    second = telegram.another_bot("222333444:AASecond-token-of-a-test", "second_bot")
    second.private(ANN)
    async with aiohttp.ClientSession() as session:
        assert (await Client(second, session)("getMe"))["result"]["username"] == "second_bot"
        assert (await Client(telegram, session)("sendMessage", chat_id=ANN, text="x"))["ok"] is False
    assert [call.bot for call in telegram.log] == [222333444, 123456789]
    assert second.calls("getMe") == telegram.log[:1]


async def test_the_library_takes_it_for_the_real_one(telegram: FakeTelegram) -> None:
    forum = telegram.supergroup(topics={7: "Builds"})
    said = telegram.say(ANN, "/go now", chat=forum, topic=7)
    telegram.attach(ANN, "voice", caption="listen")
    telegram.say_anonymously(forum, "hidden")
    telegram.post(telegram.channel(), "news")
    markup = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y")]])
    async with LibraryBot(telegram.token, base_url=f"{telegram.api_root}/bot") as bot:
        assert bot.username == "dragoman_test_bot"
        sent = await bot.send_message(ANN, "Héllo", reply_markup=markup)
        assert (sent.text, sent.chat.type, sent.from_user) == ("Héllo", "private", bot.bot)
        telegram.press(ANN, telegram.shown(ANN)[0], "Yes")
        updates = await bot.get_updates(timeout=1, allowed_updates=["message", "callback_query", "channel_post"])
        document = await bot.send_document(ANN, b"bytes", filename="a.txt", caption="c")
        edited = await sent.edit_text("again")
        chat = await bot.get_chat(forum)
        with pytest.raises(BadRequest, match="Message to delete not found"):
            await bot.delete_message(ANN, 4711)

    first, voice, hidden, news, pressed = updates
    assert first.message is not None
    assert first.message.message_id == said.id
    assert list(first.message.parse_entities().values()) == ["/go"]
    assert first.message.is_topic_message
    assert voice.message is not None
    assert voice.message.voice is not None
    assert hidden.message is not None
    assert hidden.message.sender_chat is not None
    assert news.channel_post is not None
    assert pressed.callback_query is not None
    assert (pressed.callback_query.data, pressed.callback_query.from_user.id) == ("y", ANN)
    assert document.document is not None
    assert document.document.file_name == "a.txt"
    assert not isinstance(edited, bool)
    assert edited.text == "again"
    assert chat.is_forum
    assert telegram.surprises == []


async def test_the_log_has_one_order(telegram: FakeTelegram, bot: Client) -> None:
    seen: list[Call] = []
    telegram.script(seen.append)
    telegram.private(ANN)
    for n in range(3):
        await bot("sendMessage", chat_id=ANN, text=f"{n}")
    assert seen == telegram.log
    assert [call.parameters["text"] for call in telegram.log] == ["0", "1", "2"]
    assert [call.n for call in telegram.log] == [0, 1, 2]
    assert [call.answer["result"]["message_id"] for call in telegram.log] == [1, 2, 3]
    assert all(call.at_s <= call.answered_s for call in telegram.log)
