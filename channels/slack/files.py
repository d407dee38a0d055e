"""The way out of a file: announced, uploaded, then shown; only the last step is seen by anybody.

A message that shows a file has no metadata and its timestamp is not told, so the file's id (`F…`) stands for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from channels.slack.parts import FilePart, StoredPart
from channels.slack.plain import escaped
from channels.slack.request import Json, NotSent, SlackClient, Unanswered

FILE = "F"
"""What the id of a file begins with; a message's is a number."""


async def upload(client: SlackClient, part: FilePart | StoredPart) -> str:
    """Bring a file's bytes to Slack and return its id. Nobody sees it yet, so it may be repeated.

    Raises `SlackFailure`; `NotSent` for bytes that are not taken: it may be this file that Slack cannot be brought.
    """
    place = await client.call("files.getUploadURLExternal", {"filename": part.name, "length": part.size})
    url, file = place.get("upload_url"), place.get("file_id")
    if not isinstance(url, str) or not isinstance(file, str) or not file.startswith(FILE):
        raise Unanswered("Slack named no place for a file.")
    try:
        if isinstance(part, FilePart):
            await client.upload(url, part.data)
        else:
            await _stream(client, url, part.path)
    except Unanswered as unanswered:
        why = str(unanswered)
    else:
        return file
    raise NotSent(why)


async def _stream(client: SlackClient, url: str, path: Path) -> None:
    try:
        content = path.open("rb")
    except OSError as error:
        why = type(error).__name__
    else:
        with content:
            await client.upload(url, content)
        return
    raise NotSent(f"A file could not be read to be sent: {why}.")


async def show(client: SlackClient, file: str, part: FilePart | StoredPart, place: Json) -> None:
    """Show an uploaded file in `place` (`channel_id`, `thread_ts`), once. Raises `SlackFailure`."""
    content: Json = {"files": [{"id": file, "title": part.name}]}
    said = escaped(part.said)  # a field that Slack reads as its own notation
    comment: Json = {"initial_comment": said} if said else {}
    await client.call("files.completeUploadExternal", content | comment | place)


async def messages(client: SlackClient, file: str, channel: str) -> list[str]:
    """Return the timestamps of the messages of a channel that show a file. Raises `SlackFailure`."""
    shares = _object(_object((await client.call("files.info", {"file": file})).get("file")).get("shares"))
    found: list[str] = []
    for kind in ("public", "private"):
        listed = _object(shares.get(kind)).get(channel)
        every = cast("list[object]", listed) if isinstance(listed, list) else []
        found += [ts for one in every if isinstance(ts := _object(one).get("ts"), str)]
    return found


def shows(message: Json, part: FilePart | StoredPart) -> str:
    """Return the id of the file in a message if it is this one, by name and length; else empty."""
    listed = message.get("files")
    for one in cast("list[object]", listed) if isinstance(listed, list) else []:
        told = _object(one)
        if told.get("name") == part.name and told.get("size") == part.size and isinstance(told.get("id"), str):
            return str(told["id"])
    return ""


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
