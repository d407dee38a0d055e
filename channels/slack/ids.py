"""Ids of Slack: who speaks, where, and the keys by which an event is known when it comes again.

A message's key is its place: the workspace that we are installed in, the channel, the timestamp. So the `message` and
the `app_mention` that Slack sends of one message are one event, as is a redelivery, whatever the id of the envelope.
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
    """Whether this is the form of a channel's id, or a direct conversation's."""
    return bool(_CHANNEL.fullmatch(text))


def is_ts(text: str) -> bool:
    """Whether this is the form of a message's timestamp, which is its id in its channel."""
    return bool(_TS.fullmatch(text))


def principal(team: str, user: str) -> Principal:
    """Who speaks: the account's id and the workspace it belongs to, neither of which changes. Names do."""
    return made(CHANNEL, user, team)


def conversation(account: str, channel: str, thread: str = "") -> Conversation:
    """A channel or direct conversation of the workspace `account`, or one thread in it."""
    return Conversation(channel=CHANNEL, account=account, chat=channel, thread=thread)


def also_called(team: str, channel: str) -> tuple[str, ...]:
    """What `[chats] allow` calls a channel. Its id alone may be that of another workspace's channel.

    It is no part of the conversation's own id: an account is one workspace, and `Conversation.key` has `/` between its
    parts.
    """
    return (f"{team}/{channel}",)


def thread_key(channel: str, thread: str) -> str:
    """A thread, as what is known of threads is kept by."""
    return f"{channel}/{thread}"


def message_key(team: str, channel: str, ts: str) -> str:
    """A message; timestamps are unique within their channel only."""
    return f"{team}.{channel}.{ts}"


def edit_key(team: str, channel: str, ts: str, edited: str) -> str:
    """One new text of a message, by the timestamp of the change."""
    return f"{team}.{channel}.{ts}.e{edited}"


def deletion_key(team: str, channel: str, ts: str) -> str:
    """A message that was taken away."""
    return f"{team}.{channel}.{ts}.d"


def command_key(team: str, channel: str, trigger: str) -> str:
    """A slash command, which has no message; its trigger is used once."""
    return f"{team}.{channel}.c{trigger}"


def stop_key(team: str, channel: str, event: str) -> str:
    """A press of Slack's own stop button, which has no message; `event` is the timestamp of the event."""
    return f"{team}.{channel}.s{event}"


def press_key(team: str, channel: str, message: str, action: str, user: str, action_ts: str) -> str:
    """A button press: Slack repeats it with the same timestamp."""
    return f"{team}.{channel}.{message}.p{action}.{user}.{action_ts}"


def view_key(team: str, view: str) -> str:
    """A form that was sent: each is sent once."""
    return f"{team}.v{view}"


def event_key(event_id: str) -> str:
    """Something that is refused."""
    return f"x{event_id}"
