"""Upload of a file in three steps: announce, upload, show. Used by `showing`; people see only the last step.

A message with a file has no metadata, and Slack does not return its timestamp, so the file's id (`F…`) stands for it.
A mark in the file's name identifies the slot, since two answers may have files of one name and length; people see the
title.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import cast

from channels._shared.fields import object_of
from channels.slack.limits import NAME_CHARS
from channels.slack.parts import FilePart, SlackStoredPart
from channels.slack.plain import escaped
from channels.slack.request import Json, SlackClient, SlackNotSent, SlackUnanswered
from gateway.domain.ids import SlotId

FILE = "F"
"""First letter of a file's id; a message's id is a number."""
MARK_CHARS = 12
"""Hexadecimal digits of the mark."""
ENDING_CHARS = 16
"""Characters of a file name's extension, at most."""


def mark_of(slot: SlotId, number: int, part: FilePart | SlackStoredPart) -> str:
    """Return the mark of the file of part `number` (from 0) of a slot: unique, and stable across processes."""
    return hashlib.sha256(json.dumps([slot, number, part.digest]).encode()).hexdigest()[:MARK_CHARS]


def marked(name: str, mark: str) -> str:
    """Return a file's name with a mark before its extension."""
    stem, dot, ending = name.rpartition(".")
    if not stem or len(ending) > ENDING_CHARS:
        stem, dot, ending = name, "", ""
    last = f"-{mark}{dot}{ending}"
    return stem[: NAME_CHARS - len(last)] + last


async def upload(client: SlackClient, part: FilePart | SlackStoredPart, mark: str) -> str:
    """Upload a marked file and return its id. Nobody sees it yet, so it may be repeated.

    Raises `SlackFailure`; `NotSent` if the bytes are not accepted, which may be the fault of this file.
    """
    place = await client.call("files.getUploadURLExternal", {"filename": marked(part.name, mark), "length": part.size})
    url, file = place.get("upload_url"), place.get("file_id")
    if not isinstance(url, str) or not isinstance(file, str) or not file.startswith(FILE):
        raise SlackUnanswered("Slack named no address for a file's upload.")
    try:
        if isinstance(part, FilePart):
            await client.upload(url, part.data)
        else:
            await _stream(client, url, part.path)
    except SlackUnanswered as unanswered:
        why = str(unanswered)
    else:
        return file
    raise SlackNotSent(why)


async def _stream(client: SlackClient, url: str, path: Path) -> None:
    try:
        content = path.open("rb")
    except OSError as error:
        why = type(error).__name__
    else:
        with content:
            await client.upload(url, content)
        return
    raise SlackNotSent(f"A file could not be read to be sent: {why}.")


async def show(client: SlackClient, file: str, part: FilePart | SlackStoredPart, place: Json) -> None:
    """Show an uploaded file in `place` (`channel_id`, `thread_ts`), once. Raises `SlackFailure`."""
    content: Json = {"files": [{"id": file, "title": part.name}]}
    said = escaped(part.said)  # Slack parses this field as mrkdwn
    comment: Json = {"initial_comment": said} if said else {}
    await client.call("files.completeUploadExternal", content | comment | place)


async def messages(client: SlackClient, file: str, channel: str) -> list[str]:
    """Return the timestamps of a channel's messages that show a file. Raises `SlackFailure`."""
    shares = object_of((await _info(client, file)).get("shares"))
    found: list[str] = []
    for kind in ("public", "private"):
        listed = object_of(shares.get(kind)).get(channel)
        every = cast("list[object]", listed) if isinstance(listed, list) else []
        found += [ts for one in every if isinstance(ts := object_of(one).get("ts"), str)]
    return found


async def has_mark(client: SlackClient, file: str, mark: str) -> bool:
    """Return True if a file has this mark, thus this content. Raises `SlackFailure`."""
    return _is_marked(await _info(client, file), mark)


def shows(message: Json, mark: str) -> str:
    """Return the id of a message's file with this mark; empty if there is none."""
    listed = message.get("files")
    for one in cast("list[object]", listed) if isinstance(listed, list) else []:
        file = object_of(one).get("id")
        if isinstance(file, str) and _is_marked(object_of(one), mark):
            return file
    return ""


async def _info(client: SlackClient, file: str) -> Json:
    return object_of((await client.call("files.info", {"file": file})).get("file"))


def _is_marked(file: Json, mark: str) -> bool:
    name = file.get("name")
    return isinstance(name, str) and f"-{mark}" in name
