"""Types of inbound events and their conversations. Made by channels, taken by `gateway.inbound`, stored with a
session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.ids import PAGE, Handle, InboundId, OwnerName, Principal, TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Chat, channel or thread of one account. Equal fields mean the same conversation."""

    channel: str
    """Platform: `telegram`, `slack`, `web`."""
    account: str
    """Bot identity on the platform, as named in the configuration."""
    chat: str
    """Platform's own immutable id of the chat."""
    thread: str = ""
    """Platform's id of the topic or thread in the chat; empty for the chat itself."""

    @property
    def key(self) -> str:
        """Unique text form, `channel/account/chat[/thread]`. Only a thread may contain a `/`."""
        return f"{self.chat_scope}/{self.thread}" if self.thread else self.chat_scope

    @property
    def account_scope(self) -> str:
        """Scope of the account's rate limits and bans: `channel/account`."""
        return f"{self.channel}/{self.account}"

    @property
    def chat_scope(self) -> str:
        """Scope of the chat's rate limits and bans: `channel/account/chat`; its threads share it."""
        return f"{self.account_scope}/{self.chat}"

    @property
    def on_page(self) -> bool:
        """True on the web page: an owner's own conversation or a child's."""
        return self.channel == PAGE


def owner_page(owner: OwnerName) -> Conversation:
    """Return the owner's own conversation on the web page."""
    return Conversation(channel=PAGE, account="page", chat=owner)


def latest_chat(used: Iterable[tuple[Conversation, datetime]]) -> Conversation | None:
    """Return the direct conversation used last, or None. Pages do not count: nobody may have one open."""
    chats = [(place, at) for place, at in used if not place.on_page]
    return max(chats, key=lambda one: one[1])[0] if chats else None


class RefusedReason(StrEnum):
    """Reason why an event is not a message. Stored with the event."""

    POISON = "poison"
    """The event cannot be parsed: a field is missing or of the wrong type."""
    UNKNOWN = "unknown"
    """The event is of an unsupported kind."""
    NOT_A_PERSON = "not_a_person"
    """The author is a group, a channel or another bot: nobody who could be allowed, or asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """File of a message: the channel's reference to it, and its metadata from the sender."""

    source: str
    """Channel's own reference, such as a file id. Not a secret, and not an address chosen by a person."""
    name: str
    """Name given by the sender: shown, never used as a path."""
    media_type: str
    """Media type from the platform; empty when it sends none."""
    size: int
    """Bytes according to the platform; 0 when it sends no size."""
    spoken: bool = False
    """True for a voice message of the sender: its words are the message. A forwarded recording is a file, and so is one
    that was chosen to go with a text."""
    seconds: int = 0
    """Length of a recording according to the platform; 0 when it sends none."""


NEXT_PART_WITHIN = timedelta(seconds=1.5)
"""Time after a message that its platform cut off in which the next part follows.

`store/message_parts.py` has the most that a turn waits for all parts.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """Message normalised by a channel. Not stored yet."""

    event_key: str
    """Platform's id of the event; (channel, account, event_key) is accepted once, for ever."""
    conversation: Conversation
    principal: Principal
    name: str
    """Display name of the person; shown, never compared."""
    direct: bool
    """True when the bot and this person are alone in the conversation."""
    addressed: bool
    """True when the message is addressed to the bot: direct, a mention, a reply to it, or a command."""
    text: str
    sent_at: datetime
    """Time of sending according to the platform, aware UTC."""
    edits: str = ""
    """Event key of the message that this edits; empty for a new message."""
    reply_to: str = ""
    """Platform's id of the message that this replies to; empty for no reply."""
    quoted: str = ""
    """Text of that message, or of a forwarded one: data from anybody, never an instruction."""
    unread: str = ""
    """Kind of content that cannot be read yet, as in `a photo`; empty when all of it is in `text`."""
    attachments: tuple[Attachment, ...] = ()
    """Files of the message. They are fetched when its turn first reads it, into the session's workspace."""
    cut: bool = False
    """True at the platform's maximum length: the next message of the same person, if it comes at once, continues this
    one."""
    also_called: tuple[str, ...] = ()
    """Other ids of the same chat, from the platform itself. Routing accepts any of them as allowed. Not stored."""
    outsider: bool = False
    """True for anybody but a full member of the conversation's own organisation, such as a guest. Only an entry for
    that very person lets them in, not one for the chat or for everybody. Not stored."""
    unsure: bool = False
    """True while the platform does not say whether the person is an outsider. A message that it may deliver again is
    not dropped for that alone. Not stored."""
    follows: str = ""
    """Event key of the previous message in the chat; empty where the chat's messages have no numbers."""
    album: str = ""
    """Platform's id of the album of this message, unique in its account; empty outside albums. An album is one message
    for its reader. Not stored with the message."""


def is_spoken(message: Inbound) -> bool:
    """Return whether a message has words that were spoken: they decide nothing, and answer no card and no question."""
    return any(one.spoken for one in message.attachments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Event that is not a message, with the reason. Stored as a row; it never blocks later events."""

    channel: str
    account: str
    event_key: str
    reason: RefusedReason
    detail: str
    """Kind of the event, or what was wrong, for the log and the row. No secrets."""
    raw: str = ""
    """Raw event, for `POISON`; channels keep its first 2,048 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFile:
    """Result of fetching one attachment, when its message was first read."""

    path: str
    """Path relative to the workspace; empty when the fetch failed."""
    size: int
    """Bytes."""
    media_type: str
    """Media type by the first bytes where they identify it, else the platform's."""
    trouble: str = ""
    """Reason for a failed fetch, one sentence."""
    heard: str = ""
    """Transcript of a recording, on one line; empty without one."""
    unheard: str = ""
    """Reason for a missing transcript of a recording, for its sender."""


CONTEXT_KEPT = 50
"""Maximum context messages, the latest ones: given to a new turn, and given to a model for all turns together. They
are group messages that do not address the bot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Message as stored. It is given to its turn's model before step `given`."""

    id: InboundId
    turn: TurnId | None
    """None for a control command, answered at ingress, and for context until a turn takes it."""
    message: Inbound
    given: int | None
    """Number of the step before which it was given; None while it is not given yet."""
    received_at: datetime
    files: tuple[FetchedFile, ...] | None = None
    """Results for `message.attachments`, in their order; None before the fetch."""
    context: bool = False
    """True for context, a group message not addressed to the bot. The turn may read it as data; it requests nothing."""
    continues: bool = False
    """True when it forms one message with the previous one of the turn: cut off by the platform, or of one album."""


REASON_AT_MOST = 1000
"""Characters of a reason that are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """Button press normalised by a channel. Its only authority is the principal."""

    event_key: str
    conversation: Conversation
    principal: Principal
    handle: Handle
    reason: str = ""
    """Reason that the person gave for a denial; empty otherwise."""
    can_ask_reason: bool = False
    """True when the platform's buttons carry no text: a denial with a reason then waits for a reply to the card."""
