from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.support.telegram import FakeTelegram

BOT = 123456789
ANN = 1001


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram().serve() as server:
        server.private(ANN)
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


class Bot:
    """A bot over plain HTTP."""

    def __init__(self, telegram: FakeTelegram, session: aiohttp.ClientSession) -> None:
        self.root = f"{telegram.api_root}/bot{telegram.token}"
        self.session = session

    async def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        async with self.session.post(f"{self.root}/{method}", json=parameters) as response:
            answer = await response.json()
            assert response.status == answer.get("error_code", 200)
            return answer

    async def ok(self, method: str, **parameters: Any) -> Any:
        answer = await self(method, **parameters)
        assert answer["ok"], answer
        return answer["result"]


@pytest.fixture
def bot(telegram: FakeTelegram, session: aiohttp.ClientSession) -> Bot:
    return Bot(telegram, session)


def entity(kind: str, offset: int, length: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **more}


def buttons(*rows: list[tuple[str, str]]) -> dict[str, Any]:
    return {"inline_keyboard": [[{"text": text, "callback_data": data} for text, data in row] for row in rows]}


async def test_tokens_are_wrong_or_no_tokens(telegram: FakeTelegram, session: aiohttp.ClientSession) -> None:
    for token, status, description in [
        ("987654321:AAWrong-but-well-shaped", 401, "Unauthorized"),
        ("nonsense", 404, "Not Found"),
    ]:
        async with session.get(f"{telegram.api_root}/bot{token}/getMe") as response:
            assert response.status == status
            assert await response.json() == {"ok": False, "error_code": status, "description": description}


@pytest.mark.parametrize("way", ["get", "json", "form", "multipart"])
async def test_parameters_come_in_every_way(
    telegram: FakeTelegram, session: aiohttp.ClientSession, bot: Bot, way: str
) -> None:
    url = f"{bot.root}/sendMessage"
    texts = {"chat_id": str(ANN), "text": "Hé!", "entities": json.dumps([entity("bold", 0, 2)])}
    with aiohttp.MultipartWriter("form-data") as parts:
        for name, value in texts.items():
            parts.append(value).set_content_disposition("form-data", name=name)
    request = {
        "get": lambda: session.get(url, params=texts),
        "json": lambda: session.post(url, json={**texts, "chat_id": ANN, "entities": [entity("bold", 0, 2)]}),
        "form": lambda: session.post(url, data=texts),
        "multipart": lambda: session.post(url, data=parts),
    }[way]
    async with request() as response:
        answer = await response.json()

    assert answer["ok"], answer
    assert answer["result"]["entities"] == [entity("bold", 0, 2)]
    [shown] = telegram.shown(ANN)
    assert (shown.text, shown.by) == ("Hé!", BOT)
    assert telegram.surprises == []


SEND_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": ""}, "message text is empty"),
    ({"text": " \n "}, "text must be non-empty"),
    ({"text": "half a \ud83d"}, "strings must be encoded in UTF-8"),
    ({"text": "x" * 4097}, "message is too long"),
    ({"text": "👍" * 2048 + "x"}, "message is too long"),
    ({"text": "x", "chat_id": 5}, "chat not found"),
    ({"text": "x", "message_thread_id": 7}, "message thread not found"),
    ({"text": "x", "reply_parameters": {"message_id": 99}}, "message to be replied not found"),
    (
        {"text": "hello", "entities": [entity("bold", 6, 1)]},
        "entity begins after the end of the text at UTF-16 offset 6",
    ),
    (
        {"text": "hello", "entities": [entity("bold", 0, 6)]},
        "entity beginning at UTF-16 offset 0 ends after the end of the text at UTF-16 offset 6",
    ),
    (
        {"text": "hello world", "entities": [entity("bold", 0, 6), entity("italic", 3, 6)]},
        "entity beginning at UTF-16 offset 3 ends after the end of the text at UTF-16 offset 9",
    ),
    (
        {"text": "👍👍", "entities": [entity("bold", 1, 2)]},
        "entity begins in a middle of a UTF-16 symbol at byte offset 2",
    ),
    (
        {"text": "👍👍", "entities": [entity("bold", 0, 3)]},
        "entity beginning at UTF-16 offset 0 ends in a middle of a UTF-16 symbol at byte offset 6",
    ),
    ({"text": "x", "entities": [entity("bold", -1, 1)]}, "receive an entity with incorrect offset -1"),
    ({"text": "x", "entities": [entity("bald", 0, 1)]}, "can't parse MessageEntity: Unsupported type specified"),
    ({"text": "x", "reply_markup": buttons([("a", "d" * 65)])}, "BUTTON_DATA_INVALID"),
    ({"text": "x", "reply_markup": buttons([("a", "é" * 33)])}, "BUTTON_DATA_INVALID"),
    ({"text": "x", "reply_markup": buttons([(" ", "d")])}, "inline keyboard button text must be non-empty"),
    ({"text": "x", "reply_markup": buttons(*[[("a", "d")]] * 101)}, "reply markup is too long"),
]
SURPRISING: list[tuple[str, dict[str, Any], str]] = [
    ("sendMessage", {"text": "x", "parse_mode": "HTML"}, "this fake wants entities"),
    ("sendMessage", {"text": "x", "reply_to_mesage_id": 1}, "knows no parameter 'reply_to_mesage_id'"),
    ("sendMessage", {"text": "x", "reply_markup": {"keyboard": []}}, "inline keyboards only"),
    ("sendMessage", {"text": "x", "entities": [entity("bold", 0, 1, url="u")]}, "knows no field ['url']"),
    ("sendMessage", {"text": "x", "entities": ["bold"]}, "cannot read the parameters"),
    ("sendSticker", {}, "Not Found"),
]


POSTS_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("sendPoll", {"question": " ", "options": [{"text": "a"}, {"text": "b"}]}, "poll question must be non-empty"),
    ("sendPoll", {"question": "x" * 301, "options": [{"text": "a"}] * 2}, "poll question length must not exceed 300"),
    ("sendPoll", {"question": "?", "options": []}, "poll must have at least 2 option"),
    ("sendPoll", {"question": "?", "options": [{"text": "a"}] * 13}, "poll can't have more than 12 options"),
    ("sendPoll", {"question": "?", "options": [{"text": "a"}, {"text": " "}]}, "poll options must be non-empty"),
    ("sendPoll", {"question": "?", "options": [{"text": "x" * 101}] * 2}, "poll options length must not exceed 100"),
    ("setMessageReaction", {"message_id": 9, "reaction": []}, "message to react not found"),
    ("setMessageReaction", {"message_id": 1, "reaction": [{"type": "emoji", "emoji": "x"}]}, "REACTION_INVALID"),
    ("setMessageReaction", {"message_id": 1, "reaction": [{}, {}]}, "REACTIONS_TOO_MANY"),
    ("pinChatMessage", {"message_id": 9}, "message to pin not found"),
    ("pinChatMessage", {}, "message identifier is not specified"),
]


@pytest.mark.parametrize(("method", "parameters", "why"), POSTS_REFUSED)
async def test_polls_reactions_and_pins_are_refused(
    telegram: FakeTelegram, bot: Bot, method: str, parameters: dict[str, Any], why: str
) -> None:
    telegram.say(ANN, "hello")
    answer = await bot(method, **{"chat_id": ANN, **parameters})
    assert answer == {"ok": False, "error_code": 400, "description": f"Bad Request: {why}"}
    assert telegram.surprises == []


@pytest.mark.parametrize(("parameters", "why"), SEND_REFUSED)
async def test_a_send_is_refused_as_in_earnest(
    telegram: FakeTelegram, bot: Bot, parameters: dict[str, Any], why: str
) -> None:
    answer = await bot("sendMessage", **{"chat_id": ANN, **parameters})

    assert answer == {"ok": False, "error_code": 400, "description": f"Bad Request: {why}"}
    assert telegram.shown(ANN) == []
    assert telegram.surprises == []


@pytest.mark.parametrize(("method", "parameters", "why"), SURPRISING)
async def test_doubtful_call_is_a_surprise(
    telegram: FakeTelegram, bot: Bot, method: str, parameters: dict[str, Any], why: str
) -> None:
    answer = await bot(method, chat_id=ANN, **parameters)

    assert why in answer["description"]
    [surprise] = telegram.surprises
    assert why in surprise


SHOWN: list[tuple[str, list[dict[str, Any]], str, list[dict[str, Any]]]] = [
    ("x" * 4096, [], "x" * 4096, []),
    ("👍" * 2048, [], "👍" * 2048, []),
    ("  x" + " " * 5000, [], "x", []),
    ("\n\n👍 yes \n", [entity("bold", 5, 3)], "👍 yes", [entity("bold", 3, 3)]),
    ("  x  ", [entity("code", 1, 4)], " x", [entity("code", 0, 2)]),
    ("a \n b", [entity("bold", 1, 3)], "a \n b", []),
    (
        "one two",
        [entity("italic", 4, 3), entity("bold", 0, 7)],
        "one two",
        [entity("bold", 0, 7), entity("italic", 4, 3)],
    ),
]


@pytest.mark.parametrize(("text", "entities", "shown", "kept"), SHOWN)
async def test_texts_are_shown_trimmed(
    bot: Bot, text: str, entities: list[dict[str, Any]], shown: str, kept: list[dict[str, Any]]
) -> None:
    message = await bot.ok("sendMessage", chat_id=ANN, text=text, entities=entities)

    assert (message["text"], message.get("entities", [])) == (shown, kept)


async def test_an_edit_replaces_text_and_buttons(telegram: FakeTelegram, bot: Bot) -> None:
    sent = await bot.ok("sendMessage", chat_id=ANN, text="one", reply_markup=buttons([("Yes", "y")]))
    where = {"chat_id": ANN, "message_id": sent["message_id"]}
    same = await bot("editMessageText", **where, text="one ", reply_markup=buttons([("Yes", "y")]))
    assert same["description"].startswith("Bad Request: message is not modified: specified new message content and")

    edited = await bot.ok("editMessageText", **where, text="two")
    assert edited["text"] == "two"
    assert "reply_markup" not in edited
    await bot.ok("editMessageReplyMarkup", **where, reply_markup=buttons([("No", "n")]))

    [shown] = telegram.shown(ANN)
    assert (shown.text, shown.labels, shown.edits, shown.history) == ("two", ["No"], 2, ["one"])
    too_long = await bot("editMessageText", **where, text="x" * 4097)
    assert too_long["description"] == "Bad Request: MESSAGE_TOO_LONG"


async def test_deleted_message_cannot_be_edited_or_deleted(telegram: FakeTelegram, bot: Bot) -> None:
    sent = await bot.ok("sendMessage", chat_id=ANN, text="one")
    said = telegram.say(ANN, "mine")
    where = {"chat_id": ANN, "message_id": sent["message_id"]}
    await bot.ok("deleteMessage", **where)
    assert telegram.shown(ANN) == []

    others = await bot("editMessageText", chat_id=ANN, message_id=said.id, text="x")
    assert others["description"] == "Bad Request: message can't be edited"
    assert (await bot("editMessageText", **where, text="x"))["description"] == "Bad Request: message to edit not found"
    assert (await bot("deleteMessage", **where))["description"] == "Bad Request: message to delete not found"
    assert await bot.ok("deleteMessages", chat_id=ANN, message_ids=[said.id, 12345]) is True
    assert said.deleted


async def test_places_that_are_closed(telegram: FakeTelegram, bot: Bot) -> None:
    small, big = telegram.group(), telegram.supergroup()
    telegram.block(ANN)
    telegram.kick(ANN, big)
    new = telegram.migrate(small)

    blocked = await bot("sendMessage", chat_id=ANN, text="x")
    assert blocked == {"ok": False, "error_code": 403, "description": "Forbidden: bot was blocked by the user"}
    kicked = await bot("sendMessage", chat_id=big, text="x")
    assert kicked["description"] == "Forbidden: bot was kicked from the supergroup chat"
    moved = await bot("sendMessage", chat_id=small, text="x")
    assert moved["description"] == "Bad Request: group chat was upgraded to a supergroup chat"
    assert moved["parameters"] == {"migrate_to_chat_id": new}
    await bot.ok("sendMessage", chat_id=new, text="x")


async def test_topics_and_replies(telegram: FakeTelegram, bot: Bot) -> None:
    forum = telegram.supergroup(topics={7: "Builds"})
    asked = telegram.say(ANN, "/status@dragoman_test_bot now", chat=forum, topic=7)
    assert asked.payload["is_topic_message"] is True
    assert asked.entities == [entity("bot_command", 0, 25)]

    reply = {"message_id": asked.id}
    sent = await bot.ok("sendMessage", chat_id=forum, message_thread_id=7, text="fine", reply_parameters=reply)
    assert sent["reply_to_message"]["text"] == asked.text
    assert (await telegram.see(forum, "fine", topic=7)).reply_to == asked.id
    general = await bot("sendMessage", chat_id=forum, message_thread_id=1, text="x")
    assert general["description"] == "Bad Request: message thread not found"
    await bot.ok("sendChatAction", chat_id=forum, message_thread_id=1, action="typing")
    missing = {"message_id": 999, "allow_sending_without_reply": True}
    assert "reply_to_message" not in await bot.ok("sendMessage", chat_id=forum, text="x", reply_parameters=missing)


@pytest.mark.parametrize("way", ["direct", "attached"])
async def test_a_document_arrives_whole(
    telegram: FakeTelegram, session: aiohttp.ClientSession, bot: Bot, way: str
) -> None:
    form = aiohttp.FormData({"chat_id": str(ANN), "caption": "the log"})
    if way == "attached":
        form.add_field("document", "attach://f0")
    form.add_field("document" if way == "direct" else "f0", b"line\n" * 1000, filename="build.log")
    async with session.post(f"{bot.root}/sendDocument", data=form) as response:
        answer = await response.json()

    assert answer["ok"], answer
    shown = await telegram.see(ANN, "the log")
    assert shown.document is not None
    assert (shown.document.name, shown.document.content) == ("build.log", b"line\n" * 1000)
    found = await bot.ok("getFile", file_id=answer["result"]["document"]["file_id"])
    async with session.get(f"{telegram.api_root}/file/bot{telegram.token}/{found['file_path']}") as response:
        assert await response.read() == shown.document.content
    assert telegram.surprises == []


async def test_a_press_is_answered_in_time(telegram: FakeTelegram, bot: Bot) -> None:
    await bot.ok(
        "sendMessage", chat_id=ANN, text="Run it?", reply_markup=buttons([("✅ Once", "v1:once"), ("Deny", "d")])
    )
    card = await telegram.see(ANN, "Run it?", button="Once")
    query = telegram.press(ANN, card, "Once")
    [update] = await bot.ok("getUpdates")
    pressed = update["callback_query"]
    assert (pressed["id"], pressed["data"], pressed["message"]["message_id"]) == (query, "v1:once", card.id)

    too_long = await bot("answerCallbackQuery", callback_query_id=query, text="x" * 201)
    assert too_long["description"] == "Bad Request: MESSAGE_TOO_LONG"
    await bot.ok("answerCallbackQuery", callback_query_id=query, text="Allowed", show_alert=True)
    assert ((await telegram.toast(query)).text, (await telegram.toast(query)).alert) == ("Allowed", True)
    telegram.chats.query_lives_s = 0.0
    for stale in (query, "never"):
        late = await bot("answerCallbackQuery", callback_query_id=stale)
        assert late["description"] == (
            "Bad Request: query is too old and response timeout expired or query ID is invalid"
        )
    with pytest.raises(LookupError, match="which has"):
        telegram.press(ANN, card, "Always")


async def test_menus_drafts_and_chats(telegram: FakeTelegram, bot: Bot) -> None:
    menu = [{"command": "stop", "description": "Stop it"}]
    scope = {"type": "all_private_chats"}
    await bot.ok("setMyCommands", commands=menu, scope=scope)
    assert await bot.ok("getMyCommands", scope=scope) == menu
    assert await bot.ok("getMyCommands") == []
    await bot.ok("deleteMyCommands", scope=scope)
    assert await bot.ok("getMyCommands", scope=scope) == []
    for text in ("be", "beginning"):
        await bot.ok("sendMessageDraft", chat_id=ANN, draft_id=4, text=text)
    assert telegram.chats.drafts == {(ANN, None, 4): ["be", "beginning"]}
    refused = await bot("sendMessageDraft", chat_id=telegram.group(), draft_id=4, text="x")
    assert refused["description"] == "Bad Request: TEXTDRAFT_PEER_INVALID"
    assert (await bot.ok("getChat", chat_id=ANN))["username"] == "person1001"


async def test_a_failed_wait_paints_the_chat(telegram: FakeTelegram, bot: Bot) -> None:
    await bot.ok("sendMessage", chat_id=ANN, text="Something else", reply_markup=buttons([("Go", "g")]))
    with pytest.raises(AssertionError, match=r"(?s)no message 1 with 'Wanted'.*#1 · bot: 'Something else'.*\[Go\]"):
        await telegram.see(ANN, "Wanted", within_s=0.05)
