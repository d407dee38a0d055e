"""Attachment metadata of a message. Used by `inbound`; pure, nothing is fetched here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from channels.slack.fields import Malformed, SlackFields
from gateway.domain.messages import Attachment

FETCHED_AT_MOST = 10
"""Files fetched per message; people may send more."""
LISTED_AT_MOST = 100
"""Files listed in a message, at most; a longer list is malformed."""
NAME_AT_MOST = 255
TYPE_AT_MOST = 255
UNNAMED = "file"
CLIP = "slack_audio"
"""Subtype of a clip that was recorded in Slack."""

_KINDS = (("image/", "a picture"), ("audio/", "an audio file"), ("video/", "a video"))
_MODES: Mapping[str, str] = MappingProxyType(
    {
        "hidden_by_limit": "a file that Slack hides because the workspace is over the limits of its plan",
        "tombstone": "a file that was deleted",
        "external": "a file that is kept outside of Slack",
    }
)
_ACCESS: Mapping[str, str] = MappingProxyType(
    {
        "access_denied": "a file that Slack does not show to apps",
        "file_not_found": "a file that was deleted",
    }
)


def attached(said: SlackFields) -> tuple[tuple[Attachment, ...], str]:
    """Return a message's fetchable files, and a phrase for the others; empty for none.

    A malformed file does not affect the rest of its message. Raises `Malformed` if `files` is no list of objects.
    """
    listed = said.objects("files", most=LISTED_AT_MOST)
    silent = not said.text("text").strip()
    read = [_read(one, alone=silent) for one in listed]
    files = [one for one in read if isinstance(one, Attachment)]
    unread = [one for one in read if isinstance(one, str)]
    beyond = len(files) - FETCHED_AT_MOST
    if beyond > 0:
        unread.append(f"{beyond} more {'file' if beyond == 1 else 'files'}")
    return tuple(files[:FETCHED_AT_MOST]), _phrase(unread)


def _kind_of(media_type: str) -> str:
    """Return the everyday name of a kind of file."""
    return next((name for start, name in _KINDS if media_type.startswith(start)), "a file")


def _read(told: SlackFields, *, alone: bool) -> Attachment | str:
    """Return a file, or a phrase for one that cannot be fetched. `alone`: it came without a text.

    Its URL is requested at the fetch: for a file of another workspace the message has only the id.
    """
    kind = told.label("mimetype", most=TYPE_AT_MOST)
    mode = "external" if told.is_true("is_external") else told.label("mode", most=100)
    why = _MODES.get(mode) or _ACCESS.get(told.label("file_access", most=100))
    if why:
        return why
    try:
        source = told.id("id", "F")
    except Malformed:
        return _kind_of(kind)
    return Attachment(
        source=source,
        name=told.label("name", most=NAME_AT_MOST) or told.label("title", most=NAME_AT_MOST) or UNNAMED,
        media_type=kind,
        size=told.count("size"),
        spoken=told.label("subtype", most=100) == CLIP or (alone and kind.startswith("audio/")),
        seconds=told.count("duration_ms") // 1000,
    )


def _phrase(unread: list[str]) -> str:
    """Return one phrase with each kind once: `a file that was deleted and 2 more files`."""
    kinds = list(dict.fromkeys(unread))
    named = [one if unread.count(one) == 1 else f"{unread.count(one)} times {one}" for one in kinds]
    return " and ".join(filter(None, [", ".join(named[:-1]), named[-1] if named else ""]))
