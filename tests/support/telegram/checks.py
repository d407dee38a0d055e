"""Checks of texts, entities and buttons by the fake Telegram, with the sentences of the real one.

Pure: given what a bot sent, returns what people would see, or raises `Refusal`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

TEXT_AT_MOST = 4096
CAPTION_AT_MOST = 1024
BUTTON_DATA_AT_MOST = 64
BUTTONS_AT_MOST = 100
BUTTONS_PER_ROW = 8
DOCUMENT_AT_MOST = 50 * 1024 * 1024
PHOTO_AT_MOST = 10 * 1024 * 1024
PHOTO_SIDES_AT_MOST = 10_000
PHOTO_RATIO_AT_MOST = 20

_PLAIN = ["bold", "italic", "underline", "strikethrough", "spoiler", "code", "blockquote", "expandable_blockquote"]
_FOUND_BY_ITSELF = ["mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number"]
ENTITY_FIELDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys([*_PLAIN, *_FOUND_BY_ITSELF], frozenset[str]()),
    "pre": frozenset({"language"}),
    "text_link": frozenset({"url"}),
    "text_mention": frozenset({"user"}),
    "custom_emoji": frozenset({"custom_emoji_id"}),
}
_NEEDED = {"text_link": "url", "text_mention": "user", "custom_emoji": "custom_emoji_id"}
_BUTTON_FIELDS = frozenset({"text", "callback_data", "url", "style", "icon_custom_emoji_id"})
_BLANK = " \n"
_CONTROLS = {code: " " for code in range(32) if chr(code) not in "\r\n"}

Json = dict[str, Any]


class Refusal(Exception):
    """The answer of a call that is refused. `surprise`: the fake alone refuses it, and a test should hear of it."""

    def __init__(self, description: str, *, code: int = 400, surprise: bool = False, **parameters: int) -> None:
        super().__init__(description)
        self.description = description
        self.code = code
        self.surprise = surprise
        self.parameters = parameters

    def answer(self) -> Json:
        """The body of the answer."""
        body: Json = {"ok": False, "error_code": self.code, "description": self.description}
        return {**body, "parameters": self.parameters} if self.parameters else body


def bad(what: str) -> Refusal:
    """Return Telegram's error for a request that cannot be served."""
    return Refusal(f"Bad Request: {what}")


def odd(what: str) -> Refusal:
    """Return the refusal of a call that Telegram would accept or answer otherwise, and no bot of ours should send."""
    return Refusal(f"Bad Request: {what}", surprise=True)


def utf16_len(text: str) -> int:
    """Length as Telegram counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


# --- texts --------------------------------------------------------------------------------------


def formatted(text: str, entities: Sequence[Json]) -> tuple[str, list[Json]]:
    """The text and entities as they are shown: checked, in order, without blank ends."""
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half a symbol, as from a text that was cut between its halves
        raise bad("strings must be encoded in UTF-8") from error
    if entities and "\r" in text:
        raise odd("this fake wants no carriage returns beside entities: they would shift them")
    text = text.replace("\r", "")
    if not text.isprintable():
        text = text.translate(_CONTROLS)
    kept = _checked(text, entities)
    return _trimmed(text, kept)


def _checked(text: str, entities: Sequence[Json]) -> list[Json]:
    if not entities:
        return []
    units = text.encode("utf-16-le", "surrogatepass")
    kept = sorted((_entity(entity) for entity in entities), key=lambda e: (e["offset"], -e["length"]))
    open_ends: list[int] = []
    for entity in kept:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        if start > len(units) // 2:
            raise bad(f"entity begins after the end of the text at UTF-16 offset {start}")
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        # The real one says the same of an entity that crosses the end of the one around it.
        if end > len(units) // 2 or (open_ends and end > open_ends[-1]):
            raise bad(
                f"entity beginning at UTF-16 offset {start} ends after the end of the text at UTF-16 offset {end}"
            )
        if _in_a_pair(units, start):
            raise bad(f"entity begins in a middle of a UTF-16 symbol at byte offset {start * 2}")
        if _in_a_pair(units, end):
            middle = f"in a middle of a UTF-16 symbol at byte offset {end * 2}"
            raise bad(f"entity beginning at UTF-16 offset {start} ends {middle}")
        open_ends.append(end)
    return kept


def _entity(entity: Json) -> Json:
    kind, offset, length = entity.get("type"), entity.get("offset"), entity.get("length")
    if not isinstance(kind, str) or kind not in ENTITY_FIELDS:
        raise bad("can't parse MessageEntity: Unsupported type specified")
    if not isinstance(offset, int) or not isinstance(length, int):
        raise bad('can\'t parse MessageEntity: Field "offset" must be of type Number')
    if not 0 <= offset <= 1_000_000:
        raise bad(f"receive an entity with incorrect offset {offset}")
    if not 0 < length <= 1_000_000:
        raise bad(f"receive an entity with incorrect length {length}")
    fields = ENTITY_FIELDS[kind]
    if unknown := entity.keys() - fields - {"type", "offset", "length"}:
        raise odd(f"this fake knows no field {sorted(unknown)} of an entity {kind}")
    if (needed := _NEEDED.get(kind)) and not entity.get(needed):
        raise bad(f"can't parse MessageEntity: Can't find field \"{needed}\"")
    return entity


def _in_a_pair(units: bytes, at: int) -> bool:
    """Return True for a position between the two halves of one symbol."""
    return 0 < at * 2 < len(units) and 0xDC <= units[at * 2 + 1] <= 0xDF


def _trimmed(text: str, entities: list[Json]) -> tuple[str, list[Json]]:
    text = text.rstrip(_BLANK)
    blank = len(text) - len(text.lstrip(_BLANK))
    if not entities:
        return text[blank:], []
    cut = min(blank, entities[0]["offset"])  # blanks in front of the first entity only
    text = text[cut:]
    units = text.encode("utf-16-le", "surrogatepass")
    kept: list[Json] = []
    for entity in entities:
        start = entity["offset"] - cut
        length = min(entity["length"], len(units) // 2 - start)
        if length > 0 and units[start * 2 : (start + length) * 2].decode("utf-16-le", "surrogatepass").strip(_BLANK):
            kept.append({**entity, "offset": start, "length": length})
    return text, kept


def message_text(p: Mapping[str, Any], *, editing: bool) -> tuple[str, list[Json]]:
    """The text of a send or an edit."""
    text = p.get("text", "")
    if not text:
        raise bad("message text is empty")
    shown, entities = formatted(text, _own_entities(p, "entities"))
    if not shown:
        raise bad("text must be non-empty")
    if utf16_len(shown) > TEXT_AT_MOST:
        raise bad("MESSAGE_TOO_LONG" if editing else "message is too long")
    return shown, entities


def caption_text(p: Mapping[str, Any]) -> tuple[str, list[Json]]:
    """The caption of a document; may be empty."""
    shown, entities = formatted(p.get("caption", ""), _own_entities(p, "caption_entities"))
    if utf16_len(shown) > CAPTION_AT_MOST:
        raise bad("message caption is too long")
    return shown, entities


def _own_entities(p: Mapping[str, Any], field: str) -> Sequence[Json]:
    if p.get("parse_mode", "none").lower() not in ("", "none"):
        raise odd("this fake wants entities, not a parse_mode")
    return p.get(field) or ()


# --- photos -------------------------------------------------------------------------------------


def check_photo(content: bytes) -> None:
    """Raise for a picture that is refused as a photo: https://core.telegram.org/bots/api#sendphoto."""
    if len(content) > PHOTO_AT_MOST:
        raise bad(
            f"file of size {len(content)} bytes is too big for a photo; the maximum size is {PHOTO_AT_MOST} bytes"
        )
    sides = _sides(content)
    if sides is None:
        raise bad("IMAGE_PROCESS_FAILED")
    if sum(sides) > PHOTO_SIDES_AT_MOST or not 0 < max(sides) <= PHOTO_RATIO_AT_MOST * min(sides):
        raise bad("PHOTO_INVALID_DIMENSIONS")


def _sides(content: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, a JPEG with one frame, or a WebP that says so in its first chunk."""
    if content.startswith(b"\x89PNG"):
        return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    if content.startswith(b"RIFF") and content[8:16] == b"WEBPVP8X":
        return int.from_bytes(content[24:27], "little") + 1, int.from_bytes(content[27:30], "little") + 1
    frame = re.search(rb"\xff[\xc0-\xc2]\x00[\x0b-\x11]\x08(....)", content, re.DOTALL)
    if content.startswith(b"\xff\xd8") and frame is not None:
        return int.from_bytes(frame[1][2:]), int.from_bytes(frame[1][:2])
    return None


# --- buttons ------------------------------------------------------------------------------------


def keyboard(markup: Json | None) -> list[list[Json]]:
    """The rows of buttons; empty for none."""
    if not markup:
        return []
    if markup.keys() != {"inline_keyboard"}:
        raise odd(f"this fake knows inline keyboards only, not {sorted(markup)}")
    rows: list[list[Json]] = [[_button(button) for button in row] for row in markup["inline_keyboard"]]
    rows = [row for row in rows if row]
    if sum(map(len, rows)) > BUTTONS_AT_MOST:
        raise bad("reply markup is too long")
    if any(len(row) > BUTTONS_PER_ROW for row in rows):
        raise odd(f"this fake wants at most {BUTTONS_PER_ROW} buttons in a row: the real one drops or moves the others")
    return rows


def _button(button: Json) -> Json:
    if unknown := button.keys() - _BUTTON_FIELDS:
        raise odd(f"this fake knows no field {sorted(unknown)} of a button")
    if "text" not in button:
        raise bad("can't parse inline keyboard button: Can't find field \"text\"")
    if not button["text"].strip():
        raise bad("inline keyboard button text must be non-empty")
    if "callback_data" not in button and "url" not in button:
        raise bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
    if "callback_data" in button and not 1 <= len(button["callback_data"].encode()) <= BUTTON_DATA_AT_MOST:
        raise bad("BUTTON_DATA_INVALID")
    if "url" in button and not button["url"].startswith(("https://", "http://", "tg://")):
        raise bad(f"inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL")
    return button


def as_json(value: Any, field: str, kind: type) -> Any:
    """A parameter that is JSON, as text or already read."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise bad(f"can't parse {field} JSON object") from error
    if not isinstance(value, kind):
        raise bad(f"{field}: object expected" if kind is dict else f"{field}: expected an Array")
    return value
