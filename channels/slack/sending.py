"""On the way out, after a doubt: whether a message that may have been sent stands there. Nothing is sent before that.

Each message of ours carries its slot and its place in it as metadata, which people do not see, and a file has a mark of
them in its name. Slack has no key against a repetition; it can be asked what stands in a channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from channels.slack.files import mark_of, shows
from channels.slack.parts import FilePart, Part, SlackStoredPart
from channels.slack.request import Json, SlackClient
from channels.slack.send_state import Look
from gateway.domain.ids import SlotId
from gateway.domain.messages import Conversation

EVENT = "dragoman_slot"
BEFORE = timedelta(seconds=5)
"""Clocks differ: what stands there since so long before the slot was made is looked at."""
PAGE = 200
"""Messages asked for at once; to some apps Slack gives 15."""
PAGES = 5
"""Read at most, over all tries: what is not found by then is sent with the mark."""


def metadata(slot: SlotId, part: int) -> Json:
    """Return what marks a message as part `part` (from 0) of a slot."""
    return {"event_type": EVENT, "event_payload": {"slot": str(slot), "part": part}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A message that may stand in a conversation already."""

    conversation: Conversation
    slot: SlotId
    number: int
    """Its place in the slot, from 0."""
    part: Part
    since: datetime
    """When the slot was made."""


async def found(client: SlackClient, doubt: Doubt, look: Look) -> tuple[str, bool]:
    """Return the id of the message that may have been sent, or empty when it does not stand there; and whether that is
    certain, for not all is read where much was said since.

    Raises `SlackFailure` when Slack does not say; `look` knows then where to go on.
    """
    where = doubt.conversation
    asked: Json = {
        "channel": where.chat,
        "oldest": f"{(doubt.since - BEFORE).timestamp():.6f}",
        "limit": PAGE,
        "include_all_metadata": True,
    }
    method = "conversations.replies" if where.thread else "conversations.history"
    asked |= {"ts": where.thread} if where.thread else {}
    while look.pages < PAGES:
        asked |= {"cursor": look.cursor} if look.cursor else {}
        answer = await client.call(method, asked)
        look.pages += 1
        listed = answer.get("messages")
        for message in cast("list[object]", listed) if isinstance(listed, list) else []:
            if isinstance(message, dict) and (there := _is(cast("Json", message), doubt)):
                return there, True
        look.cursor = _cursor(answer)
        if not look.cursor:
            return "", True
    return "", False


def _is(message: Json, doubt: Doubt) -> str:
    if isinstance(doubt.part, FilePart | SlackStoredPart):
        return shows(message, mark_of(doubt.slot, doubt.number, doubt.part))
    told, ts = message.get("metadata"), message.get("ts")
    return ts if told == metadata(doubt.slot, doubt.number) and isinstance(ts, str) else ""


def _cursor(answer: Json) -> str:
    more = answer.get("response_metadata")
    cursor = cast("Json", more).get("next_cursor") if isinstance(more, dict) else None
    return cursor if isinstance(cursor, str) else ""
