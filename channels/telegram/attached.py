"""On the way in: the file that came with a message, as far as a message says. Pure; nothing is fetched here."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass

from channels.telegram.fields import Malformed, TelegramFields
from gateway.domain.messages import Attachment

NAME_AT_MOST = 255
TYPE_AT_MOST = 255
SOURCE_AT_MOST = 512
"""Bytes of a file's id; real ones have less than a hundred."""
SIZES_AT_MOST = 100


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is known of a kind of file that tells nothing of itself."""

    name: str
    media_type: str = ""


FILES: Mapping[str, _Kind] = types.MappingProxyType(
    {
        "photo": _Kind("photo.jpg", "image/jpeg"),
        "animation": _Kind("animation.mp4", "video/mp4"),  # before `document`: Telegram sends both then
        "video": _Kind("video.mp4", "video/mp4"),
        "video_note": _Kind("video-message.mp4", "video/mp4"),
        "voice": _Kind("voice-message.ogg", "audio/ogg"),
        "audio": _Kind("audio.mp3"),
        "document": _Kind("file"),
        "sticker": _Kind("sticker.webp", "image/webp"),
    }
)
"""The fields of a message that bring a file, and how it is called when nobody said so."""


def attached(message: TelegramFields, most: int) -> tuple[tuple[Attachment, ...], str]:
    """Return the file of a message, or what to say of one that cannot be fetched after how it is called.

    `most`: bytes that the Bot API server gives out; 0 is no limit. Both are empty for a message that brings none. A
    file that is described wrongly takes nothing else of its message with it: it counts as none.
    """
    field = next((name for name in FILES if name in message), "")
    if not field:
        return (), ""
    try:
        found = _read(message, field)
    except Malformed:
        return (), ""
    if found is None:
        return (), ""
    if most and found.size > most:
        return (), f"of more than {most // 1024 // 1024} MB"
    return (found,), ""


def _read(message: TelegramFields, field: str) -> Attachment | None:
    """The file in a field; None for what is no file that anything could be done with. Raises `Malformed`."""
    kind = FILES[field]
    told = _largest(message) if field == "photo" else message.object(field)
    if told is None or (field == "sticker" and _moves(told)):
        return None
    return Attachment(
        source=told.word("file_id", most=SOURCE_AT_MOST),
        name=told.label("file_name", most=NAME_AT_MOST) or kind.name,
        media_type=told.label("mime_type", most=TYPE_AT_MOST) or kind.media_type,
        size=told.count("file_size"),
    )


def _largest(message: TelegramFields) -> TelegramFields | None:
    """The largest of a photo's sizes; all of them are less than 10 MB."""
    sizes = message.objects("photo", most=SIZES_AT_MOST)
    return max(sizes, key=lambda one: one.count("width") * one.count("height"), default=None)


def _moves(sticker: TelegramFields) -> bool:
    """Whether a sticker is no picture."""
    return sticker.flag("is_animated") or sticker.flag("is_video")
