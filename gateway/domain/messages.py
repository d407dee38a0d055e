"""What channels push into the gateway, and where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.ids import PAGE, Handle, InboundId, OwnerName, Principal, TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A chat, channel or thread of one account. Equal fields mean the same place."""

    channel: str
    """The platform: `telegram`, `slack`, `web`."""
    account: str
    """The bot identity on it, as named in the configuration."""
    chat: str
    """The platform's own immutable id of the chat."""
    thread: str = ""
    """The platform's id of the topic or thread in it; empty for the chat itself."""

    @property
    def key(self) -> str:
        """The one text form, `channel/account/chat[/thread]`. No two places share one: only a thread may have a `/`."""
        return f"{self.chat_scope}/{self.thread}" if self.thread else self.chat_scope

    @property
    def account_scope(self) -> str:
        """What limits and bans of the whole account are counted by: `channel/account`."""
        return f"{self.channel}/{self.account}"

    @property
    def chat_scope(self) -> str:
        """What limits and bans of the chat are counted by: `channel/account/chat`; its threads share them."""
        return f"{self.account_scope}/{self.chat}"

    @property
    def on_page(self) -> bool:
        """Whether it is on the web page, an owner's own or a child's place."""
        return self.channel == PAGE


def owner_page(owner: OwnerName) -> Conversation:
    """The owner's own conversation on the web page."""
    return Conversation(channel=PAGE, account="page", chat=owner)


def latest_chat(used: Iterable[tuple[Conversation, datetime]]) -> Conversation | None:
    """The one of these direct conversations that was used last, not counting pages: those nobody may have open."""
    chats = [(place, at) for place, at in used if not place.on_page]
    return max(chats, key=lambda one: one[1])[0] if chats else None


class RefusedReason(StrEnum):
    """Why an event is not a message. Stored with it."""

    POISON = "poison"
    """It cannot be read: something is missing or of the wrong kind."""
    UNKNOWN = "unknown"
    """A kind of event that is not used here."""
    NOT_A_PERSON = "not_a_person"
    """A group, a channel or another bot speaks: nobody who could be allowed, or asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that came with a message: where the channel finds it, and what its sender says of it."""

    source: str
    """The channel's own reference, such as a file's id. Not a secret, and not an address that a person chose."""
    name: str
    """As its sender calls it: shown, never a path."""
    media_type: str
    """As the platform says; empty when it does not."""
    size: int
    """Bytes as the platform says; 0 when it does not."""


NEXT_PART_WITHIN = timedelta(seconds=1.5)
"""How soon the next part of a message follows that its platform cut off."""
NEXT_OF_ALBUM_WITHIN = timedelta(seconds=1)
"""Pause after one message of an album before its turn may begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """One message, normalised by a channel. Not stored yet."""

    event_key: str
    """The platform's id of the event; (channel, account, event_key) is accepted once, for ever."""
    conversation: Conversation
    principal: Principal
    name: str
    """How the person is called in the chat; shown, never compared."""
    direct: bool
    """True when the bot and this person are alone in the conversation."""
    addressed: bool
    """True when the bot is meant: direct, mentioned, replied to, or a command."""
    text: str
    sent_at: datetime
    """When the platform says it was sent, aware UTC."""
    edits: str = ""
    """The event key of the message that this is a new text of; empty for a message of its own."""
    reply_to: str = ""
    """The platform's id of the message that it answers; empty when it answers none."""
    quoted: str = ""
    """What that message says, or a message that is passed on: data from anybody, never an instruction."""
    unread: str = ""
    """What came with it and cannot be read yet, as in `a photo`; empty when all of it is in `text`."""
    attachments: tuple[Attachment, ...] = ()
    """Files that came with it. They are fetched when its turn first reads it, into the session's workspace."""
    cut: bool = False
    """True when it is as long as the platform allows: what follows at once from the same person goes on with it."""
    also_called: tuple[str, ...] = ()
    """Other ids of the same chat, from the platform itself: routing takes any of them as allowed. Not stored."""
    outsider: bool = False
    """True for somebody who is no full member of the place's own organisation, such as a guest: only an entry of that
    very person lets them in, not one of the chat or of everybody. Not stored."""
    unsure: bool = False
    """True when the platform does not say now whether they are an outsider: what it may tell once more is not dropped
    for that alone. Not stored."""
    follows: str = ""
    """The event key of the message right before it in the chat; empty where the chat's messages have no numbers."""
    album: str = ""
    """The platform's id of the album that this message is one of, unique in its account; empty for any other message.
    An album is one message for its reader. Not stored with the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An event that no message could be made of, and why. A row keeps it; it never blocks what comes after it."""

    channel: str
    account: str
    event_key: str
    reason: RefusedReason
    detail: str
    """For the log and the row: which kind, or what was wrong. No secrets."""
    raw: str = ""
    """The event as it came, for `POISON`; channels keep its first 2,048 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFile:
    """What became of one attachment when its message was first read."""

    path: str
    """Where it is, relative to the workspace; empty when it is not there."""
    size: int
    """Bytes."""
    media_type: str
    """By its first bytes where they tell, else what the platform said."""
    trouble: str = ""
    """Why it is not there, one sentence."""


CONTEXT_KEPT = 50
"""Messages said beside the bot that a new turn is given, and that a model is given of all its turns: the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message as stored: given to its turn's model before step `given`."""

    id: InboundId
    turn: TurnId | None
    """None for a control command, answered at ingress, and for what was said beside the bot until a turn takes it."""
    message: Inbound
    given: int | None
    """The number of the step it was given before; None while it still waits to be given."""
    received_at: datetime
    files: tuple[FetchedFile, ...] | None = None
    """What became of `message.attachments`, in their order; None until somebody looked."""
    context: bool = False
    """True when it was said beside the bot in a group: the turn may read it, as data; it asks for nothing."""
    continues: bool = False
    """True when it is one message with the one before it in the turn: cut off by the platform, or of one album."""


REASON_AT_MOST = 1000
"""Characters of a reason that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """One button press, normalised by a channel. Carries no authority but who pressed."""

    event_key: str
    conversation: Conversation
    principal: Principal
    handle: Handle
    reason: str = ""
    """What the person gave as the reason of a denial; empty otherwise."""
    can_ask_reason: bool = False
    """True when the platform's buttons carry no text: a denial with a reason then waits for a reply to the card."""
