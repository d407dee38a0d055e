"""Updates from Telegram: a webhook's body becomes exactly one of a message, a press, a chat's new id, or a refusal."""

from __future__ import annotations

import asyncio
import logging

from multidict import CIMultiDict

from channels._shared import fields as all_fields
from channels._shared import poison, webhooks
from channels._shared.poison import TRIES
from channels.telegram import fields, ids, inbound, inbound_text, updates, webhook
from channels.telegram.chat_migration import ChatMigrations
from channels.telegram.inbound import BotIdentity, ChatMigration, TelegramPress
from channels.telegram.updates import TelegramUpdates
from channels.telegram.webhook import HEADER, Webhook
from gateway.domain.messages import Inbound, Refused
from tests.fuzz import givens

READS = (all_fields, fields, webhooks, ids, inbound, poison, updates, webhook, inbound_text)
WORDS = (
    *(b"update_id", b"message", b"edited_message", b"callback_query", b"from", b"chat", b"date", b"text", b"caption"),
    *(b"entities", b"bot_command", b"mention", b"text_mention", b"text_link", b"pre", b"code", b"offset", b"length"),
    *(b"message_thread_id", b"is_topic_message", b"reply_to_message", b"quote", b"media_group_id", b"forward_origin"),
    *(b"via_bot", b"sender_chat", b"migrate_to_chat_id", b"migrate_from_chat_id", b"photo", b"/status@dragoman_bot"),
    *(b"@dragoman_bot", b"-1001", b"supergroup", b"private", b"channel_post", b"253402300800", b"777000"),
)
BOT = BotIdentity(id=4242, username="dragoman_bot", account="main")
SECRET = "secret"


def target(data: bytes) -> None:
    taken: list[object] = []
    asyncio.run(_given(data, taken))
    (update,) = taken
    meaning = inbound.read(update, BOT, givens.NOW)
    match meaning:
        case Inbound():
            givens.check_message(meaning)
            assert meaning.text or meaning.unread or meaning.quoted or meaning.attachments, "a message of nothing"
        case TelegramPress():
            givens.check_press(meaning.press)
            assert meaning.query
        case ChatMigration():
            assert int(meaning.old)
            assert int(meaning.new) is not None
        case Refused():
            givens.check_refused(meaning)
    assert inbound.read(update, BOT, givens.NOW) == meaning, "the same update means something else"


async def _given(data: bytes, taken: list[object]) -> None:
    async def take(update: object) -> bool:
        taken.append(update)
        return True

    request = givens.request("POST", "/telegram/main", CIMultiDict({HEADER: SECRET}), data)
    response = await Webhook(SECRET, take, givens.passed).handle(request)
    assert response.status == 200
    good, broken = givens.GoodSink(), givens.BrokenSink()
    assert await _updates(good).take(taken)
    assert good.taken + len(good.refused) <= 1
    logging.disable()  # it tells of each try, and that is not what is looked at
    try:
        each = _updates(broken)
        stored = [await each.take(taken) for _ in range(TRIES)]
    finally:
        logging.disable(logging.NOTSET)
    assert stored[-1], "what breaks the gateway is never put aside"


def _updates(sink: givens.BrokenSink) -> TelegramUpdates:
    return TelegramUpdates(
        bot=BOT,
        sink=sink,
        migrations=ChatMigrations(givens.NoNotes()),
        clock=givens.CLOCK,
        answer=lambda query, result: None,
        broken=lambda: None,
    )
