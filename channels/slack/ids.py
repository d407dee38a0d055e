"""Slack's principals, conversations and event keys for deduplication. Used by `inbound` and `updates`.

A message's key is its place: the workspace of the installation, the channel, the timestamp. So the `message` and the
`app_mention` of one message are one event, as is a redelivery under any envelope id.
"""

from __future__ import annotations

import re

from gateway.domain.ids import Principal
from gateway.domain.ids import principal as made
from gateway.domain.messages import Conversation

CHANNEL = "slack"
_CHANNEL = re.compile(r"[CDG][A-Z0-9]{1,31}")
_TS = re.compile(r"[1-9]\d{0,10}\.\d{1,9}", re.ASCII)


def is_channel(text: str) -> bool:
    """Return True if a text has the form of the id of a channel or direct conversation."""
    return bool(_CHANNEL.fullmatch(text))


def is_ts(text: str) -> bool:
    """Return True if a text has the form of a message's timestamp, its id within the channel."""
    return bool(_TS.fullmatch(text))


def principal(team: str, user: str) -> Principal:
    """Return the principal of a user id in its workspace; neither changes, while names do."""
    return made(CHANNEL, user, team)


def conversation(account: str, channel: str, thread: str = "") -> Conversation:
    """Return a channel or direct conversation of the workspace `account`, or one of its threads."""
    return Conversation(channel=CHANNEL, account=account, chat=channel, thread=thread)


def also_called(team: str, channel: str) -> tuple[str, ...]:
    """Return a channel's name in `[chats] allow`: its id alone may also exist in another workspace.

    The conversation's own id omits the workspace: an account is one workspace, and `Conversation.key` uses `/` as the
    separator.
    """
    return (f"{team}/{channel}",)


def thread_key(channel: str, thread: str) -> str:
    """Return the key of a thread in `Threads`."""
    return f"{channel}/{thread}"


def message_key(team: str, channel: str, ts: str) -> str:
    """Return the key of a message; timestamps are unique only within their channel."""
    return f"{team}.{channel}.{ts}"


def edit_key(team: str, channel: str, ts: str, edited: str) -> str:
    """Return the key of an edit, by its timestamp."""
    return f"{team}.{channel}.{ts}.e{edited}"


def deletion_key(team: str, channel: str, ts: str) -> str:
    """Return the key of a deletion."""
    return f"{team}.{channel}.{ts}.d"


def command_key(team: str, channel: str, trigger: str) -> str:
    """Return the key of a slash command, which has no message; its trigger is used once."""
    return f"{team}.{channel}.c{trigger}"


def stop_key(team: str, channel: str, event: str) -> str:
    """Return the key of a press of Slack's own stop button, which has no message. `event`: the event's timestamp."""
    return f"{team}.{channel}.s{event}"


def press_key(team: str, channel: str, message: str, action: str, user: str, action_ts: str) -> str:
    """Return the key of a button press; Slack redelivers it with the same timestamp."""
    return f"{team}.{channel}.{message}.p{action}.{user}.{action_ts}"


def view_key(team: str, view: str) -> str:
    """Return the key of a submitted form; each is submitted once."""
    return f"{team}.v{view}"


def event_key(event_id: str) -> str:
    """Return the key of a refused event."""
    return f"x{event_id}"


def message_of(event_key: str) -> str:
    """Return the timestamp of the message of an event key, an edit's included; empty for every other event."""
    ts = ".".join(event_key.split(".")[2:4])
    return ts if is_ts(ts) else ""
