"""Attachment metadata of a message. Used by `inbound`; pure, nothing is fetched here."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass

from channels.telegram.fields import Malformed, TelegramFields
from gateway.domain.messages import Attachment

NAME_AT_MOST = 255
TYPE_AT_MOST = 255
SOURCE_AT_MOST = 512
"""Bytes of a file's id, at most; real ones have less than a hundred."""
SIZES_AT_MOST = 100


@dataclass(frozen=True, slots=True)
class _Kind:
    """Defaults for a kind of file without a name or type."""

    name: str
    media_type: str = ""
    recorded: bool = False
    """True for a kind that people record in the chat."""


FILES: Mapping[str, _Kind] = types.MappingProxyType(
    {
        "photo": _Kind("photo.jpg", "image/jpeg"),
        "animation": _Kind("animation.mp4", "video/mp4"),  # before `document`: Telegram sends both then
        "video": _Kind("video.mp4", "video/mp4"),
        "video_note": _Kind("video-message.mp4", "video/mp4", recorded=True),
        "voice": _Kind("voice-message.ogg", "audio/ogg", recorded=True),
        "audio": _Kind("audio.mp3"),
        "document": _Kind("file"),
        "sticker": _Kind("sticker.webp", "image/webp"),
    }
)
"""Message fields that hold a file, with the defaults for its name and type."""


def attached(message: TelegramFields, most: int, *, own: bool = True) -> tuple[tuple[Attachment, ...], str]:
    """Return a message's file, or a phrase for one too large to fetch, to follow its kind; both empty without a file.

    `most`: bytes that the Bot API server gives out; 0 is no limit. `own`: the message is not forwarded. A malformed
    file counts as none, so that the rest of its message is not lost.
    """
    field = next((name for name in FILES if name in message), "")
    if not field:
        return (), ""
    try:
        found = _read(message, field, own=own)
    except Malformed:
        return (), ""
    if found is None:
        return (), ""
    if most and found.size > most:
        return (), f"of more than {most // 1024 // 1024} MB"
    return (found,), ""


def _read(message: TelegramFields, field: str, *, own: bool) -> Attachment | None:
    """Return the file in a field; None for an unusable one. Raises `Malformed`."""
    kind = FILES[field]
    file = _largest(message) if field == "photo" else message.object(field)
    if file is None or (field == "sticker" and _is_animated(file)):
        return None
    return Attachment(
        source=file.word("file_id", most=SOURCE_AT_MOST),
        name=file.label("file_name", most=NAME_AT_MOST) or kind.name,
        media_type=file.label("mime_type", most=TYPE_AT_MOST) or kind.media_type,
        size=file.count("file_size"),
        spoken=own and (kind.recorded or (field == "audio" and "caption" not in message)),
        seconds=file.count("duration"),
    )


def _largest(message: TelegramFields) -> TelegramFields | None:
    """Return the largest of a photo's sizes; all are below 10 MB."""
    sizes = message.objects("photo", most=SIZES_AT_MOST)
    return max(sizes, key=lambda one: one.count("width") * one.count("height"), default=None)


def _is_animated(sticker: TelegramFields) -> bool:
    """Return True if a sticker is no still picture."""
    return sticker.flag("is_animated") or sticker.flag("is_video")
