"""The methods of the Bot API that are about chats: each takes typed parameters and returns what is answered."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from telegram.constants import ReactionEmoji

from tests.support.telegram.checks import (
    DOCUMENT_AT_MOST,
    TEXT_AT_MOST,
    Json,
    Refusal,
    bad,
    caption_text,
    check_photo,
    formatted,
    keyboard,
    message_text,
    odd,
    utf16_len,
)
from tests.support.telegram.wire import Upload
from tests.support.telegram.world import Chat, Chats, Document, Shown, Toast

NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same "
    "as a current content and reply markup of the message"
)
TOO_OLD = "query is too old and response timeout expired or query ID is invalid"
ACTIONS = frozenset(
    {"typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document"}
    | {"choose_sticker", "find_location", "record_video_note", "upload_video_note"}
)
TOAST_AT_MOST = 200
QUESTION_AT_MOST = 300
OPTION_AT_MOST = 100
OPTIONS_AT_LEAST, OPTIONS_AT_MOST = 2, 12
REACTIONS = frozenset(one.value for one in ReactionEmoji)
COMMANDS_AT_MOST = 100


def send_message(chats: Chats, p: Json) -> Json:
    """A new text."""
    chat = chats.chat(p)
    text, entities = message_text(p, editing=False)
    rows = keyboard(p.get("reply_markup"))
    return _sent(chats, chat, p, rows, _texts(text, entities)).payload


def send_document(chats: Chats, p: Json) -> Json:
    """A new file."""
    chat = chats.chat(p)
    caption, entities = caption_text(p)
    rows = keyboard(p.get("reply_markup"))
    document = _uploaded(chats, p.get("document"))
    fields: Json = {
        "document": {
            "file_name": document.name,
            "file_id": document.file_id,
            "file_unique_id": f"u{document.file_id}",
            "file_size": len(document.content),
        }
    }
    if caption:
        fields |= {"caption": caption, **({"caption_entities": entities} if entities else {})}
    message = _sent(chats, chat, p, rows, fields)
    message.document = document
    return message.payload


def send_photo(chats: Chats, p: Json) -> Json:
    """A new picture, shown as such."""
    chat = chats.chat(p)
    caption, entities = caption_text(p)
    rows = keyboard(p.get("reply_markup"))
    photo = _uploaded(chats, p.get("photo"), "photo")
    check_photo(photo.content)
    photo.photo = True
    size: Json = {"file_id": photo.file_id, "file_unique_id": f"u{photo.file_id}", "file_size": len(photo.content)}
    fields: Json = {"photo": [{**size, "width": 90, "height": 67}]}
    if caption:
        fields |= {"caption": caption, **({"caption_entities": entities} if entities else {})}
    message = _sent(chats, chat, p, rows, fields)
    message.document = photo
    return message.payload


def send_voice(chats: Chats, p: Json) -> Json:
    """A new voice message: Opus in an Ogg file, or it is no voice message."""
    chat = chats.chat(p)
    caption, entities = caption_text(p)
    rows = keyboard(p.get("reply_markup"))
    voice = _uploaded(chats, p.get("voice"), "voice")
    if not voice.content.startswith(b"OggS"):
        raise bad("VOICE_CONTENT_INVALID")
    known: Json = {"file_id": voice.file_id, "file_unique_id": f"u{voice.file_id}", "file_size": len(voice.content)}
    fields: Json = {"voice": {**known, "duration": 3}}
    if caption:
        fields |= {"caption": caption, **({"caption_entities": entities} if entities else {})}
    message = _sent(chats, chat, p, rows, fields)
    message.document = voice
    return message.payload


def edit_caption(chats: Chats, p: Json) -> Json:
    """Other words beside a file, or none."""
    message = _to_edit(chats, p)
    if message.document is None:
        raise bad("there is no caption in the message to edit")
    caption, entities = caption_text(p)
    rows = keyboard(p.get("reply_markup"))
    if caption == message.text and entities == message.entities and rows == message.buttons:
        raise bad(NOT_MODIFIED)
    message.history.append(message.text)
    message.text, message.entities = caption, entities
    payload = {key: value for key, value in message.payload.items() if key not in ("caption", "caption_entities")}
    said: Json = {"caption": caption, **({"caption_entities": entities} if entities else {})} if caption else {}
    message.payload = {**payload, "edit_date": chats.now(), **said}
    return _with_buttons(message, rows)


def _uploaded(chats: Chats, given: Any, kind: str = "document") -> Document:
    if isinstance(given, str) and given in chats.files:
        return chats.files[given]
    if not isinstance(given, Upload):
        raise bad(f"there is no {kind} in the request" if given is None else "wrong file identifier/HTTP URL specified")
    if not given.content:
        raise bad("file must be non-empty")
    if len(given.content) > DOCUMENT_AT_MOST:
        raise Refusal("Request Entity Too Large", code=413)
    document = Document(given.name, given.content, f"file{len(chats.files)}")
    chats.files[document.file_id] = document
    return document


def _texts(text: str, entities: list[Json]) -> Json:
    return {"text": text, "entities": entities} if entities else {"text": text}


def _sent(chats: Chats, chat: Chat, p: Json, rows: list[list[Json]], fields: Json) -> Shown:
    thread, reply_to = chats.thread(chat, p), chats.reply_target(chat, p)
    if rows:
        fields["reply_markup"] = {"inline_keyboard": rows}
    message = chats.new(chat, chats.bot, fields, thread=thread, reply_to=reply_to)
    message.buttons = rows
    return message


def edit_text(chats: Chats, p: Json) -> Json:
    """Another text; without buttons given, the message has none any more."""
    message = _to_edit(chats, p)
    if message.document is not None:
        raise bad("there is no text in the message to edit")
    text, entities = message_text(p, editing=True)
    rows = keyboard(p.get("reply_markup"))
    if text == message.text and entities == message.entities and rows == message.buttons:
        raise bad(NOT_MODIFIED)
    message.history.append(message.text)
    message.text, message.entities = text, entities
    payload = {key: value for key, value in message.payload.items() if key != "entities"}
    message.payload = {**payload, "edit_date": chats.now(), **_texts(text, entities)}
    return _with_buttons(message, rows)


def edit_buttons(chats: Chats, p: Json) -> Json:
    """Other buttons, or none."""
    message = _to_edit(chats, p)
    rows = keyboard(p.get("reply_markup"))
    if rows == message.buttons:
        raise bad(NOT_MODIFIED)
    message.payload = {**message.payload, "edit_date": chats.now()}
    return _with_buttons(message, rows)


def _to_edit(chats: Chats, p: Json) -> Shown:
    message = chats.message(chats.chat(p), p, "edit")
    if message.by != chats.bot["id"]:
        raise bad("message can't be edited")
    return message


def _with_buttons(message: Shown, rows: list[list[Json]]) -> Json:
    message.edits += 1
    message.buttons = rows
    message.payload.pop("reply_markup", None)
    if rows:
        message.payload["reply_markup"] = {"inline_keyboard": rows}
    return message.payload


def delete_message(chats: Chats, p: Json) -> bool:
    """Take one message away."""
    chat = chats.chat(p)
    message = chats.message(chat, p, "delete")
    if message.by != chats.bot["id"] and chat.type != "private" and not chat.bot_is_admin:
        raise bad("message can't be deleted")
    message.deleted = True
    return True


def delete_messages(chats: Chats, p: Json) -> bool:
    """Take several away; those that cannot be are skipped."""
    chat = chats.chat(p)
    ids: list[Any] = p.get("message_ids") or []
    if not 1 <= len(ids) <= 100:
        raise bad("message identifiers are not specified" if not ids else "too many message identifiers specified")
    for message in [chat.messages[int(n)] for n in ids if int(n) in chat.messages]:
        if message.by == chats.bot["id"] or chat.type == "private" or chat.bot_is_admin:
            message.deleted = True
    return True


def send_poll(chats: Chats, p: Json) -> Json:
    """A new poll."""
    chat = chats.chat(p)
    question: str = p.get("question", "")
    options: list[Any] = p.get("options") or []
    if not question.strip():
        raise bad("poll question must be non-empty")
    if utf16_len(question) > QUESTION_AT_MOST:
        raise bad(f"poll question length must not exceed {QUESTION_AT_MOST}")
    if len(options) < OPTIONS_AT_LEAST:
        raise bad("poll must have at least 2 option")
    if len(options) > OPTIONS_AT_MOST:
        raise bad(f"poll can't have more than {OPTIONS_AT_MOST} options")
    for one in options:
        if not isinstance(one, dict) or list(cast("Json", one)) != ["text"]:
            raise odd("this fake wants each option as an object with a text")
        text = str(cast("Json", one)["text"])
        if not text.strip():
            raise bad("poll options must be non-empty")
        if utf16_len(text) > OPTION_AT_MOST:
            raise bad(f"poll options length must not exceed {OPTION_AT_MOST}")
    shown: list[Json] = [{"text": one["text"], "voter_count": 0} for one in options]
    poll: Json = {"id": f"poll{len(chat.messages)}", "question": question, "options": shown, "type": "regular"}
    message = _sent(chats, chat, p, [], {"poll": {**poll, "is_anonymous": p.get("is_anonymous", True)}})
    message.text = question
    return message.payload


def set_reaction(chats: Chats, p: Json) -> bool:
    """The bot's one reaction to a message, or none."""
    message = chats.message(chats.chat(p), p, "react")
    given: list[Any] = p.get("reaction") or []
    if len(given) > 1:
        raise bad("REACTIONS_TOO_MANY")
    for one in given:
        if not isinstance(one, dict) or cast("Json", one) != {"type": "emoji", "emoji": cast("Json", one).get("emoji")}:
            raise odd("this fake wants a reaction of the type emoji")
        if one["emoji"] not in REACTIONS:
            raise bad("REACTION_INVALID")
    message.reaction = given[0]["emoji"] if given else ""
    return True


def pin_message(chats: Chats, p: Json) -> bool:
    """Keep a message at the top of its chat."""
    chat = chats.chat(p)
    message = chats.message(chat, p, "pin")
    if chat.type != "private" and not chat.bot_is_admin:
        raise bad("not enough rights to manage pinned messages in the chat")
    message.pinned = True
    return True


def send_action(chats: Chats, p: Json) -> bool:
    """Typing and the like."""
    chat = chats.chat(p)
    if p.get("action") not in ACTIONS:
        raise bad("wrong parameter action in request")
    chats.typing.append((chat.id, chats.thread(chat, p, general=True), p["action"]))
    return True


def send_draft(chats: Chats, p: Json) -> bool:
    """The beginning of an answer, for half a minute."""
    chat = chats.chat(p)
    if chat.type != "private":
        raise bad("TEXTDRAFT_PEER_INVALID")
    if not p.get("draft_id"):
        raise bad("invalid draft identifier specified")
    thread = chats.thread(chat, p)
    if p.get("parse_mode", "none").lower() not in ("", "none"):
        raise odd("this fake wants entities, not a parse_mode")
    text, _ = formatted(p.get("text", ""), p.get("entities") or ())
    if utf16_len(text) > TEXT_AT_MOST:
        raise bad("MESSAGE_TOO_LONG")
    chats.drafts.setdefault((chat.id, thread, p["draft_id"]), []).append(text)
    return True


def answer_query(chats: Chats, p: Json) -> bool:
    """Show the answer to a press."""
    query = chats.queries.get(p.get("callback_query_id", ""))
    if query is None or time.monotonic() - query.at_s > chats.query_lives_s:
        raise bad(TOO_OLD)
    if utf16_len(p.get("text", "")) > TOAST_AT_MOST:
        raise bad("MESSAGE_TOO_LONG")
    chats.toasts[query.id] = Toast(p.get("text", ""), p.get("show_alert", False), p.get("url", ""))
    return True


def _commands_key(p: Json) -> tuple[str, str]:
    scope: Json = p.get("scope") or {"type": "default"}
    return json.dumps(scope, sort_keys=True), p.get("language_code", "")


def set_commands(chats: Chats, p: Json) -> bool:
    """The menu of commands, for one scope."""
    commands: list[Json] = p.get("commands") or []
    if len(commands) > COMMANDS_AT_MOST:
        raise bad("BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        if command.keys() != {"command", "description"}:
            raise odd(f"this fake wants command and description, not {sorted(command)}")
        if not re.fullmatch(r"/?[a-z0-9_]{1,32}", command["command"]):
            raise bad("BOT_COMMAND_INVALID")
        if not 1 <= len(command["description"]) <= 256:
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
    chats.commands[_commands_key(p)] = commands
    return True


def delete_commands(chats: Chats, p: Json) -> bool:
    """No menu of its own for a scope."""
    chats.commands.pop(_commands_key(p), None)
    return True


def get_commands(chats: Chats, p: Json) -> list[Json]:
    """The menu of a scope."""
    return chats.commands.get(_commands_key(p), [])


def get_chat(chats: Chats, p: Json) -> Json:
    """A chat, with the fields that every chat has."""
    return {**chats.chat(p).payload(), "accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": _GIFTS}


_GIFTS = dict.fromkeys(
    ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels"), False
)


def get_file(chats: Chats, p: Json) -> Json:
    """Return the path from which a file can be fetched."""
    document = chats.files.get(p.get("file_id", ""))
    if document is None:
        raise bad("invalid file_id")
    size = len(document.content)
    if size > 20 * 1024 * 1024:
        raise bad("file is too big")
    told: Json = {"file_id": document.file_id, "file_unique_id": f"u{document.file_id}", "file_size": size}
    path = f"documents/{document.file_id}" if document.path is None else document.path
    return {**told, "file_path": path} if path else told


def get_me(chats: Chats, p: Json) -> Json:
    """The bot itself."""
    can = {"can_join_groups": True, "can_read_all_group_messages": False, "supports_inline_queries": False}
    more = {"can_connect_to_business": False, "has_main_web_app": False}
    return {**chats.bot, **can, **more}


METHODS: Mapping[str, Callable[[Chats, Json], Any]] = {
    "getMe": get_me,
    "sendMessage": send_message,
    "sendDocument": send_document,
    "sendPhoto": send_photo,
    "sendVoice": send_voice,
    "editMessageText": edit_text,
    "editMessageCaption": edit_caption,
    "editMessageReplyMarkup": edit_buttons,
    "deleteMessage": delete_message,
    "deleteMessages": delete_messages,
    "sendPoll": send_poll,
    "setMessageReaction": set_reaction,
    "pinChatMessage": pin_message,
    "sendChatAction": send_action,
    "sendMessageDraft": send_draft,
    "answerCallbackQuery": answer_query,
    "setMyCommands": set_commands,
    "deleteMyCommands": delete_commands,
    "getMyCommands": get_commands,
    "getChat": get_chat,
    "getFile": get_file,
}
