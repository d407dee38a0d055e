"""One bot against a Telegram on loopback: polling, leases, webhooks, no update lost or confirmed too early."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.telegram.account import TelegramConnection, TelegramPauses
from channels.telegram.chat_migration import ChatMigrations
from channels.telegram.inbound import ALLOWED_UPDATES
from channels.telegram.webhook import HEADER
from gateway.domain.messages import RefusedReason
from gateway.domain.waits import PRESSED_TEXT, PressResult
from gateway.errors import StoreError
from tests.support.proxy_server import ProxyServer
from tests.support.surroundings import refusing, until
from tests.support.telegram import TOKEN, FakeTelegram, Fault, Shown, faults
from tests.unit.channels.telegram.conftest import QUICK
from tests.unit.channels.telegram.scene import SECRET, Scene

ANN, BOB = 1001, 2002


def account(scene: Scene, pauses: TelegramPauses = QUICK) -> TelegramConnection:
    context = scene.context()
    return TelegramConnection("main", scene.settings().accounts["main"], context, ChatMigrations(scene.notes), pauses)


@asynccontextmanager
async def running(scene: Scene, pauses: TelegramPauses = QUICK) -> AsyncGenerator[TelegramConnection]:
    """The account, served until the block ends."""
    found = account(scene, pauses)
    task = asyncio.create_task(found.run(scene.sink), name="account")
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


def offsets(telegram: FakeTelegram) -> list[int | None]:
    return [call.parameters.get("offset") for call in telegram.calls("getUpdates")]


# --- introducing itself -------------------------------------------------------------------------


async def test_account_reads_its_identity_and_sets_its_commands(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene) as bot:
        await until(lambda: len(telegram.chats.commands) == 2 and telegram.calls("getUpdates"))
        assert bot.trouble() == ""
    named = {scope: [one["command"] for one in known] for (scope, _), known in telegram.chats.commands.items()}
    assert named == {'{"type": "all_private_chats"}': ["help", "stop"], '{"type": "all_group_chats"}': ["help"]}
    assert telegram.calls("deleteWebhook")[0].parameters == {"drop_pending_updates": False}


async def test_commands_that_cannot_be_named_stop_nothing(telegram: FakeTelegram, scene: Scene) -> None:
    telegram.script(refusing("setMyCommands", faults.error(400, "Bad Request: BOT_COMMAND_INVALID")))
    async with running(scene):
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])


async def test_telegram_out_of_reach_is_trouble_until_it_is_back(telegram: FakeTelegram, scene: Scene) -> None:
    telegram.script(refusing("getMe", faults.drop()))
    async with running(scene) as bot:
        await until(lambda: len(telegram.calls("getMe")) >= 3)
        assert "getMe" in bot.trouble()
        telegram.script(lambda _call: None)
        await until(lambda: not bot.trouble())
    assert scene.host.alerts == []


@pytest.mark.parametrize(("code", "words"), [(401, "Unauthorized"), (404, "Not Found")])
async def test_a_bad_token_is_reported_with_its_cure_and_tried_again(
    telegram: FakeTelegram, scene: Scene, code: int, words: str
) -> None:
    telegram.script(refusing("getMe", faults.error(code, words)))
    async with running(scene) as bot:
        await until(lambda: len(telegram.calls("getMe")) >= 3)
        assert "@BotFather" in bot.trouble()
        key, text = scene.host.alerts[0]
        assert key == "telegram/main/token"
        assert "@BotFather" in text
        telegram.script(lambda _call: None)
        await until(lambda: not bot.trouble())


async def test_a_token_that_is_revoked_later_is_reported_too(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene) as bot:
        await until(lambda: telegram.calls("getUpdates"))
        telegram.script(refusing("getUpdates", faults.error(401, "Unauthorized")))
        telegram.say(ANN, "hello")
        await until(lambda: "@BotFather" in bot.trouble())
        telegram.script(lambda _call: None)
        telegram.say(ANN, "again")
        await until(lambda: not bot.trouble() and "again" in scene.sink.texts)


# --- polling ------------------------------------------------------------------------------------


async def test_poll_asks_only_for_the_updates_that_are_read(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene):
        await until(lambda: telegram.calls("getUpdates"))
    asked = telegram.calls("getUpdates")[0].parameters
    assert asked == {"timeout": 50, "limit": 100, "allowed_updates": list(ALLOWED_UPDATES)}


async def test_messages_are_stored_then_confirmed_once(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene):
        first = telegram.say(ANN, "one").update_id
        await until(lambda: scene.sink.texts == ["one"] and not telegram.updates.waiting)
        assert first is not None
        assert offsets(telegram)[-1] == first + 1
        await until(lambda: scene.points == ["J3"])


async def test_poll_after_an_empty_answer_sends_no_offset(telegram: FakeTelegram, scene: Scene) -> None:
    empty = Fault(acts=False, status=200, body=b'{"ok": true, "result": []}')
    async with running(scene):
        telegram.say(ANN, "one")
        await until(lambda: offsets(telegram)[-1:] not in ([], [None]))
        before = len(offsets(telegram))
        telegram.script(
            lambda call: empty if call.method == "getUpdates" and len(offsets(telegram)) < before + 6 else None
        )
        telegram.say(ANN, "two")
        await until(lambda: scene.sink.texts == ["one", "two"])
        # The poll after the batch confirms it; the one after its empty answer is still to come.
        await until(lambda: None in offsets(telegram)[before:])


async def test_updates_whose_ids_restart_lower_are_heard(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene):
        telegram.say(ANN, "one")
        await telegram.jump(-(10**8))
        telegram.say(ANN, "two")
        await until(lambda: scene.sink.texts == ["one", "two"] and not telegram.updates.waiting)


async def test_unstored_batch_is_not_confirmed_and_comes_again(telegram: FakeTelegram, scene: Scene) -> None:
    full = [True]
    scene.sink.fail = lambda _key: StoreError("full") if full[0] else None
    async with running(scene):
        telegram.say(ANN, "one")
        telegram.say(BOB, "two")
        await until(lambda: len(telegram.calls("getUpdates")) >= 4)
        assert len(telegram.updates.waiting) == 2
        assert set(offsets(telegram)) == {None}
        full[0] = False
        await until(lambda: sorted(scene.sink.texts) == ["one", "two"] and not telegram.updates.waiting)


async def test_a_poll_that_fails_is_repeated_and_nothing_is_lost(telegram: FakeTelegram, scene: Scene) -> None:
    for fault in (faults.drop(), faults.cut(), faults.broken(), faults.page(), faults.too_many(0)):
        telegram.script(refusing("getUpdates", fault, times=2))
        async with running(scene) as bot:
            telegram.say(ANN, f"{fault.status}{fault.acts}")
            await until(lambda: not telegram.updates.waiting)
            assert bot.trouble() == ""
    assert len(set(scene.sink.texts)) == 5


async def test_an_answer_that_is_no_list_is_a_failure(telegram: FakeTelegram, scene: Scene) -> None:
    telegram.script(refusing("getUpdates", Fault(acts=False, status=200, body=b'{"ok": true, "result": {}}'), times=2))
    async with running(scene):
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])


async def test_a_malformed_update_does_not_take_the_others_with_it(telegram: FakeTelegram, scene: Scene) -> None:
    telegram.say(ANN, "before")
    telegram.send_raw({"message": {"text": 7}})
    telegram.say(ANN, "after")
    async with running(scene):
        await until(lambda: scene.sink.texts == ["before", "after"] and not telegram.updates.waiting)
    assert len(scene.sink.refused) == 1


async def test_updates_without_a_number_are_kept_and_do_not_spin(telegram: FakeTelegram, scene: Scene) -> None:
    nameless = Fault(acts=False, status=200, body=json.dumps({"ok": True, "result": [7, {"update_id": True}]}).encode())
    telegram.script(refusing("getUpdates", nameless, times=3))
    async with running(scene):
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])
    assert offsets(telegram)[:4] == [None] * 4


# --- one poller ---------------------------------------------------------------------------------


async def test_account_polls_only_while_it_holds_the_lease(telegram: FakeTelegram, scene: Scene) -> None:
    scene.host.ours = False
    async with running(scene) as bot:
        await until(lambda: len(scene.host.held) >= 3)
        assert telegram.calls("getUpdates") == []
        scene.clock.advance(200)
        assert bot.trouble() == ""  # another node polls: that is how it should be
        scene.host.ours = True
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])
        renewed = len(scene.host.held)
        await until(lambda: len(scene.host.held) > renewed + 1)
        scene.host.ours = False
        await asyncio.sleep(0.1)
        polls = len(telegram.calls("getUpdates"))
        telegram.say(ANN, "more")
        await asyncio.sleep(0.1)
        assert len(telegram.calls("getUpdates")) == polls
    assert set(scene.host.held) == {("telegram/main", timedelta(seconds=15))}


async def test_a_poller_that_slept_past_its_lease_takes_nothing(telegram: FakeTelegram, scene: Scene) -> None:
    """Another node has the lease by now and is given the same updates. Nothing is confirmed."""
    async with running(scene, replace(QUICK, lease=60, standby=60)) as bot:
        await until(lambda: telegram.calls("getUpdates"))
        scene.host.ours = False
        scene.clock.advance(31)
        telegram.say(ANN, "hello")
        await until(lambda: len(scene.host.held) >= 3 or scene.sink.texts)
        assert (scene.sink.texts, set(offsets(telegram)), bot.trouble()) == ([], {None}, "")


async def test_a_lease_that_cannot_be_stored_is_not_held(telegram: FakeTelegram, scene: Scene) -> None:
    scene.host.broken = True
    async with running(scene):
        await until(lambda: len(scene.host.held) >= 3)
        assert telegram.calls("getUpdates") == []


async def test_a_webhook_that_somebody_set_is_taken_away_again(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene):
        await until(lambda: telegram.calls("getUpdates"))
        telegram.webhook.set({"url": "https://127.0.0.1:9/hook"})
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])


# --- presses ------------------------------------------------------------------------------------


async def card(telegram: FakeTelegram, bot: TelegramConnection) -> Shown:
    telegram.private(ANN)
    markup = {"inline_keyboard": [[{"text": "Once", "callback_data": "a1:once"}]]}
    made = await bot.bot.send_message(ANN, "Allow it?", api_kwargs={"reply_markup": markup})
    return telegram.chats.all[ANN].messages[made.message_id]


@pytest.mark.parametrize("result", PressResult)
async def test_presser_sees_the_result(telegram: FakeTelegram, scene: Scene, result: PressResult) -> None:
    scene.sink.result = result
    async with running(scene) as bot:
        query = telegram.press(ANN, await card(telegram, bot), "Once")
        toast = await telegram.toast(query)
    assert (toast.text, toast.alert) == (PRESSED_TEXT[result], result is PressResult.ASK_REASON)


def test_every_result_has_words_that_fit() -> None:
    assert max(len(text) for text in PRESSED_TEXT.values()) <= 200


async def test_an_answer_that_hangs_or_is_refused_holds_nothing_up(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene) as bot:
        shown = await card(telegram, bot)
        for fault in (faults.silent(acts=False), faults.error(400, "Bad Request: query is too old"), faults.drop()):
            telegram.script(refusing("answerCallbackQuery", fault))
            telegram.press(ANN, shown, "Once")
            await until(lambda: not telegram.updates.waiting)
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])
        assert bot.trouble() == ""
    assert len(scene.sink.pressed) == 3


async def test_an_answer_that_breaks_restarts_nothing(telegram: FakeTelegram, scene: Scene) -> None:
    scene.sink.result = cast("PressResult", "of a later version")
    async with running(scene) as bot:
        telegram.press(ANN, await card(telegram, bot), "Once")
        await until(lambda: scene.sink.pressed and not telegram.updates.waiting)
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])
    assert len(telegram.calls("getMe")) == 1


async def test_the_fail_point_of_a_confirmed_press_is_passed(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene) as bot:
        telegram.press(ANN, await card(telegram, bot), "Once")
        await until(lambda: "J3" in scene.points)


# --- what is put aside, and the token ------------------------------------------------------------


async def test_poisonous_message_blocks_nobody_and_alerts_the_owners(telegram: FakeTelegram, scene: Scene) -> None:
    bad = telegram.say(ANN, "bad")
    broken = f"m{ANN}.{bad.id}"
    seen: list[str] = []

    def fail(key: str) -> Exception | None:
        seen.append(key)
        return RuntimeError("a bug") if key == broken and seen.count(key) <= 3 else None

    scene.sink.fail = fail
    async with running(scene):
        telegram.say(ANN, "good")
        await until(lambda: scene.sink.texts == ["good"] and scene.host.alerts)
    assert scene.host.alerts[0][0] == "telegram/main/poison"
    assert [one.event_key for one in scene.sink.refused] == [broken]


def asked_again(telegram: FakeTelegram, before: int) -> bool:
    return len(telegram.calls("getMe")) > before + 1


async def test_the_token_is_in_no_log_and_no_trouble(
    telegram: FakeTelegram, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    half = TOKEN.partition(":")[2]
    said: list[str] = []
    with caplog.at_level(logging.WARNING):
        for fault in (faults.drop(), faults.page(), faults.error(401, "Unauthorized"), faults.broken()):
            telegram.script(refusing("getMe", fault))
            async with running(scene) as bot:
                await until(partial(asked_again, telegram, len(telegram.calls("getMe"))))
                said += [bot.trouble(), repr(bot), repr(bot.bot)]
    said += [record.getMessage() + str(record.exc_text) for record in caplog.records]
    assert len(said) > 12
    assert half not in "".join(said)


# --- webhook ------------------------------------------------------------------------------------


@asynccontextmanager
async def hooked(scene: Scene) -> AsyncGenerator[TelegramConnection]:
    """The account by webhook, with its endpoint served."""
    scene.mode = "webhook"
    made: list[TelegramConnection] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        assert made[0].webhook is not None
        return await made[0].webhook.handle(request)

    app = web.Application()
    app.router.add_post("/telegram/main", handle)
    async with TestServer(app) as server:
        scene.public_url = str(server.make_url("")).rstrip("/")
        async with running(scene) as bot:
            made.append(bot)
            yield bot


async def test_a_webhook_is_set_and_takes_updates_one_by_one(telegram: FakeTelegram, scene: Scene) -> None:
    async with hooked(scene) as bot:
        await until(lambda: telegram.calls("setWebhook"))
        asked = telegram.calls("setWebhook")[0].parameters
        assert asked["url"] == f"{scene.public_url}/telegram/main"
        assert asked["secret_token"] == SECRET
        assert asked["allowed_updates"] == list(ALLOWED_UPDATES)
        assert "drop_pending_updates" not in asked
        for n in range(5):
            telegram.say(ANN, str(n))
        await until(lambda: scene.sink.texts == ["0", "1", "2", "3", "4"])
        await until(lambda: not telegram.updates.waiting)
        assert bot.trouble() == ""
        scene.clock.advance(1000)
        assert bot.trouble() == ""  # nobody wrote
    assert telegram.calls("getUpdates") == []
    assert scene.host.held == []
    assert scene.points.count("J3") == 5


async def test_a_webhook_answers_200_only_for_what_is_stored(telegram: FakeTelegram, scene: Scene) -> None:
    full = [True]
    scene.sink.fail = lambda _key: StoreError("full") if full[0] else None
    async with hooked(scene):
        await until(lambda: telegram.webhook.url)
        telegram.say(ANN, "hello")
        await until(lambda: len(telegram.webhook.tries) >= 2)
        assert {status for _, status in telegram.webhook.tries} == {503}
        full[0] = False
        await until(lambda: scene.sink.texts == ["hello"])
        await until(lambda: telegram.webhook.tries[-1][1] == 200)


async def test_a_press_by_webhook_is_answered(telegram: FakeTelegram, scene: Scene) -> None:
    async with hooked(scene) as bot:
        await until(lambda: telegram.webhook.url)
        query = telegram.press(ANN, await card(telegram, bot), "Once")
        assert (await telegram.toast(query)).text == "Allowed."


async def test_poison_by_webhook_is_kept_and_not_repeated(telegram: FakeTelegram, scene: Scene) -> None:
    async with hooked(scene):
        await until(lambda: telegram.webhook.url)
        headers = {HEADER: SECRET}
        async with scene.client.post(f"{scene.public_url}/telegram/main", data=b"{no", headers=headers) as answer:
            assert answer.status == 200
    assert [one.reason for one in scene.sink.refused] == [RefusedReason.POISON]
    assert "{no" in scene.sink.refused[0].raw


async def test_a_webhook_before_the_bot_is_known_comes_again(telegram: FakeTelegram, scene: Scene) -> None:
    telegram.script(refusing("getMe", faults.drop(), times=3))
    telegram.webhook.secret = SECRET
    async with hooked(scene):
        telegram.webhook.url = f"{scene.public_url}/telegram/main"  # set in an earlier life
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])
    assert telegram.webhook.tries[0][1] == 503


async def test_a_webhook_without_an_address_says_how_to_set_it(telegram: FakeTelegram, scene: Scene) -> None:
    scene.mode, scene.public_url = "webhook", ""
    async with running(scene) as bot:
        await until(lambda: "public_url" in bot.trouble())
    assert telegram.calls("setWebhook") == []


async def test_a_webhook_that_telegram_refuses_is_said_in_its_words(telegram: FakeTelegram, scene: Scene) -> None:
    scene.mode, scene.public_url = "webhook", "http://example.org"
    async with running(scene) as bot:
        await until(lambda: "HTTPS URL must be provided" in bot.trouble())
        assert len(telegram.calls("setWebhook")) >= 1


async def test_return_to_polling_removes_the_webhook_and_loses_nothing(telegram: FakeTelegram, scene: Scene) -> None:
    telegram.webhook.set({"url": "https://127.0.0.1:9/telegram/main"})
    telegram.say(ANN, "hello")
    async with running(scene):
        await until(lambda: scene.sink.texts == ["hello"])


async def test_polls_go_through_proxy(telegram: FakeTelegram, scene: Scene) -> None:
    async with ProxyServer(user="ann:secret").serve() as proxy:
        scene.proxy = proxy.url_with("ann:secret")
        async with running(scene) as found:
            await until(lambda: telegram.calls("getUpdates") and found.trouble() == "")
        assert any("/getUpdates" in one for one in proxy.asked)
        assert len(telegram.log) <= len(proxy.asked)


async def test_proxy_that_is_not_there_is_reported(scene: Scene) -> None:
    scene.proxy = "http://ann:secret@127.0.0.1:9"
    async with running(scene) as found:
        await until(lambda: "The proxy http://127.0.0.1:9 cannot be reached" in found.trouble())
